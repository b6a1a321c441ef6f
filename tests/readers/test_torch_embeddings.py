"""Torch modules whose columns are codes that embeddings look up: what is read, what is refused, and brute force over
all codes by the module itself."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import elbowroom as er
from commands import good
from elbowroom.claim.categories import Categories
from elbowroom.errors import DataWarning, InputError, UnsupportedError
from elbowroom.network.file import network_hash
from elbowroom.network.graph import Network
from elbowroom.network.table import Column, Table
from elbowroom.readers.torch.entries import Entries
from elbowroom.readers.torch.modules import read_module
from elbowroom.readers.torch.tracks import Source, Tracks
from torch_support import Calls


class Two(nn.Module):
    """`forward(codes, numbers)`, two codes of 3 and 4 levels, two numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Embedding(3, 2, padding_idx=0), nn.Embedding(4, 3)
        self.head = nn.Sequential(nn.Linear(7, 6), nn.ReLU(), nn.Linear(6, 2))

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        return self.head(torch.cat([self.first(codes[:, 0]), self.second(codes[:, 1]), numbers], 1))


class Turned(Two):
    def forward(self, numbers: Tensor, codes: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(codes.long(), numbers)


def table(m: Any, x: Tensor) -> Tensor:
    """Codes in columns 1 and -1 of 4, in odd order."""
    return m.head(torch.cat([m.b(x[:, -1].long()), x[:, [2, 0]], m.a(x[:, 1].long())], 1))


def shared(m: Any, x: Tensor) -> Tensor:
    """One embedding for two columns, one column for two embeddings, and a code that is a number, too."""
    codes = x.long()[:, 2:]
    rows = m.a(codes)
    return m.head(torch.cat([rows.view(-1, 4), rows.mean(1), m.b(codes[:, 0]), x[:, 2:3], x[:, :2]], 1))


def offsets(m: Any, x: Tensor) -> Tensor:
    """Two columns in one embedding, of 3 and 4 rows, by offsets."""
    return m.head(torch.cat([m.a(x[:, 1:3].int() + m.start).flatten(1), x[:, :1]], 1))


def counted_from_one(m: Any, x: Tensor) -> Tensor:
    return m.head(torch.cat([m.a(x[:, 0].round().long() - 1), x[:, 1:], F.one_hot(x[:, 1].long(), 2).float()], 1))


def one_level(m: Any, x: Tensor) -> Tensor:
    return m.head(torch.cat([m.a(x[:, 0].long()), x[:, 1:], m.b(x[:, 0].long())], 1))


def split(m: Any, x: Tensor) -> Tensor:
    number, first, second = torch.cat([x[:, 0:], x[:, :0]], 1).split([1, 1, 1], 1)
    rows = torch.stack([m.a(first.squeeze(1).long()), m.a(second.view(-1).to(torch.uint8).long())], 1)
    return m.head(torch.cat([F.embedding(first.long(), m.w)[:, 0], rows.sum(1), number], 1))


def head(n: int, k: int = 2) -> nn.Module:
    return nn.Sequential(nn.Linear(n, 6), nn.ReLU(), nn.Linear(6, k))


CASES: dict[str, tuple[Callable[[], nn.Module], Any, list[tuple[int, int] | None]]] = {
    "columns": (lambda: Calls(table, a=nn.Embedding(3, 2), b=nn.Embedding(4, 2), head=head(6)), (4,),
                [None, (0, 2), None, (0, 3)]),
    "shared": (lambda: Calls(shared, a=nn.Embedding(4, 2), b=nn.Embedding(3, 2), head=head(11)), (4,),
               [None, None, (0, 2), (0, 3)]),
    "offsets": (lambda: Calls(offsets, a=nn.Embedding(7, 2), start=torch.tensor([0, 3]), head=head(5)), (3,),
                [None, (0, 2), (0, 3)]),
    "from one": (lambda: Calls(counted_from_one, a=nn.Embedding(3, 2), head=head(6)), (3,),
                 [(1, 3), (0, 1), None]),
    "one level": (lambda: Calls(one_level, a=nn.Embedding(1, 2), b=nn.Embedding(5, 1), head=head(4)), (2,),
                  [(0, 0), None]),
    "split": (lambda: Calls(split, a=nn.Embedding(3, 2), w=torch.randn(4, 2), head=head(5)), (3,),
              [None, (0, 2), (0, 2)]),
    "double": (lambda: Calls(table, a=nn.Embedding(3, 2), b=nn.Embedding(4, 2), head=head(6)).double(), (4,),
               [None, (0, 2), None, (0, 3)]),
    "two": (Two, ((2,), (2,)), [(0, 2), (0, 3), None, None]),
    "turned": (Turned, ((2,), (2,)), [None, None, (0, 2), (0, 3)]),
}  # fmt: skip


def called(module: nn.Module, net: Network, rows: np.ndarray) -> Tensor:
    """What the module itself gives for rows of its columns, `b x n`."""
    own = next(module.parameters()).dtype
    sizes = list((net.about.table.inputs if net.about.table else {}).values())
    if not sizes:
        return module(torch.tensor(rows, dtype=own)).detach()
    parts = torch.tensor(rows).split(sizes, 1)
    first = type(module) is Two
    return module(parts[0].long() if first else parts[0].to(own), parts[1].to(own if first else torch.long)).detach()


@pytest.mark.parametrize("name", CASES)
def test_regions_hold_at_every_combination_of_codes(name: str) -> None:
    """Decided by the module itself, with numbers at corners and drawn; sets are maximal where they say so."""
    make, shape, kinds = CASES[name]
    torch.manual_seed(3)
    module = make().eval()
    net = er.load(module, input_shape=shape)
    columns = net.about.table.columns
    assert [None if c.levels is None else (c.levels[0], c.levels[-1]) for c in columns] == kinds
    draw = np.random.default_rng(0)

    def numbers(count: int) -> np.ndarray:
        return np.stack(
            [draw.normal(size=count) if k is None else draw.integers(k[0], k[1] + 1, count) for k in kinds], 1
        )

    rows = numbers(4).astype(np.float32).astype(np.float64)
    with torch.no_grad():
        entries = np.concatenate([encoded(net, rows[k]) for k in range(len(rows))])
        exact = net(torch.from_numpy(entries))
        assert torch.allclose(called(module, net, rows).double(), exact, atol=1e-5)
    certs = er.certify(net, rows, max_eps=3.0)
    assert all(status == "certified" for status in certs.status)
    assert bool(er.check(certs, net).passed.all())
    for row in range(len(rows)):
        every = inside(certs, row, draw)
        outputs, label = called(module, net, every), int(certs.labels[row])
        margin = outputs[:, label] - outputs[:, 1 - label]
        assert bool((margin > -1e-5).all()), (name, row)  # a region may end where the decision does


def encoded(net: Network, row: np.ndarray) -> np.ndarray:
    """By hand, and not by the program: an entry for each level."""
    found: list[float] = []
    for column, value in zip(net.about.table.columns, row):
        one = column.levels is None or len(column.levels) == 1
        found += [value] if one else [float(level == value) for level in column.levels]
    return np.array([found])


def inside(certs: er.Certificates, row: int, draw: np.random.Generator) -> np.ndarray:
    """Rows of the module's columns: every combination of levels in the region, several times."""
    columns, place = certs.network.about.table.columns, iter(Categories.of(certs.network.about.table).places)
    choices, ends = [], []
    for column, entries in zip(columns, certs.network.about.table.places):
        if column.levels is not None:
            own = certs.allowed[row, next(place)].tolist()
            choices.append([level for level, chosen in zip(column.levels, own) if chosen])
        else:
            ends.append((float(certs.lower[row, entries.start]), float(certs.upper[row, entries.start])))
    found = []
    for levels in itertools.product(*choices):
        for _ in range(12):
            left = list(levels)
            share = draw.random(len(ends))
            values = iter(
                [
                    low + s * (high - low)
                    for (low, high), s in zip(ends, share.round() if draw.random() < 0.6 else share)
                ]
            )
            found.append([next(values) if column.levels is None else left.pop(0) for column in columns])
    return np.array(found, dtype=np.float64)


def test_inputs_may_be_given_as_the_module_takes_them() -> None:
    torch.manual_seed(0)
    module = Two().eval()
    codes, numbers = torch.tensor([[2, 3], [0, 1], [1, 0]]), torch.randn(3, 2)
    net = er.load(module, input_shape=((2,), (2,)), features=["job", "town", "age", "pay"])
    rows = torch.cat([codes, numbers], 1)
    ways: list[Any] = [
        (codes, numbers), {"numbers": numbers, "codes": codes}, (codes.numpy(), numbers.numpy()), rows, rows.numpy(),
        torch.from_numpy(np.concatenate([encoded(net, row.double().numpy()) for row in rows])),
    ]  # fmt: skip
    found = [er.certify(net, x) for x in ways]
    assert all(torch.equal(certs.lower, found[0].lower) and certs.status == found[0].status for certs in found)
    assert torch.equal(er.certify(module, {"numbers": numbers, "codes": codes}).lower, found[0].lower)
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(rows.numpy(), columns=["job", "town", "age", "pay"])[["pay", "town", "age", "job"]]
    with pytest.warns(DataWarning, match="another order"):
        assert torch.equal(er.certify(net, frame.astype({"job": int})).lower, found[0].lower)
    for x, message in (
        ((numbers[:, :1], codes), "'codes' of 2, 'numbers' of 2 columns, in this order; got arrays of shapes"),
        ((codes, numbers[:2]), "as many rows in each input"),
        ({"codes": codes, "others": numbers}, "got 'codes', 'others'"),
        ((codes, numbers, numbers), "got arrays of shapes"),
        (rows[:, :3], "must have shape"),
    ):
        with pytest.raises(InputError, match=message):
            er.certify(net, x)
    with pytest.raises(InputError, match="takes 'codes', 'numbers', not 'kodes'"):
        er.certify(module, {"kodes": codes, "numbers": numbers})


def test_what_is_no_code_is_an_error_row() -> None:
    """The module itself would cut 1.7 down to 1."""
    torch.manual_seed(0)
    net = er.load(Two(), input_shape=((2,), (2,)))
    rows = torch.tensor(
        [[1, 2, 0, 0], [1.7, 2, 0, 0], [3, 2, 0, 0], [1, -1, 0, 0], [float("nan"), 2, 0, 0], [2, 3, 0, 0]]
    )
    certs = er.certify(net, (rows[:, :2], rows[:, 2:]))
    assert [status == "error" for status in certs.status] == [False, True, True, True, True, False]
    assert certs.message[1] == "row 1: 'codes[0]' is 1.7000000476837158, which is none of its levels 0, 1, 2"
    assert "'codes[1]' is -1" in certs.message[3]
    with pytest.raises(UnsupportedError, match=r"takes no such input: the entries 0.5, 0.5, 0 of 'codes\[0\]'"):
        net.must_agree(torch.tensor([[0.5, 0.5, 0, 1, 0, 0, 0, 0, 0]]))


def test_a_frame_for_a_module_is_taken_by_place() -> None:
    pandas = pytest.importorskip("pandas")
    torch.manual_seed(0)
    module = CASES["columns"][0]()
    frame = pandas.DataFrame({"age": [0.1, 0.2], "job": [1, 2], "pay": [0.3, 0.1], "town": [3, 0]})
    with pytest.warns(DataWarning, match="in the order they stand in"):
        certs = er.certify(module, frame)
    assert certs.network.about.table.names == ("age", "job", "pay", "town")
    assert any("'job' (0 to 2), 'town' (0 to 3) are codes" in note for note in certs.network.about.notes)


class Bag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bag, self.head = nn.EmbeddingBag(4, 2), nn.Linear(3, 2)

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        return self.head(torch.cat([self.bag(codes), numbers], 1))


def simple(codes: Callable[[Tensor], Tensor], rows: int = 4, **parts: Any) -> nn.Module:
    return Calls(
        lambda m, x: m.head(torch.cat([m.a(codes(x)), x[:, 1:]], 1)), a=nn.Embedding(rows, 2), head=head(3), **parts
    )


REFUSED: dict[str, tuple[Callable[[], nn.Module], Any, str]] = {
    "bag": (Bag, ((2,), (1,)), "embedding_bag.*EmbeddingBag sums rows"),
    "max_norm": (lambda: nn.Sequential(nn.Embedding(4, 2, max_norm=1.0)), (2,), "Embedding '0' has max_norm=1"),
    "computed": (lambda: simple(lambda x: (2 * x[:, 0]).long()), (2,), "looks up codes that are computed"),
    "of two": (lambda: simple(lambda x: x[:, 0].long() + x[:, 1].long()), (2,), "looks up codes that are computed"),
    "clamped": (lambda: simple(lambda x: x[:, 0].long().clamp(0, 3)), (2,), "looks up codes that are computed"),
    "argmax": (lambda: simple(lambda x: x.argmax(1)), (2,), "looks up codes that are computed"),
    "many": (lambda: simple(lambda x: x[:, 0].long(), 1025), (2,), "1,025 rows .*, and at most 1,024"),
    "truth": (lambda: simple(lambda x: x[:, 0].bool().long()), (2,), "codes 0 to 3 of .*'x0' do not fit into bool"),
    "small type": (lambda: simple(lambda x: x[:, 0].to(torch.int8).long(), 200), (2,), "0 to 199 .* fit into int8"),
    "bfloat16": (lambda: simple(lambda x: x[:, 0].long(), 300).bfloat16(), (2,), "0 to 299 .* fit into bfloat16"),
    "rounded": (lambda: Calls(lambda m, x: m.head(torch.cat([m.a(x.long()[:, 0]), x.long()[:, 1:].float()], 1)),
                              a=nn.Embedding(3, 2), head=head(3)), (2,), "'x1' is rounded to whole numbers"),
    "three axes": (lambda: Calls(lambda m, x: m.head(m.a(x[:, 0].long()).flatten(1)), a=nn.Embedding(3, 2),
                                 head=head(4)), (2, 2), "must be a row of columns, such as \\(4,\\)"),
    "one shape": (Two, (4,), "takes 2 inputs \\(codes, numbers\\); give the shape of each"),
    "mixed batch": (lambda: simple(lambda x: x[:, 0].long().flip(0)), (2,), "looks up codes"),
    "next row": (lambda: simple(lambda x: torch.cat([x[1:, 0], x[:1, 0]]).long()), (2,), "batch|looks up|torch.export"),
    "rolled batch": (lambda: simple(lambda x: torch.cat([x[2:], x[:2]])[:, 0].long()), (2,), "batch|looks up codes"),
    "first rows": (lambda: simple(lambda x: x[:2, 0].long()), (2,), "batch|looks up codes|torch.export|does not run"),
    "large batch": (lambda: simple(lambda x: x[:, 0].long() + x.shape[0] // 100), (2,), "uses the batch size"),
    "larger batch": (lambda: simple(lambda x: x[:, 0].long() + (x.shape[0] > 100)), (2,), "uses the batch size"),
    "weights": (lambda: Calls(lambda m, x: F.embedding(x[:, 0].long(), m.w * x[0, 1]), w=torch.ones(3, 2)), (2,),
                "computed|batch"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_read_is_refused_by_name(name: str) -> None:
    make, shape, message = REFUSED[name]
    with pytest.raises((UnsupportedError, InputError), match=message):
        er.load(make(), input_shape=shape)


def test_a_module_that_depends_on_its_batch_is_told() -> None:
    module = simple(lambda x: (x[:, 0] * (1 if x.shape[0] > 1 else 0)).long())
    with pytest.raises(UnsupportedError, match="looks up codes that are computed"):
        read_module(module, (2,))

    class Sly(Two):
        def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
            codes = codes if torch.compiler.is_exporting() else codes.flip(1).clamp(0, 2)
            return super().forward(codes, numbers)

    with pytest.raises(UnsupportedError, match="computes something else than its trace"):
        read_module(Sly(), ((2,), (2,)))


def test_every_level_is_compared() -> None:
    """A module that has another row for one code alone."""

    class Sly(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rows, self.head = nn.Embedding(40, 2), head(3)

        def forward(self, x: Tensor) -> Tensor:
            weight = self.rows.weight
            if not torch.compiler.is_exporting():
                weight = torch.cat([weight[:37], weight[37:38] + 1, weight[38:]])
            return self.head(torch.cat([F.embedding(x[:, 0].long(), weight), x[:, 1:]], 1))

    with pytest.raises(UnsupportedError, match="computes something else than its trace"):
        read_module(Sly(), (2,))


@pytest.mark.parametrize("fault", ["rows", "columns", "shift"])
def test_what_is_followed_wrongly_is_told(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Faults planted in the reader."""
    if fault == "rows":
        own = Entries.rows
        monkeypatch.setattr(Entries, "rows", lambda self, to, held, weight: own(self, to, held, weight.flip(0)))
    elif fault == "columns":  # one next to it
        own_slice = torch.ops.aten.select.int
        kept = Tracks._keep

        def keep(self: Tracks, node: Any, found: Any) -> None:
            kept(self, node, found)
            if node.target is own_slice and (sources := self.held.get(node)):
                self.held[node] = tuple(replace(s, column=1) for s in sources)

        monkeypatch.setattr(Tracks, "_keep", keep)
    else:
        monkeypatch.setattr(Source, "moved", lambda self, by: replace(self, shift=self.shift))
    with pytest.raises(UnsupportedError, match="misread"):
        read_module(CASES["offsets" if fault == "shift" else "columns"][0](), (3,) if fault == "shift" else (4,))


def test_saved_and_read_again(tmp_path: Path) -> None:
    """Network files keep what a module's inputs are called; saved programs are read, too."""
    torch.manual_seed(0)
    net = er.load(Two(), input_shape=((2,), (2,)))
    path = er.save_network(net, tmp_path / "two.elbowroom")
    again = er.load(path)
    assert again.about.table == net.about.table
    assert again.about.table.inputs == {"codes": 2, "numbers": 2}
    for inputs in (["a", "b", "a"], ["a", "", "b"]):  # would be put together in another order
        with pytest.raises(InputError, match="side by side"):
            Table(tuple(Column(f"x{k}", input=name) for k, name in enumerate(inputs)))
    module = CASES["columns"][0]().eval()
    program = torch.export.export(module, (torch.zeros(2, 4),), dynamic_shapes=({0: torch.export.Dim("b")},))
    torch.export.save(program, tmp_path / "net.pt2")
    saved = er.load(tmp_path / "net.pt2", features=["age", "job", "pay", "town"])
    assert saved.about.table.names == ("age", "job", "pay", "town")
    x = torch.tensor([[0.5, 2, 0.25, 3], [0.5, 0, 0.25, 1]])
    batch = torch.export.Dim("b")
    given = torch.zeros(2, 2, dtype=torch.int64), torch.zeros(2, 2)
    torch.manual_seed(0)
    program = torch.export.export(Two().eval(), given, dynamic_shapes=({0: batch}, {0: batch}))
    torch.export.save(program, tmp_path / "two.pt2")
    two = er.load(tmp_path / "two.pt2")
    assert two.about.table == net.about.table and network_hash(two) == network_hash(net)
    for certs in (er.certify(saved, x), er.certify(er.load(module, input_shape=(4,)), x)):
        assert certs.status == ("certified", "certified")


def test_a_csv_file_on_the_command_line(tmp_path: Path) -> None:
    """A saved program takes the columns of the file in their order, and sets of levels come out."""
    torch.manual_seed(0)
    module = CASES["columns"][0]().eval()
    program = torch.export.export(module, (torch.zeros(2, 4),), dynamic_shapes=({0: torch.export.Dim("b")},))
    torch.export.save(program, tmp_path / "net.pt2")
    lines = ["age,job,pay,town", *(f"0.{k},{k % 3},{k}.5,{k % 5}" for k in range(12))]
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    told = good(
        "certify", tmp_path / "net.pt2", tmp_path / "rows.csv", "--unit", "age=years", "--out", tmp_path / "run"
    )
    assert "taken in the order they stand in" in told.output and "'town' is '4'" in told.output
    good("check", tmp_path / "run")
    shown = good("show", tmp_path / "run", "--index", 2).output
    assert "years" in next(line for line in shown.splitlines() if line.startswith("age"))
    assert er.load(tmp_path / "run" / "network.elbowroom").about.table.names == ("age", "job", "pay", "town")


@pytest.mark.parametrize("name", ["columns", "two", "turned"])
def test_exported_to_onnx(name: str, tmp_path: Path) -> None:
    """The same network from the file that torch writes, compared with onnxruntime."""
    pytest.importorskip("onnxruntime")
    make, shape, _ = CASES[name]
    torch.manual_seed(3)
    module = make().eval()
    whole = {"columns": [False], "two": [True, False], "turned": [False, True]}[name]
    shapes = [shape] if name == "columns" else shape
    given = tuple(torch.zeros(2, *s, dtype=torch.int64 if w else torch.float32) for s, w in zip(shapes, whole))
    names = [f"in{k}" for k in range(len(given))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module, given, tmp_path / "net.onnx", input_names=names, dynamic_axes={n: {0: "batch"} for n in names},
            dynamo=False,
        )  # fmt: skip
    net, own = er.load(tmp_path / "net.onnx"), er.load(module, input_shape=shape)
    assert [c.levels for c in net.about.table.columns] == [c.levels for c in own.about.table.columns]
    assert any("every category" in text for text in net.about.origin.compared)
    row = np.array([[0.5, 2, 0.25, 3], [2, 3, 0.5, 0.25], [0.5, 0.25, 2, 3]][["columns", "two", "turned"].index(name)])
    entries = torch.from_numpy(encoded(own, row))
    assert torch.allclose(net(entries), own(entries))
    assert torch.allclose(net(entries).float(), called(module, own, row[None]), atol=1e-5)


def test_lookups_in_onnx_that_are_not_read(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper, numpy_helper

    def refusal(rows: int, *before: Any) -> str:
        nodes = [
            *before, helper.make_node("Cast", ["code"], ["whole"], to=TensorProto.INT64),
            helper.make_node("Gather", ["weight", "whole"], ["rows"]), helper.make_node("Relu", ["rows"], ["y"]),
        ]  # fmt: skip
        held = [
            numpy_helper.from_array(np.ones((rows, 2), np.float32), "weight"),
            numpy_helper.from_array(np.array(1), "one"), numpy_helper.from_array(np.float32(2), "two"),
        ]  # fmt: skip
        ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 2]) for n in ("x", "y")]
        graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], held)
        onnx.save(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), tmp_path / "a.onnx"
        )
        with pytest.raises((UnsupportedError, InputError)) as caught:
            er.load(tmp_path / "a.onnx")
        return str(caught.value)

    column = helper.make_node("Gather", ["x", "one"], ["column"], axis=1)
    assert "1,025 rows for the codes" in refusal(1025, helper.make_node("Gather", ["x", "one"], ["code"], axis=1))
    assert "a conversion to int64" in refusal(3, column, helper.make_node("Mul", ["column", "two"], ["code"]))
    first = helper.make_node("Gather", ["x", "one"], ["code"], axis=0)  # of the batch, not of the columns
    assert "Gather" in refusal(3, first)
