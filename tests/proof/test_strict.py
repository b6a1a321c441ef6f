"""The strict check never claims what is not so: exact arithmetic at points of the region, without any tolerance."""

import math
import subprocess
import sys
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from flint import arb
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from elbowroom.claim.hints import Hints
from elbowroom.claim.specification import Specification
from elbowroom.claim.stated import Stated
from elbowroom.errors import InputError, UnsupportedError
from elbowroom.network import operations as ops
from elbowroom.network.graph import Graph, Network
from elbowroom.proof.kernel import prove as prove_module
from elbowroom.proof.kernel import rows, support
from elbowroom.proof.kernel import walk as strict
from elbowroom.proof.kernel.prove import prove
from elbowroom.proof.kernel.rounding import ETA
from elbowroom.proof.kernel.walk import StrictBounds
from elbowroom.search.bounds.propagate import margins_of
from elbowroom.search.memory import Budget
from proof import torture
from proof.exact import values
from support import FULL, cases, mlp, networks, random_region

F64 = torch.float64


def fraction(v: float) -> Fraction | None:
    return Fraction(v) if math.isfinite(v) else None


def crossings(case: torture.Case, parallel: bool, sharpened: int = 0, by_cases: int = 0) -> tuple[list[str], int, int]:
    """What is claimed and not so; how many rows were proved positive, and how many are so at all the points."""
    rng = np.random.default_rng(0)
    bounds = StrictBounds(case.net.cast(F64), case.area, parallel, sharpened=sharpened, cases=by_cases)
    group = torch.arange(len(case.rows))
    proved = prove(case.net, case.area, case.rows[None], case.offset[None], group, Hints(parallel, logits=True))[0]
    found, positive = [], torch.ones(len(case.rows), dtype=torch.bool)
    for x in torture.points(case, rng, 4):
        exact = values(case.net, x)
        for i, value in enumerate(exact):
            low, high = (t[i].flatten().tolist() for t in (bounds.lower, bounds.upper))
            for k, v in enumerate(value):
                l, u = fraction(low[k]), fraction(high[k])
                if not ((l is None and low[k] < 0) or (l is not None and l <= v)):
                    found.append(f"{case.kind}: node {i}, entry {k}: lower bound {low[k]!r}, value {float(v)!r}")
                if not ((u is None and high[k] > 0) or (u is not None and u >= v)):
                    found.append(f"{case.kind}: node {i}, entry {k}: upper bound {high[k]!r}, value {float(v)!r}")
        for t, (row, offset) in enumerate(zip(case.rows.tolist(), case.offset.tolist())):
            margin = sum((Fraction(c) * v for c, v in zip(row, exact[-1])), Fraction(offset))
            positive[t] &= margin > 0
            claimed = fraction(float(proved[t]))
            if (claimed is not None and claimed > margin) or float(proved[t]) == math.inf:
                found.append(f"{case.kind}: row {t}: proved {float(proved[t])!r}, but at a point {float(margin)!r}")
    return found, int((proved > 0).sum()), int(positive.sum())


def test_networks_made_to_break_floating_point() -> None:
    count = 1100 if FULL else 60
    proved = total = 0
    for seed in range(count):
        found, ok, of = crossings(torture.case(seed), seed % 2 == 1, 3 * (seed % 4 > 1), (0, 3, 1)[seed % 3])
        assert not found, (seed, found[:3])
        proved, total = proved + ok, total + of
    print(f"{count} networks, {proved} of {total} rows that hold at the points were proved")
    assert proved > 0.3 * total


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Every input counts as wide, so that rows over it are not written out; two features at a time."""
    monkeypatch.setattr(strict, "_WIDE", 1)
    monkeypatch.setattr(support, "_NUMBERS", {"cpu": 1})
    monkeypatch.setattr(support, "_FEWEST", 2)
    monkeypatch.setattr(rows, "_PART", 3)
    return monkeypatch


def test_wide_inputs_made_to_break_floating_point(wide: pytest.MonkeyPatch) -> None:
    used: list[int] = []
    plain = strict.least_past
    wide.setattr(strict, "least_past", lambda *told: [used.append(1), plain(*told)][1])
    for seed in range(600 if FULL else 40):
        found, _, _ = crossings(torture.case(seed), parallel=seed % 2 == 1)
        assert not found, (seed, found[:3])
    assert len(used) > 30


def test_rounding_is_counted_over_a_wide_input(wide: pytest.MonkeyPatch) -> None:
    """Without its error terms the sum over parts of the features claims what is not so."""
    wide.setattr(support, "gamma", lambda n: 0.0)
    wide.setattr(strict, "gamma", lambda n: 0.0)
    seeds = range(list(torture.KINDS).index("cancel"), 300, len(torture.KINDS))
    assert any(crossings(torture.case(seed), seed % 2 == 1)[0] for seed in seeds)


@pytest.mark.parametrize("reshaped", [False, True])
@pytest.mark.parametrize("deployed", [None, "float32"])
def test_wide_inputs_are_proved_as_others(reshaped: bool, deployed: str | None, wide: pytest.MonkeyPatch) -> None:
    """The same numbers but for rounding, of several inputs at once; as executed, moving numbers about may flush them,
    and is not left out."""
    rng = np.random.default_rng(0)
    net = mlp(rng, [12, 7, 6, 3])
    if reshaped:
        net = Network.chain((3, 4), [ops.Reshape((12,)), *(node.op for node in net.nodes[1:])])
    net = net.cast(torch.float32)
    net = Network(net.nodes)
    lower = torch.from_numpy(rng.normal(size=(3, 12)).astype(np.float32)).double()
    told = Stated(lower, lower + 0.01), torch.tensor([[[1.0, -1.0, 0.0], [0.0, 1.0, -1.0]]], dtype=F64)
    told = *told, torch.zeros(1, 2, dtype=F64), torch.arange(2)
    assert (StrictBounds(net.cast(F64), told[0], False)._entry > 0) is True
    for parallel in (False, True):
        found = prove(net, *told, Hints(parallel), deployed)
        wide.setattr(strict, "_WIDE", 1 << 40)
        expected = prove(net, *told, Hints(parallel), deployed)
        wide.setattr(strict, "_WIDE", 1)
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    noisy = StrictBounds(net.cast(F64), told[0], False, lambda i, sizes, result: torch.zeros_like(result))
    assert (noisy._entry > 0) is not reshaped


@pytest.mark.parametrize("broken", ["rounding", "underflow", "overflow"])
def test_a_broken_checker_is_caught(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cases above are hard enough: without one of these error terms the check claims what is not so."""
    kind = {"rounding": "cancel", "underflow": "vanish", "overflow": "overflow"}[broken]
    match broken:
        case "rounding":
            monkeypatch.setattr(strict, "gamma", lambda n: 0.0)
        case "underflow":
            for module in (strict, rows, support):
                monkeypatch.setattr(module, "ETA", 0.0)
        case "overflow":
            monkeypatch.setattr(torch, "isfinite", lambda t: torch.ones_like(t, dtype=torch.bool))
            monkeypatch.setattr(prove_module, "refuse_uncovered", lambda net, deployed: None)  # which sees it as well
    seeds = range(list(torture.KINDS).index(kind), 300, len(torture.KINDS))
    assert any(crossings(torture.case(seed), seed % 2 == 1)[0] for seed in seeds)


# ---------------------------------------------------------------------------------------------------------------
# Every operation


@st.composite
def problems(draw: st.DrawFn) -> tuple[Network, Stated, list[Tensor], bool]:
    """A random graph, a random region, points that lie in it exactly, and the kind of lines."""
    net = draw(networks())
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kind = draw(st.sampled_from(["box", "asymmetric box", "ball", "cross", "oblique ball"]))
    scale = draw(st.sampled_from([0.0, 1e-12, 1e-4, 0.1, 1.0, 100.0]))
    region = random_region(rng, net.input_shape, kind, batch=1, scale=scale)
    inputs = region.inputs
    center, radius = inputs.center.flatten(1), inputs.radius.flatten(1)
    if "box" in kind:
        area = Stated(center - radius, center + radius)
        points = [
            torch.minimum(torch.maximum(center + radius * v, area.lower), area.upper) for v in _signs(rng, center)
        ]
    else:
        area = Stated(center=center, radius=radius, p=inputs.p, basis=inputs.basis)
        points = [center]
        if inputs.basis is None:
            k = int(rng.integers(center.shape[1]))
            tip = center.clone()
            tip[0, k] += radius[0, k] / 2  # exact, or well inside
            points.append(tip)
    return net, area, [p[0] for p in points], draw(st.booleans())


def _signs(rng: np.random.Generator, like: Tensor) -> list[Tensor]:
    corner = torch.from_numpy(rng.choice([-1.0, 1.0], tuple(like.shape)))
    return [torch.zeros_like(like), corner, -corner, torch.from_numpy(rng.uniform(-1, 1, tuple(like.shape)))]


@cases(4.0)
@given(problems())
def test_every_node_of_random_graphs_stays_within_its_bounds(
    problem: tuple[Network, Stated, list[Tensor], bool],
) -> None:
    net, area, points, parallel = problem
    bounds = StrictBounds(net.cast(F64), area, parallel, sharpened=len(net.nodes) % 3, cases=len(net.nodes) % 4)
    rng = np.random.default_rng(0)
    rows = torch.from_numpy(rng.standard_normal((1, 3, net.n_outputs)))
    claimed = bounds.margins(rows, torch.zeros(1, 3, dtype=F64), logits=True)
    for x in points:
        exact = values(net, x, arb)
        for i, value in enumerate(exact):
            for v, l, u in zip(value, bounds.lower[i].flatten().tolist(), bounds.upper[i].flatten().tolist()):
                assert not (arb(l) > v or arb(u) < v), (net, i, l, u, v)
        for t in range(3):
            margin = sum((arb(c) * v for c, v in zip(rows[0, t].tolist(), exact[-1])), arb(0))
            assert not arb(float(claimed[0, t])) > margin


@pytest.mark.parametrize(
    "activation", [ops.ReLU(), ops.Tanh(), ops.GELU(), ops.SiLU(), ops.Softplus()], ids=lambda a: a.name
)
@pytest.mark.parametrize("parallel", [False, True])
def test_little_is_lost_to_rigour(activation: ops.Activation, parallel: bool) -> None:
    """Against the plain float64 bounds with the same lines: a billionth of the outputs' size."""
    rng = np.random.default_rng(4)
    net = mlp(rng, [20, 40, 40, 5], activation)
    region = random_region(rng, (20,), "box", batch=3, scale=0.02)
    center, radius = region.inputs.center, region.inputs.radius
    rows = torch.from_numpy(rng.standard_normal((1, 6, 5)))
    offset = torch.zeros(1, 6, dtype=F64)
    strictly = StrictBounds(net.cast(F64), Stated(center - radius, center + radius), parallel).margins(rows, offset)
    plainly = margins_of("combined" if parallel else "adaptive", "direct", Budget.of(None, rows.device))
    plain = plainly(net.cast(F64), region.inputs, Specification(rows, offset, torch.arange(6)))
    assert float(((plain - strictly) / plain.abs()).max()) < 1e-9


# ---------------------------------------------------------------------------------------------------------------
# Single terms of the analysis


def column(*v: float) -> Tensor:
    return torch.tensor([list(v)], dtype=F64)


def margin(net: Network, area: Stated, *row: float, offset: float = 0.0, **options: Any) -> float:
    found = prove(net, area, torch.tensor([[row]], dtype=F64), column(offset), torch.tensor([0]), **options)
    return float(found)


@pytest.mark.parametrize("saturating", [ops.Clip(), ops.Sigmoid(), ops.Tanh()], ids=lambda a: a.name)
def test_a_partial_sum_that_overflows_says_nothing(saturating: ops.Activation) -> None:
    """1e308 + 1e308 + ... - 1e308 - 1e308 - ... - 5 is -5, not infinity, whatever the order."""
    w = torch.cat([torch.full((64,), 1e308, dtype=F64), torch.full((64,), -1e308, dtype=F64)])[None]
    net = Network.chain((128,), [ops.Linear(w, column(-5.0)[0]), saturating])
    x = torch.ones(1, 128, dtype=F64)
    assert margin(net, Stated(x, x), 1.0) <= float(saturating(column(-5.0)))


def test_max_pooling_over_padding_and_unknown_values() -> None:
    """Where nothing is known of a window's entries its padding must not be taken for one of them."""
    g = Graph((2,))
    huge = g.add(ops.Linear(torch.full((2, 2), 1e308, dtype=F64)), g.input)  # overflows: no bounds
    both = g.add(ops.Concat(), g.add(ops.Reshape((1, 2)), g.input), g.add(ops.Reshape((1, 2)), huge))
    net = g.network(g.add(ops.Reshape((-1,)), g.add(ops.MaxPool((3,), (2,), (1,)), both)))
    bounds = StrictBounds(net, Stated(column(-9.0, -9.0), column(-8.0, -8.0)), parallel=False)
    assert float(bounds.lower[-1][0, 1]) == -math.inf
    assert margin(net, Stated(column(-9.0, -9.0), column(-8.0, -8.0)), 0.0, 1.0) == -math.inf
    assert margin(net, Stated(column(-9.0, -9.0), column(-8.0, -8.0)), 1.0, 0.0) in (-9.0, -math.inf)
    beyond = Network.chain((1, 2), [ops.MaxPool((2,), (1,), (1,), (3,)), ops.Reshape((-1,))])
    with pytest.raises(UnsupportedError, match="padding alone"):
        margin(beyond, Stated(column(0.0, 0.0), column(1.0, 1.0)), 1.0, 0.0)


def test_lines_of_a_leaky_relu_whose_values_underflow() -> None:
    net = Network.chain((1,), [ops.LeakyReLU(1e-20), ops.Scale(column(1e300)[0])])
    x = column(-1e-310)
    assert Fraction(margin(net, Stated(x, column(0.0)), 1.0)) <= values(net, x[0])[-1][0] < 0


def test_errors_of_tiny_values_under_large_coefficients() -> None:
    """Errors per unit of a coefficient that are themselves below the smallest number still count."""
    rng = np.random.default_rng(0)
    for _ in range(30):
        layers = [ops.Linear(torch.from_numpy(rng.uniform(-1, 1, (8, 8)))) for _ in range(6)]
        net = Network.chain((8,), [*layers, ops.Linear(torch.from_numpy(rng.standard_normal((1, 8))) * 1e300)])
        x = torch.from_numpy(rng.integers(-200, 200, (1, 8)) * ETA)
        assert Fraction(margin(net, Stated(x, x), 1.0)) <= values(net, x[0])[-1][0]


def test_batch_norm_outside_the_analysis_is_refused() -> None:
    one = torch.ones(1, dtype=F64)
    for var, weight in ((1e-300, 1.0), (1e300, 1.0), (1.0, 1e-300)):
        net = Network.chain((1, 1), [ops.BatchNorm(one, one * var, one * weight, eps=0.0), ops.Reshape((-1,))])
        with pytest.raises(UnsupportedError, match="batchnorm_1: BatchNorm"):
            margin(net, Stated(column(0.0), column(1.0)), 1.0)


def test_unknown_operations_are_all_named() -> None:
    class Cube(ops.Activation):
        def __call__(self, *xs: Tensor) -> Tensor:
            return xs[0] ** 3

    class Twice(ops.Affine):
        def __call__(self, *xs: Tensor) -> Tensor:
            return 2 * xs[0]

    net = Network.chain((1,), [Cube(), Twice()])
    with pytest.raises(UnsupportedError, match=r"cube_1.*twice_2"):
        margin(net, Stated(column(0.0), column(1.0)), 1.0)


# ---------------------------------------------------------------------------------------------------------------
# Bad input

STRAIGHT = Network.chain((2,), [ops.Linear(torch.eye(2, dtype=F64), torch.ones(2, dtype=F64))])
NAN = math.nan


@pytest.mark.parametrize(
    "area",
    [
        Stated(column(1.0, 1.0), column(1.0, 0.5)),
        Stated(column(1.0, NAN), column(1.0, 2.0)),
        Stated(column(1.0, 1.0), column(1.0, NAN)),
        Stated(column(1.0, 1.0), column(1.0, math.inf)),
        Stated(center=column(1.0, 1.0), radius=column(0.1, -0.1)),
        Stated(center=column(1.0, 1.0), radius=column(0.1, NAN), p=2),
        Stated(center=column(1.0, math.inf), radius=column(0.1, 0.1), p=1),
        Stated(center=column(1.0, 1.0), radius=column(0.1, 0.1), p=2, basis=torch.full((2, 2), NAN, dtype=F64)),
    ],
)
def test_a_region_that_is_none_proves_nothing(area: Stated) -> None:
    assert margin(STRAIGHT, area, 0.5, -0.25, offset=10.0) == -math.inf


def test_numbers_that_are_none_prove_nothing() -> None:
    area = Stated(column(1.0, 1.0), column(1.0, 1.0))
    for row in ((NAN, 0.0), (math.inf, 0.0)):
        assert margin(STRAIGHT, area, *row, offset=10.0) == -math.inf
    for offset in (NAN, math.inf):
        assert margin(STRAIGHT, area, 1.0, 0.0, offset=offset) == -math.inf


@pytest.mark.parametrize(
    "area",
    [
        Stated(),
        Stated(column(1.0, 1.0)),
        Stated(center=column(1.0, 1.0)),
        Stated(column(1.0), column(1.0)),
        Stated(column(1.0, 1.0).long(), column(1.0, 1.0).long()),
        Stated(center=column(1.0, 1.0), radius=column(1.0, 1.0), p=0.5),
        Stated(center=column(1.0, 1.0), radius=column(1.0, 1.0), p=NAN),
        Stated(center=column(1.0, 1.0), radius=column(1.0, 1.0), basis=torch.eye(3, dtype=F64)),
        Stated(column(1.0, 1.0), column(1.0, 1.0), basis=torch.eye(2, dtype=F64)),
    ],
)
def test_areas_that_do_not_fit_are_refused(area: Stated) -> None:
    with pytest.raises(InputError):
        margin(STRAIGHT, area, 1.0, 0.0)


def test_rows_that_do_not_fit_are_refused() -> None:
    area = Stated(column(1.0, 1.0), column(1.0, 1.0))
    rows, offset, group = torch.ones(1, 2, 2, dtype=F64), torch.zeros(1, 2, dtype=F64), torch.tensor([0, 1])
    for bad in ((rows[..., :1], offset, group), (rows[0], offset, group), (rows, offset[:, :1], group),
                (rows, offset, group[:1]), (rows, offset, group - 1), (rows.expand(3, 2, 2), offset, group),
                (rows[:, :0], offset[:, :0], group[:0])):  # fmt: skip
        with pytest.raises(InputError):
            prove(STRAIGHT, area, *bad)
    with pytest.raises(InputError, match="float16"):
        prove(STRAIGHT, area, rows, offset, group, deployed="float16")


def test_flushing_subnormals_to_zero_is_refused() -> None:
    code = """
import torch
from elbowroom.machine.arithmetic import refuse_other_arithmetic
from elbowroom.errors import ElbowroomError
refuse_other_arithmetic(torch.device("cpu"))
assert torch.set_flush_denormal(True)
try:
    refuse_other_arithmetic(torch.device("cpu"))
except ElbowroomError as error:
    print(error)
"""
    if not torch.set_flush_denormal(False):
        pytest.skip("this processor cannot flush to zero")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "flushes subnormal numbers" in done.stdout


@cases()
@given(st.integers(0, 2**32 - 1), st.integers(1, 2), st.data())
def test_convolutions_written_out(seed: int, axes: int, data: st.DataObject) -> None:
    """The check's adjoint is the operation's: strides, padding, dilation, groups, pixels left over."""
    rng = np.random.default_rng(seed)

    def draw(least: int, most: int) -> tuple[int, ...]:
        return tuple(data.draw(st.integers(least, most)) for _ in range(axes))

    groups, per_in, per_out = (data.draw(st.integers(1, 2)) for _ in range(3))
    kernel, stride, padding, dilation = draw(1, 3), draw(1, 3), draw(0, 2), draw(1, 3)
    sizes = tuple(d * (k - 1) + 1 + more for d, k, more in zip(dilation, kernel, draw(0, 4)))
    weight = torch.from_numpy(rng.integers(-3, 4, (groups * per_out, per_in, *kernel)).astype(np.float64))
    op = ops.Conv(weight, None, stride, padding, dilation, groups)
    shape = (groups * per_in, *sizes)
    a = torch.from_numpy(rng.integers(-3, 4, (2, *op.output_shape(shape))).astype(np.float64))
    x = torch.from_numpy(rng.integers(-3, 4, (2, *shape)).astype(np.float64))
    (back,) = rows.AFFINE[ops.Conv].back(op, a, [shape])
    assert back.shape == x.shape
    assert torch.equal((back * x).flatten(1).sum(1), (a * op(x)).flatten(1).sum(1))


@pytest.mark.parametrize("p", [1, 2, math.inf])
@pytest.mark.parametrize("turned", [False, True])
def test_the_least_value_counts_the_rounding_of_the_centre(p: Any, turned: bool) -> None:
    """Sums that nearly cancel, on regions next to nothing: what is proved is never above the exact value."""
    rng = np.random.default_rng(int(turned))
    n, off = 24, 0
    basis = torch.eye(n, dtype=F64)[:, torch.from_numpy(rng.permutation(n))] if turned else None
    for _ in range(60):
        a, center = (torch.from_numpy(rng.normal(size=n)) for _ in range(2))
        a[-1] = -float((a[:-1] * center[:-1]).sum()) / float(center[-1])
        area = Stated(center=center[None], radius=torch.zeros(1, n, dtype=F64), p=p, basis=basis)
        value, error = support.least(area, a[None, None])
        exact = sum(Fraction(v) * Fraction(w) for v, w in zip(a.tolist(), center.tolist()))
        assert Fraction(float(value)) - Fraction(float(error)) <= exact
        off += Fraction(float(value)) > exact
    assert off > 10  # without its error, the value would often be above


@pytest.mark.parametrize(("sharpened", "cases_"), [(0, 0), (1, 0), (2, 2)])
@pytest.mark.parametrize("seed", range(3))
def test_no_bound_depends_on_what_else_is_bounded(seed: int, sharpened: int, cases_: int) -> None:
    # Inputs that want fewer rows than others of the batch got some of theirs as well, by which slopes, and so the
    # bounds of later nodes, came out otherwise: proofs by trees failed or not with how leaves were put together.
    rng = np.random.default_rng(seed)
    net = mlp(rng, [4, 20, 20, 20, 3])
    center = torch.from_numpy(rng.standard_normal((30, 4)))
    radius = torch.from_numpy(np.exp(rng.uniform(-4, 2, (30, 1))))
    region = Stated(center - radius, center + radius)
    together = StrictBounds(net, region, False, sharpened=sharpened, cases=cases_)
    for k in range(len(center)):
        alone = StrictBounds(net, region.take(torch.tensor([k])), False, sharpened=sharpened, cases=cases_)
        for ends, own in ((together.lower, alone.lower), (together.upper, alone.upper)):
            for i, (all_, one) in enumerate(zip(ends, own, strict=True)):
                torch.testing.assert_close(all_[k], one[0], rtol=1e-9, atol=1e-9, msg=f"node {i} of input {k}")
