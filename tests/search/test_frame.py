"""Points measured in regions: gauges, limits, and the nearest point of a half-space."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from elbowroom.claim.stated import Stated
from elbowroom.search.frame import Frame
from elbowroom.search.nearest import nearest_broken


def frame(rng: np.random.Generator, p: float, domain: float = math.inf, count: int = 5, n: int = 3) -> Frame:
    x = torch.from_numpy(rng.uniform(-1, 1, (count, n)))
    down, up = torch.from_numpy(rng.uniform(0.1, 0.5, (2, count, n)))
    region = Stated(x - down, x + up) if p == math.inf else Stated(center=x, radius=up, p=p)
    return Frame.around(region, x, torch.full_like(x, -domain), torch.full_like(x, domain))


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0, math.inf])
def test_the_nearest_point_of_a_half_space(p: float) -> None:
    """It is on its border, and no point at random in the half-space is nearer."""
    rng = np.random.default_rng(0)
    around = frame(rng, p, domain=2.0)
    slope = torch.from_numpy(rng.normal(size=around.x.shape))
    value = torch.full_like(slope[:, 0], -1.5)
    v = around.nearest(slope, value, torch.full_like(value, 100.0))
    torch.testing.assert_close((slope * v).sum(1), value, rtol=1e-9, atol=1e-9)
    assert bool(((around.low <= v) & (v <= around.high)).all())
    for _ in range(500):
        other = around.inside(torch.from_numpy(rng.normal(size=v.shape)) * 3, torch.full_like(value, 50.0))
        there = (slope * other).sum(1) <= value
        assert bool((around.gauge(other) >= around.gauge(v) - 1e-9)[there].all())
    assert torch.equal(around.nearest(slope, -value, value.abs()), torch.zeros_like(v)) or p == math.inf


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0, math.inf])
def test_points_stay_inside(p: float) -> None:
    rng = np.random.default_rng(1)
    around = frame(rng, p, domain=1.2)
    most = torch.from_numpy(rng.uniform(1, 4, len(around.x)))
    v = torch.from_numpy(rng.normal(size=around.x.shape)) * 5
    for length in (0.5, 0.1):
        v = around.downhill(around.inside(v, most), torch.from_numpy(rng.normal(size=v.shape)), most, length)
        assert bool((around.gauge(v) <= most * (1 + 1e-12)).all())
        if p == math.inf:  # other shapes are not cut to the domain
            assert bool((around.points(v).abs() <= 1.2 + 1e-12).all())
            torch.testing.assert_close(around.coordinates(around.points(v)), v)
    shrunk = around.on_ray(v, torch.full_like(most, 0.25))
    torch.testing.assert_close(around.gauge(shrunk), 0.25 * around.gauge(v))


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0, math.inf])
def test_the_nearest_point_where_a_linear_margin_vanishes(p: float) -> None:
    rng = np.random.default_rng(2)
    around = frame(rng, p, n=20)
    slope = torch.from_numpy(rng.normal(size=around.x.shape))

    def margins(points: Tensor, index: Tensor) -> Tensor:
        moved = points - around.x[index]
        return torch.stack([3 + (slope[index] * moved).sum(1), 30 - (slope[index] * moved).sum(1)], 1)

    v, gauge = nearest_broken(around, margins)
    sides = torch.where(slope > 0, around.down, around.up)
    reach = torch.linalg.vector_norm(
        slope * sides, ord={1.0: math.inf, 1.5: 3, 2.0: 2, 3.0: 1.5, math.inf: 1}[p], dim=1
    )
    torch.testing.assert_close(gauge, 3 / reach, rtol=1e-6, atol=0)
    assert bool((margins(around.points(v), torch.arange(5)).amin(1) <= 0).all())


def test_beyond_a_face_one_feature_moves_and_the_others_stay() -> None:
    x = torch.zeros(2, 2, dtype=torch.float64)
    ends = x - 5, x + 5

    def margins(points: Tensor, index: Tensor) -> Tensor:
        return 4 - points.sum(1, keepdim=True)

    above = Frame.beyond(x - 1, x + 1, x, torch.tensor([0, 1]), *ends, above=True)
    v, gauge = nearest_broken(above, margins)
    torch.testing.assert_close(gauge, torch.full_like(gauge, 3.0))  # the other one at 1
    torch.testing.assert_close(above.points(v), torch.tensor([[3.0, 1.0], [1.0, 3.0]], dtype=torch.float64))
    below = Frame.beyond(x - 1, x + 1, x, torch.tensor([0, 1]), *ends, above=False)
    assert nearest_broken(below, margins)[1].isinf().all()
