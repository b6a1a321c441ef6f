"""Windows that slide over an image: ONNX's ways to pad them, and pooling in the graph's own terms.

ONNX pads each side by its own number, and max-pooling ignores what lies outside; the graph's operations pad both
sides alike. Everything is rewritten exactly: padding at the end only says how many windows there are.
"""

from __future__ import annotations

import math

import numpy as np

from elbowroom.errors import InputError
from elbowroom.network import operations as ops
from elbowroom.network.operations import Shape
from elbowroom.readers.onnx.file import checked_size
from elbowroom.readers.onnx.step import Step, Value, exact
from elbowroom.readers.reading import refuse

_WIDEST = 64  # positions that a maximum may run over an edge, where that takes a node for each


def spatial_axes(x: Value, dims: int | None = None) -> tuple[int, Shape]:
    """Channels and image size of a value of shape (1, channels, *size)."""
    dims = len(x.shape) - 2 if dims is None else dims
    if len(x.shape) != dims + 2:
        raise InputError(f"its weights are for {dims} spatial axes, and its input has the shape {x.shape}")
    if x.shape[0] != 1 or not 1 <= dims <= 3:
        refuse(f"its input has the shape {x.shape}; one image of 1 to 3 spatial axes is supported")
    return x.shape[1], x.shape[2:]


def window_pads(to: Step, spatial: Shape, kernel: Shape) -> tuple[Shape, Shape, Shape, Shape]:
    """Strides, dilations, and what is padded at the beginning and at the end of each axis."""
    dims = len(spatial)
    strides, dilations = to.integers("strides") or (1,) * dims, to.integers("dilations") or (1,) * dims
    pads, mode = to.integers("pads") or (0,) * (2 * dims), to.text("auto_pad", "NOTSET")
    sizes = (*kernel, *strides, *dilations)
    if len(sizes) != 3 * dims or len(pads) != 2 * dims or min(sizes) < 1 or min(pads) < 0:
        raise InputError(f"kernel {kernel}, strides {strides}, dilations {dilations}, pads {pads} fit no image")
    if mode in ("SAME_UPPER", "SAME_LOWER") and not any(pads):
        total = [(-(-n // s) - 1) * s + d * (k - 1) + 1 - n for n, k, s, d in zip(spatial, kernel, strides, dilations)]
        if min(total) < 0:
            refuse(
                f"auto_pad {mode} where the kernel {kernel} is smaller than the strides {strides} and padding would be "
                "negative, which runtimes do differently; export the model with explicit pads"
            )
        less, more = tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)
        begins, ends = (less, more) if mode == "SAME_UPPER" else (more, less)
    elif mode in ("NOTSET", "VALID", "") and (mode != "VALID" or not any(pads)):
        begins, ends = pads[:dims], pads[dims:]
    else:
        raise InputError(f"auto_pad {mode!r} with pads {pads} has no meaning")
    return strides, dilations, begins, ends


def _windows(n: int, k: int, s: int, d: int, b: int, e: int, ceil: bool) -> int:
    """How many windows an axis has: by its size, the kernel, stride and dilation, padding before and after it."""
    room = n + b + e - d * (k - 1) - 1
    if room < 0:
        raise InputError(f"a window of {d * (k - 1) + 1} does not fit an axis of {n} padded by {b} and {e}")
    if not ceil:
        return room // s + 1
    count = -(-room // s) + 1
    return count - 1 if (count - 1) * s >= n + b else count  # none starts in the padding at the end


class _Windows:
    """The windows of a pooling operator along each axis: which positions they cover, and how many there are."""

    def __init__(self, to: Step, x: Value) -> None:
        self.channels, self.spatial = spatial_axes(x)
        self.kernel = to.integers("kernel_shape") or ()
        self.strides, self.dilations, self.begins, self.ends = window_pads(to, self.spatial, self.kernel)
        self.ceil = bool(to.integer("ceil_mode", 0))
        mode = to.text("auto_pad", "NOTSET")
        if self.ceil and mode not in ("NOTSET", ""):
            refuse("ceil_mode together with auto_pad")
        if max(self.dilations) > 1 and mode in ("SAME_UPPER", "SAME_LOWER"):
            refuse(f"auto_pad {mode} with dilations, which runtimes do differently; export it with explicit pads")
        if any(p >= k for p, k in zip(self.begins + self.ends, self.kernel * 2)):
            refuse(
                f"its padding, {self.begins} and {self.ends}, is as wide as its window {self.kernel}: a window may lie "
                "in the padding alone, and runtimes disagree on that"
            )
        self.counts = tuple(_windows(n, k, s, d, b, e, self.ceil) for n, k, s, d, b, e in zip(*self.axes))
        checked_size((self.channels, *self.counts))

    @property
    def axes(self) -> tuple[Shape, ...]:
        return self.spatial, self.kernel, self.strides, self.dilations, self.begins, self.ends

    @property
    def overhang(self) -> Shape:
        """How far the last window runs over the end of the image, per axis."""
        return tuple(
            max((o - 1) * s - b + d * (k - 1) + 1 - n, 0) for o, n, k, s, d, b, _ in zip(self.counts, *self.axes)
        )

    def covered(self, padded: bool) -> np.ndarray:
        """How many positions of the image, or also of its padding, each window covers; what lies beyond has no say."""
        total = np.ones((), dtype=np.int64)
        for o, n, k, s, d, b, e in zip(self.counts, *self.axes):
            low, high = (-b, n + e) if padded else (0, n)
            first = np.arange(o) * s - b
            before = np.maximum(-((first - low) // d), 0)  # positions of the window left of `low`, rounded up
            until = np.minimum((high - 1 - first) // d + 1, k)
            total = total[..., None] * np.maximum(until - before, 0)
        if not total.all():
            refuse("a window lies in the padding alone")
        return total

    @property
    def surround(self) -> tuple[int, ...]:
        """Padding that makes room for every window, in the order of `Pad`."""
        return tuple(n for b, e in reversed(list(zip(self.begins, self.overhang))) for n in (b, e))


def max_pool(to: Step, x: Value) -> Value:
    to.ignore("storage_order")
    w = _Windows(to, x)
    w.covered(padded=False)
    number = to.view(x, (w.channels, *w.spatial))
    if w.begins == w.ends and all(2 * b <= k for b, k in zip(w.begins, w.kernel)):
        op = ops.MaxPool(w.kernel, w.strides, w.begins, w.dilations, w.ceil)
        if op.output_shape((w.channels, *w.spatial))[1:] == w.counts:
            return Value(to.add(op, number), (1, w.channels, *w.counts))
    if max(w.dilations) > 1 or max(w.begins + w.overhang) > _WIDEST:
        refuse(f"its padding, from {w.begins} to {w.overhang}, differs from side to side or is too wide")
    # A window that runs over an edge has what is at the edge in it: more of that does not change the largest.
    for axis, (before, after) in enumerate(zip(w.begins, w.overhang), 1):
        n = to.build.shape(number)[axis]
        parts = [number]
        if before:
            parts = [to.add(ops.Slice(axis, 0, 1), number)] * before + parts
        if after:
            parts = parts + [to.add(ops.Slice(axis, n - 1, n), number)] * after
        number = to.add(ops.Concat(axis), *parts) if len(parts) > 1 else number
    return _checked(to, w, to.add(ops.MaxPool(w.kernel, w.strides), number))


def average_pool(to: Step, x: Value) -> Value:
    inclusive = bool(to.integer("count_include_pad", 0))
    w = _Windows(to, x)
    if max(w.dilations) > 1:
        refuse(f"dilations {w.dilations}; only 1 is supported")
    counts = w.covered(inclusive)
    number = to.view(x, (w.channels, *w.spatial))
    if w.begins == w.ends and all(2 * b <= k for b, k in zip(w.begins, w.kernel)):
        op = ops.AvgPool(w.kernel, w.strides, w.begins, w.ceil, inclusive)
        if op.output_shape((w.channels, *w.spatial))[1:] == w.counts:
            return Value(to.add(op, number), (1, w.channels, *w.counts))
    # Zeros around the image, plain averages, times the window's size, over the number meant.
    number = to.add(ops.AvgPool(w.kernel, w.strides), to.add(ops.Pad(w.surround), number))
    size = math.prod(w.kernel)
    if (counts != size).any():
        number = to.add(ops.Scale(to.parameter(exact(size))), number)
        number = to.add(ops.Divide(to.parameter(exact(counts))), number)
    return _checked(to, w, number)


def _checked(to: Step, w: _Windows, number: int) -> Value:
    if to.build.shape(number) != (w.channels, *w.counts):
        raise InputError(f"windows {w.counts} were expected, and there are {to.build.shape(number)[1:]}")
    return Value(number, (1, w.channels, *w.counts))


def global_average_pool(to: Step, x: Value) -> Value:
    channels, spatial = spatial_axes(x)
    number = to.add(ops.Mean(tuple(range(1, len(x.shape) - 1))), to.view(x, (channels, *spatial)))
    return Value(number, (1, channels, *[1] * len(spatial)))


def global_max_pool(to: Step, x: Value) -> Value:
    channels, spatial = spatial_axes(x)
    number = to.add(ops.MaxPool(spatial, spatial), to.view(x, (channels, *spatial)))
    return Value(number, (1, channels, *[1] * len(spatial)))
