"""certify: what it promises of every region, input and option."""

import functools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import elbowroom as er
from elbowroom.certificates.result import Certificates
from elbowroom.certify.api import certify
from elbowroom.claim.specification import label_in, linear_specification, outputs_within
from elbowroom.errors import InputError
from elbowroom.network import operations as ops
from elbowroom.network.graph import About, Network
from elbowroom.search.bounds.methods import method_named
from elbowroom.search.bounds.propagate import Propagation, margins_of
from elbowroom.search.regions.ball import Ball
from elbowroom.search.regions.base import Region
from elbowroom.search.regions.box import Box, Uniform
from elbowroom.search.regions.ellipsoid import Ellipsoid
from elbowroom.search.regions.input_set import InputSet
from elbowroom.search.regions.l1 import L1
from elbowroom.search.regions.oblique import Oblique
from elbowroom.search.solvers.augmented_lagrangian import AugmentedLagrangian
from elbowroom.search.solvers.sequential import Sequential
from support import mlp

N = 6
BASIS = torch.linalg.qr(torch.tensor(np.random.default_rng(1).normal(size=(N, N)))).Q
SHAPES = {
    "uniform": Uniform(),
    "scaled uniform": Uniform(scale=torch.arange(1.0, N + 1)),
    "box": Box(),
    "asymmetric": Box(asymmetric=True),
    "ellipsoid": Ellipsoid(),
    "l1": L1(),
    "oblique box": Oblique(BASIS),
    "oblique asymmetric": Oblique(BASIS, Box(asymmetric=True)),
    "oblique ellipsoid": Oblique(BASIS, Ellipsoid()),
    "oblique l1": Oblique(BASIS, L1()),
    "ball": Ball(1.5),
    "oblique ball": Oblique(BASIS, Ball(3)),
}


def network(seed: int = 0, sizes: Any = (N, 12, 12, 4), activation: Any = None) -> Any:
    return mlp(np.random.default_rng(seed), list(sizes), activation or ops.ReLU())


def inputs(count: int = 8, seed: int = 0, n: int = N) -> Any:
    return torch.tensor(np.random.default_rng(seed).uniform(-1, 1, size=(count, n)))


def certified_set(certs: Certificates, region: Region) -> InputSet:
    """The certified region as a set, from what the certificates state."""
    if certs.lower is not None:
        return InputSet.box(certs.lower, certs.upper)
    inner = region.inner if isinstance(region, Oblique) else region
    p = inner.p
    return InputSet(certs.center, certs.eps, p, certs.basis)


def attacked(net: Network, inputs: Any, labels: Any, count: int, steps: int = 20, seed: int = 0) -> Any:
    """The least margin of `count` points per input, each pushed towards the boundary inside the set: `b x count`."""
    gen = torch.Generator().manual_seed(seed)
    b, n = inputs.center.shape
    v = 2 * torch.rand(b, count, n, dtype=torch.float64, generator=gen) - 1

    def project(v: Any) -> Any:
        if inputs.p == math.inf:
            return v.clamp(-1, 1)
        # Onto the sphere by scaling; of l1 the best single coordinate is tried by the steps themselves.
        return v / torch.linalg.vector_norm(v, ord=inputs.p, dim=-1, keepdim=True).clamp_min(1)

    def margin(v: Any) -> Any:
        moved = v * inputs.radius[:, None]
        if inputs.basis is not None:
            moved = moved @ inputs.basis.T
        z = net((inputs.center[:, None] + moved).flatten(0, 1)).reshape(b, count, -1)
        sign = 1 if net.decision == "max" else -1
        own = z.gather(-1, labels[:, None, None].expand(b, count, 1))
        other = sign * (own - z)
        return other.scatter(-1, labels[:, None, None].expand(b, count, 1), torch.inf).amin(-1)

    least = torch.full((b, count), torch.inf, dtype=torch.float64)
    v = project(v)
    for _ in range(steps):
        v.requires_grad_()
        m = margin(v)
        (grad,) = torch.autograd.grad(m.sum(), v)
        least = torch.minimum(least, m.detach())
        v = v.detach()
        if inputs.p == 1:  # towards a vertex
            best = grad.abs().argmax(-1, keepdim=True)
            vertex = torch.zeros_like(v).scatter(-1, best, -grad.gather(-1, best).sign())
            v = project(0.7 * v + 0.3 * vertex)
        elif inputs.p < math.inf:  # towards where the gradient gains most
            power = grad.abs() ** (1 / (inputs.p - 1))
            size = torch.linalg.vector_norm(power, ord=inputs.p, dim=-1, keepdim=True).clamp_min(1e-30)
            v = project(0.7 * v - 0.3 * grad.sign() * power / size)
        else:
            v = project(v - 0.3 * grad.sign())
    return torch.minimum(least, margin(v).detach())


@functools.cache  # none of the tests changes them
def certified(name: str, seed: int, activation: str = "relu", count: int = 20) -> Certificates:
    made = {"relu": ops.ReLU(), "tanh": ops.Tanh(), "gelu": ops.GELU()}[activation]
    return certify(network(seed, activation=made), inputs(count, seed), region=SHAPES[name])


@pytest.mark.parametrize("name", list(SHAPES))
def test_no_attack_inside_a_region_changes_the_label(name: str) -> None:
    region = SHAPES[name]
    for certs in (certified(name, 10), certified(name, 1, "tanh", 8), certified(name, 2, "gelu", 8)):
        net = certs.network
        good = certs.certified
        assert good.float().mean() > 0.8
        sets = certified_set(certs, region)
        sets = InputSet(sets.center[good], sets.radius[good], sets.p, sets.basis)
        least = attacked(net, sets, certs.labels[good], count=50)
        assert (least >= certs.margins[good].amin(1, keepdim=True) - 1e-9).all()
        assert (least > 0).all()


@pytest.mark.parametrize("name", list(SHAPES))
def test_regions_stop_at_the_boundary(name: str) -> None:
    """Uncapped regions scaled by 1.01 are not proved, under the same bounds, in at least 95 % of cases."""
    region, count, violated = SHAPES[name], 0, 0
    for seed in range(2):
        certs = certified(name, seed + 10)
        net = certs.network
        if certs.lower is not None:
            down, up = certs.x - certs.lower, certs.upper - certs.x
            grown = InputSet.box(certs.x - 1.01 * down, certs.x + 1.01 * up)
        else:
            sets = certified_set(certs, region)
            shift = 0.01 * (certs.center - certs.x)
            grown = InputSet(sets.center + shift, 1.01 * sets.radius, sets.p, sets.basis)
        margins = margins_on(net, grown, certs.labels)
        fair = certs.certified & ~certs.capped.any(1)
        count += int(fair.sum())
        violated += int((margins.amin(1) < 0)[fair].sum())
    assert violated >= 0.95 * count
    assert name in ("asymmetric", "oblique asymmetric") or count >= 30


def margins_on(net: Network, sets: Any, labels: Any, method: str = "adaptive") -> Any:
    from elbowroom.claim.specification import label_stays

    work = net.cast(torch.float64)
    spec = label_stays(labels, net.n_outputs, net.decision).cast(torch.float64, "cpu")
    return Propagation(work, sets, method_named(method)).margins(spec, "direct")


@pytest.mark.parametrize("bounds", ["simple", "quadratic", "combined", "adaptive"])
@pytest.mark.parametrize("name", list(SHAPES))
def test_never_smaller_than_uniform_and_margins_are_proved(name: str, bounds: str) -> None:
    net, x = network(3), inputs(6, 3)
    certs = certify(net, x, region=SHAPES[name], bounds=bounds, delta=1e-4)
    good = certs.certified
    assert good.any()
    assert (certs.ratio[good] >= 1 - 1e-5).all()  # the verdict may shrink by a trifle
    assert (certs.margins[good] >= 1e-4).all()
    proved = margins_on(net, certified_set(certs, SHAPES[name]), certs.labels, bounds)
    if bounds != "quadratic":  # the strict check always uses intervals too: usually, not always, better
        assert (certs.margins[good] >= proved[good] - 1e-8).all()
    if bounds == "adaptive":
        torch.testing.assert_close(proved[good], certs.margins[good], rtol=1e-8, atol=1e-9)


def test_order_batch_size_and_company_do_not_matter() -> None:
    net = network(5, sizes=(20, 40, 40, 5))
    x = inputs(70, 5, n=20)
    together = certify(net, x)
    order = torch.randperm(70, generator=torch.Generator().manual_seed(0))
    shuffled = certify(net, x[order])
    single = [certify(net, x[k]) for k in range(0, 70, 7)]
    assert [together.status[k] for k in order.tolist()] == list(shuffled.status)
    change = (shuffled.geomean / together.geomean[order] - 1).abs()
    assert change.max() <= 1e-3
    assert (change <= 1e-4).float().mean() >= 0.99
    for k, certs in zip(range(0, 70, 7), single):
        assert certs.status[0] == together.status[k]
        assert abs(float(certs.geomean[0] / together.geomean[k]) - 1) <= 1e-3


def test_certificates_state_their_domain() -> None:
    net, x = network(2), inputs(3, 2).clamp(-1, 1)
    assert certify(net, x, region=Uniform()).lowest is None
    low, high = torch.full((6,), -1.0), torch.full((3, 1), 1.0) + torch.arange(3.0)[:, None]
    same = certify(net, x, region=Uniform(), domain=(low, torch.inf))
    assert same.lowest.shape == same.highest.shape == (1, 6)
    assert torch.equal(same.lowest[0], low.double()) and (same.highest == torch.inf).all()
    own = certify(net, x, region=Uniform(), domain=(low, high))
    assert own.lowest.shape == own.highest.shape == (3, 6)
    assert torch.equal(own.lowest[2], low.double()) and torch.equal(own.highest[:, 4:5], high.double())


def test_domain_caps_frozen_and_importance() -> None:
    net, x = network(2), inputs(6, 2)
    frozen = torch.tensor([True, False, False, True, False, False])
    certs = certify(net, x, domain=(-1.0, 1.0), frozen=frozen, max_eps=0.5)
    good = certs.certified
    assert (certs.lower >= -1).all()
    assert (certs.upper <= 1).all()
    assert (certs.lower[:, frozen] == x[:, frozen]).all()
    assert (certs.upper[:, frozen] == x[:, frozen]).all()
    assert (certs.eps <= 0.5).all()
    widths = (certs.upper - certs.lower)[:, ~frozen]
    torch.testing.assert_close(certs.log_volume[good], widths.log().sum(1)[good], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(certs.geomean[good], (widths / 2).log().mean(1).exp()[good], rtol=1e-9, atol=1e-9)
    heavy = torch.ones(N)
    heavy[4] = 20.0
    favoured = certify(net, x, importance=heavy)
    plain = certify(net, x)
    assert (favoured.eps[:, 4] > plain.eps[:, 4]).all()


def test_features_at_their_cap_are_marked() -> None:
    dead = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])  # the second feature plays no part
    net = Network.chain((2,), [ops.Linear(dead)])
    certs = certify(net, torch.tensor([[0.5, 0.0]]), max_eps=3.0)
    assert certs.capped.tolist() == [[False, True]]
    assert certs.eps[0, 1] == pytest.approx(3.0, rel=0.01)
    default = certify(net, torch.tensor([[0.5, 0.0]]))
    assert default.capped.tolist() == [[False, True]]
    assert torch.isfinite(default.eps).all()
    assert default.eps[0, 1] <= 1000 * default.uniform[0] * (1 + 1e-6)


def test_a_network_that_never_changes_its_mind() -> None:
    net = Network.chain((2,), [ops.Linear(torch.zeros(2, 2), torch.tensor([1.0, 0.0]))])
    certs = certify(net, torch.zeros(1, 2))
    assert certs.status == ("certified",)
    assert certs.capped.all()
    assert torch.isfinite(certs.eps).all()


def test_scaled_uniform_region_grows_by_its_scale() -> None:
    net, x = network(4), inputs(4, 4)
    scale = torch.arange(1.0, N + 1).double()
    certs = certify(net, x, region=Uniform(scale=scale))
    torch.testing.assert_close(certs.eps / scale, certs.uniform[:, None].expand(4, N), rtol=1e-5, atol=0)


def test_smallest_output_decides() -> None:
    net = network(6)
    flipped = Network((*net.nodes,), decision="min")
    x = inputs(5, 6)
    certs = certify(flipped, x)
    assert (certs.labels == net(x).argmin(1)).all()
    assert certs.certified.any()
    box = certified_set(certs, Box())
    assert (attacked(flipped, box, certs.labels, 40)[certs.certified] > 0).all()


def test_specifications() -> None:
    net, x = network(7), inputs(6, 7)
    z = net(x)
    stays = certify(net, x)
    wider = certify(net, x, spec=label_in([0, 1, 2], 4))
    inside = z.argmax(1) != 3
    assert (wider.certified | ~inside).float().mean() > 0.8
    assert all(s == "misclassified" for s, ok in zip(wider.status, inside.tolist()) if not ok)
    both = stays.certified & wider.certified
    assert (wider.uniform[both] >= stays.uniform[both] * 0.999).all()
    regression = certify(net, x, spec=outputs_within(z, 0.5))
    assert regression.certified.all()
    points = regression.lower[:, None] + (regression.upper - regression.lower)[:, None] * torch.rand(6, 200, N).double()
    assert ((net(points.flatten(0, 1)).reshape(6, 200, -1) - z[:, None]).abs() < 0.5).all()
    row = linear_specification(torch.tensor([[1.0, 0, 0, 0]]), torch.tensor([5.0]))  # z_0 > -5
    given = certify(net, x, spec=row)
    assert given.certified.any()
    assert (given.labels == -1).all()


def test_own_bound_function() -> None:
    """The paper's first contribution: any bound that is differentiable in the region plugs in."""

    def lipschitz(net: Network, inputs: Any, spec: Any) -> Any:
        reach = inputs.radius.flatten(1)
        product = None
        for node in net.nodes[1:]:
            if isinstance(node.op, ops.Linear):
                weight = node.op.weight.abs()
                product = weight if product is None else weight @ product
        spread = (spec.rows.abs() @ (product @ reach[..., None])).squeeze(-1)
        z = net.values(inputs.center)[-1]
        return spec.reduce((spec.rows @ z[..., None]).squeeze(-1) + spec.offset - spread)

    net, x = network(8), inputs(5, 8)
    own, built_in = certify(net, x, bounds=lipschitz), certify(net, x)
    assert own.certified.all()
    assert (own.ratio >= 1).all()
    assert (own.geomean < built_in.geomean).all()


@pytest.mark.parametrize("name", ["box", "asymmetric", "ellipsoid", "l1"])
def test_augmented_lagrangian_on_other_shapes(name: str) -> None:
    net, x = network(9), inputs(4, 9)
    certs = certify(net, x, region=SHAPES[name], solver=AugmentedLagrangian(steps=60))
    assert (certs.ratio[certs.certified] >= 1 - 1e-5).all()
    domain = certify(net, x, region=SHAPES[name], solver=AugmentedLagrangian(steps=30), domain=(-1, 1))
    assert (domain.ratio[domain.certified] >= 1 - 1e-5).all()


def test_work_is_counted_and_bounded() -> None:
    net, x = network(1), inputs(5, 1)
    certs = certify(net, x, solver=Sequential(gradients=2))
    assert (certs.gradients <= 2).all()
    assert (certs.gradient_rows == 3 * certs.gradients).all()
    assert (certs.evaluations >= certs.gradients).all()
    assert (certs.evaluations < 200).all()
    assert (certs.seconds > 0).all()


def test_statuses() -> None:
    net = network(0)
    x = inputs(5, 0).float()
    labels = net(x).argmax(1)
    x[1, 2] = math.nan
    x[2, 0] = 7.0
    labels[3] = (labels[3] + 1) % 4
    certs = certify(net, x, labels, domain=(-1, 1))
    assert certs.status[1] == "nonfinite"
    assert certs.status[2] == "error"
    assert "feature 0" in certs.message[2]
    assert certs.status[3] == "misclassified"
    assert "decides" in certs.message[3]
    for k in (1, 2, 3):
        assert certs.eps[k].abs().sum() == 0
        assert certs.geomean[k] == 0
    alone = certify(net, x[:1], labels[:1], domain=(-1, 1))
    assert alone.status[0] == certs.status[0] == "certified"
    torch.testing.assert_close(alone.geomean, certs.geomean[:1], rtol=1e-3, atol=0)
    tie = Network.chain((2,), [ops.Linear(torch.tensor([[1.0, 0.0], [1.0, 0.0]]))])
    assert certify(tie, torch.ones(1, 2)).status == ("not_certified",)
    narrow = Network.chain((1,), [ops.Linear(torch.tensor([[1.0], [0.0]]))])
    close = certify(narrow, torch.tensor([[5e-5]]), delta=1e-4)
    assert close.status == ("not_certified",)
    assert "delta" in close.message[0]
    assert certify(narrow, torch.tensor([[5e-5]])).status == ("certified",)
    huge = Network.chain((2,), [ops.Linear(torch.full((2, 2), 3e38)), ops.Linear(torch.full((2, 2), 3e38))])
    assert certify(huge, torch.full((1, 2), 1e300, dtype=torch.float64)).status == ("nonfinite",)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"x": torch.zeros(2, 5)}, "shape"),
        ({"x": torch.zeros(0, N)}, "no inputs"),
        ({"labels": [0, 1]}, "labels"),
        ({"labels": [0, 1, 9]}, "0..3"),
        ({"labels": [0.5, 1, 1]}, "whole"),
        ({"frozen": torch.ones(N, dtype=torch.bool)}, "frozen"),
        ({"max_eps": -1.0}, "max_eps"),
        ({"importance": torch.zeros(N)}, "importance"),
        ({"domain": (1.0, -1.0)}, "domain"),
        ({"domain": (torch.zeros(3), 1.0)}, "domain"),
        ({"bounds": "magic"}, "magic"),
        ({"margin": "magic"}, "margin"),
        ({"solver": "magic"}, "magic"),
        ({"delta": -1.0}, "delta"),
        ({"region": "box"}, "region"),
        ({"region": Oblique(torch.eye(3))}, "basis"),
        ({"x": "pixels"}, "real numbers"),
        ({"x": [[1.0], [1.0, 2.0]]}, "rows of one length"),
        ({"labels": ["a", "b", "c"]}, "real numbers"),
        ({"domain": 0.5}, "pair"),
        ({"max_eps": "large"}, "max_eps"),
        ({"solver": Sequential}, "solver object"),
        ({"memory": -1}, "memory"),
        ({"precision": "float16"}, "precision"),
        ({"batch": 0}, "batch"),
        ({"device": "cuda:99"}, "no GPU|cuda:99"),
        ({"device": "foo"}, "device"),
        ({"region": Uniform(scale=torch.ones(4))}, "scale"),
        ({"spec": linear_specification(torch.ones(1, 7))}, "outputs"),
    ],
)
def test_bad_input_is_refused_in_words(options: Any, words: str) -> None:
    arguments = {"x": torch.zeros(3, N), **options}
    with pytest.raises(InputError, match=words):
        certify(network(0), arguments.pop("x"), **arguments)


def test_one_class_needs_a_specification() -> None:
    net = mlp(np.random.default_rng(0), [3, 5, 1], ops.ReLU())
    with pytest.raises(InputError, match="no other class"):
        certify(net, torch.zeros(1, 3))


def test_shapes_refuse_nonsense() -> None:
    with pytest.raises(InputError, match="orthogonal"):
        Oblique(torch.ones(3, 3))
    with pytest.raises(InputError, match="inner"):
        Oblique(torch.eye(3), Uniform())
    with pytest.raises(InputError, match="positive"):
        Uniform(scale=[1.0, -1.0])


def test_save_and_load(tmp_path: Path) -> None:
    for region in (Box(), Ellipsoid()):
        certs = certify(network(0), inputs(4), region=region)
        certs.save(tmp_path / "run")
        again = Certificates.load(tmp_path / "run")
        assert again.status == certs.status
        assert again.settings == certs.settings
        assert torch.equal(again.eps, certs.eps)
        assert (again.lower is None) == (certs.lower is None)
        assert repr(again) == repr(certs)


def test_python_numbers_are_not_rounded_to_float32() -> None:
    net = Network.chain((1,), [ops.Linear(torch.tensor([[1.0], [-1.0]]))])
    certs = certify(net, [[0.25]], domain=(0, 0.3))
    assert certs.upper[0, 0] <= 0.3
    assert certify(net, [[0.1]]).x[0, 0] == 0.1


def test_a_boundary_on_the_domains_edge() -> None:
    """With delta = 0 the margin is zero at the edge itself: the region must end just short of it."""
    net = Network.chain((1,), [ops.Linear(torch.tensor([[1.0], [-1.0]]))])
    certs = certify(net, [[0.1]], domain=(0, 0.3), delta=0)
    assert certs.status == ("certified",)
    assert 0 < certs.lower[0, 0] < 1e-3


def test_a_model_in_the_place_of_a_network(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, x = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)), torch.ones(3, 2)
    net = er.load(module, input_shape=(2,))
    path = er.save_network(net, tmp_path / "net.elbowroom")
    right = certify(net, x)
    assert torch.equal(certify(module, x).lower, right.lower)
    for model in (path, str(path)):
        assert torch.equal(certify(model, x).lower, right.lower)
        assert torch.equal(er.verify(model, x - 0.1, x + 0.1).margins, er.verify(net, x - 0.1, x + 0.1).margins)
        assert torch.equal(er.bounds(model, x - 0.1, x + 0.1).lower, er.bounds(net, x - 0.1, x + 0.1).lower)
    with pytest.raises(InputError, match=r"must be a batch; or read the module with er\.load"):
        certify(module, x[0])
    with pytest.raises(InputError, match=r"must be a Network, or a model that er\.load reads as it is; got dict"):
        certify({}, x)


def test_regions_of_no_size_are_not_certified_and_caps_are_kept() -> None:
    net = Network.chain((3,), [ops.Linear(torch.tensor([[1.0, 1.0, 1.0], [-1.0, -1.0, -1.0]]))])
    x = torch.tensor([[1000.0, 1.0, 1.0]], dtype=torch.float64)
    assert certify(net, x, max_eps=1e-30).status == ("not_certified",)
    tiny = certify(net, x, max_eps=1e-11)
    assert tiny.status == ("certified",)
    assert (tiny.upper - tiny.x <= 1e-11).all()
    assert (tiny.x - tiny.lower <= 1e-11).all()


def test_search_in_float64_gives_the_same_regions() -> None:
    net, x = network(3), inputs(6, 3)
    single, double = certify(net, x), certify(net, x, precision="float64")
    assert single.status == double.status
    torch.testing.assert_close(single.geomean, double.geomean, rtol=1e-3, atol=0)


def test_search_in_float64_finds_regions_that_float32_cannot() -> None:
    """Weights of 1e6 that cancel: margins in float32 are noise."""
    w = torch.tensor([[1e6, -1e6], [1e6, -1e6 + 1]], dtype=torch.float64)
    net = Network.chain((2,), [ops.Linear(w), ops.ReLU(), ops.Linear(torch.tensor([[1.0, -1.0], [0.0, 0.0]]).double())])
    x = torch.tensor([[1.0, 0.5], [2.0, -3.0]]).double()
    certs = certify(net, x, precision="float64")
    assert certs.certified.all() and (certs.geomean > 0).all()


def test_features_are_frozen_by_name_and_limits_given_per_channel() -> None:
    generator = torch.Generator().manual_seed(0)
    ops_ = [ops.Reshape((-1,)), ops.Linear(torch.randn(3, 12, generator=generator))]
    plain = Network.chain((3, 2, 2), ops_)
    names = tuple(f"f{k}" for k in range(12))
    net = Network(plain.nodes, "max", About(features=names))
    x = torch.randn(4, 3, 2, 2, generator=generator).double()
    by_name = certify(net, x, frozen=["f0", "f7"])
    mask = torch.tensor([name in ("f0", "f7") for name in names])
    by_mask = certify(net, x, frozen=mask)
    assert torch.equal(by_name.eps, by_mask.eps)
    assert (by_name.eps.flatten(1)[:, mask] == 0).all() and (by_name.eps.flatten(1)[:, ~mask] > 0).all()
    capped = certify(net, x, max_eps=[1e-6, 1.0, 1.0])
    assert (capped.eps[:, 0] <= 1e-6).all() and (capped.eps[:, 1:] > 1e-6).all()
    with pytest.raises(InputError, match="no feature 'f12'"):
        certify(net, x, frozen=["f12"])
    with pytest.raises(InputError, match="have none"):
        certify(plain, x, frozen=["f1"])


def test_a_domain_is_the_cap_where_units_differ() -> None:
    """The second feature's unit is a millionth of the first's: 1000 uniform radii would be next to nothing of it."""
    net = Network.chain((2,), [ops.Linear(torch.tensor([[1.0, 1e-7], [-1.0, -1e-7]]).double())])
    x = torch.tensor([[1.0, 1e5]]).double()
    certs = certify(net, x, domain=([0.0, 0.0], [2.0, 1e6]))
    assert certs.certified.all()
    assert float(certs.upper[0, 1] - certs.lower[0, 1]) > 0.9e6


def test_deployed_inputs_are_float32_numbers_inside_the_domain() -> None:
    """Otherwise a frozen feature at a number that float32 does not hold leaves a region without any float32 input."""
    net, x = network(5).cast(torch.float32), inputs(6, 5)
    frozen = torch.arange(x.shape[1]) < 2
    top = x.amax(0)  # of which float32 may be above
    certs = certify(net, x, frozen=frozen, domain=(-100.0, top), deployed="float32")
    assert certs.certified.any() and "error" not in certs.status
    assert torch.equal(certs.x, certs.x.float().double()) and (certs.x <= top).all()
    assert not torch.equal(certs.x, x) and (certs.x - x).abs().max() < 1e-6
    assert (certs.lower[:, frozen] == certs.x[:, frozen]).all()


def test_a_domain_is_the_cap() -> None:
    """Features of different units: an extent may be more than 1000 uniform radii, as far as its domain reaches."""
    net = Network.chain((2,), [ops.Linear(torch.tensor([[1.0, 1e-6], [0.0, 0.0]]), torch.tensor([0.0, 0.0]))])
    x, y = torch.tensor([[0.01, 50.0]]), torch.tensor([0])
    domain = (torch.tensor([-1.0, 0.0]), torch.tensor([1.0, 100.0]))
    certs = certify(net, x, y, domain=domain)
    assert certs.certified.all() and float(certs.eps[0, 1]) > 1000 * float(certs.uniform)
    assert bool(certs.capped[0, 1]) and certs.lower[0, 1] < 0.01 and certs.upper[0, 1] > 99.99
    free = certify(net, x, y)
    assert float(free.eps[0, 1]) <= 1000.001 * float(free.uniform)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_network_that_is_changed_meanwhile_is_not_certified(dtype: torch.dtype) -> None:
    """Of a network in float64 the cast that is looked at is the network itself, which has always its numbers."""
    x = torch.tensor([[1.0, 0.0]])
    net = Network.chain((2,), [ops.Linear(torch.eye(2, dtype=dtype), torch.zeros(2, dtype=dtype))])
    weight, own = net.nodes[1].op.tensors()["weight"], margins_of("adaptive")

    def bounds(*asked: Any) -> torch.Tensor:
        weight[0, 1] += 0.25
        return own(*asked)

    with pytest.raises(InputError, match="were changed while"):
        certify(net, x, bounds=bounds)
    assert er.check(certify(net, x))
