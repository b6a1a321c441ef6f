"""The verdict: the largest region that the strict check proves, and nothing that it does not."""

import importlib
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

import elbowroom as er
from elbowroom.claim.hints import Hints
from elbowroom.claim.specification import label_stays
from elbowroom.claim.stated import Stated
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network
from elbowroom.proof.kernel.prove import prove
from elbowroom.proof.kernel.support import hull
from support import cases, mlp

MODULE = importlib.import_module("elbowroom.certify.task")
SHAPES = {
    "box": er.Box(),
    "asymmetric": er.Box(asymmetric=True),
    "uniform": er.Uniform(),
    "ellipsoid": er.Ellipsoid(),
    "oblique": er.Oblique(torch.linalg.qr(torch.tensor([[1.0, 0.4], [-0.3, 1.0]]).double()).Q, er.Box(asymmetric=True)),
}


def linear() -> Any:
    """`z_0 > z_1` where `x_0 + 2 x_1 > -1`."""
    return er.Network.chain((2,), [ops.Linear(torch.tensor([[1.0, 2.0], [0.0, 0.0]]), torch.tensor([1.0, 0.0]))])


def shrunk(monkeypatch: pytest.MonkeyPatch, limit: Any, **options: Any) -> Any:
    """Certificates at 0 and 1/8 where the strict check, as it is told here, refuses what is wider than `limit` times
    what the search finds; how often it was asked, and the certificates of the check as it is."""
    asked = []
    plain = er.certify(linear(), torch.tensor([[0.0, 0.0], [0.125, 0.125]]), **options)
    certify, net = er.certify, linear()

    def refusing(net: Network, area: Any, *given: Any) -> Any:
        asked.append(len(given[0]))
        margins = prove(net, area, *given)
        low, high = hull(area)
        which = ((low + high)[:, 0] > 0.125).long()
        share = ((high - low) / 2 / plain.eps[which]).amax(1)
        return torch.where((share <= limit * (1 + 1e-9))[:, None], margins, -1.0)

    monkeypatch.setattr(MODULE, "prove", refusing)
    return certify(net, plain.x, **options), plain, asked


@pytest.mark.parametrize("limit", [1.0, 1 - 1e-6, 0.999, 0.97, 0.6, 0.5, 0.1, 1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("name", ["box", "uniform", "ellipsoid"])
def test_what_is_refused_shrinks_to_the_largest_that_is_proved(
    monkeypatch: pytest.MonkeyPatch, name: str, limit: Any
) -> None:
    certs, plain, asked = shrunk(monkeypatch, limit, region=SHAPES[name], precision="float64", max_eps=0.25)
    assert set(certs.status) == {"certified"}
    share = (certs.eps / plain.eps).amax(1)
    assert (share <= limit * (1 + 1e-9)).all()
    assert (share >= 0.99 * limit).all()
    assert len(asked) <= 35
    if certs.lower is not None:
        assert (certs.lower >= plain.lower).all() and (certs.upper <= plain.upper).all()
    assert not (limit < 0.99 and certs.capped.any())


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_what_is_never_proved_is_not_certified(monkeypatch: pytest.MonkeyPatch, precision: str) -> None:
    certs, _, asked = shrunk(monkeypatch, 0.0, precision=precision)
    assert set(certs.status) == {"not_certified"}
    assert all("margin at the input itself is" in message for message in certs.message)
    assert (certs.eps == 0).all() and (certs.margins == 0).all() and torch.equal(certs.lower, certs.x)
    assert len(asked) <= 40


@pytest.mark.parametrize("delta", [0.0, 0.01])
@pytest.mark.parametrize("margins", [(1, -1), (-1e-300, 1), (1, 0), (1, float("nan")), (-float("inf"), 1), (0.0099, 1)])
def test_every_margin_must_be_proved(monkeypatch: pytest.MonkeyPatch, margins: Any, delta: float) -> None:
    """Positive, and at least delta: one that is not is enough to refuse."""
    net = mlp(np.random.default_rng(1), [2, 6, 3])

    def proving(net: Network, area: Any, *given: Any) -> Any:
        return torch.tensor(margins, dtype=torch.float64).expand(len(area.lower), -1).clone()

    monkeypatch.setattr(MODULE, "prove", proving)
    certs = er.certify(net, torch.tensor([[0.5, -0.5], [1.0, 1.0]]), delta=delta)
    good = all(margin > 0 and margin >= delta for margin in margins)
    assert set(certs.status) == {"certified" if good else "not_certified"}


def test_inputs_that_are_proved_do_not_wait_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every proof asks for the inputs that still need one, each at a size of its own."""
    net, asked = linear(), []

    def refusing(net: Network, area: Any, *given: Any) -> Any:
        asked.append(len(area.lower))
        margins = prove(net, area, *given)
        small = (area.upper - area.lower).amax(1) < 0.01
        return torch.where((small | (area.upper[:, 0] > 5))[:, None], margins, -torch.inf)

    monkeypatch.setattr(MODULE, "prove", refusing)
    x = torch.tensor([[0.0, 0.0], [10.0, 0.0], [1.0, 0.0]])
    certs = er.certify(net, x, precision="float64", max_eps=2.0)
    assert set(certs.status) == {"certified"}
    width = (certs.upper - certs.lower).amax(1)
    assert width[1] > 1 and (width[[0, 2]] < 0.01).all() and (width[[0, 2]] > 0.0099).all()
    assert asked[0] == 3 and set(asked[1:]) <= {1, 2}


def test_a_check_that_is_not_monotone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused at some sizes below one that is proved: whatever is certified was proved, at the very size stored."""
    seen = {}

    def moody(net: Network, area: Any, *given: Any) -> Any:
        margins = prove(net, area, *given)
        sizes = (area.upper - area.lower).amax(1)
        odd = torch.tensor([int(np.floor(np.log2(float(s)) * 7)) % 3 == 0 for s in sizes])
        margins = torch.where(odd[:, None], margins, -1.0)
        for low, high, margin in zip(area.lower, area.upper, margins):
            seen[tuple(low.tolist()), tuple(high.tolist())] = margin.tolist()
        return margins

    monkeypatch.setattr(MODULE, "prove", moody)
    certs = er.certify(mlp(np.random.default_rng(0), [2, 6, 3]), np.random.default_rng(0).uniform(-1, 1, (6, 2)))
    assert certs.certified.any()
    for k in certs.certified.nonzero().flatten().tolist():
        stored = seen[tuple(certs.lower[k].tolist()), tuple(certs.upper[k].tolist())]
        assert stored == certs.margins[k].tolist() and min(stored) > 0


# --- affine layers in a row, where the strict check bounds layer by layer


def split(rng: np.random.Generator, factor: float = 30.0) -> Any:
    """A network of two inputs, and the same with its first layer written as two that undo each other."""
    up = torch.cat([factor * torch.eye(2), factor * torch.eye(2), torch.eye(2)])
    back = torch.cat([torch.eye(2) / factor, -torch.eye(2) / factor, torch.eye(2)], 1)
    normal = [torch.from_numpy(rng.normal(size=s)).float() for s in ((8, 2), 8, (2, 8))]
    tail = [ops.Linear(normal[0], normal[1]), ops.ReLU(), ops.Linear(normal[2])]
    return er.Network.chain((2,), [ops.Linear(up), ops.Linear(back), *tail]), er.Network.chain((2,), tail)


@given(seed=st.integers(0, 2**32 - 1), factor=st.sampled_from([3.0, 30.0, 1e3]), name=st.sampled_from(list(SHAPES)))
@cases(0.6)
def test_what_is_found_is_not_lost_where_the_check_is_looser(seed: int, factor: float, name: str) -> None:
    """A region is certified, its margins are those proved of it, and one 2 % larger is not proved."""
    rng = np.random.default_rng(seed)
    net, merged = split(rng, factor)
    x = torch.from_numpy(rng.uniform(-1, 1, size=(3, 2)))
    z = merged(x)
    assume(bool(((z[:, 0] - z[:, 1]).abs() > 1e-3).all()))
    certs, plain = er.certify(net, x, region=SHAPES[name]), er.certify(merged, x, region=SHAPES[name])
    assert set(certs.status) == {"certified"} and bool(er.check(certs, net))
    spec = label_stays(certs.labels, 2)

    def proved(grow: Any) -> Any:
        if certs.lower is not None:
            area = Stated(*(certs.x + grow * (c - certs.x) for c in (certs.lower, certs.upper)))
        else:
            center = certs.x + grow * (certs.center - certs.x)
            area = Stated(center=center, radius=grow * certs.eps, p=SHAPES[name].p, basis=certs.basis)
        return prove(net, area, spec.rows, spec.offset, spec.group, Hints())

    torch.testing.assert_close(proved(1.0), certs.margins, rtol=1e-6, atol=1e-12)
    lost = certs.geomean < 0.98 * plain.geomean
    assert (proved(1.02)[lost] <= 0).all()


def test_a_region_is_certified_where_half_of_what_was_found_is_not_proved() -> None:
    """The strict check proves a small part of what the search finds: once nothing was certified then."""
    torch.manual_seed(0)
    w = torch.randn(8, 2)
    up, down = torch.cat([30 * torch.eye(2)] * 2), torch.cat([torch.eye(2), -torch.eye(2)], 1) / 30
    layers = [torch.cat([up, torch.eye(2)]), torch.cat([down, torch.eye(2)], 1)]  # the second undoes the first
    tail = [ops.Linear(w, torch.randn(8)), ops.ReLU(), ops.Linear(torch.randn(2, 8))]
    net = er.Network.chain((2,), [ops.Linear(layers[0]), ops.Linear(layers[1]), *tail])
    certs = er.certify(net, torch.tensor([[0.3, -0.2]]))
    assert certs.status == ("certified",) and float(certs.geomean) > 0.2


# --- the network as executed in float32


def test_deployed_regions_shrink_until_nothing_overflows() -> None:
    """At the size found the execution may overflow, so that nothing at all is known of its rounding."""
    first, last = ops.Linear(torch.tensor([[1e30]])), ops.Linear(torch.tensor([[1e-30], [0.0]]), torch.ones(2))
    net = er.Network.chain((1,), [first, ops.ReLU(), last])
    x = torch.tensor([[1.0]])
    real, executed = er.certify(net, x, spec=at_most(1e12)), er.certify(net, x, spec=at_most(1e12), deployed="float32")
    assert real.status == executed.status == ("certified",)
    assert float(real.upper) > 1e11
    assert 1e7 < float(executed.upper) < 3.5e8  # where 1e30 x meets half the largest float32 number


def at_most(value: Any) -> Any:
    return er.linear_specification(torch.tensor([[-1.0, 0.0]]), torch.tensor([value]))


@given(seed=st.integers(0, 2**32 - 1), scale=st.sampled_from([1e-6, 1e-5, 1e-4, 1e-3]))
@cases(0.4)
def test_deployed_regions_are_found_where_rounding_takes_most_of_the_margin(seed: int, scale: float) -> None:
    """Margins that are a few times the rounding errors, at the input and more so on a region of the size found."""
    rng = np.random.default_rng(seed)
    net = mlp(rng, [3, 10, 10, 2], gain=2.0).cast(torch.float32)
    x = torch.from_numpy(rng.uniform(-1, 1, size=(4, 3)).astype(np.float32)).double()
    z = net(x)[0]
    layers = [node.op for node in net.nodes[1:]]
    bias = layers[-1].bias.clone()
    bias[0] -= z[0] - z[1] - scale * z.abs().max()
    net = er.Network.chain((3,), [*layers[:-1], ops.Linear(layers[-1].weight, bias)])
    certs = er.certify(net, x, deployed="float32")
    spec = label_stays(certs.labels, 2)
    alone = prove(net, Stated(certs.x, certs.x), spec.rows, spec.offset, spec.group, Hints(), "float32")
    hopeful = (alone > 0.1 * net(certs.x).diff().abs()).all(1)  # the input itself is proved with some room
    assert (certs.certified | ~hopeful).all()
    assert (certs.margins[certs.certified] > 0).all()


# --- claims


@given(seed=st.integers(0, 2**32 - 1), power=st.floats(0, 45), size=st.sampled_from([1e-9, 1.0, 1e12]))
@cases(2)
def test_scaled_regions_lie_in_the_ones_they_were_and_hold_their_inputs(seed: int, power: float, size: float) -> None:
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.normal(size=(3, 5))) * size
    low, high = (torch.from_numpy(rng.uniform(0, 1, size=(3, 5)) ** 4) for _ in range(2))
    low[:, 0] = high[:, 1] = 0
    whole = Stated(x - low, x + high)
    factor = torch.full((3,), 2.0**-power, dtype=torch.float64)
    part = whole.scaled(x, factor)
    assert (part.lower >= whole.lower).all() and (part.upper <= whole.upper).all()
    assert (part.lower <= x).all() and (part.upper >= x).all()
    assert ((x - part.lower) <= factor[0] * (x - whole.lower) * (1 + 1e-15) + 2.3e-16 * x.abs()).all()
    one = whole.scaled(x, torch.ones_like(factor))
    assert torch.equal(one.lower, whole.lower) and torch.equal(one.upper, whole.upper)
    some = torch.tensor([True, False, True])
    one.put(some.nonzero().squeeze(1), part.take(some))
    assert torch.equal(one.lower[some], part.lower[some]) and torch.equal(one.upper[~some], whole.upper[~some])
