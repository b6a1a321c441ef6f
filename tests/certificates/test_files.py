"""Network files and runs: what is written is read again, exactly; what was damaged or changed is refused by name."""

import dataclasses
import hashlib
import json
import math
import os
import shutil
import struct
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor

import elbowroom as er
from elbowroom.certificates import store as run_files
from elbowroom.certificates.result import Certificates
from elbowroom.network import operations as ops
from elbowroom.network.file import OPERATIONS, load_network, network_hash, save_network
from elbowroom.network.graph import About, Graph, Network, Node
from forgery import edit_archive, edit_graph, edit_rows, edit_run, every_operation, write_table
from support import BLOCKS, SHAPES, Builder, mlp

N = 5
BASIS = torch.linalg.qr(torch.tensor(np.random.default_rng(1).normal(size=(N, N)))).Q


def small(seed: int = 0, decision: str = "max") -> Network:
    return mlp(np.random.default_rng(seed), [N, 8, 8, 3], ops.ReLU(), decision=decision)


def points(count: int = 4, seed: int = 0, n: int = N) -> Tensor:
    return torch.tensor(np.random.default_rng(seed).uniform(-1, 1, size=(count, n)))


def assert_same_network(a: Network, b: Network) -> None:
    assert [(n.op.name, n.inputs, n.shape, n.name) for n in a.nodes] == [
        (n.op.name, n.inputs, n.shape, n.name) for n in b.nodes
    ]
    assert a.decision == b.decision
    for one, other in zip(a.nodes, b.nodes):
        for field in dataclasses.fields(one.op):
            left, right = getattr(one.op, field.name), getattr(other.op, field.name)
            if isinstance(left, torch.Tensor):
                assert left.dtype == right.dtype and left.shape == right.shape
                assert left.numpy().tobytes() == right.numpy().tobytes()
            else:
                assert left == right and type(left) is type(right)


# --------------------------------------------------------------------------------------------------------------
# Networks


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_operation_survives(tmp_path: Path, dtype: torch.dtype) -> None:
    net = every_operation(dtype=dtype)
    assert {n.op.name for n in net.nodes} == set(OPERATIONS)
    path = save_network(net, tmp_path / "one.elbowroom")
    again = load_network(path)
    assert_same_network(net, again)
    assert network_hash(again) == network_hash(net)
    save_network(again, tmp_path / "two.elbowroom")
    assert path.read_bytes() == (tmp_path / "two.elbowroom").read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["one.elbowroom", "two.elbowroom"]
    x = torch.randn(3, 2, 6, 6, dtype=dtype)
    assert torch.equal(net(x), again(x))


@pytest.mark.parametrize("seed", range(8))
def test_random_networks_survive(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    builder = Builder(rng, SHAPES[seed % len(SHAPES)], "plain")
    for kind in rng.choice(BLOCKS, 4):
        builder.block(str(kind))
        builder.activation("leaky")
    net = builder.network(3)
    again = load_network(save_network(net, tmp_path / "net.elbowroom"))
    assert_same_network(net, again)
    assert network_hash(again) == network_hash(net)


def test_numbers_are_exact(tmp_path: Path) -> None:
    rows = [[5e-324, -0.0, 1 / 3], [1.7976931348623157e308, -2.2250738585072014e-308, math.pi]]
    odd = torch.tensor(rows, dtype=torch.float64)
    net = Network.chain((3,), [ops.Linear(odd), ops.LeakyReLU(0.1), ops.Shift(torch.tensor(0.1))])
    again = load_network(save_network(net, tmp_path / "net.elbowroom"))
    assert_same_network(net, again)
    half = Network.chain((3,), [ops.Linear(torch.tensor([[1.5, 0.1, -3.0]], dtype=torch.bfloat16))])
    assert network_hash(load_network(save_network(half, tmp_path / "half.elbowroom"))) == network_hash(half)


def test_the_file_can_be_read_by_others(tmp_path: Path) -> None:
    """JSON for people, .npy for NumPy, a fixed date, nothing compressed."""
    net = every_operation()
    path = save_network(net, tmp_path / "net.elbowroom")
    with zipfile.ZipFile(path) as archive:
        graph = json.loads(archive.read("graph.json"))
        assert all(i.date_time == (1980, 1, 1, 0, 0, 0) and i.compress_type == 0 for i in archive.infolist())
    assert [n["operation"] for n in graph["nodes"]] == [n.op.name for n in net.nodes]
    assert graph["hash"] == network_hash(net)
    with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
        for k, node in enumerate(net.nodes):
            for field, t in node.op.tensors().items():
                assert np.array_equal(arrays[f"parameters/{k}.{field}"], t.numpy())


def test_the_hash_does_not_see_how_a_network_was_built() -> None:
    w = [torch.randn(4, 4) for _ in range(3)]

    def build(order: list[int], names: str, copies: bool = False) -> Network:
        g = Graph((4,))
        at = {}
        for k in order:
            at[k] = g.add(ops.Linear(w[k]), g.input, name=f"{names}{k}")
        left = g.add(ops.ReLU(), at[0])
        right = g.add(ops.ReLU(), g.add(ops.Linear(w[0]), g.input)) if copies else left
        return g.network(g.add(ops.Add((1.0, 1.0, 2.0, 1.0)), left, at[1], at[2], right))

    first = network_hash(build([0, 1, 2], "a"))
    assert first == network_hash(build([2, 0, 1], "b"))
    assert first == network_hash(build([0, 1, 2], "a", copies=True))
    net = build([0, 1, 2], "a")
    assert first == network_hash(net.cast(torch.float64)) == network_hash(er.load(net))
    assert first == network_hash(Network(net.nodes))
    assert network_hash(Network.chain((4,), [ops.Reshape((-1,)), ops.ELU(2)])) == network_hash(
        Network.chain((4,), [ops.Reshape((4,)), ops.ELU(2.0)])
    )


def test_the_hash_sees_every_number() -> None:
    net = every_operation()
    hashes = {network_hash(net)}
    count = 1
    for k, node in enumerate(net.nodes):
        for field, t in node.op.tensors().items():
            moved = t.clone()
            moved.view(-1)[-1] = torch.nextafter(moved.view(-1)[-1], torch.tensor(torch.inf, dtype=t.dtype))
            op = dataclasses.replace(node.op, **{field: moved})
            nodes = [*net.nodes[:k], Node(op, node.inputs, node.shape, node.name), *net.nodes[k + 1 :]]
            hashes.add(network_hash(Network(tuple(nodes), net.decision)))
            count += 1
    assert count > 15
    assert len(hashes) == count


def test_the_hash_sees_every_field() -> None:
    def one(*operations: ops.Operation, shape: tuple[int, int, int] = (2, 4, 4), decision: str = "max") -> str:
        return network_hash(Network.chain(shape, [*operations, ops.Reshape((-1,))], decision))

    weight = torch.ones(2, 1, 2, 2)
    hashes = [
        one(), one(decision="min"), one(shape=(2, 4, 5)), one(shape=(4, 2, 4)),
        one(ops.Conv(weight, groups=2)), one(ops.Conv(weight, groups=2, stride=(2, 2))),
        one(ops.Conv(weight, groups=2, padding=(1, 0))), one(ops.Conv(weight, groups=2, dilation=(1, 2))),
        one(ops.Conv(weight, torch.zeros(2), groups=2)),
        one(ops.Clip()), one(ops.Clip(-1.0, 2.0)), one(ops.Clip(-math.inf, 1.0)), one(ops.GELU()), one(ops.GELU(True)),
        one(ops.LeakyReLU(0.1)), one(ops.LeakyReLU(np.nextafter(0.1, 1))), one(ops.ReLU()), one(ops.ReLU(), ops.ReLU()),
        one(ops.Slice(1, 0, 2)), one(ops.Slice(2, 0, 2)), one(ops.Slice(1, 1, 3)), one(ops.Slice(1, 0, 4, 2)),
        one(ops.Pad((1, 1))), one(ops.Pad((1, 1), 1.0)), one(ops.Transpose((0, 2, 1))), one(ops.Transpose((1, 0, 2))),
        one(ops.AvgPool((2, 2), (1, 1))), one(ops.MaxPool((2, 2), (1, 1))), one(ops.MaxPool((2, 2), (1, 1), (1, 1))),
        one(ops.Mean((1,))), one(ops.Mean((2,))), one(ops.Mean((1,), keepdim=True)),
    ]  # fmt: skip
    g = Graph((3,))
    a, b = g.add(ops.ReLU(), g.input), g.add(ops.Tanh(), g.input)
    for op, inputs in (
        (ops.Add((1.0, -1.0)), (a, b)), (ops.Add((1.0, -1.0)), (b, a)), (ops.Add((1.0, 1.0)), (a, b)),
        (ops.Concat(0), (a, b)), (ops.Concat(0), (b, a)), (ops.Concat(0), (a, a)),
    ):  # fmt: skip
        hashes.append(network_hash(g.network(g.add(op, *inputs))))
    assert len(set(hashes)) == len(hashes)
    assert all(len(h) == 64 for h in hashes)


def test_load_reads_network_files(tmp_path: Path) -> None:
    net = small()
    path = save_network(net, tmp_path / "net.elbowroom")
    assert network_hash(er.load(str(path))) == network_hash(net)
    x = points()
    moved = er.load(path, mean=1.0, std=2.0, decision="min")
    torch.testing.assert_close(moved(x), net((x - 1) / 2))
    assert moved.decision == "min"
    with pytest.raises(er.InputError, match=r"inputs of shape \(7,\) do not fit the model, which takes \(5,\)"):
        er.load(path, input_shape=(7,))
    with pytest.raises(er.InputError, match=r"other\.elbowroom: there is no such file"):
        er.load(tmp_path / "other.elbowroom")
    with pytest.raises(er.InputError, match=r"net\.pkl"):
        er.load("net.pkl")


def test_names_are_made_fit_to_print(tmp_path: Path) -> None:
    net = small()
    names = ["input", "a\x1b[31m", "a\x1b[31m", "ключ", "b", "b"]
    nodes = tuple(Node(n.op, n.inputs, n.shape, name) for n, name in zip(net.nodes, names))
    again = load_network(save_network(Network(nodes), tmp_path / "net.elbowroom"))
    assert [n.name for n in again.nodes] == ["input", "a\\x1b[31m", "a\\x1b[31m_2", "ключ", "b", "b_5"]
    assert network_hash(again) == network_hash(net)


@pytest.mark.parametrize(("kind", "fields"), [(ops.Transpose, ((0, -2),)), (ops.Slice, (-1, 0, 1))])
def test_operations_that_would_touch_the_batch_are_not_saved(
    tmp_path: Path, kind: type[Any], fields: tuple[Any, ...]
) -> None:
    """Read one way by the forward pass and another by the proof: no certificate about such a network means anything."""
    with pytest.raises(er.InputError, match=rf"{kind.__name__}(\(.*\) does not fit| needs|: axes must)"):
        save_network(Network.chain((3, 3), [kind(*fields), ops.Reshape((-1,))]), tmp_path / "net.elbowroom")


def test_unknown_operations_are_not_saved(tmp_path: Path) -> None:
    class Cube(ops.Activation):
        def __call__(self, *xs: Any) -> Any:
            return xs[0] ** 3

    with pytest.raises(er.InputError, match="Cube"):
        save_network(Network.chain((3,), [Cube()]), tmp_path / "net.elbowroom")


def node_of(graph: dict[str, Any], operation: str) -> dict[str, Any]:
    return next(n for n in graph["nodes"] if n["operation"] == operation)


def setter(operation: str, where: Any, key: str, value: str) -> Callable[..., Any]:
    def change(graph: dict[str, Any]) -> None:
        node = node_of(graph, operation)
        (node if where is None else node[where])[key] = value

    return change


GRAPH_FORGERIES = {
    "format": (lambda g: g.update(format="pickle"), "format is 'pickle'"),
    "version": (lambda g: g.update(version=1), "version 1 is unknown; this program reads 4"),
    "version as text": (lambda g: g.update(version="2"), "version '2' is unknown"),
    "no version": (lambda g: g.pop("version"), "version None"),
    "no features": (lambda g: g.pop("features"), "'features' is missing"),
    "features as text": (lambda g: g.update(features="abc"), "'features' cannot be 'abc'"),
    "features as numbers": (lambda g: g.update(features=[1] * 72), "features must be a list of printable texts"),
    "too few features": (lambda g: g.update(features=["a"]), "72 different names are needed, got 1"),
    "same features": (lambda g: g.update(features=["a"] * 72), "72 different names are needed, got 1"),
    "escape sequence in a class": (lambda g: g.update(classes=["\x1b[2J"]), "classes must be a list of printable"),
    "too many classes": (lambda g: g.update(classes=list("abcdefg")), "different names are needed, got 7"),
    "no notes": (lambda g: g.update(notes=None), "notes must be a list of printable texts"),
    "line break in a note": (lambda g: g.update(notes=["certified\n"]), "notes must be a list of printable texts"),
    "unknown field": (lambda g: g.update(hook="os.system"), "'hook' is unknown"),
    "decision": (lambda g: g.update(decision="middle"), "decision must be"),
    "other decision": (lambda g: g.update(decision="max"), "was changed: its content has the hash"),
    "no nodes": (lambda g: g.update(nodes=[]), "no nodes"),
    "node is text": (lambda g: g["nodes"].append("Linear"), "an object was expected"),
    "no hash": (lambda g: g.pop("hash"), "'hash' is missing"),
    "other hash": (lambda g: g.update(hash="0" * 64), "was changed: its content has the hash"),
    "operation": (setter("Tanh", None, "operation", "Exec"), "operation 'Exec' is unknown"),
    "private operation": (setter("Tanh", None, "operation", "_ChannelScale"), "'_ChannelScale' is unknown"),
    "base class": (setter("Tanh", None, "operation", "Affine"), "'Affine' is unknown"),
    "another operation": (setter("Tanh", None, "operation", "Sigmoid"), "was changed: its content has the hash"),
    "second input": (setter("Tanh", None, "operation", "Input"), "shape' is missing"),
    "extra key": (setter("Tanh", None, "code", "import os"), "'code' is unknown"),
    "extra field": (setter("Tanh", "fields", "slope", 1.0), "Tanh has no 'slope'"),
    "dunder field": (setter("Tanh", "fields", "__class__", 1.0), "Tanh has no '__class__'"),
    "missing field": (lambda g: node_of(g, "Conv")["fields"].pop("stride"), "'stride' is missing"),
    "missing parameter": (lambda g: node_of(g, "Conv")["parameters"].pop("weight"), "'weight' is missing"),
    "dropped bias": (lambda g: node_of(g, "Conv")["parameters"].pop("bias"), "bias.npy' does not belong"),
    "field as text": (setter("Conv", "fields", "groups", "2"), "groups must be a whole number"),
    "field as bool": (setter("Conv", "fields", "groups", True), "groups must be a whole number"),
    "field as parameter": (setter("Conv", "parameters", "groups", {"type": "float32", "shape": []}), "no 'groups'"),
    "parameter as field": (setter("Linear", "fields", "weight", 1.0), "weight must be a parameter"),
    "shape of field": (setter("Conv", "fields", "stride", 3), "stride must be a list"),
    "field not a number": (setter("ELU", "fields", "alpha", None), "alpha must be a number"),
    "infinite field": (setter("ELU", "fields", "alpha", "inf"), "alpha must be finite"),
    "infinite sign": (setter("Add", "fields", "signs", [1.0, "inf"]), "signs must be finite"),
    "bad field": (setter("ELU", "fields", "alpha", -1.0), "alpha > 0"),
    "type": (lambda g: node_of(g, "Conv")["parameters"]["weight"].update(type="object"), "type 'object' is unknown"),
    "wrong type": (lambda g: node_of(g, "Conv")["parameters"]["weight"].update(type="float32"), "bytes; float32"),
    "wrong shape": (lambda g: node_of(g, "Conv")["parameters"]["weight"].update(shape=[4, 1, 2, 3]), "not an array of"),
    "larger shape": (lambda g: node_of(g, "Conv")["parameters"]["weight"].update(shape=[4, 1, 3, 3]), "take"),
    "absurd shape": (lambda g: node_of(g, "Conv")["parameters"]["weight"].update(shape=[1 << 40] * 3), "take"),
    "negative shape": (lambda g: node_of(g, "Conv")["parameters"]["weight"].update(shape=[-4, -1, 3, 2]), "not an arr"),
    "shape of a node": (setter("Conv", None, "shape", [4, 6, 5]), "but it computes"),
    "shape of the input": (setter("Input", None, "shape", [2, 6, 7]), "cannot have inputs of shape"),
    "empty input": (lambda g: g["nodes"][0].update(shape=[0], fields={"shape": [0]}), "must hold positive sizes"),
    "huge input": (
        lambda g: g["nodes"][0].update(shape=[1 << 50], fields={"shape": [1 << 50]}), "cannot have inputs of shape",
    ),
    "huge padding": (setter("Pad", "fields", "pads", [1 << 40, 1 << 40]), "may give more than"),
    "huge conv padding": (setter("Conv", "fields", "padding", [1 << 40, 0]), "may give more than"),
    "own input": (setter("Tanh", None, "inputs", [99]), "earlier nodes"),
    "negative input": (setter("Tanh", None, "inputs", [-1]), "earlier nodes"),
    "no input": (setter("Tanh", None, "inputs", []), "earlier nodes"),
    "surplus input": (setter("Tanh", None, "inputs", [1, 2]), r"Tanh\(\) does not fit"),
    "dead end": (setter("Concat", None, "inputs", [18] * 11), r"node 19 \(leakyrelu_19\) leads nowhere"),
    "same name": (setter("Tanh", None, "name", "input"), "used twice"),
    "escape sequence": (setter("Tanh", None, "name", "\x1b[2J"), "cannot be printed"),
    "batch slice": (setter("Slice", "fields", "axis", -1), "Slice (does not fit|needs)"),
    "backward slice": (setter("Slice", "fields", "step", -1), "Slice (does not fit|needs)"),
    "batch mean": (setter("Mean", "fields", "axes", [-1]), "Mean (does not fit|needs)"),
    "mean of all": (setter("Mean", "fields", "axes", []), "Mean (does not fit|needs)"),
    "transpose": (setter("Transpose", "fields", "axes", [0, 1, -3]), "Transpose: axes must name every axis once"),
    "batch concat": (setter("Concat", "fields", "axis", -2), "Concat.* does not fit"),
    "batch pad": (setter("Pad", "fields", "pads", [0] * 7 + [1]), "Pad.* does not fit"),
    "kernel": (setter("MaxPool", "fields", "kernel", [2]), "MaxPool: stride must hold 1 whole number"),
    "zero stride": (setter("MaxPool", "fields", "stride", [0, 0]), "stride must hold 2 whole numbers of at least 1"),
    "reshape": (setter("Reshape", "fields", "shape", [7]), "Reshape.* does not fit"),
}  # fmt: skip


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_network(every_operation(), tmp_path_factory.mktemp("network") / "net.elbowroom")


@pytest.fixture
def copy(stored: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(stored, tmp_path / "copy.elbowroom"))


@pytest.mark.parametrize("name", list(GRAPH_FORGERIES))
def test_graphs_that_are_refused(copy: Path, name: str) -> None:
    change, words = GRAPH_FORGERIES[name]
    edit_graph(copy, change)
    with pytest.raises(er.InputError, match=words) as refusal:
        load_network(copy)
    assert "copy.elbowroom" in str(refusal.value)


def test_an_edit_that_changes_nothing_is_read(copy: Path, stored: Path) -> None:
    """The table above would pass if every edited file were refused."""
    edit_graph(copy, lambda graph: None)
    assert_same_network(load_network(copy), load_network(stored))
    edit_graph(copy, setter("Tanh", None, "name", "renamed"))  # names are no part of the claim
    edit_graph(copy, lambda graph: graph.update(features=[f"f{k}" for k in range(72)], notes=["read me"]))
    assert load_network(copy).about == About(tuple(f"f{k}" for k in range(72)), None, ("read me",))
    assert network_hash(load_network(copy)) == network_hash(load_network(stored))


def one_weight(entries: dict[str, bytes]) -> None:
    data = bytearray(entries["parameters/3.weight.npy"])
    data[-8] ^= 1  # the last bit of the last number
    entries["parameters/3.weight.npy"] = bytes(data)


def no_number(entries: dict[str, bytes]) -> None:
    entries["parameters/3.weight.npy"] = entries["parameters/3.weight.npy"][:-8] + struct.pack("<d", math.nan)


def pickled(entries: dict[str, bytes]) -> None:
    """An array of objects, whose pickle would run code."""
    header = "{'descr': '|O', 'fortran_order': False, 'shape': (4, 1, 3, 2), }"
    size = len(entries["parameters/3.weight.npy"])
    data = b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + header.ljust(117).encode() + b"\ncposix\nsystem\n"
    entries["parameters/3.weight.npy"] = data.ljust(size, b".")


def renamed(entries: dict[str, bytes]) -> None:
    entries["../evil.npy"] = entries.pop("parameters/3.weight.npy")


ARCHIVE_FORGERIES = {
    "one weight, one bit": (one_weight, "was changed: its content has the hash"),
    "NaN": (no_number, "weight holds NaN"),
    "pickle": (pickled, "not an array of float64"),
    "leaves the archive": (renamed, r"'\.\./evil\.npy' has a name that leaves"),
    "absolute": (lambda e: e.update({"/etc/passwd": b""}), "leaves the archive"),
    "backslash": (lambda e: e.update({"a\\b": b""}), "leaves the archive"),
    "surplus": (lambda e: e.update({"setup.py": b"import os"}), "'setup.py' does not belong"),
    "missing": (lambda e: e.pop("parameters/3.weight.npy"), "weight.npy' is missing"),
    "shorter": (lambda e: e.update({"parameters/3.weight.npy": b"\x93NUMPY"}), "has 6 bytes"),
    "no graph": (lambda e: e.pop("graph.json"), "'graph.json' is missing"),
    "graph is no text": (lambda e: e.update({"graph.json": b"\xff\xfe"}), "graph.json is damaged"),
    "graph is a list": (lambda e: e.update({"graph.json": b"[]"}), "no JSON object"),
    "graph nests": (lambda e: e.update({"graph.json": b"[" * 100000}), "graph.json is damaged"),
    "graph says NaN": (lambda e: e.update({"graph.json": b'{"a": NaN}'}), "NaN is not a number"),
    "graph overflows": (lambda e: e.update({"graph.json": b'{"a": 1e999}'}), "graph.json is damaged"),
    "graph repeats": (lambda e: e.update({"graph.json": b'{"a": 1, "a": 2}'}), "a key appears twice"),
}


@pytest.mark.parametrize("name", list(ARCHIVE_FORGERIES))
def test_archives_that_are_refused(copy: Path, name: str) -> None:
    change, words = ARCHIVE_FORGERIES[name]
    edit_archive(copy, change)
    with pytest.raises(er.InputError, match=words) as refusal:
        load_network(copy)
    assert "copy.elbowroom" in str(refusal.value)


def test_compressed_repeated_and_overlapping_entries_are_refused(copy: Path) -> None:
    with zipfile.ZipFile(copy, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb.npy", bytes(10**6))
    with pytest.raises(er.InputError, match=r"'bomb\.npy' is compressed"):
        load_network(copy)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with zipfile.ZipFile(copy, "w") as archive:
            archive.writestr("graph.json", b"{}")
            archive.writestr("graph.json", b"{}")
    with pytest.raises(er.InputError, match=r"'graph\.json' appears twice"):
        load_network(copy)
    with zipfile.ZipFile(copy, "w") as archive:
        archive.writestr("graph.json", b"{}")
        info = archive.infolist()[0]
        info.file_size = info.compress_size = 10**12
    with pytest.raises(er.InputError, match="claim 1000000000000 bytes"):
        load_network(copy)


def damaged(good: bytes, rng: np.random.Generator, count: int) -> Iterator[bytes]:
    """Truncated at every kind of place, bits flipped, stretches overwritten, plain noise."""
    yield from (b"", b"garbage", good[:-1], good[: len(good) // 2], good[1:], good + b"x" if good[:1] != b"{" else b"{")
    for _ in range(count):
        yield good[: rng.integers(len(good))]
        flipped = bytearray(good)
        flipped[rng.integers(len(good))] ^= 1 << int(rng.integers(8))
        yield bytes(flipped)
        start = int(rng.integers(len(good)))
        yield good[:start] + rng.bytes(20) + good[start + 20 :]
        yield rng.bytes(300)


def test_damaged_network_files(stored: Path, tmp_path: Path) -> None:
    path, good = tmp_path / "net.elbowroom", stored.read_bytes()
    right, read = network_hash(load_network(stored)), 0
    for data in damaged(good, np.random.default_rng(0), 40):
        path.write_bytes(data)
        try:
            net = load_network(path)
        except er.InputError as refusal:
            assert "net.elbowroom" in str(refusal)
        else:  # a date, say: what was read is then the network itself
            assert network_hash(net) == right
            read += 1
    assert read < 40
    with pytest.raises(er.InputError, match=r"is damaged|cannot be read"):
        load_network(tmp_path)  # a folder


# --------------------------------------------------------------------------------------------------------------
# Runs

REGIONS = {
    "uniform": er.Uniform(), "scaled uniform": er.Uniform(torch.arange(1.0, N + 1)), "box": er.Box(),
    "asymmetric": er.Box(asymmetric=True), "ellipsoid": er.Ellipsoid(), "l1": er.L1(), "oblique": er.Oblique(BASIS),
    "oblique asymmetric": er.Oblique(BASIS, er.Box(asymmetric=True)), "oblique l1": er.Oblique(BASIS.float(), er.L1()),
}  # fmt: skip


def assert_same(certs: Certificates, again: Certificates) -> None:
    for field in dataclasses.fields(certs):
        left, right = getattr(certs, field.name), getattr(again, field.name)
        if isinstance(left, torch.Tensor):
            assert left.dtype == right.dtype and left.shape == right.shape, field.name
            assert left.contiguous().numpy().tobytes() == right.numpy().tobytes(), field.name
        elif field.name == "network":
            assert network_hash(left) == network_hash(right)
        else:
            assert left == right, field.name
    assert repr(certs) == repr(again)


@pytest.mark.parametrize("name", list(REGIONS))
def test_runs_survive(tmp_path: Path, name: str) -> None:
    certs = er.certify(small(), points(), region=REGIONS[name])
    assert certs.certified.any()
    certs.save(tmp_path / "run")
    assert_same(certs, er.Certificates.load(tmp_path / "run"))


def test_specifications_survive(tmp_path: Path) -> None:
    net, x = small(decision="min"), points()
    specs = [
        er.label_in([0, 2], 3, "min"),
        er.outputs_within(net(x), 0.5),
        er.linear_specification(torch.randn(4, 2, 3), torch.full((4, 2), 5.0)),
    ]
    for spec in specs:
        certs = er.certify(net, x, spec=spec)
        certs.save(tmp_path / "run")
        again = er.Certificates.load(tmp_path / "run")
        assert_same(certs, again)
        assert again.spec_rows is not None and again.network.decision == "min"


def test_every_status_survives(tmp_path: Path) -> None:
    net, x = small(), points(5).float()
    labels = net(x).argmax(1)
    labels[0] = (labels[0] + 1) % 3
    x[1, 2], x[2, 0], x[3, 0] = math.nan, 9.0, math.inf
    certs = er.certify(net, x, labels, domain=(-2, 2))
    assert set(certs.status) >= {"misclassified", "nonfinite", "error", "certified"}
    certs.save(tmp_path)
    assert_same(certs, er.Certificates.load(tmp_path))


def test_a_run_of_images_in_several_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_files, "PART_BYTES", 12_000)
    net = every_operation(dtype=torch.float32)
    x = torch.tensor(np.random.default_rng(0).normal(size=(8, 2, 6, 6)))
    certs = er.certify(net, x, region=er.Uniform(), max_eps=1e-3)
    certs.save(tmp_path)
    assert [p.name for p in sorted((tmp_path / "parts").iterdir())] == [f"part-{k:05d}.parquet" for k in range(3)]
    plan = json.loads((tmp_path / "run.json").read_text())["plan"]
    assert (plan["inputs"], plan["part_rows"]) == (8, 3)
    assert_same(certs, er.Certificates.load(tmp_path))
    # A smaller run in its place leaves nothing of it.
    certs = er.certify(small(), points(), region=er.Oblique(BASIS))
    certs.save(tmp_path)
    certs = er.certify(small(), points())
    certs.save(tmp_path)
    assert_same(certs, er.Certificates.load(tmp_path))
    files = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file())
    assert files == ["network.elbowroom", "parts/part-00000.parquet", "run.json"]


def test_how_parts_are_encoded(tmp_path: Path) -> None:
    er.certify(small(), points()).save(tmp_path)
    file = pq.ParquetFile(tmp_path / "parts" / "part-00000.parquet")
    assert file.schema_arrow.field("lower").type == pa.list_(pa.field("element", pa.float64(), nullable=False), N)
    group = file.metadata.row_group(0)
    for k in range(group.num_columns):
        column = group.column(k)
        assert not column.has_dictionary_page
        assert ("BYTE_STREAM_SPLIT" in column.encodings) == (column.physical_type == "DOUBLE")
    file.close()


def test_the_checksum_is_the_documented_one(tmp_path: Path) -> None:
    """Written out here once more, from the description alone."""
    certs = er.certify(small(), points(), region=er.Box())
    certs.save(tmp_path)
    run = json.loads((tmp_path / "run.json").read_text())
    table = pq.read_table(tmp_path / "parts" / "part-00000.parquet")
    assert run["claim"]["network_hash"] == network_hash(certs.network)
    head = hashlib.sha256(json.dumps(run["claim"], sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    for k, row in enumerate(table.to_pylist()):
        total = hashlib.sha256(head.encode())
        assert list(row)[-1] == "checksum"
        stored_sum = row.pop("checksum")
        for value in row.values():
            for v in value if isinstance(value, list) else [value]:
                if isinstance(v, str):
                    total.update(struct.pack("<q", len(v.encode())) + v.encode())
                else:
                    total.update(struct.pack({bool: "<?", int: "<q", float: "<d"}[type(v)], v))
        assert total.digest() == stored_sum
        assert row["x"] == certs.x[k].tolist()
        assert {"status", "labels", "lower", "upper", "eps", "center", "margins"} <= set(row)


def test_what_cannot_be_saved(tmp_path: Path) -> None:
    certs = er.certify(small(), points())
    with pytest.raises(er.InputError, match="do not know their network"):
        dataclasses.replace(certs, network=None).save(tmp_path)
    with pytest.raises(er.InputError, match="lower must hold"):
        dataclasses.replace(certs, lower=certs.lower[:2]).save(tmp_path)
    with pytest.raises(er.InputError, match="labels must hold"):
        dataclasses.replace(certs, labels=certs.labels.double()).save(tmp_path)
    with pytest.raises(er.InputError, match="settings cannot be saved"):
        dataclasses.replace(certs, settings={**certs.settings, "scale": torch.ones(2)}).save(tmp_path)
    certs.network.nodes[1].op.weight[0, 0] += 1
    with pytest.raises(er.InputError, match="changed since it was certified"):
        certs.save(tmp_path)
    assert not list(tmp_path.rglob("*.json"))
    (tmp_path / "file").write_text("")
    with pytest.raises(er.InputError, match="cannot make the folder"):
        er.certify(small(), points()).save(tmp_path / "file" / "run")


def test_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certs = er.certify(small(), points())
    certs.save(tmp_path / "run")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(er.InputError, match="pip install pyarrow"):
        er.Certificates.load(tmp_path / "run")
    with pytest.raises(er.InputError, match="pip install pyarrow"):
        certs.save(tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of two kinds: boxes, and a rotated shape with a specification of its own; 4 certificates each."""
    place = tmp_path_factory.mktemp("runs")
    er.certify(small(), points()).save(place / "box")
    er.certify(small(), points(), reach=True).save(place / "reached")
    net, x = small(), points()
    certs = er.certify(net, x, region=er.Oblique(BASIS), spec=er.outputs_within(net(x), 1.0))
    certs.save(place / "oblique")
    er.certify(net, x, region=er.Oblique(BASIS), spec=er.linear_specification(torch.eye(3), torch.ones(3) * 9)).save(
        place / "shared"
    )
    return place


@pytest.fixture
def fresh(saved: Path, tmp_path: Path) -> Callable[..., Any]:
    def of(name: str) -> Path:
        return Path(shutil.copytree(saved / name, tmp_path / name))

    return of


def refused(run: Path, words: str) -> str:
    with pytest.raises(er.InputError, match=words) as refusal:
        er.Certificates.load(run)
    return str(refusal.value)


def nudge(rows: list[Any]) -> None:
    """Changes the last row by as little as its type allows."""
    value = rows[-1]
    if isinstance(value, list):
        value = value.copy()
        value[-1] = not value[-1] if isinstance(value[-1], bool) else math.nextafter(value[-1], math.inf)
    elif isinstance(value, str):
        value = "error" if value else "all is well"
    else:
        value = math.nextafter(value, math.inf) if isinstance(value, float) else value + 1
    rows[-1] = value


SEEN = ("reach", "seen", "seen_lower", "seen_upper")
FIELDS = (
    "status", "message", "ended", "labels", "x", "eps", "center", "margins", "capped", "uniform", "geomean", "ratio",
    "log_volume", "seconds", "evaluations", "gradients", "gradient_rows",
)  # fmt: skip


@pytest.mark.parametrize("column", [*FIELDS, "lower", "upper"])
def test_a_changed_field_is_noticed(fresh: Callable[..., Any], column: str) -> None:
    run = fresh("box")
    edit_rows(run, column, lambda rows: None)
    er.Certificates.load(run)  # rewriting alone is no change
    edit_rows(run, column, nudge)
    said = refused(run, r"part-00000\.parquet: the certificate of input 3 \(row 3\) was changed")
    assert "checksum" in said


@pytest.mark.parametrize("column", ["eps", "center", "spec_rows", "spec_offset"])
def test_a_changed_field_of_another_shape_is_noticed(fresh: Callable[..., Any], column: str) -> None:
    run = fresh("oblique")
    edit_rows(run, column, nudge)
    refused(run, r"input 3 \(row 3\) was changed")


@pytest.mark.parametrize("column", SEEN)
def test_a_changed_limit_is_noticed(fresh: Callable[..., Any], column: str) -> None:
    run = fresh("reached")
    edit_rows(run, column, lambda rows: rows.__setitem__(-1, np.full_like(rows[-1], 0.5).tolist()))
    refused(run, r"input 3 \(row 3\) was changed")


def test_every_column_was_tried(saved: Path) -> None:
    columns = {
        n
        for name in ("box", "oblique", "reached")
        for n in pq.read_schema(saved / name / "parts/part-00000.parquet").names
    }
    assert columns == {*FIELDS, *SEEN, "lower", "upper", "spec_rows", "spec_offset", "checksum"}


def test_a_changed_checksum_is_noticed(fresh: Callable[..., Any]) -> None:
    run = fresh("box")
    edit_rows(run, "checksum", lambda rows: rows.reverse())
    refused(run, r"input 0 \(row 0\) was changed")


CLAIM_FORGERIES = {
    "p": lambda r: r["claim"]["settings"].update(p=2),
    "bounds": lambda r: r["claim"]["settings"].update(bounds="combined"),
    "margin": lambda r: r["claim"]["settings"].update(margin="logits"),
    "delta": lambda r: r["claim"]["settings"].update(delta=0.5),
    "deployed": lambda r: r["claim"]["settings"].update(deployed="float32"),
    "region": lambda r: r["claim"]["settings"].update(region="Box"),
    "groups": lambda r: r["claim"]["sizes"].update(groups=1),
    "what is shared": lambda r: r["claim"]["shared"].update(spec_group="0" * 64),
}


@pytest.mark.parametrize("name", list(CLAIM_FORGERIES))
def test_a_changed_claim_is_noticed(fresh: Callable[..., Any], name: str) -> None:
    run = fresh("oblique")
    edit_run(run, CLAIM_FORGERIES[name], seal=False)
    assert "run.json was changed" in refused(run, "does not match its checksum")
    edit_run(run, lambda r: None, seal=True)  # a forger who knows the format
    refused(run, r"part-00000\.parquet belongs to another run|margins' holds|content of spec_group does not match")


def nested(depth: int) -> Any:
    return [nested(depth - 1)] if depth else 0


RUN_FORGERIES = {
    "format": (lambda r: r.update(format="zip"), "format is 'zip'"),
    "version": (lambda r: r.update(version=99), "version 99 is unknown"),
    "no version": (lambda r: r.pop("version"), "version None is unknown"),
    "unknown field": (lambda r: r.update(hook=1), "'hook' is unknown"),
    "missing field": (lambda r: r.pop("plan"), "'plan' is missing"),
    "claim": (lambda r: r.update(claim=[]), "an object was expected"),
    "unknown claim": (lambda r: r["claim"].update(also=1), "'also' is unknown"),
    "missing claim": (lambda r: r["claim"].pop("has"), "'has' is missing"),
    "hash": (lambda r: r["claim"].update(network_hash="0" * 64), "not the network that was certified"),
    "hash is no text": (lambda r: r["claim"].update(network_hash=7), "network_hash cannot be 7"),
    "claimed settings": (lambda r: r["claim"].update(settings=None), "settings cannot be None"),
    "sizes": (lambda r: r["claim"].update(sizes=[5]), "sizes is damaged: an object was expected"),
    "unknown size": (lambda r: r["claim"]["sizes"].update(also=1), "'also' is unknown"),
    "input shape": (lambda r: r["claim"]["sizes"].update(input_shape=[7]), "another shape of inputs"),
    "input shape as text": (lambda r: r["claim"]["sizes"].update(input_shape="5"), "input_shape cannot be '5'"),
    "outputs": (lambda r: r["claim"]["sizes"].update(outputs=-1), "outputs cannot be -1"),
    "margins": (lambda r: r["claim"]["sizes"].update(groups=9), "the column 'margins' holds"),
    "boxes": (lambda r: r["claim"].update(has=1), "has cannot be 1"),
    "boxes twice": (lambda r: r["claim"].update(has=["boxes", "boxes"]), "has cannot be"),
    "no such part": (lambda r: r["claim"].update(has=["boxes", "code"]), "has cannot be"),
    "no boxes": (lambda r: r["claim"].update(has=[]), "the column 'lower' is unknown"),
    "shared": (lambda r: r["claim"].update(shared={"code": "x"}), "shared cannot be"),
    "shared by half": (
        lambda r: r["claim"].update(has=["boxes", "domain"], shared={"lowest": "x"}),
        "shared cannot be",
    ),
    "shared without being there": (lambda r: r["claim"].update(shared={"lowest": "x"}), "shared cannot be"),
    "invented specification": (
        lambda r: r["claim"].update(has=["boxes", "specification"], shared={"spec_group": "x"}),
        r"shared\.npz is missing",
    ),
    "specification without groups": (
        lambda r: r["claim"].update(has=["boxes", "specification"]),
        "shared cannot be {}",
    ),
    "invented domain": (lambda r: r["claim"].update(has=["boxes", "domain"]), "the column 'lowest' is missing"),
    "invented index": (lambda r: r["claim"].update(has=["boxes", "index"]), "the column 'index' is missing"),
    "plan": (lambda r: r.update(plan=4), "plan is damaged: an object was expected"),
    "unknown plan": (lambda r: r["plan"].update(also=1), "plan: the field 'also' is unknown"),
    "inputs": (lambda r: r["plan"].update(inputs="4"), "plan: inputs cannot be 4"),
    "no rows": (lambda r: r["plan"].update(part_rows=0), "plan: part_rows cannot be 0"),
    "fewer rows": (lambda r: r["plan"].update(inputs=3), "belongs to another run or another place in it"),
    "more rows": (lambda r: r["plan"].update(inputs=10**5, part_rows=10**5), "too small for the 100000 rows"),
    "far more rows": (lambda r: r["plan"].update(inputs=10**9, part_rows=10**9), "part_rows can be [0-9,]* at most"),
    "more parts": (lambda r: r["plan"].update(inputs=8), "belongs to another run or another place in it"),
    "other parts": (lambda r: r["plan"].update(part_rows=5), "states another plan"),
    "data": (lambda r: r["plan"].update(data={"name": "x"}), "plan: data: the field 'count' is missing"),
    "settings": (lambda r: r["plan"].update(settings=7), "plan: settings cannot be 7"),
    "deep settings": (lambda r: r["plan"].update(settings={"a": nested(99)}), "plan: settings cannot be"),
    "ids": (lambda r: r["plan"].update(ids=["a"]), "plan: ids cannot be"),
}


@pytest.mark.parametrize("name", list(RUN_FORGERIES))
def test_runs_that_are_refused(fresh: Callable[..., Any], name: str) -> None:
    change, words = RUN_FORGERIES[name]
    run = fresh("box")
    edit_run(run, lambda r: None)
    er.Certificates.load(run)
    edit_run(run, change)
    assert str(run) in refused(run, words)


def test_settings_a_forger_may_not_invent(tmp_path: Path) -> None:
    """Sealed by our own writer's parts: what the settings may say is checked by itself."""
    certs = er.certify(small(), points())
    for name, value in (
        *(("p", p) for p in (3, 2, 1.0, 2.0, True, 0.5, -3.0, "3", "1.5", None, [1.5], {}, 10**99)),
        ("decision", "min"),
        ("deployed", "float16"),
        ("bounds", 7),
        ("delta", "0"),
    ):
        with pytest.raises(er.InputError, match=rf"settings: {name}"):
            dataclasses.replace(certs, settings={**certs.settings, name: value}).save(tmp_path)


def test_another_network_is_noticed(fresh: Callable[..., Any]) -> None:
    run = fresh("box")
    edit_archive(run / "network.elbowroom", lambda e: e.update({"parameters/1.bias.npy": flip(e)}))
    refused(run, r"network\.elbowroom was changed: its content has the hash")
    save_network(small(seed=1), run / "network.elbowroom")
    refused(run, r"network\.elbowroom is not the network that was certified")
    (run / "network.elbowroom").unlink()
    refused(run, r"network\.elbowroom is missing")


def flip(entries: dict[str, bytes]) -> bytes:
    data = bytearray(entries["parameters/1.bias.npy"])
    data[-8] ^= 1
    return bytes(data)


def test_shared_arrays_are_guarded(fresh: Callable[..., Any]) -> None:
    run = fresh("shared")
    er.Certificates.load(run)

    def turn(name: str) -> Callable[..., Any]:
        def change(entries: dict[str, bytes]) -> None:
            data = bytearray(entries[name])
            data[-1] ^= 0x80  # a sign
            entries[name] = bytes(data)

        return change

    for name in ("basis", "spec_rows", "spec_offset"):
        edit_archive(run / "shared.npz", turn(f"{name}.npy"))
        refused(run, rf"shared\.npz was changed: the content of {name}")
        edit_archive(run / "shared.npz", turn(f"{name}.npy"))
    er.Certificates.load(run)
    edit_archive(run / "shared.npz", lambda e: e.pop("basis.npy"))
    refused(run, r"basis\.npy' is missing")
    (run / "shared.npz").unlink()
    refused(run, r"shared\.npz is missing")


def test_parts_of_another_run_are_noticed(fresh: Callable[..., Any]) -> None:
    run, other = fresh("box"), fresh("oblique")
    shutil.copy(other / "parts" / "part-00000.parquet", run / "parts" / "part-00000.parquet")
    refused(run, r"the column 'spec_rows' is unknown")
    er.certify(small(seed=1), points()).save(other)
    shutil.copy(other / "parts" / "part-00000.parquet", run / "parts" / "part-00000.parquet")
    refused(run, r"part-00000\.parquet belongs to another run or another place in it: it states another claim")


def test_parts_in_another_place_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_files, "PART_BYTES", 1)
    er.certify(small(), points()).save(tmp_path)
    first, second = (tmp_path / "parts" / f"part-0000{k}.parquet" for k in range(2))
    shutil.copy(first, second)
    refused(tmp_path, r"part-00001\.parquet belongs to another run or another place in it: it states another part")


def test_what_is_there_of_an_incomplete_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_files, "PART_BYTES", 1)
    certs = er.certify(small(), points())
    certs.save(tmp_path)
    for k, rows in ((1, [0, 2, 3]), (0, [2, 3]), (3, [2]), (2, [])):
        (tmp_path / "parts" / f"part-0000{k}.parquet").unlink()
        found = er.Certificates.load(tmp_path)
        assert found.missing == 4 - len(rows) and len(found) == len(rows)
        assert torch.equal(found.x, certs.x[rows]) and torch.equal(found.eps, certs.eps[rows])
        assert f"the run is incomplete: {found.missing} more input" in repr(found)
        report = er.check(found)
        assert report.passed.all() and len(report) == len(rows) and report.missing == 4 - len(rows)
        assert not report and f"incomplete: {report.missing} more" in repr(report)  # all that is there is proved
    shutil.rmtree(tmp_path / "parts")
    assert er.Certificates.load(tmp_path).missing == 4


def test_numbers_in_a_data_set_survive(tmp_path: Path) -> None:
    certs = dataclasses.replace(er.certify(small(), points()), index=torch.tensor([7, 1, 0, 9]))
    certs.save(tmp_path)
    assert_same(certs, er.Certificates.load(tmp_path))
    assert pq.read_schema(tmp_path / "parts" / "part-00000.parquet").names[0] == "index"
    edit_rows(tmp_path, "index", nudge)
    refused(tmp_path, r"\(row 3\) was changed")
    with pytest.raises(er.InputError, match="index must hold"):
        dataclasses.replace(certs, index=torch.ones(4)).save(tmp_path)


def rewrite(run: Path, change: Callable[..., Any]) -> None:
    path = run / "parts" / "part-00000.parquet"
    table = pq.read_table(path)
    write_table(change(table), path)


def test_columns_of_other_types_are_refused(fresh: Callable[..., Any]) -> None:
    run = fresh("box")
    rewrite(run, lambda t: t.append_column("extra", pa.array([1] * 4)))
    refused(run, "the column 'extra' is unknown")
    rewrite(run, lambda t: t.drop_columns(["extra", "upper"]))
    refused(run, "the column 'upper' is missing")
    run = fresh("oblique")
    rewrite(
        run, lambda t: t.set_column(t.column_names.index("labels"), "labels", t.column("labels").cast(pa.float64()))
    )
    refused(run, "the column 'labels' holds double, not int64")
    rewrite(
        run,
        lambda t: t.set_column(t.column_names.index("labels"), "labels", pa.array([None, 0, 0, 0], type=pa.int64())),
    )
    refused(run, "the column 'labels' holds int64")
    rewrite(run, lambda t: t.replace_schema_metadata({}))
    refused(run, "the column 'labels'|belongs to another run")


@pytest.mark.parametrize("name", ["run.json", "shared.npz", "parts/part-00000.parquet"])
def test_damaged_runs(fresh: Callable[..., Any], name: str) -> None:
    run = fresh("shared")
    right = er.Certificates.load(run)
    good = (run / name).read_bytes()
    for data in damaged(good, np.random.default_rng(1), 15):
        (run / name).write_bytes(data)
        try:
            certs = er.Certificates.load(run)
        except er.InputError as refusal:
            assert str(run) in str(refusal)
        else:  # what does not matter was hit
            assert_same(right, certs)
    (run / name).unlink()
    if name.startswith("parts"):
        assert er.Certificates.load(run).missing == 4
    else:
        refused(run, "missing")
    (run / name).mkdir()
    refused(run, r"damaged|cannot be read")


def test_no_run_at_all(tmp_path: Path) -> None:
    refused(tmp_path, "holds no run: run.json is missing")
    refused(tmp_path / "nowhere", "holds no run")
    (tmp_path / "run.json").write_text("[]")
    refused(tmp_path, "no JSON object")


def test_a_failed_write_leaves_no_half_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save_network(small(), tmp_path / "net.elbowroom")
    before = path.read_bytes()

    def full(*_: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(er.InputError, match=r"cannot write .*net\.elbowroom: No space left"):
        save_network(small(1), path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["net.elbowroom"]
