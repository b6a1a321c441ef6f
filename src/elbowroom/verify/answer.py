"""`answer`: can the network have outputs that a query calls unsafe?

"holds" is said where the strict check has proved every piece of every box, "violated" where it has proved a
counterexample, "unknown" otherwise.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from elbowroom.claim.query import Case, Query
from elbowroom.errors import InputError
from elbowroom.network.graph import Network
from elbowroom.verify.counterexample import Counterexample
from elbowroom.verify.split import Search

BOXES, SECONDS = 200_000, 60.0


@dataclass(frozen=True, eq=False)
class CaseAnswer:
    """The answer to one case of a query.

    Attributes:
        verdict: "holds", "violated" or "unknown".
        why: The reason, in words.
        counterexample: Where it is violated.
        boxes: How many pieces of the box were looked at.
        proved: The share of the box's volume that was proved.
    """

    verdict: str
    why: str
    counterexample: Counterexample | None
    boxes: int
    proved: float


@dataclass(frozen=True, eq=False)
class Answer:
    """The answer to a query: "violated" if one of its cases is, "holds" if all of them hold, "unknown" otherwise.

    Attributes:
        cases: In the query's order; after one that is violated the others are not looked at.
        seconds: How long it took.
    """

    cases: tuple[CaseAnswer, ...]
    seconds: float

    @property
    def verdict(self) -> str:
        verdicts = {case.verdict for case in self.cases}
        return next((v for v in ("violated", "unknown") if v in verdicts), "holds")

    @property
    def counterexample(self) -> Counterexample | None:
        return self.cases[-1].counterexample

    @property
    def boxes(self) -> int:
        return sum(case.boxes for case in self.cases)


def answer(net: Network, query: Query, boxes: int = BOXES, seconds: float = SECONDS) -> Answer:
    """Does a query hold (no input of its boxes has unsafe outputs), or is it violated?

    The claim is about the network in real arithmetic, its stored parameters taken as exact.

    Args:
        net: The network, see `load_for`.
        query: The question.
        boxes: How many pieces to look at before the answer is "unknown".
        seconds: For about how long to look.

    Returns:
        The answer, case by case.

    Raises:
        InputError: The query does not fit the network, or a limit is not positive.

    Example:
        >>> found = answer(net, read_query("prop_1.vnnlib"))
        >>> found.verdict, found.counterexample
    """
    if not isinstance(boxes, int) or boxes < 1:
        raise InputError(f"boxes must be a positive whole number, got {boxes!r}")
    if not isinstance(seconds, int | float) or not seconds > 0:
        raise InputError(f"seconds must be positive, got {seconds!r}")
    query.must_fit(net)
    started = time.monotonic()
    found: list[CaseAnswer] = []
    for k, case in enumerate(query.cases):
        # What remains is shared among the cases that remain; each is looked at once at least.
        cases_left, now = len(query.cases) - k, time.monotonic()
        few = max(1, (boxes - sum(c.boxes for c in found)) // cases_left)
        found.append(_answer_case(net, case, few, now + max(1e-3, (started + seconds - now) / cases_left)))
        if found[-1].verdict == "violated":
            break
    return Answer(tuple(found), time.monotonic() - started)


def _answer_case(net: Network, case: Case, boxes: int, deadline: float) -> CaseAnswer:
    search = Search(net, case)
    counterexample = search.run(boxes, deadline)
    if counterexample is not None:
        verdict, why = "violated", "an input with unsafe outputs was found, and proved to be one"
    elif not len(search.left) and not search.stuck:
        verdict, why = "holds", "proved on the whole box"
    else:
        verdict = "unknown"
        if not len(search.left):
            why = "some pieces of the box can be neither proved nor halved"
        else:
            why = f"the limit of {'boxes' if search.looked >= boxes else 'seconds'} was reached"
        seen = "a counterexample within rounding was seen" if search.near else "no counterexample was found"
        why = f"{why}; {100 * search.proved:.3g} % of the box is proved, and {seen}"
    return CaseAnswer(verdict, why, counterexample, search.looked, search.proved)
