"""VNN-LIB queries in: declarations and assertions become a `Query`, a disjunction of boxes with their unsafe outputs.

What is read: `declare-const` and `declare-fun` of reals `X_i` and `Y_j`; `assert` of `<=`, `>=`, `<`, `>` and `=`
between linear terms (`+`, `-`, `*`, numbers), joined by `and` and `or` in any nesting. A comparison of inputs is about
one of them. Everything else is refused by name.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

from elbowroom.claim.query import LARGEST, Case, Literal, Query, Side
from elbowroom.errors import InputError, UnsupportedError
from elbowroom.vnnlib.syntax import Part, Source, number_of, parts_of, refuse_long, shortened

MOST_BYTES = 32 << 20
MOST_TERMS = 10_000  # conjunctions, once everything is written as a disjunction of them
MOST_ATOMS = 2_000_000  # comparisons in all of these

_VARIABLE = re.compile(r"([XY])_(0|[1-9]\d{0,6})", re.ASCII)
_RELATIONS = ("<=", ">=", "<", ">", "=")
_ARITHMETIC = ("+", "-", "*")
_SILENT = ("set-logic", "set-info", "set-option", "get-model", "get-value")  # these say nothing about the query
_LAST = ("check-sat", "exit")
_SHOWN = 10  # unsupported parts that are listed


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of an input's interval."""

    index: int
    is_upper: bool
    side: Side


Atom = Bound | Literal
Term = tuple[Atom, ...]  # a conjunction


def read_query(path: str | os.PathLike[str]) -> Query:
    """Reads a `.vnnlib` file.

    Args:
        path: The file.

    Returns:
        The query.

    Raises:
        InputError: The file cannot be read, or is not a VNN-LIB query; the message names the line.
        UnsupportedError: It asks for something that cannot be answered here; the message names every such part.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    if len(data) > MOST_BYTES:
        raise InputError(f"{path} has more than {MOST_BYTES >> 20} MiB, the most that is read")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}, line {line}: this is not text, so it is not a VNN-LIB file") from None
    return parse_query(text, Path(path).name)


def parse_query(text: str, name: str = "the query") -> Query:
    """The query that a VNN-LIB text states.

    Args:
        text: The text.
        name: What to call it in messages.

    Returns:
        The query.

    Raises:
        InputError: It is not a VNN-LIB query; the message names the line.
        UnsupportedError: It asks for something that cannot be answered here; the message names every such part.
    """
    source = Source(text.replace("\r\n", "\n").replace("\r", "\n"), name)
    return _Reader(source).query()


@dataclass
class _Reader:
    source: Source
    declared: dict[str, set[int]] = field(default_factory=lambda: {"X": set(), "Y": set()})
    always: list[Atom] = field(default_factory=list)  # what is asserted outside every `or`
    terms: list[Term] = field(default_factory=lambda: [()])  # all other assertions, as one disjunction
    unsupported: dict[str, int] = field(default_factory=dict)  # what, and where first

    def query(self) -> Query:
        closed = False
        for part in parts_of(self.source):
            if closed and part.head not in _SILENT + _LAST:
                raise self.source.error(part.at, f"{self.source.quote(part)} comes after the end of the query")
            closed = closed or part.head in _LAST
            try:
                self._command(part)
            except UnsupportedError as error:
                self._refuse(str(error), part.at)
        if self.unsupported:
            shown = [f"{what} (line {self.source.line(at)})" for what, at in self.unsupported.items()]
            more = f"; and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
            raise UnsupportedError(f"{self.source.name} holds what is not read: {'; '.join(shown[:_SHOWN])}{more}")
        sizes = [self._count(letter, what) for letter, what in (("X", "input"), ("Y", "output"))]
        return _Cases(self.source, *sizes).query(self.always, self.terms)

    def _refuse(self, what: str, at: int) -> None:
        self.unsupported.setdefault(what, at)

    def _count(self, letter: str, what: str) -> int:
        found = self.declared[letter]
        if not found:
            raise InputError(f"{self.source.name}: no {what} {letter}_0 is declared, so this is not a VNN-LIB query")
        missing = next((k for k in range(len(found)) if k not in found), None)
        if missing is not None:
            raise InputError(
                f"{self.source.name}: {letter}_{missing} is not declared, although {letter}_{max(found)} is"
            )
        return len(found)

    # --- commands

    def _command(self, part: Part) -> None:
        head, rest = part.head, part.rest
        if head in ("declare-const", "declare-fun"):
            self._declare(part)
        elif head == "assert":
            if len(rest) != 1:
                raise self.source.error(part.at, f"assert takes one formula, and here are {len(rest)}")
            if self._is_readable(rest[0]):
                terms = self._formula(rest[0])
                if len(terms) == 1:
                    self.always.extend(terms[0])
                else:
                    self.terms = self._product([self.terms, terms])
        elif not head:
            raise self.source.error(part.at, "a list that does not begin with a command")
        elif head not in _SILENT + _LAST:
            raise UnsupportedError(f"the command {shortened(head)}")

    def _declare(self, part: Part) -> None:
        *words, kind = part.rest or [part]
        if part.head == "declare-fun":
            if len(words) != 2 or words[1].parts is None:
                raise self.source.error(part.at, "declare-fun needs a name, () and a type")
            if words[1].parts:
                raise UnsupportedError("functions with arguments")
            words = words[:1]
        if len(words) != 1 or not words[0].word:
            raise self.source.error(part.at, f"{part.head} needs a name and the type Real")
        if kind.word != "Real":
            raise UnsupportedError(f"the type {self.source.quote(kind)}")
        found = _VARIABLE.fullmatch(words[0].word)
        if found is None:
            raise UnsupportedError("variables other than X_0, X_1, ... and Y_0, Y_1, ...")
        numbers, number = self.declared[found[1]], int(found[2])
        if number in numbers:
            raise self.source.error(part.at, f"{found[0]} is declared twice")
        numbers.add(number)

    def _is_readable(self, part: Part) -> bool:
        """Notes every operator in a formula that is not read."""
        readable, stack = True, [part]
        while stack:
            part = stack.pop()
            if part.parts:
                stack.extend(reversed(part.rest))
                if part.head and part.head not in (*_RELATIONS, *_ARITHMETIC, "and", "or"):
                    self._refuse(f"the operator {shortened(part.head)}", part.at)
                    readable = False
        return readable

    # --- formulas

    def _formula(self, part: Part) -> list[Term]:
        """As a disjunction of conjunctions."""
        head, rest = part.head, part.rest
        if head in _RELATIONS:
            if len(rest) < 2:
                raise self.source.error(part.at, f"{head} needs two terms to compare")
            sides = [self._linear(p) for p in rest]
            atoms = [atom for a, b in pairwise(sides) for atom in self._compare(head, a, b, part)]
            return [tuple(atoms)]
        if head not in ("and", "or"):
            raise self.source.error(part.at, f"{self.source.quote(part)} where a comparison, and, or or is expected")
        if not rest:
            raise self.source.error(part.at, f"{head} of nothing")
        operands = [self._formula(p) for p in rest]
        if head == "and":
            return self._product(operands)
        _refuse_many(sum(map(len, operands)), 0)
        return [term for terms in operands for term in terms]

    @staticmethod
    def _product(operands: list[list[Term]]) -> list[Term]:
        """The conjunction of disjunctions, as a disjunction. Operands of one term are joined first, at no cost."""
        terms: list[Term] = [tuple(atom for terms in operands if len(terms) == 1 for atom in terms[0])]
        for other in (terms for terms in operands if len(terms) > 1):
            atoms = len(other) * sum(map(len, terms)) + len(terms) * sum(map(len, other))
            _refuse_many(len(terms) * len(other), atoms)
            terms = [(*a, *b) for a in terms for b in other]
        return terms

    def _compare(self, relation: str, left: _Linear, right: _Linear, part: Part) -> list[Atom]:
        """`left relation right` as one atom; an equation as two."""
        if relation == "=":
            return [*self._compare("<=", left, right, part), *self._compare(">=", left, right, part)]
        smaller, larger = (left, right) if relation in ("<=", "<") else (right, left)
        difference = _Linear(dict(smaller.terms), smaller.constant)
        difference.subtract(larger)
        terms = {name: c for name, c in difference.terms.items() if c}
        if not terms:
            raise self.source.error(part.at, f"{self.source.quote(part)} compares numbers, not inputs or outputs")
        if {letter for letter, _ in terms} == {"Y"}:
            return [Literal.of([(j, c) for (_, j), c in terms.items()], difference.constant)]
        if len(terms) > 1:
            mixed = any(letter == "Y" for letter, _ in terms)
            raise UnsupportedError(
                "comparisons of inputs with outputs" if mixed else "comparisons of several inputs with each other"
            )
        (((_, index), c),) = terms.items()
        value = -difference.constant / c
        if abs(value) > LARGEST:
            raise self.source.error(part.at, f"the bound of X_{index} is beyond what float64 holds")
        return [Bound(index, c > 0, Side(value, relation in ("<", ">")))]

    def _linear(self, part: Part) -> _Linear:
        head, rest = part.head, part.rest
        if part.word:
            return self._leaf(part)
        if head not in _ARITHMETIC:
            raise self.source.error(part.at, f"{self.source.quote(part)} where a term is expected")
        if not rest:
            raise self.source.error(part.at, f"{head} of nothing")
        total = self._linear(rest[0])
        if head == "-" and len(rest) == 1:
            total.multiply(Fraction(-1))
        for other in map(self._linear, rest[1:]):
            if head == "+":
                total.add(other)
            elif head == "-":
                total.subtract(other)
            elif total.terms and other.terms:
                raise UnsupportedError("products of variables")
            else:
                if other.terms:
                    total, other = other, total
                total.multiply(other.constant)
                refuse_long(self.source, part, [total.constant, *total.terms.values()])
        refuse_long(self.source, part, [total.constant, *total.terms.values()])
        return total

    def _leaf(self, part: Part) -> _Linear:
        value = number_of(self.source, part)
        if value is not None:
            return _Linear({}, value)
        found = _VARIABLE.fullmatch(part.word)
        if found is None or int(found[2]) not in self.declared[found[1]]:
            raise self.source.error(part.at, f"{self.source.quote(part)} is neither a number nor declared before")
        return _Linear({(found[1], int(found[2])): Fraction(1)}, Fraction(0))


def _refuse_many(terms: int, atoms: int) -> None:
    if terms > MOST_TERMS or atoms > MOST_ATOMS:
        raise UnsupportedError(
            f"ors, and ands of ors, that come to more than {MOST_TERMS:,} cases or {MOST_ATOMS:,} comparisons"
        )


@dataclass(slots=True)
class _Linear:
    """`sum c v + constant`; `terms`: (letter, number) of a variable -> c."""

    terms: dict[tuple[str, int], Fraction]
    constant: Fraction

    def add(self, other: _Linear) -> None:
        for name, c in other.terms.items():
            self.terms[name] = self.terms.get(name, 0) + c
        self.constant += other.constant

    def subtract(self, other: _Linear) -> None:
        for name, c in other.terms.items():
            self.terms[name] = self.terms.get(name, 0) - c
        self.constant -= other.constant

    def multiply(self, factor: Fraction) -> None:
        self.terms = {name: factor * c for name, c in self.terms.items()}
        self.constant *= factor


# ---------------------------------------------------------------------------------------------------------------
# From conjunctions to cases

Ends = tuple[Side | None, Side | None]


@dataclass
class _Cases:
    source: Source
    n_inputs: int
    n_outputs: int

    def query(self, always: list[Atom], terms: list[Term]) -> Query:
        """Conjunctions with the same box become one case with several clauses; those with an empty box fall away."""
        base: dict[int, Ends] = {}
        self._tighten(base, always)
        shared = tuple(atom for atom in always if isinstance(atom, Literal))
        clauses: dict[frozenset[tuple[int, Ends]], list[tuple[Literal, ...]]] = {}
        empty = _empty(base)
        for term in terms if empty is None else []:
            own = {a.index: base.get(a.index, (None, None)) for a in term if isinstance(a, Bound)}
            self._tighten(own, term)
            gap = _empty(own)
            empty = gap if empty is None else empty
            if gap is None:
                literals = shared + tuple(atom for atom in term if isinstance(atom, Literal))
                if not literals:
                    raise InputError(f"{self.source.name} says nothing about the outputs: assert which ones are unsafe")
                clauses.setdefault(frozenset(own.items()), []).append(literals)
        if not clauses:
            raise InputError(f"{self.source.name} is about no input at all: X_{empty} cannot have any value")
        if len(clauses) * self.n_inputs > MOST_ATOMS:
            raise UnsupportedError(f"{self.source.name} has {len(clauses):,} boxes of {self.n_inputs:,} inputs")
        cases = tuple(self._case({**base, **dict(own)}, tuple(found)) for own, found in clauses.items())
        return Query(cases, self.n_inputs, self.n_outputs)

    @staticmethod
    def _tighten(ends: dict[int, Ends], atoms: list[Atom] | Term) -> None:
        for atom in atoms:
            if isinstance(atom, Bound):
                low, high = ends.get(atom.index, (None, None))
                side = atom.side
                if atom.is_upper and (high is None or (side.value, not side.open) < (high.value, not high.open)):
                    high = side
                if not atom.is_upper and (low is None or (side.value, side.open) > (low.value, low.open)):
                    low = side
                ends[atom.index] = (low, high)

    def _case(self, ends: dict[int, Ends], clauses: tuple[tuple[Literal, ...], ...]) -> Case:
        lows, highs = [], []
        for k in range(self.n_inputs):
            low, high = ends.get(k, (None, None))
            if low is None or high is None:
                missing = "bound" if low is high else "lower bound" if low is None else "upper bound"
                raise InputError(f"{self.source.name}: X_{k} has no {missing}; every input needs two")
            lows.append(low)
            highs.append(high)
        return Case(tuple(lows), tuple(highs), clauses, self.n_outputs)


def _empty(ends: dict[int, Ends]) -> int | None:
    """An input whose interval holds no number; None if there is none."""
    for index, (low, high) in ends.items():
        if low is not None and high is not None:
            gap = high.value - low.value
            if gap < 0 or (gap == 0 and (low.open or high.open)):
                return index
    return None
