"""The slow third opinion: the same claim proved in balls of 128 bits (Arb, through python-flint).

Own code from end to end: forward intervals and backward rows, one input after the other, every affine operation as a
dense matrix of its exact coefficients. Nothing is rounded that is not enclosed, so there are no error terms to get
wrong. For graphs of affine operations with ReLU, sigmoid, tanh, arctan and max-pooling.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from elbowroom.errors import ElbowroomError, InputError, UnsupportedError
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network, Node
from elbowroom.proof.kernel.prove import NORMS, Hints
from elbowroom.proof.kernel.walk import Area

BITS = 128
_MOVES = (ops.Reshape, ops.Transpose, ops.Slice, ops.Pad, ops.Concat)
_AVERAGES = (ops.AvgPool, ops.Mean)
_POINTWISE = (ops.Scale, ops.Divide, ops.Shift, ops.BatchNorm)
_CURVES = (ops.Sigmoid, ops.Tanh, ops.Arctan)
COVERED = (ops.Linear, ops.Conv, ops.Add, ops.ReLU, ops.MaxPool, *_MOVES, *_AVERAGES, *_POINTWISE, *_CURVES)
Balls = list[Any]  # of flint.arb


def prove_arb(
    net: Network, area: Area, rows: Tensor, offset: Tensor, group: Tensor, hints: Hints | None = None
) -> Tensor:
    """As `prove`: numbers below the specification's groups on the whole area, `b x g`; minus infinity: not proved."""
    _flint()
    missing = [f"{n.name}: {n.op.name}" for n in net.nodes[1:] if type(n.op) not in COVERED]
    missing += [] if type(net) is Network else [type(net).__name__]
    if missing:
        raise UnsupportedError("the proof in ball arithmetic does not cover " + "; ".join(missing))
    if area.p not in NORMS:
        raise InputError(f"the proof in ball arithmetic knows the norms 1, 2 and infinity, not {area.p}")
    sensible = area.sensible().tolist()
    batch, groups = len(sensible), int(group.max()) + 1
    rows, offset = (t.double().cpu().expand(batch, *t.shape[1:]) for t in (rows, offset))
    out = torch.full((batch, groups), -torch.inf, dtype=torch.float64)
    with _precision(BITS):
        layers = [_layer(net, node) for node in net.nodes]
        for b in range(batch):
            if not sensible[b]:
                continue
            work = _Bounds(net, layers, _Set(area, b), hints or Hints())
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


def _layer(net: Network, node: Node) -> _Layer | None:
    op = node.op
    if not isinstance(op, ops.Affine):
        return None
    arb = _flint().arb
    shapes = [net.nodes[j].shape for j in node.inputs]
    wide = op.map_tensors(lambda t: t.detach().double().cpu())
    if isinstance(wide, ops.Linear | ops.Conv):
        # Applied to one-hot vectors, every sum has one term that is not zero: the entries are the weights themselves.
        bias = torch.zeros(1, dtype=torch.float64) if wide.bias is None else wide.bias
        spread = bias.reshape(-1, *[1] * (len(node.shape) - 1)) if isinstance(wide, ops.Conv) else bias
        return _Layer([_matrix(_transposed(_one_hot(wide, shapes, 0)))], _balls(spread.expand(node.shape)))
    if isinstance(wide, ops.Add):
        ones = ops.Add(tuple(1.0 for _ in wide.signs))
        matrices = []
        for j, sign in enumerate(wide.signs):
            entries = _transposed(_one_hot(ones, shapes, j))
            matrices.append(_matrix(entries) * arb(float(sign)))
        return _Layer(matrices, [arb(0)] * node.size)
    if isinstance(wide, _MOVES):
        matrices = [_matrix(_transposed(_one_hot(wide, shapes, j))) for j in range(len(shapes))]
        zeros = [torch.zeros(1, *s, dtype=torch.float64) for s in shapes]
        return _Layer(matrices, _balls(wide(*zeros)))
    if isinstance(wide, _AVERAGES):
        found = _one_hot(wide, shapes, 0)
        # Each coefficient is one over a whole number of entries.
        exact = {v: arb(1) / round(1 / v) if v else arb(0) for v in {v for row in found for v in row.tolist()}}
        entries = [[exact[v] for v in row] for row in found.T.tolist()]
        return _Layer([_matrix(entries)], [arb(0)] * node.size)
    assert isinstance(wide, _POINTWISE)
    factor, added = _pointwise(wide, node.shape)
    source = torch.arange(math.prod(shapes[0])).reshape(shapes[0]).expand(node.shape).flatten().tolist()
    zero = arb(0)
    entries = [[zero] * math.prod(shapes[0]) for _ in range(node.size)]
    for i, j in enumerate(source):
        entries[i][j] = factor[i]
    return _Layer([_matrix(entries)], added)


def _one_hot(op: ops.Affine, shapes: Sequence[ops.Shape], j: int) -> Tensor:
    """The linear part applied to every one-hot vector of input j, the other inputs zero: `in x out`."""
    size = math.prod(shapes[j])
    given = [torch.zeros(size, *s, dtype=torch.float64) for s in shapes]
    given[j] = torch.eye(size, dtype=torch.float64).reshape(size, *shapes[j])
    return op.linear(*given).flatten(1)


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


class _Set:
    """One input's region: a box by its corners, or `center + basis (radius * v)`, `||v||_p <= 1`."""

    def __init__(self, area: Area, b: int) -> None:
        self.p = area.p
        self.basis = None if area.basis is None else _matrix([_balls(row) for row in area.basis])
        if area.lower is not None and area.upper is not None:
            self.lower, self.upper = _balls(area.lower[b]), _balls(area.upper[b])
            self.center: Balls | None = None
            return
        assert area.center is not None and area.radius is not None
        self.center, self.radius = _balls(area.center[b]), _balls(area.radius[b])
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

    def __init__(self, net: Network, layers: list[_Layer | None], region: _Set, hints: Hints) -> None:
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
        if isinstance(node.op, ops.MaxPool):
            return self._pool(i, l, u)
        found = [_relax(node.op, a, b, self.hints.parallel) for a, b in zip(l, u)]
        k_l, m_l, k_u, m_u = (list(t) for t in zip(*found))
        self.lines[i] = _Lines(k_l, m_l, k_u, m_u, list(range(len(l))))
        return [_value(node.op, v) for v in l], [_value(node.op, v) for v in u]

    def _pool(self, i: int, l: Balls, u: Balls) -> tuple[Balls, Balls]:
        node = self.net.nodes[i]
        assert isinstance(node.op, ops.MaxPool)
        channels, *spatial = self.net.nodes[node.inputs[0]].shape
        arb, size = _flint().arb, math.prod(spatial)
        found = []
        for c in range(channels):
            for window in node.op.windows((channels, *spatial)).tolist():
                places = [c * size + w for w in window if w >= 0]
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


def _value(op: Any, x: Any) -> Any:
    arb = _flint().arb
    match op:
        case ops.ReLU():
            return x.max(arb(0))
        case ops.Sigmoid():
            return 1 / (1 + (-x).exp())
        case ops.Tanh():
            return x.tanh()
    return x.atan()


def _relax(op: Any, l: Any, u: Any, parallel: bool) -> tuple[Any, Any, Any, Any]:
    """Lines of one neuron on `[l, u]`, with the slopes the float64 check would take: `k_l, m_l, k_u, m_u`."""
    arb = _flint().arb
    zero, one = arb(0), arb(1)
    if isinstance(op, ops.ReLU):
        if u <= 0:
            return zero, zero, zero, zero
        if l >= 0:
            return one, zero, one, zero
        chord = u / (u - l)
        return chord if parallel else (one if l + u > 0 else zero), zero, chord, -l * chord
    slopes = _slopes(op, float(l), float(u), parallel)
    k_l, k_u = (arb(k if math.isfinite(k) else 0.0) for k in slopes)
    low, high = _extremes(op, k_l, l, u), _extremes(op, k_u, l, u)
    return k_l, _smallest(low), k_u, _largest(high)


def _extremes(op: Any, k: Any, l: Any, u: Any) -> Balls:
    """`sigma(x) - k x` at the ends of `[l, u]` and where its derivative vanishes in between; k is an exact number."""
    points = [l, u]
    if k > 0:
        match op:
            case ops.Sigmoid():
                inside = 1 - 4 * k
                where = ((1 + inside.sqrt()) ** 2 / (4 * k)).log() if inside >= 0 else None
            case ops.Tanh():
                inside = 1 - k
                where = ((1 + inside.sqrt()) ** 2 / k).log() / 2 if inside >= 0 else None
            case _:
                inside = 1 / k - 1
                where = inside.sqrt() if k <= 1 else None
        if where is not None:
            points += [p for p in (where, -where) if not (p < l or p > u)]
    return [_value(op, p) - k * p for p in points]


def _plain(op: Any, x: float) -> tuple[float, float]:
    """Value and slope in floating point: good enough to propose slopes."""
    if isinstance(op, ops.Arctan):
        return math.atan(x), 1 / (1 + x * x)
    if isinstance(op, ops.Tanh):
        return math.tanh(x), 1 / math.cosh(min(abs(x), 350.0)) ** 2
    e = math.exp(-abs(x))
    return (1 / (1 + e) if x > 0 else e / (1 + e)), e / (1 + e) ** 2


def _slopes(op: Any, l: float, u: float, parallel: bool) -> tuple[float, float]:
    """Chord, or slopes of the convex and the concave envelope at the midpoint; proposals only."""
    if not (math.isfinite(l) and math.isfinite(u)):
        return 0.0, 0.0
    mid, width = l / 2 + u / 2, u - l
    tangent = _plain(op, mid)[1]
    narrow = width <= 1e-5 * max(abs(l), abs(u), 1.0)
    chord = tangent if narrow else (_plain(op, u)[0] - _plain(op, l)[0]) / width
    if parallel:
        return chord, chord
    # Below is above, seen from the other side: all these functions are odd, up to a constant.
    return _upper_slope(op, -u, -l, chord), _upper_slope(op, l, u, chord)


def _upper_slope(op: Any, l: float, u: float, chord: float) -> float:
    mid = l / 2 + u / 2
    if u <= 0:
        return chord
    if l >= 0:
        return _plain(op, mid)[1]

    def short(d: float) -> bool:
        """Whether the tangent at d passes above the point at l."""
        value, slope = _plain(op, d)
        return slope * (d - l) < value - _plain(op, l)[0]

    if not short(u):
        return chord
    near, away = 0.0, u
    for _ in range(60):
        d = near / 2 + away / 2
        near, away = (near, d) if short(d) else (d, away)
    return _plain(op, max(away, mid))[1]
