"""The operations a `Network` is made of: affine maps, activations and max-pooling.

Every operation works on tensors with one leading axis (`n x *shape`) for whatever is batched. Shapes in signatures
leave that axis out.

An operation says what it computes (`__call__`), and nothing of how that is bounded: search, proof and Arb each have
their own maps (`search.bounds.maps`, `proof.kernel.rows`, `proof.arb`), so that no fault is shared. Weights of batch
norm and the like are never folded into neighbours: results speak of the network as stored.

An operation is whole or refused. Every field is validated when it is built, by its declared type and then by `_check`;
whether it fits its inputs is said by `output_shape`; whether its numbers make sense by `refuse_values`, which every
network asks. Nothing is left to what torch makes of an odd argument: an empty stride means the kernel to torch, and
might mean something else to a proof.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from elbowroom.errors import InputError

Shape = tuple[int, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Operation:
    """One node's computation. Subclasses are immutable; tensors in their fields are the stored parameters."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            check = _FIELDS.get(str(field.type))  # somebody else's operation may have fields of its own kind
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


# --- what a field of each declared type may hold; values come back in one form


def _tensor(value: Any, where: str) -> Tensor:
    plain = isinstance(value, Tensor) and value.layout is torch.strided and not value.is_quantized
    if not isinstance(value, Tensor) or not plain or not value.is_floating_point():
        what = f"a tensor of {value.dtype}" if isinstance(value, Tensor) else repr(value)
        raise InputError(f"{where} must be a plain tensor of floating-point numbers, got {what}")
    if not value.numel():
        raise InputError(f"{where} is empty: its shape is {tuple(value.shape)}")
    return value


def _whole(value: Any, where: str) -> int:
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise InputError(f"{where} must be a whole number, got {value!r}")
    return int(value)


def _number(value: Any, where: str) -> float:
    """Infinite ones are refused where they make no sense, by `_check`."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        raise InputError(f"{where} must be a number, got {value!r}")
    if math.isnan(value):
        raise InputError(f"{where} is NaN")
    try:
        return float(value)
    except OverflowError:
        raise InputError(f"{where} = {value} is no floating-point number") from None


def _flag(value: Any, where: str) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"{where} must be true or false, got {value!r}")
    return bool(value)


def _tuple_of(each: Callable[[Any, str], Any]) -> Callable[[Any, str], tuple[Any, ...]]:
    def check(value: Any, where: str) -> tuple[Any, ...]:
        if not isinstance(value, tuple | list):
            raise InputError(f"{where} must be a tuple, got {value!r}")
        return tuple(each(v, where) for v in value)

    return check


_FIELDS: dict[str, Callable[[Any, str], Any]] = {
    "Tensor": _tensor,
    "Tensor | None": lambda value, where: None if value is None else _tensor(value, where),
    "int": _whole,
    "bool": _flag,
    "float": _number,
    "float | Tensor": lambda value, where: (_tensor if isinstance(value, Tensor) else _number)(value, where),
    "Shape": _tuple_of(_whole),
    "tuple[float, ...]": _tuple_of(_number),
}


def _finite(op: Operation, *names: str) -> None:
    for name in names:
        value = getattr(op, name)
        if not isinstance(value, Tensor) and not math.isfinite(value):
            raise InputError(f"{op.name}: {name} must be finite, got {value}")


def _within(value: float, dtype: torch.dtype, beyond: float) -> float:
    """The number, or one of size `beyond` where it is too large for the type (which torch refuses)."""
    return value if abs(value) <= torch.finfo(dtype).max else math.copysign(beyond, value)


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


def _channelwise(t: Tensor, like: Tensor) -> Tensor:
    """A per-channel vector shaped to broadcast against `n x c x ...`."""
    return t.reshape(1, -1, *([1] * (like.dim() - 2)))


def _check_bias(op: Any, outputs: int) -> None:
    if op.bias is not None and tuple(op.bias.shape) != (outputs,):
        raise InputError(f"{op.name}: bias must have the shape ({outputs},), got {tuple(op.bias.shape)}")


def _check_windows(op: Any, dims: int, **least: int) -> None:
    """Fields with a number per spatial axis, each at least `least`; one number stands for all axes."""
    for name, minimum in least.items():
        value = getattr(op, name)
        value = value * dims if len(value) == 1 else value
        if len(value) != dims or min(value) < minimum:
            raise InputError(
                f"{op.name}: {name} must hold {dims} whole number{'s' * (dims > 1)} of at least {minimum}, or one for "
                f"all axes, got {getattr(op, name)}"
            )
        object.__setattr__(op, name, value)


@dataclass(frozen=True, eq=False, repr=False)
class Linear(Affine):
    """`W x + b` on the last axis. `weight`: `out x in`; `bias`: `out`."""

    weight: Tensor
    bias: Tensor | None = None

    def _check(self) -> None:
        if self.weight.dim() != 2:
            raise InputError(f"Linear: weight must have 2 axes, got shape {tuple(self.weight.shape)}")
        _check_bias(self, len(self.weight))

    def output_shape(self, *shapes: Shape) -> Shape:
        out, into = self.weight.shape
        self._must(len(shapes) == 1 and shapes[0][-1:] == (into,), shapes)
        return (*shapes[0][:-1], out)

    def __call__(self, *xs: Tensor) -> Tensor:
        return F.linear(xs[0], self.weight, self.bias)


_CONV = (F.conv1d, F.conv2d, F.conv3d)
_AVG_POOL = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)
_MAX_POOL = (F.max_pool1d, F.max_pool2d, F.max_pool3d)


@dataclass(frozen=True, eq=False, repr=False)
class Conv(Affine):
    """Convolution in 1, 2 or 3 dimensions, `weight`: `out x in/groups x *kernel`."""

    weight: Tensor
    bias: Tensor | None = None
    stride: Shape = (1,)
    padding: Shape = (0,)
    dilation: Shape = (1,)
    groups: int = 1

    def _check(self) -> None:
        dims = self.weight.dim() - 2
        if not 1 <= dims <= 3:
            raise InputError(f"Conv weight must have 3 to 5 axes, got shape {tuple(self.weight.shape)}")
        _check_windows(self, dims, stride=1, padding=0, dilation=1)
        if self.groups < 1 or len(self.weight) % self.groups:
            raise InputError(f"Conv: {len(self.weight)} output channels cannot be in {self.groups} groups")
        _check_bias(self, len(self.weight))

    def output_shape(self, *shapes: Shape) -> Shape:
        channels = self.weight.shape[1] * self.groups
        fits = len(shapes) == 1 and len(shapes[0]) == self.weight.dim() - 1 and shapes[0][0] == channels
        self._must(fits, shapes)
        sizes = zip(shapes[0][1:], self.weight.shape[2:], self.stride, self.padding, self.dilation)
        found = tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in sizes)
        self._must(min(found) > 0, shapes)
        return (len(self.weight), *found)

    def __call__(self, *xs: Tensor) -> Tensor:
        conv = _CONV[self.weight.dim() - 3]
        return conv(xs[0], self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


@dataclass(frozen=True, eq=False, repr=False)
class BatchNorm(Affine):
    """Batch norm in eval mode, `(x - mean) / sqrt(var + eps) * weight + bias` per channel (first axis)."""

    mean: Tensor
    var: Tensor
    weight: Tensor | None = None
    bias: Tensor | None = None
    eps: float = 1e-5

    def _check(self) -> None:
        _finite(self, "eps")
        if self.eps < 0:
            raise InputError(f"BatchNorm: eps must not be negative, got {self.eps}")
        for name, tensor in self.tensors().items():
            if tuple(tensor.shape) != (self.mean.numel(),):
                raise InputError(
                    f"BatchNorm: {name} must have one number for each of {self.mean.numel()} channels, got shape "
                    f"{tuple(tensor.shape)}"
                )

    def refuse_values(self) -> None:
        super().refuse_values()
        if bool((self.var < 0).any()):
            raise InputError("BatchNorm has a negative running variance; the model file is damaged")
        if not bool((self.var.double() + self.eps > 0).all()):
            raise InputError("BatchNorm divides by zero: a variance and eps are both 0")

    def output_shape(self, *shapes: Shape) -> Shape:
        if len(shapes) != 1 or not shapes[0] or shapes[0][0] != self.mean.numel():
            raise InputError(
                f"BatchNorm over {self.mean.numel()} channels got an input of shape {', '.join(map(str, shapes))}"
            )
        return shapes[0]

    def scale(self) -> Tensor:
        scale = torch.rsqrt(self.var + self.eps)
        return scale if self.weight is None else scale * self.weight

    def __call__(self, *xs: Tensor) -> Tensor:
        x = xs[0]
        y = (x - _channelwise(self.mean, x)) * _channelwise(self.scale(), x)
        return y if self.bias is None else y + _channelwise(self.bias, x)


class _WithConstant(Affine):
    """An element-wise operation with a constant, which broadcasts against the input from the right."""

    def output_shape(self, *shapes: Shape) -> Shape:
        self._must(len(shapes) == 1, shapes)
        (constant,) = self.tensors().values()
        if constant.dim() > len(shapes[0]):
            raise InputError(
                f"{self.name}: a constant of shape {tuple(constant.shape)} has more axes than the input "
                f"{shapes[0]}; reshape one of them"
            )
        return _broadcast(self.name, shapes[0], tuple(constant.shape))


def _broadcast(name: str, *shapes: Shape) -> Shape:
    try:
        return tuple(torch.broadcast_shapes(*shapes))
    except RuntimeError:
        raise InputError(f"{name}: shapes {' and '.join(map(str, shapes))} do not broadcast") from None


@dataclass(frozen=True, eq=False, repr=False)
class Scale(_WithConstant):
    """Element-wise product with a constant."""

    factor: Tensor

    def __call__(self, *xs: Tensor) -> Tensor:
        return xs[0] * self.factor


@dataclass(frozen=True, eq=False, repr=False)
class Divide(_WithConstant):
    """Element-wise quotient by a constant. Kept apart from `Scale`: 1/std would be a rounded number."""

    divisor: Tensor

    def refuse_values(self) -> None:
        super().refuse_values()
        if bool((self.divisor == 0).any()):
            raise InputError("Divide by a constant that contains zero; check std (no entry may be 0)")

    def __call__(self, *xs: Tensor) -> Tensor:
        return xs[0] / self.divisor


@dataclass(frozen=True, eq=False, repr=False)
class Shift(_WithConstant):
    """Adds a constant."""

    offset: Tensor

    def __call__(self, *xs: Tensor) -> Tensor:
        return xs[0] + self.offset


@dataclass(frozen=True, eq=False, repr=False)
class Add(Affine):
    """Sum of the inputs, each with its own sign: `Add((1, -1))` is a subtraction."""

    signs: tuple[float, ...] = (1.0, 1.0)

    def _check(self) -> None:
        if not self.signs or not all(map(math.isfinite, self.signs)):
            raise InputError(f"Add: signs must be finite numbers, one for each input, got {self.signs}")

    def output_shape(self, *shapes: Shape) -> Shape:
        if len(shapes) != len(self.signs):
            raise InputError(f"Add with {len(self.signs)} signs got {len(shapes)} inputs")
        return _broadcast(self.name, *shapes)

    def __call__(self, *xs: Tensor) -> Tensor:
        rank = max(x.dim() for x in xs)  # shapes align from the right; the leading axis must stay leading
        xs = tuple(x.reshape(x.shape[0], *[1] * (rank - x.dim()), *x.shape[1:]) for x in xs)
        total = xs[0] * self.signs[0] if self.signs[0] != 1 else xs[0]
        for sign, x in zip(self.signs[1:], xs[1:]):
            total = torch.add(total, x, alpha=sign)
        return total


@dataclass(frozen=True, eq=False, repr=False)
class Concat(Affine):
    """Joins the inputs along `axis` (counted without the batch axis)."""

    axis: int = 0

    def output_shape(self, *shapes: Shape) -> Shape:
        rank = len(shapes[0]) if shapes else 0
        self._must(all(len(s) == rank for s in shapes) and -rank <= self.axis < rank, shapes)
        others = [s[: self.axis % rank] + s[self.axis % rank + 1 :] for s in shapes]
        self._must(all(s == others[0] for s in others), shapes)
        return self._probe(*shapes)

    def __call__(self, *xs: Tensor) -> Tensor:
        return torch.cat(xs, dim=self._dim(xs[0].dim()))

    def _dim(self, rank: int) -> int:
        return self.axis + 1 if self.axis >= 0 else self.axis + rank


@dataclass(frozen=True, eq=False, repr=False)
class Reshape(Affine):
    """Gives the input another shape; one entry may be -1. A single number keeps an axis, since bounds are taken over
    the entries of axes: the shape () means (1,)."""

    shape: Shape

    def _check(self) -> None:
        object.__setattr__(self, "shape", self.shape or (1,))
        if self.shape.count(-1) > 1 or any(n < 1 and n != -1 for n in self.shape):
            raise InputError(f"Reshape needs positive sizes, of which one may be -1, got {self.shape}")

    def output_shape(self, *shapes: Shape) -> Shape:
        self._must(len(shapes) == 1, shapes)
        known, count = math.prod(n for n in self.shape if n != -1), math.prod(shapes[0])
        self._must(count % known == 0 if -1 in self.shape else count == known, shapes)
        return tuple(count // known if n == -1 else n for n in self.shape)

    def __call__(self, *xs: Tensor) -> Tensor:
        return xs[0].reshape(xs[0].shape[0], *self.shape)


@dataclass(frozen=True, eq=False, repr=False)
class Transpose(Affine):
    """Permutes the axes; `axes` counts without the batch axis."""

    axes: Shape

    def _check(self) -> None:
        if sorted(self.axes) != list(range(len(self.axes))):
            raise InputError(f"Transpose: axes must name every axis once (the batch not counted), got {self.axes}")

    def output_shape(self, *shapes: Shape) -> Shape:
        self._must(len(shapes) == 1 and len(shapes[0]) == len(self.axes), shapes)
        return tuple(shapes[0][d] for d in self.axes)

    def __call__(self, *xs: Tensor) -> Tensor:
        return xs[0].permute(0, *(d + 1 for d in self.axes))


@dataclass(frozen=True, eq=False, repr=False)
class Slice(Affine):
    """`x[start:stop:step]` along one axis, counted without the batch axis; `step` is positive."""

    axis: int
    start: int
    stop: int
    step: int = 1

    def _check(self) -> None:
        if self.axis < 0 or self.step < 1 or not 0 <= self.start < self.stop:
            raise InputError(
                f"Slice needs axis >= 0 (the batch axis not counted), 0 <= start < stop and step >= 1, got {self!r}"
            )

    def output_shape(self, *shapes: Shape) -> Shape:
        fits = len(shapes) == 1 and self.axis < len(shapes[0]) and self.start < shapes[0][self.axis]
        self._must(fits, shapes)
        return self._probe(*shapes)

    def __call__(self, *xs: Tensor) -> Tensor:
        index = [slice(None)] * xs[0].dim()
        index[self.axis + 1] = slice(self.start, self.stop, self.step)
        return xs[0][tuple(index)]


@dataclass(frozen=True, eq=False, repr=False)
class Pad(Affine):
    """Pads with a constant; `pads` in the order of `torch.nn.functional.pad` (last axis first)."""

    pads: Shape
    value: float = 0.0

    def _check(self) -> None:
        _finite(self, "value")
        if not self.pads or len(self.pads) % 2:
            raise InputError(f"Pad: pads must hold two numbers for each padded axis, the last axis first: {self.pads}")

    def output_shape(self, *shapes: Shape) -> Shape:
        self._must(len(shapes) == 1 and len(self.pads) <= 2 * len(shapes[0]), shapes)
        pairs = list(zip(self.pads[::2], self.pads[1::2]))[::-1]
        padded = shapes[0][len(shapes[0]) - len(pairs) :]
        # What is cut off must be there, so that no entry of the output is neither the input's nor padding.
        self._must(all(n + min(a, 0) + min(b, 0) > 0 for n, (a, b) in zip(padded, pairs)), shapes)
        return (*shapes[0][: len(shapes[0]) - len(pairs)], *(n + a + b for n, (a, b) in zip(padded, pairs)))

    def __call__(self, *xs: Tensor) -> Tensor:
        largest = torch.finfo(xs[0].dtype).max
        return F.pad(xs[0], self.pads, value=_within(self.value, xs[0].dtype, largest))


@dataclass(frozen=True, eq=False, repr=False)
class Mean(Affine):
    """Average over some axes, counted without the batch axis. An average of everything keeps an axis of size 1."""

    axes: Shape
    keepdim: bool = False

    def _check(self) -> None:
        if min(self.axes, default=-1) < 0 or len(set(self.axes)) != len(self.axes):
            raise InputError(f"Mean needs different axes >= 0 (the batch axis not counted), got {self.axes}")

    def output_shape(self, *shapes: Shape) -> Shape:
        self._must(len(shapes) == 1 and max(self.axes) < len(shapes[0]), shapes)
        return self._probe(*shapes)

    def __call__(self, *xs: Tensor) -> Tensor:
        found = xs[0].mean(dim=[d + 1 for d in self.axes], keepdim=self.keepdim)
        return found if found.dim() > 1 else found[:, None]


def _check_pooling(op: Any, **least: int) -> None:
    if not 1 <= len(op.kernel) <= 3 or min(op.kernel) < 1:
        raise InputError(f"{op.name}: kernel must hold 1 to 3 positive sizes, got {op.kernel}")
    _check_windows(op, len(op.kernel), stride=1, padding=0, **least)
    dilation = getattr(op, "dilation", (1,) * len(op.kernel))
    reach = tuple(d * (k - 1) + 1 for k, d in zip(op.kernel, dilation))
    if any(2 * p > r for p, r in zip(op.padding, reach)):
        raise InputError(f"{op.name}: padding {op.padding} is more than half of a window of {reach}")


@dataclass(frozen=True, eq=False, repr=False)
class AvgPool(Affine):
    """Average pooling in 1, 2 or 3 dimensions."""

    kernel: Shape
    stride: Shape
    padding: Shape = (0,)
    ceil_mode: bool = False
    count_include_pad: bool = True

    def _check(self) -> None:
        _check_pooling(self)

    def output_shape(self, *shapes: Shape) -> Shape:
        self._must(len(shapes) == 1 and len(shapes[0]) == len(self.kernel) + 1, shapes)
        return self._probe(*shapes)

    def __call__(self, *xs: Tensor) -> Tensor:
        pool = _AVG_POOL[len(self.kernel) - 1]
        return pool(xs[0], self.kernel, self.stride, self.padding, self.ceil_mode, self.count_include_pad)


@dataclass(frozen=True, eq=False, repr=False)
class MaxPool(Operation):
    """Max-pooling in 1, 2 or 3 dimensions."""

    kernel: Shape
    stride: Shape
    padding: Shape = (0,)
    dilation: Shape = (1,)
    ceil_mode: bool = False

    def _check(self) -> None:
        _check_pooling(self, dilation=1)

    def output_shape(self, *shapes: Shape) -> Shape:
        self._must(len(shapes) == 1 and len(shapes[0]) == len(self.kernel) + 1, shapes)
        return self._probe(*shapes)

    def __call__(self, *xs: Tensor) -> Tensor:
        pool = _MAX_POOL[len(self.kernel) - 1]
        return pool(xs[0], self.kernel, self.stride, self.padding, self.dilation, self.ceil_mode)


class Activation(Operation):
    """An element-wise nonlinear function."""

    def output_shape(self, *shapes: Shape) -> Shape:
        self._must(len(shapes) == 1, shapes)
        return shapes[0]


@dataclass(frozen=True, eq=False, repr=False)
class ReLU(Activation):
    def __call__(self, *xs: Tensor) -> Tensor:
        return xs[0].clamp_min(0)


@dataclass(frozen=True, eq=False, repr=False)
class LeakyReLU(Activation):
    """`x` above zero, `slope * x` below; `slope` is a number, or a tensor that broadcasts (PReLU)."""

    slope: float | Tensor = 0.01

    def _check(self) -> None:
        _finite(self, "slope")

    def output_shape(self, *shapes: Shape) -> Shape:
        self._must(len(shapes) == 1, shapes)
        slope = torch.as_tensor(self.slope)
        if slope.dim() > len(shapes[0]) or _broadcast(self.name, shapes[0], tuple(slope.shape)) != shapes[0]:
            raise InputError(f"LeakyReLU: slopes of shape {tuple(slope.shape)} do not fit {shapes[0]}")
        return shapes[0]

    def __call__(self, *xs: Tensor) -> Tensor:
        return torch.where(xs[0] > 0, xs[0], xs[0] * self.slope)


@dataclass(frozen=True, eq=False, repr=False)
class Clip(Activation):
    """`min(max(x, low), high)`: hardtanh, ReLU6 and the like. Either end may be infinite."""

    low: float = -1.0
    high: float = 1.0

    def _check(self) -> None:
        if not self.low < self.high:
            raise InputError(f"Clip needs low < high, got {self.low} and {self.high}")

    def __call__(self, *xs: Tensor) -> Tensor:
        return xs[0].clamp(*(_within(end, xs[0].dtype, math.inf) for end in (self.low, self.high)))


@dataclass(frozen=True, eq=False, repr=False)
class Sigmoid(Activation):
    def __call__(self, *xs: Tensor) -> Tensor:
        return torch.sigmoid(xs[0])


@dataclass(frozen=True, eq=False, repr=False)
class Tanh(Activation):
    def __call__(self, *xs: Tensor) -> Tensor:
        return torch.tanh(xs[0])


@dataclass(frozen=True, eq=False, repr=False)
class Arctan(Activation):
    def __call__(self, *xs: Tensor) -> Tensor:
        return torch.atan(xs[0])


@dataclass(frozen=True, eq=False, repr=False)
class ELU(Activation):
    """`x` above zero, `alpha (e^x - 1)` below, alpha > 0."""

    alpha: float = 1.0

    def _check(self) -> None:
        _finite(self, "alpha")
        if not self.alpha > 0:
            raise InputError(f"ELU needs alpha > 0, got {self.alpha}")

    def __call__(self, *xs: Tensor) -> Tensor:
        x = xs[0]
        return torch.where(x > 0, x, self.alpha * torch.expm1(x.clamp_max(0)))


@dataclass(frozen=True, eq=False, repr=False)
class Softplus(Activation):
    """`log(1 + e^(beta x)) / beta`, the function itself.

    (torch returns `x` where beta x is over its threshold, 20 by default: a difference of at most
    2.1e-9 / beta.)
    """

    beta: float = 1.0

    def _check(self) -> None:
        _finite(self, "beta")
        if not self.beta > 0:
            raise InputError(f"Softplus needs beta > 0, got {self.beta}")

    def __call__(self, *xs: Tensor) -> Tensor:
        x = xs[0]
        # (x + |x|) / 2 is max(x, 0), with derivative 1/2 at zero, which is softplus's own there.
        return (x + x.abs()) / 2 + torch.log1p(torch.exp(-(self.beta * x).abs())) / self.beta


@dataclass(frozen=True, eq=False, repr=False)
class SiLU(Activation):
    def __call__(self, *xs: Tensor) -> Tensor:
        return xs[0] * torch.sigmoid(xs[0])


@dataclass(frozen=True, eq=False, repr=False)
class GELU(Activation):
    """`x Phi(x)`, or its tanh approximation. Through `erfc`, which keeps its digits for negative x."""

    tanh: bool = False

    def __call__(self, *xs: Tensor) -> Tensor:
        x = xs[0]
        if self.tanh:  # (1 + tanh(y)) / 2 = sigmoid(2 y)
            return x * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
        return 0.5 * x * torch.erfc(x * -math.sqrt(0.5))
