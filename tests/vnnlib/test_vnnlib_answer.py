"""Answers to queries: never wrong. Exact arithmetic at counterexamples, points in proved boxes, a complete verifier."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import elbowroom as er
from elbowroom.claim.specification import Specification
from elbowroom.claim.tree import single_leaf
from elbowroom.commands.verify import verify
from elbowroom.errors import InputError, UnsupportedError
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network
from elbowroom.readers.onnx.write import write_onnx
from elbowroom.search.branching import engine
from elbowroom.search.branching.engine import Outcome
from elbowroom.search.regions.input_set import InputSet
from elbowroom.vnnlib import Answer, Case, Query, answer, box_query, load_for, parse_query, read_query
from proof.exact import values
from support import cases, mlp, networks, normal
from vnnlib.complete import Query as Rational
from vnnlib.complete import Verifier

F64 = torch.float64
DECLARED = "(declare-const X_0 Real)(declare-const Y_0 Real)"


def identity() -> Network:
    """`y = x`, one number."""
    return Network.chain((1,), [ops.Linear(torch.ones(1, 1))])


def ask(text: str, net: Network | None = None, **limits: Any) -> Answer:
    return answer(net or identity(), parse_query(DECLARED + text), **limits)


# ---------------------------------------------------------------------------------------------------------------
# Whatever is said is so


def unsafe(case: Case, clause: int, outputs: np.ndarray) -> bool:
    return all(sum(c * outputs[j] for j, c in l.terms) + l.offset <= 0 for l in case.clauses[clause])


def assert_right(net: Network, query: Query, found: Answer, rng: np.random.Generator, points: int = 200) -> None:
    """A counterexample is one in exact arithmetic; no point of a proved box is one."""
    if found.verdict == "violated":
        case, example = query.cases[len(found.cases) - 1], found.counterexample
        assert example is not None and example.margin > 0
        below, above = case.around(example.x.flatten())
        assert torch.equal(below, example.x.flatten())
        for a, b, low, high in zip(below.tolist(), above.tolist(), case.low, case.high, strict=True):
            assert low.value <= Fraction(b) and Fraction(a) <= high.value
            if a == b:
                assert low.value <= Fraction(a) and Fraction(b) <= high.value
                assert not (low.open and a == low.value) and not (high.open and b == high.value)
            else:  # no float64 lies between
                assert math.nextafter(a, math.inf) == b and a <= low.value and high.value <= b
        if not any(isinstance(n.op, ops.Activation) and not isinstance(n.op, ops.ReLU) for n in net.nodes):
            assert unsafe(case, example.clause, values(net, example.x)[-1])
        return
    assert found.counterexample is None
    for case, part in zip(query.cases, found.cases, strict=True):
        if part.verdict == "holds":
            assert part.proved == pytest.approx(1)
            share = torch.from_numpy(rng.random((points, len(case.low))))
            share[: points // 2] = share[: points // 2].round()
            x = case.lower + share * (case.upper - case.lower)
            outputs = net(x.reshape(-1, *net.input_shape))
            assert bool((case.specification(net.n_outputs).margins(outputs) > 0).all())


def random_query(rng: np.random.Generator, net: Network, width: float) -> Query:
    """A box around a random input, and a specification that is true or nearly so at its centre."""
    center = normal(rng, *net.input_shape)
    extent = torch.from_numpy(rng.uniform(0, width, net.input_shape)) * torch.from_numpy(
        rng.random(net.input_shape) < 0.9
    )
    outputs = net(center[None])[0]
    kind = rng.integers(3)
    if kind == 0 and net.n_outputs > 1:
        spec = er.label_stays(net.decide(outputs)[None], net.n_outputs, net.decision)
    else:
        count = int(rng.integers(1, 4))
        rows = normal(rng, 1, count, net.n_outputs)
        offset = 0.5 * normal(rng, 1, count).abs() - (rows @ outputs)
        group = torch.arange(count) if kind == 1 else torch.zeros(count, dtype=torch.long)
        spec = Specification(rows, offset, group)
    return box_query(center - extent, center + extent, spec)


@cases(2)
@given(seed=st.integers(0, 2**32 - 1))
def test_answers_are_right(seed: int) -> None:
    rng = np.random.default_rng(seed)
    net = mlp(rng, [int(rng.integers(1, 4)), 8, 8, int(rng.integers(1, 4))], decision=str(rng.choice(["max", "min"])))
    net = net.cast(torch.float32) if rng.random() < 0.5 else net
    query = random_query(rng, net, float(rng.choice([0.01, 0.1, 0.5])))
    assert_right(net, query, answer(net, query, boxes=2000, seconds=20), rng)


@cases(1)
@given(net=networks(), seed=st.integers(0, 2**32 - 1))
def test_answers_of_all_kinds_of_networks(net: Network, seed: int) -> None:
    rng = np.random.default_rng(seed)
    query = random_query(rng, net, float(rng.choice([0.001, 0.1, 1.0])))
    found = answer(net, query, boxes=100, seconds=5)
    if found.verdict == "holds":
        assert_right(net, query, found, rng, points=50)


def test_most_small_questions_are_decided() -> None:
    counts: Counter[str] = Counter()
    for seed in range(20):
        rng = np.random.default_rng(seed)
        net = mlp(rng, [2, 8, 8, 3])
        counts[answer(net, random_query(rng, net, 1.0), boxes=2000).verdict] += 1
    assert counts["unknown"] <= 1 and min(counts["holds"], counts["violated"]) >= 5, counts


# ---------------------------------------------------------------------------------------------------------------
# Close calls


@pytest.mark.parametrize(
    ("text", "verdicts"),
    [
        ("(assert (<= 0 X_0 1)) (assert (>= Y_0 2))", "holds"),
        ("(assert (<= 0 X_0 1)) (assert (>= Y_0 0.99))", "violated"),
        ("(assert (<= 0 X_0 1)) (assert (>= Y_0 1))", "unknown"),  # at the corner alone, where rounding decides
        ("(assert (<= 0 X_0 1)) (assert (> Y_0 1))", "unknown"),
        ("(assert (<= 0 X_0 1)) (assert (> Y_0 1.00000000000001))", "holds"),
        ("(assert (= X_0 0.1)) (assert (<= 0.2 Y_0))", "holds"),
        ("(assert (= X_0 0.1)) (assert (>= Y_0 0.09999999999))", "violated"),
        ("(assert (= X_0 0.1)) (assert (>= Y_0 0.1))", "unknown"),  # true of the number, not of its neighbours
        ("(assert (= X_0 0.1)) (assert (< Y_0 0.1))", "unknown"),
        ("(assert (and (> X_0 0) (<= X_0 1))) (assert (<= Y_0 0))", "unknown"),  # false: zero is left out
        ("(assert (and (> X_0 0) (<= X_0 1))) (assert (<= Y_0 1e-9))", "violated"),
        ("(assert (<= 0 X_0 1)) (assert (= Y_0 0.5))", "unknown"),  # true of one input, which has no room
        ("(assert (or (<= 0 X_0 1) (<= 3 X_0 4))) (assert (>= Y_0 3.5))", "violated"),
        ("(assert (or (<= 0 X_0 1) (<= 3 X_0 4))) (assert (<= 1.5 Y_0 2.5))", "holds"),
        ("(assert (or (<= 0 X_0 1) (<= 3 X_0 4))) (assert (or (>= Y_0 5) (<= -3 Y_0 -1)))", "holds"),
    ],
)
def test_close_calls(text: str, verdicts: str) -> None:
    for net in (identity(), identity().cast(F64)):
        found = ask(text, net, boxes=200)
        assert found.verdict == verdicts, found.cases
        assert_right(net, parse_query(DECLARED + text), found, np.random.default_rng(0))


def test_a_counterexample_that_no_float64_is() -> None:
    """`X_0 = 0.1`: the number lies between two neighbours, and both are unsafe."""
    found = ask("(assert (= X_0 0.1)) (assert (<= Y_0 0.2))")
    assert found.verdict == "violated"
    assert found.counterexample.x.tolist() == [math.nextafter(0.1, 0)] and found.counterexample.float32


def test_rounded_in_float32() -> None:
    """Unsafe in real arithmetic and float64 by less than float32 sees."""
    net = Network.chain((1,), [ops.Shift(torch.tensor([2.0**-60], dtype=F64)), ops.Linear(torch.ones(1, 1, dtype=F64))])
    found = ask("(assert (<= 1e-3 X_0 1e-3)) (assert (> Y_0 0.001))", net)
    assert found.verdict != "holds"
    text = "(assert (= X_0 0)) (assert (> Y_0 1e-30))"
    found = ask(text, net)
    assert found.verdict == "violated" and found.counterexample.float32
    found = ask("(assert (= X_0 1)) (assert (>= Y_0 0.9999999999))", net)
    assert found.verdict == "violated" and found.counterexample.float32
    net = Network.chain((1,), [ops.Shift(torch.tensor([1e-9], dtype=F64)), ops.Linear(torch.ones(1, 1, dtype=F64))])
    found = ask("(assert (= X_0 1)) (assert (> Y_0 1.0000000005))", net)
    assert found.verdict == "violated" and not found.counterexample.float32


def test_nothing_is_said_of_overflow() -> None:
    net = Network.chain(
        (1,),
        [
            ops.Linear(torch.full((1, 1), 1e200, dtype=F64)),
            ops.ReLU(),
            ops.Linear(torch.full((1, 1), 1e200, dtype=F64)),
        ],
    )
    for text in ("(>= Y_0 0)", "(<= Y_0 1e300)", "(>= Y_0 1e300)"):
        assert ask(f"(assert (<= 1e10 X_0 1e11)) (assert {text})", net, boxes=50).verdict == "unknown"


def test_limits() -> None:
    rng = np.random.default_rng(3)
    net = mlp(rng, [4, 20, 20, 20, 2])
    outputs = net(torch.zeros(1, 4, dtype=F64))[0]
    spec = er.linear_specification(torch.tensor([[1.0, 0.0]]), torch.tensor([2.0]) - outputs[0])
    query = box_query(-torch.ones(4), torch.ones(4), spec)
    few = answer(net, query, boxes=5)
    assert (few.verdict, few.boxes) == ("unknown", 5)
    assert "limit of boxes" in few.cases[0].why and few.cases[0].proved < 1
    more = answer(net, query)
    assert more.verdict == "holds" and more.boxes > 5
    short = answer(net, query, seconds=1e-6)
    assert short.verdict == "unknown" and "limit of seconds" in short.cases[0].why
    two = replace(query, cases=query.cases * 2)
    assert [c.boxes for c in answer(net, two, boxes=8).cases] == [4, 4]
    for wrong in ({"boxes": 0}, {"boxes": 1.5}, {"seconds": 0}, {"seconds": math.nan}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            answer(net, query, **wrong)


def test_pieces_that_cannot_be_halved() -> None:
    """A box two numbers wide whose proof fails by rounding: the search ends, and says so."""
    found = ask("(assert (<= 1 X_0 1.0000000000000002)) (assert (>= Y_0 1.0000000000000002))")
    assert found.verdict == "unknown" and "neither proved nor cut" in found.cases[0].why
    assert "within rounding" in found.cases[0].why


def test_misfits() -> None:
    for sizes, what in (([2, 3, 1], "1 inputs, the network has 2"), ([1, 3, 2], "1 outputs, the network has 2")):
        with pytest.raises(InputError, match=what):
            ask("(assert (<= 0 X_0 1)) (assert (>= Y_0 2))", mlp(np.random.default_rng(0), sizes))


def test_nothing_but_the_strict_check_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that promises everything leads to no "holds"."""

    def promise(net: Network, sets: InputSet, spec: Specification, *_: Any) -> Outcome:
        return Outcome(
            proved=torch.ones(1, spec.n_groups, dtype=torch.bool),
            bound=torch.ones(1, spec.n_groups),
            trees=[{g: single_leaf(g) for g in range(spec.n_groups)}],
            points=[None],
            leaves=torch.ones(1, spec.n_groups, dtype=torch.long),
        )

    monkeypatch.setattr(engine, "prove", promise)
    assert ask("(assert (<= 0 X_0 1)) (assert (>= Y_0 0.5))").verdict == "violated"
    assert ask("(assert (<= 0 X_0 1)) (assert (>= Y_0 1))", boxes=100).verdict == "unknown"
    assert ask("(assert (<= 0 X_0 1)) (assert (>= Y_0 2))").verdict == "holds"


# ---------------------------------------------------------------------------------------------------------------
# A complete verifier


def rational(case: Case) -> Rational:
    clauses = [
        [([dict(l.terms).get(j, Fraction(0)) for j in range(case.n_outputs)], l.offset) for l in clause]
        for clause in case.clauses
    ]
    return Rational([s.value for s in case.low], [s.value for s in case.high], clauses)


def assert_not_contradicted(verifier: Verifier, case: Case, verdict: str) -> None:
    """Marabou's answers, clause by clause, do not contradict ours."""
    answers = {verifier.clause(rational(case), k)[0] for k in range(len(case.clauses))}
    assert not (verdict == "holds" and "sat" in answers)
    assert not (verdict == "violated" and answers == {"unsat"})


def test_a_complete_verifier_agrees_on_answers(marabou: Any, tmp_path: Path) -> None:
    verifier = Verifier(marabou, tmp_path / "network.onnx")
    verdicts: Counter[str] = Counter()
    for seed in range(24):
        rng = np.random.default_rng(seed)
        net = mlp(rng, [int(rng.integers(1, 4)), 8, 8, int(rng.integers(2, 4))]).cast(torch.float32)
        query = random_query(rng, net, float(rng.choice([0.1, 0.3, 0.6])))
        found = answer(net, query, boxes=2000)
        verdicts[found.verdict] += 1
        write_onnx(net, tmp_path / "network.onnx")
        assert_not_contradicted(verifier, query.cases[0], found.verdict)
    assert min(verdicts["holds"], verdicts["violated"]) >= 5 and verdicts["unknown"] <= 2, verdicts
    assert verifier.answers["unknown"] <= 2 and min(verifier.answers["sat"], verifier.answers["unsat"]) >= 5


# ---------------------------------------------------------------------------------------------------------------
# Networks and queries that nobody here made


@pytest.fixture(scope="module")
def acas(shared: Path) -> Path:
    return shared / "models" / "acasxu"


@pytest.fixture(scope="module")
def acas_net(acas: Path) -> Network:
    return er.load(acas / "ACASXU_run2a_1_1_batch_2000.onnx", task="regression")


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_acas_properties_hold(acas: Path, acas_net: Network, number: int) -> None:
    query = read_query(acas / f"prop_{number}.vnnlib")
    found = answer(acas_net, query, seconds=120)
    assert found.verdict == "holds" and found.boxes < 10_000
    assert_right(acas_net, query, found, np.random.default_rng(number), points=5000)


def test_acas_is_refuted_where_it_is_false(acas: Path, acas_net: Network) -> None:
    """With one part of property 3 alone, the other way round, and with a lower threshold in property 1."""
    text = (acas / "prop_3.vnnlib").read_text().partition("; Unsafe")[0]
    text += f"(assert (or {' '.join(f'(<= Y_{j} Y_0)' for j in range(1, 5))}))"
    found = answer(acas_net, parse_query(text))
    assert found.verdict == "violated" and found.counterexample.float32
    assert_right(acas_net, parse_query(text), found, np.random.default_rng(0))
    text = (acas / "prop_1.vnnlib").read_text().replace("3.991125645861615", "-0.0203")
    assert answer(acas_net, parse_query(text)).verdict == "violated"


@pytest.mark.parametrize("number", [3, 4])
def test_a_complete_verifier_agrees_on_acas_answers(marabou: Any, acas: Path, acas_net: Network, number: int) -> None:
    """On small boxes inside the properties' own, for "clear of conflict is least" and its opposite."""
    verifier = Verifier(marabou, acas / "ACASXU_run2a_1_1_batch_2000.onnx")
    case = read_query(acas / f"prop_{number}.vnnlib").cases[0]
    rng = np.random.default_rng(number)
    for k in range(3):
        center = case.lower + torch.from_numpy(rng.random(5)) * (case.upper - case.lower)
        half = 0.02 * (case.upper - case.lower)
        spec = case.specification(5)
        spec = spec if k % 2 else Specification(-spec.rows, spec.offset, torch.arange(4))
        query = box_query(center - half, center + half, spec)
        assert_not_contradicted(verifier, query.cases[0], answer(acas_net, query).verdict)
    assert verifier.answers["sat"] and verifier.answers["unsat"]


def test_images(shared: Path) -> None:
    net = er.load(shared / "models" / "mnist-net_256x2.onnx")
    query = read_query(shared / "models" / "prop_0_0.03.vnnlib")
    assert answer(net, query, boxes=1).verdict == "unknown"  # plain bounds do not: cases or parts do
    found = answer(net, query)
    assert found.verdict == "holds" and found.boxes < 50
    assert_right(net, query, found, np.random.default_rng(0))
    case = query.cases[0]
    middle, half = case.lower / 2 + case.upper / 2, case.upper / 2 - case.lower / 2
    for share, verdict in ((0.5, "holds"), (8.0, "violated")):
        low, high = middle - share * half, middle + share * half
        wider = box_query(low, high, case.specification(10))
        found = answer(net, wider, boxes=3)
        assert found.verdict == verdict
        if verdict == "violated":
            assert found.counterexample.float32
            assert int(net(found.counterexample.x[None].float()).argmax()) != 8


# ---------------------------------------------------------------------------------------------------------------
# The command


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """`(x_0, x_1) -> (x_0 + x_1, x_0 - x_1)` and its file."""
    net = Network.chain((2,), [ops.Linear(torch.tensor([[1.0, 1.0], [1.0, -1.0]]))])
    er.save_network(net, tmp_path / "net.elbowroom")
    return tmp_path / "net.elbowroom"


QUERY = "".join(f"(declare-const {v} Real)" for v in ("X_0", "X_1", "Y_0", "Y_1"))
QUERY += "(assert (<= 0 X_0 1)) (assert (<= 1 X_1 2))"


@pytest.mark.parametrize(
    ("unsafe_outputs", "code", "words"),
    [
        ("(<= Y_0 Y_1)", 0, ["holds (unsat), 1 box", "proved on the whole box"]),
        ("(>= Y_0 2.5)", 1, ["violated (sat)", "X_1 = ", "Y_0 = ", "float32 the network shows it too"]),
        ("(>= Y_0 3)", 3, ["unknown (unknown)", "the limit of boxes was reached"]),
    ],
)
def test_run_a_query(
    model: Path, capsys: pytest.CaptureFixture[str], unsafe_outputs: str, code: int, words: list[str]
) -> None:
    path = model.with_name("q.vnnlib")
    path.write_text(QUERY + f"(assert {unsafe_outputs})")
    assert verify(model, vnnlib=path, boxes=50) == code
    shown = capsys.readouterr().out
    assert all(w in shown for w in words), shown
    assert verify(model, vnnlib=path, boxes=50, json=True) == code
    found = json.loads(capsys.readouterr().out)
    assert found["vnnlib"] == {0: "unsat", 1: "sat", 3: "unknown"}[code] and found["cases"][0]["boxes"] >= 1
    assert (found["counterexample"] is not None) == (code == 1)
    if code == 1:
        assert sum(found["counterexample"]["x"]) >= 2.5 and found["counterexample"]["float32"]


def test_run_a_box(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(model, lower="0,1", upper="1,2") == 0
    assert verify(model, lower="-1", upper="1.5") == 1
    assert verify(model, lower="0.5", upper="1", label=1) == 1
    np.save(model.with_name("low.npy"), np.array([0.0, 1.0], dtype=np.float32))
    assert verify(model, lower=str(model.with_name("low.npy")), upper="2", decision="min") == 0
    assert "holds" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "say what to verify"),
        ({"lower": "0"}, "say what to verify"),
        ({"lower": "0,1,2", "upper": "1"}, "lower has 3 numbers; the network takes 2"),
        ({"lower": "zero", "upper": "1"}, "lower must be a number"),
        ({"lower": "nan", "upper": "1"}, "finite corners"),
        ({"lower": "2", "upper": "1"}, "lower <= upper"),
        ({"lower": "none.npy", "upper": "1"}, "cannot read none.npy"),
        ({"lower": "0", "upper": "1", "label": 7}, "labels must lie in"),
        ({"vnnlib": "none.vnnlib"}, "cannot read none.vnnlib"),
        ({"vnnlib": "q.vnnlib", "lower": "0", "mean": 0.5}, "leave off --lower, --mean"),
    ],
)
def test_run_errors(model: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        verify(model, **options)


def test_arrays_of_objects_are_not_read(model: Path) -> None:
    path = model.with_name("low.npy")
    np.save(path, np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="must be a number"):
        verify(model, lower=str(path), upper="1")


def test_a_softmax_is_left_off_only_where_outputs_are_compared(tmp_path: Path) -> None:
    box = "(assert (<= 0 X_0 1)) (assert (<= 0 X_1 1))"
    declared = "".join(f"(declare-const {v} Real)" for v in ("X_0", "X_1", "Y_0", "Y_1"))
    path = tmp_path / "net.onnx"
    write_onnx(Network.chain((2,), [ops.Linear(torch.eye(2))]), path)
    graph = onnx.load(path)
    (output,) = graph.graph.output
    graph.graph.node.append(onnx.helper.make_node("Softmax", [output.name], ["softmax"], axis=-1))
    output.name = "softmax"
    onnx.save(graph, path)
    compares = load_for(parse_query(declared + box + "(assert (<= Y_0 Y_1))"), path)
    assert compares.n_outputs == 2 and compares.about.notes
    with pytest.raises(UnsupportedError, match=r"[Ss]oftmax"):
        load_for(parse_query(declared + box + "(assert (<= Y_0 0.5))"), path)
