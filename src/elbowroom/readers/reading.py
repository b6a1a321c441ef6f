"""What the readers of models have in common: refusals, sentences for users, and when a conversion is a rounding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor

from elbowroom.network.operations import Operation, Shape

_MOST_CODES = 1024


def left_off(what: str) -> str:
    """A note. In floating point a softmax may make equal numbers of different ones; the logits are what is claimed."""
    are, they_do, them = ("are", "they do", "them") if " and " in what else ("is", "it does", "it")
    return (
        f"{what} at the end {are} left off: {they_do} not change the decision; a claim about float32 execution is "
        f"about the logits before {them}"
    )


def computes_in(kind: str) -> str:
    """A note, for a model all of whose operations round to a type of half precision."""
    return (
        f"the model computes in {kind}; it is read as the same network in real arithmetic, and certify(deployed=...) "
        "is then about the float32 version"
    )


def rounds_to(kind: str) -> str:
    """A refusal: such a rounding moves decisions by more than the arithmetic of the rest."""
    return (
        f"rounds its values to {kind}, which is not part of a network in real arithmetic; leave the conversion out, or "
        f"convert the whole model to {kind}"
    )


class RefusalError(Exception):
    """Why an operation is not supported; `at`: the operation meant, where it is not the one at hand."""

    def __init__(self, reason: str, at: Any = None) -> None:
        super().__init__(reason)
        self.at = at


def first_line(error: Exception) -> str:
    """What an error says, for a sentence."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def refuse(reason: str) -> NoReturn:
    raise RefusalError(reason)


def refuse_many_codes(count: int) -> None:
    """Refuses a column of more codes than are written out, an entry for each."""
    if count > _MOST_CODES:
        refuse(f"has {count:,} rows for the codes of a column, and at most {_MOST_CODES:,} are read")


def is_half(kind: torch.dtype) -> bool:
    """Whether this is a floating-point type that float32 holds and that is not float32."""
    return kind.is_floating_point and kind.itemsize < 4


def holds(kind: torch.dtype, other: torch.dtype) -> bool:
    """Whether the floating-point type `kind` has every number of the type `other`."""
    own = torch.finfo(kind)
    if not other.is_floating_point:
        return torch.iinfo(other).max <= 2 / own.eps
    return own.eps <= torch.finfo(other).eps and own.max >= torch.finfo(other).max


def exactly(value: Tensor, kind: torch.dtype) -> Tensor:
    """The same numbers in the type `kind` where that holds them, otherwise in float32 or float64."""
    for narrow in (kind, torch.float32):
        if torch.equal(value.to(narrow).double(), value.double()):
            return value.to(narrow)
    return value.double()


@dataclass(frozen=True, eq=False)
class Unknown(Operation):
    """Stands in for an unsupported operation, so that the rest can be looked through for more of them."""

    shape: Shape

    def output_shape(self, *shapes: Shape) -> Shape:
        return self.shape


__all__ = [
    "RefusalError",
    "Unknown",
    "computes_in",
    "exactly",
    "first_line",
    "holds",
    "is_half",
    "left_off",
    "refuse",
    "refuse_many_codes",
    "rounds_to",
]
