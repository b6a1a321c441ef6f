"""`accuracy_needed`: how accurate must each feature be? One vector of tolerances, proved for many inputs."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from elbowroom.arguments.features import spread
from elbowroom.arguments.tensors import Array
from elbowroom.certificates.result import Certificates
from elbowroom.certify.api import certify
from elbowroom.claim.specification import Specification
from elbowroom.errors import InputError
from elbowroom.machine.torch_modes import in_own_modes
from elbowroom.network.graph import Network
from elbowroom.questions.accuracies import Extents, around
from elbowroom.questions.asked import Asked, Spend, asked_of, spend_of
from elbowroom.questions.boxes import SAFE, UNKNOWN, Decided, certificates, decide
from elbowroom.questions.joint import Joint
from elbowroom.search.memory import Budget
from elbowroom.search.solvers.sequential import Sequential

_SINGLE, _GRADIENTS = 32, 2  # inputs whose own regions give a shape to begin with, and what is spent on these
_LESS = 1 - 1e-6  # what bounds hold, a proof may fall short of by rounding
_SMALLER, _TRIES = 0.8, 60  # where a vector is not proved
_LARGER, _NEAR = 1.3, 1.03  # how vectors are scaled with parts, and how near to the largest they end
_AT_CAP = 0.999  # of a cap: what is said to be at it, after a little was left off for rounding
_RESHAPED, _MIXED, _GAIN = 6, (1.0, 0.5, 0.25), 1.01  # other shapes: how often, how far, and the least gain


@dataclass(frozen=True, eq=False)
class Accuracy:
    """How accurate features must be: `tolerance`, one vector for all inputs. `b` inputs of shape `*s`.

    Attributes:
        tolerance: How far each feature may be off, all at once, `*s`; zero where it must not move.
        shares: The same as a share of `scale`, `*s`.
        scale: What tolerances are measured in, `*s`.
        needed: For how many inputs it was to be proved.
        status: "safe" (proved with these tolerances), "unsafe" (there is a counterexample within them), "unknown", or
            why it could not be asked: "misclassified", "not_certified" (a tie), "nonfinite", "error"; `b` texts.
        message: Why it could not be asked, in words, `b` texts.
        counterexamples: Of the unsafe ones, `b x *s`; NaN elsewhere.
        capped: Features whose tolerance is the largest that was looked at, `*s`.
        certificates: The boxes that are proved, to be saved and checked.
    """

    tolerance: Tensor
    shares: Tensor
    scale: Tensor
    needed: int
    status: tuple[str, ...]
    message: tuple[str, ...]
    counterexamples: Tensor
    capped: Tensor
    certificates: Certificates = field(repr=False)

    def __len__(self) -> int:
        return len(self.status)

    @property
    def proved(self) -> int:
        """For how many inputs it is proved."""
        return self.status.count(SAFE)

    @property
    def reached(self) -> bool:
        """Whether that is as many as were asked for; else all tolerances are zero."""
        return self.proved >= self.needed

    def __repr__(self) -> str:
        return f"Accuracy({self.tolerance.numel()} features, proved for {self.proved} of {len(self)} inputs)"


@in_own_modes
def accuracy_needed(
    net: Network | Any,
    x: Array | Any,
    share: float = 0.9,
    *,
    labels: Array | None = None,
    spec: Specification | None = None,
    domain: tuple[Array, Array] | Mapping[str, tuple[float, float]] | str | None = None,
    scale: Array | Mapping[str, float] | None = None,
    max_eps: Array | Mapping[str, float] | None = None,
    frozen: Array | Sequence[str] | None = None,
    importance: Array | Mapping[str, float] | None = None,
    effort: str | int = "medium",
    device: str | torch.device | None = None,
    memory: int | str | None = None,
) -> Accuracy:
    """How accurate must each feature be, so that at least a share of the inputs provably keep their decision?

    One vector of tolerances for all inputs, as large as was found (the sum of their logarithms), proved on each input
    that it is stated for: joint boxes, not quantiles of single inputs' regions, which are false together.

    Args:
        net: The network, see `load`, or a model that `load` reads as it is.
        x: The inputs, `b x *input_shape` (or one input), or a data frame.
        share: For which share of all inputs given it must be proved; those that are decided wrongly count, too.
        labels: The decisions that must stay, as numbers of outputs or names of classes; default, the network's own.
        spec: Something else that must hold of the outputs.
        domain: (lowest, highest) valid input, numbers or arrays, a mapping from names to such pairs, or "observed", the
            range of `x`: boxes are cut to it.
        scale: What to measure tolerances in, per feature; default, the domain's width, or the range of `x`.
        max_eps: The largest tolerance per feature; default, the domain's width, or the range of `x`.
        frozen: Features that must not move, as booleans or names.
        importance: Positive weights of the logarithms of the tolerances.
        effort: What may be spent: "fast" proves boxes whole; above that they are cut into parts, and the vector is
            enlarged as far as these prove it ("medium": 200 parts for each class or group, "high": 3000, or a number;
            "30s": so many seconds for each box).
        device: Where to work; by default where `x` is.
        memory: What the work may take, in bytes or as "4GiB"; default, half of what is free.

    Returns:
        The vector, and which inputs it is proved for.

    Raises:
        InputError: An argument cannot be used as it is; the message names it.
        UnsupportedError: The proof does not cover the network, or the model it was read from computes something else.

    Example:
        >>> found = er.accuracy_needed(net, x, 0.9, domain=(lowest, highest))
        >>> found.tolerance, found.proved, len(found)
    """
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise InputError(f"share must be above 0 and at most 1, got {share!r}")
    spend = spend_of(effort)
    asked = asked_of(net, x, labels, spec, domain, frozen, max_eps, device)
    net = asked.net
    good, need = asked.good, math.ceil(share * len(asked.status) - 1e-9)
    moves = asked.space.free[good].all(0) if len(good) else asked.space.free.all(0)
    unit, cap = _measures(asked, moves, scale)
    weight = spread(net, asked.points[:1], 1.0 if importance is None else importance, "importance", 1.0).double()[0]
    if not bool(((weight > 0) & weight.isfinite())[moves].all()):
        raise InputError("importance must be positive and finite for every feature that moves")
    held = _Held(asked, good, torch.zeros_like(cap), spend, memory)
    if len(good) >= need and bool(moves.any()):
        joint = Joint(asked, good, cap, torch.where(moves, weight, 0.0), Budget.of(memory, good.device))
        found = joint.best(_shape(asked, good, cap, unit, moves), need)
        if found is not None:
            held = _largest(held, joint, found, need)
    certs, decided = certificates(asked, good, held.boxes, held.complete(), memory)
    points, status = torch.full_like(asked.x, torch.nan), list(asked.status)
    points[good] = decided.point
    for k, verdict in zip(good.tolist(), decided.verdict):
        status[k] = verdict
    flat = (held.tolerance, held.tolerance / unit, unit, moves & (held.tolerance >= _AT_CAP * cap))
    tolerance, shares, units, capped = (t.reshape(net.input_shape).cpu() for t in flat)
    return Accuracy(
        tolerance, torch.where(tolerance > 0, shares, 0.0), units, need, tuple(status), tuple(asked.message),
        asked.shaped(points), capped, certs,
    )  # fmt: skip


def _measures(asked: Asked, moves: Tensor, scale: Any) -> tuple[Tensor, Tensor]:
    """What tolerances are measured in, and how large they may be, `n` each."""
    space, x = asked.space, asked.x[asked.x.isfinite().all(1)]
    width = (space.highest - space.lowest).amin(0)
    if len(x):
        observed = x.amax(0) - x.amin(0)
        width = torch.where(width.isfinite(), width, torch.where(observed > 0, observed, torch.inf))
    cap = torch.minimum(space.cap.amin(0), width)
    if scale is None:
        unit = torch.where(width.isfinite(), width, cap)
    else:
        unit = spread(asked.net, asked.points[:1], scale, "scale").double()[0]
        if not bool(((unit > 0) & unit.isfinite())[moves].all()):
            raise InputError("scale must be positive and finite for every feature that moves")
        cap = torch.where(cap.isfinite(), cap, 1000 * unit)
    lost = (moves & ~(unit.isfinite() & cap.isfinite())).nonzero().flatten().tolist()
    if lost:
        names = asked.net.about.features
        shown = repr(names[lost[0]]) if names else str(lost[0])
        raise InputError(
            f"feature {shown} is the same in all inputs, so its tolerance has nothing to be measured in: give "
            "`domain`, `scale` or `max_eps`"
        )
    return torch.where(moves, unit, 1.0), torch.where(moves, cap, 0.0)


def _shape(asked: Asked, good: Tensor, cap: Tensor, unit: Tensor, moves: Tensor) -> Tensor:
    """A vector to begin with, `n`: the mean of single inputs' regions."""
    some = good[:: max(1, len(good) // _SINGLE)][:_SINGLE]
    shape = asked.net.input_shape
    domain = None
    if asked.has_domain:
        domain = asked.space.lowest[some].reshape(-1, *shape), asked.space.highest[some].reshape(-1, *shape)
    spec = None if asked.told is None else asked.told.part(some)
    certs = certify(
        asked.net, asked.points[some], spec=spec, domain=domain, frozen=~moves.reshape(shape),
        max_eps=torch.where(moves, cap, 1.0).reshape(shape), precision="float64",
        solver=Sequential(gradients=_GRADIENTS), progress=False,
    )  # fmt: skip
    if not bool(certs.certified.any()):
        return torch.where(moves, unit, 0.0)
    mean = certs.eps.flatten(1)[certs.certified].to(cap).log().mean(0).exp()
    return torch.where(moves, torch.minimum(mean, cap), 0.0)


class _Held:
    """Tolerances, `n`, the boxes that they give, and what is known of these: nothing at first."""

    def __init__(self, asked: Asked, index: Tensor, tolerance: Tensor, spend: Spend, memory: int | str | None) -> None:
        self.asked, self.index, self.tolerance, self.spend, self.memory = asked, index, tolerance, spend, memory
        every = tolerance.expand_as(asked.x)
        self.boxes = around(asked, Extents(every, every), index)
        count = len(index)
        self.found = Decided([UNKNOWN] * count, torch.full_like(self.boxes.lower, torch.nan), [{} for _ in index])
        self.tried: set[int] = set()

    def with_(self, tolerance: Tensor) -> _Held:
        """Other tolerances, of which nothing is known."""
        return _Held(self.asked, self.index, tolerance, self.spend, self.memory)

    def decide(self, rows: list[int], enough: int | None = None, start: Decided | None = None) -> int:
        """Decides some of the boxes; how many of all are safe. `enough`: how many of `rows` may end otherwise before it
        is given up; `start`: what is known of other boxes around the same inputs."""
        at = torch.tensor(rows, dtype=torch.long, device=self.index.device)
        trees = None if start is None else [start.trees[k] for k in rows]
        part = decide(self.asked, self.index[at], self.boxes.take(at), self.spend, self.memory, enough, trees)
        for position, k in enumerate(rows):
            self.found.verdict[k], self.found.trees[k] = part.verdict[position], part.trees[position]
            self.found.point[k] = part.point[position]
        self.tried |= set(rows)
        return self.found.verdict.count(SAFE)

    def complete(self) -> Decided:
        """What is known of all boxes."""
        self.decide([k for k in range(len(self.index)) if k not in self.tried])
        return self.found


class _Climb:
    """From a vector that is proved for `need` inputs to larger ones; `held`: the largest so far."""

    def __init__(self, held: _Held, joint: Joint, need: int) -> None:
        self.held, self.joint, self.need = held, joint, need
        self.until = time.monotonic() + held.spend.seconds * len(held.index)

    def takes(self, tolerance: Tensor) -> bool:
        """Whether a vector is proved for enough inputs; then it is held. Boxes that attacks break are not looked at,
        and the others in the order of the least margins that these have seen: what fails is to fail soon."""
        trial = self.held.with_(torch.minimum(tolerance, self.joint.cap))
        if torch.equal(trial.tolerance, self.held.tolerance) or time.monotonic() > self.until:
            return False
        every = torch.arange(len(trial.index), device=tolerance.device)
        of, margin, _ = self.joint.worst(trial.tolerance, every)
        least = torch.full_like(every, torch.inf, dtype=margin.dtype).scatter_reduce(0, of, margin, "amin")
        rows = [k for k in least.argsort(stable=True).tolist() if float(least[k]) > 0]
        if len(rows) < self.need or trial.decide(rows, len(rows) - self.need, self.held.found) < self.need:
            return False
        self.held = trial
        return True

    def run(self) -> _Held:
        self._scale()
        for _ in range(_RESHAPED):
            if not self._reshape():
                break
        return self.held

    def _scale(self) -> None:
        """The vector scaled up as far as parts prove it."""
        base, low, high = self.held.tolerance, 1.0, _LARGER
        while self.takes(high * base):
            low, high = high, high * _LARGER
        while high / low > _NEAR:
            middle = math.sqrt(low * high)
            low, high = (middle, high) if self.takes(middle * base) else (low, middle)

    def _reshape(self) -> bool:
        """Another shape, by what the worst points found in the boxes cost; whether one is larger, and proved."""
        now, moves = self.held.tolerance, self.joint.cap > 0
        safe = [k for k, verdict in enumerate(self.held.found.verdict) if verdict == SAFE]
        target = self.joint.reshaped(now, torch.tensor(safe, device=now.device)).log()
        size = self.joint.size(now)
        for mix in _MIXED:
            shape = torch.where(moves, ((1 - mix) * now.log() + mix * target).exp(), 0.0)
            shape = shape * math.exp(size - self.joint.size(shape))
            if self.takes(_GAIN * shape):
                self._scale()
                return True
        return False


def _largest(nothing: _Held, joint: Joint, tolerance: Tensor, need: int) -> _Held:
    """The largest vector found that is proved for `need` inputs, on the way from one that bounds propose."""
    factor = _LESS
    for _ in range(_TRIES):
        trial = nothing.with_(factor * tolerance)
        if trial.decide(list(range(len(trial.index))), len(trial.index) - need) >= need:
            return trial if trial.spend.parts < 2 else _Climb(trial, joint, need).run()
        factor *= _SMALLER
    return nothing


__all__ = ["Accuracy", "accuracy_needed"]
