"""Shared by the tests: random networks, random sets of inputs, points in them, and what rounding may cost."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor

from elbowroom.network import operations as ops
from elbowroom.network.graph import Graph, Network
from elbowroom.search.bounds.maps import MAPS
from elbowroom.search.bounds.relaxations import TABLE
from elbowroom.search.regions.input_set import InputSet

FULL = os.environ.get("ELBOWROOM_CASES") == "full"
METHODS = ("simple", "quadratic", "combined", "adaptive", "fast")
ROUNDOFF = {torch.float32: 2.0**-24, torch.float64: 2.0**-53}

ACTIVATIONS: dict[str, ops.Activation] = {
    "relu": ops.ReLU(),
    "leaky": ops.LeakyReLU(0.1),
    "steep leaky": ops.LeakyReLU(1.5),
    "folded": ops.LeakyReLU(-0.2),
    "hardtanh": ops.Clip(),
    "relu6": ops.Clip(0.0, 6.0),
    "half clip": ops.Clip(-math.inf, 0.5),
    "sigmoid": ops.Sigmoid(),
    "tanh": ops.Tanh(),
    "arctan": ops.Arctan(),
    "elu": ops.ELU(),
    "steep elu": ops.ELU(2.0),
    "softplus": ops.Softplus(),
    "sharp softplus": ops.Softplus(3.0),
    "silu": ops.SiLU(),
    "gelu": ops.GELU(),
    "gelu tanh": ops.GELU(tanh=True),
}


def cases(share: float = 1.0) -> settings:
    """Hypothesis settings with `share` times the profile's number of cases."""
    return settings(max_examples=max(1, round(settings.default.max_examples * share)))


# ---------------------------------------------------------------------------------------------------------------
# Networks


def mlp(
    rng: np.random.Generator,
    sizes: list[int],
    activation: ops.Activation | None = None,
    gain: float = 1.5,
    decision: str = "max",
) -> Network:
    """A fully connected network with random weights and biases in float64."""
    layers: list[ops.Operation] = []
    for n, m in pairwise(sizes):
        layers.append(ops.Linear(normal(rng, m, n) * (gain / math.sqrt(n)), 0.3 * normal(rng, m)))
        layers.append(activation or ops.ReLU())
    return Network.chain((sizes[0],), layers[:-1], decision)


def normal(rng: np.random.Generator, *shape: int) -> Tensor:
    """Normal numbers that float32 can hold, as float64: a cast to float32 changes nothing."""
    return torch.from_numpy(rng.standard_normal(shape).astype(np.float32)).double()


WEIGHTS = ("plain", "plain", "plain", "plain", "sparse", "zero", "dead", "huge", "tiny", "uneven")
SHAPES = ((1,), (3,), (6,), (1, 7), (2, 6), (1, 5, 5), (2, 4, 5))
BLOCKS = (
    "linear", "linear", "conv", "conv", "batch norm", "average pool", "max pool", "max pool", "mean", "slice",
    "transpose", "pad", "scale", "divide", "shift", "flatten", "residual", "projected residual", "dense", "difference",
    "twice", "broadcast",
)  # fmt: skip


class Builder:
    """Builds a random graph block by block; a block that does not fit the current shape becomes one that does."""

    def __init__(self, rng: np.random.Generator, shape: tuple[int, ...], weights: str) -> None:
        self.rng = rng
        self.graph = Graph(shape)
        self.at = self.graph.input
        self.weights = weights

    @property
    def shape(self) -> tuple[int, ...]:
        return self.graph.nodes[self.at].shape

    def add(self, op: ops.Operation, *inputs: int) -> int:
        self.at = self.graph.add(op, *(inputs or (self.at,)))
        return self.at

    def integer(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def weight(self, *shape: int) -> Tensor:
        w = normal(self.rng, *shape) * (1.5 / math.sqrt(math.prod(shape[1:])))
        match self.weights:
            case "sparse":
                w = w * torch.from_numpy(self.rng.random(shape) < 0.4)
            case "zero":
                w = w * (self.rng.random() < 0.5)
            case "huge":
                w = w * 1e6
            case "tiny":
                w = w * 1e-6
            case "uneven":
                w = w * torch.from_numpy(10.0 ** self.rng.uniform(-6, 3, shape))
        return w.float().double()

    def bias(self, n: int) -> Tensor | None:
        if self.rng.random() < 0.2:
            return None
        return normal(self.rng, n) * 0.5 - (20.0 if self.weights == "dead" and self.rng.random() < 0.5 else 0.0)

    def block(self, kind: str) -> None:
        getattr(self, kind.replace(" ", "_"))()

    def activation(self, name: str) -> None:
        op = ACTIVATIONS[name]
        if name == "leaky" and self.rng.random() < 0.5:  # PReLU
            op = ops.LeakyReLU(normal(self.rng, self.shape[0], *[1] * (len(self.shape) - 1)))
        self.add(op)

    # --- affine blocks

    def linear(self, outputs: int | None = None) -> None:
        n = self.shape[-1]
        m = outputs or self.integer(1, 6)
        self.add(ops.Linear(self.weight(m, n), self.bias(m)))

    def conv(self) -> None:
        if len(self.shape) < 2:
            self.linear()
            return
        channels, *spatial = self.shape
        groups = 2 if channels % 2 == 0 and self.rng.random() < 0.4 else 1
        kernel = [self.integer(1, min(3, n)) for n in spatial]
        dilation = tuple(self.integer(1, 2) if 2 * (k - 1) < n else 1 for k, n in zip(kernel, spatial))
        padding = tuple(self.integer(0, 1) for _ in spatial)
        stride = tuple(self.integer(1, 3) for _ in spatial)
        weight = self.weight(groups * self.integer(1, 2), channels // groups, *kernel)
        self.add(ops.Conv(weight, self.bias(weight.shape[0]), stride, padding, dilation, groups))

    def batch_norm(self) -> None:
        c = self.shape[0]
        var = normal(self.rng, c) ** 2
        affine = self.rng.random() < 0.7
        weight, bias = (normal(self.rng, c), normal(self.rng, c)) if affine else (None, None)
        self.add(ops.BatchNorm(normal(self.rng, c), var.float().double(), weight, bias))

    def average_pool(self) -> None:
        if len(self.shape) < 2:
            self.scale()
            return
        kernel = tuple(self.integer(1, min(3, n)) for n in self.shape[1:])
        padding = tuple(self.integer(0, k // 2) for k in kernel)
        stride = tuple(self.integer(1, 2) for _ in kernel)
        self.add(ops.AvgPool(kernel, stride, padding, self.rng.random() < 0.3, self.rng.random() < 0.5))

    def mean(self) -> None:
        if len(self.shape) < 2:
            self.shift()
            return
        self.add(ops.Mean((len(self.shape) - 1,), keepdim=True))

    def slice(self) -> None:
        axis = self.integer(0, len(self.shape) - 1)
        n = self.shape[axis]
        start = self.integer(0, n - 1)
        self.add(ops.Slice(axis, start, self.integer(start + 1, n), self.integer(1, 2)))

    def transpose(self) -> None:
        self.add(ops.Transpose(tuple(int(i) for i in self.rng.permutation(len(self.shape)))))

    def pad(self) -> None:
        self.add(ops.Pad((self.integer(0, 1), self.integer(0, 2)), float(self.integer(-1, 1))))

    def scale(self) -> None:
        self.add(ops.Scale(self.weight(1, *self.shape)[0]))

    def divide(self) -> None:
        self.add(ops.Divide((normal(self.rng, *self.shape).abs() + 0.25) * (-1) ** self.integer(0, 1)))

    def shift(self) -> None:
        self.add(ops.Shift(normal(self.rng, *self.shape)))

    def flatten(self) -> None:
        self.add(ops.Reshape((-1,)))

    def broadcast(self) -> None:
        """Every coordinate twice, by adding a constant with one axis more than a slice of the input has entries."""
        self.add(ops.Reshape((*self.shape[:-1], self.shape[-1], 1)))
        self.add(ops.Shift(normal(self.rng, 2)))
        self.add(ops.Reshape((*self.shape[:-2], -1)))

    # --- blocks with several paths, and pooling

    def residual(self) -> None:
        """`x + W relu(V x + b)`, the paths of equal shape."""
        skip, n = self.at, self.shape[-1]
        self.linear()
        self.activation(self._any_activation())
        self.linear(n)
        self.add(ops.Add(), skip, self.at)

    def projected_residual(self) -> None:
        """Both paths have a layer of their own."""
        start, width = self.at, self.integer(1, 4)
        self.linear(width)
        left = self.at
        self.at = start
        self.linear()
        self.activation(self._any_activation())
        self.linear(width)
        self.add(ops.Add((1.0, -1.0)), left, self.at)

    def dense(self) -> None:
        skip = self.at
        self.linear()
        self.activation(self._any_activation())
        self.add(ops.Concat(-1), skip, self.at)

    def difference(self) -> None:
        """`sigma(x) - x` times numbers: what intervals lose and linear bounds keep."""
        skip = self.at
        self.activation(self._any_activation())
        self.add(ops.Add((1.0, -1.0)), self.at, skip)

    def twice(self) -> None:
        self.add(ops.Add((1.0, 0.5)), self.at, self.at)

    def max_pool(self) -> None:
        if len(self.shape) < 2:
            self.add(ops.Reshape((1, *self.shape)))
        kernel = tuple(self.integer(1, min(3, n)) for n in self.shape[1:])
        padding = tuple(self.integer(0, k // 2) for k in kernel)
        stride = tuple(self.integer(1, 2) for _ in kernel)
        dilation = tuple(
            2 if 2 * (k - 1) < n and self.rng.random() < 0.3 else 1 for k, n in zip(kernel, self.shape[1:])
        )
        self.add(ops.MaxPool(kernel, stride, padding, dilation, self.rng.random() < 0.3))

    def _any_activation(self) -> str:
        return str(self.rng.choice(list(ACTIVATIONS)))

    def network(self, outputs: int | None) -> Network:
        """With a last linear layer to `outputs` numbers; None: the last block's own numbers."""
        self.flatten()
        if outputs is not None or self.shape[0] > 12:
            self.linear(outputs)
        return self.graph.network(self.at, decision=str(self.rng.choice(["max", "min"])))


@st.composite
def networks(draw: Callable, max_blocks: int = 4, weights: tuple[str, ...] = WEIGHTS) -> Network:
    """Random networks of every operation and activation: structure from hypothesis, numbers from a seed."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1), label="seed of the weights"))
    builder = Builder(rng, draw(st.sampled_from(SHAPES)), draw(st.sampled_from(weights)))
    activation = st.sampled_from([None, "relu", "relu", *ACTIVATIONS])
    for kind, name in draw(st.lists(st.tuples(st.sampled_from(BLOCKS), activation), min_size=1, max_size=max_blocks)):
        builder.block(kind)
        if name is not None:
            builder.activation(name)
    return builder.network(draw(st.sampled_from([1, 2, 3, 4, None])))


# ---------------------------------------------------------------------------------------------------------------
# Sets of inputs and points in them


@dataclass(frozen=True)
class Region:
    """An `InputSet` together with its points in float64: `place(v)` for v in the unit ball, `m x b x n`.

    A box given by its corners stands for exactly the numbers between them.
    """

    inputs: InputSet
    lower: Tensor | None = None
    upper: Tensor | None = None

    def place(self, v: Tensor) -> Tensor:
        """Points of the set, `m x b x n`, differentiable by `v`."""
        if self.lower is not None and self.upper is not None:
            low, high = (t.double().flatten(1) for t in (self.lower, self.upper))
            return torch.minimum(torch.maximum(low + (v + 1) / 2 * (high - low), low), high)
        s = self.inputs
        moved = v * s.radius.double().flatten(1)
        if s.basis is not None:
            moved = moved @ s.basis.double().T
        return s.center.double().flatten(1) + moved

    def unit_points(self, rng: np.random.Generator, count: int) -> Tensor:
        """Points of the unit ball, `m x b x n`: its centre, extreme points, the surface and the inside."""
        batch, n = self.inputs.center.flatten(1).shape
        raw = torch.from_numpy(rng.standard_normal((count, batch, n)))
        axes = torch.nn.functional.one_hot(torch.from_numpy(rng.integers(0, n, (count, batch))), n) * raw.sign()
        p = self.inputs.p
        if p == math.inf:
            surface = torch.from_numpy(rng.uniform(-1, 1, (count, batch, n)))
            extreme = raw.sign()
        else:
            surface = raw / raw.abs().pow(p).sum(-1, keepdim=True).pow(1 / p)
            extreme = axes.double()
        inside = surface * torch.from_numpy(rng.random((count, batch, 1)))
        return torch.cat([torch.zeros(1, batch, n, dtype=torch.float64), extreme, surface, inside])

    def step(self, v: Tensor, gradient: Tensor, length: float) -> Tensor:
        """A step of the given length uphill, staying in the unit ball."""
        p = self.inputs.p
        if p == math.inf:
            return (v + 2 * length * gradient.sign()).clamp(-1, 1)
        if p == 2:
            moved = v + 2 * length * gradient / gradient.norm(dim=-1, keepdim=True).clamp_min(1e-300)
            return moved / moved.norm(dim=-1, keepdim=True).clamp_min(1)
        best = gradient.abs().argmax(-1, keepdim=True)
        vertex = torch.zeros_like(v).scatter(-1, best, gradient.gather(-1, best).sign())
        return (1 - length) * v + length * vertex


KINDS = ("box", "asymmetric box", "ball", "cross", "oblique box", "oblique ball", "oblique cross")


def random_region(
    rng: np.random.Generator,
    shape: tuple[int, ...],
    kind: str,
    batch: int = 2,
    scale: float = 0.1,
    dtype: torch.dtype = torch.float64,
    frozen: float = 0.0,
) -> Region:
    """A random set of one kind; `frozen`: the share of coordinates that do not move."""
    center = normal(rng, batch, *shape)
    moving = torch.from_numpy(rng.random((batch, *shape)) >= frozen)
    extents = [torch.from_numpy(rng.uniform(0.1, 1, (batch, *shape))) * scale * moving for _ in range(2)]
    if kind == "asymmetric box":
        lower, upper = (center - extents[0]).to(dtype), (center + extents[1]).to(dtype)
        return Region(InputSet.box(lower, upper), lower, upper)
    p = {"box": math.inf, "ball": 2, "cross": 1}[kind.removeprefix("oblique ")]
    n = math.prod(shape)
    basis = torch.linalg.qr(torch.from_numpy(rng.standard_normal((n, n))))[0].to(dtype) if "oblique" in kind else None
    return Region(InputSet(center.to(dtype), extents[0].to(dtype), p, basis))


@st.composite
def regions(draw: Callable, shape: tuple[int, ...], dtype: torch.dtype) -> Region:
    """Random sets of all kinds, from tiny to large, also of no width."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1), label="seed of the set"))
    kind = draw(st.sampled_from(KINDS))
    scale = draw(st.sampled_from([0.0, 1e-6, 1e-4, 1e-2, 0.1, 0.3, 1.0, 10.0, 1e2]))
    frozen = draw(st.sampled_from([0.0, 0.0, 0.5]))
    return random_region(rng, shape, kind, draw(st.integers(1, 3)), scale, dtype, frozen)


def attack(net: Network, region: Region, start: Tensor, objective: Callable[[list[Tensor]], Tensor]) -> Tensor:
    """Points of the set, `m x b x n`, moved uphill in `objective(values)` (`m*b`), from `start` in the unit ball."""
    v = start
    for length in (1.0, 0.5, 0.25, 0.1, 0.05):
        v = v.detach().requires_grad_()
        values = net.values(region.place(v).reshape(-1, *net.input_shape))
        (gradient,) = torch.autograd.grad(objective(values).sum(), v)
        v = region.step(v.detach(), torch.nan_to_num(gradient), length)
    return region.place(v)


# ---------------------------------------------------------------------------------------------------------------
# What rounding may cost

STEEPEST = {ops.LeakyReLU: 1.5, ops.ELU: 2.0, ops.SiLU: 1.1, ops.GELU: 1.13}


def magnitudes(net: Network, lower: list[Tensor], upper: list[Tensor]) -> list[Tensor]:
    """Per node the sum of the magnitudes of all that was added up on the way there, `b x *shape`, in float64.

    Absolute inputs through absolute weights, with the bounds themselves wherever those are larger. An operation's
    rounding is at most a small number of units of roundoff of this, and so is what it makes of the rounding before it.
    """
    net = net.cast(torch.float64)
    found: list[Tensor] = []
    for i, (node, l, u) in enumerate(zip(net.nodes, lower, upper)):
        bound = torch.maximum(l.detach().abs(), u.detach().abs()).double()
        if i:
            bound = torch.maximum(bound, _magnitude(node.op, [found[j] for j in node.inputs]))
        found.append(bound)
    return found


def _magnitude(op: ops.Operation, inputs: list[Tensor]) -> Tensor:
    zeros = [torch.zeros_like(t) for t in inputs]
    if isinstance(op, ops.BatchNorm):
        shift = op.scale() * op.mean.abs() if op.bias is None else (op.scale() * op.mean).abs() + op.bias.abs()
        return MAPS[type(op)].absolute(op, inputs[0]) + shift.abs().reshape(-1, *[1] * (inputs[0].dim() - 2))
    if isinstance(op, ops.Affine):
        return MAPS[type(op)].absolute(op, *inputs) + op(*zeros).abs()
    if isinstance(op, ops.MaxPool):
        return op(inputs[0])
    slope = float(torch.as_tensor(op.slope).abs().max()) if isinstance(op, ops.LeakyReLU) else 0.0
    return max(STEEPEST.get(type(op), 1.0), slope) * inputs[0] + op(zeros[0]).abs()


def rounding(net: Network, lower: list[Tensor], upper: list[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """What a node's bounds may be wrong by: 8 units of roundoff of its magnitude for every operation on the way."""
    tiny = torch.finfo(dtype).tiny
    found = magnitudes(net, lower, upper)
    return [8 * (i + 2) * (ROUNDOFF[dtype] * m + tiny) for i, m in enumerate(found)]


class Lines(NamedTuple):
    """A relaxation with one term; `source`: see `Term`."""

    lower_slope: Tensor
    upper_slope: Tensor
    lower: Tensor
    upper: Tensor
    source: Tensor | None


def lines_of(op: ops.Operation, l: Tensor, u: Tensor, z: Tensor, parallel: bool) -> Lines:
    """The search's lines for an operation of one input on `[l, u]`, around `z` in it."""
    found = TABLE[type(op)].planes(op, [l], [u], [z], parallel)
    (term,) = found.terms
    return Lines(term.lower_slope, term.upper_slope, found.lower, found.upper, term.source)
