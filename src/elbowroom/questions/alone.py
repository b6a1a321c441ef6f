"""`alone`: how far may one feature move, all others fixed?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from elbowroom.arguments.tensors import Array
from elbowroom.claim.specification import Specification
from elbowroom.errors import InputError
from elbowroom.machine.torch_modes import in_own_modes
from elbowroom.network.graph import Network
from elbowroom.questions.asked import Asked, asked_of, features_of, spend_of
from elbowroom.questions.lines import ends_of

ANSWERED = "answered"
SHARE = 0.01
_FARTHEST = 1000.0  # without domain or cap: times as far as the slope at the input says


@dataclass(frozen=True, eq=False)
class Alone:
    """How far each feature may move alone, all others staying exactly at the input. `b` inputs of shape `*s`.

    Of features that were not asked about, and of inputs that could not be, nothing is claimed beyond the input: lower
    and upper are its value.

    Attributes:
        x: The inputs, `b x *s`.
        labels: The decisions that stay, `b`; -1 where a specification was given.
        status: "answered", or why there is no answer: "misclassified", "not_certified", "nonfinite", "error", `b`.
        message: The reason in words, `b` texts; empty where there is an answer.
        asked: Features that were asked about and may move, `b x *s`.
        lower: How far it is proved downwards: the decision stays from here up to x, `b x *s`.
        upper: How far it is proved upwards.
        seen_lower: The nearest value below x at which the decision is another one, by a proof, of those found; minus
            infinity where none was found, `b x *s`.
        seen_upper: The nearest above, or infinity.
        lowest: How far was looked downwards, `b x *s`: the domain's end, or the cap.
        highest: How far was looked upwards.
        share: How near the two ends were to come to each other, beside the distance of the outer one from x.
        network: The network it is about.
        imputed: Features whose value was missing, and is what the model takes for it, `b x *s`; None where the model
            knows of no such.
    """

    x: Tensor
    labels: Tensor
    status: tuple[str, ...]
    message: tuple[str, ...]
    asked: Tensor
    lower: Tensor
    upper: Tensor
    seen_lower: Tensor
    seen_upper: Tensor
    lowest: Tensor
    highest: Tensor
    share: float
    network: Network = field(repr=False)
    imputed: Tensor | None = None

    def __len__(self) -> int:
        return len(self.status)

    @property
    def settled(self) -> Tensor:
        """Where both ends are known to `share`, or reach as far as was looked, `b x *s` booleans."""
        near = 1 + 1e-9
        down = (self.lower == self.lowest) | (
            self.lower - self.seen_lower <= near * self.share * (self.x - self.seen_lower)
        )
        up = (self.upper == self.highest) | (
            self.seen_upper - self.upper <= near * self.share * (self.seen_upper - self.x)
        )
        open_ = (self.seen_lower.isinf() & (self.lower > self.lowest)) | (
            self.seen_upper.isinf() & (self.upper < self.highest)
        )
        return self.asked & down & up & ~open_


@in_own_modes
def alone(
    net: Network | Any,
    x: Array | Any,
    feature: Any = None,
    *,
    labels: Array | None = None,
    spec: Specification | None = None,
    domain: tuple[Array, Array] | Mapping[str, tuple[float, float]] | str | None = None,
    max_eps: Array | Mapping[str, float] | None = None,
    frozen: Array | Sequence[str] | None = None,
    effort: str | int = "medium",
    share: float = SHARE,
    device: str | torch.device | None = None,
    memory: int | str | None = None,
) -> Alone:
    """How far may each feature move alone, all others fixed at the input? Proved from below, refuted from above.

    Every line from an input along a feature is cut into pieces that are proved one by one, until the proved end and
    the nearest counterexample are within `share` of each other, or the line ends. Together features may move less: see
    `certify`. Whole numbers of a table are any numbers here: a line may end between two of them.

    Args:
        net: The network, see `load`, or a model that `load` reads as it is.
        x: The inputs, `b x *input_shape` (or one input), or a data frame.
        feature: Which features, by name or number, one or a list; default, all that may move.
        labels: The decisions that must stay, as numbers of outputs or names of classes; default, the network's own.
        spec: Something else that must hold of the outputs.
        domain: (lowest, highest) valid input, numbers or arrays, a mapping from names to such pairs, or "observed", the
            range of `x`: lines end there.
        max_eps: How far to look at most, per feature; default, as far as the domain goes; else of a table with 10 rows
            or more the width of the range in `x`; else 1000 times as far as the decision would stay if the network
            were linear.
        frozen: Features that must not move, as booleans or names.
        effort: What may be spent: a line is cut into at most so many pieces ("fast": 32, "medium": 200, "high": 3000,
            or a number), or for so many seconds per input ("30s").
        share: How near proved end and counterexample are to come, beside how far the latter is from the input.
        device: Where to work; by default where `x` is.
        memory: What the work may take, in bytes or as "4GiB"; default, half of what is free.

    Returns:
        Both ends of every line.

    Raises:
        InputError: An argument cannot be used as it is; the message names it.
        UnsupportedError: The proof does not cover the network, or the model it was read from computes something else.

    Example:
        >>> found = er.alone(net, x, "age", domain=(lowest, highest))
        >>> found.lower[0], found.upper[0], found.seen_upper[0]
    """
    if not isinstance(share, int | float) or not 0 < share < 1:
        raise InputError(f"share must be between 0 and 1, got {share!r}")
    spend = spend_of(effort)
    about = asked_of(net, x, labels, spec, domain, frozen, max_eps, device)
    net = about.net
    wanted = about.space.free.clone()
    if feature is not None:
        chosen = torch.zeros(net.n_inputs, dtype=torch.bool, device=wanted.device)
        numbers = features_of(net, feature, "feature")
        chosen[numbers] = True
        names = net.about.features
        for k in numbers:
            if not bool(wanted[:, k].any()):
                raise InputError(f"feature: {repr(names[k]) if names else k} is frozen, or has no other valid value")
        wanted &= chosen
    good = about.good
    lowest, highest = _limits(about, good)
    which, at = wanted[good].nonzero(as_tuple=True)
    of = good[which]
    values = {}
    for limit, below in ((lowest, True), (highest, False)):
        moves = limit[of, at] != about.x[of, at]
        rows, columns = of[moves], at[moves]
        found = ends_of(about, rows, columns, limit[rows, columns], float(share), spend, memory)
        proved, seen = about.x.clone(), torch.full_like(about.x, -torch.inf if below else torch.inf)
        proved[rows, columns], seen[rows, columns] = found.proved, found.seen
        values[below] = (proved, seen)
    status = tuple(s or ANSWERED for s in about.status)
    asked = torch.zeros_like(wanted)
    asked[good] = wanted[good]
    found_ = {
        "asked": asked, "lower": values[True][0], "upper": values[False][0],
        "seen_lower": values[True][1], "seen_upper": values[False][1], "lowest": lowest, "highest": highest,
    }  # fmt: skip
    return Alone(
        x=about.points.cpu(), labels=about.labels.cpu(), status=status, message=tuple(about.message),
        share=float(share), network=net, imputed=about.imputed, **{name: about.shaped(t) for name, t in found_.items()},
    )  # fmt: skip


def _limits(about: Asked, good: Tensor) -> tuple[Tensor, Tensor]:
    """How far lines go, `b x n` values each."""
    x, space = about.x, about.space
    lowest, highest = x.clone(), x.clone()
    if not len(good):
        return lowest, highest
    part, own = space.part(good), x[good]
    cap = part.cap
    endless = cap.isinf() & (part.lowest.isinf() | part.highest.isinf()) & part.free
    if bool(endless.any()):
        cap = torch.where(endless, _by_slope(about, good), cap)
    cap = torch.where(part.free, cap, 0.0)
    most = torch.finfo(x.dtype).max
    lowest[good] = torch.maximum(own - cap, part.lowest).clamp(-most, most)
    highest[good] = torch.minimum(own + cap, part.highest).clamp(-most, most)
    return lowest, highest


def _by_slope(about: Asked, good: Tensor) -> Tensor:
    """How far to look where nothing says so, `m x n`: many times as far as the least margin would last if the network
    were linear in the feature; where it does not depend on a feature there, as far as in the others at most."""
    net = about.net.cast(torch.float64, good.device)
    slopes = []
    for index in good.split(1024):
        with torch.enable_grad():
            points = about.points[index].detach().requires_grad_()
            least = about.spec(index).margins(net.values(points)[-1]).amin(1)
            (slope,) = torch.autograd.grad((least + 0 * points.flatten(1).sum(1)).sum(), points)
        slopes.append(least.detach()[:, None] / slope.flatten(1).abs())
    far = torch.cat(slopes)
    known = far.isfinite() & (far > 0)
    others = torch.where(known, far, 0.0).amax(1, keepdim=True)
    plain = about.x[good].abs().clamp_min(1.0)
    return _FARTHEST * torch.where(known, far, torch.where(others > 0, others, plain))


__all__ = ["ANSWERED", "SHARE", "Alone", "alone"]
