"""Projected gradient descent (PGD) against a network: in training, and to try what was trained or certified."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from elbowroom.data.embedded import Dataset
from elbowroom.errors import InputError
from elbowroom.search.attack import pgd

Model = Callable[[Tensor], Tensor]  # `b x *s` -> logits, `b x k`: a module or a `Network`


@dataclass(frozen=True)
class PGD:
    """The adversary to train against: within `tau` of the input in every feature, and (`clip`) within the domain.

    `steps` steps of `step` times `tau` along the sign of the gradient, from a random point of the ball or the input.
    `ramp`: epochs over which a training adversary's tau grows to its full size; hard data otherwise leave a network at
    the frequencies of the classes.
    """

    tau: float = 0.1
    steps: int = 20
    step: float = 0.25
    random_start: bool = True
    ramp: int = 0
    clip: bool = True

    def at(self, epoch: int) -> PGD:
        """The adversary of an epoch, counted from 0."""
        return self if epoch + 1 >= self.ramp else replace(self, tau=self.tau * (epoch + 1) / self.ramp)

    def around(self, x: Tensor, low: float, high: float) -> tuple[Tensor, Tensor]:
        """The corners, `b x *s` each, of the boxes in which it moves `x`, `b x *s`; [low, high]: the domain."""
        lower, upper = x - self.tau, x + self.tau
        return (lower.clamp_min(low), upper.clamp_max(high)) if self.clip else (lower, upper)

    def __post_init__(self) -> None:
        if not (self.tau > 0 and self.steps >= 1 and self.step > 0 and self.ramp >= 0):
            raise InputError(f"PGD needs tau > 0, at least one step, step > 0 and no negative ramp, got {self}")


def accuracy(model: Model, x: Tensor, y: Tensor) -> float:
    """The share of `x` (`b x *s`) that `model` gives its label `y` (`b`)."""
    with torch.no_grad():
        right = sum(int((model(part).argmax(1) == labels).sum()) for part, labels in _parts(x, y))
    return right / len(x)


def accuracy_under(
    model: Model, x: Tensor, y: Tensor, by: PGD, low: float, high: float, *, starts: int = 1, seed: int = 0
) -> float:
    """The share of `x` (`b x *s`) still given its label when the adversary may move it, inputs lying in [low, high]."""
    found = 0
    for part, labels in _parts(x, y):
        lower, upper = by.around(part, low, high)
        attack = pgd_attack(model, labels, lower, upper, steps=by.steps, step=by.step, starts=starts, seed=seed)
        found += int(attack.found.sum())
    return 1 - found / len(x)


def _parts(x: Tensor, y: Tensor, size: int = 5000) -> Iterator[tuple[Tensor, Tensor]]:
    yield from zip(x.split(size), y.split(size))


@dataclass(frozen=True, eq=False)
class Attack:
    """What an attack found.

    `found`: `b`, whether some point tried has another label. `points`: `b x *s`, the first such point, or the last one
    tried where there is none. `tried`: how many points were evaluated in all.
    """

    found: Tensor
    points: Tensor
    tried: int


def pgd_attack(
    model: Model,
    y: Tensor,
    lower: Tensor,
    upper: Tensor,
    *,
    steps: int = 20,
    step: float = 0.25,
    starts: int = 1,
    seed: int = 0,
) -> Attack:
    """Looks for points in the boxes `[lower, upper]` (`b x *s`) that `model` does not label `y` (`b`).

    Gradient ascent on the cross-entropy, `steps` steps of `step` half-widths along the sign, from `starts` random
    points of each box. Every point on the way counts as tried. Finding none proves nothing; finding one refutes a
    claim.
    """
    generator = torch.Generator().manual_seed(seed)
    found = torch.zeros(len(y), dtype=torch.bool, device=lower.device)
    points, tried = lower.clone(), 0

    def seen(x: Tensor, logits: Tensor) -> None:
        nonlocal points, found, tried
        points = torch.where(found.reshape(-1, *[1] * (x.dim() - 1)), points, x)
        found = found | (logits.argmax(1) != y)
        tried += len(x)

    for _ in range(starts):
        share = torch.rand(lower.shape, generator=generator, dtype=lower.dtype).to(lower.device)
        x = torch.minimum(lower + (upper - lower) * share, upper)
        lengths = [step * (upper - lower) / 2] * (steps + 1)  # the start counts too
        pgd(_loss(model, y), x, lower, upper, lengths, seen)
    return Attack(found, points, tried)


def perturb(model: Model, x: Tensor, y: Tensor, by: PGD, data: Dataset, generator: torch.Generator) -> Tensor:
    """What the adversary makes of a batch."""
    lower, upper = by.around(x, data.low, data.high)
    if by.random_start:
        x = lower + (upper - lower) * torch.rand(x.shape, generator=generator, device=x.device)
    return pgd(_loss(model, y), x, lower, upper, [by.step * by.tau] * by.steps)


def _loss(model: Model, y: Tensor) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """The cross-entropy to be raised, summed over the inputs; and the logits, `b x k`."""

    def value(x: Tensor) -> tuple[Tensor, Tensor]:
        logits = model(x)
        return cross_entropy(logits, y, reduction="sum"), logits.detach()

    return value
