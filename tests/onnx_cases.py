"""Random ONNX models, node by node: operators with any attributes they may have in an opset, right or wrong.

A node is kept if onnxruntime runs it with one input. What it makes of more inputs, and whether this package reads it,
is for the tests to see.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.printer
from hypothesis import strategies as st
from onnx import TensorProto

from onnx_support import KINDS, model, node, session

OPSETS = range(7, 27)  # the newest that onnxruntime takes, for now
MOST = 1200  # numbers in a value


class Case:
    """A model in the making: `shape` is that of its last value, `at`, with one input."""

    def __init__(self, draw: Any, opset: int, shape: Sequence[int | str], dtype: Any) -> None:
        self.draw, self.opset, self.dtype = draw, opset, dtype
        self.input = tuple(shape)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self.at, self.shape = "x", tuple(1 if isinstance(n, str) else n for n in shape)
        self.earlier: list[tuple[str, tuple[int, ...]]] = [("x", self.shape)]
        self.end = ""
        self._count = 0

    def __repr__(self) -> str:
        """The whole model, constants by their values or shapes, for whoever has to find out what went wrong."""
        nodes = "\n  ".join(onnx.printer.to_text(n) for n in self.nodes)
        held = {k: v.tolist() if v.dtype.kind == "i" or v.size < 3 else v.shape for k, v in self.constants.items()}
        return f"Case(opset {self.opset}, {self.dtype.__name__}, x: {self.input}\n  {nodes}\n  {held}, {self.at})"

    # --- choices

    def integer(self, low: int, high: int) -> int:
        return int(self.draw(st.integers(low, high)))

    def choice(self, things: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(things))

    def flip(self) -> bool:
        return bool(self.draw(st.booleans()))

    def real(self, low: float = -2.0, high: float = 2.0) -> float:
        return low + (high - low) * self.integer(0, 64) / 64

    def numbers(self, *shape: int) -> np.ndarray:
        """Random numbers; none is small, so that they may be divided by."""
        drawn = np.random.default_rng(self.integer(0, 99)).standard_normal(shape)
        return np.asarray(drawn + np.copysign(0.1, drawn), self.dtype)

    def shuffled(self, things: Sequence[int]) -> list[int]:
        return [int(i) for i in self.draw(st.permutations(things))]

    def shuffled_names(self, names: Sequence[str]) -> list[str]:
        return [str(n) for n in self.draw(st.permutations(list(names)))]

    # --- building

    def constant(self, array: Any) -> str:
        self._count += 1
        name = f"c{self._count}"
        self.constants[name] = np.asarray(array)
        return name

    def whole(self, *values: int) -> str:
        return self.constant(np.array(values, dtype=np.int64))

    def fresh(self) -> str:
        self._count += 1
        return f"v{self._count}"

    def node(self, kind: str, inputs: Sequence[str], outputs: int = 1, **attributes: Any) -> list[str]:
        names = [self.fresh() for _ in range(outputs)]
        attributes = {k: v for k, v in attributes.items() if v != []}
        self.nodes.append(node(kind, " ".join(n or "-" for n in inputs), " ".join(names), **attributes))
        return names

    def axis(self, beyond: int = 0) -> int:
        """Any axis, counted from either end."""
        rank = len(self.shape) + beyond
        return self.integer(-rank, max(rank - 1, -rank)) if rank else 0

    def proto(self, output: str) -> onnx.ModelProto:
        kind = KINDS[self.dtype]
        found = model(self.nodes, self.input, self.constants, self.opset, kind=kind)
        del found.graph.output[:]
        found.graph.output.add().name = output
        return found

    def step(self, build: Callable[[Case], str]) -> bool:
        """Adds what `build` makes, unless onnxruntime does not run it."""
        kept, constants = len(self.nodes), dict(self.constants)
        at = build(self)
        try:
            x = np.ones([1 if isinstance(n, str) else n for n in self.input], self.dtype)
            (y,) = session(self.proto(at)).run(None, {"x": x})
            fits = 0 < y.size <= MOST and y.dtype.kind in "fi" and y.ndim <= 6
        except Exception:
            fits = False
        if fits:
            self.at, self.shape = at, tuple(y.shape)
            self.earlier.append((self.at, self.shape))
        else:
            del self.nodes[kept:]
            self.constants = constants
        return fits


# --- operators


def windows(c: Case, kernel: Sequence[int], dilated: bool) -> dict[str, Any]:
    dims = len(kernel)
    a: dict[str, Any] = {}
    if c.flip():
        a["strides"] = [c.integer(1, 3) for _ in range(dims)]
    if dilated and c.integer(0, 2) == 0:
        a["dilations"] = [c.integer(1, 2) for _ in range(dims)]
    padding = c.choice(["none", "pads", "pads", "SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"])
    if padding == "pads":
        a["pads"] = [c.integer(0, 2) for _ in range(2 * dims)]
    elif padding != "none":
        a["auto_pad"] = padding
    return a


def conv(c: Case) -> str:
    channels, dims = c.shape[1] if len(c.shape) > 2 else 1, max(len(c.shape) - 2, 1)
    kernel = [c.integer(1, 3) for _ in range(dims)]
    groups = c.choice([g for g in range(1, channels + 1) if channels % g == 0])
    inputs = [c.at, c.constant(c.numbers(groups * c.integer(1, 2), channels // groups, *kernel))]
    if c.flip():
        inputs.append(c.constant(c.numbers(c.constants[inputs[1]].shape[0])))
    a = windows(c, kernel, dilated=True)
    if groups > 1:
        a["group"] = groups
    if c.flip():
        a["kernel_shape"] = kernel
    return c.node("Conv", inputs, **a)[0]


def pool(c: Case) -> str:
    kind = c.choice(["MaxPool", "AveragePool", "MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool"])
    if kind.startswith("Global"):
        return c.node(kind, [c.at])[0]
    kernel = [c.integer(1, 3) for _ in range(max(len(c.shape) - 2, 1))]
    a = windows(c, kernel, dilated=c.opset >= (10 if kind == "MaxPool" else 19))
    if c.opset >= 10 and c.flip():
        a["ceil_mode"] = 1
    if kind == "AveragePool" and c.flip():
        a["count_include_pad"] = 1
    return c.node(kind, [c.at], kernel_shape=kernel, **a)[0]


def gemm(c: Case) -> str:
    turn = [c.integer(0, 1), c.integer(0, 1)]
    rows, inside = (c.shape * 2)[:2][:: -1 if turn[0] else 1] if len(c.shape) == 2 else (1, 1)
    columns = c.integer(1, 4)
    weight = c.constant(c.numbers(*((columns, inside) if turn[1] else (inside, columns))))
    inputs, a = [c.at, weight], {"transA": turn[0], "transB": turn[1]}
    if len(c.shape) == 2 and c.integer(0, 4) == 0:  # the constant on the left
        inside = c.shape[1] if turn[1] else c.shape[0]
        left = c.numbers(*((inside, columns) if turn[0] else (columns, inside)))
        inputs, rows, columns = [c.constant(left), c.at], columns, c.shape[0] if turn[1] else c.shape[1]
    if c.opset < 11 or c.flip():
        shape = c.choice([(columns,), (1, columns), (1,), (rows, 1), (rows, columns), ()])
        inputs.append(c.constant(c.numbers(*shape)))
    a.update({name: c.choice([0.0, 1.0, -0.5, 0.3]) for name in ("alpha", "beta") if c.flip()})
    return c.node("Gemm", inputs, **a)[0]


def matmul(c: Case) -> str:
    if c.flip():
        shape = c.choice([(*c.shape[-1:], c.integer(1, 4)), c.shape[-1:], (1, *c.shape[-1:], 2)])
        return c.node("MatMul", [c.at, c.constant(c.numbers(*shape))])[0]
    inside = (c.shape[-2:] or (1,))[:1]
    shape = c.choice([(c.integer(1, 4), *inside), inside, (1, 2, *inside)])
    return c.node("MatMul", [c.constant(c.numbers(*shape)), c.at])[0]


def batch_norm(c: Case) -> str:
    n = c.shape[1] if len(c.shape) > 1 else 1
    parts = [c.constant(c.numbers(n)) for _ in range(3)] + [c.constant(c.numbers(n) ** 2)]
    a: dict[str, Any] = {}
    if c.flip():
        a["epsilon"] = c.choice([1e-5, 1e-3, 0.5])
    if c.flip():
        a["momentum"] = 0.5
    if c.opset < 9 and c.flip():
        a["spatial"] = c.integer(0, 1)
    return c.node("BatchNormalization", [c.at, *parts], **a)[0]


def reshape(c: Case) -> str:
    size, target = math.prod(c.shape), []
    for _ in range(c.integer(0, 3)):
        target.append(c.choice([d for d in range(1, size + 1) if size % d == 0]))
        size //= target[-1]
    target.insert(c.integer(0, len(target)), c.choice([size, -1, -1]))
    if c.flip() and len(c.shape) > 1:
        target = [0, *target] if c.flip() else [c.shape[0], -1]
    a = {"allowzero": 1} if c.opset >= 14 and c.integer(0, 9) == 0 else {}
    return c.node("Reshape", [c.at, c.whole(*target)], **a)[0]


def measured(c: Case) -> str:
    """A new shape out of the old one, as exporters write it."""
    (shape,) = c.node("Shape", [c.at], **({"start": c.integer(0, 1)} if c.opset >= 15 and c.flip() else {}))
    match c.integer(0, 4):
        case 0:
            (first,) = c.node("Gather", [shape, c.whole(c.integer(0, 1))], axis=0)
            (target,) = c.node("Concat", [*c.shuffled_names([first, c.whole(-1)])], axis=0)
            return c.node("Reshape", [c.at, target])[0]
        case 1:
            return c.node("Reshape", [c.at, shape])[0]
        case 2:
            (filled,) = c.node("ConstantOfShape", [shape], value=onnx.numpy_helper.from_array(c.numbers(1)))
            return c.node(c.choice(["Add", "Mul"]), [c.at, filled])[0]
        case 3:
            (size,) = c.node("Size", [c.at])
            (real,) = c.node("Cast", [size], to=KINDS[c.dtype])
            return c.node(c.choice(["Add", "Mul", "Div"]), [c.at, real])[0]
        case _:
            (real,) = c.node("Cast", [shape], to=KINDS[c.dtype])
            (one,) = c.node("Gather", [real, c.whole(c.axis())], axis=0)
            return c.node(c.choice(["Add", "Mul", "Div"]), [c.at, one])[0]


def flatten(c: Case) -> str:
    a = {"axis": c.axis(1)} if c.flip() else {}
    return c.node("Flatten", [c.at], **a)[0]


def given_axes(c: Case, kind: str, axes: list[int] | None, since: int, **a: Any) -> str:
    """Axes as an attribute in old opsets, as an input in new ones."""
    if axes is None:
        return c.node(kind, [c.at], **a)[0]
    if c.opset >= since:
        return c.node(kind, [c.at, c.whole(*axes)], **a)[0]
    return c.node(kind, [c.at], axes=axes, **a)[0]


def some_axes(c: Case, beyond: int = 0) -> list[int]:
    rank = len(c.shape) + beyond
    chosen = c.shuffled(range(rank))[: c.integer(1, max(rank, 1))]
    return [d - rank if c.flip() else d for d in chosen]


def squeeze(c: Case) -> str:
    ones = [d for d, n in enumerate(c.shape) if n == 1]
    axes = c.shuffled(ones)[: c.integer(1, len(ones))] if ones and c.flip() else None
    return given_axes(c, "Squeeze", axes, 13)


def unsqueeze(c: Case) -> str:
    extra = c.integer(1, 2)
    rank = len(c.shape) + extra
    axes = c.shuffled(range(rank))[:extra]
    return given_axes(c, "Unsqueeze", [d - rank if c.opset >= 11 and c.flip() else d for d in axes], 13)


def transpose(c: Case) -> str:
    a = {"perm": c.shuffled(range(len(c.shape)))} if c.flip() else {}
    return c.node("Transpose", [c.at], **a)[0]


def sliced(c: Case) -> str:
    axes = some_axes(c)
    starts, ends = ([c.integer(-6, 6) for _ in axes] for _ in range(2))
    ends = [c.choice([e, 2**31, 100, -100]) for e in ends]
    if c.opset < 10:
        return c.node("Slice", [c.at], starts=starts, ends=ends, **({"axes": axes} if c.flip() else {}))[0]
    inputs = [c.at, c.whole(*starts), c.whole(*ends)]
    if c.flip():
        inputs.append(c.whole(*axes))
        if c.flip():
            inputs.append(c.whole(*(c.choice([1, 2, 3, -1, -2]) for _ in axes)))
    return c.node("Slice", inputs)[0]


def gather(c: Case) -> str:
    axis = c.axis()
    n = c.shape[axis] if c.shape else 1
    shape = c.choice([(), (1,), (3,), (2, 2)])
    indices = np.reshape([c.integer(-n, n - 1) for _ in range(math.prod(shape))], shape).astype(np.int64)
    a = {"axis": axis} if axis or c.flip() else {}
    return c.node("Gather", [c.at, c.constant(indices)], **a)[0]


def split(c: Case) -> str:
    axis = c.axis()
    n = c.shape[axis] if c.shape else 1
    count = c.integer(1, min(3, n))
    a: dict[str, Any] = {"axis": axis}
    inputs = [c.at]
    if c.flip() or (c.opset >= 18 and n % count):
        first = c.integer(1, n - count + 1)
        sizes = [first, *[1] * (count - 2), n - first - max(count - 2, 0)][:count] if count > 1 else [n]
        if c.opset < 13:
            a["split"] = sizes
        else:
            inputs.append(c.whole(*sizes))
    elif c.opset >= 18:
        a["num_outputs"] = count
    names = c.node("Split", inputs, count, **a)
    if c.flip():
        return c.node("Concat", c.shuffled_names(names), axis=axis)[0]
    return str(c.choice(names))


def concat(c: Case) -> str:
    axis = c.axis()
    others = [name for name, shape in c.earlier if shape == c.shape]
    parts = [c.at, c.choice([*others, c.constant(c.numbers(*c.shape))])]
    if c.flip():
        parts.append(c.constant(c.numbers(*c.shape)))
    return c.node("Concat", c.shuffled_names(parts), axis=axis)[0]


def pad(c: Case) -> str:
    modes = ["constant"] * 4 + ["reflect", "edge"] + (["wrap"] if c.opset >= 19 else [])
    a: dict[str, Any] = {"mode": mode} if (mode := c.choice(modes)) != "constant" or c.flip() else {}
    rank = len(c.shape)
    axes = some_axes(c) if c.opset >= 18 and c.flip() else None
    width = rank if axes is None else len(axes)
    pads = [c.choice([0, 0, 1, 2, -1]) for _ in range(2 * width)]
    if c.opset < 11:
        return c.node("Pad", [c.at], pads=pads, **a, **({"value": c.real()} if c.flip() else {}))[0]
    inputs = [c.at, c.whole(*pads)]
    if c.flip() or axes is not None:
        inputs.append(c.constant(c.numbers()) if c.flip() else "")
    if axes is not None:
        inputs.append(c.whole(*axes))
    while not inputs[-1]:
        inputs.pop()
    return c.node("Pad", inputs, **a)[0]


def reduced(c: Case) -> str:
    kind = c.choice(["ReduceMean", "ReduceSum"])
    a: dict[str, Any] = {"keepdims": c.integer(0, 1)} if c.flip() else {}
    since = 18 if kind == "ReduceMean" else 13
    if c.opset >= since and c.integer(0, 4) == 0:
        a["noop_with_empty_axes"] = c.integer(0, 1)
    return given_axes(c, kind, some_axes(c) if c.integer(0, 3) else None, since, **a)


def repeated(c: Case) -> str:
    if c.flip() and c.opset >= 8:
        shape = [c.choice([1, n]) for n in c.shape]
        return c.node("Expand", [c.at, c.whole(*([1] * c.integer(0, 1)), *shape)])[0]
    return c.node("Tile", [c.at, c.whole(*(c.choice([1, 1, 1, 2]) for _ in c.shape))])[0]


def clip(c: Case) -> str:
    low, high = sorted([c.real(), c.real() + 0.5])
    given = [c.flip(), c.flip()]
    if c.opset < 11:
        return c.node("Clip", [c.at], **{k: v for k, v, g in zip(("min", "max"), (low, high), given) if g})[0]
    inputs = [c.at, *(c.constant(c.dtype(v)) if g else "" for v, g in zip((low, high), given))]
    while not inputs[-1]:
        inputs.pop()
    return c.node("Clip", inputs)[0]


ACTIVATIONS: dict[str, tuple[int, tuple[str, ...]]] = {
    "Relu": (7, ()), "LeakyRelu": (7, ("alpha",)), "Elu": (7, ("alpha",)), "Selu": (7, ("alpha", "gamma")),
    "Celu": (12, ("alpha",)), "HardSigmoid": (7, ("alpha", "beta")), "Sigmoid": (7, ()), "Tanh": (7, ()),
    "Atan": (7, ()), "Softplus": (7, ()), "Abs": (7, ()), "Neg": (7, ()), "Gelu": (20, ()), "Swish": (24, ("alpha",)),
    "Softsign": (7, ()), "ThresholdedRelu": (10, ("alpha",)), "HardSwish": (14, ()), "Mish": (18, ()), "Exp": (7, ()),
}  # fmt: skip


def activation(c: Case) -> str:
    kind = c.choice([k for k, (since, _) in ACTIVATIONS.items() if since <= c.opset])
    a: dict[str, Any] = {name: c.real(-0.5, 2.5) for name in ACTIVATIONS[kind][1] if c.flip()}
    if kind == "Gelu" and c.flip():
        a["approximate"] = c.choice(["none", "tanh"])
    return c.node(kind, [c.at], **a)[0]


def broadcast_shape(c: Case, wider: bool = True) -> tuple[int, ...]:
    shape = tuple(c.choice([1, n]) for n in c.shape)[c.integer(0, len(c.shape)) :]
    return (*[c.integer(1, 2)] * c.integer(0, 1), *shape) if wider and c.integer(0, 4) == 0 else shape


def prelu(c: Case) -> str:
    return c.node("PRelu", [c.at, c.constant(c.numbers(*broadcast_shape(c, wider=False)))])[0]


def arithmetic(c: Case) -> str:
    kind = c.choice(["Add", "Sub", "Mul", "Div", "Add", "Sub", "Sum", "Max", "Min"])
    others = [name for name, shape in c.earlier if shape[-1:] == c.shape[-1:]]
    shape = broadcast_shape(c) if kind not in ("Max", "Min") or c.flip() else ()
    other = c.choice([c.constant(c.numbers(*shape)), c.constant(c.numbers(*shape)), *others[-1:]])
    return c.node(kind, c.shuffled_names([c.at, other]))[0]


def cast(c: Case) -> str:
    return c.node("Cast", [c.at], to=c.choice([TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16]))[0]


def idle(c: Case) -> str:
    kind = c.choice(["Identity", "Dropout"])
    if kind == "Dropout" and c.opset < 12 and c.flip():
        return c.node(kind, [c.at], ratio=0.25)[0]
    return c.node(kind, [c.at])[0]


BUILDERS: list[Callable[[Case], str]] = [
    conv, conv, pool, pool, gemm, matmul, batch_norm, reshape, reshape, measured, flatten, squeeze, unsqueeze,
    transpose, sliced, sliced, gather, split, concat, pad, pad, reduced, repeated, clip, activation, activation, prelu,
    arithmetic, arithmetic, cast, idle,
]  # fmt: skip
IMAGES = {conv, pool}
ENDS = ("Softmax", "LogSoftmax", "ArgMax")


def end(kind: str) -> Callable[[Case], str]:
    def build(c: Case) -> str:
        a = {"axis": c.axis()} if c.flip() else {}
        if kind == "ArgMax" and c.flip():
            a["keepdims"] = 0
        return c.node(kind, [c.at], **a)[0]

    return build


@st.composite
def cases_of_onnx(draw: Any, builders: Sequence[Callable[[Case], str]] = tuple(BUILDERS), most: int = 4) -> Case:
    """A model of up to `most` nodes that onnxruntime runs with one input."""
    opset = draw(st.sampled_from(OPSETS))
    chosen = draw(st.lists(st.sampled_from(builders), min_size=1, max_size=most))
    inner = draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    if IMAGES & set(chosen):
        dims = draw(st.integers(1, 3))
        inner = [draw(st.integers(1, 4)), *(draw(st.integers(1, (9, 7, 4)[dims - 1])) for _ in range(dims))]
    lead = draw(st.sampled_from(["n", "n", "n", "n", 1, 1, 3, None]))
    shape = inner if lead is None else [lead, *inner]
    c = Case(draw, opset, shape, draw(st.sampled_from([np.float32] * 6 + [np.float64, np.float16])))
    for build in chosen:
        c.step(build)
    if draw(st.integers(0, 4)) == 0:
        kind = draw(st.sampled_from(ENDS))
        c.end = kind if c.step(end(kind)) else ""
    if not c.nodes:
        c.step(idle)
    return c
