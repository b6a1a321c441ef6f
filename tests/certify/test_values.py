"""Whole numbers, numbers of so many decimals, ordered levels: what regions are, and that they hold at every value."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import elbowroom as er
from elbowroom.certificates.store import Run
from elbowroom.claim.categories import Categories
from elbowroom.errors import DataWarning
from elbowroom.network import operations as ops
from elbowroom.network.graph import About, Graph, Network
from elbowroom.network.table import Column, Table
from elbowroom.runs.one_input import one_input
from support import cases


def linear(*weights: float, names: str = "abcdef") -> Network:
    """Class 0 is decided where the weighted sum of the features is positive."""
    graph = Graph((len(weights),))
    weight = torch.tensor([weights, [0.0] * len(weights)], dtype=torch.float64)
    graph.add(ops.Linear(weight, torch.zeros(2, dtype=torch.float64)), graph.input)
    return graph.network(about=About(features=tuple(names[: len(weights)])))


def at(*x: float) -> torch.Tensor:
    return torch.tensor([x], dtype=torch.float64)


def ends(certs: er.Certificates, row: int = 0) -> list[tuple[float, float]]:
    assert certs.lower is not None and certs.upper is not None
    return list(zip(certs.lower[row].tolist(), certs.upper[row].tolist()))


def test_ends_are_whole_and_values_count() -> None:
    certs = er.certify(linear(1.0), at(4), features={"a": "whole number"})
    assert certs.status == ("certified",) and ends(certs) == [(1.0, 7.0)]  # zero is a tie
    assert float(certs.eps[0]) == pytest.approx(3) and bool(er.check(certs).passed.all())
    # Seven values: as wide as seven steps.
    assert float(certs.log_volume) == pytest.approx(math.log(7)) and float(certs.geomean) == pytest.approx(3.5)
    assert float(certs.ratio) == pytest.approx(1.0)
    plain = er.certify(linear(1.0), at(4))
    assert float(plain.log_volume) == pytest.approx(math.log(8), abs=1e-2) and plain.stuck is None


def test_what_rounding_leaves_over_is_used() -> None:
    # Both could move by nearly 1, which is nothing to whole numbers: one of them moves by 1, the other is stuck.
    whole: dict[str, Any] = {"a": "whole number", "b": "whole number"}
    certs = er.certify(linear(1.0, 1.0), at(1, 1), features=whole)
    assert certs.status == ("certified",)
    widths = sorted(high - low for low, high in ends(certs))
    assert widths == [0.0, 2.0] and certs.stuck is not None and int(certs.stuck.sum()) == 1
    # It is not fixed by the decision: alone it may move by 1.
    assert sorted(certs.to_frame()["note"]) == ["", "no further value proved"] and bool(er.check(certs))
    alone = er.alone(linear(1.0, 1.0), at(1, 1))
    assert bool((alone.lower <= 0).all())
    # A number beside it takes what is left, and gives it where a value more is worth more.
    certs = er.certify(linear(1.0, 1.0), at(2, 0), features={"a": "whole number"})
    (low, high), (below, above) = ends(certs)
    assert (low, high) == (1.0, 3.0) and above == pytest.approx(1.0, abs=1e-3) == -below
    # Where even one value is too much, it is fixed, and the other has all of the room.
    certs = er.certify(linear(3.0, 1.0), at(0, 2), features={"a": "whole number"})
    assert ends(certs)[0] == (0.0, 0.0) and ends(certs)[1][0] == pytest.approx(0.0, abs=1e-2)
    assert "as it is, since no further value was proved: a\n" in str(certs.explain(0))
    assert certs.stuck is not None and certs.stuck.tolist() == [[True, False]] and bool(er.check(certs))


def test_sentences_say_no_more_than_was_found() -> None:
    certs = er.certify(linear(1.0, 1.0), at(-0.0, 1.5), features={"a": "whole number"}, reach=True)
    said = str(certs.explain())
    assert "(here 0:" in said  # zero has no sign
    # A counterexample is one of any numbers.
    assert "the decision is another one; it may lie between the values that features can have." in said
    plain = er.certify(linear(1.0, 1.0), at(-0.0, 1.5), reach=True)
    assert "the decision is another one.\n" in str(plain.explain())
    turned = er.certify(linear(1.0, 1.0), at(0.0, 1.5), region=er.Oblique("auto", er.Ellipsoid()))
    assert "a direction that moves alone" in str(turned.explain()) and "a feature" not in str(turned.explain())


def test_values_as_executed_in_float32_lie_inside() -> None:
    """A value of two decimals is another number in float32, which the network as executed is given."""
    x = np.random.default_rng(0).normal((3.0, 0.0), size=(20, 2)).round(1)
    told: dict[str, Any] = {"a": {"decimals": 2}, "b": {"decimals": 1}}
    certs = er.certify(linear(1.0, 0.5), x, features=told, deployed="float32")
    assert set(certs.status) == {"certified"} and bool(er.check(certs))
    for row in range(len(certs)):
        for (low, high), decimals in zip(ends(certs, row), (2, 1)):
            assert low < high
            values = [float(f"{end:.{decimals}f}") for end in (low, high)]
            assert all(low <= v <= high for end in values for v in (end, float(np.float32(end))))


def test_nothing_can_move() -> None:
    certs = er.certify(linear(3.0), at(1), features={"a": "whole number"})
    assert certs.status == ("certified",) and ends(certs) == [(1.0, 1.0)] and bool(er.check(certs))
    assert (float(certs.geomean), float(certs.log_volume)) == (0.0, -math.inf)
    assert certs.to_frame()["note"].tolist() == ["no further value proved"]


def test_decimals_are_what_their_text_reads_as() -> None:
    certs = er.certify(linear(1.0), at(0.35), features={"a": {"decimals": 2}})
    assert ends(certs) == [(0.01, 0.69)] and bool(er.check(certs))
    assert "a: 0.01 to 0.69 (here 0.35: down by 0.34, up by 0.34)" in str(certs.explain(0))
    assert float(certs.log_volume) == pytest.approx(math.log(0.69))
    assert certs.stuck is not None and not bool(certs.stuck.any())


def test_sides_of_their_own() -> None:
    certs = er.certify(
        linear(1.0), at(4), features={"a": {"kind": "whole number", "domain": [0, 9]}}, region=er.Box(asymmetric=True)
    )
    assert ends(certs) == [(1.0, 9.0)] and bool(certs.capped[0, 0]) is False
    assert certs.lowest is not None and certs.highest is not None
    assert (certs.lowest.tolist(), certs.highest.tolist()) == ([[0.0]], [[9.0]])
    both = er.certify(linear(1.0), at(4), features={"a": {"domain": [0, 9]}}, domain=(2.0, 100.0))
    assert both.lowest is not None and both.highest is not None
    assert (both.lowest.tolist(), both.highest.tolist()) == ([[2.0]], [[9.0]])
    outside = er.certify(linear(1.0), at(12), features={"a": {"domain": [0, 9]}})
    assert outside.status == ("error",) and "outside the domain" in outside.message[0]


def test_caps_and_fixed_features() -> None:
    certs = er.certify(linear(1.0, 1.0), at(9, 0), features={"a": "whole number", "b": "fixed"}, max_eps=2.5)
    assert ends(certs) == [(7.0, 11.0), (0.0, 0.0)] and certs.capped.tolist() == [[True, False]]
    assert certs.to_frame()["note"].tolist() == ["at its cap", "frozen"]
    none = er.certify(linear(1.0, 1.0), at(9, 0), features={"a": "whole number"}, max_eps=0.5)
    assert none.stuck is not None and not bool(none.stuck[0, 0])  # it is the cap that holds it
    assert none.to_frame()["note"][0] == "at its cap"
    with pytest.raises(er.InputError, match="every feature is frozen"):
        er.certify(linear(1.0), at(9), features={"a": "fixed"})


def test_what_a_model_fills_in_need_not_be_whole() -> None:
    pandas = pytest.importorskip("pandas")
    table = Table((Column("a", missing=4.5),))
    graph = Graph((1,))
    graph.add(ops.Linear(torch.tensor([[1.0], [0.0]]).double(), torch.zeros(2).double()), graph.input)
    net = graph.network(about=About(features=("a",), table=table))
    with pytest.warns(DataWarning, match="the model takes 4.5"):
        certs = er.certify(net, pandas.DataFrame({"a": [4.0, math.nan, 4.5]}), features={"a": "whole number"})
    assert certs.status == ("certified", "certified", "error") and bool(er.check(certs).passed[:2].all())
    assert ends(certs, 1) == [(1.0, 8.0)] and "is 4.5, which is no whole number" in certs.message[2]


@pytest.mark.parametrize("shape", [er.Ellipsoid(), er.L1()])
def test_other_shapes_take_numbers(shape: er.Region) -> None:
    certs = er.certify(linear(1.0, 1.0), at(4, 4), features={"a": "whole number"}, region=shape)
    assert certs.stuck is None and bool(er.check(certs)) and float(certs.eps[0, 0]) % 1 > 0


def test_importance_says_what_a_value_is_worth() -> None:
    told: dict[str, Any] = {"features": {"a": "whole number"}}
    widths = [
        ends(er.certify(linear(1.0, 1.0), at(3, 0), importance={"a": weight}, **told))[0] for weight in (0.01, 100.0)
    ]
    assert widths[0][1] - widths[0][0] < widths[1][1] - widths[1][0]


def ordered() -> Network:
    """One-hot columns of five levels; class 0 is decided for the second, third and fifth, and for none of them."""
    codes = tuple(tuple(map(float, row)) for row in torch.eye(5).tolist())
    table = Table((Column("grade", tuple("vwxyz"), codes, unknown=(0.0,) * 5, kind="ordered levels"),))
    graph = Graph((5,))
    weight = torch.tensor([[-1.0, 1, 1, -1, 1], [0.0] * 5]).double()
    graph.add(ops.Linear(weight, torch.tensor([0.5, 0.0]).double()), graph.input)
    return graph.network(about=About(features=table.entries, table=table))


def test_ordered_levels_have_no_gaps_and_no_number_is_needed() -> None:
    net = ordered()
    certs = er.certify(net, at(0, 1, 0, 0, 0))
    assert certs.status == ("certified",) and certs.allowed is not None and bool(certs.maximal.all())
    assert certs.allowed.tolist() == [[False, True, True, False, False, False]] and bool(er.check(certs))
    free = er.load(net, features={"grade": "category"})
    assert free.about.table is not None and free.about.table.columns[0].ordered == 0
    assert er.certify(free, at(0, 1, 0, 0, 0)).allowed.tolist() == [[False, True, True, False, True, True]]
    strange = er.certify(net, at(0, 0, 0, 0, 0))  # none of the levels, and so beside none of them
    assert strange.allowed.tolist() == [[False] * 5 + [True]]
    with pytest.raises(er.InputError, match="every feature is frozen"):
        er.certify(net, at(0, 1, 0, 0, 0), frozen=["grade"])
    with pytest.raises(er.InputError, match="every feature is frozen"):
        er.certify(net, at(0, 1, 0, 0, 0), region=er.Ellipsoid())


def test_a_run_keeps_it_and_a_network_of_numbers_proves_it(tmp_path: Path) -> None:
    net = linear(1.0, 2.0, 0.5, 0.25)
    kinds = {
        "a": "whole number", "b": {"kind": "yes/no"}, "c": {"decimals": 1, "unit": "m"}, "d": {"levels": [0, 1, 4]},
    }  # fmt: skip
    certs = er.certify(net, at(3, 1, 0.5, 1), features=kinds)
    assert certs.status == ("certified",) and certs.stuck is not None
    certs.save(tmp_path / "run")
    again = er.Certificates.load(tmp_path / "run")
    assert again.stuck is not None and bool((again.stuck == certs.stuck).all())
    assert again.to_frame().equals(certs.to_frame())
    told = {f["feature"]: f for f in one_input(Run.open(tmp_path / "run"), 0)["features"]}
    assert {name: f["kind"] for name, f in told.items()} == {
        "a": "whole number", "b": "yes/no", "c": "number", "d": "category"
    }  # fmt: skip
    assert (told["a"]["decimals"], told["c"]["decimals"], told["c"]["unit"]) == (0, 1, "m")
    # Declared levels are codes of numbers that the network itself has; names of other columns are refused.
    assert bool(er.check(again, net))
    with pytest.raises(er.InputError, match="which this network calls"):
        er.check(again, linear(1.0, 2.0, 0.5, 0.25, names="abce"))
    other = er.load(net, features={"b": {"levels": ["yes", "no"], "codes": [0, 1]}})
    with pytest.raises(er.InputError, match="call the levels of 'b'"):
        er.check(again, other)
    with pytest.raises(er.InputError, match="other categories"):
        er.check(again, er.load(net, features={"b": {"levels": [0, 2]}}))


_PATH = Path(__file__).parents[2] / "benchmarks" / "kinds.py"


@pytest.fixture(scope="module")
def brute() -> Any:
    """The benchmark, which has the brute force."""
    if not _PATH.is_file():
        pytest.skip("benchmarks are not there")
    spec = importlib.util.spec_from_file_location("kinds_benchmark", _PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@given(seed=st.integers(10**6, 2 * 10**6))
@cases(0.25)
def test_every_value_and_level_keeps_the_decision(brute: Any, seed: int) -> None:
    found = brute.one_network(seed)
    wrong = ("violations", "not proved again", "not as declared", "further levels proved")
    assert {name: found[name] for name in wrong if found[name]} == {}


def test_the_brute_force_sees_what_is_wrong(brute: Any) -> None:
    """A value, or a level, beyond what was certified."""
    net = er.load(linear(1.0), features={"a": "whole number"})
    certs = er.certify(net, at(4))
    assert certs.lower is not None
    certs.lower[0, 0] = -1.0
    draw = brute.np.random.default_rng(0)
    points = brute.points(certs, 0, draw)
    assert len(points) == 9 and not bool((net.decide(net(points)) == certs.labels[0]).all())
    certs.lower[0, 0] = 0.5
    assert not brute.well_formed(certs, 0, [])
    levels = er.certify(ordered(), at(0, 1, 0, 0, 0))
    assert Categories.of(ordered().about.table) is not None and len(brute.further(levels, 0, [])) == 2
    levels.allowed[0, 4] = True
    assert not brute.well_formed(levels, 0, [])
