"""Boxes around inputs, decided: safe by a proof, unsafe by a counterexample, or unknown."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from elbowroom.certificates.result import Certificates
from elbowroom.certify.boxes import certificates_of
from elbowroom.claim.stated import Stated
from elbowroom.claim.tree import Tree
from elbowroom.questions.accuracies import Boxes
from elbowroom.questions.asked import Asked, Spend
from elbowroom.search.memory import Budget
from elbowroom.verify.counterexample import confirming
from elbowroom.verify.decide import Decision

SAFE, UNSAFE, UNKNOWN = "safe", "unsafe", "unknown"
VERDICTS = (SAFE, UNSAFE, UNKNOWN)
_AT_ONCE, _FEW = 64, 16  # boxes that are decided at the same time
_SHORT = {
    SAFE: "", UNSAFE: "a counterexample lies in the box", UNKNOWN: "the box is neither proved nor refuted"
}  # fmt: skip


@dataclass(eq=False)
class Decided:
    """Of `m` boxes: `verdict`; `point`, `m x n`, the counterexample where it is unsafe, NaN elsewhere; `trees`, by
    group, that prove it where it is safe."""

    verdict: list[str]
    point: Tensor
    trees: list[dict[int, Tree]]


def decide(
    asked: Asked, index: Tensor, boxes: Boxes, spend: Spend, memory: int | str | None = None,
    enough: int | None = None, start: Sequence[dict[int, Tree]] | None = None,
) -> Decided:  # fmt: skip
    """What becomes of boxes around inputs with the numbers `index`, `m`.

    `enough`: how many may end otherwise than safe before the rest, then unknown, are not worth looking at; default,
    however many. `start`: trees to begin with, of other boxes around these inputs.
    """
    net = asked.net
    rows = net.n_outputs - 1 if asked.told is None else asked.told.rows.shape[1]
    # One that is hard makes the others wait; where it may be the end of all, it is not to wait for them.
    size = min(_AT_ONCE if enough is None else _FEW, Budget.of(memory, index.device).batch(net, index.device, rows))
    found = Decided([UNKNOWN] * len(index), torch.full_like(boxes.lower, torch.nan), [{} for _ in index])
    missed = 0
    for part in torch.arange(len(index), device=index.device).split(size) if len(index) else ():
        lower, upper, low, high = (t.reshape(-1, *net.input_shape) for t in vars(boxes.take(part)).values())
        spec = asked.spec(index[part])
        decision = Decision(net, lower, upper, spec)
        if start is not None:
            decision.found.trees = [dict(start[k]) for k in part.tolist()]
        if spend.parts > 1 and len(decision.found.open()):
            until = time.monotonic() + spend.seconds * len(decision.found.open())
            decision.run(confirming(net, low, high, spec), spend.parts, until)
        elif len(decision.found.open()):
            decision.attack(confirming(net, low, high, spec))
        proved = decision.found.proved.tolist()
        for position, k in enumerate(part.tolist()):
            example = decision.found.counterexamples[position]
            if proved[position]:
                found.verdict[k] = SAFE
                found.trees[k] = decision.found.trees[position]
            elif example is not None:
                found.verdict[k] = UNSAFE
                found.point[k] = example.x.flatten().to(found.point)
        missed += sum(found.verdict[k] != SAFE for k in part.tolist())
        if enough is not None and missed > enough:
            break
    return found


def certificates(
    asked: Asked, index: Tensor, boxes: Boxes, found: Decided, memory: int | str | None = None
) -> tuple[Certificates, Decided]:
    """Certificates of all inputs, those of boxes that are safe proved on the numbers they store; and what was found, in
    which a box whose certificate is not proved is unknown. `index`: the inputs that boxes were made for, `m`."""
    ends = asked.x.clone(), asked.x.clone()
    ends[0][index], ends[1][index] = boxes.lower, boxes.upper
    status, message = list(asked.status), list(asked.message)
    trees: list[dict[int, Tree]] = [{} for _ in status]
    place = {k: position for position, k in enumerate(index.tolist())}
    for k, position in place.items():
        verdict = found.verdict[position]
        status[k], message[k] = "" if verdict == SAFE else "not_certified", _SHORT[verdict]
        trees[k] = found.trees[position]
    certs = certificates_of(
        asked.net, asked.points, asked.labels, asked.told, asked.space if asked.has_domain else None, Stated(*ends),
        trees, status, message, asked.imputed, asked.scale, memory,
    )  # fmt: skip
    verdicts = [
        UNKNOWN if found.verdict[position] == SAFE and certs.status[k] != "certified" else found.verdict[position]
        for k, position in place.items()
    ]
    return certs, replace(found, verdict=verdicts)


__all__ = ["SAFE", "UNKNOWN", "UNSAFE", "VERDICTS", "Decided", "certificates", "decide"]
