"""`answer`: can the network have outputs that a query calls unsafe?

"holds" is said where the strict check has proved every part of every box, "violated" where it has proved a
counterexample, "unknown" otherwise.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from elbowroom.claim.query import Case, Query
from elbowroom.machine.torch_modes import in_own_modes
from elbowroom.network.graph import Network
from elbowroom.network.work import settle_threads_for
from elbowroom.verify.box import check_effort
from elbowroom.verify.counterexample import Counterexample, confirm
from elbowroom.verify.decide import Decided, Decision

BOXES, SECONDS = 200_000, 60.0


@dataclass(frozen=True, eq=False)
class CaseAnswer:
    """The answer to one case of a query.

    Attributes:
        verdict: "holds", "violated" or "unknown".
        why: The reason, in words.
        counterexample: Where it is violated.
        boxes: Into how many parts the box was cut, for all clauses together; 1 where it was not.
        proved: The share of the clauses that were proved; of one that is cut into parts, all or nothing.
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


@in_own_modes
def answer(net: Network, query: Query, boxes: int = BOXES, seconds: float = SECONDS) -> Answer:
    """Does a query hold (no input of its boxes has unsafe outputs), or is it violated?

    The claim is about the network in real arithmetic, its stored parameters taken as exact.

    Args:
        net: The network, see `load_for`.
        query: The question.
        boxes: Into how many parts to cut a box for each clause before the answer is "unknown"; a proof has limits of
            its own, some ten thousand parts for networks of a thousand neurons.
        seconds: For about how long to look.

    Returns:
        The answer, case by case.

    Raises:
        InputError: The query does not fit the network, or a limit is not positive.

    Example:
        >>> found = answer(net, read_query("prop_1.vnnlib"))
        >>> found.verdict, found.counterexample
    """
    check_effort(boxes, seconds, "boxes")
    query.must_fit(net)
    settle_threads_for(net)
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
    lower, upper = (t.reshape(1, *net.input_shape) for t in (case.lower, case.upper))
    net.must_agree(torch.cat([lower / 2 + upper / 2, lower, upper]))
    decision = Decision(net, lower, upper, case.specification(net.n_outputs))
    found = decision.run(lambda _, x, clause: confirm(net, case, x, clause), boxes, deadline)
    (counterexample,), proved = found.counterexamples, found.margins[0] > 0
    if counterexample is not None:
        verdict, why = "violated", "an input with unsafe outputs was found, and proved to be one"
    elif bool(proved.all()):
        verdict, why = "holds", "proved on the whole box"
    else:
        verdict, why = "unknown", _why_not(found)
        seen = "a counterexample within rounding was seen" if bool(found.near) else "no counterexample was found"
        why = f"{why}; {int(proved.sum())} of {len(proved)} clauses are proved, and {seen}"
    return CaseAnswer(verdict, why, counterexample, int(found.parts), float(proved.double().mean()))


def _why_not(found: Decided) -> str:
    """Why one box is neither proved nor refuted."""
    if bool(found.late):
        return "the limit of seconds was reached"
    if bool(found.full):
        return "the limit of boxes was reached"
    return "some parts of the box can be neither proved nor cut"
