"""A start from earlier regions: never smaller answers, fewer gradients, and misfits refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import elbowroom as er
from elbowroom.errors import InputError
from elbowroom.network.operations import Linear
from search.test_reference import reference

PAPER = {"bounds": "combined", "margin": "logits"}


@pytest.fixture(scope="module")
def robust(shared: Path) -> Any:
    net, x, y, _ = reference(shared, "m100pgd")
    return net, x[:8], y[:8], er.certify(net, x[8:], y[8:], **PAPER)


def test_saves_gradients_at_the_same_size(robust: Any) -> None:
    net, x, y, earlier = robust
    plain, with_prior = er.certify(net, x, y, **PAPER), er.certify(net, x, y, prior=earlier, **PAPER)
    assert set(with_prior.status) == {"certified"}
    assert with_prior.gradients.sum() <= plain.gradients.sum() - len(x) // 2
    assert (with_prior.geomean / plain.geomean).min() >= 0.999


def test_most_of_the_size_without_a_gradient(robust: Any) -> None:
    net, x, y, earlier = robust
    plain = er.certify(net, x, y, **PAPER)
    free = er.certify(net, x, y, prior=earlier, solver=er.Sequential(gradients=0), **PAPER)
    assert int(free.gradients.max()) == 0
    assert (free.geomean / plain.geomean).min() >= 0.95
    assert bool(er.check(free))
    # Without a prior nothing but the uniform region can come of no gradients.
    uniform = er.certify(net, x, y, solver=er.Sequential(gradients=0), **PAPER)
    assert torch.allclose(uniform.ratio, torch.ones(len(x), dtype=torch.float64), atol=1e-3)


@pytest.mark.parametrize("region", [er.Box(), er.Box(asymmetric=True), er.Ellipsoid(), er.L1()])
def test_every_shape(robust: Any, region: Any) -> None:
    net, x, y, _ = robust
    domain = {"domain": (-1, 1)} if isinstance(region, er.Box) else {}
    earlier = er.certify(net, x[4:], y[4:], region=region, **domain)
    plain = er.certify(net, x[:4], y[:4], region=region, **domain)
    found = er.certify(net, x[:4], y[:4], region=region, prior=earlier, **domain)
    assert set(found.status) == {"certified"} and bool(er.check(found))
    # And the start hardly matters: the solver finds as much on its own, and more gradients would find little more.
    assert 1.06 * plain.geomean.mean() >= found.geomean.mean() >= 0.98 * plain.geomean.mean()
    longer = er.certify(net, x[:4], y[:4], region=region, solver=er.Sequential(gradients=16), **domain)
    assert longer.geomean.mean() <= 1.06 * plain.geomean.mean()


def test_a_useless_prior_does_no_harm(robust: Any) -> None:
    net, x, y, earlier = robust
    plain = er.certify(net, x[:3], y[:3], **PAPER)
    shuffled = earlier.eps[:, torch.randperm(784, generator=torch.Generator().manual_seed(0))]
    wrong = replace(earlier, lower=earlier.x - shuffled, upper=earlier.x + shuffled)
    found = er.certify(net, x[:3], y[:3], prior=wrong, **PAPER)
    assert (found.geomean / plain.geomean).min() >= 0.999


def test_misfits_are_refused(robust: Any) -> None:
    net, x, y, earlier = robust
    other = er.Network.chain((784,), [Linear(torch.eye(10, 784), None)])
    with pytest.raises(InputError, match="another network"):
        er.certify(other, x, prior=earlier)
    with pytest.raises(InputError, match="shape"):
        er.certify(net, x, y, region=er.Ellipsoid(), prior=earlier)
    with pytest.raises(InputError, match="Certificates"):
        er.certify(net, x, y, prior=earlier.eps)
    with pytest.raises(InputError, match="no certificate"):
        er.certify(net, x, y, prior=er.certify(net, x[:1], (y[:1] + 1) % 10))


def test_a_rotated_box_with_unequal_sides() -> None:
    torch.manual_seed(0)
    net = er.Network.chain((4,), [Linear(torch.randn(3, 4), torch.randn(3))])
    x = torch.randn(6, 4)
    region = er.Oblique(torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64))[0], er.Box(asymmetric=True))
    earlier = er.certify(net, x[:3], region=region)
    again = er.certify(net, x[:3], region=region, prior=earlier, solver=er.Sequential(gradients=0))
    assert set(again.status) == {"certified"} and bool(er.check(again))
    plain = er.certify(net, x[:3], region=region, solver=er.Sequential(gradients=0))
    assert (again.log_volume >= plain.log_volume - 1e-6).all()
