"""The lines above and below every activation, at every width, in both precisions.

The functions are written here a second time, from their definitions and in a wider type than the lines under
test: float64 for lines in float32, 80-bit long double for lines in float64.
"""

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from elbowroom.network import operations as ops
from elbowroom.search.bounds.relaxations import TABLE
from support import FULL, lines_of

WIDE = np.longdouble
ROUNDOFF = {torch.float32: 2.0**-24, torch.float64: 2.0**-53}
SMALLEST_NORMAL = {torch.float32: 2.0**-126, torch.float64: 2.0**-1022}
# Below the smallest normal number results may be lost altogether. Lines make up for it themselves and may be crossed
# by one such number; intervals, which do not, by a few dozen; and gaps may be wider by what lines add.
LOST_BY_LINES, LOST_BY_INTERVALS, ADDED_TO_GAPS = 1, 64, 1024

PRELU = torch.tensor([0.25, -0.5, 2.0, 0.0, 1.0])

ACTIVATIONS = {
    "relu": ops.ReLU(),
    "leaky 0.01": ops.LeakyReLU(0.01),
    "leaky 0.3": ops.LeakyReLU(0.3),
    "leaky 1.5": ops.LeakyReLU(1.5),
    "leaky -0.2": ops.LeakyReLU(-0.2),
    "prelu": ops.LeakyReLU(PRELU),
    "hardtanh": ops.Clip(-1.0, 1.0),
    "relu6": ops.Clip(0.0, 6.0),
    "clip below": ops.Clip(-0.3, math.inf),
    "clip above": ops.Clip(-math.inf, 2.5),
    "sigmoid": ops.Sigmoid(),
    "tanh": ops.Tanh(),
    "arctan": ops.Arctan(),
    "elu 0.5": ops.ELU(0.5),
    "elu 1": ops.ELU(1.0),
    "elu 2": ops.ELU(2.0),
    "softplus 1": ops.Softplus(1.0),
    "softplus 3": ops.Softplus(3.0),
    "silu": ops.SiLU(),
    "gelu": ops.GELU(),
    "gelu tanh": ops.GELU(tanh=True),
}
SMOOTH = [n for n in ACTIVATIONS if n.split()[0] in ("sigmoid", "tanh", "arctan", "softplus", "silu", "gelu")] + [
    "elu 1"
]
PIECEWISE = [n for n in ACTIVATIONS if n.split()[0] in ("relu", "leaky", "prelu", "hardtanh", "relu6", "clip")]
STEEPEST = {"leaky 1.5": 1.5, "prelu": 2.0, "elu 2": 2.0, "silu": 1.1, "gelu": 1.13, "gelu tanh": 1.13}
# The largest second derivative; softplus 3 has 3/4, gelu 2/sqrt(2 pi), arctan 0.65, tanh 0.77, elu 1.
MOST_CURVED = 1.0

# Where something happens: kinks, inflections, valleys, and where functions go flat in float32 or float64.
SPECIAL = [
    0.0, -1.0, 1.0, 6.0, -0.3, 2.5, math.log(0.5), math.log(2), math.sqrt(2), -math.sqrt(2), 2.3993572805154677,
    -2.3993572805154677, 1.4185040087908284, -1.4185040087908284, -1.2784645427610738, -0.7517915246935645,
    -0.7524614220710163, 16.6, -16.6, 36.7, -36.7, -13.5, -38.0, 0.577, -0.577,
]  # fmt: skip


def test_every_activation_of_the_table_is_tested() -> None:
    assert {type(op) for op in ACTIVATIONS.values()} == {kind for kind, row in TABLE.items() if row.univariate}


# ---------------------------------------------------------------------------------------------------------------
# The functions once more


def erfc(x: np.ndarray) -> np.ndarray:
    """The complementary error function in long double: its series near zero, a continued fraction further out."""
    a = np.abs(x).astype(WIDE)
    near, far = np.minimum(a, WIDE(2)), np.maximum(a, WIDE(2))
    term = total = near
    for n in range(1, 50):
        term = term * 2 * near * near / (2 * n + 1)
        total = total + term
    series = 1 - 2 / np.sqrt(WIDE(PI)) * np.exp(-near * near) * total
    tail = far
    for n in range(120, 0, -1):
        tail = far + WIDE(n) / 2 / tail
    fraction = np.exp(-far * far) / np.sqrt(WIDE(PI)) / tail
    positive = np.where(a < 2, series, fraction)
    return np.where(x < 0, 2 - positive, positive)


PI = WIDE("3.14159265358979323846264338327950288")


def erfc64(x: np.ndarray) -> np.ndarray:
    return torch.erfc(torch.from_numpy(x)).numpy()


def exactly(op: ops.Activation, x: np.ndarray) -> np.ndarray:
    """The activation by its definition, in the type of `x`."""
    kind = x.dtype.type
    match op:
        case ops.ReLU():
            return np.maximum(x, 0)
        case ops.LeakyReLU():
            slope = op.slope.numpy() if isinstance(op.slope, torch.Tensor) else op.slope
            return np.where(x > 0, x, x * np.asarray(slope, dtype=kind))
        case ops.Clip():
            return np.clip(x, op.low, op.high)
        case ops.Sigmoid():
            return sigmoid(x)
        case ops.Tanh():
            return np.tanh(x)
        case ops.Arctan():
            return np.arctan(x)
        case ops.ELU():
            return np.where(x > 0, x, kind(op.alpha) * np.expm1(np.minimum(x, 0)))
        case ops.Softplus():
            return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x * kind(op.beta)))) / kind(op.beta)
        case ops.SiLU():
            return x * sigmoid(x)
        case ops.GELU():
            if op.tanh:
                return x * sigmoid(2 * np.sqrt(2 / kind(PI)) * (x + kind(0.044715) * x**3))
            return x / 2 * (erfc if kind is WIDE else erfc64)(-x / np.sqrt(kind(2)))
    raise NotImplementedError(op.name)


def sigmoid(x: np.ndarray) -> np.ndarray:
    e = np.exp(-np.abs(x))
    return np.where(x > 0, 1 / (1 + e), e / (1 + e))


def test_our_own_erfc_is_right() -> None:
    mpmath = pytest.importorskip("mpmath")
    x = np.concatenate([np.linspace(-7, 12, 191), np.linspace(12, 26, 10)]).astype(WIDE)
    mpmath.mp.dps = 30
    for point, value in zip(x, erfc(x)):
        want = mpmath.erfc(mpmath.mpf(float(point)))
        high = float(value)  # long double to mpmath in two pieces
        got = mpmath.mpf(high) + mpmath.mpf(float(value - WIDE(high)))
        assert abs(got - want) <= 1e-16 * want


# ---------------------------------------------------------------------------------------------------------------
# Intervals and the points in them


@cache
def intervals(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Many `[l, u]`, `n x 1`: centres from -50 to 50, widths 0, one and a few ulps, and up to 1e6."""
    dense = 2 if FULL else 1
    widths = torch.cat([torch.zeros(1), torch.logspace(-12, 6, 18 * dense + 1)]).double()
    grids = np.linspace(-50, 50, 20 * dense + 1), np.linspace(-4, 4, 16 * dense + 1)
    centres = torch.tensor([*np.concatenate(grids), *SPECIAL], dtype=torch.float64)
    shares = (0.0, 0.3, 0.5, 1.0) if FULL else (0.0, 0.5, 1.0)
    lower = torch.cat([(centres[:, None] - widths * share).flatten() for share in shares]).to(dtype)
    upper = torch.cat([(centres[:, None] + widths * (1 - share)).flatten() for share in shares]).to(dtype)
    start = centres.to(dtype)
    next_up, few_up = ulps_above(start, 1), ulps_above(start, 5)
    lower, upper = torch.cat([lower, start, start]), torch.cat([upper, next_up, few_up])
    assert bool((lower <= upper).all())
    return lower[:, None], upper[:, None]


def ulps_above(t: torch.Tensor, count: int) -> torch.Tensor:
    for _ in range(count):
        t = torch.nextafter(t, torch.full_like(t, math.inf))
    return t


@cache
def points(dtype: torch.dtype) -> np.ndarray:
    """Points of each interval, `n x p`, exactly inside: its ends, a grid, close to the ends, close to zero, special."""
    l, u = intervals(dtype)
    near = torch.logspace(-6, -1, 6).to(dtype)
    shares = torch.cat([near, torch.linspace(0, 1, 21, dtype=dtype), 1 - near])
    around_zero = torch.logspace(-2, 5, 15).to(dtype)
    fixed = torch.cat([around_zero, -around_zero, torch.tensor(SPECIAL, dtype=dtype)])
    inside = torch.cat([l, u, l + (u - l) * shares, fixed.expand(len(l), -1)], dim=1)
    return torch.minimum(torch.maximum(inside, l), u).numpy().astype(wider(dtype))


def wider(dtype: torch.dtype) -> type:
    return np.float64 if dtype == torch.float32 else WIDE


def expanded(op: ops.Activation, *ts: torch.Tensor) -> list[torch.Tensor]:
    """With a last axis for the slopes of PReLU: every interval meets every slope."""
    n = op.slope.numel() if isinstance(op, ops.LeakyReLU) and isinstance(op.slope, torch.Tensor) else 1
    return [t.expand(-1, n).contiguous() for t in ts]


def typed(op: ops.Activation, dtype: torch.dtype) -> Any:
    return op.map_tensors(lambda t: t.to(dtype))


@cache
def values(name: str, dtype: torch.dtype) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points and the activation there, `n x p x slopes`; the largest `|x sigma'(x)|` per interval."""
    x = points(dtype)[..., None]
    op = ACTIVATIONS[name]
    rough = x.astype(np.float64)
    step = np.maximum(np.abs(rough), 1e-3) * 1e-4
    sensitivity = np.abs(rough) * np.abs(exactly(op, rough + step) - exactly(op, rough - step)) / (2 * step)
    return x, exactly(op, x), sensitivity.max(1, keepdims=True)


needs_long_double = pytest.mark.skipif(np.finfo(WIDE).nmant < 60, reason="long double is no wider than float64 here")
DTYPES = [
    pytest.param(torch.float32, id="float32"),
    pytest.param(torch.float64, id="float64", marks=needs_long_double),
]
SLOPES = [pytest.param(True, id="parallel"), pytest.param(False, id="adaptive")]


def numpy_of(t: torch.Tensor) -> np.ndarray:
    return t.detach().numpy().astype(wider(t.dtype))[:, None]


def reference_points(l: torch.Tensor, u: torch.Tensor) -> list[torch.Tensor]:
    """The middle; and by turns the lower end, the upper end, and the point closest to zero."""
    zero = torch.minimum(torch.maximum(torch.zeros_like(l), l), u)
    turn = (torch.arange(len(l)) % 3)[:, None]
    return [middle(l, u), torch.where(turn == 0, l, torch.where(turn == 1, u, zero))]


def middle(l: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    return torch.minimum(torch.maximum((l + u) / 2, l), u)


# ---------------------------------------------------------------------------------------------------------------
# Right


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("parallel", SLOPES)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_lines_are_never_crossed(name: str, parallel: bool, dtype: torch.dtype) -> None:
    """Rounding may move a line by 8 units of roundoff of every term it is computed from.

    The terms: `|k| max(|l|, |u|)`, the intercept, the function, and how far the function moves when its argument
    does by a rounding, `|x sigma'(x)|` (softplus and GELU multiply their argument first).
    """
    op = typed(ACTIVATIONS[name], dtype)
    l, u = expanded(op, *intervals(dtype))
    x, sigma, argument = values(name, dtype)
    largest = np.maximum(np.abs(numpy_of(l)), np.abs(numpy_of(u)))
    for z in reference_points(l, u):
        lines = lines_of(op, l, u, z, parallel)
        at_z = exactly(op, numpy_of(z))
        for sign, k, m in ((1, lines.lower_slope, lines.lower), (-1, lines.upper_slope, lines.upper)):
            k, m = numpy_of(k), numpy_of(m)
            gap = sign * ((sigma - at_z) - (m + k * (x - numpy_of(z))))
            terms = np.abs(k) * largest + np.abs(m) + np.abs(sigma) + np.abs(at_z) + argument
            slack = 8 * ROUNDOFF[dtype] * terms + LOST_BY_LINES * SMALLEST_NORMAL[dtype]
            assert np.isfinite(gap).all()
            worst = np.unravel_index(np.argmax(-gap / slack), gap.shape)
            assert (gap >= -slack).all(), (
                f"{'lower' if sign > 0 else 'upper'} line on [{l[worst[0], 0].item()!r}, {u[worst[0], 0].item()!r}] "
                f"crossed at x={x[worst[0], worst[1], 0]!r} by {float(-gap[worst])!r}, "
                f"{float(-gap[worst] / slack[worst] * 8):.3g} roundings"
            )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_intervals_contain_all_values_and_are_attained(name: str, dtype: torch.dtype) -> None:
    op = typed(ACTIVATIONS[name], dtype)
    low, high = (numpy_of(t) for t in TABLE[type(op)].interval(op, *([t] for t in expanded(op, *intervals(dtype)))))
    _, sigma, argument = values(name, dtype)
    slack = 4 * ROUNDOFF[dtype] * (np.abs(sigma).max(1, keepdims=True) + argument)
    slack = slack + LOST_BY_INTERVALS * SMALLEST_NORMAL[dtype]
    assert (low <= sigma + slack).all()
    assert (high >= sigma - slack).all()
    # The points hold both ends and every turning point.
    assert (low >= sigma.min(1, keepdims=True) - slack).all()
    assert (high <= sigma.max(1, keepdims=True) + slack).all()


# ---------------------------------------------------------------------------------------------------------------
# Not vacuous


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("parallel", SLOPES)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_slopes_and_gaps_are_no_larger_than_they_need_be(name: str, parallel: bool, dtype: torch.dtype) -> None:
    op = typed(ACTIVATIONS[name], dtype)
    l, u = expanded(op, *intervals(dtype))
    z = middle(l, u)
    lines = lines_of(op, l, u, z, parallel)
    x, sigma, argument = values(name, dtype)
    k_l, k_u, m_l, m_u = (numpy_of(t) for t in lines[:4])
    assert not parallel or (k_l == k_u).all()
    width = numpy_of(u) - numpy_of(l)
    steepest = STEEPEST.get(name, 1.0) * 1.001
    assert (np.abs(k_l) <= steepest).all()
    assert (np.abs(k_u) <= steepest).all()
    largest = np.maximum(np.abs(numpy_of(l)), np.abs(numpy_of(u)))
    terms = steepest * largest + np.abs(sigma).max(1, keepdims=True) + argument
    slack = 64 * ROUNDOFF[dtype] * terms + ADDED_TO_GAPS * SMALLEST_NORMAL[dtype]
    gap = (m_u - m_l) + (k_u - k_l) * (x - numpy_of(z))
    # Any line that touches the function somewhere stays within variation + |slope| width of it.
    variation = sigma.max(1, keepdims=True) - sigma.min(1, keepdims=True)
    touching = 2 * variation + (np.abs(k_l) + np.abs(k_u)) * width
    assert (gap <= touching + slack).all()
    if name in SMOOTH:
        # Slopes from the range of sigma' on the interval: the gap vanishes with the square of the width.
        assert (gap <= MOST_CURVED * width**2 * (0.25 if parallel else 1) + slack).all()


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_adaptive_lines_are_no_looser_than_parallel_ones_in_the_middle(name: str) -> None:
    op = typed(ACTIVATIONS[name], torch.float64)
    l, u = expanded(op, *intervals(torch.float64))
    z = middle(l, u)
    parallel, adaptive = (lines_of(op, l, u, z, p) for p in (True, False))
    gap, wanted = adaptive.upper - adaptive.lower, parallel.upper - parallel.lower
    third_order = (u - l) ** 3 if name in SMOOTH else 0.0  # all there is to a gap at an inflection
    rounding = 64 * ROUNDOFF[torch.float64] * torch.maximum(torch.maximum(l.abs(), u.abs()), op(z).abs())
    assert bool((gap <= wanted * LOOSENESS.get(name, 1.0) * (1 + 1e-3) + third_order + rounding).all())


# On narrow intervals around the kink of ELU with alpha over 1 both lines take the slope at the middle.
LOOSENESS = {"elu 2": 2.0}


def test_parallel_relu_is_the_papers_formula() -> None:
    l, u = intervals(torch.float64)
    zero = torch.zeros_like(l)
    lines = lines_of(ops.ReLU(), l, u, zero, True)
    crossing = (l < 0) & (u > 0)
    width = torch.where(crossing, u - l, 1.0)
    k = torch.where(crossing, u / width, (middle(l, u) > 0).double())  # between 0 and the next number either is right
    m2 = torch.where(crossing, -u * l / width, 0.0)
    torch.testing.assert_close(lines.lower_slope, k, rtol=1e-15, atol=0)
    torch.testing.assert_close(lines.upper_slope, k, rtol=1e-15, atol=0)
    scale = torch.maximum(l.abs(), u.abs())
    assert bool((lines.lower.abs() <= 2e-16 * scale).all())
    assert bool(((lines.upper - m2).abs() <= 4e-16 * scale + 1e-300).all())


def test_adaptive_relu_is_crowns_rule() -> None:
    l, u = intervals(torch.float64)
    lines = lines_of(ops.ReLU(), l, u, torch.zeros_like(l), False)
    crossing = (l < 0) & (u > 0)
    width = torch.where(crossing, u - l, 1.0)
    stable = (middle(l, u) > 0).double()
    assert bool((lines.lower_slope == torch.where(crossing, (u > -l).double(), stable)).all())
    torch.testing.assert_close(lines.upper_slope, torch.where(crossing, u / width, stable), rtol=1e-15, atol=0)
    assert bool((lines.lower == 0).all())
    scale = torch.maximum(l.abs(), u.abs())
    assert bool(((lines.upper - torch.where(crossing, -u * l / width, 0.0)).abs() <= 4e-16 * scale + 1e-300).all())


# ---------------------------------------------------------------------------------------------------------------
# Differentiable


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("parallel", SLOPES)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_gradients_are_finite_at_every_width(name: str, parallel: bool, dtype: torch.dtype) -> None:
    op = typed(ACTIVATIONS[name], dtype)
    l, u = (t.clone().requires_grad_() for t in expanded(op, *intervals(dtype)))
    z = middle(l, u)
    for part in lines_of(op, l, u, z, parallel)[:4]:
        if not part.requires_grad:  # the same everywhere
            continue
        for grad in torch.autograd.grad(part.sum(), (l, u), retain_graph=True, allow_unused=True):
            assert grad is None or bool(torch.isfinite(grad).all())


@pytest.mark.parametrize("parallel", SLOPES)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_gradients_are_those_of_finite_differences(name: str, parallel: bool) -> None:
    """Wherever two step sizes agree, that is away from kinks and from changes of the chosen line."""
    op = typed(ACTIVATIONS[name], torch.float64)
    generator = torch.Generator().manual_seed(1)
    l = torch.rand(400, 1, generator=generator, dtype=torch.float64) * 12 - 8
    u = l + 10 ** (torch.rand(400, 1, generator=generator, dtype=torch.float64) * 2 - 1)
    l, u, z = (t.requires_grad_() for t in expanded(op, l, u, l + 0.3 * (u - l)))
    lines = lines_of(op, l, u, z, parallel)[:4]
    for which, part in enumerate(lines):
        grads: Any = (None,) * 3  # where it is the same everywhere
        if part.requires_grad:
            grads = torch.autograd.grad(part.sum(), (l, u, z), retain_graph=True, allow_unused=True)
        for i, grad in enumerate(grads):
            grad = torch.zeros_like(l) if grad is None else grad
            coarse, fine = (difference(op, (l, u, z), i, which, parallel, h) for h in (2e-5, 1e-5))
            smooth = (coarse - fine).abs() <= 1e-7 * (1 + fine.abs())
            assert float(smooth.double().mean()) > 0.9
            assert bool(((grad - fine).abs() <= 1e-6 * (1 + fine.abs()))[smooth].all())


def difference(op: Any, ends: Any, i: Any, which: Any, parallel: Any, h: Any) -> Any:
    moved = []
    for sign in (1, -1):
        shifted: Any = [t.detach() + (sign * h if j == i else 0) for j, t in enumerate(ends)]
        moved.append(lines_of(op, shifted[0], shifted[1], shifted[2], parallel)[which])
    return (moved[0] - moved[1]) / (2 * h)


@pytest.mark.parametrize("parallel", [True, False])
def test_what_is_not_a_number_is_no_inactive_neuron(parallel: bool) -> None:
    nan = torch.full((1, 1), torch.nan, dtype=torch.float64)
    lines = lines_of(ops.ReLU(), nan, nan, nan, parallel)
    assert bool(lines.lower.isnan()) and bool(lines.upper.isnan())


@pytest.mark.parametrize("name", ["silu", "gelu", "gelu tanh", "elu 2"])
def test_lines_are_nearly_as_near_as_envelopes(name: str) -> None:
    """At the midpoint, beside the lowest and highest of all chords between four hundred points."""
    op, draw = ACTIVATIONS[name], torch.Generator().manual_seed(0)
    mid = 4 * torch.randn(1000, 1, generator=draw, dtype=torch.float64)
    half = 0.3 + 8 * torch.rand(1000, 1, generator=draw, dtype=torch.float64)
    lines = lines_of(op, mid - half, mid + half, mid, False)
    share = torch.linspace(0.002, 1, 200, dtype=torch.float64)
    (left, at_left), (right, at_right) = ((x, op(x)) for x in (mid - half * share, mid + half * share))
    low, high = (torch.full_like(mid, end) for end in (torch.inf, -torch.inf))
    for x, f in zip(left.unbind(1), at_left.unbind(1)):
        heights = f[:, None] + (at_right - f[:, None]) / (right - x[:, None]) * (mid - x[:, None])
        low, high = torch.minimum(low, heights.amin(1, True)), torch.maximum(high, heights.amax(1, True))
    assert float((lines.upper - lines.lower).sum()) < 1.01 * float((high - low).sum())


# ---------------------------------------------------------------------------------------------------------------
# Cheap


class Counted(TorchDispatchMode):
    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("parallel", SLOPES)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_lines_take_few_operations(name: str, parallel: bool) -> None:
    """Most of a bound, in small networks: points of contact in a few turns, one bisection for both lines."""
    op = typed(ACTIVATIONS[name], torch.float32)
    l, u = expanded(op, torch.tensor([[-1.0]]), torch.tensor([[2.0]]))
    with Counted() as made:
        lines_of(op, l, u, l, parallel)
    bisected = name in ("silu", "gelu", "gelu tanh")
    assert made.count < (1200 if bisected else 120 if parallel else 400)
