"""VNN-LIB in: what is read means what was written, in rational numbers; what cannot be read is refused by line."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import elbowroom as er
from elbowroom.claim.query import Literal, at_least, at_most
from elbowroom.claim.specification import Specification
from elbowroom.errors import ElbowroomError, InputError, UnsupportedError
from elbowroom.vnnlib import Query, as_region, box_query, parse_query, query, read_query
from elbowroom.vnnlib import read as reading
from support import cases, mlp

HEAD = "(declare-const X_0 Real)\n(declare-const X_1 Real)\n(declare-const Y_0 Real)\n(declare-const Y_1 Real)\n"
BOX = "(assert (>= X_0 -1))\n(assert (<= X_0 1))\n(assert (>= X_1 0.5))\n(assert (<= X_1 0.5))\n"
UNSAFE = "(assert (<= Y_0 Y_1))\n"


def holds_at(found: Query, x: list[Fraction], y: list[Fraction]) -> bool:
    """Whether inputs and outputs satisfy what was read, in rational numbers."""
    return any(
        all(
            (low.value < v if low.open else low.value <= v) and (v < high.value if high.open else v <= high.value)
            for v, low, high in zip(x, case.low, case.high, strict=True)
        )
        and any(all(sum(c * y[j] for j, c in l.terms) + l.offset <= 0 for l in clause) for clause in case.clauses)
        for case in found.cases
    )


# ---------------------------------------------------------------------------------------------------------------
# Meaning: random formulas, written in many ways, against their own truth at points


@dataclass
class Formula:
    """Text, and its truth at a point; `<` between outputs is meant as `<=`, as it is read."""

    text: str
    truth: Callable[[list[Fraction], list[Fraction]], bool]


def numeral(rng: np.random.Generator, value: Fraction) -> str:
    """A decimal in one of its spellings."""
    size = abs(value)
    assert (size * 100).denominator == 1
    cents = int(size * 100)
    spelling = rng.choice(
        [f"{cents / 100:.2f}", f"{cents}e-2", f"{cents / 1000:.3f}E+1", f"0{cents // 100}.{cents % 100:02d}"]
    )
    sign = rng.choice(["-{}", "(- {})", "(- 0 {})", "(* -1 {})"]) if value < 0 else rng.choice(["{}", "+{}", "(+ {})"])
    return str(sign.format(spelling))


def linear(rng: np.random.Generator, letter: str, weights: list[Fraction], constant: Fraction) -> str:
    """`sum w v + constant`, nested in some way."""
    parts = [numeral(rng, constant)] if constant else []
    for k, w in enumerate(weights):
        name = f"{letter}_{k}"
        if w == 1:
            parts.append(name)
        elif w == -1:
            parts.append(f"(- {name})")
        elif w:
            pair = [numeral(rng, w), name] if rng.random() < 0.5 else [name, numeral(rng, w)]
            parts.append(f"(* {' '.join(pair)})")
    rng.shuffle(parts)
    while len(parts) > 1:
        several = parts[: int(rng.integers(2, len(parts) + 1))]
        parts = [f"(+ {' '.join(several)})", *parts[len(several) :]]
    return parts[0] if parts else "0"


def comparison(rng: np.random.Generator) -> Formula:
    """One input against a number, or a linear form of the outputs."""
    relation = str(rng.choice(["<=", ">=", "<", ">", "="]))
    test = {
        "<=": lambda v: v <= 0,
        ">=": lambda v: v >= 0,
        "<": lambda v: v < 0,
        ">": lambda v: v > 0,
        "=": lambda v: v == 0,
    }
    values = [Fraction(int(v), 4) for v in rng.integers(-8, 9, 6)]
    if rng.random() < 0.5:
        k, scale = int(rng.integers(2)), values[0] or Fraction(1)
        weights, constant = [Fraction(0), Fraction(0)], values[1]
        weights[k] = scale
        left, right = linear(rng, "X", weights, constant), numeral(rng, values[2])
        return Formula(f"({relation} {left} {right})", lambda x, _: test[relation](scale * x[k] + constant - values[2]))
    first, second = values[:2], values[2:4]
    if first == second:
        first[0] += 1
    test |= {"<": test["<="], ">": test[">="]}
    left, right = linear(rng, "Y", first, values[4]), linear(rng, "Y", second, values[5])

    def truth(_: list[Fraction], y: list[Fraction]) -> bool:
        difference = sum((a - b) * v for a, b, v in zip(first, second, y))
        return test[relation](difference + values[4] - values[5])

    return Formula(f"({relation} {left} {right})", truth)


def formula(rng: np.random.Generator, depth: int) -> Formula:
    if depth == 0 or rng.random() < 0.3:
        return comparison(rng)
    parts = [formula(rng, depth - 1) for _ in range(int(rng.integers(1, 4)))]
    head, join = ("and", all) if rng.random() < 0.5 else ("or", any)
    gap = str(rng.choice([" ", "\n\t", " ; a note (with <= in it)\n"]))
    return Formula(f"({head}{gap}{gap.join(p.text for p in parts)})", lambda x, y: join(p.truth(x, y) for p in parts))


@cases(20)
@given(seed=st.integers(0, 2**32 - 1))
def test_meaning(seed: int) -> None:
    rng = np.random.default_rng(seed)
    formulas = [formula(rng, int(rng.integers(0, 4))) for _ in range(int(rng.integers(1, 4)))]
    formulas.append(Formula("(>= (+ Y_0 Y_1) -100)", lambda x, y: sum(y) >= -100))
    formulas += [Formula(f"(and (<= -2 X_{k}) (<= X_{k} 2))", lambda x, _, k=k: -2 <= x[k] <= 2) for k in range(2)]
    rng.shuffle(formulas)
    text = HEAD + "".join(f"(assert {f.text})\n" for f in formulas)
    grid = [Fraction(int(v), 8) for v in range(-17, 18)]
    points = [
        ([grid[i] for i in rng.integers(0, len(grid), 2)], [grid[i] for i in rng.integers(0, len(grid), 2)])
        for _ in range(60)
    ]
    try:
        found = parse_query(text)
    except InputError as error:
        assert "about no input at all" in str(error)
        assert not any(all(f.truth(x, y) for f in formulas) for x, y in points)
        return
    for x, y in points:
        assert holds_at(found, x, y) == all(f.truth(x, y) for f in formulas), text
    for case in found.cases:
        assert bool((case.lower <= case.upper).all())


def test_meaning_sees_both_answers() -> None:
    """The test above would be empty if its formulas were never true."""
    truths = set()
    for seed in range(30):
        rng = np.random.default_rng(seed)
        f = formula(rng, 2)
        for _ in range(20):
            x, y = ([Fraction(int(v), 8) for v in rng.integers(-17, 18, 2)] for _ in range(2))
            truths.add((f.text.split(maxsplit=1)[0], f.truth(x, y)))
    assert {("(and", True), ("(and", False), ("(or", True), ("(or", False)} <= truths


# ---------------------------------------------------------------------------------------------------------------
# What our writer wrote is read back

numbers = st.one_of(st.floats(-10, 10), st.floats(allow_nan=False, allow_infinity=False), st.integers(-3, 3).map(float))


@st.composite
def written(draw: Callable) -> tuple[torch.Tensor, torch.Tensor, Specification]:
    n, k, t = draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.integers(1, 5))
    ends = draw(st.lists(st.tuples(numbers, numbers).map(sorted), min_size=n, max_size=n))
    rows = st.lists(numbers, min_size=k, max_size=k).filter(any)
    spec = Specification(
        torch.tensor([draw(st.lists(rows, min_size=t, max_size=t))], dtype=torch.float64),
        torch.tensor([draw(st.lists(numbers, min_size=t, max_size=t))], dtype=torch.float64),
        torch.tensor([0, *np.cumsum(draw(st.lists(st.integers(0, 1), min_size=t - 1, max_size=t - 1))).tolist()]),
    )
    low, high = (torch.tensor(side, dtype=torch.float64) for side in zip(*ends))
    return low, high, spec


@cases(20)
@given(what=written())
def test_our_own_queries_are_read_back(what: tuple[torch.Tensor, torch.Tensor, Specification]) -> None:
    low, high, spec = what
    found = parse_query(query(low, high, spec, ["a note; with (parentheses"]))
    (case,) = found.cases
    assert (found.n_inputs, found.n_outputs) == (len(low), spec.rows.shape[2])
    assert torch.equal(case.lower, low) and torch.equal(case.upper, high)
    again = case.specification(found.n_outputs)
    assert torch.equal(again.group, spec.group)
    # The plainest form leaves off a common factor, and with it nothing else.
    for row, offset, was_row, was_offset in zip(again.rows[0], again.offset[0], spec.rows[0], spec.offset[0]):
        mine, theirs = ([Fraction(float(v)) for v in (*r, d)] for r, d in ((row, offset), (was_row, was_offset)))
        factor = next(b / a for a, b in zip(mine, theirs) if b)
        assert factor > 0 and [factor * v for v in mine] == theirs
        if factor != 1:
            assert was_offset == 0
    stated = box_query(low, high, spec).cases[0]
    assert torch.equal(stated.specification(found.n_outputs).rows, spec.rows)
    assert torch.equal(stated.lower, low) and torch.equal(stated.upper, high)


# ---------------------------------------------------------------------------------------------------------------
# Rounding

fractions = st.one_of(
    st.fractions(-10, 10),
    st.decimals(-5, 5, places=7).map(Fraction),
    st.floats(allow_nan=False, allow_infinity=False).map(Fraction),
    st.floats(-1e-300, 1e-300).map(lambda v: Fraction(v) / 3),
)


@cases(20)
@given(value=fractions)
def test_directed_rounding(value: Fraction) -> None:
    low, high = at_most(value), at_least(value)
    assert Fraction(low) <= value <= Fraction(high)
    assert (low == high) == (Fraction(low) == value)
    assert high in (low, math.nextafter(low, math.inf))


def test_corners_are_rounded_outwards() -> None:
    text = HEAD + "(assert (= X_0 0.1)) (assert (> X_1 0.1)) (assert (< X_1 0.3))" + UNSAFE
    case = parse_query(text).cases[0]
    for k, (low, high) in enumerate(((0.1, 0.1), (0.1, 0.3))):
        exact = [Fraction(str(v)) for v in (low, high)]
        assert Fraction(float(case.lower[k])) < exact[0] and exact[1] < Fraction(
            math.nextafter(float(case.upper[k]), 1)
        )
        assert (float(case.lower[k]), float(case.upper[k])) == (
            math.nextafter(0.1, 0),
            high if k == 0 else math.nextafter(0.3, 1),
        )
    # A point of the case: of X_0 only its neighbours are known, X_1 lies inside.
    low, high = case.around(torch.tensor([5.0, 0.0], dtype=torch.float64))
    assert (float(low[0]), float(high[0])) == (math.nextafter(0.1, 0), 0.1)
    assert low[1] == high[1] == 0.1 and Fraction(0.1) > Fraction("0.1")
    low, high = case.around(torch.tensor([0.1, 1.0], dtype=torch.float64))
    assert low[1] == high[1] == 0.3 and Fraction(0.3) < Fraction("0.3")


def test_open_ends_are_left_out_of_counterexamples() -> None:
    case = parse_query(HEAD + "(assert (> X_0 0)) (assert (< X_0 1)) (assert (= X_1 0.5))" + UNSAFE).cases[0]
    assert case.lower.tolist() == [0.0, 0.5] and case.upper.tolist() == [1.0, 0.5]
    assert case.around(torch.zeros(2).double())[0].tolist() == [5e-324, 0.5]
    assert case.around(torch.ones(2).double())[1].tolist() == [math.nextafter(1, 0), 0.5]


@cases(4)
@given(
    value=st.decimals(-5, 5, places=6).map(Fraction), weight=st.sampled_from(["1", "0.5", "0.1", "3", "-0.7", "1e-9"])
)
def test_constants_are_rounded_against_the_claim(value: Fraction, weight: str) -> None:
    decimal = f"{float(value):.6f}"
    case = parse_query(HEAD + BOX + f"(assert (<= (* {weight} Y_0) {decimal}))").cases[0]
    proof, violation = case.specification(2), case.violation(0, 2)
    row, opposite = proof.rows[0, 0].tolist(), violation.rows[0, 0].tolist()
    assert opposite == [-c for c in row] and row[1] == 0
    scale = Fraction(row[0]) / Fraction(weight)
    assert scale > 0
    offset, least = Fraction(float(proof.offset)), Fraction(float(violation.offset))
    # To prove: row . y + offset > 0, which must be harder than scale * (weight y - value) > 0; for the violation, too.
    assert offset <= -scale * value <= -least
    assert -scale * value - offset <= math.ulp(float(offset)) and -least + scale * value <= math.ulp(float(least))
    if Fraction(float(scale * value)) != scale * value:
        assert offset < -least


def test_coefficients_stay_exact() -> None:
    literal = Literal.of([(0, Fraction("0.1")), (2, Fraction("-0.3")), (1, Fraction(0))], Fraction("0.7"))
    assert literal == Literal(((0, Fraction(1)), (2, Fraction(-3))), Fraction(7))
    with pytest.raises(UnsupportedError, match="coefficients of outputs with more digits"):
        Literal.of([(0, Fraction(1)), (1, Fraction("0.12345678901234567890123"))], Fraction(0))
    with pytest.raises(UnsupportedError, match="beyond what float64 holds"):
        Literal.of([(0, Fraction(1))], Fraction(10) ** 309)


def test_as_region() -> None:
    net = mlp(np.random.default_rng(0), [2, 5, 2])
    case = parse_query(HEAD + BOX + "(assert (<= Y_0 -1000))").cases[0]
    x, domain = as_region(net, case)
    assert x.tolist() == [0.0, 0.5]
    certs = er.certify(net, x, domain=domain, spec=case.specification(2))
    assert certs.status == ("certified",)
    assert torch.equal(certs.lower[0], case.lower) and torch.equal(certs.upper[0], case.upper)
    with pytest.raises(InputError, match="2 outputs, the network has 3"):
        case.specification(3)
    with pytest.raises(InputError, match="2 inputs, the network has 3"):
        as_region(mlp(np.random.default_rng(0), [3, 5, 2]), case)


# ---------------------------------------------------------------------------------------------------------------
# Shapes that occur


def test_declarations_and_trimmings() -> None:
    text = (
        '(set-logic QF_LRA)\r\n(set-info :source "one (of a kind); \n two")\r; (assert (<= X_0 0))\r'
        "(declare-fun X_0 () Real)\n(declare-fun Y_0 () Real)(assert(and(<= 0 X_0 1.5e1)(< Y_0(-(- 2)))))\n"
        "(check-sat)(exit)"
    )
    (case,) = parse_query(text).cases
    assert case.lower.tolist() == [0.0] and case.upper.tolist() == [15.0]
    assert case.clauses == ((Literal(((0, Fraction(1)),), Fraction(-2)),),)


def test_one_box_for_all_clauses() -> None:
    found = parse_query(HEAD + BOX + "(assert (or (and (<= Y_0 Y_1)) (and (>= Y_0 3) (<= Y_1 2)) (<= Y_1 -1)))")
    (case,) = found.cases
    assert [len(c) for c in case.clauses] == [1, 2, 1]
    spec = case.specification(2)
    assert spec.group.tolist() == [0, 1, 1, 2]
    assert spec.rows[0].tolist() == [[1, -1], [-1, 0], [0, 1], [0, 1]] and spec.offset[0].tolist() == [0, 3, -2, 1]
    assert not found.only_compares and parse_query(HEAD + BOX + UNSAFE).only_compares


def test_several_boxes() -> None:
    """As in property 6 of ACAS Xu, and the queries that state a box per class."""
    sides = [f"(and (>= X_0 {a}) (<= X_0 {b}))" for a, b in ((-1, 0), (0.5, 1), (3, 2))]
    common = "(assert (= X_1 1)) (assert (>= Y_0 Y_1))"
    found = parse_query(HEAD + f"(assert (or {' '.join(sides)}))" + common)
    assert [(c.lower.tolist(), c.upper.tolist()) for c in found.cases] == [([-1, 1], [0, 1]), ([0.5, 1], [1, 1])]
    mixed = "(and (<= -1 X_0 1) (<= Y_0 0)) (and (<= -1 X_0 1) (<= Y_1 0)) (and (<= 4 X_0 5) (<= Y_1 0))"
    found = parse_query(HEAD + f"(assert (= X_1 1)) (assert (or {mixed}))")
    assert [len(c.clauses) for c in found.cases] == [2, 1]


# ---------------------------------------------------------------------------------------------------------------
# What is refused

REFUSED: dict[str, tuple[str, type[ElbowroomError], str]] = {
    "nothing": ("", InputError, "no input X_0 is declared"),
    "a gap": ("(declare-const X_1 Real)", InputError, "X_0 is not declared, although X_1 is"),
    "no outputs": ("(declare-const X_0 Real)", InputError, "no output Y_0"),
    "open": (HEAD + "\n(assert (<= X_0 1)", InputError, "line 6: an opening parenthesis without"),
    "close": (HEAD + "(assert (<= X_0 1))\n)", InputError, "line 6: a closing parenthesis without"),
    "quote": (HEAD + '(set-info :a "oh)\n', InputError, "line 5: a quotation mark"),
    "outside": (HEAD + "\nassert", InputError, "line 6: assert stands outside"),
    "deep": (HEAD + "(" * 200, InputError, "line 5: more than 100 parentheses"),
    "no command": (HEAD + "((assert))", InputError, "line 5: a list that does not begin"),
    "empty list": (HEAD + "()", InputError, "line 5: a list that does not begin"),
    "twice": (HEAD + "(declare-const X_1 Real)", InputError, "line 5: X_1 is declared twice"),
    "no type": (HEAD + "(declare-const X_2)", InputError, "line 5: declare-const needs a name"),
    "no name": ("(declare-const)", InputError, "line 1: declare-const needs a name"),
    "bare function": ("(declare-fun X_0 Real)", InputError, "line 1: declare-fun needs a name"),
    "a word": (HEAD + "\n\n(assert X_0)", InputError, "line 7: X_0 where a comparison"),
    "two formulas": (HEAD + "(assert (<= X_0 1) (<= X_1 1))", InputError, "line 5: assert takes one formula"),
    "undeclared": (HEAD + "(assert (<= X_7 1))", InputError, "line 5: X_7 is neither a number nor declared"),
    "not a number": (HEAD + "(assert (<= X_0 1.2.3))", InputError, "line 5: 1.2.3 is not a number"),
    "hexadecimal": (HEAD + "(assert (<= X_0 0x10))", InputError, "line 5: 0x10 is not a number"),
    "not finite": (HEAD + "(assert (<= X_0 inf))", InputError, "line 5: inf is neither"),
    "exponent": (HEAD + "(assert (<= X_0 1e99999999999))", InputError, "line 5: the exponent of 1e9"),
    "long": (HEAD + f"(assert (<= X_0 0.{'1' * 5000}))", InputError, "line 5: a number of 5002 characters"),
    "products": (HEAD + f"(assert (<= X_0 (* {'1e900 ' * 50})))", InputError, "line 5: .*thousands of digits"),
    "too large": (HEAD + "(assert (<= X_0 1e309))", InputError, "line 5: the bound of X_0 is beyond"),
    "one side": (HEAD + "(assert (<= X_0))", InputError, "line 5: <= needs two terms"),
    "no terms": (HEAD + "(assert (<= X_0 (+)))", InputError, r"line 5: \+ of nothing"),
    "no formulas": (HEAD + "(assert (and))", InputError, "line 5: and of nothing"),
    "a formula inside": (HEAD + "(assert (<= X_0 (<= X_1 1)))", InputError, "line 5: .* where a term is expected"),
    "a term outside": (HEAD + "(assert (+ X_0 1))", InputError, r"line 5: \(\+ ...\) where a comparison"),
    "numbers alone": (HEAD + "(assert (<= 1 2))", InputError, "line 5: .* compares numbers"),
    "cancelled": (HEAD + "(assert (<= Y_0 (+ Y_0 1)))", InputError, "line 5: .* compares numbers"),
    "after the end": (HEAD + BOX + "(check-sat)\n" + UNSAFE, InputError, "line 10: .*after the end"),
    "unbounded": (HEAD + "(assert (<= 0 X_1 1)) (assert (<= X_0 1))" + UNSAFE, InputError, "X_0 has no lower bound"),
    "free": (HEAD + "(assert (<= 0 X_1 1))" + UNSAFE, InputError, "X_0 has no bound"),
    "half a box": (HEAD + BOX.replace("(<= X_0 1)", "(or (<= X_0 1) (< X_1 1))") + UNSAFE, InputError, "X_0 has no up"),
    "no unsafe outputs": (HEAD + BOX, InputError, "says nothing about the outputs"),
    "no inputs": (HEAD + BOX + "(assert (< X_1 0.5))" + UNSAFE, InputError, "no input at all: X_1"),
    "division": (HEAD + "(assert (<= X_0 (/ 1 3)))", UnsupportedError, r"the operator / \(line 5\)"),
    "types": ("(declare-const X_0 Int)", UnsupportedError, "the type Int"),
    "names": (HEAD + "(declare-const slack Real)", UnsupportedError, "variables other than"),
    "leading zero": (HEAD + "(declare-const X_02 Real)", UnsupportedError, "variables other than"),
    "functions": (HEAD + "(declare-fun X_2 (Real) Real)", UnsupportedError, "functions with arguments"),
    "other networks": ("(declare-network f)", UnsupportedError, "the command declare-network"),
    "several inputs": (HEAD + "\n(assert (<= X_0 X_1))", UnsupportedError, r"several inputs with .* \(line 6\)"),
    "inputs and outputs": (HEAD + "(assert (<= X_0 Y_1))", UnsupportedError, "inputs with outputs"),
    "squares": (HEAD + "(assert (<= (* Y_0 Y_0) 1))", UnsupportedError, "products of variables"),
    "digits": (HEAD + "(assert (<= (* 0.12345678901234567890123 Y_0) Y_1))", UnsupportedError, "more digits than"),
    "cases": (HEAD + "(assert (or (<= Y_0 1) (<= Y_1 1)))\n" * 14, UnsupportedError, "more than 10,000 cases"),
    "cases inside": (HEAD + f"(assert (and {'(or (<= Y_0 1) (<= Y_1 1))' * 14}))", UnsupportedError, "cases.*line 5"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    text, kind, message = REFUSED[name]
    with pytest.raises(kind, match=message) as caught:
        parse_query(text, "q.vnnlib")
    assert str(caught.value).startswith("q.vnnlib") and "\n" not in str(caught.value) and len(str(caught.value)) < 400


def test_everything_unsupported_is_named() -> None:
    text = HEAD + "(assert (not (ite (<= X_0 1) (<= (sin Y_0) 1) true)))\n(push 1)\n(assert (<= X_0 X_1))"
    with pytest.raises(UnsupportedError) as caught:
        parse_query(text)
    for what in ("operator not (line 5)", "operator ite", "operator sin", "command push (line 6)", "(line 7)"):
        assert what in str(caught.value)


def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "q.vnnlib"
    path.write_bytes(b"\xef\xbb\xbf; \xc3\xa4\n" + (HEAD + BOX + UNSAFE).encode())
    assert read_query(path) == parse_query(HEAD + BOX + UNSAFE)
    path.write_bytes(b"; text\n\xff\xfe\x00")
    with pytest.raises(InputError, match=r"q.vnnlib, line 2: this is not text"):
        read_query(path)
    monkeypatch.setattr(reading, "MOST_BYTES", 1 << 20)
    path.write_bytes(b" " * ((1 << 20) + 1))
    with pytest.raises(InputError, match="more than 1 MiB"):
        read_query(path)
    for missing in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(InputError, match="cannot read"):
            read_query(missing)


def test_many_terms_take_linear_time() -> None:
    started = time.process_time()
    outputs = [f"Y_{j}" for j in range(20_000)]
    text = "(declare-const X_0 Real)" + "".join(f"(declare-const {y} Real)" for y in outputs)
    text += f"(assert (<= 0 X_0 1)) (assert (<= (+ {' '.join(outputs)} (- {' '.join(outputs)})) 1))"
    assert len(parse_query(text).cases[0].clauses[0]) == 1
    assert time.process_time() - started < 3


# ---------------------------------------------------------------------------------------------------------------
# Fuzz

SEEDS = [
    HEAD + BOX + UNSAFE,
    HEAD + BOX + "(assert (or (and (>= Y_0 1e-3)) (and (<= (- Y_1 Y_0) (- 2)) (< (* 2 Y_1) 3))))",
]
TOKENS = [
    "(", ")", "((", "))", " ", "\n", ";", '"', "|", "X_0", "X_1", "Y_0", "Y_1", "X_9", "Y_", "assert", "declare-const",
    "declare-fun", "Real", "and", "or", "not", "<=", ">=", "<", ">", "=", "+", "-", "*", "/", "0", "1", "-1", "1e400",
    "1e-400", "0.1", "1e", ".", "-", "()", "check-sat", "\x00", "é", "٣", "1_0", "nan", "inf", "(- 1)", "let",
]  # fmt: skip


@st.composite
def damaged(draw: Callable) -> str:
    text = draw(st.sampled_from(SEEDS))
    for _ in range(draw(st.integers(1, 6))):
        pieces = re.findall(r"[()]|[^\s()]+|\s+", text) or [""]
        at = draw(st.integers(0, len(pieces) - 1))
        what = draw(st.sampled_from(["drop", "insert", "replace", "repeat", "cut"]))
        token = draw(st.one_of(st.sampled_from(TOKENS), st.text(max_size=3)))
        if what == "drop":
            del pieces[at]
        elif what == "insert":
            pieces.insert(at, token)
        elif what == "replace":
            pieces[at] = token
        elif what == "repeat":
            pieces[at:at] = pieces[at : at + draw(st.integers(1, 12))]
        else:
            pieces = pieces[: at + 1]
        text = "".join(pieces)
    return text


@cases(60)
@given(text=st.one_of(damaged(), st.lists(st.sampled_from(TOKENS), max_size=30).map(" ".join), st.text(max_size=60)))
def test_fuzz(text: str) -> None:
    try:
        found = parse_query(text)
    except (InputError, UnsupportedError) as error:
        assert str(error).startswith("the query") and "\n" not in str(error)
        return
    for case in found.cases:
        assert bool((case.lower <= case.upper).all() and (case.lower.abs() + case.upper.abs()).isfinite().all())
        spec = case.specification(found.n_outputs)
        assert bool(spec.rows.isfinite().all() and spec.offset.isfinite().all())


@cases(10)
@given(data=st.binary(max_size=50))
def test_fuzzed_files(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "q.vnnlib"
    path.write_bytes(HEAD.encode() + data)
    with pytest.raises((InputError, UnsupportedError)):
        read_query(path)


# ---------------------------------------------------------------------------------------------------------------
# Queries that nobody here wrote


def test_acas(shared: Path) -> None:
    found = {p: read_query(shared / "models" / "acasxu" / f"prop_{p}.vnnlib") for p in (1, 2, 3, 4)}
    for question in found.values():
        assert (question.n_inputs, question.n_outputs, len(question.cases)) == (5, 5, 1)
    (first,), (second,), (third,), (fourth,) = (found[p].cases for p in (1, 2, 3, 4))
    assert (first.low, first.high) == (second.low, second.high)
    assert [str(float(s.value)) for s in first.high] == ["0.679857769", "0.5", "0.5", "0.5", "-0.45"]
    spec = first.specification(5)
    assert spec.rows.tolist() == [[[-1, 0, 0, 0, 0]]]
    assert (
        Fraction(float(spec.offset)) <= Fraction("3.991125645861615") < Fraction(math.nextafter(float(spec.offset), 9))
    )
    eye = torch.eye(5)
    assert torch.equal(second.specification(5).rows[0], (eye[1:] - eye[0]).double())
    assert torch.equal(third.specification(5).rows[0], (eye[0] - eye[1:]).double())
    assert second.specification(5).group.tolist() == [0] * 4 and fourth.lower[2] == fourth.upper[2] == 0
    assert found[2].only_compares and not found[1].only_compares


def test_images(shared: Path) -> None:
    path = shared / "models" / "prop_0_0.03.vnnlib"
    times = []
    for _ in range(3):
        started = time.process_time()
        found = read_query(path)
        times.append(time.process_time() - started)
    assert min(times) < 0.3  # 0.05 on an idle machine; seconds, if it looked at every character
    (case,) = found.cases
    assert (found.n_inputs, len(case.clauses)) == (784, 9)
    wide = (case.upper - case.lower)[(case.lower > 0) & (case.upper < 1)]
    assert len(wide) > 50 and bool(((wide - 0.06).abs() < 1e-6).all())
    for clause, j in zip(case.specification(10).rows[0], [k for k in range(10) if k != 8]):
        assert clause[8] == 1 and clause[j] == -1 and clause.abs().sum() == 2


def test_line_by_line(shared: Path) -> None:
    """A second reading of these files, which have one bound in every line."""
    for name in ("prop_0_0.03.vnnlib", "acasxu/prop_3.vnnlib"):
        path = shared / "models" / name
        case = read_query(path).cases[0]
        ends: dict[str, Any] = {">=": [None] * len(case.low), "<=": [None] * len(case.low)}
        for relation, k, value in re.findall(r"\(assert \((<=|>=) X_(\d+) (\S+)\)\)", path.read_text()):
            ends[relation][int(k)] = Fraction(value)
        assert [s.value for s in case.low] == ends[">="] and [s.value for s in case.high] == ends["<="]
