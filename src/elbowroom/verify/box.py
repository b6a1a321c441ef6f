"""`verify`: is a decision the same on a whole box?"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from elbowroom.arguments.inputs import corners_of, labels_of
from elbowroom.arguments.tensors import Array
from elbowroom.claim.hints import Hints
from elbowroom.claim.specification import Specification, label_stays
from elbowroom.claim.stated import Stated
from elbowroom.errors import InputError
from elbowroom.machine.torch_modes import in_own_modes
from elbowroom.network.graph import Network
from elbowroom.proof.kernel.prove import prove
from elbowroom.search.bounds.methods import check_margin, method_named


@dataclass(frozen=True, eq=False)
class Verification:
    """What `verify` proved, per box; true if all of them are.

    Attributes:
        proved: Whether the decision is proved constant, `b`.
        margins: What was proved of each other class (or group of the specification), `b x g`.
        labels: The decisions it is about, `b`; None where a specification was given.
    """

    proved: Tensor
    margins: Tensor
    labels: Tensor | None

    def __bool__(self) -> bool:
        return bool(self.proved.all())


@in_own_modes
def verify(
    net: Network,
    lower: Array,
    upper: Array,
    labels: Array | None = None,
    *,
    spec: Specification | None = None,
    method: str = "adaptive",
    margin: str = "direct",
    deployed: str | None = None,
) -> Verification:
    """Is the decision the same on the whole box `[lower, upper]`? By the strict check; "not proved" is not "false".

    Args:
        net: The network, see `load`.
        lower: The lower corners, `b x *input_shape` or `*input_shape`, or a data frame.
        upper: The upper corners, likewise.
        labels: The decision to prove, as numbers of outputs or names of classes; default, what the network decides at
            the box's midpoint.
        spec: Something else to prove of the outputs.
        method: The bounds to prove it with, as in `certify`.
        margin: "direct" or "logits", as in `certify`.
        deployed: "float32" to prove also the network as executed in float32.

    Returns:
        What was proved; true if all boxes were.

    Raises:
        InputError: An argument cannot be used as it is.
        UnsupportedError: The proof does not cover the network, or the model it was read from computes something else.
    """
    method_named(method)
    check_margin(margin)
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
    region, hints = Stated(low.flatten(1), high.flatten(1)), Hints.of(method, margin)
    margins = prove(net, region, spec.rows, spec.offset, spec.group, hints, deployed)
    return Verification((margins > 0).all(1), margins, chosen)
