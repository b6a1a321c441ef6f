"""Certificates as objects: chosen, iterated over, in words and in tables of a notebook."""

import copy
import dataclasses
import math
import pickle
from fractions import Fraction
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
from elbowroom.report.digits import around
from elbowroom.runs.one_input import inward
from runs.small import labels_for, network, points
from support import cases

HOSTILE = "<script>alert(1)</script>&\"'$x_1$"
NET = Network(network().nodes, "max", About((f"age {HOSTILE}", "income"), ("low", "middle", HOSTILE)))


def certified(**told: Any) -> er.Certificates:
    """Nine inputs: the third is labelled wrongly, the fifth holds no numbers."""
    x = points(9)
    labels = labels_for(NET, x, wrong=(2,))
    x[4, 0] = math.nan
    return er.certify(NET, x, labels, **{"domain": (-1.2, 1.2), **told})


CERTS: er.Certificates


@pytest.fixture(scope="module", autouse=True)
def certs() -> None:
    """Not where the file is read: every worker collects all files."""
    global CERTS
    CERTS = certified(reach=True)


def test_rows_slices_masks_and_lists() -> None:
    assert len(CERTS) == 9 and len(list(CERTS)) == 9
    assert [one.number for one in CERTS] == list(range(9)) and CERTS[-1].number == 8
    assert CERTS[2:7:2].index.tolist() == [2, 4, 6] and len(CERTS[5:2]) == 0
    for mask in (CERTS.certified, CERTS.certified.numpy(), CERTS.certified.tolist()):
        assert CERTS[mask].index.tolist() == [0, 1, 3, 5, 6, 7, 8]
    for rows in ([8, 0], (8, 0), np.array([8, 0]), torch.tensor([-1, 0])):
        assert CERTS[rows].index.tolist() == [8, 0] and torch.equal(CERTS[rows].x[0], CERTS.x[8])
    for one in (CERTS[:1][torch.tensor([True])], CERTS[torch.tensor([0])], CERTS[np.array([0])], CERTS[[0]]):
        assert isinstance(one, er.Certificates) and one.index.tolist() == [0]
    assert CERTS[3:][1:][0].number == 4 and len(CERTS[[]]) == 0
    assert CERTS[np.int64(3)].number == 3 and CERTS[torch.tensor(3)].number == 3


@pytest.mark.parametrize("key", [[True, False], 1.5, "a", None, [0.0], [[0]], True, torch.tensor(True)])
def test_what_chooses_nothing_is_refused(key: Any) -> None:
    with pytest.raises(InputError, match="a row, a slice, a list of rows, or 9 booleans"):
        CERTS[key]


def test_rows_that_are_not_there() -> None:
    for key in (9, -10, [0, 9]):
        with pytest.raises(IndexError, match="certificates of 9 inputs"):
            CERTS[key]


def test_one_certificate_has_plain_fields() -> None:
    one = CERTS[3]
    assert one.status == "certified" and one.certified is True and one.message == ""
    assert one.label == int(CERTS.labels[3]) and one.class_name == NET.about.classes[one.label]
    for name in ("lower", "upper", "down", "up", "x", "seen"):
        assert torch.equal(getattr(one, name), getattr(CERTS, name)[3])
    assert one.geomean == float(CERTS.geomean[3]) and isinstance(one.geomean, float)
    assert one.network is NET and one.settings == CERTS.settings and one.basis is None
    assert "lower" in dir(one) and "explain" in dir(one)
    with pytest.raises(AttributeError):
        _ = one.nothing
    assert CERTS[2].status == "misclassified" and CERTS[2].class_name is not None
    assert er.check(one) and er.check(one.certificates).counts["proved"] == 1
    with pytest.raises(InputError, match="of one input"):
        er.Certificate(CERTS)


def test_chosen_certificates_are_proved_saved_and_keep_their_numbers(tmp_path: Any) -> None:
    some = CERTS[[7, 0]]
    assert er.check(some).counts["proved"] == 2
    again = er.Certificates.load(some.save(tmp_path / "run"))
    assert again.index.tolist() == [7, 0] and torch.equal(again.lower, some.lower)
    assert again[0].number == 7 and "input 7" in repr(again[0])


def test_a_domain_of_each_input_goes_with_it() -> None:
    x = points(4)
    low = torch.linspace(-3, -1.5, 4, dtype=torch.float64)[:, None].expand(4, 2)
    certs = er.certify(NET, x, domain=(low, 3.0))
    assert certs.lowest.shape == (4, 2) and torch.equal(certs[[2, 1]].lowest, certs.lowest[[2, 1]])
    assert torch.equal(certs[2].lowest, certs.lowest[2])


def test_tightest() -> None:
    found = CERTS.tightest(3)
    good = CERTS.certified.nonzero().flatten().tolist()
    assert found.index.tolist() == sorted(good, key=lambda k: float(CERTS.geomean[k]))[:3]
    assert len(CERTS.tightest(100)) == len(good)
    for k in (0, True, 1.5):
        with pytest.raises(InputError, match="k must be"):
            CERTS.tightest(k)


def test_both_sides_are_never_too_far() -> None:
    good = CERTS.certified
    assert ((CERTS.down > 0) | (CERTS.up > 0))[good].all() and not (CERTS.down[~good] != 0).any()
    for x, low, high, down, up in zip(*(t[good].flatten().tolist() for t in _sides())):
        assert Fraction(x) - Fraction(down) >= Fraction(low) and Fraction(x) + Fraction(up) <= Fraction(high)
        assert down == pytest.approx(x - low) and up == pytest.approx(high - x)
    assert er.certify(NET, points(2), region=er.Ellipsoid()).down is None


def _sides() -> tuple[Any, ...]:
    return CERTS.x, CERTS.lower, CERTS.upper, CERTS.down, CERTS.up


NUMBERS = st.floats(-1e6, 1e6, allow_subnormal=False)


@cases(0.3)
@given(NUMBERS, NUMBERS)
def test_differences_are_rounded_down(a: float, b: float) -> None:
    high, low = max(a, b), min(a, b)
    exact, found = Fraction(high) - Fraction(low), inward(high, low)
    assert found <= exact and (found == exact or math.nextafter(found, math.inf) > exact)
    tensors = (torch.tensor([[v]], dtype=torch.float64) for v in (high, low))
    views = copy.copy(CERTS)
    object.__setattr__(views, "network", None)
    object.__setattr__(views, "eps", torch.ones(1, 1))
    assert float(views._distance(*tensors)) == found


@cases(0.3)
@given(NUMBERS, st.floats(0, 1e3), st.floats(0, 1e3))
def test_a_value_is_printed_inside_its_range(value: float, down: float, up: float) -> None:
    low, high = value - down, value + up
    texts = [float(text) for text in around(low, value, high, 4)]
    assert texts == sorted(texts) and low <= texts[0] and texts[2] <= high


def test_one_line_says_why_inputs_failed() -> None:
    said = repr(CERTS)
    assert "9 inputs: 7 certified, 1 misclassified, 1 nonfinite" in said
    assert "input 2: the network decides" in said and "input 4: the input holds NaN" in said
    assert "Certificates(1 input: 1 certified" in repr(CERTS[:1])
    assert "misclassified: the network decides" in repr(CERTS[2])


def test_explanations_say_what_is_proved() -> None:
    said = CERTS.explain(3)
    one = CERTS[3]
    assert said.startswith("Input 3: certified. The network decides") and repr(said) == str(said)
    assert "as long as every feature stays in its range, all of them at once" in said
    assert "the region holds an input where the decision is another one" in said
    assert "Nothing is said about inputs outside" in said
    for line in said.splitlines()[1:3]:
        low, high = (float(word) for word in line.split(": ")[1].split(" (")[0].split(" to "))
        k = 0 if line.strip().startswith("age") else 1
        assert float(one.lower[k]) <= low <= high <= float(one.upper[k])
    assert "no certificate (misclassified): the network decides" in CERTS.explain(2)
    assert "no certificate (nonfinite)" in CERTS[4].explain()
    assert "and 1 more feature with more room" in CERTS.explain(3, max_features=1)
    with pytest.raises(InputError, match="max_features"):
        CERTS.explain(3, 0)
    with pytest.raises(IndexError):
        CERTS.explain(9)


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"region": er.Ellipsoid()}, "while all others stay as they are, may move so far"),
        ({"frozen": ["income"]}, "as it is: income"),
        ({"max_eps": 1e-3}, "it ends at a limit that was set"),
        ({"deployed": "float32"}, "also as executed in float32"),
    ],
)
def test_explanations_of_other_regions(told: dict[str, Any], words: str) -> None:
    certs = certified(**told)
    assert words in certs.tightest(1).explain() and "was not looked into" in certs.tightest(1).explain()


def test_explanations_of_free_features() -> None:
    net = Network.chain((2,), [ops.Linear(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]).double())])
    certs = er.certify(net, [[0.5, 0.3]], domain=(-1, 1), objective="free")
    said = certs.explain()
    assert "decides class 0 whatever values of their domain 1 feature takes, all at once" in said
    assert "may take any value of its domain: feature 1" in said and "needed" in said and ": feature 0" in said


def test_explanations_of_specifications() -> None:
    x = points(2)
    spec = er.outputs_within(NET(torch.from_numpy(x)).double(), 5.0)
    assert "conditions of the specification hold of the outputs" in er.certify(NET, x, spec=spec).explain()


def test_notebooks_get_escaped_tables() -> None:
    for html in (CERTS._repr_html_(), CERTS[3]._repr_html_(), CERTS[2]._repr_html_()):
        assert "<script" not in html and html.count("<table>") <= 1 and len(html) < 8000
    whole = CERTS._repr_html_()
    assert "&lt;script&gt;" in whole and "the network decides" in whole
    order = [whole.index(f"<tr><td>{k}</td>") for k in CERTS.tightest(7).index.tolist()]
    assert order == sorted(order)
    assert "Certificates</b> of 0 inputs" in CERTS[:0]._repr_html_()


def test_pickles_and_copies() -> None:
    for again in (pickle.loads(pickle.dumps(CERTS)), copy.deepcopy(CERTS)):
        assert again.status == CERTS.status and again.lower.numpy().tobytes() == CERTS.lower.numpy().tobytes()
        assert er.check(again[CERTS.certified])
    one = pickle.loads(pickle.dumps(CERTS[3]))
    assert one.number == 3 and one.status == "certified"


def test_networks_of_loaded_models_are_pickled_as_plain_data_and_validated_again() -> None:
    net = er.load(torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3)), input_shape=(2,))
    x = torch.rand(3, 2)
    assert net.source is not None and copy.deepcopy(net).source is net.source
    again = pickle.loads(pickle.dumps(net))
    assert again.source is None and torch.equal(again(x), net(x))
    nodes = (*net.nodes[:-1], dataclasses.replace(net.nodes[-1], shape=(7,)))
    forged = copy.copy(net)
    forged.nodes = nodes
    with pytest.raises(InputError, match="the shape is given as"):
        pickle.loads(pickle.dumps(forged))


def test_arrays_read_backwards_and_read_only() -> None:
    x = points(4)
    backwards, fixed = x[::-1], x.copy()
    fixed.setflags(write=False)
    assert torch.equal(NET(backwards), NET(x[::-1].copy())) and torch.equal(NET(fixed), NET(x))
