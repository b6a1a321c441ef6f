"""What every operation is: validated fields, an output shape, a forward pass."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from elbowroom.errors import InputError
from elbowroom.network.operations.fields import FIELDS

Shape = tuple[int, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Operation:
    """One node's computation. Subclasses are immutable; tensors in their fields are the stored parameters."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            check = FIELDS.get(str(field.type))  # somebody else's operation may have fields of its own kind
            if check is not None:
                object.__setattr__(self, field.name, check(getattr(self, field.name), f"{self.name}: {field.name}"))
        self._check()

    def _check(self) -> None:
        """Raises `InputError` where the fields, each of its type, make no operation."""

    def refuse_values(self) -> None:
        """Raises `InputError` where the parameters' numbers make no operation."""
        for name, tensor in self.tensors().items():
            if not bool(torch.isfinite(tensor).all()):
                raise InputError(f"{self.name}: {name} holds NaN or infinite values")

    def __call__(self, *xs: Tensor) -> Tensor:
        raise NotImplementedError

    def output_shape(self, *shapes: Shape) -> Shape:
        """Shape of the output; raises `InputError` where the input shapes do not fit."""
        self._must(len(shapes) == 1, shapes)
        return self._probe(*shapes)

    def _must(self, good: bool, shapes: Sequence[Shape]) -> None:
        if not good:
            given = ", ".join(map(str, shapes))
            raise InputError(f"{self!r} does not fit {'an input' if len(shapes) == 1 else 'inputs'} of shape {given}")

    def _probe(self, *shapes: Shape) -> Shape:
        """The shape that the forward pass gives."""
        probes = [torch.zeros(1, *s, dtype=torch.float32, device="cpu") for s in shapes]
        try:
            found = tuple(self.map_tensors(lambda t: t.to("cpu", torch.float32))(*probes).shape)
        except (RuntimeError, IndexError, ValueError) as error:
            given = ", ".join(str(s) for s in shapes)
            raise InputError(f"{self.name} does not accept inputs of shape {given}: {error}") from None
        self._must(found[0] == 1 and min(found) > 0, shapes)
        return found[1:]

    def __repr__(self) -> str:
        shown = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Tensor):
                value = "x".join(map(str, value.shape)) or "a number"
            if value is not None:
                shown.append(f"{field.name}={value}")
        return f"{self.name}({', '.join(shown)})"

    @property
    def name(self) -> str:
        return type(self).__name__

    def tensors(self) -> dict[str, Tensor]:
        """The stored parameters by field name."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {k: v for k, v in values.items() if isinstance(v, Tensor)}

    def map_tensors(self, change) -> Operation:  # type: ignore[no-untyped-def]
        """A copy with `change` applied to every parameter."""
        return dataclasses.replace(self, **{k: change(v) for k, v in self.tensors().items()})


@dataclass(frozen=True, eq=False, repr=False)
class Input(Operation):
    """The network's input; always node 0."""

    shape: Shape

    def _check(self) -> None:
        if not self.shape or any(n < 1 for n in self.shape):
            raise InputError(f"input_shape must hold positive sizes, at least one, got {self.shape}")

    def output_shape(self, *shapes: Shape) -> Shape:
        self._must(not shapes, shapes)
        return self.shape


class Affine(Operation):
    """`f(x_1, ..., x_k) = L (x_1, ..., x_k) + b`: says that there are such L and b."""


class Activation(Operation):
    """An element-wise nonlinear function."""

    def output_shape(self, *shapes: Shape) -> Shape:
        self._must(len(shapes) == 1, shapes)
        return shapes[0]


def finite(op: Operation, *names: str) -> None:
    """Refuses numbers among these fields that are infinite."""
    for name in names:
        value = getattr(op, name)
        if not isinstance(value, Tensor) and not math.isfinite(value):
            raise InputError(f"{op.name}: {name} must be finite, got {value}")


def within(value: float, dtype: torch.dtype, beyond: float) -> float:
    """The number, or one of size `beyond` where it is too large for the type (which torch refuses)."""
    return value if abs(value) <= torch.finfo(dtype).max else math.copysign(beyond, value)


def broadcast(name: str, *shapes: Shape) -> Shape:
    """The shape that these shapes have together; `name`: the operation that needs it."""
    try:
        return tuple(torch.broadcast_shapes(*shapes))
    except RuntimeError:
        raise InputError(f"{name}: shapes {' and '.join(map(str, shapes))} do not broadcast") from None
