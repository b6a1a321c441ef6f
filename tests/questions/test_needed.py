"""How accurate features must be: one vector, attacked on every input that it is claimed for."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import elbowroom as er
from elbowroom.errors import InputError
from elbowroom.network import operations as ops
from elbowroom.network.graph import About, Network
from elbowroom.network.table import Column, Table
from elbowroom.verify.counterexample import descend, starting_points
from support import cases, mlp, normal

F64 = torch.float64


def attack(net: Network, found: er.Accuracy, x: torch.Tensor, labels: torch.Tensor, low: Any, high: Any) -> None:
    """Corners, random points and descents within the tolerances of every input that they are claimed for."""
    rng = torch.Generator().manual_seed(0)
    t = found.tolerance
    for i, status in enumerate(found.status):
        lower, upper = (x[i] - t).clamp(low, high), (x[i] + t).clamp(low, high)
        if status == "safe":
            share = torch.rand(200, *t.shape, generator=rng, dtype=F64)
            share[::2] = share[::2].round()
            points = lower + share * (upper - lower)
            assert bool((net.decide(net(points)) == labels[i]).all())
            spec = er.label_stays(labels[i : i + 1], net.n_outputs, net.decision)
            start = starting_points(lower, upper, 8).repeat(spec.n_groups, *[1] * t.dim())
            group = torch.arange(spec.n_groups).repeat_interleave(8)
            ends = lower.expand_as(start), upper.expand_as(start)
            _, margins = descend(net.cast(F64), spec, *ends, start, group, 30)
            assert bool((margins > 0).all())
        elif status == "unsafe":
            point = found.counterexamples[i]
            assert bool(((lower <= point) & (point <= upper)).all())
            assert int(net.decide(net(point[None]))) != int(labels[i])


def looks_right(found: er.Accuracy) -> None:
    certs = found.certificates
    assert certs.certified.tolist() == [s == "safe" for s in found.status] == er.check(certs).passed.tolist()
    assert found.proved == found.status.count("safe") and found.reached == (found.proved >= found.needed)
    # The certificates are of these very tolerances, or what the domain leaves of them.
    good = certs.certified
    inside = (certs.x - found.tolerance >= certs.lower)[good] | (certs.lower[good] == found_lowest(certs)[good])
    assert bool(inside.all())


def found_lowest(certs: er.Certificates) -> torch.Tensor:
    return torch.full_like(certs.x, -math.inf) if certs.lowest is None else certs.lowest.expand_as(certs.x)


@cases(0.1)
@given(seed=st.integers(0, 10**6), share=st.sampled_from([0.4, 0.8, 1.0]), effort=st.sampled_from(["fast", 10]))
def test_the_vector_holds_wherever_it_is_claimed(seed: int, share: float, effort: Any) -> None:
    rng = np.random.default_rng(seed)
    net = mlp(rng, [3, 8, 3], [ops.ReLU(), ops.Tanh()][seed % 2])
    x = normal(rng, 6, 3)
    domain = (-2.5, 2.5) if seed % 3 else None
    found = er.accuracy_needed(net, x, share, domain=domain, effort=effort)
    attack(net, found, x, net.decide(net(x)), *(domain or (-math.inf, math.inf)))
    looks_right(found)
    assert found.needed == math.ceil(share * 6 - 1e-9)
    assert bool((found.tolerance > 0).all()) == found.reached


def test_a_linear_network_has_a_known_answer() -> None:
    """One constraint w . t <= least margin: every feature spends the same share of it."""
    weight = torch.tensor([[1.0, 10.0, 0.1], [0.0, 0.0, 0.0]], dtype=F64)
    net = Network.chain((3,), [ops.Linear(weight, torch.zeros(2, dtype=F64))])
    x = torch.tensor([[3.0, 0, 0], [0, 0.6, 0], [0, 0, 90.0], [1.0, 0.1, 0]], dtype=F64)  # margins 3, 6, 9, 2
    for share, margin in ((1.0, 2.0), (0.5, 6.0)):
        found = er.accuracy_needed(net, x, share, scale=[1.0, 0.1, 10.0], max_eps=1e3)
        wanted = margin / 3 / weight[0]
        torch.testing.assert_close(found.tolerance, wanted, rtol=2e-2, atol=0)
        assert found.proved == round(4 * share) and bool(found.tolerance.mul(weight[0]).sum() < margin)
        torch.testing.assert_close(found.shares, wanted / torch.tensor([1, 0.1, 10]), rtol=2e-2, atol=0)
    weighted = er.accuracy_needed(net, x, 1.0, scale=1.0, importance=[1.0, 1.0, 2.0])
    torch.testing.assert_close(weighted.tolerance, torch.tensor([0.5, 0.05, 10.0]).double(), rtol=2e-2, atol=0)
    capped = er.accuracy_needed(net, x, 1.0, scale=1.0, max_eps=[0.1, 1.0, 1.0])
    assert capped.capped.tolist() == [True, False, True] and float(capped.tolerance[0]) == pytest.approx(0.1, rel=1e-3)
    assert float(capped.tolerance[1]) == pytest.approx((2 - 0.1 - 0.1) / 10, rel=0.02)


def test_parts_prove_more() -> None:
    rng = np.random.default_rng(5)
    net = mlp(rng, [3, 16, 16, 3])
    x = normal(rng, 10, 3)
    fast, medium = (er.accuracy_needed(net, x, 0.8, effort=e) for e in ("fast", 30))
    assert fast.proved >= 8 and medium.proved >= 8
    assert float(medium.tolerance.log().mean()) > float(fast.tolerance.log().mean()) + 0.05
    attack(net, medium, x, net.decide(net(x)), -math.inf, math.inf)
    looks_right(medium)


def test_wrong_labels_count_and_may_make_it_impossible(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    net = mlp(rng, [3, 10, 3])
    x = normal(rng, 10, 3)
    x[9, 0] = math.nan
    labels = net.decide(net(x))
    labels[:2] = (labels[:2] + 1) % 3
    found = er.accuracy_needed(net, x, 0.7, labels=labels)
    assert found.needed == 7 == found.proved and found.status[:2] == ("misclassified",) * 2
    assert found.status[9] == "nonfinite" and found.reached and "7 of 10" in repr(found)
    looks_right(found)
    found.certificates.save(tmp_path / "run")
    assert int(er.check(er.Certificates.load(tmp_path / "run")).passed.sum()) == 7
    lost = er.accuracy_needed(net, x, 0.8, labels=labels)
    assert not lost.reached and lost.needed == 8 and not bool(lost.tolerance.any()) and lost.proved == 7
    looks_right(lost)
    none = er.accuracy_needed(net, x[9:], 0.5, scale=1.0)
    assert none.status == ("nonfinite",) and not none.reached and not bool(none.tolerance.any())


def test_frozen_features_categories_and_a_regression() -> None:
    rng = np.random.default_rng(3)
    net = mlp(rng, [4, 10, 1])
    x = normal(rng, 6, 4)
    x[:, 1:3] = torch.tensor([1.0, 0.0])
    columns = (Column("age"), Column("job", ("a", "b"), ((1.0, 0.0), (0.0, 1.0))), Column("pay"))
    names = ("age", "job=a", "job=b", "pay")
    net = er.Network(net.nodes, net.decision, About(features=names, table=Table(columns)))
    spec = er.outputs_within(net(x), 0.4)
    found = er.accuracy_needed(net, x, 1.0, spec=spec)
    assert (found.tolerance > 0).tolist() == [True, False, False, True] and found.reached
    assert not bool(found.shares[1:3].any()) and not bool(found.capped[1:3].any())
    share = 2 * torch.rand(500, 1, 4, generator=torch.Generator().manual_seed(0), dtype=F64) - 1
    moved = x + share.sign() * share.abs().sqrt() * found.tolerance
    assert bool(((net(moved.flatten(0, 1)).reshape(500, 6) - net(x)[:, 0]).abs() <= 0.4).all())
    looks_right(found)
    fixed = er.accuracy_needed(net, x, 1.0, spec=spec, frozen="age")
    assert (fixed.tolerance > 0).tolist() == [False, False, False, True]
    assert float(fixed.tolerance[3]) > float(found.tolerance[3])


def test_one_input_and_images() -> None:
    net = Network.chain((1, 2, 2), [ops.Reshape((4,)), *mlp_layers()])
    x = torch.rand(1, 1, 2, 2, dtype=F64, generator=torch.Generator().manual_seed(0))
    found = er.accuracy_needed(net, x, domain=(0, 1))
    assert found.tolerance.shape == (1, 2, 2) == found.shares.shape and found.reached
    attack(net, found, x, net.decide(net(x)), 0, 1)
    with pytest.raises(InputError, match="feature 0 is the same in all inputs"):
        er.accuracy_needed(net, x)


def mlp_layers() -> list[ops.Operation]:
    rng = np.random.default_rng(0)
    return [ops.Linear(normal(rng, 6, 4), normal(rng, 6)), ops.ReLU(), ops.Linear(normal(rng, 3, 6), normal(rng, 3))]


@pytest.mark.parametrize(
    "wrong",
    [
        {"share": 0}, {"share": 1.1}, {"share": math.nan}, {"share": "most"}, {"share": True}, {"scale": 0.0},
        {"scale": [1.0, math.inf]}, {"importance": [1.0, 0.0]}, {"max_eps": -1.0}, {"effort": "lots"}, {"frozen": "z"},
    ],
)  # fmt: skip
def test_what_is_refused(wrong: dict[str, Any]) -> None:
    net = mlp(np.random.default_rng(0), [2, 4, 2])
    x = normal(np.random.default_rng(1), 4, 2)
    with pytest.raises(InputError):
        er.accuracy_needed(net, x, **wrong)
