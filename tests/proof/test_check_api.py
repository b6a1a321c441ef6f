"""check: proves what certify claims, of every shape and specification, and nothing that is false."""

import dataclasses
import math
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import elbowroom as er
from elbowroom.certificates.result import Certificates
from elbowroom.claim.stated import Stated
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network
from elbowroom.proof import faults
from elbowroom.proof import recheck as api
from elbowroom.proof.recheck import CheckReport, check
from forgery import every_operation, sized
from support import mlp

N = 6
BASIS = torch.linalg.qr(torch.tensor(np.random.default_rng(1).normal(size=(N, N)))).Q
SHAPES = {
    "uniform": er.Uniform(), "box": er.Box(), "asymmetric": er.Box(asymmetric=True), "ellipsoid": er.Ellipsoid(),
    "l1": er.L1(), "oblique box": er.Oblique(BASIS), "oblique asymmetric": er.Oblique(BASIS, er.Box(asymmetric=True)),
    "oblique ellipsoid": er.Oblique(BASIS, er.Ellipsoid()), "oblique l1": er.Oblique(BASIS.float(), er.L1()),
    "ball": er.Ball(1.5), "oblique ball": er.Oblique(BASIS, er.Ball(3)),
}  # fmt: skip


def network(
    seed: int = 0,
    sizes: tuple[int, ...] = (N, 12, 12, 4),
    activation: ops.Activation | None = None,
    decision: str = "max",
) -> Network:
    return mlp(np.random.default_rng(seed), list(sizes), activation or ops.ReLU(), decision=decision)


def inputs(count: int = 6, seed: int = 0) -> Tensor:
    return torch.tensor(np.random.default_rng(seed).uniform(-1, 1, size=(count, N)))


def certify(net: Network, x: Tensor, *more: Any, **told: Any) -> Certificates:
    """After one step of the search: regions end where the proof does, whether or not there are larger ones."""
    return er.certify(net, x, *more, **{"solver": er.Sequential(gradients=1), **told})


def stored(certs: Certificates, tmp_path: Path) -> Certificates:
    """As an auditor gets them: from files, whose checksums are right, whoever wrote them."""
    return er.Certificates.load(certs.save(tmp_path / "run"))


@pytest.fixture(scope="module")
def boxes() -> Certificates:
    certs = certify(network(), inputs(8))
    assert certs.certified.sum() >= 6
    return certs


@pytest.fixture(scope="module")
def rotated() -> Certificates:
    certs = certify(network(), inputs(), region=SHAPES["oblique asymmetric"])
    assert certs.certified.all()
    return certs


# --------------------------------------------------------------------------------------------------------------
# True claims


@pytest.mark.parametrize("name", list(SHAPES))
def test_every_shape_is_proved_again(tmp_path: Path, name: str) -> None:
    for activation in (ops.ReLU(), ops.Tanh()):
        certs = certify(network(activation=activation), inputs(), region=SHAPES[name])
        report = check(stored(certs, tmp_path))
        assert report and certs.certified.any()
        assert torch.equal(report.passed, certs.certified)
        good = certs.certified
        torch.testing.assert_close(report.margins[good], certs.margins[good], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("decision", ["max", "min"])
def test_specifications_are_proved_again(tmp_path: Path, decision: str) -> None:
    net, x = network(decision=decision), inputs()
    specs = [
        er.label_in([0, 2], 4, decision),
        er.outputs_within(net(x), 0.5),
        er.linear_specification(torch.tensor([[1.0, 0, 0, 0], [0, -1, 0, 0]]), torch.tensor([5.0, 5.0])),
    ]
    for spec in [None, *specs]:
        certs = certify(net, x, spec=spec)
        assert certs.certified.any()
        assert torch.equal(check(stored(certs, tmp_path)).passed, certs.certified)


@pytest.mark.parametrize("margin", ["direct", "logits"])
@pytest.mark.parametrize("bounds", ["simple", "quadratic", "combined", "adaptive"])
def test_every_bound_is_proved_again(tmp_path: Path, bounds: str, margin: str) -> None:
    certs = certify(network(), inputs(), bounds=bounds, margin=margin)
    assert certs.certified.any()
    assert torch.equal(check(stored(certs, tmp_path)).passed, certs.certified)


def test_wrong_hints_do_no_harm(boxes: Certificates, tmp_path: Path) -> None:
    """No method dominates: the checker tries both kinds of lines, so a lie about the method costs nothing here."""
    found = certify(network(), inputs(8), bounds="combined")
    for certs, lie in ((boxes, "combined"), (found, "adaptive"), (found, "own function")):
        lying = dataclasses.replace(certs, settings={**certs.settings, "bounds": lie, "margin": "direct"})
        assert torch.equal(check(stored(lying, tmp_path)).passed, certs.certified)


def test_images_and_every_operation(tmp_path: Path) -> None:
    net = every_operation(dtype=torch.float32)
    x = torch.tensor(np.random.default_rng(0).normal(size=(2, 2, 6, 6)))
    certs = certify(net, x, region=er.Uniform(), max_eps=0.02)
    assert certs.certified.all()
    report = check(stored(certs, tmp_path))
    assert report.passed.all()
    wrong = dataclasses.replace(certs, labels=(certs.labels + 1) % 3)
    assert not check(stored(wrong, tmp_path)).passed.any()


def test_frozen_features_and_a_domain(tmp_path: Path) -> None:
    frozen = torch.tensor([True, False, False, True, False, False])
    for region in (er.Box(), er.Box(asymmetric=True), er.Ellipsoid()):
        certs = certify(network(), inputs(), region=region, frozen=frozen, domain=(-1, 1))
        assert certs.certified.any()
        assert torch.equal(check(stored(certs, tmp_path)).passed, certs.certified)


def test_deployed_claims_are_held_to(tmp_path: Path) -> None:
    net = network().cast(torch.float32)
    certs = certify(net, inputs().float(), deployed="float32")
    assert certs.certified.any()
    report = check(stored(certs, tmp_path))
    assert report.deployed == "float32" and torch.equal(report.passed, certs.certified)
    assert (report.margins < check(plainly(certs)).margins)[certs.certified].all()  # rounding is paid for
    # A claim about real arithmetic alone, made as large as it can be, need not survive float32.
    tight = certify(net, inputs().float(), delta=0.0)
    assert check(tight) and not check(tight, deployed="float32")


def plainly(certs: Certificates) -> Certificates:
    return dataclasses.replace(certs, settings={**certs.settings, "deployed": None})


@pytest.mark.parametrize(("limit", "value"), [("BATCH", 4), ("_MOST_ROWS", 3 * 12)])
def test_batches_do_not_matter(monkeypatch: pytest.MonkeyPatch, limit: str, value: int) -> None:
    certs = certify(network(), inputs(11), region=er.Uniform())
    whole = check(certs)
    monkeypatch.setattr(api, limit, value)
    sizes, real = [], api._prove_again
    monkeypatch.setattr(
        api, "_prove_again", lambda c, n, index, *more: sizes.append(len(index)) or real(c, n, index, *more)
    )
    parts = check(certs)
    assert torch.equal(whole.passed, parts.passed) and whole.message == parts.message
    assert max(sizes) == (4 if limit == "BATCH" else 3)  # rows of 3 other classes over 4 outputs
    torch.testing.assert_close(whole.margins, parts.margins, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("region", [er.Box(), er.Ellipsoid(), er.Oblique(BASIS)])
def test_faults_are_told_of_the_right_inputs(monkeypatch: pytest.MonkeyPatch, region: Any) -> None:
    """However many inputs are looked at together."""
    certs = certify(network(), inputs(11), region=region, domain=(-2, 2))
    eps = certs.eps.clone()
    eps[[0, 4, 7, 10]] *= 2
    forged = dataclasses.replace(certs, eps=eps)
    whole = check(forged)
    assert [k for k, why in enumerate(whole.message) if "extents" in why or "extent" in why] == [0, 4, 7, 10]
    monkeypatch.setattr(api, "_LOOKED_AT", 3 * N)
    assert check(forged).message == whole.message


def test_a_gpu_is_given_as_many_as_fit() -> None:
    """By their sizes alone: no GPU is needed to count."""
    gpu, small = torch.device("cuda"), network()
    certs = certify(small, inputs(2), region=er.Uniform())
    assert api._batch(certs, small, torch.device("cpu")) == api.BATCH and api._batch(certs, small, gpu) == 8192
    wide = network(sizes=(784, 300, 300, 300, 10))
    assert 4096 < api._batch(certs, wide, gpu) < 8192
    assert api._batch(dataclasses.replace(certs, spec_group=torch.arange(10**7)), wide, gpu) == 1


def test_only_certified_inputs_are_checked(tmp_path: Path) -> None:
    net, x = network(), inputs(4).float()
    labels = net(x).argmax(1)
    labels[0] = (labels[0] + 1) % 4
    x[1, 2] = math.nan
    certs = certify(net, x, labels)
    report = check(stored(certs, tmp_path))
    assert report.passed.tolist() == report.checked.tolist() == certs.certified.tolist() == [False, False, True, True]
    assert report.message == ("no certificate: misclassified", "no certificate: nonfinite", "", "")
    assert report.counts == {"proved": 2, "failed": 0, "no certificate": 2}
    assert report and len(report) == 4 and report.failures == ()
    assert repr(report) == "CheckReport(2 proved, 0 failed, 2 no certificate; float64)"
    assert (report.margins[:2] == -torch.inf).all() and (report.margins[2:] > 0).all()


def test_a_run_without_certificates(tmp_path: Path) -> None:
    net, x = network(), inputs(2)
    report = check(stored(certify(net, x, (net(x).argmax(1) + 1) % 4), tmp_path))
    assert not report and report.counts == {"proved": 0, "failed": 0, "no certificate": 2}  # nothing was proved


# --------------------------------------------------------------------------------------------------------------
# Forgeries: the files are sound, the claim is not


def grown(certs: Certificates, factor: float) -> Certificates:
    """Boxes scaled about the input, with all that follows from it."""
    lower, upper = (certs.x + factor * (t - certs.x) for t in (certs.lower, certs.upper))
    half = torch.nextafter(upper / 2 - lower / 2, torch.zeros_like(lower))
    changed = {"lower": lower, "upper": upper, "eps": half.clamp_min(0)}
    return sized(dataclasses.replace(certs, center=lower / 2 + upper / 2, **changed))


def test_enlarged_boxes_fail_and_shrunk_ones_pass(boxes: Certificates, tmp_path: Path) -> None:
    report = check(stored(grown(boxes, 1.5), tmp_path))
    assert not report and not report.passed.any()
    assert all("could only be bounded by -" in report.message[k] for k in report.failures)
    assert repr(report).startswith("CheckReport(0 proved, ") and "first failure: input 0, not proved" in repr(report)
    assert torch.equal(check(stored(grown(boxes, 0.5), tmp_path)).passed, boxes.certified)
    assert torch.equal(check(stored(grown(boxes, 1.0), tmp_path)).passed, boxes.certified)


def test_false_claims_have_no_proof(boxes: Certificates) -> None:
    """Boxes of all sizes: wherever a corner is found that decides otherwise, the check has not passed."""
    net, gen, false = boxes.network, torch.Generator().manual_seed(0), 0
    for factor in (0.99, 1.01, 1.2, 1.5, 2.0, 3.0, 4.0, 6.0, 10.0):
        claim = grown(boxes, factor)
        report = check(claim)
        side = torch.rand(len(claim), 400, N, generator=gen) < 0.5
        corners = torch.where(side, claim.lower[:, None], claim.upper[:, None])
        decided = net(corners.flatten(0, 1)).argmax(1).reshape(len(claim), -1)
        wrong = (decided != claim.labels[:, None]).any(1)
        assert not (report.passed & wrong).any()
        false += int(wrong.sum())
    assert false > 10


@pytest.mark.parametrize("name", ["ellipsoid", "l1", "oblique box", "oblique asymmetric", "oblique ellipsoid"])
def test_other_shapes_enlarged_and_shrunk(name: str, tmp_path: Path) -> None:
    certs = certify(network(), inputs(), region=SHAPES[name])
    larger = sized(dataclasses.replace(certs, eps=certs.eps * 1.5))
    report = check(stored(larger, tmp_path))
    assert not report.passed.any() and all("not proved" in why for why in report.message)
    if name != "oblique asymmetric":  # about its own centre it would shrink away from the input
        smaller = sized(dataclasses.replace(certs, eps=certs.eps / 2))
        assert torch.equal(check(stored(smaller, tmp_path)).passed, certs.certified)


def test_another_norm_is_another_region(tmp_path: Path) -> None:
    """An l1 certificate read as a ball, or as a box, would cover far more."""
    certs = certify(network(), inputs(), region=er.L1())
    for p, region in ((1.5, "Ball(1.5)"), (2, "Ellipsoid"), (3.0, "Ball(3)"), ("inf", "Box")):
        with pytest.raises(
            er.InputError, match=re.escape(f"region cannot be 'L1': by its other fields, it is {region}")
        ):
            check(called(certs, p, "L1"))
        report = check(stored(called(certs, p, region), tmp_path))
        assert not report.passed.any() and all("not proved" in why for why in report.message)
    ball = certify(network(), inputs(), region=er.Ellipsoid())
    assert check(stored(called(ball, 1, "L1"), tmp_path)) and check(stored(called(ball, 1.9, "Ball(1.9)"), tmp_path))


def called(certs: Certificates, p: float | str, region: str) -> Certificates:
    return sized(dataclasses.replace(certs, settings={**certs.settings, "p": p, "region": region}))


def test_wrong_labels_fail(boxes: Certificates, tmp_path: Path) -> None:
    forged = dataclasses.replace(boxes, labels=(boxes.labels + 1) % 4)
    report = check(stored(forged, tmp_path))
    assert not report.passed.any()
    k = report.failures[0]
    said = f"the network decides class {int(boxes.labels[k])} at the input itself, not class {int(forged.labels[k])}"
    assert said in report.message[k]


def test_the_other_decision_is_another_network(boxes: Certificates, tmp_path: Path) -> None:
    other = Network(boxes.network.nodes, "min")
    with pytest.raises(er.InputError, match="hash"):
        check(boxes, other)
    # With hash and settings forged as well, the claims are about that network, and false.
    settings = {**boxes.settings, "decision": "min", "network_hash": api.network_hash(other)}
    report = check(stored(dataclasses.replace(boxes, network=other, settings=settings), tmp_path))
    assert not report.passed.any()


def test_one_weight_changed_is_another_network(boxes: Certificates, tmp_path: Path) -> None:
    """A forger who puts another network into the run, with its own hash: certificates that are false of it fail."""
    nodes = list(boxes.network.nodes)
    op = nodes[-1].op
    nodes[-1] = dataclasses.replace(nodes[-1], op=dataclasses.replace(op, weight=-op.weight, bias=-op.bias))
    other = Network(tuple(nodes))
    with pytest.raises(er.InputError, match=rf"{boxes.settings['network_hash']}; this one has the hash [0-9a-f]{{64}}"):
        check(boxes, other)
    settings = {**boxes.settings, "network_hash": api.network_hash(other)}
    forged = stored(dataclasses.replace(boxes, network=other, settings=settings), tmp_path)
    assert not check(forged).passed.any()


def test_statuses_cannot_be_upgraded(tmp_path: Path) -> None:
    net, x = network(), inputs(4)
    labels = (net(x).argmax(1) + 1) % 4
    x[0, 0] = math.nan
    certs = certify(net, x, labels)
    assert set(certs.status) == {"nonfinite", "misclassified"}
    report = check(stored(dataclasses.replace(certs, status=("certified",) * 4), tmp_path))
    assert not report.passed.any() and report.failures == (0, 1, 2, 3)
    assert report.message[0] == "x holds NaN or infinite values"


def moved(t: Tensor, k: int, where: int, value: float) -> Tensor:
    out = t.clone()
    out[k, where] = value
    return out


def vars_of(certs: Certificates) -> dict[str, Tensor]:
    return {name: getattr(certs, name) for name in ("eps", "geomean", "log_volume")}


def first(certs: Certificates) -> int:
    return int(certs.certified.nonzero()[0])


BOX_FORGERIES = {
    "x outside": (lambda c, k: {"x": moved(c.x, k, 2, float(c.upper[k, 2]) + 1e-9)}, "the input lies outside"),
    "x above by a bit": (
        lambda c, k: {"x": moved(c.x, k, 2, math.nextafter(float(c.upper[k, 2]), math.inf))}, "the input lies outside",
    ),
    "corner moved past x": (
        lambda c, k: {"lower": moved(c.lower, k, 0, math.nextafter(float(c.x[k, 0]), math.inf))}, "the input lies",
    ),
    "corners crossed": (lambda c, k: {"lower": c.upper, "upper": c.lower}, "the lower corner is above"),
    "corner infinite": (lambda c, k: {"lower": moved(c.lower, k, 0, -math.inf)}, "lower holds NaN or inf"),
    "corner NaN": (lambda c, k: {"upper": moved(c.upper, k, 0, math.nan)}, "upper holds NaN or inf"),
    "eps larger": (lambda c, k: {"eps": c.eps * 2}, "more than half the box's width"),
    "eps larger by bits": (
        lambda c, k: {"eps": moved(c.eps, k, 3, float(c.eps[k, 3]) * (1 + 1e-15))}, "more than half the box's width",
    ),
    "eps negative": (lambda c, k: {"eps": -c.eps}, "negative"),
    "eps NaN": (lambda c, k: {"eps": moved(c.eps, k, 0, math.nan)}, "eps holds NaN"),
    "center elsewhere": (lambda c, k: {"center": c.center + 10}, "the centre lies outside"),
    "geomean": (lambda c, k: {"geomean": c.geomean * 1.001}, "geometric mean is more"),
    "geomean less": (lambda c, k: {"geomean": c.geomean * 0.999}, "geometric mean is less"),
    "geomean zero": (lambda c, k: {"geomean": c.geomean * 0}, "geometric mean is less"),
    "log-volume": (lambda c, k: {"log_volume": c.log_volume + 1e-5}, "log-volume is more"),
    "log-volume less": (lambda c, k: {"log_volume": c.log_volume - 1e-5}, "log-volume is less"),
    "eps smaller": (lambda c, k: vars_of(sized(dataclasses.replace(c, eps=c.eps / 2))), "eps) is less than half"),
    "center beside": (lambda c, k: {"center": (c.x + c.upper) / 2}, "not the middle"),
    "geomean of nothing": (
        lambda c, k: {"eps": c.eps * 0, "geomean": c.geomean * 0 + 0.5}, "geometric mean is more",
    ),
    "label too large": (lambda c, k: {"labels": c.labels * 0 + 4}, "not one of the classes 0 to 3"),
    "label negative": (lambda c, k: {"labels": c.labels * 0 - 1}, "not one of the classes 0 to 3"),
    "trivial specification": (
        lambda c, k: {
            "spec_rows": torch.zeros(1, 3, 4).double(), "spec_offset": torch.ones(1, 3).double(),
            "spec_group": torch.arange(3),
        },
        "states a label beside its specification",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", list(BOX_FORGERIES))
def test_boxes_that_are_not_what_they_say(boxes: Certificates, tmp_path: Path, name: str) -> None:
    change, words = BOX_FORGERIES[name]
    k = first(boxes)
    report = check(stored(dataclasses.replace(boxes, **change(boxes, k)), tmp_path))
    assert not report.passed[k] and words in report.message[k]
    assert (report.margins[k] == -torch.inf).all()


def domain_of(certs: Certificates) -> dict[str, Tensor]:
    """The domain's ends with a row for each input."""
    return {name: getattr(certs, name).expand(len(certs), N).clone() for name in ("lowest", "highest")}


DOMAIN_FORGERIES = {
    "input below": (lambda c, k: {"lowest": float(c.x[k, 1]) + 1e-9}, "the input lies outside its domain"),
    "input above by a bit": (
        lambda c, k: {"highest": math.nextafter(float(c.x[k, 1]), -math.inf)}, "the input lies outside its domain",
    ),
    "box below by a bit": (
        lambda c, k: {"lowest": math.nextafter(float(c.lower[k, 1]), math.inf)}, "the box sticks out of its domain",
    ),
    "box above": (lambda c, k: {"highest": float(c.x[k, 1])}, "the box sticks out of its domain"),
}  # fmt: skip


@pytest.mark.parametrize("name", list(DOMAIN_FORGERIES))
def test_boxes_that_leave_their_domain(tmp_path: Path, name: str) -> None:
    certs = certify(network(), inputs(), domain=(-1, 1))
    assert certs.lowest.shape == certs.highest.shape == (1, N) and check(stored(certs, tmp_path))
    k, (change, words) = first(certs), DOMAIN_FORGERIES[name]
    ends = domain_of(certs)
    for end, value in change(certs, k).items():
        ends[end][k, 1] = value
    report = check(stored(dataclasses.replace(certs, **ends), tmp_path))
    assert report.failures == (k,) and report.message[k] == words and (report.margins[k] == -torch.inf).all()
    shared = {end: value[k : k + 1] for end, value in ends.items()}  # stated for all inputs alike
    assert check(stored(dataclasses.replace(certs, **shared), tmp_path)).message[k] == words
    assert check(dataclasses.replace(certs, lowest=None, highest=None))  # a box is a box, whatever it was cut to


@pytest.mark.parametrize("name", ["ellipsoid", "oblique box", "oblique l1"])
def test_other_shapes_may_leave_their_domain_and_inputs_not(tmp_path: Path, name: str) -> None:
    certs = certify(network(), inputs(), region=SHAPES[name], domain=(-1, 1))
    k = first(certs)
    narrow = {"lowest": certs.x - 1e-9, "highest": certs.x + 1e-9}
    assert torch.equal(check(stored(dataclasses.replace(certs, **narrow), tmp_path)).passed, certs.certified)
    narrow["highest"][k, 2] = certs.x[k, 2] - 1e-10
    report = check(stored(dataclasses.replace(certs, **narrow), tmp_path))
    assert report.failures == (k,) and report.message[k] == "the input lies outside its domain"


def test_domains_that_are_none(boxes: Certificates, tmp_path: Path) -> None:
    low, high = torch.full((1, N), -2.0).double(), torch.full((1, N), 2.0).double()
    endless = dataclasses.replace(boxes, lowest=low * math.inf, highest=high * math.inf)
    assert torch.equal(check(stored(endless, tmp_path)).passed, boxes.certified)
    for ends, words in (
        ({"lowest": high, "highest": low}, "the domain's lowest value is above its highest"),
        ({"lowest": low * math.nan, "highest": high}, "lowest must hold numbers"),
        ({"lowest": low, "highest": high.float()}, "highest must hold torch.float64"),
        ({"lowest": low, "highest": None}, "the certificates have no highest"),
        ({"lowest": low, "highest": high.expand(len(boxes), N)}, "lowest must hold"),
    ):
        with pytest.raises(er.InputError, match=words):
            check(dataclasses.replace(boxes, **ends))


def test_a_specification_of_nothing_proves_nothing(boxes: Certificates) -> None:
    nothing = {"spec_rows": torch.zeros(1, 0, 4).double(), "spec_offset": torch.zeros(1, 0).double()}
    forged = dataclasses.replace(
        boxes, **nothing, spec_group=torch.zeros(0).long(), labels=boxes.labels * 0 - 1, margins=boxes.margins[:, :0]
    )
    with pytest.raises(er.InputError, match="spec_group must number the groups 0, 1, 2"):
        check(forged)


ROTATED_FORGERIES = {
    "center moved": (lambda c: {"center": c.center + 10}, "the input lies outside"),
    "log-volume": (lambda c: {"log_volume": c.log_volume + 1e-5}, "log-volume is more"),
    "x moved": (lambda c: {"x": c.x + 10}, "the input lies outside"),
    "center NaN": (lambda c: {"center": c.center * math.nan}, "center holds NaN"),
    "basis scaled down": (
        lambda c: {"basis": c.basis / 1000, "eps": c.eps * 1000, "geomean": c.geomean * 1000}, "not orthogonal",
    ),
    "basis singular": (lambda c: {"basis": c.basis * 0}, "not orthogonal"),
    "basis NaN": (lambda c: {"basis": c.basis * math.nan}, "not orthogonal"),
    "geomean": (lambda c: {"geomean": c.geomean * 1.001}, "geometric mean is more"),
    "another basis": (lambda c: {"basis": torch.eye(N).double()}, ""),
}  # fmt: skip


@pytest.mark.parametrize("name", list(ROTATED_FORGERIES))
def test_rotated_shapes_that_are_not_what_they_say(rotated: Certificates, tmp_path: Path, name: str) -> None:
    change, words = ROTATED_FORGERIES[name]
    report = check(stored(dataclasses.replace(rotated, **change(rotated)), tmp_path))
    assert not report
    assert not words or all(words in m for m in report.message)


@pytest.mark.parametrize("name", ["ellipsoid", "l1", "oblique ellipsoid", "oblique l1"])
def test_a_region_around_another_point_is_not_the_inputs(name: str, tmp_path: Path) -> None:
    """The input lies in the region, which is proved; but its extents are not the room around that input."""
    certs = certify(network(), inputs(), region=SHAPES[name])
    moved = certs.x + 0.5 * certs.eps * torch.eye(N)[0].double()
    if certs.basis is not None:
        moved = certs.x + 0.5 * (certs.eps * torch.eye(N)[0]) @ certs.basis.T
    report = check(stored(dataclasses.replace(certs, x=moved), tmp_path))
    assert not report.passed.any() and all(why == "the input is not the region's centre" for why in report.message)


@pytest.mark.parametrize("name", ["uniform", "geomean", "ratio", "seconds", "margins", "log_volume"])
def test_reports_of_the_search_are_numbers(boxes: Certificates, name: str, tmp_path: Path) -> None:
    """Not proved, but shown: whatever a file holds must not bring down who reads it."""
    for value in (math.nan, math.inf):
        with pytest.raises(er.InputError, match=name):
            dataclasses.replace(boxes, **{name: getattr(boxes, name) * 0 + value}).save(tmp_path)


def test_an_input_beside_its_region_is_proved_by_itself() -> None:
    """Rounding may put x a hair outside a rotated region; what is said of it must then not rest on the region."""
    net = Network.chain((2,), [ops.Linear(torch.tensor([[1.0, 0.0], [0.0, 0.0]]).double())])
    x = torch.tensor([[1.0, 0.0]]).double()
    certs = certify(net, x, region=er.Oblique(torch.eye(2)), max_eps=0.5)
    assert check(certs)
    # A region around (0.5, 0), which ends at 1e-12, and an input at -1e-12: beside it, and decided otherwise.
    rows = [[-1e-12, 0.0]], [[0.5, 0.0]], [[0.5 - 1e-12, 0.25]]
    beside, center, eps = (torch.tensor(row, dtype=torch.float64) for row in rows)
    forged = sized(dataclasses.replace(certs, x=beside, center=center, eps=eps))
    report = check(forged)
    assert not report.passed.any() and "decides class 1 at the input itself, not class 0" in report.message[0]
    assert (report.margins > 0).all()


def test_extents_are_compared_in_exact_arithmetic() -> None:
    rng = np.random.default_rng(0)
    lower = torch.tensor(rng.normal(size=4000))
    upper = lower + torch.tensor(rng.choice([1e-12, 1e-3, 1.0, 1e6], 4000) * rng.random(4000))
    half = (upper - lower) / 2
    for steps in (-1, 0, 1):
        eps = half if steps == 0 else torch.nextafter(half, torch.tensor(steps * torch.inf, dtype=torch.float64))
        found = faults._at_most_half(eps, lower, upper).tolist()
        exact = [
            2 * Fraction(e) <= Fraction(u) - Fraction(l)
            for e, l, u in zip(eps.tolist(), lower.tolist(), upper.tolist())
        ]
        assert found == exact
        assert steps != 0 or 0.2 < np.mean(exact) < 0.95  # the interesting case has both answers


# --------------------------------------------------------------------------------------------------------------
# Ways to call it


def test_the_network_may_be_given(boxes: Certificates) -> None:
    assert check(boxes, network())
    assert check(dataclasses.replace(boxes, network=None), network())
    with pytest.raises(er.InputError, match="do not carry their network"):
        check(dataclasses.replace(boxes, network=None))
    with pytest.raises(er.InputError, match="are about the network with hash"):
        check(boxes, network(seed=1))
    with pytest.raises(er.InputError, match="are about the network with hash None"):
        check(dataclasses.replace(boxes, settings={}))


def test_bad_calls_are_refused_in_words(boxes: Certificates) -> None:
    with pytest.raises(er.InputError, match="float128"):
        check(boxes, arithmetic="float128")
    with pytest.raises(er.InputError, match="bfloat16"):
        check(boxes, deployed="bfloat16")
    with pytest.raises(er.InputError, match="got str"):
        check("run")
    with pytest.raises(er.InputError, match="device 'nosuch' cannot be used here"):
        check(boxes, device="nosuch")
    with pytest.raises(er.InputError, match="upper must hold"):
        check(dataclasses.replace(boxes, upper=boxes.upper[:, :3]))
    with pytest.raises(er.InputError, match="no upper"):
        check(dataclasses.replace(boxes, upper=None))
    with pytest.raises(er.InputError, match="settings: p"):
        check(dataclasses.replace(boxes, settings={**boxes.settings, "p": 3}))
    with pytest.raises(er.InputError, match="not by both"):
        check(dataclasses.replace(boxes, basis=BASIS))
    groups = {"spec_rows": torch.zeros(1, 3, 4).double(), "spec_offset": torch.ones(1, 3).double()}
    with pytest.raises(er.InputError, match="number the groups"):
        check(dataclasses.replace(boxes, **groups, spec_group=torch.tensor([0, 5, 7])))


def test_one_output_has_no_label() -> None:
    net = mlp(np.random.default_rng(0), [N, 5, 1], ops.ReLU())
    x = inputs(2)
    certs = certify(net, x, spec=er.outputs_within(net(x), 1.0))
    assert check(certs)
    none = {"spec_rows": None, "spec_offset": None, "spec_group": None}
    forged = dataclasses.replace(certs, **none, labels=certs.labels * 0, margins=torch.zeros(2, 0).double())
    report = check(forged)
    assert not report.passed.any() and "one output" in report.message[0]


def test_arb(tmp_path: Path) -> None:
    pytest.importorskip("flint")
    some = certify(network(sizes=(N, 5, 3)), inputs(3))
    report = check(stored(some, tmp_path), arithmetic="arb")
    assert report.arithmetic == "arb" and torch.equal(report.passed, some.certified) and report.passed.any()
    assert not check(grown(some, 1.5), arithmetic="arb").passed.any()


def test_arb_does_not_answer_for_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its proof is about real arithmetic; the claim about execution in float32 is still proved in float64."""

    certs = certify(network().cast(torch.float32), inputs().float(), delta=0.0)

    def sure(net: Network, area: Stated, *told: object) -> Tensor:
        return torch.ones(len(area.lower), 3, dtype=torch.float64)

    monkeypatch.setattr(api, "prove_arb", sure)
    assert check(certs, arithmetic="arb")
    report = check(certs, arithmetic="arb", deployed="float32")
    assert not report and (report.margins[certs.certified] <= 1).all()


def test_arb_without_flint(boxes: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flint", None)
    with pytest.raises(er.ElbowroomError, match="python-flint"):
        check(boxes, arithmetic="arb")


def test_the_public_name() -> None:
    assert er.check is check and er.CheckReport is CheckReport


def test_the_check_loads_nothing_of_the_search(boxes: Certificates, tmp_path: Path) -> None:
    """A proof by separate code: a run is read and proved again without bounds, solvers, regions or specifications."""
    boxes.save(tmp_path)
    code = (
        "import sys\n"
        "import elbowroom.proof.recheck\n"
        "from elbowroom.certificates.result import Certificates\n"
        "from elbowroom.proof.recheck import check\n"
        "report = check(Certificates.load(sys.argv[1]))\n"
        "assert report and report.passed.any()\n"
        "print(*(m for m in sys.modules if m.startswith('elbowroom.')))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    loaded = done.stdout.split()
    assert "elbowroom.proof.kernel.walk" in loaded and "elbowroom.certificates.store" in loaded
    foreign = ("bounds", "solvers", "regions", "specification", "certify")
    assert [m for m in loaded if m.split(".")[1] in foreign] == []
