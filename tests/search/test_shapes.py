"""The geometry of placed regions: points, membership, scaling and volume."""

import importlib
import math
import pkgutil
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import elbowroom as er
from elbowroom.certificates.result import name_of_norm, shape_name
from elbowroom.claim.space import Space, space_of
from elbowroom.claim.specification import Specification
from elbowroom.network.graph import Network
from elbowroom.search import regions
from elbowroom.search.regions.ball import Ball
from elbowroom.search.regions.base import Placed, Region
from elbowroom.search.regions.box import Box, Uniform
from elbowroom.search.regions.ellipsoid import Ellipsoid
from elbowroom.search.regions.input_set import InputSet
from elbowroom.search.regions.l1 import L1
from elbowroom.search.regions.oblique import Oblique
from elbowroom.search.regions.registry import BALL, OBLIQUE, REGIONS, region_named
from support import mlp

BASIS = torch.linalg.qr(torch.tensor([[1.0, 0.5, 0.2], [-0.3, 1.0, 0.4], [0.1, -0.6, 1.0]]).double()).Q
SHAPES = {
    "box": Box(),
    "asymmetric": Box(asymmetric=True),
    "ellipsoid": Ellipsoid(),
    "l1": L1(),
    "ball": Ball(1.5),
    "oblique": Oblique(BASIS, Ellipsoid()),
}


def placed(name: str, frozen: Any = ()) -> Any:
    x = torch.tensor([[0.5, -1.0, 2.0], [0.0, 0.0, 0.0]]).double()
    free = torch.ones_like(x, dtype=torch.bool)
    free[:, list(frozen)] = False
    far = torch.full_like(x, torch.inf)
    space = Space(-far, far, torch.full_like(x, 10.0), free, free.double())
    region = SHAPES[name].place(x, space, (3,), torch.float64)
    theta = torch.tensor([[0.3, 1.0, 0.1], [2.0, 0.5, 0.7]]).double()
    theta = theta if name != "asymmetric" else torch.cat([theta, 0.4 * theta], 1)
    return region, torch.where(region.caps > 0, theta, 0.0)


def scaled(region: Any, theta: Tensor, factor: Any) -> Any:
    return region.grow(theta, torch.full((2,), factor).double())


@pytest.mark.parametrize("frozen", [(), (1,)])
@pytest.mark.parametrize("name", list(SHAPES))
def test_samples_lie_inside_and_fill_the_region(name: str, frozen: tuple[Any, ...]) -> None:
    region, theta = placed(name, frozen)
    points = region.sample(theta, 2000, torch.Generator().manual_seed(0))
    if not (frozen and name == "oblique"):  # rotating back and forth moves a frozen direction by rounding
        assert region.contains(scaled(region, theta, 1 + 1e-9), points).all()
    assert not region.contains(scaled(region, theta, 0.9), points).all()
    assert not region.contains(theta, region.x[:, None] + 50.0).any()
    if frozen and name != "oblique":
        assert (points[..., 1] == region.x[:, None, 1]).all()


@pytest.mark.parametrize("name", ["box", "asymmetric", "ellipsoid", "l1", "ball"])
def test_volume_is_what_counting_points_says(name: str) -> None:
    region, theta = placed(name)
    low, high = region.input_set(region.sides(theta)).hull()
    share = torch.rand(2, 400_000, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    points = low[:, None] + share * (high - low)[:, None]
    counted = region.contains(theta, points).double().mean(1).log() + (high - low).log().sum(1)
    torch.testing.assert_close(region.log_volume(theta), counted, rtol=0, atol=0.02)


@pytest.mark.parametrize("name", ["box", "ellipsoid", "l1", "ball"])
def test_samples_are_uniform(name: str) -> None:
    """Half of the volume lies within 2^(-1/n) of the size."""
    region, theta = placed(name)
    points = region.sample(theta, 20_000, torch.Generator().manual_seed(2))
    share = region.contains(scaled(region, theta, 0.5 ** (1 / 3)), points).double().mean(1)
    assert (share - 0.5).abs().max() < 0.02


def test_unit_volumes() -> None:
    assert placed("ellipsoid")[0].log_unit_volume(torch.tensor([3])).item() == pytest.approx(math.log(4 / 3 * math.pi))
    assert placed("l1")[0].log_unit_volume(torch.tensor([3])).item() == pytest.approx(math.log(8 / 6))


# Shapes that no command can ask for, and why.
LACKS: dict[type[Region], str] = {}


def test_every_shape_is_registered_or_has_an_excuse() -> None:
    for module in pkgutil.iter_modules(regions.__path__):
        importlib.import_module(f"{regions.__name__}.{module.name}")
    known = {type(region_named(name)) for name in (*REGIONS, f"{BALL}1.5")}
    shapes = {shape for shape in Region.__subclasses__() if shape.__module__.startswith(regions.__name__)}
    assert shapes - known - set(LACKS) == set(), "neither registered nor excused"
    assert set(LACKS) & known == set() and set(LACKS) <= shapes, "a stale excuse"
    for shape in shapes:
        assert getattr(er, shape.__name__) is shape


def test_shapes_are_told_apart_by_their_names() -> None:
    made = [
        *(region_named(name) for name in REGIONS if name != OBLIQUE),  # which is one of these
        *(Oblique(BASIS, inner) for inner in SHAPES.values() if inner.basis is None),
    ]
    names = [shape.name for shape in made]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(("p", "same"), [(1, L1()), (2, Ellipsoid()), (math.inf, Box())])
def test_balls_of_three_norms_are_shapes_with_names_of_their_own(p: float, same: Region) -> None:
    ball = Ball(p)
    assert (ball.name, ball.p, ball.placed) == (same.name, same.p, same.placed)
    assert ball.stated_by_corners == same.stated_by_corners


@pytest.mark.parametrize("p", [1.001, 1.5, 3, 1e6])
def test_balls_of_other_norms(p: float) -> None:
    ball = region_named(f"{BALL}{p}")
    assert ball.p == p and ball.name == shape_name(name_of_norm(ball.p), False) and not ball.stated_by_corners
    assert Ball(p=p).placed is ball.placed


@pytest.mark.parametrize("p", [0.999, 0, -1, math.nan, -math.inf, True, "2", None, [2]])
def test_what_is_no_norm_is_refused(p: Any) -> None:
    with pytest.raises(er.InputError, match="a number p from 1 to infinity"):
        Ball(p)


def test_what_a_rotated_shape_is_of() -> None:
    inner = Box(asymmetric=True)
    region = Oblique(BASIS, inner)
    assert region.name == "Oblique(Box(asymmetric))" and region.p == inner.p and not region.stated_by_corners
    for wrong in (Uniform(), region, "box"):
        with pytest.raises(er.InputError, match="inner must be a shape"):
            Oblique(BASIS, wrong)


@pytest.mark.parametrize("region", [er.Box(), er.Box(asymmetric=True)])
def test_derivatives_by_the_sides_of_boxes_are_those_of_autograd(region: er.Box) -> None:
    n, rng = 6, np.random.default_rng(0)
    x = torch.from_numpy(rng.uniform(0.1, 0.9, (3, n)))
    placed = region.place(x, space_of(mlp(rng, [n, 3]), x, domain=(0.0, 1.0)), (n,), torch.float64)
    sides = placed.sides(torch.minimum(placed.caps, torch.full_like(placed.caps, 0.3)))
    assert sides.shape == (3, 2 * n)
    by_radius, by_center = (torch.from_numpy(rng.normal(size=(4, 3, n))) for _ in range(2))
    for center in (by_center, None):
        found = placed.by_sides(sides, by_radius, center)
        torch.testing.assert_close(found, Placed.by_sides(placed, sides, by_radius, center))


def test_a_bound_of_ones_own_need_not_look_at_the_centre() -> None:
    """A box in a domain moves its centre, by which the margins are differentiated, too."""
    net = mlp(np.random.default_rng(0), [4, 6, 3])
    x = torch.full((1, 4), 0.3)

    def bound(net: Network, sets: InputSet, spec: Specification) -> torch.Tensor:
        start = spec.margins(net.cast(sets.center.dtype).values(torch.full_like(sets.center, 0.3).detach())[-1])
        return start - 100 * sets.radius.flatten(1).sum(1, keepdim=True)

    certs = er.certify(net, x, bounds=bound, domain=(0, 1))
    assert certs.certified.all() and (certs.eps > 0).all()
