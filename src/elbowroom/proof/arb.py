"""The slow third opinion: the same claim proved in balls of 128 bits (Arb, through python-flint).

Own code from end to end: forward intervals and backward rows, one input after the other, every affine operation as a
dense matrix of its exact coefficients, which are read off the forward pass itself: one-hot inputs, of which every sum
has one term. Nothing is rounded that is not enclosed, so there are no error terms to get wrong. For graphs of affine
operations with ReLU, sigmoid, tanh, arctan and max-pooling.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from elbowroom.claim.hints import Hints
from elbowroom.claim.stated import Stated, well_formed
from elbowroom.errors import ElbowroomError, UnsupportedError
from elbowroom.machine.arithmetic import refuse_other_arithmetic
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network, Node

BITS = 128
Balls = list[Any]  # of flint.arb


def prove_arb(
    net: Network, region: Stated, rows: Tensor, offset: Tensor, group: Tensor, hints: Hints | None = None
) -> Tensor:
    """As `prove`: numbers below the specification's groups on the whole region, `b x g`; minus infinity: not proved."""
    _flint()
    refuse_other_arithmetic(torch.device("cpu"))  # weights are read through the forward pass, which must keep them
    missing = [f"{n.name}: {n.op.name}{_why(type(n.op))}" for n in net.nodes[1:] if not _covered(n.op)]
    missing += [] if type(net) is Network else [type(net).__name__]
    if missing:
        raise UnsupportedError("the proof in ball arithmetic does not cover " + "; ".join(missing))
    region, rows, offset = well_formed(region.to("cpu"), rows.cpu(), offset.cpu(), group, net.n_inputs, net.n_outputs)
    sensible = region.sensible().tolist()
    batch, groups = len(sensible), int(group.max()) + 1
    rows, offset = (t.expand(batch, *t.shape[1:]) for t in (rows, offset))
    out = torch.full((batch, groups), -torch.inf, dtype=torch.float64)
    with _precision(BITS):
        layers = [_layer(net, node) for node in net.nodes]
        for b in range(batch):
            if not sensible[b]:
                continue
            work = _Bounds(net, layers, _Balls(region, b), hints or Hints())
            for t, value in enumerate(work.margins(rows[b].tolist(), offset[b].tolist())):
                g = int(group[t])
                out[b, g] = max(float(out[b, g]), _float_below(value))
    return out


def _flint() -> Any:
    try:
        import flint
    except ImportError:
        raise ElbowroomError('the proof in ball arithmetic needs python-flint: pip install "elbowroom[arb]"') from None
    return flint


@contextmanager
def _precision(bits: int) -> Iterator[None]:
    context = _flint().ctx
    before, context.prec = context.prec, bits
    try:
        yield
    finally:
        context.prec = before


def _balls(t: Tensor) -> Balls:
    arb = _flint().arb
    return [arb(v) for v in t.detach().double().flatten().tolist()]


def _matrix(balls: Sequence[Balls]) -> Any:
    return _flint().arb_mat(len(balls), len(balls[0]), [v for row in balls for v in row])


def _rows(matrix: Any) -> list[Balls]:
    entries, n = matrix.entries(), matrix.ncols()
    return [entries[i : i + n] for i in range(0, len(entries), n)]


def _float_below(value: Any) -> float:
    if not value.is_finite():
        return -math.inf
    found = float(value.lower())
    return math.nextafter(found, -math.inf) if not math.isnan(found) else -math.inf


# --- affine operations as matrices


class _Layer(NamedTuple):
    """`sum_j matrices[j] x_j + offset`: the exact coefficients of an affine operation, in balls."""

    matrices: list[Any]
    offset: Balls


def _entries(matrix: Any) -> tuple[bool, bool]:
    """Whether no row, and whether no column, has two entries that are not zero."""
    filled = [[k for k, v in enumerate(row) if not v.is_zero()] for row in _rows(matrix)]
    columns = [k for row in filled for k in row]
    return all(len(row) < 2 for row in filled), len(set(columns)) == len(columns)


def _covered(op: ops.Operation) -> bool:
    return type(op) in AFFINE or type(op) in CURVES or type(op) is ops.MaxPool


def _why(kind: type) -> str:
    return f" ({LACKS[kind]})" if kind in LACKS else ""


def _layer(net: Network, node: Node) -> _Layer | None:
    if type(node.op) not in AFFINE:
        return None
    shapes = [net.nodes[j].shape for j in node.inputs]
    return AFFINE[type(node.op)](node.op.map_tensors(lambda t: t.detach().double().cpu()), node.shape, shapes)


def _products(op: Any, shape: ops.Shape, shapes: Sequence[ops.Shape]) -> _Layer:
    """Linear and Conv: without their bias, one-hot inputs give the weights themselves."""
    entries = _transposed(_one_hot(dataclasses.replace(op, bias=None), shapes, 0))
    bias = torch.zeros(1, dtype=torch.float64) if op.bias is None else op.bias
    spread = bias.reshape(-1, *[1] * (len(shape) - 1)) if type(op) is ops.Conv else bias
    return _Layer([_matrix(entries)], _balls(spread.expand(shape)))


def _addition(op: Any, shape: ops.Shape, shapes: Sequence[ops.Shape]) -> _Layer:
    arb, ones = _flint().arb, ops.Add(tuple(1.0 for _ in op.signs))
    matrices = [_matrix(_transposed(_one_hot(ones, shapes, j))) * arb(float(s)) for j, s in enumerate(op.signs)]
    return _Layer(matrices, [arb(0)] * math.prod(shape))


def _move(op: Any, shape: ops.Shape, shapes: Sequence[ops.Shape]) -> _Layer:
    plain = dataclasses.replace(op, value=0.0) if type(op) is ops.Pad else op
    matrices = [_matrix(_transposed(_one_hot(plain, shapes, j))) for j in range(len(shapes))]
    return _Layer(matrices, _balls(op(*(torch.zeros(1, *s, dtype=torch.float64) for s in shapes))))


def _average(op: Any, shape: ops.Shape, shapes: Sequence[ops.Shape]) -> _Layer:
    arb, found = _flint().arb, _one_hot(op, shapes, 0)
    # Each coefficient is one over a whole number of entries.
    exact = {v: arb(1) / round(1 / v) if v else arb(0) for v in {v for row in found for v in row.tolist()}}
    return _Layer([_matrix([[exact[v] for v in row] for row in found.T.tolist()])], [arb(0)] * math.prod(shape))


def _entrywise(op: Any, shape: ops.Shape, shapes: Sequence[ops.Shape]) -> _Layer:
    """Scale, Divide, Shift and BatchNorm: a factor and a summand for every output, and the entry that it reads."""
    factor, added = _pointwise(op, shape)
    source = torch.arange(math.prod(shapes[0])).reshape(shapes[0]).expand(shape).flatten().tolist()
    zero = _flint().arb(0)
    entries = [[zero] * math.prod(shapes[0]) for _ in source]
    for i, j in enumerate(source):
        entries[i][j] = factor[i]
    return _Layer([_matrix(entries)], added)


AFFINE: dict[type[ops.Operation], Callable[[Any, ops.Shape, Sequence[ops.Shape]], _Layer]] = {
    **dict.fromkeys((ops.Linear, ops.Conv), _products),
    ops.Add: _addition,
    **dict.fromkeys((ops.Reshape, ops.Transpose, ops.Slice, ops.Pad, ops.Concat), _move),
    **dict.fromkeys((ops.AvgPool, ops.Mean), _average),
    **dict.fromkeys((ops.Scale, ops.Divide, ops.Shift, ops.BatchNorm), _entrywise),
}


def _one_hot(op: Any, shapes: Sequence[ops.Shape], j: int) -> Tensor:
    """An operation without an offset applied to every one-hot vector of input j, the others zero: `in x out`."""
    size = math.prod(shapes[j])
    given = [torch.zeros(size, *s, dtype=torch.float64) for s in shapes]
    given[j] = torch.eye(size, dtype=torch.float64).reshape(size, *shapes[j])
    found: Tensor = op(*given)
    return found.flatten(1)


def _windows(op: ops.MaxPool, spatial: Sequence[int]) -> list[list[int]]:
    """The places that each output of one channel looks at: those where a one among zeros is the largest."""
    size = math.prod(spatial)
    seen = op(torch.eye(size, dtype=torch.float64).reshape(size, 1, *spatial)).flatten(1)
    return [column.nonzero().flatten().tolist() for column in (seen == 1).T]


def _transposed(t: Tensor) -> list[Balls]:
    arb = _flint().arb
    return [[arb(v) for v in row] for row in t.T.tolist()]


def _pointwise(op: Any, shape: ops.Shape) -> tuple[Balls, Balls]:
    """Factor and summand of every entry of the output."""
    arb = _flint().arb
    count = math.prod(shape)
    if isinstance(op, ops.BatchNorm):
        along = [-1, *[1] * (len(shape) - 1)]

        def of(t: Tensor | None, default: float) -> Balls:
            given = torch.full_like(op.mean, default) if t is None else t
            return _balls(given.reshape(along).expand(shape))

        scale = [w / (v + arb(op.eps)).sqrt() for w, v in zip(of(op.weight, 1.0), of(op.var, 0.0))]
        return scale, [c - m * s for c, m, s in zip(of(op.bias, 0.0), of(op.mean, 0.0), scale)]
    (constant,) = (_balls(t.expand(shape)) for t in op.tensors().values())
    if isinstance(op, ops.Shift):
        return [arb(1)] * count, constant
    return (constant if isinstance(op, ops.Scale) else [1 / c for c in constant]), [arb(0)] * count


# --- the region


class _Balls:
    """One input's region in balls: a box by its corners, or `center + basis (radius * v)`, `||v||_p <= 1`."""

    def __init__(self, stated: Stated, b: int) -> None:
        self.p = stated.p
        self.basis = None if stated.basis is None else _matrix([_balls(row) for row in stated.basis])
        if stated.lower is not None and stated.upper is not None:
            self.lower, self.upper = _balls(stated.lower[b]), _balls(stated.upper[b])
            self.center: Balls | None = None
            return
        assert stated.center is not None and stated.radius is not None
        self.center, self.radius = _balls(stated.center[b]), _balls(stated.radius[b])
        units = [[_flint().arb(int(i == k)) for k in range(len(self.center))] for i in range(len(self.center))]
        self.lower = [v.lower() for v in self.least(units)]
        self.upper = [(-v).upper() for v in self.least([[-v for v in row] for row in units])]

    def least(self, rows: list[Balls]) -> Balls:
        """Each row's least value over the region."""
        if self.center is None:
            return [_least(row, self.lower, self.upper) for row in rows]
        turned = rows if self.basis is None else _rows(_matrix(rows) * self.basis)
        return [_dot(row, self.center) - self._reach(t) for row, t in zip(rows, turned)]

    def _reach(self, row: Balls) -> Any:
        scaled = [abs(a) * r for a, r in zip(row, self.radius)]
        if self.p == math.inf:
            return sum(scaled[1:], scaled[0])
        if self.p == 2:
            return _dot(scaled, scaled).sqrt()
        return _largest(scaled)


def _dot(a: Balls, b: Balls) -> Any:
    total = _flint().arb(0)
    for x, y in zip(a, b):
        total += x * y
    return total


def _least(row: Balls, lower: Balls, upper: Balls) -> Any:
    """The least of `row . z` over a box."""
    total = _flint().arb(0)
    for a, l, u in zip(row, lower, upper):
        if a == 0:
            continue
        total += a * l if a >= 0 else a * u if a <= 0 else a * l.union(u)
    return total


def _largest(balls: Balls) -> Any:
    best = balls[0]
    for v in balls[1:]:
        best = best.max(v)
    return best


def _smallest(balls: Balls) -> Any:
    return -_largest([-v for v in balls])


# --- bounds


class _Lines(NamedTuple):
    """`k_l x_s + m_l <= y <= k_u x_s + m_u` per output, `s` the input it depends on."""

    k_l: Balls
    m_l: Balls
    k_u: Balls
    m_u: Balls
    source: list[int]


class _Bounds:
    """Intervals of every node (exact ends) and lines of every activation, over one region."""

    def __init__(self, net: Network, layers: list[_Layer | None], region: _Balls, hints: Hints) -> None:
        self.net, self.layers, self.region, self.hints = net, layers, region, hints
        self.lower, self.upper = [region.lower], [region.upper]
        self.lines: dict[int, _Lines] = {}
        targets = set(net.preactivations) if hints.hidden else set()
        # Nodes whose entries move freely of each other, and nodes whose interval is their very range.
        free, exact = [region.center is None], [region.center is None]
        for i in range(1, len(net.nodes)):
            low, high = self._forward(i)
            j, layer = net.nodes[i].inputs[0], layers[i]
            single = layer is not None and len(layer.matrices) == 1
            alone, once = _entries(layer.matrices[0]) if layer is not None and single else (False, False)
            free.append(free[j] and alone and once)
            exact.append(single and (free[j] or (exact[j] and alone)))
            if i in targets and not exact[i]:
                below, above = self._unit_rows(i)
                low = [a.max(b) for a, b in zip(low, below)]
                high = [a.min(b) for a, b in zip(high, above)]
            self.lower.append([v.lower() for v in low])
            self.upper.append([v.upper() for v in high])

    def _forward(self, i: int) -> tuple[Balls, Balls]:
        node = self.net.nodes[i]
        layer = self.layers[i]
        if layer is not None:
            low, high = list(layer.offset), list(layer.offset)
            for j, matrix in zip(node.inputs, layer.matrices):
                for k, row in enumerate(_rows(matrix)):
                    low[k] += _least(row, self.lower[j], self.upper[j])
                    high[k] -= _least([-v for v in row], self.lower[j], self.upper[j])
            return low, high
        l, u = self.lower[node.inputs[0]], self.upper[node.inputs[0]]
        if type(node.op) is ops.MaxPool:
            return self._pool(i, node.op, l, u)
        curve = CURVES[type(node.op)]
        found = [_relax(curve, a, b, self.hints.parallel) for a, b in zip(l, u)]
        k_l, m_l, k_u, m_u = (list(t) for t in zip(*found))
        self.lines[i] = _Lines(k_l, m_l, k_u, m_u, list(range(len(l))))
        return [curve.value(v) for v in l], [curve.value(v) for v in u]

    def _pool(self, i: int, op: ops.MaxPool, l: Balls, u: Balls) -> tuple[Balls, Balls]:
        node = self.net.nodes[i]
        channels, *spatial = self.net.nodes[node.inputs[0]].shape
        arb, size = _flint().arb, math.prod(spatial)
        found, seen = [], _windows(op, spatial)
        for c in range(channels):
            for window in seen:
                places = [c * size + w for w in window]
                if not places:
                    raise UnsupportedError(f"{node.name}: a window of this MaxPool lies in the padding alone")
                j = max(places, key=lambda p: float(l[p]))
                v = _largest([l[j], *(u[p] for p in places if p != j)])
                top = u[j].max(v)
                # A line above max(x_j, v), which is convex in x_j: above both of its ends.
                slope = arb(1)
                if not self.hints.parallel and v > l[j]:
                    slope = (top - v) / (u[j] - l[j]) if u[j] > l[j] else arb(0)
                shift = arb(0) if v <= l[j] else (v - slope * l[j]).max(top - slope * u[j])
                found.append((arb(1), arb(0), slope, shift, j, _largest([l[p] for p in places]), top))
        k_l, m_l, k_u, m_u, source, low, high = (list(t) for t in zip(*found))
        self.lines[i] = _Lines(k_l, m_l, k_u, m_u, source)
        return low, high

    def _unit_rows(self, i: int) -> tuple[Balls, Balls]:
        arb, size = _flint().arb, self.net.nodes[i].size
        units = [[arb(int(r == c)) for c in range(size)] for r in range(size)]
        found = self.rows_below(i, units + [[-v for v in row] for row in units])
        return found[:size], [-v for v in found[size:]]

    def rows_below(self, i: int, rows: list[Balls], intervals: bool = False) -> Balls:
        """Balls whose lower ends are below `rows . z_i`; `intervals`: stop at the first activations."""
        arb = _flint().arb
        total = [arb(0)] * len(rows)
        waiting = {i: _matrix(rows)}
        while waiting:
            k = max(waiting)
            matrix = waiting.pop(k)
            node, layer = self.net.nodes[k], self.layers[k]
            if k == 0:
                total = [a + b for a, b in zip(total, self.region.least(_rows(matrix)))]
            elif layer is not None:
                total = [a + b for a, b in zip(total, (matrix * _matrix([[v] for v in layer.offset])).entries())]
                for j, part in zip(node.inputs, layer.matrices):
                    through = matrix * part
                    waiting[j] = waiting[j] + through if j in waiting else through
            elif intervals:
                ends = self.lower[k], self.upper[k]
                total = [a + _least(row, *ends) for a, row in zip(total, _rows(matrix))]
            else:
                j = node.inputs[0]
                constants, below = self._past(k, _rows(matrix), self.net.nodes[j].size)
                total = [a + b for a, b in zip(total, constants)]
                waiting[j] = waiting[j] + below if j in waiting else below
        return total

    def _past(self, k: int, rows: list[Balls], size: int) -> tuple[Balls, Any]:
        """Rows over an activation become constants and rows over its input."""
        arb, line = _flint().arb, self.lines[k]
        constants, out = [], []
        for row in rows:
            constant, below = arb(0), [arb(0)] * size
            for c, a in enumerate(row):
                if a == 0:
                    continue
                s = line.source[c]
                if a >= 0:
                    constant += a * line.m_l[c]
                    below[s] += a * line.k_l[c]
                elif a <= 0:
                    constant += a * line.m_u[c]
                    below[s] += a * line.k_u[c]
                else:  # a coefficient whose sign is lost is next to zero: its whole term is enclosed
                    constant += a * self.lower[k][c].union(self.upper[k][c])
            constants.append(constant)
            out.append(below)
        return constants, _matrix(out)

    def margins(self, rows: list[list[float]], offset: list[float]) -> Balls:
        arb, last = _flint().arb, len(self.net.nodes) - 1
        exact = [[arb(v) for v in row] for row in rows]
        found = [self.rows_below(last, exact, intervals) for intervals in (False, True)]
        if self.hints.logits:
            below, above = self._unit_rows(last)
            low = [a.max(b).lower() for a, b in zip(below, self.lower[last])]
            high = [a.min(b).upper() for a, b in zip(above, self.upper[last])]
            found.append([_least(row, low, high) for row in exact])
        best = []
        for d, *ways in zip(offset, *found):
            finite = [v.lower() for v in ways if v.is_finite()]
            best.append(_largest(finite) + arb(d) if finite else arb("nan"))
        return best


# --- activations


class Curve(NamedTuple):
    """A monotone function, odd up to a constant and concave for x > 0 (or ReLU).

    `value`: in balls. `where`: the x >= 0 at which the derivative is k, an exact positive number, None where it is
    nowhere. `plain`: value and slope in floating point, good enough to propose slopes.
    """

    value: Callable[[Any], Any]
    where: Callable[[Any], Any] | None = None
    plain: Callable[[float], tuple[float, float]] | None = None


def _sigmoid_where(k: Any) -> Any:
    inside = 1 - 4 * k
    return ((1 + inside.sqrt()) ** 2 / (4 * k)).log() if inside >= 0 else None


def _tanh_where(k: Any) -> Any:
    inside = 1 - k
    return ((1 + inside.sqrt()) ** 2 / k).log() / 2 if inside >= 0 else None


def _arctan_where(k: Any) -> Any:
    return (1 / k - 1).sqrt() if k <= 1 else None


def _sigmoid_plain(x: float) -> tuple[float, float]:
    e = math.exp(-abs(x))
    return (1 / (1 + e) if x > 0 else e / (1 + e)), e / (1 + e) ** 2


def _tanh_plain(x: float) -> tuple[float, float]:
    return math.tanh(x), 1 / math.cosh(min(abs(x), 350.0)) ** 2


def _arctan_plain(x: float) -> tuple[float, float]:
    return math.atan(x), 1 / (1 + x * x)


CURVES: dict[type[ops.Operation], Curve] = {
    ops.ReLU: Curve(lambda x: x.max(_flint().arb(0))),
    ops.Sigmoid: Curve(lambda x: 1 / (1 + (-x).exp()), _sigmoid_where, _sigmoid_plain),
    ops.Tanh: Curve(lambda x: x.tanh(), _tanh_where, _tanh_plain),
    ops.Arctan: Curve(lambda x: x.atan(), _arctan_where, _arctan_plain),
}
# What has no row here, and why.
LACKS: dict[type[ops.Operation], str] = {
    ops.LeakyReLU: "its lines are not written in balls",
    ops.Clip: "its lines are not written in balls",
    ops.ELU: "it is not odd, as the curves here are",
    ops.Softplus: "it is not odd, as the curves here are",
    ops.SiLU: "it is not monotone",
    ops.GELU: "it is not monotone",
}


def _relax(curve: Curve, l: Any, u: Any, parallel: bool) -> tuple[Any, Any, Any, Any]:
    """Lines of one neuron on `[l, u]`, with the slopes the float64 check would take: `k_l, m_l, k_u, m_u`."""
    arb = _flint().arb
    zero, one = arb(0), arb(1)
    if curve.where is None or curve.plain is None:  # ReLU
        if u <= 0:
            return zero, zero, zero, zero
        if l >= 0:
            return one, zero, one, zero
        chord = u / (u - l)
        return chord if parallel else (one if l + u > 0 else zero), zero, chord, -l * chord
    slopes = _slopes(curve.plain, float(l), float(u), parallel)
    k_l, k_u = (arb(k if math.isfinite(k) else 0.0) for k in slopes)
    low, high = (_extremes(curve.value, curve.where, k, l, u) for k in (k_l, k_u))
    return k_l, _smallest(low), k_u, _largest(high)


def _extremes(value: Callable[[Any], Any], where: Callable[[Any], Any], k: Any, l: Any, u: Any) -> Balls:
    """`sigma(x) - k x` at the ends of `[l, u]` and where its derivative vanishes in between; k is an exact number."""
    points = [l, u]
    at = where(k) if k > 0 else None
    if at is not None:
        points += [p for p in (at, -at) if not (p < l or p > u)]
    return [value(p) - k * p for p in points]


def _slopes(plain: Callable[[float], tuple[float, float]], l: float, u: float, parallel: bool) -> tuple[float, float]:
    """Chord, or slopes of the convex and the concave envelope at the midpoint; proposals only."""
    if not (math.isfinite(l) and math.isfinite(u)):
        return 0.0, 0.0
    mid, width = l / 2 + u / 2, u - l
    narrow = width <= 1e-5 * max(abs(l), abs(u), 1.0)
    chord = plain(mid)[1] if narrow else (plain(u)[0] - plain(l)[0]) / width
    if parallel:
        return chord, chord
    # Below is above, seen from the other side: all these functions are odd, up to a constant.
    return _upper_slope(plain, -u, -l, chord), _upper_slope(plain, l, u, chord)


def _upper_slope(plain: Callable[[float], tuple[float, float]], l: float, u: float, chord: float) -> float:
    mid = l / 2 + u / 2
    if u <= 0:
        return chord
    if l >= 0:
        return plain(mid)[1]

    def short(d: float) -> bool:
        """Whether the tangent at d passes above the point at l."""
        value, slope = plain(d)
        return slope * (d - l) < value - plain(l)[0]

    if not short(u):
        return chord
    near, away = 0.0, u
    for _ in range(60):
        d = near / 2 + away / 2
        near, away = (near, d) if short(d) else (d, away)
    return plain(max(away, mid))[1]
