"""Saved `torch.export` programs: the same outputs as the module, and nothing in the file is ever run."""

from __future__ import annotations

import functools
import io
import json
import logging
import pickle
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._export.serde.serialize import serialize

from elbowroom.errors import InputError, UnsupportedError
from elbowroom.network.file import network_hash
from elbowroom.readers.reading import computes_in, left_off
from elbowroom.readers.torch import calls
from elbowroom.readers.torch.modules import read_module
from elbowroom.readers.torch.program import read_program


class Mixed(nn.Module):
    """Views with written sizes, in-place operations, constants of its own, a skip and pieces."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 2, 3, padding=1), nn.BatchNorm2d(2)
        self.out = nn.Linear(16, 3)
        self.register_buffer("shift", torch.randn(1, 2, 1, 1))
        self.table = torch.tensor([0.5, 2.0, -1.0])

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm(self.conv(x)), inplace=True) + self.shift.view(1, 2, 1, 1)
        y = F.max_pool2d(y, 2) + y[:, :, ::2, ::2]
        y = y.view(y.size(0), 4, -1).reshape(y.shape[0], -1)
        a, b = y.unsqueeze(1).expand(y.size(0), 1, 8).squeeze(1).chunk(2, 1)
        z = torch.cat([a, b.tanh(), F.dropout(a, 0.5, self.training), b.clone().mul_(2)], 1)
        return self.out(z) * self.table


def mixed() -> nn.Module:
    torch.manual_seed(0)
    return Mixed().eval()


def plain() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3), nn.Softmax(1)).eval()


@functools.cache
def export(make: Callable[[], nn.Module], shape: tuple[int, ...], batch: int | None = None) -> Any:
    """`batch`: the fixed one, None for any."""
    module, x = make(), torch.randn(batch or 2, *shape)
    dynamic = ({0: torch.export.Dim("n")},) if batch is None else None
    return torch.export.export(module, (x,), dynamic_shapes=dynamic)


def save(program: torch.export.ExportedProgram, path: Path) -> Path:
    torch.export.save(program, path)
    return path


def edit(path: Path, change: Callable[[dict[str, bytes]], Any]) -> Path:
    """Rewrites the archive with its entries changed; entries go by their names without the root."""
    with zipfile.ZipFile(path) as archive:
        entries = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
    change(entries)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in entries.items():
            archive.writestr(f"model/{name}", data)
    return path


def edit_json(entries: dict[str, bytes], name: str, change: Callable[[Any], Any]) -> None:
    found = json.loads(entries[name])
    change(found)
    entries[name] = json.dumps(found).encode()


def torch_2_8(program: torch.export.ExportedProgram, path: Path) -> Path:
    """As torch 2.8 saved: weights and constants by `torch.save`."""
    parts = serialize(program)

    def change(entries: dict[str, bytes]) -> None:
        for name in [n for n in entries if n.startswith(("data/weights/", "data/constants/"))]:
            del entries[name]
        entries["data/weights/model.pt"], entries["data/constants/model.pt"] = parts.state_dict, parts.constants

    return edit(save(program, path), change)


def torch_2_7(program: torch.export.ExportedProgram, path: Path) -> Path:
    """As torch up to 2.7 saved: a plain zip."""
    parts = serialize(program)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("version", "8.5")
        for name in ("exported_program.json", "state_dict.pt", "constants.pt", "example_inputs.pt"):
            archive.writestr(f"serialized_{name}", getattr(parts, name.partition(".")[0]))
    return path


@pytest.mark.parametrize("batch", [None, 1, 3])
@pytest.mark.parametrize("write", [save, torch_2_8, torch_2_7])
def test_same_outputs(write: Callable[..., Path], batch: int | None, tmp_path: Path) -> None:
    module = mixed()
    net = read_program(write(export(mixed, (1, 4, 4), batch), tmp_path / "model.pt2"))
    assert net.input_shape == (1, 4, 4)
    x = torch.randn(20, 1, 4, 4)
    with torch.no_grad():
        torch.testing.assert_close(net(x), module(x), rtol=1e-5, atol=1e-5)
    assert network_hash(net) == network_hash(read_module(module, (1, 4, 4)))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_decomposed_programs_and_other_types(dtype: torch.dtype, tmp_path: Path) -> None:
    module = plain().to(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own deprecations
        program = torch.export.export(module, (torch.ones(1, 4, dtype=dtype),)).run_decompositions()
    net = read_program(save(program, tmp_path / "model.pt2"))
    assert net.about.notes == (left_off("the softmax"), *([computes_in("bfloat16")] if dtype == torch.bfloat16 else []))
    assert {t.dtype for n in net.nodes for t in n.op.tensors().values()} == {dtype}
    assert network_hash(net) == network_hash(read_module(module, (4,)))
    with pytest.raises(UnsupportedError, match=r"model\.pt2(?s:.)*softmax"):
        read_program(tmp_path / "model.pt2", "regression")


def test_roundings_to_narrower_types(tmp_path: Path) -> None:
    class Rounding(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.float().double().relu()

    program = torch.export.export(Rounding(), (torch.ones(2, 4, dtype=torch.float64),))
    with pytest.raises(UnsupportedError, match="rounds its values to float32, which is not part of a network"):
        read_program(save(program, tmp_path / "model.pt2"))


def test_shared_and_strided_weights(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
    module[2].weight = nn.Parameter(module[0].weight.detach().t())  # the same storage, other strides
    module[2].bias = module[0].bias
    net = read_program(save(export(lambda: module, (3,)), tmp_path / "model.pt2"))
    assert network_hash(net) == network_hash(read_module(module, (3,)))


# --- programs that are refused


class Function(nn.Module):
    def __init__(self, f: Callable[..., Any]) -> None:
        super().__init__()
        self.f = f
        self.register_buffer("v", torch.ones(3))

    def forward(self, *xs: Tensor) -> Any:
        return self.f(self, *xs)


def program(
    f: Callable[..., Any], *shapes: tuple[int, ...], dtype: torch.dtype = torch.float32, dynamic: Any = None
) -> Any:
    xs = tuple(torch.ones(shape, dtype=dtype) for shape in shapes)
    return torch.export.export(Function(f), xs, dynamic_shapes=dynamic, strict=False)


DIM = torch.export.Dim
REFUSED: dict[str, tuple[Callable[[], torch.export.ExportedProgram], str]] = {
    "operations": (
        lambda: program(lambda m, x: (x.sort(1)[0] * x).cumsum(1) + x.sin(), (2, 3)),
        r"operations without a bound here:\s+aten.sort.default .*'sort'.*\s+aten.cumsum.default .*\s+aten.sin.default",
    ),
    "product": (lambda: program(lambda m, x: x * x, (2, 3)), "product of two computed values"),
    "two inputs": (lambda: program(lambda m, x, y: x + y, (2, 3), (2, 3)), "takes 2 inputs"),
    "two outputs": (lambda: program(lambda m, x: (x, x), (2, 3)), "gives user_output, user_output"),
    "counter": (lambda: program(lambda m, x: x + m.v.add_(1), (2, 3)), "gives buffer_mutation|changes its buffers"),
    "integers": (lambda: program(lambda m, x: x + 1, (2, 3), dtype=torch.int64), "takes integers"),
    "free axis": (
        lambda: program(lambda m, x: x.relu(), (2, 3), dynamic=(({1: DIM("k")},),)), "all axes but the first fixed",
    ),
    "batch mean": (lambda: program(lambda m, x: x - x.mean(0), (2, 3)), "batch axis(?s:.)*batches of 2 alone"),
    "batch merged": (lambda: program(lambda m, x: F.linear(x.flatten(), m.v), (1, 3)), "batches of 1 alone"),
    "no batch": (lambda: program(lambda m, x: F.linear(x, m.v), (3,)), "batches of 3 alone"),
    "branch": (
        lambda: program(lambda m, x: torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,)), (2, 3)),
        r"higher_order.cond .*run_decompositions|not supported",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_programs_that_are_refused(name: str, tmp_path: Path) -> None:
    make, message = REFUSED[name]
    with pytest.raises((InputError, UnsupportedError), match=message) as caught:
        read_program(save(make(), tmp_path / "model.pt2"))
    assert "model.pt2" in str(caught.value)


def a_weight(about: dict[str, Any]) -> dict[str, Any]:
    return about["config"]["0.weight"]


def a_value(graph: dict[str, Any]) -> dict[str, Any]:
    return graph["graph_module"]["graph"]["tensor_values"]["linear"]


def no_graph(entries: dict[str, bytes]) -> None:
    del entries["models/model.json"]


WEIGHTS, MODEL = "data/weights/model_weights_config.json", "models/model.json"
DAMAGED: dict[str, tuple[Callable[[dict[str, bytes]], Any], str]] = {
    "no graph": (no_graph, "holds no program"),
    "byte order": (lambda e: e.update(byteorder=b"big"), "byte order"),
    "no JSON": (lambda e: e.update({MODEL: b"{"}), "damaged"),
    "nothing": (lambda e: e.update({MODEL: b"{}"}), "damaged"),
    "schema": (lambda e: edit_json(e, MODEL, lambda g: g["schema_version"].update(major=9)), "version 9 is unknown"),
    "no weight": (lambda e: e.pop("data/weights/weight_0"), "weight_0' is missing"),
    "empty weight": (lambda e: e.update({"data/weights/weight_0": b""}), "holds 0 numbers, too few"),
    "half a weight": (lambda e: e.update({"data/weights/weight_0": b"1234"}), "holds 1 numbers, too few"),
    "no number": (lambda e: e.update({"data/weights/weight_0": b"123"}), "not a plain tensor"),
    "outside": (
        lambda e: edit_json(e, WEIGHTS, lambda c: a_weight(c).update(path_name="../../etc/passwd")), "is missing",
    ),
    "offset": (
        lambda e: edit_json(e, WEIGHTS, lambda c: a_weight(c)["tensor_meta"].update(storage_offset={"as_int": 1})),
        "too few",
    ),
    "negative offset": (
        lambda e: edit_json(e, WEIGHTS, lambda c: a_weight(c)["tensor_meta"].update(storage_offset={"as_int": -1})),
        "not a plain tensor",
    ),
    "huge tensor": (
        lambda e: edit_json(
            e, WEIGHTS,
            lambda c: a_weight(c)["tensor_meta"].update(sizes=[{"as_int": 1 << 40}], strides=[{"as_int": 0}]),
        ),
        "too few",
    ),
    "symbolic weight": (
        lambda e: edit_json(e, WEIGHTS, lambda c: a_weight(c)["tensor_meta"].update(sizes=[{"as_expr": {}}])),
        "damaged",
    ),
    "unknown type": (
        lambda e: edit_json(e, WEIGHTS, lambda c: a_weight(c)["tensor_meta"].update(dtype=99)), "damaged",
    ),
    "unnamed weight": (
        lambda e: edit_json(e, WEIGHTS, lambda c: c["config"].pop("0.weight")), "'0.weight' is missing",
    ),
    "unknown value": (
        lambda e: edit_json(
            e, MODEL, lambda g: g["graph_module"]["graph"]["nodes"][0]["inputs"][0]["arg"]["as_tensor"].update(name="?")
        ),
        "does not run",
    ),
    "unknown argument": (
        lambda e: edit_json(e, MODEL, lambda g: g["graph_module"]["graph"]["nodes"][0]["inputs"][0].update(name="?")),
        r"has no argument \?",
    ),
    "unknown overload": (
        lambda e: edit_json(
            e, MODEL, lambda g: g["graph_module"]["graph"]["nodes"][0].update(target="torch.ops.aten.linear.__class__")
        ),
        "unknown to this version of torch",
    ),
    "another shape": (
        lambda e: edit_json(e, MODEL, lambda g: a_value(g)["sizes"].append({"as_int": 1})),
        r"another shape or type for its value 'linear' than its calls give, which is \(2, 5\) of torch.float32",
    ),
    "another type": (
        lambda e: edit_json(e, MODEL, lambda g: a_value(g).update(dtype=8)), "another shape or type for its value 'li",
    ),
    "another weight": (
        lambda e: edit_json(
            e, WEIGHTS, lambda c: c["config"].update({"0.weight": c["config"]["2.weight"], "2.weight": a_weight(c)})
        ),
        "another shape or type for its value 'p_0_weight'|does not run",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return save(export(plain, (4,)), tmp_path_factory.mktemp("program") / "model.pt2").read_bytes()


@pytest.fixture
def path(saved: bytes, tmp_path: Path) -> Path:
    (tmp_path / "model.pt2").write_bytes(saved)
    return tmp_path / "model.pt2"


def test_an_edit_that_changes_nothing_is_read(path: Path) -> None:
    """The tables would pass if every edited file were refused."""
    assert network_hash(read_program(edit(path, lambda entries: None))) == network_hash(read_module(plain(), (4,)))


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files(name: str, path: Path) -> None:
    change, message = DAMAGED[name]
    with pytest.raises((InputError, UnsupportedError), match=message) as caught:
        read_program(edit(path, change))
    assert "model.pt2" in str(caught.value)


def test_arguments_that_are_read_wrongly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program as it is read is what the network is compared with; only the file's own words can contradict it."""
    module = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.Flatten())
    path = save(export(lambda: module, (1, 4, 4)), tmp_path / "model.pt2")
    monkeypatch.setitem(calls.ARGUMENTS, "as_ints", lambda values: [2 * v for v in values])
    with pytest.raises(
        InputError, match=r"model\.pt2: the file states another shape .* the file is damaged, or read wrongly"
    ):
        read_program(path)


def test_not_an_archive(tmp_path: Path) -> None:
    (tmp_path / "model.pt2").write_bytes(b"PK\x03\x04")
    with pytest.raises(InputError, match=r"model\.pt2 is damaged"):
        read_program(tmp_path / "model.pt2")


def test_a_few_bytes_cannot_ask_for_terabytes(path: Path) -> None:
    def change(entries: dict[str, bytes]) -> None:
        def pad(graph: Any) -> None:
            size = [{"name": "size", "arg": {"as_ints": [1 << 20, 1 << 20]}, "kind": 1}]
            target = {"target": "torch.ops.aten.ones.default", "inputs": size, "metadata": {}}
            target["outputs"] = [{"as_tensor": {"name": "ones"}}]
            graph["graph_module"]["graph"]["nodes"].insert(0, target)

        edit_json(entries, MODEL, pad)

    with pytest.raises(InputError, match="ones would give 1099511627776 numbers"):
        read_program(edit(path, change))


# --- nothing in a file is run: each of these files would create a flag file


class Evil:
    """Unpickling it creates a file."""

    def __init__(self, flag: Path) -> None:
        self.flag = flag

    def __reduce__(self) -> Any:
        return Path.touch, (self.flag,)


def tensors_of(flag: Path) -> bytes:
    """What `torch.save` writes of an evil object."""
    buffer = io.BytesIO()
    torch.save({"0.weight": Evil(flag)}, buffer)
    return buffer.getvalue()


def pickled_weight(entries: dict[str, bytes], flag: Path) -> None:
    edit_json(entries, WEIGHTS, lambda c: a_weight(c).update(use_pickle=True, tensor_meta=None))
    entries["data/weights/weight_0"] = tensors_of(flag)


def pickled_constant(entries: dict[str, bytes], flag: Path) -> None:
    about = {"path_name": "tensor_0", "is_param": False, "use_pickle": True, "tensor_meta": None}
    edit_json(entries, CONSTANTS, lambda c: c["config"].update({"0.weight": about}))
    edit_json(entries, WEIGHTS, lambda c: c["config"].pop("0.weight"))
    entries["data/constants/tensor_0"] = tensors_of(flag)


def opaque_object(entries: dict[str, bytes], flag: Path) -> None:
    about = {"path_name": "opaque_obj_0", "is_param": False, "use_pickle": True, "tensor_meta": None}
    edit_json(entries, CONSTANTS, lambda c: c["config"].update(thing=about))
    entries["data/constants/opaque_obj_0"] = pickle.dumps(Evil(flag))


def sample_inputs(entries: dict[str, bytes], flag: Path) -> None:
    entries["data/sample_inputs/model.pt"] = tensors_of(flag)


def older_weights(entries: dict[str, bytes], flag: Path) -> None:
    entries["data/weights/model.pt"] = tensors_of(flag)


def older_constants(entries: dict[str, bytes], flag: Path) -> None:
    entries["data/constants/model.pt"] = tensors_of(flag)


def size_expression(entries: dict[str, bytes], flag: Path) -> None:
    def change(graph: Any) -> None:
        sizes = graph["graph_module"]["graph"]["tensor_values"]["input"]["sizes"]
        sizes[0]["as_expr"]["expr_str"] = f"__import__('pathlib').Path({str(flag)!r}).touch() or 2"

    edit_json(entries, MODEL, change)


CONSTANTS = "data/constants/model_constants_config.json"
EVIL: dict[str, tuple[Callable[[dict[str, bytes], Path], None], str | None]] = {
    "pickled weight": (pickled_weight, "weight_0' is a pickle of more than tensors"),
    "pickled constant": (pickled_constant, "tensor_0' is a pickle of more than tensors"),
    "opaque object": (opaque_object, None),  # no network needs it, so it is never looked at
    "example inputs": (sample_inputs, None),
    "weights of torch 2.8": (older_weights, "model.pt' is a pickle of more than tensors"),
    "constants of torch 2.8": (older_constants, "model.pt' is a pickle of more than tensors"),
    "size": (size_expression, None),  # an expression stands for any size, whatever it says
}


@pytest.mark.parametrize("name", EVIL)
def test_nothing_in_the_file_is_run(name: str, path: Path, tmp_path: Path) -> None:
    change, message = EVIL[name]
    flag = tmp_path / "flag"
    edit(path, lambda entries: change(entries, flag))
    if message is None:
        assert network_hash(read_program(path)) == network_hash(read_module(plain(), (4,)))
    else:
        with pytest.raises(InputError, match=message):
            read_program(path)
    assert not flag.exists()
    must_be_evil(path, flag)


@pytest.mark.parametrize("entry", ["state_dict", "constants", "example_inputs"])
def test_nothing_in_the_file_of_torch_2_7_is_run(entry: str, tmp_path: Path) -> None:
    path, flag = torch_2_7(export(plain, (4,)), tmp_path / "model.pt2"), tmp_path / "flag"
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in entries.items():
            archive.writestr(name, tensors_of(flag) if entry in name else data)
    if entry == "example_inputs":
        assert network_hash(read_program(path)) == network_hash(read_module(plain(), (4,)))
    else:
        with pytest.raises(InputError, match=f"serialized_{entry}.pt' is a pickle of more than tensors"):
            read_program(path)
    assert not flag.exists()
    must_be_evil(path, flag)


def must_be_evil(path: Path, flag: Path) -> None:
    """The tests above would prove nothing if the files did no harm to `torch.export.load`."""
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.export.load(path)
    except Exception:
        pass
    finally:
        logging.disable(logging.NOTSET)
    assert flag.exists()


@pytest.mark.parametrize(
    "target",
    ["torch.os.system", "torch.ops.aten.from_file.default", "torch.hub.load", "_operator.methodcaller", "#os.x"],
)
def test_only_listed_operations_are_called(target: str, path: Path, tmp_path: Path) -> None:
    flag = tmp_path / "flag"

    def change(graph: Any) -> None:
        command = [{"name": "filename", "arg": {"as_string": f"touch {flag}"}, "kind": 1}]
        outputs = [{"as_tensor": {"name": "bad"}}]
        graph["graph_module"]["graph"]["nodes"].insert(
            0, {"target": target, "inputs": command, "outputs": outputs, "metadata": {}}
        )

    edit(path, lambda entries: edit_json(entries, MODEL, change))
    with pytest.raises(UnsupportedError, match=r"node 'bad'.*: not supported"):
        read_program(path)
    assert not flag.exists()


def test_custom_objects_are_refused(path: Path) -> None:
    def change(graph: Any) -> None:
        spec = {"custom_obj": {"arg": {"name": "o", "class_fqn": "a.B"}, "custom_obj_name": "o"}}
        graph["graph_module"]["signature"]["input_specs"].append(spec)

    with pytest.raises(InputError, match="needs a custom_obj"):
        read_program(edit(path, lambda entries: edit_json(entries, MODEL, change)), trust_pickle=True)


def test_compiled_code_is_never_loaded(path: Path) -> None:
    def change(entries: dict[str, bytes]) -> None:
        entries["data/aotinductor/model/model.so"] = b"\x7fELF"

    assert network_hash(read_program(edit(path, change))) == network_hash(read_module(plain(), (4,)))


class Marked(Tensor):
    """A tensor of a class of one's own, which torch saves by pickle."""


def test_pickled_weights_are_read_if_trusted(path: Path) -> None:
    weight = plain()[0].weight.detach()

    def change(entries: dict[str, bytes]) -> None:
        buffer = io.BytesIO()
        torch.save(weight.as_subclass(Marked), buffer)
        pickled_weight(entries, Path("unused"))
        entries["data/weights/weight_0"] = buffer.getvalue()

    edit(path, change)
    with pytest.raises(InputError, match=r"say `trust_pickle=True`"):
        read_program(path)
    assert network_hash(read_program(path, trust_pickle=True)) == network_hash(read_module(plain(), (4,)))


def test_a_trusted_pickle_may_be_damaged_too(path: Path) -> None:
    def change(entries: dict[str, bytes]) -> None:
        pickled_weight(entries, Path("unused"))
        entries["data/weights/weight_0"] = b"no pickle"

    with pytest.raises(InputError, match="weight_0' cannot be read"):
        read_program(edit(path, change), trust_pickle=True)
