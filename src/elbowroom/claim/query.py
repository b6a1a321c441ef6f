"""What a VNN-LIB query asks: boxes of inputs, and the outputs that are unsafe there.

Numbers are kept as fractions, exactly as they were written. Where float64 is needed they are rounded so that no answer
becomes wrong: outwards and against the proof for "holds", inwards and against the counterexample for "violated".
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import torch
from torch import Tensor

from elbowroom.claim.specification import Specification, linear_specification
from elbowroom.errors import InputError, UnsupportedError
from elbowroom.network.graph import Network

LARGEST = Fraction(sys.float_info.max)


@dataclass(frozen=True)
class Literal:
    """`sum_j c_j Y_j + offset <= 0`.

    `<` is read as `<=`: more is unsafe then, and a counterexample must keep clear of the border anyway.

    Attributes:
        terms: Pairs (j, c_j), by j, each c_j a float64 that is not 0.
        offset: The constant.
    """

    terms: tuple[tuple[int, Fraction], ...]
    offset: Fraction

    @staticmethod
    def of(terms: Sequence[tuple[int, Fraction]], offset: Fraction) -> Literal:
        """The literal of these numbers; where a coefficient is not a float64, such as 0.1, all are scaled to integers.

        Rounding one would change the literal, and which way depends on the sign of an output. What is left, numbers
        with more than 53 bits next to each other, is refused.

        Args:
            terms: Pairs (j, c_j) in any order.
            offset: The constant.

        Returns:
            The literal.

        Raises:
            UnsupportedError: float64 cannot hold the numbers.
        """
        row = sorted((j, c) for j, c in terms if c)
        if not all(_is_float64(c) for _, c in row):
            factor = Fraction(math.lcm(*(c.denominator for _, c in row)), math.gcd(*(c.numerator for _, c in row)))
            row, offset = [(j, c * factor) for j, c in row], offset * factor
        if not all(_is_float64(c) for _, c in row):
            raise UnsupportedError("coefficients of outputs with more digits than float64 holds")
        if abs(offset) > LARGEST:
            raise UnsupportedError("a constant beyond what float64 holds")
        return Literal(tuple(row), offset)


@dataclass(frozen=True)
class Side:
    """Where an input's interval ends.

    Attributes:
        value: The end.
        open: Whether the interval is without it.
    """

    value: Fraction
    open: bool = False


@dataclass(frozen=True)
class Case:
    """A box of inputs, and the clauses: outputs are unsafe where all literals of some clause hold.

    Attributes:
        low: One end per input, flat and row-major.
        high: The other ends; no interval is empty.
        clauses: Literals, clause by clause.
        n_outputs: How many outputs there are.
    """

    low: tuple[Side, ...]
    high: tuple[Side, ...]
    clauses: tuple[tuple[Literal, ...], ...]
    n_outputs: int

    @cached_property
    def lower(self) -> Tensor:
        """The box's lower corner in float64, rounded outwards: `n`."""
        return _column([at_most(s.value) for s in self.low])

    @cached_property
    def upper(self) -> Tensor:
        """The box's upper corner in float64, rounded outwards: `n`."""
        return _column([at_least(s.value) for s in self.high])

    def around(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The smallest box of float64 numbers that surely holds a point of the case near a point.

        Both corners are the point itself, moved into the case's box, except for inputs in whose interval no float64
        lies, as with `X_0 = 0.1`: there they are the two neighbours around the interval.

        Args:
            x: The point, `n`.

        Returns:
            Lower and upper corner, `n` each.
        """
        low = _column([_strictly(at_least(s.value), s, math.inf) for s in self.low])
        high = _column([_strictly(at_most(s.value), s, -math.inf) for s in self.high])
        point = torch.minimum(torch.maximum(x, low), high)
        hollow = low > high
        return torch.where(hollow, self.lower, point), torch.where(hollow, self.upper, point)

    def specification(self, n_outputs: int) -> Specification:
        """What must hold on the whole box for "holds": in each clause one literal is false.

        The float64 rows are exact; offsets are rounded down, so that nothing easier is proved.

        Args:
            n_outputs: How many outputs the network has.

        Returns:
            The specification, a group for each clause.

        Raises:
            InputError: The case is about another number of outputs.
        """
        self._must_have(n_outputs)
        literals = [literal for clause in self.clauses for literal in clause]
        group = [k for k, clause in enumerate(self.clauses) for _ in clause]
        offset = _column([at_most(literal.offset) for literal in literals])
        return Specification(self._rows(literals)[None], offset[None], torch.tensor(group))

    def violation(self, clause: int, n_outputs: int) -> Specification:
        """What a counterexample must satisfy, as a specification: every literal of a clause holds, strictly.

        Args:
            clause: The clause, counted from 0.
            n_outputs: How many outputs the network has.

        Returns:
            The specification.

        Raises:
            InputError: The case is about another number of outputs.
        """
        self._must_have(n_outputs)
        literals = self.clauses[clause]
        offset = _column([-at_least(literal.offset) for literal in literals])
        return linear_specification(-self._rows(literals), offset)

    def _rows(self, literals: Sequence[Literal]) -> Tensor:
        rows = torch.zeros(len(literals), self.n_outputs, dtype=torch.float64)
        for row, literal in zip(rows, literals):
            for j, c in literal.terms:
                row[j] = float(c)
        return rows

    def _must_have(self, n_outputs: int) -> None:
        if n_outputs != self.n_outputs:
            raise InputError(f"the query has {self.n_outputs} outputs, the network has {n_outputs}")


@dataclass(frozen=True)
class Query:
    """A disjunction: the query is answered "sat" (violated) if one of its cases is.

    Attributes:
        cases: The cases.
        n_inputs: How many inputs there are.
        n_outputs: How many outputs there are.
    """

    cases: tuple[Case, ...]
    n_inputs: int
    n_outputs: int

    @property
    def only_compares(self) -> bool:
        """Whether it asks only which outputs are larger than others: the same question before and after a softmax."""
        literals = (literal for case in self.cases for clause in case.clauses for literal in clause)
        return all(l.offset == 0 and len(l.terms) == 2 and l.terms[0][1] == -l.terms[1][1] for l in literals)

    def must_fit(self, net: Network) -> None:
        """Refuses a network that the query is not about.

        Args:
            net: The network.

        Raises:
            InputError: It has another number of inputs or outputs.
        """
        for what, mine, theirs in (
            ("inputs", self.n_inputs, net.n_inputs),
            ("outputs", self.n_outputs, net.n_outputs),
        ):
            if mine != theirs:
                raise InputError(f"the query has {mine} {what}, the network has {theirs}")


def box_query(lower: Tensor, upper: Tensor, spec: Specification) -> Query:
    """The query whose answer is "holds" if a specification holds on a box; all numbers are taken as exact.

    Args:
        lower: The lower corner, of the input's shape.
        upper: The upper corner.
        spec: What must hold, for one input.

    Returns:
        The query, of one case.

    Raises:
        InputError: The corners are not those of a box, or the specification is for several inputs.
    """
    low, high = (t.to(torch.float64).flatten().tolist() for t in (lower, upper))
    if len(low) != len(high) or not all(-math.inf < a <= b < math.inf for a, b in zip(low, high)):
        raise InputError("a query needs finite corners of one shape, lower <= upper")
    if spec.rows.shape[0] != 1:
        raise InputError(f"a query is about one input; the specification is for {spec.rows.shape[0]}")
    clauses: list[list[Literal]] = [[] for _ in range(spec.n_groups)]
    for row, offset, group in zip(spec.rows[0].tolist(), spec.offset[0].tolist(), spec.group.tolist()):
        terms = [(j, Fraction(c)) for j, c in enumerate(row)]
        clauses[group].append(Literal.of(terms, Fraction(offset)))
    n_outputs = spec.rows.shape[2]
    sides = [tuple(Side(Fraction(v)) for v in corner) for corner in (low, high)]
    case = Case(sides[0], sides[1], tuple(tuple(c) for c in clauses), n_outputs)
    return Query((case,), len(low), n_outputs)


def as_region(net: Network, case: Case) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """A case's box for `certify`.

    Args:
        net: The network.
        case: The case.

    Returns:
        The box's midpoint as `x`, and the box itself as `domain`, of the network's input shape.

    Raises:
        InputError: The case is about another number of inputs.

    Example:
        >>> x, domain = as_region(net, case)
        >>> certs = er.certify(net, x, domain=domain, spec=case.specification(net.n_outputs))
    """
    if len(case.low) != net.n_inputs:
        raise InputError(f"the query has {len(case.low)} inputs, the network has {net.n_inputs}")
    lower, upper = (t.reshape(net.input_shape) for t in (case.lower, case.upper))
    return torch.minimum(torch.maximum(lower / 2 + upper / 2, lower), upper), (lower, upper)


# ---------------------------------------------------------------------------------------------------------------
# From fractions to float64


def at_most(value: Fraction) -> float:
    """The largest float64 that is not above; `value` is not beyond `LARGEST`."""
    near = float(value)
    return near if Fraction(near) <= value else math.nextafter(near, -math.inf)


def at_least(value: Fraction) -> float:
    """The smallest float64 that is not below."""
    return 0.0 - at_most(-value)  # not -0.0


def _is_float64(value: Fraction) -> bool:
    try:
        return Fraction(float(value)) == value
    except OverflowError:
        return False


def _strictly(rounded: float, side: Side, inwards: float) -> float:
    return math.nextafter(rounded, inwards) if side.open and Fraction(rounded) == side.value else rounded


def _column(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)
