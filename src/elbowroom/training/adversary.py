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
    """The adversary to train against: within `tau` of the input in every feature, along the sign of the gradient.

    Args:
        tau: How far it may move each feature.
        steps: How many steps it takes.
        step: Their length, as a share of tau.
        random_start: Whether it starts from a random point of the ball, or from the input.
        ramp: Epochs over which a training adversary's tau grows to its full size; hard data otherwise leave a network
            at the frequencies of the classes.
        clip: Whether it stays within the domain.

    Raises:
        InputError: A number is out of range.
    """

    tau: float = 0.1
    steps: int = 20
    step: float = 0.25
    random_start: bool = True
    ramp: int = 0
    clip: bool = True

    def at(self, epoch: int) -> PGD:
        """The adversary of an epoch.

        Args:
            epoch: Counted from 0.

        Returns:
            The adversary, with that epoch's tau.
        """
        return self if epoch + 1 >= self.ramp else replace(self, tau=self.tau * (epoch + 1) / self.ramp)

    def around(self, x: Tensor, low: float, high: float) -> tuple[Tensor, Tensor]:
        """The boxes in which it moves inputs.

        Args:
            x: The inputs, `b x *s`.
            low: The domain's lower end.
            high: The domain's upper end.

        Returns:
            Lower and upper corners, `b x *s` each.
        """
        lower, upper = x - self.tau, x + self.tau
        return (lower.clamp_min(low), upper.clamp_max(high)) if self.clip else (lower, upper)

    def __post_init__(self) -> None:
        if not (self.tau > 0 and self.steps >= 1 and self.step > 0 and self.ramp >= 0):
            raise InputError(f"PGD needs tau > 0, at least one step, step > 0 and no negative ramp, got {self}")


def accuracy(model: Model, x: Tensor, y: Tensor) -> float:
    """The share of inputs that a model gives their label.

    Args:
        model: From inputs to logits, `b x k`.
        x: The inputs, `b x *s`.
        y: Their labels, `b`.

    Returns:
        The share, from 0 to 1.
    """
    with torch.no_grad():
        right = sum(int((model(part).argmax(1) == labels).sum()) for part, labels in _parts(x, y))
    return right / len(x)


def accuracy_under(
    model: Model, x: Tensor, y: Tensor, by: PGD, low: float, high: float, *, starts: int = 1, seed: int = 0
) -> float:
    """The share of inputs still given their label when an adversary may move them.

    Args:
        model: From inputs to logits, `b x k`.
        x: The inputs, `b x *s`.
        y: Their labels, `b`.
        by: The adversary.
        low: The domain's lower end.
        high: The domain's upper end.
        starts: From how many random points it tries each input.
        seed: Of these points.

    Returns:
        The share, from 0 to 1.
    """
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

    Attributes:
        found: Whether some point tried has another label, `b`.
        points: The first such point, or the last one tried where there is none, `b x *s`.
        tried: How many points were evaluated in all.
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
    """Looks for points in boxes that a model does not give their label, by gradient ascent on the cross-entropy.

    Every point on the way counts as tried. Finding none proves nothing; finding one refutes a claim.

    Args:
        model: From inputs to logits, `b x k`.
        y: The labels, `b`.
        lower: The boxes' lower corners, `b x *s`.
        upper: Their upper corners, `b x *s`.
        steps: How many steps to take, along the sign of the gradient.
        step: Their length, in half-widths of the box.
        starts: From how many random points of each box.
        seed: Of these points.

    Returns:
        What was found.
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
    """What the adversary makes of a batch.

    Args:
        model: From inputs to logits, `b x k`.
        x: The inputs, `b x *s`.
        y: Their labels, `b`.
        by: The adversary.
        data: Whose domain it stays in.
        generator: Of its starts, on the device of `x`.

    Returns:
        The moved inputs, `b x *s`.
    """
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
