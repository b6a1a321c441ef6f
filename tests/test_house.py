"""The house stays as docs/architecture.md draws it: tables without gaps, imports with a reason, a proof that stands
alone."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import functools
import importlib
import inspect
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import FunctionType
from typing import Any

import grimp
import pytest
import torch
from torch import nn

import elbowroom as er
import elbowroom.errors
from elbowroom.certificates.schema import declared
from elbowroom.network import operations as ops
from elbowroom.network.file import OPERATIONS
from elbowroom.network.graph import About, Graph
from elbowroom.network.table import Column, Table
from elbowroom.proof import arb
from elbowroom.proof.kernel.float32 import ANALYSES
from elbowroom.proof.kernel.relaxed import RELAXED
from elbowroom.proof.kernel.rows import AFFINE
from elbowroom.readers.onnx.writers import WRITERS
from elbowroom.search.bounds.maps import MAPS
from elbowroom.search.bounds.relaxations import TABLE
from support import ACTIVATIONS

ROOT = Path(er.__file__).parent
KINDS = {kind for kind in vars(ops).values() if isinstance(kind, type) and issubclass(kind, ops.Operation)}
KINDS -= {ops.Operation, ops.Affine, ops.Activation}


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


# --- tables


def test_every_operation_is_imported_where_network_files_look_for_it() -> None:
    """A class whose fields were not declared (`@dataclass`) is none yet: a base of others."""
    modules = [module for name, module in sys.modules.items() if name.startswith("elbowroom.network.operations.")]
    kinds = {kind for module in modules for kind in vars(module).values() if isinstance(kind, type)}
    concrete = {kind for kind in kinds if issubclass(kind, ops.Operation) and "__dataclass_params__" in vars(kind)}
    assert concrete - {ops.Operation} == KINDS


def made_by(folder: str) -> set[type]:
    """The operations that the modules of a folder build."""
    names = set()
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "ops":
                names.add(node.attr)
    return {getattr(ops, name) for name in names if hasattr(ops, name)} & KINDS


# Per side: what it has a row for, and what it lacks, with the reason.
SIDES: dict[str, tuple[set[type], dict[type, str]]] = {
    "the file of a network": (set(OPERATIONS.values()), {}),
    "search": ({*MAPS, *TABLE}, {ops.Input: "where a walk ends"}),
    "proof": ({*AFFINE, *RELAXED}, {ops.Input: "where a walk ends"}),
    "float32": (set(ANALYSES), {ops.Input: "is given, not computed"}),
    "arb": ({*arb.AFFINE, *arb.CURVES, ops.MaxPool}, {ops.Input: "where a walk ends", **arb.LACKS}),
    "the writer of ONNX": (set(WRITERS), {ops.Input: "becomes the graph's input"}),
    "the reader of PyTorch": (made_by("readers/torch"), {ops.Input: "is the graph's first node"}),
    "the reader of ONNX": (made_by("readers/onnx"), {ops.Input: "is the graph's first node"}),
}


@pytest.mark.parametrize("side", SIDES)
def test_every_operation_has_a_row_on_every_side_or_a_reason(side: str) -> None:
    rows, lacks = SIDES[side]
    assert KINDS - rows - set(lacks) == set(), "neither a row nor a reason"
    assert rows & set(lacks) == set(), "a stale excuse"
    assert rows | set(lacks) <= KINDS, "a row of something that is no operation"


def test_affine_and_relaxed_operations_do_not_meet() -> None:
    affine = {kind for kind in KINDS if issubclass(kind, ops.Affine)}
    for linear, others in ((set(MAPS), set(TABLE)), (set(AFFINE), set(RELAXED))):
        assert linear == affine and others == KINDS - affine - {ops.Input}


def test_every_activation_is_in_the_random_networks_of_the_suite() -> None:
    """From there it reaches exact arithmetic, the kernels of libraries, the writer and the gradients."""
    assert {type(op) for op in ACTIVATIONS.values()} == {kind for kind in KINDS if issubclass(kind, ops.Activation)}


# --- sizes

MOST_LINES = 400  # of a module
MOST_IN_A_FUNCTION = 60  # lines, the docstring not counted; how complex one may be, ruff looks at
# What is longer, and why it is better whole.
LONG = {
    "commands/certify.py: certify": "a third of it declares flags; the rest says in order what the command does",
    "commands/train.py: train": "half of it declares flags; the rest says in order what the command does",
    "proof/kernel/walk.py: rows_below": "one derivation, held to docs/soundness.md error term by error term",
}


def lengths(path: Path) -> dict[str, tuple[int, int]]:
    """How long a module and each of its functions are, and how long they may be."""
    text, name = path.read_text(), path.relative_to(ROOT).as_posix()
    found = {name: (len(text.splitlines()), MOST_LINES)}
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = _lines(node.body[0]) if ast.get_docstring(node) is not None else 0
            lines, key = _lines(node) - docstring, f"{name}: {node.name}"
            found[key] = max(found.get(key, (0, 0)), (lines, MOST_IN_A_FUNCTION))  # methods may share a name
    return found


def _lines(node: ast.stmt) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


def test_what_is_long_has_a_reason() -> None:
    long = {}
    for path in ROOT.rglob("*.py"):
        long.update({key: lines for key, (lines, most) in lengths(path).items() if lines > most})
    assert {key: lines for key, lines in long.items() if key not in LONG} == {}, (
        "split it, or say why it is better whole"
    )
    assert set(LONG) - set(long) == set(), "a reason that is needed no longer"


# --- docstrings

# Where public names are, beside `elbowroom` itself.
DOCUMENTED = (
    "analyse", "data.sources", "runs.runner",
    "training.adversary", "training.models", "training.sets", "training.train", "vnnlib",
)  # fmt: skip
SECTIONS = ("Args", "Attributes", "Returns", "Yields", "Raises", "Example")  # Google's, in this order
NAMED = ("Args", "Attributes", "Raises")  # whose entries have names


def public() -> dict[str, Any]:
    """The public functions, classes and methods. A method that a base class has is described there."""
    found = {name: getattr(er, name) for name in er.__all__}
    for place in DOCUMENTED:
        module = importlib.import_module(f"elbowroom.{place}")
        own = {name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__}
        names = getattr(module, "__all__", [name for name in own if not name.startswith("_")])
        found.update({f"{place}.{name}": getattr(module, name) for name in names})
    for name, kind in list(found.items()):
        if inspect.isclass(kind):
            inherited = {method for base in kind.__mro__[1:] for method in vars(base)}
            for method, value in vars(kind).items():
                if isinstance(value, FunctionType | classmethod | staticmethod) and method not in inherited:
                    found[f"{name}.{method}"] = getattr(kind, method)
    hidden = [name for name in found if name.rpartition(".")[2].startswith("_")]
    return {name: value for name, value in found.items() if callable(value) and name not in hidden}


def sections(text: str) -> dict[str, list[str]]:
    """The sections of a docstring, and the names of their entries."""
    found: dict[str, list[str]] = {}
    section = ""
    for line in inspect.cleandoc(text).splitlines()[1:]:
        if line and not line.startswith(" "):
            section = line[:-1] if line[:-1] in SECTIONS and line.endswith(":") else ""
            if section:
                assert section not in found, f"{section} twice"
                found[section] = []
        elif section and line.startswith("    ") and line[4] != " ":
            entry = re.match(r"    (\*{0,2}\w+): \S", line)
            assert entry or section not in NAMED, f"no name stands in front of {line.strip()!r}"
            found[section].append(entry[1] if entry else "")
    assert list(found) == sorted(found, key=SECTIONS.index), f"sections go in the order {', '.join(SECTIONS)}"
    assert all(found.values()), "a section is empty"
    return found


def parameters_of(value: Any) -> list[str]:
    """The names that callers see, with their stars."""
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    return [
        stars.get(p.kind, "") + p.name
        for p in inspect.signature(value).parameters.values()
        if p.name not in ("self", "cls") and not p.name.startswith("_")
    ]


@pytest.mark.parametrize("name", sorted(public()))
def test_docstrings_describe_what_callers_give_and_get(name: str) -> None:
    value = public()[name]
    assert value.__doc__, "no docstring"
    found = sections(value.__doc__)
    for error in found.get("Raises", []):
        assert issubclass(getattr(elbowroom.errors, error, None) or getattr(builtins, error), Exception)
    if not inspect.isclass(value):
        given = parameters_of(value)
        assert found.get("Args", []) == given
        answer = inspect.signature(value).return_annotation
        if given and answer != "None":  # without arguments, the first sentence may say what comes back
            assert ("Yields" if answer.startswith("Iterator") else "Returns") in found
    elif "Args" in found:
        assert found["Args"] == parameters_of(value)
    elif dataclasses.is_dataclass(value):
        assert found.get("Attributes", []) == [f.name for f in dataclasses.fields(value)]
    elif not getattr(value, "_is_protocol", False):
        assert "__init__" not in vars(value), "what is it made from?"


# --- imports

# Modules that import others of ours inside functions, and why.
LAZY = {
    "certificates.result": "the files of certificates are made of certificates",
    "commands": "help must be quick: what a command needs is loaded when it runs",
    "data.sources": "each kind of data has its own, partly optional, package",
    "readers.load": "each kind of model has its own, partly optional, package",
    "runs.engines.choice": "Ray is optional, and processes are not always needed",
}


def test_imports_inside_functions_have_a_reason() -> None:
    found = set()
    for path in ROOT.rglob("*.py"):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for function in ast.walk(parsed(path)):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                for node in ast.walk(function):
                    if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("elbowroom"):
                        found.add("commands" if module.startswith("commands.") else module)
    assert found == set(LAZY)


# Packages that may be missing, and modules that cannot do without one.
OPTIONAL = (
    "filelock",
    "flint",
    "jinja2",
    "matplotlib",
    "onnx",
    "onnxruntime",
    "pandas",
    "PIL",
    "pyarrow",
    "ray",
    "rich",
    "sklearn",
    "triton",
    "typer",
)
NEEDS = {"commands": "typer", "__main__": "typer", "demo": "rich"}

_WITHOUT = """
import importlib, pkgutil, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {optional!r}:
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
import elbowroom
failed = []
for module in pkgutil.walk_packages(elbowroom.__path__, "elbowroom.", onerror=lambda name: None):
    if module.name.split(".")[1] in {needs!r}:
        continue
    try:
        importlib.import_module(module.name)
    except ImportError as error:
        failed.append((module.name, str(error)))
print(failed)
"""


def test_no_optional_package_is_imported_before_it_is_needed() -> None:
    code = _WITHOUT.format(optional=set(OPTIONAL), needs=set(NEEDS))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_every_dependency_is_explained() -> None:
    root = Path(__file__).parents[1]
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *(one for each in project["optional-dependencies"].values() for one in each)]
    names = {re.split(r"[\[<>=~! ]", one)[0] for one in asked} - {"elbowroom"}
    text, _, by_hand = (root / "docs" / "dependencies.md").read_text().partition("## By hand")
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert {name for name in names if not any(re.search(rf"[ |]{name}[ ,]", row) for row in rows)} == set()
    for place in re.findall(r"`([a-z_/]+(?:\.py|/))`", by_hand):
        assert (ROOT / place).exists(), place


# --- the proof stands alone


def proof_files() -> list[Path]:
    """The proof and all that it imports, by the import graph."""
    graph = grimp.build_graph("elbowroom", exclude_type_checking_imports=True)
    modules = {m for m in graph.modules if m == "elbowroom.proof" or m.startswith("elbowroom.proof.")}
    modules |= {other for m in modules for other in graph.find_upstream_modules(m)}
    modules |= {m.rsplit(".", k)[0] for m in modules for k in range(1, m.count(".") + 1)}  # the packages they lie in
    found = []
    for module in sorted(modules):
        place = ROOT.joinpath(*module.split(".")[1:])
        found.append(place / "__init__.py" if place.is_dir() else place.with_suffix(".py"))
    return found


# The proof's own command, several times in one process: exit status, what it printed, and on stderr.
_ALONE = """
import contextlib, io, json, runpy, sys
place, wanted = sys.argv[1:]
sys.path.insert(0, place)
found = []
for arguments in json.loads(wanted):
    sys.argv = ["elbowroom.proof", *arguments]
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as errors:
        try:
            runpy.run_module("elbowroom.proof", run_name="__main__", alter_sys=True)
        except SystemExit as end:
            found.append((end.code, out.getvalue(), errors.getvalue()))
print(json.dumps(found))
"""


def test_the_proof_copied_out_of_the_tree_proves_a_run_again(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 3))
    net = er.load(module, input_shape=(1, 6, 6))
    certs = er.certify(net, torch.rand(5, 1, 6, 6), domain=(0, 1))
    run = certs.save(tmp_path / "run")
    files = proof_files()
    rooms = {path.relative_to(ROOT).parts[0] for path in files if path.parent != ROOT}
    assert rooms == {"certificates", "claim", "machine", "network", "proof"}
    for path in files:
        target = tmp_path / "alone" / "elbowroom" / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    shutil.copytree(run, tmp_path / "damaged")
    text = (run / "run.json").read_text().replace('"delta": 0.0', '"delta": 1.0')
    (tmp_path / "damaged" / "run.json").write_text(text)
    wanted = [[str(run), "--arithmetic", name] for name in ("float64", "arb")] + [[str(tmp_path / "damaged")]]
    command = [sys.executable, "-I", "-c", _ALONE, str(tmp_path / "alone"), json.dumps(wanted)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    *good, (code, _, errors) = json.loads(done.stdout)
    for status, printed, said in good:
        assert status == 0, said
        found = json.loads(printed)
        assert found["proved"] == int(certs.certified.sum()) > 0 and not found["failures"]
    assert code == 2 and "changed" in errors and "Traceback" not in errors


# --- what is called a claim is proved


def _claims() -> dict[str, object]:
    torch.manual_seed(1)
    net = er.load(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 3)), input_shape=(3,))
    x = torch.rand(3, 3, dtype=torch.float64)
    spec = er.outputs_within(net(x), 0.5)
    basis = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64))[0]
    unsure = er.certify(net, torch.full((3, 3), torch.nan), domain=(0, 1))
    reached = er.certify(net, x, reach=True)
    assert reached.reach is not None and bool(reached.reach.isfinite().all())
    boxes, rotated = er.certify(net, x, domain=(0, 1)), er.certify(net, x, region=er.Oblique(basis), spec=spec)
    assert set(boxes.status) == set(rotated.status) == {"certified"}
    return {"boxes": boxes, "rotated": rotated, "unsure": unsure, "reached": reached, "sets": _sets(x)}


def _sets(x: torch.Tensor) -> er.Certificates:
    """Of a network to which a category says more than the numbers do."""
    table = Table((Column("a"), Column("b", ("low", "high"), ((0.0, 0.0), (9.0, -9.0)))))
    graph = Graph((3,))
    graph.add(ops.Linear(torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]).double(), None), graph.input)
    net = graph.network(about=About(features=table.entries, table=table))
    inputs = torch.cat([x[:, :1] - 2, torch.zeros(3, 2, dtype=torch.float64)], 1)
    certs = er.certify(net, inputs)
    assert set(certs.status) == {"certified"} and certs.allowed is not None and not bool(certs.allowed.all())
    return certs


# Per field whose role is "claim": certificates, and a change that makes it false.
FORGED = {
    "status": ("unsure", lambda c: ("certified",) * 3),
    "labels": ("boxes", lambda c: (c.labels + 1) % 3),
    "x": ("boxes", lambda c: c.x + 5),
    "eps": ("boxes", lambda c: 2 * c.eps),
    "center": ("boxes", lambda c: c.center + 0.5 * c.eps),
    "lower": ("boxes", lambda c: c.lower - 9),
    "upper": ("boxes", lambda c: c.upper + 9),
    "allowed": ("sets", lambda c: torch.ones_like(c.allowed)),
    "basis": ("rotated", lambda c: c.basis + 0.1),
    "lowest": ("boxes", lambda c: c.lowest + 0.9),
    "highest": ("boxes", lambda c: c.highest - 0.9),
    "spec_rows": ("rotated", lambda c: -c.spec_rows),
    "spec_offset": ("rotated", lambda c: c.spec_offset - 1),
    "spec_group": ("rotated", lambda c: c.spec_group.flip(0)),
    "reach": ("reached", lambda c: 0.999 * c.reach),
    "seen": ("reached", lambda c: c.x),
    "geomean": ("boxes", lambda c: 1.01 * c.geomean),
    "log_volume": ("boxes", lambda c: c.log_volume + 0.1),
}
# Claims that hold in any order: a conjunction does.
HARMLESS = {"spec_group": "the groups' numbers have no meaning beyond which rows belong together"}


def test_every_claim_is_proved() -> None:
    claims = {name for name, c in declared(er.Certificates).items() if c.role == "claim"}
    assert claims == set(FORGED)
    made = _claims()
    for name, (which, change) in FORGED.items():
        certs: Any = made[which]
        forged = dataclasses.replace(certs, **{name: change(certs)})
        try:
            good = bool(er.check(forged).passed.any())
        except er.InputError:
            good = False
        assert good == (name in HARMLESS), name
