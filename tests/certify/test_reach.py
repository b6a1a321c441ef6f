"""How much larger regions could be: counterexamples that are as near as a fine grid says, and real ones."""

import functools
import importlib
import math
import sys
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import elbowroom as er
from elbowroom.certificates.result import norm_of
from elbowroom.claim.specification import label_stays
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network
from elbowroom.search.regions.base import Region
from proof import exact
from support import mlp

ENDS = -3.0, 3.0
BASIS = torch.linalg.qr(torch.tensor([[1.0, 0.4], [-0.3, 1.2]], dtype=torch.float64))[0]
SHAPES = {
    "box": er.Box(), "asymmetric": er.Box(asymmetric=True), "uniform": er.Uniform(), "ellipsoid": er.Ellipsoid(),
    "l1": er.L1(), "oblique": er.Oblique(BASIS, er.Box(asymmetric=True)), "oblique l1": er.Oblique(BASIS, er.L1()),
    "oblique ellipsoid": er.Oblique(BASIS, er.Ellipsoid()),
    "ball": er.Ball(3), "oblique ball": er.Oblique(BASIS, er.Ball(1.2)),
}  # fmt: skip


def network(seed: int, op: ops.Operation | None = None, n: int = 2) -> Network:
    return mlp(np.random.default_rng(seed), [n, 12, 12, 3], op or ops.ReLU())


def points(seed: int, count: int = 3, n: int = 2) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).uniform(-2, 2, (count, n)))


def certify(net: Network, x: Tensor, **given: Any) -> er.Certificates:
    return er.certify(net, x, reach=True, **given)


def sides(certs: er.Certificates, k: int) -> tuple[Tensor, Tensor]:
    """Extents below and above the input, along the features or the basis."""
    if certs.lower is not None and certs.upper is not None:
        return certs.x[k] - certs.lower[k], certs.upper[k] - certs.x[k]
    shift = certs.center[k] - certs.x[k]
    shift = shift if certs.basis is None else torch.linalg.solve(certs.basis, shift)
    return certs.eps[k] - shift, certs.eps[k] + shift


def by_grid(net: Network, certs: er.Certificates, k: int) -> float:
    """The least scaling at which one of 2,000 directions leads to another decision; in steps of half a percent."""
    angle = torch.linspace(0, 2 * math.pi, 2001, dtype=torch.float64)[:-1]
    unit = torch.stack([angle.cos(), angle.sin()], 1)
    unit = unit / torch.linalg.vector_norm(unit, ord=norm_of(certs.settings["p"]), dim=1, keepdim=True)
    down, up = sides(certs, k)
    for scale in 1.005 ** np.arange(1, 500):
        v = unit * scale
        moved = torch.where(v > 0, v * up, v * down)
        at = certs.x[k] + (moved if certs.basis is None else moved @ certs.basis.T)
        at = at.clamp(*ENDS) if certs.lower is not None else at
        if bool((net.decide(net(at)) != certs.labels[k]).any()):
            return float(scale)
    return math.inf


OPS = {"relu": ops.ReLU(), "tanh": ops.Tanh()}


@functools.cache  # none of the tests changes them
def in_the_plane(shape: str, op: str) -> er.Certificates:
    return certify(network(1, OPS[op]), points(2, 6), region=SHAPES[shape], domain=ENDS)


# The shape is the business of frames alone, the activation of margins alone: not every pair is needed.
PAIRS = [*((shape, "relu") for shape in SHAPES), *((shape, "tanh") for shape in ("asymmetric", "l1", "oblique ball"))]


@pytest.mark.parametrize(("shape", "op"), PAIRS)
def test_as_near_as_a_fine_grid_says(shape: str, op: str) -> None:
    certs = in_the_plane(shape, op).rows(0, 3)
    net = network(1, OPS[op])
    assert bool(er.check(certs)) and certs.reach is not None
    finite = 0
    for k in certs.certified.nonzero().squeeze(1).tolist():
        true, found = by_grid(net, certs, k), float(certs.reach[k])
        assert found > 1 and found <= 1.02 * true
        finite += math.isfinite(found)
    assert finite


def of_four_features(shape: str) -> er.Certificates:
    basis = torch.linalg.qr(torch.from_numpy(np.random.default_rng(1).standard_normal((4, 4))))[0]
    region = SHAPES[shape]
    if isinstance(region, er.Oblique):
        region = er.Oblique(basis, region.inner)
    return certify(network(3, n=4), points(4, 6, 4), region=region, domain=ENDS)


@pytest.mark.parametrize(("shape", "n"), [*((shape, 2) for shape in SHAPES), ("asymmetric", 4), ("oblique ball", 4)])
def test_what_is_seen_is_a_counterexample_in_exact_arithmetic(shape: str, n: int) -> None:
    certs = in_the_plane(shape, "relu") if n == 2 else of_four_features(shape)
    net = certs.network
    assert net is not None and certs.reach is not None and certs.seen is not None
    found = certs.reach.isfinite().nonzero().squeeze(1).tolist()
    assert len(found) >= 3
    spec = label_stays(certs.labels, 3)
    for k in found:
        outputs = exact.values(net, certs.seen[k])[-1]
        rows = exact.objects(Fraction, spec.rows[k])
        assert min(rows @ outputs) <= 0
        if certs.lower is not None and certs.upper is not None:
            for seen, x, low, high in zip(*(t[k].tolist() for t in (certs.seen, certs.x, certs.lower, certs.upper))):
                moved, scale = Fraction(seen) - Fraction(x), Fraction(float(certs.reach[k]))
                assert scale * (Fraction(low) - Fraction(x)) <= moved <= scale * (Fraction(high) - Fraction(x))
                assert ENDS[0] <= seen <= ENDS[1]


def beyond_by_grid(net: Network, certs: er.Certificates, k: int, feature: int, above: bool) -> float:
    """Where beyond a face another decision is met first: on a grid of 400 values of the other feature."""
    assert certs.lower is not None and certs.upper is not None
    other = 1 - feature
    across = torch.linspace(float(certs.lower[k, other]), float(certs.upper[k, other]), 401, dtype=torch.float64)
    face = float((certs.upper if above else certs.lower)[k, feature])
    for value in torch.linspace(face, ENDS[above], 801, dtype=torch.float64).tolist():
        at = torch.empty(len(across), 2, dtype=torch.float64)
        at[:, feature], at[:, other] = value, across
        if bool((net.decide(net(at)) != certs.labels[k]).any()):
            return value
    return math.inf if above else -math.inf


@pytest.mark.parametrize("asymmetric", [False, True])
def test_faces_are_seen_as_near_as_a_fine_grid_says(asymmetric: bool) -> None:
    net = network(5)
    certs = certify(net, points(6), region=er.Box(asymmetric=asymmetric), domain=ENDS)
    assert certs.seen_lower is not None and certs.seen_upper is not None
    assert certs.lower is not None and certs.upper is not None
    seen = 0
    for k in certs.certified.nonzero().squeeze(1).tolist():
        for feature in range(2):
            width = float(certs.upper[k, feature] - certs.lower[k, feature])
            for above in (False, True):
                true = beyond_by_grid(net, certs, k, feature, above)
                found = float((certs.seen_upper if above else certs.seen_lower)[k, feature])
                sign, step = (1 if above else -1), 6 / 800
                if math.isfinite(true):
                    assert sign * (found - true) <= 0.02 * width + step, (k, feature, above)
                    assert sign * (found - true) >= -step - 1e-3 * width
                    seen += 1
    assert seen >= 4
    assert bool((certs.seen_lower <= certs.lower).all()) and bool((certs.seen_upper >= certs.upper).all())


def test_a_point_that_cannot_be_proved_leaves_its_place_to_the_nearest_that_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net, x = network(0), points(0, 1)
    plain = certify(net, x, domain=ENDS)

    def nowhere(*given: Any) -> None:
        v, found = given[-1]
        v[:], found[:] = 0.0, 1.0  # the input itself, which is no counterexample

    monkeypatch.setattr(sys.modules["elbowroom.certify.reach"]._Slabs, "inside", nowhere)
    certs = certify(net, x, domain=ENDS)
    for name in ("seen_lower", "seen_upper"):
        before, after = getattr(plain, name), getattr(certs, name)
        assert torch.equal(before.isfinite(), after.isfinite()) and bool(after.isfinite().any())


@pytest.fixture
def no_attack(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(frame: Any, *_: Any) -> tuple[Tensor, Tensor]:
        return torch.zeros_like(frame.x), torch.full_like(frame.x[:, 0], torch.inf)

    reach = importlib.import_module("elbowroom.certify.reach")
    monkeypatch.setattr(reach, "nearest_broken", nothing)
    monkeypatch.setattr(reach, "_SLABS", ())


@pytest.mark.usefixtures("no_attack")
def test_what_a_search_met_counts_where_features_stay_at_numbers_that_float32_lacks() -> None:
    net = network(1, n=3)
    x = torch.tensor([[0.3, 0.1, 0.2]], dtype=torch.float64)
    certs = certify(net, x, domain=ENDS, region=er.Box(asymmetric=True), frozen=[1], effort=100)
    assert certs.seen_lower is not None and certs.seen_upper is not None
    assert int(certs.seen_lower.isfinite().sum() + certs.seen_upper.isfinite().sum()) >= 2
    assert bool(certs.seen_lower[0, 1].isinf()) and bool(certs.seen_upper[0, 1].isinf())
    assert er.check(certs).passed.all()


@pytest.mark.usefixtures("no_attack")
def test_what_a_search_met_says_where_to_look() -> None:
    net, x = network(0), points(0, 2)
    options: dict[str, Any] = {"domain": ENDS, "region": er.Box(asymmetric=True)}
    plain, certs = certify(net, x, **options), certify(net, x, effort="medium", **options)
    for name, end, sign in (("seen_lower", certs.lower, -1), ("seen_upper", certs.upper, 1)):
        assert getattr(plain, name).isinf().all()
        seen = getattr(certs, name)
        gap = sign * (seen - end) / (certs.upper - certs.lower)
        assert int(seen.isfinite().sum()) >= 3
        assert bool((gap[seen.isfinite()] > 0).all()) and bool((gap[seen.isfinite()] < 0.01).all())
    assert er.check(certs).passed.all()


def test_inputs_without_a_certificate_have_nothing_seen() -> None:
    net, x = network(7), points(8, 4)
    labels = net.decide(net(x))
    labels[1] = (labels[1] + 1) % 3
    x[2, 0], x[3, 0] = torch.nan, 9.0
    certs = certify(net, x, labels=labels, domain=ENDS)
    assert certs.status == ("certified", "misclassified", "nonfinite", "error")
    assert certs.reach is not None and certs.seen_lower is not None and certs.seen_upper is not None
    assert certs.reach[1:].isinf().all() and torch.equal(certs.seen[1:].nan_to_num(), certs.x[1:].nan_to_num())
    assert (certs.seen_lower[1:] == -torch.inf).all() and (certs.seen_upper[1:] == torch.inf).all()
    assert er.check(certs).passed.tolist() == [True, False, False, False]


def test_nothing_is_looked_for_unless_asked() -> None:
    certs = er.certify(network(7), points(8))
    assert certs.reach is None and certs.seen is None and certs.seen_lower is None
    with pytest.raises(er.InputError, match="reach must be True or False"):
        er.certify(network(7), points(8), reach="yes")


def test_a_constant_decision_has_no_counterexample() -> None:
    net = er.load(nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 2)), input_shape=(2,))
    flat = Network(net.nodes, net.decision)
    with torch.no_grad():
        flat.nodes[-1].op.weight.zero_()
        flat.nodes[-1].op.bias.copy_(torch.tensor([1.0, 0.0]))
    for region in (er.Box(), er.L1()):
        certs = certify(Network(flat.nodes, flat.decision), points(1), region=region, max_eps=1.0)
        assert set(certs.status) == {"certified"} and certs.reach is not None and certs.reach.isinf().all()
        assert torch.equal(certs.seen, certs.x) and bool(er.check(certs))


@pytest.mark.parametrize("region", [er.Box(), er.Ellipsoid(), er.Oblique(torch.eye(3, dtype=torch.float64))])
def test_frozen_features_stay(region: Region) -> None:
    certs = certify(network(9, n=3), points(10, 4, 3), region=region, frozen=[False, True, False], domain=ENDS)
    assert bool(er.check(certs)) and certs.reach is not None and certs.seen is not None
    assert certs.reach.isfinite().any()
    assert torch.allclose(certs.seen[:, 1], certs.x[:, 1], atol=1e-12)
    if certs.lower is not None:
        assert torch.equal(certs.seen[:, 1], certs.x[:, 1])
        assert certs.seen_lower[:, 1].isinf().all() and certs.seen_upper[:, 1].isinf().all()


@pytest.mark.parametrize("kind", ["set", "tolerance"])
def test_other_specifications(kind: str) -> None:
    """Of a group with several rows, none is positive."""
    net, x = network(11), points(12, 5)
    spec = er.label_in([0, 1], 3) if kind == "set" else er.outputs_within(net(x), 0.4)
    certs = certify(net, x, spec=spec, domain=(-9, 9))
    assert certs.reach is not None and certs.seen is not None
    found = certs.reach.isfinite()
    assert found.any() and bool(er.check(certs))
    if kind == "set":
        assert (net.decide(net(certs.seen[found])) == 2).all()
    else:
        assert ((net(certs.seen) - net(x)).abs().amax(1)[found] >= 0.4 - 1e-12).all()


def test_images_have_no_faces_and_a_reach() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(48, 3))
    net = er.load(module, input_shape=(1, 10, 10))
    certs = certify(net, torch.rand(3, 1, 10, 10), domain=(0, 1))
    assert certs.reach is not None and certs.seen is not None and certs.seen_lower is not None
    found = certs.reach.isfinite()
    assert found.any() and bool(er.check(certs)) and certs.seen.shape == certs.x.shape
    assert (net.decide(net(certs.seen[found])) != certs.labels[found]).all()
    assert certs.seen_lower.isinf().all()  # more features than are looked at one by one


def test_what_is_found_does_not_depend_on_the_batch() -> None:
    net, x = network(13), points(14, 4)
    whole = certify(net, x, domain=ENDS)
    for some in (slice(0, 1), slice(1, 4)):
        fewer = certify(net, x[some], domain=ENDS)
        # Within what the last scaling is to be right to.
        torch.testing.assert_close(fewer.geomean, whole.geomean[some], rtol=4e-5, atol=0)
        # The last digit of a region may lead an attack elsewhere.
        torch.testing.assert_close(fewer.reach, whole.reach[some], rtol=2e-2, atol=0)


def test_as_executed_and_of_the_smallest_output() -> None:
    net = network(1)
    least = Network(net.nodes, "min")
    for given in ({"deployed": "float32"}, {}):
        certs = certify(least if not given else net.cast(torch.float32), points(16), domain=(-20, 20), **given)
        assert bool(er.check(certs)) and certs.reach is not None and certs.reach.isfinite().any()
