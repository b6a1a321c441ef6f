"""How often a network is right, and whether that is hardly more than by chance: then something is usually wrong with
what it was given, and certificates of such decisions would be worth nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from elbowroom.errors import warn
from elbowroom.network.graph import Network

_FEW = 10  # inputs of which nothing is concluded
_LEVEL = 0.1  # by chance, so many or more are right with this probability: not told apart from chance
_LITTLE = 0.1  # of the way from chance to always right


@dataclass(frozen=True)
class Accuracy:
    """`right` of `count` inputs; `chance`: the share that would be right if decisions had nothing to do with labels."""

    right: int
    count: int
    chance: float
    n_classes: int

    @staticmethod
    def of(decided: np.ndarray, labels: np.ndarray, n_classes: int) -> Accuracy:
        """Of decisions and labels, `n` each.

        By chance, one of `n_classes` is right; or more, where most labels are of the class that is decided most often:
        a network that always says the same is right as often as that class is there.
        """
        count, chance = len(labels), 1 / n_classes
        if len(np.unique(labels)) > 1:
            shares = [
                np.bincount(v[(v >= 0) & (v < n_classes)], minlength=n_classes) / count for v in (decided, labels)
            ]
            chance = max(chance, float(shares[0] @ shares[1]))
        return Accuracy(int((decided == labels).sum()), count, chance, n_classes)

    @property
    def near_chance(self) -> bool:
        """Whether it is hardly more than by chance: not significantly more than one class in all (a binomial test), or
        little more than what decisions without regard to the labels would get right."""
        if self.count < _FEW:
            return False
        little = self.right / self.count < self.chance + _LITTLE * (1 - self.chance)
        return little or _at_least(self.right, self.count, 1 / self.n_classes) > _LEVEL

    def warning(self, class_names: str = "classes", no_labels: str = "labels=None") -> str:
        """What to look at; `class_names`, `no_labels`: how its caller is told names of classes, and no labels."""
        return (
            f"the network gets only {self.right:,} of {self.count:,} right, hardly more than by chance; usually the "
            "inputs or the labels are not what it was trained on. Look at: the order of the features' columns; the "
            "layout of images (`layout`); what the model expects of its inputs (`scale`, `mean`, `std`); the order of "
            f"the classes (`{class_names}`); which output decides (`decision='max'` or min). Without labels "
            f"(`{no_labels}`), what the network decides is certified"
        )


def warn_near_chance(net: Network, outputs: Tensor, labels: Tensor | None) -> None:
    """Warns where the network is hardly ever right; `outputs`: `b x k`, `labels`: `b`, or None where there are none."""
    if labels is None:
        return
    known = outputs.isfinite().all(1)
    found = Accuracy.of(net.decide(outputs[known]).cpu().numpy(), labels[known].cpu().numpy(), net.n_outputs)
    if found.near_chance:
        warn(found.warning())


def _at_least(right: int, count: int, chance: float) -> float:
    """The probability of `right` or more out of `count`, each by `chance`."""
    if right == 0:
        return 1.0
    if chance >= 1:
        return 1.0
    k = np.arange(right, count + 1)
    log = np.array([math.lgamma(count + 1) - math.lgamma(i + 1) - math.lgamma(count - i + 1) for i in k.tolist()])
    return float(np.exp(log + k * math.log(chance) + (count - k) * math.log1p(-chance)).sum())


__all__ = ["Accuracy", "warn_near_chance"]
