"""Certificates as VNN-LIB queries: the numbers in the text are exact, and a complete verifier agrees with the claim."""

from __future__ import annotations

import csv
import dataclasses
import math
import re
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from onnx import numpy_helper
from torch import Tensor
from typer.testing import CliRunner

import elbowroom as er
from elbowroom.certificates.result import Certificates
from elbowroom.claim.specification import Specification
from elbowroom.commands import app as cli
from elbowroom.errors import InputError
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network
from elbowroom.search.regions.input_set import InputSet
from elbowroom.vnnlib import decimals_between, exact_decimals, export, query
from support import Region, attack, cases, mlp, normal
from vnnlib.complete import Literal, Query, Verifier

# ---------------------------------------------------------------------------------------------------------------
# A reader of the format, in rational numbers

ROOM = 1e-4  # margins that the verifier, which takes 1e-8 for a tie, can tell from zero


def read(text: str) -> Query:
    tokens = re.findall(r"[()]|[^\s()]+", re.sub(r";.*", "", text))
    at = 0

    def expression() -> Any:
        nonlocal at
        at += 1
        if tokens[at - 1] != "(":
            return tokens[at - 1]
        parts = []
        while tokens[at] != ")":
            parts.append(expression())
        at += 1
        return parts

    count = {"X": 0, "Y": 0}
    lower: dict[int, Fraction] = {}
    upper: dict[int, Fraction] = {}
    clauses: list[list[Literal]] = [[]]
    while at < len(tokens):
        kind, *rest = expression()
        if kind == "declare-const":
            name, number = rest[0].split("_")
            assert rest[1] == "Real" and int(number) == count[name]
            count[name] += 1
            continue
        assert kind == "assert"
        (what,) = rest
        if what[0] == "or":
            assert clauses == [[]], "one assertion about the outputs"
            clauses = [[literal(p, count["Y"]) for p in part[1:]] for part in what[1:]]
            assert all(part[0] == "and" for part in what[1:])
        elif what[1].startswith("X_") if isinstance(what[1], str) else False:
            place, ends = int(what[1][2:]), lower if what[0] == ">=" else upper
            assert place not in ends
            ends[place] = decimal(what[2])
        else:
            clauses[0].append(literal(what, count["Y"]))
    assert set(lower) == set(upper) == set(range(count["X"]))
    return Query([lower[k] for k in range(count["X"])], [upper[k] for k in range(count["X"])], clauses)


def decimal(text: str) -> Fraction:
    assert re.fullmatch(r"-?\d+\.\d+", text), text  # no exponents, no bare integers
    return Fraction(text)


def literal(expression: list[Any], n_outputs: int) -> Literal:
    relation, left, right = expression
    (a, c), (b, d) = linear(left, n_outputs), linear(right, n_outputs)
    sign = {"<=": 1, ">=": -1}[relation]
    return [sign * (u - v) for u, v in zip(a, b)], sign * (c - d)


def linear(term: Any, n_outputs: int) -> Literal:
    if isinstance(term, str):
        if term.startswith("Y_"):
            return [Fraction(int(term[2:]) == j) for j in range(n_outputs)], Fraction(0)
        return [Fraction(0)] * n_outputs, decimal(term)
    if term[0] == "*":
        factor, (row, offset) = decimal(term[1]), linear(term[2], n_outputs)
        return [factor * c for c in row], factor * offset
    assert term[0] == "+"
    parts = [linear(t, n_outputs) for t in term[1:]]
    return [sum(column, Fraction(0)) for column in zip(*(row for row, _ in parts))], sum(
        (d for _, d in parts), Fraction(0)
    )


# ---------------------------------------------------------------------------------------------------------------
# The text

floats = st.floats(allow_nan=False, allow_infinity=False)
everyday = st.one_of(st.floats(-10, 10), st.floats(-1, 1, width=32), st.integers(-255, 255).map(lambda k: k / 255))


@cases(20)
@given(ends=st.one_of(st.tuples(floats, floats), st.tuples(everyday, everyday)))
def test_corners_are_written_inwards(ends: tuple[float, float]) -> None:
    low, high = sorted(ends)
    for a, b in ((low, high), (low, low), (low, math.nextafter(low, math.inf))):
        if math.isinf(b):
            continue
        bottom, top = decimals_between(a, b)
        assert Fraction(a) <= decimal(bottom) <= decimal(top) <= Fraction(b)
        assert decimal(bottom) - Fraction(a) < Fraction(math.ulp(a)) / 100
        assert Fraction(b) - decimal(top) < Fraction(math.ulp(b)) / 100
        assert (float(bottom), float(top)) == (a, b)  # so that a reader in float64 sees the corners themselves
        if a == b:
            assert decimal(bottom) == decimal(top) == Fraction(a)


@cases(4)
@given(value=floats)
def test_all_decimals(value: float) -> None:
    assert decimal(exact_decimals(value)) == Fraction(value)


def test_short_numbers_stay_short() -> None:
    assert decimals_between(-0.5, 255.0) == ("-0.5", "255.0")
    assert decimals_between(-0.0, 1e22) == ("0.0", "10000000000000000000000.0")
    assert decimals_between(0.1, 0.3) == ("0.10000000000000000556", "0.29999999999999998889")
    assert decimals_between(0.1, 0.1)[0] == "0.1000000000000000055511151231257827021181583404541015625"
    assert exact_decimals(2.0**-20) == "0.00000095367431640625"


def specifications(seed: int) -> dict[str, Specification]:
    """Of three outputs, one of each kind."""
    rng = np.random.default_rng(seed)
    label = torch.tensor([int(rng.integers(3))])
    return {
        "label": er.label_stays(label, 3),
        "smallest label": er.label_stays(label, 3, "min"),
        "set": er.label_in([0, 2], 3),
        "smallest set": er.label_in([1, 2], 3, "min"),
        "only one outside": er.label_in([0, 1], 3),
        "regression": er.outputs_within(normal(rng, 1, 3) / 3, torch.tensor([0.1, 0.3, 1e-7])),
        "bound": er.linear_specification(torch.tensor([[0.0, -2.0, 0.0]]), torch.tensor([0.7])),
        "sign": er.linear_specification(torch.tensor([[0.0, -2.0, 0.0], [0.5, 0.0, 0.0]])),
        "difference": er.linear_specification(
            torch.tensor([[1.0, -1.0, 0.0], [-1.0, 1.0, 1.0]]), torch.tensor([0.3, 0.0])
        ),
        "sum": er.linear_specification(torch.tensor([[1.0, 1.0, 0.0], [-1.0, 0.0, -1.0]]), torch.tensor([0.3, 0.1])),
        "linear": er.linear_specification(normal(rng, 3, 3) / 3, normal(rng, 3) / 3),
        "grouped": Specification(normal(rng, 1, 4, 3) / 7, normal(rng, 1, 4), torch.tensor([1, 0, 1, 2])),
    }


@pytest.mark.parametrize("kind", specifications(0))
def test_unsafe_is_the_negation(kind: str) -> None:
    answers = set()
    for seed in range(5):
        spec = specifications(seed)[kind]
        rng = np.random.default_rng(seed)
        low, high = torch.tensor([-0.1, 0.3]), torch.tensor([0.1, 0.3])
        found = read(query(low, high, spec))
        assert found.lower == [Fraction(low[0].item()), Fraction(low[1].item())]
        rows = [[Fraction(c) for c in row] for row in spec.rows[0].tolist()]
        offsets = [Fraction(d) for d in spec.offset[0].tolist()]
        points = [[Fraction(v) for v in rng.standard_normal(3) * size] for size in (0.1, 1, 10) for _ in range(50)]
        points += [[Fraction(int(v)) for v in rng.integers(-1, 2, 3)] for _ in range(50)]  # with ties
        if kind == "regression":  # the outputs it is about: its tolerance is too small for the others
            points.append([(offsets[3 + k] - offsets[k]) / 2 for k in range(3)])
        for z in points:
            values = [sum(c * v for c, v in zip(row, z)) + d for row, d in zip(rows, offsets)]
            groups = [max(v for v, g in zip(values, spec.group.tolist()) if g == k) for k in range(spec.n_groups)]
            assert found.unsafe(z) == (not all(g > 0 for g in groups))
            answers.add(found.unsafe(z))
    assert answers == {True, False}


def test_plain_forms() -> None:
    box = torch.zeros(2), torch.ones(2)
    text = query(*box, er.label_stays(torch.tensor([1]), 3), ["Two\nlines"])
    assert text.startswith("; Two lines\n")
    assert "(assert (or\n    (and (<= Y_1 Y_0))\n    (and (<= Y_1 Y_2))\n))" in text
    assert "(and (<= Y_0 Y_1))" in query(*box, er.label_stays(torch.tensor([1]), 3, "min"))
    assert "    (and (<= Y_0 Y_1) (<= Y_2 Y_1))" in query(*box, er.label_in([0, 2], 4))
    assert "(assert (<= Y_0 Y_1))\n(assert (<= Y_2 Y_1))" in query(*box, er.label_in([0, 2], 3))
    text = query(*box, er.outputs_within(torch.tensor([[0.5]]), 0.25))
    assert "(and (<= Y_0 0.25))" in text and "(and (>= Y_0 0.75))" in text


def test_queries_that_make_no_sense() -> None:
    spec = er.label_stays(torch.tensor([0, 1]), 3)
    with pytest.raises(InputError, match="one input"):
        query(torch.zeros(2), torch.ones(2), spec)
    one = spec.part(torch.tensor([0]))
    for low, high in (
        (torch.ones(2), torch.zeros(2)),
        (torch.zeros(2), torch.ones(3)),
        (-math.inf * torch.ones(1),) * 2,
    ):
        with pytest.raises(InputError, match="corners"):
            query(low, high, one)
    with pytest.raises(InputError, match="zero"):
        query(torch.zeros(2), torch.ones(2), er.linear_specification(torch.zeros(1, 3), torch.ones(1)))


# ---------------------------------------------------------------------------------------------------------------
# The folder


def small(seed: int, sizes: list[int], decision: str = "max") -> tuple[Network, Tensor]:
    rng = np.random.default_rng(seed)
    net = mlp(rng, sizes, decision=decision).cast(torch.float32)
    return net, normal(rng, 4, sizes[0])


def test_export(tmp_path: Path) -> None:
    net, x = small(1, [3, 8, 8, 3])
    labels = net.decide(net(x))
    labels[1] = (labels[1] + 1) % 3  # a wrong one: no certificate
    frozen = torch.tensor([False, True, False])
    certs = er.certify(net, x, labels, frozen=frozen, domain=(-1.5, 1.5))
    good = [i for i, status in enumerate(certs.status) if status == "certified"]
    assert 1 not in good and len(good) >= 2
    certs.save(tmp_path / "run")
    paths = export(Certificates.load(tmp_path / "run"), None, tmp_path / "out", timeout=7)
    assert [p.name for p in paths] == [f"input_{i}.vnnlib" for i in good]
    with open(tmp_path / "out" / "instances.csv", newline="") as file:
        assert list(csv.reader(file)) == [["network.onnx", p.name, "7"] for p in paths]
    for i, path in zip(good, paths):
        found = read(path.read_text())
        assert found.lower[1] == found.upper[1] == Fraction(float(x[i, 1]))
        for k in range(3):
            assert Fraction(float(certs.lower[i, k])) <= found.lower[k] <= found.upper[k]
            assert found.upper[k] <= Fraction(float(certs.upper[i, k]))
        rows = er.label_stays(labels[i : i + 1], 3).rows[0].tolist()
        assert [clause[0][0] for clause in found.clauses] == rows
        assert f"Input {i}: label {int(labels[i])} stays" in path.read_text()
    session = onnxruntime.InferenceSession(tmp_path / "out" / "network.onnx", providers=["CPUExecutionProvider"])
    torch.testing.assert_close(torch.from_numpy(session.run(None, {"input": x.float().numpy()})[0]), net(x.float()))


def test_export_of_images_counts_row_by_row(tmp_path: Path) -> None:
    weight = normal(np.random.default_rng(0), 2, 1, 2, 2)
    net = Network.chain((1, 2, 3), [ops.Conv(weight), ops.Reshape((-1,)), ops.Linear(torch.eye(2, 4).double())])
    certs = er.certify(net, normal(np.random.default_rng(1), 1, 1, 2, 3))
    (path,) = export(certs, net, tmp_path)
    found = read(path.read_text())
    assert [float(v) for v in found.lower] == certs.lower[0].flatten().tolist()
    assert [float(v) for v in found.upper] == certs.upper[0].flatten().tolist()


def test_rounded_numbers_are_stated(tmp_path: Path) -> None:
    net = Network.chain((2,), [ops.LeakyReLU(0.01), ops.Linear(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))])
    certs = er.certify(net, torch.tensor([[1.0, 0.2]]))
    (path,) = export(certs, net, tmp_path)
    assert "; the ONNX model holds a rounded number: leakyrelu_1 (LeakyReLU): slope 0.01 becomes" in path.read_text()
    (path,) = export(certs, net, tmp_path, dtype=torch.float64)
    assert "rounded" not in path.read_text()


def test_what_cannot_be_exported(tmp_path: Path) -> None:
    net, x = small(1, [3, 8, 3])
    with pytest.raises(InputError, match=r"box along the axes.*Ellipsoid"):
        export(er.certify(net, x, region=er.Ellipsoid()), net, tmp_path)
    certs = er.certify(net, x)
    for other in (small(2, [3, 8, 3])[0], small(1, [2, 8, 3])[0], small(1, [3, 8, 3], "min")[0]):
        with pytest.raises(InputError, match="are about the network with hash"):
            export(certs, other, tmp_path)
    with pytest.raises(InputError, match="do not carry their network"):
        export(dataclasses.replace(certs, network=None), None, tmp_path)
    with pytest.raises(InputError, match="nothing to export"):
        export(er.certify(net, x, (net.decide(net(x)) + 1) % 3), net, tmp_path)
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write into"):
        export(certs, net, tmp_path / "file")


def test_command(tmp_path: Path) -> None:
    net = Network.chain((2,), [ops.LeakyReLU(0.01), ops.Linear(torch.eye(2))])
    er.certify(net, torch.tensor([[1.0, 0.2], [0.3, 0.9]])).save(tmp_path / "run")
    command = ["export-vnnlib", str(tmp_path / "run"), "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(cli.app, command)
    assert done.exit_code == 0 and done.output.startswith("2 queries")
    assert "1 number" in done.output and "--float64" in done.output
    files = ["input_0.vnnlib", "input_1.vnnlib", "instances.csv", "network.onnx"]
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == files
    done = CliRunner().invoke(cli.app, [*command, "--float64"])
    assert done.exit_code == 0 and "rounded" not in done.output
    kind = onnx.load(tmp_path / "out" / "network.onnx").graph.input[0].type.tensor_type.elem_type
    assert kind == onnx.TensorProto.DOUBLE
    done = CliRunner().invoke(cli.app, ["export-vnnlib", str(tmp_path / "nothing"), "--out", str(tmp_path)])
    assert done.exit_code == 2


# ---------------------------------------------------------------------------------------------------------------
# A complete verifier (Marabou). It computes in floating point, to about 1e-6: margins here are well above that.


def assert_agrees(verifier: Verifier, path: Path, whole: bool = True) -> None:
    """No clause of the query has a solution, nor has the query as a whole."""
    found = read(path.read_text())
    for number in range(len(found.clauses)):
        assert verifier.clause(found, number)[0] != "sat", (path.read_text(), number)
    if whole:
        assert verifier.whole(path)[0] != "sat", path.read_text()


def is_refuted_when_larger(
    verifier: Verifier, net: Network, certs: Certificates, i: int, spec: Specification, path: Path, whole: bool = True
) -> bool:
    """Grows a box until an attack succeeds; does the verifier find a counter-example there too, and a true one?"""
    net = net.cast(torch.float64)
    rng = np.random.default_rng(0)
    middle, half = (certs.upper[i] + certs.lower[i]) / 2, (certs.upper[i] - certs.lower[i]) / 2
    for factor in (1.25, 1.5, 2.0, 3.0, 5.0, 8.0, 16.0, 32.0, 64.0):
        low, high = middle - factor * half, middle + factor * half
        region = Region(InputSet.box(low[None], high[None]), low[None], high[None])
        start = region.unit_points(rng, 100)
        points = attack(net, region, start, lambda v: -spec.margins(v[-1]).amin(1)).flatten(0, 1)
        margins = spec.margins(net(points)).amin(0)
        if float(margins.min()) < -1e-3:
            break
    else:
        return False
    path.write_text(query(low, high, spec))
    answers = [verifier.clause(read(path.read_text()), int(margins.argmin()))]
    if whole:
        answers.append(verifier.whole(path))
    for answer, point in answers:
        assert answer != "unsat", f"an attack succeeds in the box times {factor}, the verifier sees no way"
        if answer == "sat":
            bad = torch.tensor([point], dtype=torch.float64)
            assert bool(((bad >= low - 1e-6) & (bad <= high + 1e-6)).all())
            assert float(spec.margins(net(bad)).amin()) <= 1e-5
    return all(answer == "sat" for answer, _ in answers)


def assert_mostly_decided(answers: Counter[str], share: float, least: int) -> None:
    assert answers["unsat"] >= max(share * (answers["unsat"] + answers["unknown"]), least), answers


@pytest.mark.parametrize("sizes", [[3, 8, 8, 3], [2, 10, 10, 4]], ids=str)
@pytest.mark.parametrize("region", [er.Box(), er.Box(asymmetric=True)], ids=["symmetric", "asymmetric"])
def test_a_complete_verifier_agrees(marabou: Any, tmp_path: Path, sizes: list[int], region: Any) -> None:
    verifier = Verifier(marabou, tmp_path / "network.onnx")
    refuted = 0
    for seed in range(4):
        net, x = small(seed, sizes, "max" if seed % 2 else "min")
        certs = er.certify(net, x, region=region, delta=ROOM)
        for path in export(certs, net, tmp_path):
            assert_agrees(verifier, path)
        i = int(certs.certified.nonzero()[0])
        spec = er.label_stays(certs.labels[i : i + 1], net.n_outputs, net.decision)
        refuted += is_refuted_when_larger(verifier, net, certs, i, spec, tmp_path / "larger.vnnlib")
    assert_mostly_decided(verifier.answers, 0.9, least=36)
    assert refuted >= 3


@pytest.mark.parametrize("kind", ["set", "smallest set", "regression", "difference", "linear"])
def test_a_complete_verifier_agrees_on_other_specifications(marabou: Any, tmp_path: Path, kind: str) -> None:
    verifier = Verifier(marabou, tmp_path / "network.onnx")
    whole = kind != "linear"  # Marabou's own reader knows no sums of products
    refuted = 0
    for seed in range(3):
        net, x = small(seed, [3, 8, 8, 3], "min" if kind == "smallest set" else "max")
        outputs = net(x.double())
        spec = {
            "set": er.label_in([int(net.decide(outputs)[0]), 1], 3),
            "smallest set": er.label_in([int(net.decide(outputs)[0]), 1], 3, "min"),
            "regression": er.outputs_within(outputs, 0.3),
            "difference": _held_at(outputs, torch.tensor([[1.0, -1.0, 0.0], [-1.0, 1.0, 1.0]])),
            "linear": _held_at(outputs, normal(np.random.default_rng(seed), 2, 3)),
        }[kind]
        certs = er.certify(net, x, spec=spec, delta=ROOM)
        for path in export(certs, net, tmp_path):
            assert_agrees(verifier, path, whole)
        i = int(certs.certified.nonzero()[0])
        one = spec.part(torch.tensor([i]))
        refuted += is_refuted_when_larger(verifier, net, certs, i, one, tmp_path / "larger.vnnlib", whole)
    assert_mostly_decided(verifier.answers, 0.9, least=12)
    assert refuted >= 2


def _held_at(outputs: Tensor, rows: Tensor) -> Specification:
    """For every input the same rows (`t x k`), each true there with a margin of 0.5."""
    return er.linear_specification(rows.double().expand(len(outputs), -1, -1), 0.5 - outputs @ rows.double().T)


# ---------------------------------------------------------------------------------------------------------------
# A network nobody here made: ACAS Xu 1-1, where the smallest output decides


@pytest.fixture(scope="module")
def acas(shared: Path) -> tuple[Network, Path]:
    path = shared / "models" / "acasxu" / "ACASXU_run2a_1_1_batch_2000.onnx"
    weights = {i.name: torch.from_numpy(numpy_helper.to_array(i).copy()) for i in onnx.load(path).graph.initializer}
    layers: list[ops.Operation] = [ops.Shift(-weights["input_AvgImg"].flatten())]
    for name in (*(f"Operation_{k}" for k in range(1, 7)), "linear_7"):
        layers += [ops.Linear(weights[f"{name}_MatMul_W"].T, weights[f"{name}_Add_B"]), ops.ReLU()]
    return Network.chain((5,), layers[:-1], "min"), path


def test_acas_is_read_rightly(acas: tuple[Network, Path], tmp_path: Path) -> None:
    net, path = acas
    x = torch.from_numpy(np.random.default_rng(0).uniform(-0.5, 0.5, (20, 5)).astype(np.float32))
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    theirs = [session.run(None, {"input": row.reshape(1, 1, 1, 5).numpy()})[0] for row in x]
    torch.testing.assert_close(net(x), torch.from_numpy(np.concatenate(theirs)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["prop_3", "prop_4"])
def test_a_complete_verifier_agrees_on_acas(
    marabou: Any, acas: tuple[Network, Path], tmp_path: Path, name: str
) -> None:
    net, path = acas
    box = read(path.with_name(f"{name}.vnnlib").read_text())
    low, high = (np.array([float(v) for v in side]) for side in (box.lower, box.upper))
    x = torch.from_numpy(np.random.default_rng(2).uniform(low, high, (4, 5)))
    certs = er.certify(net, x, domain=(-0.5, 0.7), delta=ROOM)
    verifier = Verifier(marabou, tmp_path / "network.onnx")
    paths = export(certs, net, tmp_path)
    for query_path in paths:
        assert_agrees(verifier, query_path, whole=query_path == paths[-1])
    assert_mostly_decided(verifier.answers, 0.8, least=10)
    refuted = 0
    for i in certs.certified.nonzero().squeeze(1).tolist():
        spec = er.label_stays(certs.labels[i : i + 1], 5, "min")
        refuted += is_refuted_when_larger(verifier, net, certs, i, spec, tmp_path / "larger.vnnlib", whole=False)
    assert refuted >= 1
