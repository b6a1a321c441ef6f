"""A field of the certificates is declared once: whatever is declared is saved, read, cut, joined, checked and blank as
it should be, fields that this test alone declares included."""

# ruff: noqa: RUF009 (`column` makes a field; it is no default)
import dataclasses
import functools
import math
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor

import elbowroom as er
from elbowroom.certificates import parts
from elbowroom.certificates.pages import Odd
from elbowroom.certificates.result import MOST_WORDS, Certificates, sizes_of
from elbowroom.certificates.schema import (
    FINITE,
    ROLES,
    Column,
    Ragged,
    blank_rows,
    column,
    columns,
    declared,
    joined,
    write_rows,
)  # fmt: skip
from elbowroom.certificates.store import Run
from elbowroom.files import digest
from elbowroom.network import operations as ops
from elbowroom.runs.engines import transport
from forgery import edit_archive, edit_rows, edit_run
from support import mlp

N = 4
BASIS = torch.linalg.qr(torch.tensor(np.random.default_rng(1).normal(size=(N, N)))).Q
NET = mlp(np.random.default_rng(0), [N, 8, 3], ops.ReLU())
X = torch.tensor(np.random.default_rng(2).uniform(-1, 1, size=(5, N)))
DAMAGES = 150
PART = "parts/part-00000.parquet"


@dataclass(frozen=True, eq=False)
class Richer(er.Certificates):
    """Certificates with a column of every kind that none has yet."""

    weight: torch.Tensor = column("float64", "b k", role="hint", blank=0.5, span=FINITE)
    note: tuple[str, ...] = column("text", "b", role="report", blank="none")
    picked: torch.Tensor | None = column("bool", "b n", role="claim", blank=True, when="picks")
    chosen: torch.Tensor | None = column("bool", "1|b s", role="claim", when="picks")
    betas: Ragged | None = column("float64", "b ..6", role="hint", when="trees", span=FINITE)
    nodes: Ragged | None = column("int64", "b ..6", role="claim", when="trees")
    marks: Ragged | None = column("bool", "b ..3", role="claim", when="trees")


@functools.cache
def plain() -> Certificates:
    certs = er.certify(NET, X, domain=(-1, 1))
    assert certs.certified.any()
    return certs


def richer(**more: Tensor | tuple[Any, ...] | None) -> Richer:
    rows = blank_rows(Richer, sizes_of(NET, None), X, {"boxes", "picks", "splits", "trees"})
    lengths = [3, 0, 6, 1, 0]
    new = {
        "weight": torch.arange(15.0).double().reshape(5, 3),
        "note": ["a", "", "é" * 5, "b", "c"],
        "picked": torch.arange(5 * N).reshape(5, N) % 3 == 0,
        "trees": [torch.arange(n) * 3 for n in lengths],
        "betas": [torch.arange(n).double() / 7 for n in lengths],
        "nodes": [torch.arange(n) - 2 for n in lengths],
        "marks": [torch.arange(n // 2) % 2 == 0 for n in lengths],
    }
    write_rows(rows, new, 0)
    own = {name: tuple(rows[name]) if isinstance(rows[name], list) else rows[name] for name in new}
    found = Richer(**{**vars(plain()), **own}, chosen=torch.tensor([[True, False, True, False]]))
    return dataclasses.replace(found, **more)


def same(a: str | Tensor | tuple[Any, ...] | None, b: str | Tensor | tuple[Any, ...] | None) -> bool:
    """To the last bit."""
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and a.numpy().tobytes() == b.numpy().tobytes()
    return a == b


def assert_same(a: Richer, b: Richer) -> None:
    assert type(a) is type(b)
    for name in declared(type(a)):
        assert same(getattr(a, name), getattr(b, name)), name


# --- what is declared


def test_every_field_is_declared() -> None:
    beside = {"settings", "network", "missing"}  # what all certificates have in common, and is no column
    assert {f.name for f in dataclasses.fields(er.Certificates)} == {*declared(er.Certificates), *beside}
    for name, c in declared(er.Certificates).items():
        assert c.role in ROLES and c.kind in ("float64", "int64", "bool", "text"), name
        assert c.show is None or format(1.0, c.show)


@pytest.mark.parametrize(("kind", "role"), [("float32", "claim"), ("float64", "rumour")])
def test_there_are_no_other_kinds_and_roles(kind: str, role: str) -> None:
    with pytest.raises(ValueError, match=r"no kind|no role"):
        column(kind, "b", role=role)


def test_inputs_without_a_certificate() -> None:
    """Declared, and what `certify` gives, are the same."""
    x = X.clone()
    x[0, 0], x[1, 1] = math.nan, 7.0
    certs = er.certify(NET, x, domain=(-1, 1))
    assert certs.status[:2] == ("nonfinite", "error")
    blank = blank_rows(er.Certificates, sizes_of(NET, None), x, {"boxes"})
    reported = {"status", "message", "ended", "labels", "seconds"}
    for name in blank.keys() - reported:
        assert same(getattr(certs, name)[:2].contiguous(), blank[name][:2]), name
    rich = blank_rows(Richer, sizes_of(NET, None), x, {"trees"})
    assert rich["note"] == ["none"] * 5 and (rich["weight"] == 0.5).all() and "picked" not in rich
    assert [len(entry) for entry in rich["betas"]] == [0] * 5 and rich["nodes"][0].dtype == torch.int64


# --- declared here, and nowhere else


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return richer().save(tmp_path_factory.mktemp("rich") / "run")


@pytest.fixture
def run(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "run"))


def test_new_fields_are_saved_and_read(saved: Path) -> None:
    assert_same(Richer.load(saved), richer())
    names = pq.read_schema(saved / PART).names
    assert names == [
        *(n for n in columns(Richer, {"boxes", "picks", "splits", "trees"}) if n != "chosen"),
        "checksum",
    ]
    assert pq.read_schema(saved / PART).field("betas").type == pa.list_(pa.field("element", pa.float64(), False))
    with pytest.raises(er.InputError, match=r"has cannot be|the column 'weight' is unknown"):
        er.Certificates.load(saved)  # which do not know them


def test_new_fields_in_several_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elbowroom.certificates.store.PART_BYTES", 2000)
    assert len(list((richer().save(tmp_path) / "parts").iterdir())) > 1
    assert_same(Richer.load(tmp_path), richer())
    shutil.rmtree(tmp_path / "parts")
    nothing = Richer.load(tmp_path)
    assert nothing.missing == 5 and nothing.betas == () and nothing.picked.shape == (0, N)


def test_parts_that_are_not_there(tmp_path: Path) -> None:
    certs = richer(picked=None, chosen=None, betas=None, nodes=None, marks=None)
    assert_same(Richer.load(certs.save(tmp_path)), certs)


def test_new_fields_are_cut_and_joined() -> None:
    certs = richer()
    pieces = [certs.rows(0, 2), certs.rows(2, 3), certs.rows(3, 5)]
    assert pieces[1].note == ("é" * 5,) and len(pieces[1].betas[0]) == 6 and len(pieces[0].chosen) == 1
    assert_same(joined(pieces), certs)
    assert joined(pieces[:1]) is pieces[0]


def test_what_stood_for_all_of_some_stands_for_those_alone() -> None:
    certs = richer()
    some: Any = certs.rows(2, 5)
    other = dataclasses.replace(some, chosen=~certs.chosen)
    both = joined([certs.rows(0, 2), other])
    both.must_fit(NET)
    assert both.chosen.shape == (5, N) and same(both.chosen[:2].clone(), certs.chosen.expand(2, N).clone())
    assert same(both.chosen[4].clone(), ~certs.chosen[0]) and len(both.lowest) == 1


def test_new_fields_travel_between_processes() -> None:
    certs = richer()
    content = transport.packed(certs)
    assert all(isinstance(entry, np.ndarray) for entry in content["betas"])
    again = Richer(network=NET, **{name: transport._tensor(value) for name, value in content.items()})
    assert_same(again, certs)


WRONG = {
    "another type": ({"weight": torch.zeros(5, 3)}, "weight must hold torch.float64 numbers of shape"),
    "another shape": ({"weight": torch.zeros(5, 2).double()}, r"weight must hold .* of shape \(5, 3\), not"),
    "NaN": ({"weight": torch.full((5, 3), math.nan).double()}, "weight must hold finite numbers"),
    "missing": ({"picked": None}, "the certificates have no picked"),
    "one text too few": ({"note": ("a",) * 4}, "note must have 5 entries"),
    "no text": ({"note": (1,) * 5}, "note must hold texts"),
    "too many entries": ({"betas": (torch.zeros(7).double(),) * 5}, "betas must hold .* 6 at most"),
    "two axes": ({"betas": (torch.zeros(1, 2).double(),) * 5}, "betas must hold .* along one axis"),
    "another type of entries": ({"nodes": (torch.zeros(2),) * 5}, "nodes must hold torch.int64"),
    "an entry too few": ({"nodes": (torch.zeros(2).long(),) * 4}, "nodes must have 5 entries"),
    "an infinite entry": ({"betas": (torch.tensor([math.inf]).double(),) * 5}, "betas must hold finite"),
    "a tensor": ({"betas": torch.zeros(5).double()}, "the certificates have no betas"),
}


@pytest.mark.parametrize("name", list(WRONG))
def test_what_does_not_fit_is_not_saved(tmp_path: Path, name: str) -> None:
    change, words = WRONG[name]
    with pytest.raises(er.InputError, match=words):
        richer(**change).save(tmp_path)


# --- checksums


def nudged(value: Any) -> Any:
    """Changed as little as can be."""
    if isinstance(value, list):
        return [*value[:-1], nudged(value[-1])]
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return value + "!"
    return math.nextafter(value, math.inf) if isinstance(value, float) else value + 1


LEFT_OUT = ("index", "reach", "faces", "imputed", "explained", "categories", "values")  # parts the run here lacks
PER_ROW = [n for n, c in declared(Richer).items() if c.per_input and not c.shareable and c.when not in LEFT_OUT]


@pytest.mark.parametrize("name", PER_ROW)
def test_a_changed_value_is_noticed(run: Path, name: str) -> None:
    row = 3 if name != "marks" else 0  # the last with entries
    edit_rows(run, name, lambda rows: rows.__setitem__(row, nudged(rows[row])))
    with pytest.raises(er.InputError, match=rf"\(row {row}\) was changed: it does not match its checksum"):
        Richer.load(run)


def test_an_entry_that_moves_to_the_next_row_is_noticed(run: Path) -> None:
    """The numbers one after the other are the same; the rows are not."""

    def change(rows: list[list[float]]) -> None:
        rows[1], rows[2] = rows[2][:1], rows[2][1:]

    edit_rows(run, "betas", change)
    with pytest.raises(er.InputError, match=r"\(row 1\) was changed"):
        Richer.load(run)


SHARED = [name for name, c in declared(Richer).items() if c.shareable or not c.per_input]


@pytest.mark.parametrize("name", SHARED)
def test_a_changed_value_that_all_share_is_noticed(tmp_path: Path, name: str) -> None:
    spec = er.linear_specification(torch.eye(3), torch.ones(3) * 9)
    region = er.Oblique(BASIS) if name == "basis" else er.Box()
    certs = er.certify(NET, X, spec=spec, region=region, domain=(-1, 1))
    blank = blank_rows(Richer, sizes_of(NET, certs.spec_group), X, {"picks"})
    own = {n: tuple(blank[n]) if n == "note" else blank[n] for n in ("weight", "note", "picked")}
    run = Richer(**vars(certs), **own, chosen=torch.ones(1, N, dtype=torch.bool)).save(tmp_path)
    Richer.load(run)

    def change(entries: dict[str, bytes]) -> None:
        data = bytearray(entries[f"{name}.npy"])
        data[-8] ^= 1  # the last bit of a number; a boolean
        entries[f"{name}.npy"] = bytes(data)

    if name == "chosen":
        edit_archive(run / "shared.npz", lambda e: e.update({"chosen.npy": e["chosen.npy"][:-1] + b"\0"}))
    else:
        edit_archive(run / "shared.npz", change)
    with pytest.raises(er.InputError, match=f"the content of {name} does not match its checksum in run.json"):
        Richer.load(run)


# --- lists that differ in length are no way to fill a memory


def test_lists_without_end(run: Path) -> None:
    """A few bytes say that a row has millions of entries, or that there are millions of rows without any."""
    table = pq.read_table(run / PART)
    at = table.schema.get_field_index("betas")
    for lists in ([[0.0] * 10**6] + [[]] * 4, [[0.0] * 7, *[[0.0] * 6] * 4]):
        column_ = pa.array(lists, type=table.schema.field(at).type)
        pq.write_table(
            table.set_column(at, table.schema.field(at), column_), run / PART, compression="zstd", use_dictionary=False
        )
        assert (run / PART).stat().st_size < 50_000
        with pytest.raises(er.InputError, match="the pages of the column 'betas' do not hold 5 to 30 values"):
            Richer.load(run)


def test_a_list_longer_than_declared(run: Path) -> None:
    """Within what all rows may take together, but not within what one may."""
    edit_rows(run, "betas", lambda rows: rows.__setitem__(2, [1.0] * 7))
    edit_rows(run, "checksum", lambda rows: rows.__setitem__(slice(None), sums(run)))
    with pytest.raises(er.InputError, match=r"betas must hold .* 6 at most for an input"):
        Richer.load(run)


def sums(run: Path) -> list[bytes]:
    opened = Run.open(run, Richer)
    cells = parts.cells_of(columns(Richer, opened.claim["has"]), sizes_of(NET, None), opened.claim["shared"])
    table = pq.read_table(run / PART)
    values = {n: table.column(n).to_pylist() for n in cells}
    rows = {n: v if c.kind == "text" or c.ragged else np.array(v) for (n, v), c in zip(values.items(), cells.values())}
    return parts.row_checksums(rows, cells, digest(opened.claim))


def test_pages_of_lists_are_counted() -> None:
    cells = {"a": parts.Cell("float64", 6, True)}
    for values, good in ((4, False), (5, True), (30, True), (31, False)):
        found = {"a": parts.Unpacked(values, 8), "checksum": parts.Unpacked(5, 160)}
        if good:
            parts._refuse_bombs(found, cells, 5)
        else:
            with pytest.raises(Odd, match="5 to 30 values"):
                parts._refuse_bombs(found, cells, 5)
    found = {"a": parts.Unpacked(30, 2 * 5 * 48 + (1 << 13) + 1), "checksum": parts.Unpacked(5, 160)}
    with pytest.raises(Odd, match="more than 5 rows need"):
        parts._refuse_bombs(found, cells, 5)


def test_damaged_lists(saved: Path, tmp_path: Path) -> None:
    """Bits of a file turned that has no checksums of pages, and so the lengths of lists as well: refused in words, or
    nothing that matters was hit."""
    right, run, rng = Richer.load(saved), Path(shutil.copytree(saved, tmp_path / "run")), np.random.default_rng(0)
    pq.write_table(pq.read_table(run / PART), run / PART, compression="none", use_dictionary=False)
    good, refused = (run / PART).read_bytes(), 0
    for _ in range(DAMAGES):
        content = bytearray(good)
        for place in rng.integers(len(good), size=rng.integers(1, 4)):
            content[place] ^= 1 << int(rng.integers(8))
        (run / PART).write_bytes(bytes(content))
        try:
            assert_same(Richer.load(run), right)
        except er.InputError as error:
            assert str(run) in str(error)
            refused += 1
    assert refused > DAMAGES / 4


def test_sizes_that_run_json_invents(run: Path) -> None:
    """Lists count for what they may take, so that no part is larger than it may be."""
    claim = Run.open(run, Richer).claim
    each = parts.bytes_per_row(parts.cells_of(columns(Richer, claim["has"]), sizes_of(NET, None), claim["shared"]))
    lists = {n: c for n, c in declared(Richer).items() if c.most is not None}
    without = {n: c for n, c in columns(Richer, claim["has"]).items() if n not in lists}
    fewer = parts.bytes_per_row(parts.cells_of(without, sizes_of(NET, None), claim["shared"]))
    assert each - fewer == 8 * (MOST_WORDS + 6 + 6 + 3)
    edit_run(run, lambda r: r["claim"]["sizes"].update(groups=1 << 39))
    with pytest.raises(er.InputError, match="one certificate of this network takes"):
        Richer.load(run)


def test_a_column_says_what_it_is() -> None:
    c = declared(Richer)["betas"]
    assert isinstance(c, Column) and c.most == 6 and c.in_tuple and c.per_input and not c.shareable
