"""Networks in float32 as some machine might run them: what the deployed claim has to cover, and no more.

Every sum is added up in an order of its own, products are fused or not, batch norm and averages take one of their
formulas, and subnormal numbers may be flushed to zero wherever one is read or written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import onnxruntime
import torch
import torch.nn.functional as F
from torch import Tensor

from elbowroom.network import operations as ops
from elbowroom.network.graph import Network
from elbowroom.readers.onnx.write import to_onnx
from proof.exact import without_offset

TINY = torch.finfo(torch.float32).tiny  # the smallest number that is not subnormal
FLUSHING = ("kept", "read", "written", "both", "either")


@contextmanager
def flushing(on: bool = True) -> Iterator[None]:
    """The processor itself flushes subnormal numbers to zero, on this thread."""
    assert torch.set_flush_denormal(on), "this processor cannot flush"
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def in_onnxruntime(net: Network, x: Tensor, flush: bool = False) -> Tensor:
    """The outputs as onnxruntime computes them in float32, its graph optimisations off."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.set_denormal_as_zero", "1" if flush else "0")
    model = to_onnx(net, torch.float32).SerializeToString()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    try:
        return torch.from_numpy(session.run(None, {session.get_inputs()[0].name: x.numpy()})[0])
    finally:
        torch.set_flush_denormal(False)


class Machine:
    """Runs networks in float32; `flush`: where subnormal numbers become zero ("either": now and then)."""

    def __init__(self, rng: np.random.Generator, flush: str) -> None:
        self.rng, self.flush = rng, flush

    def values(self, net: Network, x: Tensor) -> list[Tensor]:
        """Every node's value, as stored; `net` and `x` in float32."""
        out = [x]
        for node in net.nodes[1:]:
            out.append(self._run(node.op, [out[j] for j in node.inputs]))
        return out

    # --- arithmetic

    def _often(self, share: float = 0.5) -> bool:
        return bool(self.rng.random() < share)

    def _flushed(self, t: Tensor, where: str) -> Tensor:
        if self.flush not in (where, "both", "either"):
            return t
        small = t.abs() < TINY
        if self.flush == "either":
            small = small & torch.as_tensor(self.rng.random(tuple(t.shape)) < 0.5)
        return torch.where(small, 0.0, t)

    def read(self, t: Tensor) -> Tensor:
        return self._flushed(t, "read")

    def written(self, t: Tensor) -> Tensor:
        return self._flushed(t, "written")

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        return self.written(self.read(a) + self.read(b))

    def mul(self, a: Tensor, b: Tensor) -> Tensor:
        return self.written(self.read(a) * self.read(b))

    def div(self, a: Tensor, b: Tensor) -> Tensor:
        """As a quotient, or by the reciprocal."""
        if self._often(0.3):
            return self.mul(a, self.written(1 / self.read(b)))
        return self.written(self.read(a) / self.read(b))

    def fma(self, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        """The product in float64 is exact; the sum is rounded there once more, by next to nothing."""
        exact = self.read(a).double() * self.read(b).double() + self.read(c).double()
        return self.written(exact.float())

    def mul_add(self, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return self.fma(a, b, c) if self._often() else self.add(self.mul(a, b), c)

    def total(self, terms: list[Tensor]) -> Tensor:
        """In a random order and in random pieces."""
        terms = [terms[int(k)] for k in self.rng.permutation(len(terms))]
        while len(terms) > 1:
            k = int(self.rng.integers(len(terms) - 1)) if self._often() else 0
            terms[k : k + 2] = [self.add(terms[k], terms[k + 1])]
        return terms[0]

    def dot(self, pairs: list[tuple[Tensor, Tensor]], more: list[Tensor]) -> Tensor:
        """The products and the numbers `more`, added up."""
        if more and pairs and self._often():  # a chain of fused operations
            result = more[0]
            for k in self.rng.permutation(len(pairs)):
                result = self.fma(*pairs[int(k)], result)
            return result
        return self.total([*more, *(self.mul(a, b) for a, b in pairs)])

    # --- operations

    def _run(self, op: ops.Operation, xs: list[Tensor]) -> Tensor:
        match op:
            case ops.Linear() | ops.Conv() | ops.AvgPool() | ops.Mean():
                return self._sum(op, xs[0])
            case ops.BatchNorm():
                return self._batch_norm(op, xs[0])
            case ops.Scale():
                return self.mul(xs[0], op.factor)
            case ops.Divide():
                return self.div(xs[0], op.divisor)
            case ops.Shift():
                return self.add(xs[0], op.offset)
            case ops.Add():
                rank = max(x.dim() for x in xs)
                xs = [x.reshape(len(x), *[1] * (rank - x.dim()), *x.shape[1:]) for x in xs]
                parts = [x if s == 1 else self.mul(x, torch.tensor(s)) for s, x in zip(op.signs, xs)]
                return self.total(list(parts)) if len(parts) > 1 else parts[0]
            case ops.LeakyReLU():
                return self._leaky(xs[0], torch.as_tensor(op.slope))
            case ops.ReLU() | ops.Clip() | ops.MaxPool():
                return self.written(op(self.read(xs[0])))
            case ops.Activation():
                kernels = [op, *KERNELS[type(op)](op)]
                return self.written(kernels[int(self.rng.integers(len(kernels)))](self.read(xs[0])))
        return op(*xs)

    def _sum(self, op: ops.Affine, x: Tensor) -> Tensor:
        """Each output from the inputs it depends on, by the exact coefficients of the operation's matrix."""
        shape = tuple(x.shape[1:])
        n = math.prod(shape)
        wide = op.map_tensors(lambda t: t.double())
        assert isinstance(wide, ops.Affine)
        matrix = without_offset(wide)(torch.eye(n, dtype=torch.float64).reshape(n, *shape))
        out = tuple(matrix.shape[1:])
        matrix = matrix.reshape(n, -1)
        most = int((matrix != 0).sum(0).max())
        index = (matrix != 0).long().argsort(dim=0, descending=True, stable=True)[:most]  # `most x outputs`
        weights = matrix.gather(0, index).float()
        values = [torch.where(w != 0, x.flatten(1)[:, k], 0.0) for k, w in zip(index, weights)]
        zeros = torch.zeros(len(x), matrix.shape[1])
        if not values:
            values, weights = [zeros], zeros[:1]
        if isinstance(op, ops.AvgPool | ops.Mean):
            count = (1 / matrix.amax(0)).round().float()
            form = int(self.rng.integers(3))
            if form == 0:
                found = self.div(self.total(values), count)
            elif form == 1:
                found = self.mul(self.total(values), 1 / count)
            else:
                found = self.total([self.mul(v, 1 / count) for v in values])
        else:
            bias = getattr(op, "bias", None)
            more = [] if bias is None else [op(torch.zeros(1, *shape)).flatten(1).expand(len(x), -1)]
            found = self.dot([(v, w.expand_as(v)) for v, w in zip(values, weights)], more)
        return found.reshape(len(x), *out)

    def _batch_norm(self, op: ops.BatchNorm, x: Tensor) -> Tensor:
        def channels(t: Tensor | None, other: float) -> Tensor:
            t = torch.full_like(op.mean, other) if t is None else t
            return t.reshape(1, -1, *[1] * (x.dim() - 2))

        mean, var = channels(op.mean, 0.0), channels(op.var, 0.0)
        weight, bias = channels(op.weight, 1.0), channels(op.bias, 0.0)
        std = self.written(self.read(self.add(var, torch.tensor(op.eps, dtype=torch.float32))).sqrt())
        inverse = self.div(torch.ones_like(std), std)
        factor = self.mul(weight, inverse) if self._often() else self.div(weight, std)
        moved = self.add(x, -mean)
        match int(self.rng.integers(6)):
            case 0:
                return self.mul_add(self.mul(moved, inverse), weight, bias)
            case 1:
                return self.mul_add(self.mul(moved, weight), inverse, bias)
            case 2:
                return self.mul_add(moved, factor, bias)
            case 3:
                return self.mul_add(x, factor, self.mul_add(-mean, factor, bias))
            case 4:
                return self.mul_add(self.div(moved, std), weight, bias)
        return self.add(self.div(self.mul(moved, weight), std), bias)

    def _leaky(self, x: Tensor, slope: Tensor) -> Tensor:
        if self._often():
            return torch.where(self.read(x) > 0, x, self.mul(x, slope))
        return self.add(x.clamp_min(0), self.mul(x.clamp_max(0), slope))


Kernels = Callable[[ops.Operation], list[Callable[[Tensor], Tensor]]]
# The library's own kernels, and formulas that graphs are written with, besides the operation's own.
KERNELS: dict[type, Kernels] = {
    ops.Sigmoid: lambda op: [lambda x: 1 / (1 + torch.exp(-x))],
    ops.Tanh: lambda op: [],
    ops.Arctan: lambda op: [],
    ops.ELU: lambda op: [
        lambda x: F.elu(x, op.alpha),
        lambda x: torch.where(x > 0, x, op.alpha * (torch.exp(x) - 1)),
    ],
    ops.Softplus: lambda op: [
        lambda x: F.softplus(x, op.beta),
        lambda x: F.softplus(x * op.beta) / op.beta,
        lambda x: torch.logaddexp(x * op.beta, torch.zeros_like(x)) * (1 / op.beta),
    ],
    ops.SiLU: lambda op: [F.silu, lambda x: x / (1 + torch.exp(-x))],
    ops.GELU: lambda op: (
        [
            lambda x: F.gelu(x, approximate="tanh"),
            lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))),
        ]
        if op.tanh
        else [F.gelu, lambda x: x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))]
    ),
}
