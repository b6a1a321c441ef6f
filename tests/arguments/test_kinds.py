"""What users declare of features: what becomes of it, in data as well, and what is refused."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import elbowroom as er
from elbowroom.arguments.kinds import declared
from elbowroom.arguments.types import with_kinds
from elbowroom.data.sources import open_data
from elbowroom.errors import DataWarning
from elbowroom.network import operations as ops
from elbowroom.network.file import load_network, save_network
from elbowroom.network.graph import About, Graph, Network
from elbowroom.network.table import Column, Table

NAMES = ("age", "job_a", "job_b", "size", "loan")
KINDS: dict[str, Any] = {
    "age": {"kind": "whole number", "unit": "years", "domain": [0, 120]},
    "job": {"columns": ["job_b", "job_a"], "dropped": "c"},
    "size": {"kind": "ordered levels", "levels": ["small", "large"], "codes": [1, 3]},
    "loan": "yes/no",
}


def network(table: Table | None = None, names: tuple[str, ...] | None = NAMES) -> Network:
    width = len(NAMES) if table is None else table.width
    graph = Graph((width,))
    graph.add(
        ops.Linear(torch.randn(2, width, generator=torch.Generator().manual_seed(0)), torch.zeros(2)), graph.input
    )
    return graph.network(about=About(features=names if table is None else table.entries, table=table))


def test_declarations_make_a_table() -> None:
    table = declared(network(), KINDS).about.table
    assert table is not None and table.names == ("age", "job", "size", "loan") and table.entries == NAMES
    age, job, size, loan = table.columns
    assert (age.decimals, age.unit, age.domain, age.step) == (0, "years", (0.0, 120.0), 1.0)
    # Columns may be named in any order; codes follow the model's.
    assert dict(zip(job.levels or (), job.codes)) == {"c": (0.0, 0.0), "b": (0.0, 1.0), "a": (1.0, 0.0)}
    assert (size.levels, size.codes, size.ordered) == (("small", "large"), ((1.0,), (3.0,)), 2)
    assert (loan.levels, loan.codes, loan.ordered) == (("no", "yes"), ((0.0,), (1.0,)), 0)
    assert table.raw.names == NAMES and table.raw.moves.all()


def test_load_and_certify_take_the_same(tmp_path: Path) -> None:
    net = er.load(network(), features=KINDS)
    assert net.about.table == declared(network(), KINDS).about.table
    path = save_network(net, tmp_path / "net.elbowroom")
    again = load_network(path)
    assert again.about.table is not None and repr(again.about.table) == repr(net.about.table)
    x = torch.tensor([[30.0, 1, 0, 1, 0]], dtype=torch.float64)
    certs = er.certify(network(), x, features=KINDS, max_eps=10.0)
    assert certs.network is not None and certs.network.about.table == net.about.table
    certs.save(tmp_path / "run")
    kept = er.Certificates.load(tmp_path / "run")
    assert kept.network is not None and repr(kept.network.about.table) == repr(net.about.table)
    # Names are still names, and a kind that is nearly one is none.
    assert er.load(network(), features={"age": "years old"}).about.features[0] == "years old"
    with pytest.raises(er.InputError, match="no kind; did you mean 'whole number'"):
        er.load(network(), features={"age": "whole numbr"})


PIPELINE = Table(
    (
        Column("age"),
        Column("job", ("a", "b", "c"), ((1.0, 0.0), (0.0, 1.0), (0.0, 0.0))),
        Column("grade", (3.0, 1.0, None), ((0.0,), (1.0,), (2.0,))),
    )
)
BAD: list[tuple[Any, str]] = [
    (3, " must be a mapping from names to kinds"),
    ({"age": 3}, "'age': a kind or a mapping is needed"),
    ({"age": "whole"}, "'age': 'whole' is no kind .nearest: 'whole number'"),
    ({"agee": "number"}, "'agee': there is no such feature .nearest: 'age'"),
    ({"job_a": "fixed", "job": {"columns": ["job_a", "job_b"]}}, "'job_a': .* one of the columns of 'job'"),
    ({"age": {"kind": "whole number", "decimals": 2}}, "a whole number has no decimals"),
    ({"job": {"columns": ["job_a", "job_b"], "decimals": 2}}, "a category has no decimals"),
    ({"age": {"unit": "years", "colour": "red"}}, "'colour' says nothing"),
    ({"age": {"decimals": -1}}, "decimals must be a whole number from 0 to 15"),
    ({"age": {"decimals": 1.5}}, "decimals must be a whole number"),
    ({"age": {"decimals": True}}, "decimals must be a whole number"),
    ({"age": {"domain": [3, 1]}}, "the lowest value comes first"),
    ({"age": {"domain": [1]}}, "domain must be two numbers"),
    ({"age": {"domain": [math.nan, 1]}}, "domain must be two numbers"),
    ({"age": {"domain": "0,1"}}, "domain must be two numbers"),
    ({"age": {"unit": 3}}, "unit must be a text"),
    ({"age": "category"}, "the model takes it as a number: say which ones are levels"),
    ({"age": {"levels": ["old", "young"]}}, "a code must be a number, got 'old'"),
    ({"age": {"levels": ["old", "young"], "codes": [1]}}, "2 levels need as many codes, got 1"),
    ({"age": {"levels": ["old", "young"], "codes": [1, 1]}}, "two of the codes .* are the same"),
    ({"age": {"levels": [1, 2], "dropped": "x"}}, "about a group of one-hot columns"),
    ({"age": {"kind": "category", "levels": "old"}}, "levels must be a list"),
    ({"job": {"columns": ["job_a", "job_x"]}}, "there is no column 'job_x' .nearest: 'job_"),
    ({"job": {"columns": ["job_a", "size"]}}, "do not stand side by side"),
    ({"job": {"columns": ["job_a", "job_b"]}, "j": {"columns": ["job_b"]}}, "'job_b' belongs to 'job' as well"),
    ({"job": {"columns": ["job_a", "job_a"]}}, "'job_a' is named twice"),
    ({"job": {"columns": ["job_a", "job_b"], "levels": ["a"]}}, "2 columns stand for as many levels, got 1"),
    ({"job": {"columns": ["job_a", "job_b"], "levels": ["a", "b", "c"]}}, "one that has no column is said by dropped"),
    ({"job": {"columns": ["job_a", "job_b"], "levels": ["a", "a"]}}, "two of the levels 'a', 'a' are the same"),
    ({"job": {"columns": ["job_a", "job_b"], "dropped": "c", "unknown": True}}, "leave out one of both"),
    ({"job": {"columns": ["job_a", "job_b"], "codes": [0, 1]}}, "leave codes out"),
    ({"age": {"columns": ["job_a", "job_b"]}}, "there is a column of this name beside"),
]
BAD_OF_LEVELS: list[tuple[Any, str]] = [
    ({"job": "whole number"}, "the model takes it as a category .'a', 'b', 'c'., which is no number"),
    ({"job": {"kind": "ordered levels", "levels": ["a", "d", "b"]}}, "the model has never seen the level 'd'"),
    ({"job": {"kind": "ordered levels", "levels": ["a", "b"]}}, "levels must be all of them, once each: 'c'"),
    ({"job": {"kind": "ordered levels", "levels": ["a", "b", "c", "a"]}}, "once each"),
    ({"job": "ordered levels"}, "say in which order its levels stand"),
    ({"job": "yes/no"}, "yes/no has two levels, and the model knows 'a', 'b', 'c'"),
    ({"job": {"kind": "category", "codes": [1, 2, 3]}}, "the model has codes of its own"),
    ({"job": {"kind": "fixed", "unit": "kg"}}, "categories, which have no unit"),
    ({"both": {"columns": ["age", "job"]}}, "takes 'job' as a category by itself"),
]


@pytest.mark.parametrize(("features", "words"), BAD, ids=[str(k) for k in range(len(BAD))])
def test_bad_declarations_are_refused(features: Any, words: str) -> None:
    with pytest.raises(er.InputError, match=f"^features.*{words}"):
        er.certify(network(), torch.zeros(1, 5), features=features)


@pytest.mark.parametrize(("features", "words"), BAD_OF_LEVELS, ids=[str(k) for k in range(len(BAD_OF_LEVELS))])
def test_bad_declarations_of_levels_are_refused(features: Any, words: str) -> None:
    with pytest.raises(er.InputError, match=f"^features.*{words}"):
        declared(network(PIPELINE), features)


def test_orders_of_a_models_own_levels() -> None:
    table = declared(
        network(PIPELINE), {"grade": "ordered levels", "job": {"kind": "ordered levels", "levels": list("cab")}}
    ).about.table
    assert table is not None
    _, job, grade = table.columns
    assert (job.levels, job.codes) == (("c", "a", "b"), ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0)))
    assert (grade.levels, grade.codes, grade.ordered) == ((1.0, 3.0, None), ((1.0,), (0.0,), (2.0,)), 2)


def rows() -> dict[str, list[Any]]:
    return {
        "age": [30, 31.5, 32, 33, 34, 35],
        "job_a": [1, 0, 1, 0, 0, 1],
        "job_b": [0, 0, 1, 0.5, 1, 0],
        "size": [1, 3, 1, 3, 2, 1],
        "loan": [0, 1, 0, 1, 0, 2],
    }


TOLD = [
    "",
    "'age' is 31.5, which is no whole number, as it is declared to be",
    "the columns of 'job' (job_a, job_b) are 1, 1, where at most one of them is 1, the others 0",
    "the columns of 'job' (job_a, job_b) are 0, 0.5, where at most one of them is 1, the others 0",
    "2 is no code of a level of 'size'",
    "2 is no code of a level of 'loan'",
]


@pytest.mark.parametrize("of", ["frame", "tensor"])
def test_rows_that_are_not_as_declared_are_errors(of: str) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(rows()).astype(float)
    x = frame if of == "frame" else torch.from_numpy(frame.to_numpy())
    certs = er.certify(network(), x, features=KINDS, max_eps=10.0)
    assert certs.status == ("certified", *["error"] * 5)
    assert list(certs.message) == ["", *(f"row {k}: {why}" for k, why in enumerate(TOLD) if why)]


def test_rows_of_a_file_that_are_not_as_declared_are_errors(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    own = rows()
    path.write_text("\n".join([",".join(own), *(",".join(map(str, row)) for row in zip(*own.values()))]))
    data = open_data(str(path), features=declared(network(), KINDS).about.table)
    assert data.features == NAMES
    assert [None if data.fault is None else data.fault(k) for k in range(6)] == [
        None, *(f"row {k + 1} below the header: {why}" for k, why in enumerate(TOLD) if why),
    ]  # fmt: skip


def test_types_of_a_frame_say_what_columns_are() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {"age": [30, 40], "job": pandas.Categorical(["b", "a"], ["b", "c", "a"], ordered=True), "grade": [1.0, 3.0]}
    )
    with pytest.warns(DataWarning) as told:
        table = with_kinds(network(PIPELINE), frame, None).about.table
    assert table is not None
    assert [column.kind for column in table.columns] == ["whole number", "ordered levels", ""]
    assert table.columns[1].levels == ("b", "c", "a")
    assert "'age' is taken as whole numbers; features={'age': 'number'} says otherwise" in str(told[0].message)
    assert "'job' is taken as ordered levels" in str(told[1].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same = with_kinds(network(PIPELINE), frame, {"age": "number", "job": "category"}).about.table
        assert same is not None and [column.ordered for column in same.columns] == [0, 0, 0]
        assert same.columns[0].decimals is None
        # What was declared when the network was loaded counts, too.
        again = with_kinds(er.load(network(PIPELINE), features={"age": "number", "job": "category"}), frame, None)
        assert again.about.table == same
    plain = pandas.DataFrame({name: [0.0] for name in NAMES}).assign(loan=[True], age=[3])
    with pytest.warns(DataWarning):
        found = with_kinds(network(), plain, None).about.table
    assert found is not None and (found.columns[0].kind, found.columns[4].kind) == ("whole number", "yes/no")


def test_a_kind_that_is_named_takes_back_what_was_declared_before() -> None:
    net = er.load(network(), features={"age": KINDS["age"], "loan": "yes/no", "size": {"decimals": 2}})

    def column(name: str, told: Any) -> Column:
        table = declared(net, {name: told}).about.table
        assert table is not None
        return table.columns[table.names.index(name)]

    age = column("age", "number")
    assert (age.kind, age.decimals, age.unit, age.domain) == ("number", None, "years", (0.0, 120.0))
    assert column("age", {"unit": "a"}).decimals == 0  # which says nothing of the kind
    assert column("age", {"kind": "number", "decimals": 1}).decimals == 1
    assert column("size", "number").decimals is None and column("size", "whole number").decimals == 0
    assert column("loan", "number") == Column("loan", kind="number")
    with pytest.raises(er.InputError, match="'loan': the model takes it as a category"):
        column("loan", {"unit": "EUR"})
    x = torch.tensor([[0.5, 0.0, 0.0, 1.5, 0.5]])[:, : net.n_inputs]
    assert er.certify(net, x, solver=er.Sequential(gradients=1)).status == ("error",)
    told = {"age": "number", "loan": "number", "size": "number"}
    assert er.certify(net, x, features=told, solver=er.Sequential(gradients=1)).status == ("certified",)


def test_arrow_says_the_same() -> None:
    pa = pytest.importorskip("pyarrow")
    levels = pa.DictionaryArray.from_arrays(pa.array([0, 2]), pa.array(["b", "c", "a"]), ordered=True)
    given = pa.table({"age": pa.array([30, 40], pa.int16()), "job": levels, "grade": [1.0, 3.0]})
    with pytest.warns(DataWarning):
        table = with_kinds(network(PIPELINE), given, None).about.table
    assert table is not None and [column.kind for column in table.columns] == ["whole number", "ordered levels", ""]


def test_a_network_without_names_has_those_of_the_frame() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({name: [0.0, 1.0] for name in NAMES})
    with pytest.warns(DataWarning, match="in the order they stand in"):
        net = with_kinds(network(names=None), frame, {"age": "whole number"})
    assert net.about.features == NAMES
    with pytest.raises(er.InputError, match="'age': there is no such feature"):
        er.certify(network(names=None), torch.zeros(1, 5), features={"age": "whole number"})
    named = declared(network(names=None), {"feature 0": "whole number"}).about.table
    assert named is not None and named.columns[0].decimals == 0


@pytest.mark.parametrize(
    "told",
    [
        {"kind": "integer"}, {"kind": 3}, {"kind": "category"}, {"decimals": -1}, {"decimals": 1.0}, {"domain": [1]},
        {"domain": [2, 1]}, {"domain": ["a", 1]}, {"parts": ["a"]}, {"parts": 3}, {"colour": "red"},
        {"kind": "whole number"}, {"kind": "yes/no"},
    ],
)  # fmt: skip
def test_a_file_with_other_kinds_is_refused(told: dict[str, Any]) -> None:
    from elbowroom.network.table_file import read_table, written_table

    columns = written_table(Table((Column("age"),)))
    assert columns is not None and set(columns[0]) == {"name", "levels", "codes", "unknown", "missing", "unit"}
    with pytest.raises(er.InputError, match=r"^here"):
        read_table([{**columns[0], **told}], "here")
