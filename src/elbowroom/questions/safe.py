"""`safe_share`: given how accurate the features are, of which inputs is the decision safe?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from elbowroom.arguments.tensors import Array
from elbowroom.certificates.result import Certificates
from elbowroom.certify.reach import Quarry
from elbowroom.claim.specification import Specification
from elbowroom.claim.stated import Stated
from elbowroom.errors import InputError
from elbowroom.machine.torch_modes import in_own_modes
from elbowroom.network.graph import Network
from elbowroom.questions.accuracies import Boxes, around, extents_of
from elbowroom.questions.asked import Asked, Spend, asked_of, spend_of
from elbowroom.questions.boxes import SAFE, UNKNOWN, UNSAFE, VERDICTS, Decided, certificates, decide
from elbowroom.questions.lines import ends_of

FEW = 64  # features that are not exact, at most, for a ranking that nobody asked for
_SHARE = 0.01  # of lines, where only the answer at their ends counts


@dataclass(frozen=True)
class Sensor:
    """What the accuracy of one feature does to the answer.

    Attributes:
        feature: Its number, flat.
        name: Its name, or its number as text.
        exact: How many inputs would be "safe", "unsafe" and "unknown" if this feature were exact, and the others as
            accurate as they are.
        only: How many would be, if this one were as accurate as it is and all others exact.
    """

    feature: int
    name: str
    exact: dict[str, int]
    only: dict[str, int]


@dataclass(frozen=True, eq=False)
class Safety:
    """Which inputs' decisions are safe, however their features are off within the accuracies. `b` inputs of shape `*s`.

    Attributes:
        status: "safe" (proved), "unsafe" (there is a counterexample, proved to be one), "unknown"; or why it could not
            be asked: "misclassified", "not_certified" (a tie), "nonfinite", "error"; `b` texts.
        message: Why it could not be asked, in words, `b` texts.
        extents: The accuracies as numbers, `b x *s`.
        lower: The lower corners of the boxes, rounded outwards, cut to the domain, `b x *s`.
        upper: The upper ones.
        counterexamples: Inputs of the boxes with another decision, `b x *s`; NaN where there is none.
        certificates: The boxes that are proved, to be saved and checked.
        sensors: Which feature's accuracy matters most: those with which, were they exact, the most inputs more would be
            safe come first, then those that alone make the most inputs unsafe. Empty where it was not asked for.
    """

    status: tuple[str, ...]
    message: tuple[str, ...]
    extents: Tensor
    lower: Tensor
    upper: Tensor
    counterexamples: Tensor
    certificates: Certificates = field(repr=False)
    sensors: tuple[Sensor, ...]

    def __len__(self) -> int:
        return len(self.status)

    @property
    def counts(self) -> dict[str, int]:
        """How many inputs have each status; the three verdicts are always there."""
        found = Counter(self.status)
        return {**{v: found[v] for v in VERDICTS}, **{s: n for s, n in sorted(found.items()) if s not in VERDICTS}}

    @property
    def shares(self) -> dict[str, float]:
        """The same as shares of all inputs."""
        return {name: count / len(self) for name, count in self.counts.items()}

    def __repr__(self) -> str:
        return f"Safety({len(self)} inputs: {', '.join(f'{n} {s}' for s, n in self.counts.items())})"


@in_own_modes
def safe_share(
    net: Network | Any,
    x: Array | Any,
    accuracy: Any,
    *,
    labels: Array | None = None,
    spec: Specification | None = None,
    domain: tuple[Array, Array] | Mapping[str, tuple[float, float]] | str | None = None,
    effort: str | int = "medium",
    ranking: bool | None = None,
    device: str | torch.device | None = None,
    memory: int | str | None = None,
) -> Safety:
    """Given how accurate each feature is: of which inputs does the decision provably stay, whatever the true values?

    The box of all values within the accuracies, all features at once, is proved, cut into parts where that is needed,
    or refuted by a counterexample.

    Args:
        net: The network, see `load`, or a model that `load` reads as it is.
        x: The inputs, `b x *input_shape` (or one input), or a data frame.
        accuracy: How far off a feature may be: a number, "2%" of its value or "0.5% of range" (of the domain); one for
            all features, a mapping from names or numbers of features ("*": all others) to accuracies, features that are
            not in it being exact; or numbers as an array, per feature or per feature and input. Infinity: any value of
            the domain.
        labels: The decisions that must stay, as numbers of outputs or names of classes; default, the network's own.
        spec: Something else that must hold of the outputs.
        domain: (lowest, highest) valid input, numbers or arrays, a mapping from names to such pairs, or "observed", the
            range of `x`: boxes are cut to it.
        effort: Into how many parts a box may be cut for each class or group ("fast": 1, "medium": 200, "high": 3000, or
            a number), or for how many seconds it may be tried ("30s"); each box of the ranking likewise.
        ranking: Whether to find out which feature's accuracy matters most; default, where at most 64 are not exact.
        device: Where to work; by default where `x` is.
        memory: What the work may take, in bytes or as "4GiB"; default, half of what is free.

    Returns:
        The answer of each input, shares, and which feature's accuracy matters most.

    Raises:
        InputError: An argument cannot be used as it is; the message names it.
        UnsupportedError: The proof does not cover the network, or the model it was read from computes something else.

    Example:
        >>> found = er.safe_share(net, x, {"temperature": 0.5, "pressure": "2%"})
        >>> found.counts, found.sensors[0].name
    """
    if ranking not in (True, False, None):
        raise InputError(f"ranking must be True, False or None, got {ranking!r}")
    spend = spend_of(effort)
    asked = asked_of(net, x, labels, spec, domain, None, None, device)
    extents = extents_of(asked, accuracy)
    good = asked.good
    boxes = around(asked, extents, good)
    found = decide(asked, good, boxes, spend, memory)
    sensors: tuple[Sensor, ...] = ()
    moving = (boxes.upper > boxes.lower).any(0).nonzero().flatten().tolist()
    if ranking or (ranking is None and len(moving) <= FEW):
        sensors = _Ranking(asked, good, boxes, found, spend, memory).of(moving)
    certs, found = certificates(asked, good, boxes, found, memory)
    status, corners, points = (
        list(asked.status),
        (asked.x.clone(), asked.x.clone()),
        torch.full_like(asked.x, torch.nan),
    )
    for k, verdict in zip(good.tolist(), found.verdict):
        status[k] = verdict
    corners[0][good], corners[1][good], points[good] = boxes.lower, boxes.upper, found.point
    return Safety(
        tuple(status), tuple(asked.message), asked.shaped(extents.most), asked.shaped(corners[0]),
        asked.shaped(corners[1]), asked.shaped(points), certs, sensors,
    )  # fmt: skip


class _Ranking:
    """What happens when one feature, or all others, are exact: of the boxes that are not safe as they are."""

    def __init__(
        self, asked: Asked, index: Tensor, boxes: Boxes, found: Decided, spend: Spend, memory: int | str | None
    ) -> None:
        self.asked, self.index, self.boxes, self.found = asked, index, boxes, found
        self.spend, self.memory, self.x = spend, memory, asked.x[index]

    def of(self, features: list[int]) -> tuple[Sensor, ...]:
        """Most important first. A counterexample that is met on the way makes its box unsafe, if it was unknown."""
        left = [k for k, verdict in enumerate(self.found.verdict) if verdict != SAFE]
        rows = torch.tensor(left, dtype=torch.long, device=self.index.device)
        only, values = self._only(rows, features)
        for position, row in enumerate(left):
            alone = next((k for k in features if only[k][position] == UNSAFE), None)
            if alone is not None:
                point = self.x[row].clone()
                point[alone] = values[position, alone]
                self._refute(row, point)
        exact = {k: self._exact(rows, k, [only[j] for j in features if j != k]) for k in features}
        whole, safe = Counter(self.found.verdict), len(self.found.verdict) - len(left)
        names = self.asked.net.about.features
        sensors = [
            Sensor(k, names[k] if names else str(k), _counts(exact[k], safe), _counts(only[k], safe)) for k in features
        ]
        return tuple(
            sorted(sensors, key=lambda s: (whole[SAFE] - s.exact[SAFE], -s.only[UNSAFE], s.exact[UNSAFE], s.feature))
        )

    def _refute(self, row: int, point: Tensor) -> None:
        """What is a counterexample of a smaller box is one of the whole."""
        if self.found.verdict[row] == UNKNOWN:
            self.found.verdict[row], self.found.point[row] = UNSAFE, point

    def _only(self, rows: Tensor, features: list[int]) -> tuple[dict[int, list[str]], Tensor]:
        """The answers of boxes without width but in one feature, by feature, and the counterexamples' values there."""
        verdict = {k: [SAFE] * len(rows) for k in features}
        values = torch.full_like(self.x[rows], torch.nan)
        own, x = self.boxes.take(rows), self.x[rows]
        for ends in (own.lower, own.upper):
            at, feature = (ends != x).nonzero(as_tuple=True)
            limit = ends[at, feature]
            found = ends_of(
                self.asked, self.index[rows[at]], feature, limit, _SHARE, self.spend, self.memory, both=False
            )
            inside = (own.inner_lower[at, feature] <= found.seen) & (found.seen <= own.inner_upper[at, feature])
            done = (found.proved == limit).tolist()
            for k, j, whole, bad, value in zip(
                at.tolist(), feature.tolist(), done, inside.tolist(), found.seen.tolist()
            ):
                if bad:
                    verdict[j][k], values[k, j] = UNSAFE, value
                elif not whole and verdict[j][k] == SAFE:
                    verdict[j][k] = UNKNOWN
        return verdict, values

    def _exact(self, rows: Tensor, feature: int, others: list[list[str]]) -> list[str]:
        """The answers of boxes in which one feature has no width."""
        verdict = [UNSAFE if any(own[k] == UNSAFE for own in others) else "" for k in range(len(rows))]
        open_ = torch.tensor([not v for v in verdict], dtype=torch.bool, device=rows.device)
        # The counterexample of the whole box may be one without this feature's part in it.
        known = open_ & self.found.point[rows].isfinite().all(1)
        at = known.nonzero().squeeze(1)
        if len(at):
            point = self.found.point[rows[at]].clone()
            point[:, feature] = self.x[rows[at], feature]
            hunt = Quarry(self.asked.net, self.asked.spec(self.index[rows[at]]))
            broken = hunt.proved(Stated(point, point), torch.arange(len(at), device=at.device))
            for k in at[broken].tolist():
                verdict[k] = UNSAFE
        at = torch.tensor([k for k, v in enumerate(verdict) if not v], dtype=torch.long, device=rows.device)
        own = rows[at]
        boxes = self.boxes.take(own).with_exact(feature, self.x[own, feature])
        found = decide(self.asked, self.index[own], boxes, self.spend, self.memory)
        for position, (k, answer) in enumerate(zip(at.tolist(), found.verdict)):
            verdict[k] = answer
            if answer == UNSAFE:
                self._refute(int(rows[k]), found.point[position])
        return verdict


def _counts(verdicts: list[str], safe: int) -> dict[str, int]:
    """How many of each, with the `safe` ones that were not looked at."""
    found = Counter(verdicts)
    return {SAFE: found[SAFE] + safe, UNSAFE: found[UNSAFE], UNKNOWN: found[UNKNOWN]}


__all__ = ["Safety", "Sensor", "safe_share"]
