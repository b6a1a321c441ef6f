"""ONNX's operators on shapes: they say where a number goes, or take the mean or sum of some."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from elbowroom.errors import InputError
from elbowroom.network import operations as ops
from elbowroom.network.file import LARGEST
from elbowroom.network.operations import Shape
from elbowroom.readers.onnx.arithmetic import broadcast, shifted, times
from elbowroom.readers.onnx.file import FLOATS, type_name
from elbowroom.readers.onnx.step import Step, Value
from elbowroom.readers.reading import refuse

_MOST_PIECES = 4096  # each is a node of its own


def same(to: Step, x: Any) -> Any:
    return x


def dropout(to: Step, x: Value, ratio: Any = None, training: Any = None) -> Value:
    to.ignore("ratio", "seed")
    training = training is not None and bool(to.constant(training, "modes").any())
    if training and (ratio is None or bool(to.constant(ratio, "ratios").any())):  # by default, half of the values
        refuse("it is in training mode; export the model in eval mode")
    return x


def cast(to: Step, x: Any) -> Any:
    to.ignore("saturate", "round_mode")
    kind = to.integer("to", 0)
    if kind not in FLOATS:
        refuse(f"a conversion to {type_name(kind)}")
    return replace(x, whole=False) if isinstance(x, Value) else x


def reshape(to: Step, x: Value, shape: Any) -> Value:
    literal = to.integer("allowzero", 0)
    target = to.whole_numbers(shape, "sizes")
    wanted = [x.shape[i] if n == 0 and not literal and i < len(x.shape) else n for i, n in enumerate(target)]
    size = math.prod(x.shape)
    if to.batch > 1 and wanted[:1] == [to.batch] and _filled(wanted, size) is None:
        wanted[0] = 1
    found = _filled(wanted, size)
    if found is None:
        raise InputError(f"{size} numbers of shape {x.shape} do not fit into the shape {target}")
    return replace(x, shape=found)


def _filled(wanted: Sequence[int], size: int) -> Shape | None:
    """The shape with its -1, if there is one, replaced by what makes up the size; None where there is no such."""
    known = math.prod(n for n in wanted if n != -1)
    if wanted.count(-1) > 1 or any(n < -1 for n in wanted) or known == 0 or size % known:
        return None
    found = tuple(size // known if n == -1 else n for n in wanted)
    return found if math.prod(found) == size else None


def flatten(to: Step, x: Value) -> Value:
    axis = to.integer("axis", 1)
    if not -len(x.shape) <= axis <= len(x.shape):
        raise InputError(f"it has no axis {axis}: the value has {len(x.shape)}")
    axis = axis % len(x.shape) if axis < 0 else axis
    return replace(x, shape=(math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


def squeeze(to: Step, x: Value, axes: Any = None) -> Value:
    given = to.given("axes", axes)
    rank = len(x.shape)
    chosen = [d for d in range(rank) if x.shape[d] == 1] if given is None else to.axes(given, rank)
    if any(x.shape[d] != 1 for d in chosen):
        raise InputError(f"axes {given} of a value of shape {x.shape} do not all have size 1")
    return replace(x, shape=tuple(n for d, n in enumerate(x.shape) if d not in chosen))


def unsqueeze(to: Step, x: Value, axes: Any = None) -> Value:
    given = to.given("axes", axes)
    if given is None:
        raise InputError("its axes are missing")
    rank = len(x.shape) + len(given)
    chosen, sizes = to.axes(given, rank), iter(x.shape)
    return replace(x, shape=tuple(1 if d in chosen else next(sizes) for d in range(rank)))


def transpose(to: Step, x: Value) -> Value:
    perm = to.integers("perm")
    value: Value = turned(to, x, tuple(reversed(range(len(x.shape)))) if perm is None else perm)
    return value


def turned(to: Step, x: Any, perm: Sequence[int]) -> Any:
    if sorted(perm) != list(range(len(x.shape))):
        raise InputError(f"the axes {tuple(perm)} are no order of those of a value of shape {x.shape}")
    if isinstance(x, np.ndarray):
        return x.transpose(perm)
    moved = [d for d in perm if x.shape[d] != 1]  # axes of size 1 stand anywhere in row-major order
    shape = tuple(x.shape[d] for d in perm)
    if moved == sorted(moved):
        return replace(x, shape=shape)
    viewed = to.view(x, tuple(n for n in x.shape if n != 1))
    axes = tuple(sorted(moved).index(d) for d in moved)
    return replace(x, number=to.add(ops.Transpose(axes), viewed), shape=shape)


def _lead(x: Shape, axis: int) -> int:
    """How many leading axes to leave out: the batch axis, unless it is the one at hand."""
    return int(axis > 0 and x[0] == 1)


def _piece(to: Step, x: Value, axis: int, start: int, stop: int, step: int = 1) -> Value:
    """`x[start:stop:step]` along one axis, of numbers within its size."""
    if start >= stop:
        refuse("it takes an empty piece")
    if (start, stop, step) == (0, x.shape[axis], 1):
        return x
    lead = _lead(x.shape, axis)
    number = to.add(ops.Slice(axis - lead, start, stop, step), to.view(x, x.shape[lead:]))
    size = len(range(start, stop, step))
    return replace(x, number=number, shape=(*x.shape[:axis], size, *x.shape[axis + 1 :]))


def slice_along(to: Step, x: Value, starts: Any = None, ends: Any = None, axes: Any = None, steps: Any = None) -> Value:
    first, last = to.given("starts", starts), to.given("ends", ends)
    along = to.given("axes", axes)
    by = None if steps is None else to.whole_numbers(steps, "steps")
    if first is None or last is None:
        raise InputError("its starts or ends are missing")
    along = tuple(range(len(first))) if along is None else along
    by = (1,) * len(first) if by is None else by
    if not len(first) == len(last) == len(along) == len(by):
        raise InputError("its starts, ends, axes and steps differ in number")
    for start, stop, axis, step in zip(first, last, to.axes(along, len(x.shape)), by):
        if step < 1:
            refuse(f"steps of {step}; only positive ones are supported")
        start, stop, step = slice(start, stop, step).indices(x.shape[axis])
        x = _piece(to, x, axis, start, stop, step)
    return x


def gather(to: Step, x: Value, indices: Any) -> Value:
    axis = to.axis(to.integer("axis", 0), len(x.shape))
    chosen, n = to.whole_numbers(indices, "indices", LARGEST), x.shape[axis]
    if not chosen or any(not -n <= i < n for i in chosen):
        raise InputError(f"its indices lie outside an axis of size {n}")
    runs: list[list[int]] = []
    for i in (i % n for i in chosen):
        if runs and i == runs[-1][-1] + 1:
            runs[-1].append(i)
        else:
            runs.append([i])
    if len(runs) > _MOST_PIECES:
        refuse(f"it picks {len(runs)} separate pieces; at most {_MOST_PIECES} are supported")
    pieces = [_piece(to, x, axis, run[0], run[-1] + 1) for run in runs]
    found = _joined(to, pieces, axis)
    return replace(found, shape=(*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))


def split(to: Step, x: Value, split: Any = None) -> tuple[Value, ...]:
    axis = to.axis(to.integer("axis", 0), len(x.shape))
    n, count = x.shape[axis], to.integer("num_outputs", len(to.node.output))
    sizes = to.given("split", split)
    if sizes is None:  # equal parts, except for the last one
        part = -(-n // max(count, 1))
        sizes = tuple(min(part, n - i * part) for i in range(count))
    if sum(sizes) != n or len(sizes) != len(to.node.output) or min(sizes) < 1:
        raise InputError(f"an axis of size {n} cannot be split into parts of sizes {sizes}")
    ends = np.cumsum(sizes).tolist()
    return tuple(_piece(to, x, axis, end - size, end) for end, size in zip(ends, sizes))


def concat(to: Step, *values: Any) -> Value:
    axis = to.axis(to.integer("axis", 0), len(values[0].shape))
    others = {(*v.shape[:axis], *v.shape[axis + 1 :]) for v in values}
    if len({len(v.shape) for v in values}) > 1 or len(others) > 1:
        raise InputError(f"values of shapes {', '.join(str(v.shape) for v in values)} cannot be joined on axis {axis}")
    if not any(isinstance(v, np.ndarray) for v in values):
        return _joined(to, values, axis)
    # Room is made for the constants next to a computed value, and they are added where there is room.
    constant: list[np.ndarray] = []
    parts: list[Value] = []
    before = 0
    for v in values:
        if isinstance(v, np.ndarray):
            constant.append(to.parameter(v, "constants").numpy())
            if parts:
                parts[-1] = _padded(to, parts[-1], axis, 0, v.shape[axis])
            else:
                before += v.shape[axis]
        else:
            constant.append(np.zeros(v.shape, dtype=np.float32))
            parts.append(_padded(to, v, axis, before if not parts else 0, 0))
    return shifted(to, _joined(to, parts, axis), np.concatenate(constant, axis))


def _joined(to: Step, values: Sequence[Value], axis: int) -> Value:
    if len(values) == 1:
        return values[0]
    shape = values[0].shape
    lead = _lead(shape, axis)
    number = to.add(ops.Concat(axis - lead), *(to.view(v, v.shape[lead:]) for v in values))
    return Value(number, (*shape[:axis], sum(v.shape[axis] for v in values), *shape[axis + 1 :]), values[0].whole)


def _padded(to: Step, x: Value, axis: int, before: int, after: int) -> Value:
    pads = [(0, 0)] * len(x.shape)
    pads[axis] = (before, after)
    return _surrounded(to, x, pads, 0.0)


def _surrounded(to: Step, x: Value, pads: Sequence[tuple[int, int]], value: float) -> Value:
    shape = tuple(n + b + e for n, (b, e) in zip(x.shape, pads))
    if min(shape, default=1) < 1:
        raise InputError(f"a value of shape {x.shape} cannot be cut down to {shape}")
    if not any(map(any, pads)):
        return x
    lead = 0 if any(pads[0]) else _lead(x.shape, 1)
    flat = tuple(n for pair in reversed(pads[lead:]) for n in pair)
    return Value(to.add(ops.Pad(flat, value), to.view(x, x.shape[lead:])), shape)


def pad(to: Step, x: Value, pads: Any = None, value: Any = None, axes: Any = None) -> Value:
    mode, filled = to.text("mode", "constant"), to.real("value", 0.0)
    given = to.given("pads", pads)
    if given is None:
        raise InputError("its pads are missing")
    chosen = range(len(x.shape)) if axes is None else to.axes(to.whole_numbers(axes, "axes"), len(x.shape))
    if len(given) != 2 * len(chosen):
        raise InputError(f"{len(given)} pads do not fit {len(chosen)} axes")
    if mode != "constant" and any(given):
        refuse(f"the mode {mode!r}; only padding with a constant is supported")
    if value is not None:
        filled = float(to.parameter(value, "constants").reshape(()))
    if not math.isfinite(filled):
        refuse("it pads with infinite values")
    pairs = [(0, 0)] * len(x.shape)
    for i, d in enumerate(chosen):
        pairs[d] = (given[i], given[i + len(chosen)])
    return _surrounded(to, x, pairs, filled)


def _reduced(to: Step, x: Value, axes: Any = None) -> tuple[Value, int]:
    """The mean over some axes, and over how many numbers it goes."""
    given, keep = to.given("axes", axes), to.integer("keepdims", 1)
    idle = to.integer("noop_with_empty_axes", 0)
    if not given and idle:
        return x, 1
    chosen = to.axes(given or range(len(x.shape)), len(x.shape))
    shape = tuple(1 if d in chosen else n for d, n in enumerate(x.shape) if d not in chosen or keep)
    count = math.prod(x.shape[d] for d in chosen)
    if count == 1:
        return replace(x, shape=shape), 1
    lead = _lead(x.shape, 1 if len(x.shape) > 1 else 0)
    number = to.add(ops.Mean(tuple(sorted(d - lead for d in chosen if x.shape[d] > 1))), to.view(x, x.shape[lead:]))
    return Value(number, shape), count


def reduce_mean(to: Step, x: Value, axes: Any = None) -> Value:
    return _reduced(to, x, axes)[0]


def reduce_sum(to: Step, x: Value, axes: Any = None) -> Value:
    mean, count = _reduced(to, x, axes)
    return times(to, mean, count)


def expand(to: Step, x: Value, shape: Any) -> Value:
    wanted = broadcast(x.shape, to.whole_numbers(shape, "sizes"))
    return replace(x, shape=wanted) if math.prod(wanted) == math.prod(x.shape) else refuse("it repeats values")


def tile(to: Step, x: Value, repeats: Any) -> Value:
    return x if set(to.whole_numbers(repeats, "repeats")) <= {1} else refuse("it repeats values")
