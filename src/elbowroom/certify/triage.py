"""Which inputs need no search, and why."""

from __future__ import annotations

import torch
from torch import Tensor

from elbowroom.arguments.features import feature_titles
from elbowroom.claim.space import Space
from elbowroom.network.graph import Network
from elbowroom.network.names import class_title


def triage(
    net: Network, x: Tensor, outputs: Tensor, least: Tensor, labels: Tensor, space: Space, told: str, delta: float = 0.0
) -> tuple[list[str], list[str]]:
    """Status and message of the inputs that need no search; "" for the others.

    `x`: `b x n`; `outputs`: `b x k`; `least`: `b`, the least margin at the input itself, which must be above `delta`;
    `labels`: `b`. `told`: who said what must stay: "labels", "spec", or "" where it is what the network decides.
    """
    # Everything to the CPU at once: asking a GPU for one number at a time would take longer than the search.
    margins, decided, labels_ = least.tolist(), net.decide(outputs).tolist(), labels.tolist()
    finite, outputs_finite = torch.isfinite(x).all(1).tolist(), torch.isfinite(outputs).all(1).tolist()
    beyond = (x < space.lowest) | (x > space.highest)
    names = feature_titles(net) if bool(beyond.any()) else []
    outside, levels = beyond.any(1).tolist(), [True] * len(margins)
    if space.categories is not None and space.allowed is not None:
        levels = space.categories.sensible(space.allowed).tolist()
    status, message = [], []
    for k, margin in enumerate(margins):
        kind, why = "", ""
        if not finite[k]:
            kind, why = "nonfinite", "the input holds NaN or infinite values"
        elif not levels[k]:
            kind, why = "error", "the entries of a category are the code of none of its levels"
        elif outside[k]:
            place = int(beyond[k].nonzero()[0])
            kind, why = "error", f"{names[place]} = {float(x[k, place]):.6g} lies outside the domain"
        elif not outputs_finite[k]:
            kind, why = "nonfinite", "the network's outputs are NaN or infinite here"
        elif margin <= 0 and told == "labels":
            titles = class_title(net, decided[k]), class_title(net, labels_[k])
            kind, why = "misclassified", f"the network decides {titles[0]} here, not {titles[1]}"
        elif margin <= 0 and told == "spec":
            kind, why = "misclassified", "the specification does not hold at the input itself"
        elif margin <= 0:
            kind, why = "not_certified", "two classes tie at the input itself"
        elif margin <= delta:
            kind, why = "not_certified", f"the margin at the input itself, {margin:.3g}, is not above delta = {delta:g}"
        status.append(kind)
        message.append(why)
    return status, message


__all__ = ["triage"]
