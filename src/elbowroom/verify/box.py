"""`verify`: is a decision the same on a whole box?"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from elbowroom.arguments.inputs import corners_of, labels_of
from elbowroom.arguments.tensors import Array
from elbowroom.claim.hints import Hints
from elbowroom.claim.specification import Specification, label_stays
from elbowroom.errors import InputError
from elbowroom.machine.torch_modes import in_own_modes
from elbowroom.network.graph import Network
from elbowroom.network.work import settle_threads_for
from elbowroom.readers.given import network_for
from elbowroom.search.bounds.methods import check_margin, method_named
from elbowroom.verify.counterexample import Counterexample, confirming
from elbowroom.verify.decide import Decision, most_leaves

_LOOK = 2.0  # seconds of looking for counterexamples, where no other limit is given


@dataclass(frozen=True, eq=False)
class Verification:
    """What `verify` proved, per box; true if all of them are.

    Attributes:
        proved: Whether the decision is proved constant, `b`.
        margins: What was proved of each other class (or group of the specification), `b x g`.
        labels: The decisions it is about, `b`; None where a specification was given.
        counterexamples: Per box an input of it where the decision is another one, by a proof, or None.
        parts: Into how many parts each box was cut, `b`; 1 where it was not.
    """

    proved: Tensor
    margins: Tensor
    labels: Tensor | None
    counterexamples: tuple[Counterexample | None, ...]
    parts: Tensor

    def __bool__(self) -> bool:
        return bool(self.proved.all())


def check_effort(leaves: int | None, seconds: float | None, name: str = "leaves") -> None:
    """Refuses limits that are none; `name`: what the first is called."""
    if leaves is not None and (not isinstance(leaves, int) or leaves < 1):
        raise InputError(f"{name} must be a positive whole number, got {leaves!r}")
    if seconds is not None and (not isinstance(seconds, int | float) or not seconds > 0):
        raise InputError(f"seconds must be positive, got {seconds!r}")


@in_own_modes
def verify(
    net: Network | Any,
    lower: Array | Any,
    upper: Array | Any,
    labels: Array | None = None,
    *,
    spec: Specification | None = None,
    method: str = "adaptive",
    margin: str = "direct",
    deployed: str | None = None,
    leaves: int | None = None,
    seconds: float | None = None,
) -> Verification:
    """Is the decision the same on the whole box `[lower, upper]`? By the strict check; "not proved" is not "false".

    In boxes that are not proved as a whole, counterexamples are looked for, for a moment; with `leaves` or `seconds`
    such boxes are also cut into parts that are proved one by one. Whole numbers of a table are any numbers here, and in
    counterexamples.

    Args:
        net: The network, see `load`; or a model that `load` reads as it is, as in `certify`.
        lower: The lower corners, `b x *input_shape` or `*input_shape`, or a data frame.
        upper: The upper corners, likewise; categories of a table are the same in both.
        labels: The decision to prove, as numbers of outputs or names of classes; default, what the network decides at
            the box's midpoint.
        spec: Something else to prove of the outputs.
        method: The bounds to prove it with, as in `certify`.
        margin: "direct" or "logits", as in `certify`.
        deployed: "float32" to prove also the network as executed in float32. (Counterexamples are of the network in
            real arithmetic.)
        leaves: Into how many parts a box may be cut, for each class or group; default, 1, or with `seconds` as many as
            a proof may have.
        seconds: For about how long to go on, for all boxes together; default, until `leaves` are reached.

    Returns:
        What was proved; true if all boxes were.

    Raises:
        InputError: An argument cannot be used as it is.
        UnsupportedError: The proof does not cover the network, or the model it was read from computes something else.
    """
    method_named(method)
    check_margin(margin)
    check_effort(leaves, seconds)
    net = network_for(net, lower)
    settle_threads_for(net)
    low, high = corners_of(net, lower, upper, torch.float64)
    net.must_agree(torch.cat([low[:1] / 2 + high[:1] / 2, low[:1], high[:1]]))
    chosen: Tensor | None = None
    if spec is None:
        if labels is None:
            chosen = net.decide(net(low / 2 + high / 2))
        else:
            chosen = labels_of(net, labels, len(low)).to(low.device)
        spec = label_stays(chosen, net.n_outputs, net.decision)
    elif labels is not None:
        raise InputError("give labels or spec, not both")
    spec.check_fits(len(low), net)
    spec = spec.cast(torch.float64, low.device)
    decision = Decision(net, low, high, spec, Hints.of(method, margin), deployed)
    confirmed = confirming(net, low, high, spec)
    if leaves is None and seconds is None:
        decision.attack(confirmed, time.monotonic() + _LOOK)
    else:
        ends = math.inf if seconds is None else time.monotonic() + seconds
        decision.run(confirmed, most_leaves(net) if leaves is None else leaves, ends)
    found = decision.found
    return Verification(found.proved, found.margins, chosen, tuple(found.counterexamples), found.parts)
