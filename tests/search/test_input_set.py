"""Sets of inputs: their extent along a linear form, and its derivative."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elbowroom.errors import InputError
from elbowroom.search.regions.input_set import InputSet
from support import KINDS, Region, cases, random_region


def random_rows(rng: np.random.Generator, batch: Any, n: int, rows: int = 4) -> Any:
    return torch.from_numpy(rng.standard_normal((batch, rows, n)))


@pytest.mark.parametrize("kind", KINDS)
def test_support_is_the_largest_value_over_the_set(kind: Any) -> None:
    """Never below a sampled value, and attained where the derivative says it is."""
    rng = np.random.default_rng(3)
    region = random_region(rng, (5,), kind, batch=3)
    inputs = region.inputs
    rows = random_rows(rng, 3, 5)
    support = inputs.support(rows)
    points = region.place(region.unit_points(rng, 500)) - inputs.center
    sampled = torch.einsum("brn,mbn->mbr", rows, points)
    assert bool((sampled <= support + 1e-15).all())
    at, _ = inputs.support_gradient(rows)
    torch.testing.assert_close((rows * at).sum(-1), support, rtol=1e-13, atol=1e-15)
    shared = inputs.support(rows[:1])
    torch.testing.assert_close(shared, inputs.support(rows[:1].expand(3, -1, -1)), rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("kind", KINDS)
def test_hull_is_the_support_of_the_axes(kind: Any) -> None:
    inputs = random_region(np.random.default_rng(4), (2, 3), kind, batch=2).inputs
    lower, upper = inputs.hull()
    eye = torch.eye(6, dtype=torch.float64)[None].expand(2, -1, -1)
    extent = inputs.support(eye).reshape(2, 2, 3)
    torch.testing.assert_close(upper, inputs.center + extent, rtol=1e-14, atol=1e-15)
    torch.testing.assert_close(lower, inputs.center - extent, rtol=1e-14, atol=1e-15)


@cases()
@given(
    st.integers(0, 2**32 - 1), st.sampled_from(KINDS), st.sampled_from([0.0, 0.4]), st.integers(1, 4),
    st.sampled_from([math.inf, 2.0, 32.0]),
)  # fmt: skip
def test_support_gradient_is_that_of_autograd(seed: int, kind: Any, frozen: float, batch: int, sharpness: Any) -> None:
    rng = np.random.default_rng(seed)
    made = random_region(rng, (4,), kind, batch, frozen=frozen).inputs
    radius = made.radius.clone().requires_grad_()
    rows = random_rows(rng, batch, 4).requires_grad_()
    inputs = InputSet(made.center, radius, made.p, made.basis, sharpness)
    by_rows, by_radius = torch.autograd.grad(inputs.support(rows).sum(), (rows, radius))
    at, change = inputs.support_gradient(rows.detach())
    torch.testing.assert_close(at, by_rows, rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(change.sum(1), by_radius, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_smoothed_derivatives_of_a_maximum(dtype: torch.dtype) -> None:
    """They add up to the maximum however soft they are, and the sharper, the closer to the one of the largest term."""
    rng = np.random.default_rng(5)
    made = random_region(rng, (6,), "cross", batch=3).inputs
    rows = random_rows(rng, 3, 6).to(dtype)
    rows[0, 0], rows[1, 1] = 0.0, 1e-20
    center, radius = made.center.to(dtype), made.radius.to(dtype)
    exact = InputSet(center, radius, 1)
    _, one = exact.support_gradient(rows)
    last = torch.inf
    for sharpness in (2.0, 4.0, 32.0, 1000.0):
        soft = InputSet(center, radius, 1, sharpness=sharpness)
        at, by_radius = soft.support_gradient(rows)
        torch.testing.assert_close(soft.support(rows), exact.support(rows))
        torch.testing.assert_close((by_radius * radius[:, None]).sum(-1), exact.support(rows))
        torch.testing.assert_close((at * rows).sum(-1), exact.support(rows))
        away = float((by_radius - one).abs().max())
        assert away <= last
        last = away
    assert last < 1e-3 and not InputSet(center, radius, 1, sharpness=4.0).part(0, 1).sharpness > 4


def test_a_set_without_width_has_finite_gradients() -> None:
    center = torch.zeros(2, 3, dtype=torch.float64)
    for p in (1, 1.5, 2, 3, math.inf):
        radius = torch.zeros_like(center).requires_grad_()
        rows = torch.ones(2, 2, 3, dtype=torch.float64, requires_grad=True)
        support = InputSet(center, radius, p).support(rows)
        assert bool((support == 0).all())
        assert all(bool(torch.isfinite(g).all()) for g in torch.autograd.grad(support.sum(), (rows, radius)))


@pytest.mark.parametrize("p", [1, 1.2, 1.5, 2, 3, math.inf])
@pytest.mark.parametrize("size", [1e-25, 1e-12, 1.0, 1e12, 1e25])
@pytest.mark.parametrize("reach", [1e-12, 1.0, 1e12])
def test_support_in_float32_neither_vanishes_nor_overflows(p: Any, size: float, reach: float) -> None:
    """Squares of such numbers would do both."""
    rng = np.random.default_rng(5)
    rows = random_rows(rng, 2, 4) * size
    radius = torch.from_numpy(rng.uniform(0.1, 1, (2, 4))) * reach
    center = torch.zeros(2, 4)
    exact = InputSet(center.double(), radius.float().double(), p)
    single = InputSet(center, radius.float(), p)
    torch.testing.assert_close(
        single.support(rows.float()).double(), exact.support(rows.float().double()), rtol=1e-6, atol=0
    )
    for got, want in zip(
        single.support_gradient(rows.float()), exact.support_gradient(rows.float().double()), strict=True
    ):
        torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=0)


@pytest.mark.parametrize("p", [1.001, 1.05, 1.5, 3.0, 1e6])
@pytest.mark.parametrize("sharpness", [math.inf, 4.0])
def test_any_norm_is_between_its_neighbours(p: float, sharpness: float) -> None:
    """The dual norm as numpy has it; derivatives that add up to it, smoothed or not."""
    rng = np.random.default_rng(7)
    rows, radius = random_rows(rng, 2, 4), torch.from_numpy(rng.uniform(0.1, 1, (2, 4)))
    rows[0, 0] = 0.0
    inputs = InputSet(torch.zeros_like(radius), radius, p, sharpness=sharpness)
    scaled = (rows * radius[:, None]).abs().numpy()
    largest = scaled.max(-1).clip(1e-300)
    wanted = largest * np.linalg.norm(scaled / largest[..., None], ord=p / (p - 1), axis=-1)
    np.testing.assert_allclose(inputs.support(rows).numpy(), wanted, rtol=1e-12, atol=0)
    at, by_radius = inputs.support_gradient(rows)
    for parts in (at * rows, by_radius * radius[:, None]):
        np.testing.assert_allclose(parts.sum(-1).numpy(), wanted, rtol=1e-12, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_box_a_few_ulps_wide_holds_its_corners(dtype: torch.dtype) -> None:
    lower = torch.from_numpy(np.random.default_rng(6).standard_normal((1, 400))).to(dtype)
    upper = lower.clone()
    for _ in range(4):
        upper = torch.nextafter(upper, torch.full_like(upper, math.inf))
        low, high = InputSet.box(lower, upper).hull()
        assert bool((low <= lower).all())
        assert bool((upper <= high).all())


def test_a_box_as_wide_as_the_numbers_go_is_finite() -> None:
    largest = torch.full((1, 2), torch.finfo(torch.float64).max, dtype=torch.float64)
    box = InputSet.box(-largest, largest)
    assert bool((box.center == 0).all())
    assert bool((box.radius == largest).all())


@cases()
@given(st.integers(0, 2**32 - 1), st.floats(-8, 3))
def test_a_box_covers_its_corners_up_to_rounding(seed: int, exponent: float) -> None:
    rng = np.random.default_rng(seed)
    region: Region = random_region(rng, (6,), "asymmetric box", 2, 10.0**exponent, torch.float32)
    low, high = (t.double() for t in region.inputs.hull())
    scale = torch.maximum(region.lower.abs(), region.upper.abs()).double() * 2.0**-23
    assert bool((low <= region.lower.double() + scale).all())
    assert bool((high >= region.upper.double() - scale).all())
    assert bool((low >= region.lower.double() - 2 * scale).all())
    assert bool((high <= region.upper.double() + 2 * scale).all())


def test_bad_sets_are_refused() -> None:
    x = torch.zeros(2, 3)
    for p in (0.5, math.nan, -math.inf, True):
        with pytest.raises(InputError, match="p must be a number from 1 to infinity"):
            InputSet(x, x, p)
    with pytest.raises(InputError, match="they must agree"):
        InputSet(x, torch.zeros(2, 4))
    with pytest.raises(InputError, match="basis must be 3 x 3"):
        InputSet(x, x, 2, torch.eye(4))
