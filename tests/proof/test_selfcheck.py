"""The proof's own maps are held to the forward pass: what is right passes, whatever its fields, and what is wrong is
refused by the node's name."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from elbowroom.errors import UnsupportedError
from elbowroom.network import operations as ops
from elbowroom.network.graph import Graph, Network
from elbowroom.proof.kernel import activations, enclosures, relaxed, rows, selfcheck
from elbowroom.proof.kernel.prove import refuse_uncovered
from support import cases, networks

F64 = torch.float64


def numbers(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=F64, generator=torch.Generator().manual_seed(sum(shape)))


def of(op: ops.Operation, *shapes: tuple[int, ...]) -> Network:
    """The operation on slices of one input, one for each of its own, called by its kind."""
    sizes = [torch.Size(s).numel() for s in shapes]
    graph, at, inputs = Graph((sum(sizes),)), 0, []
    for size, shape in zip(sizes, shapes):
        part = graph.add(ops.Slice(0, at, at + size), graph.input) if len(shapes) > 1 else graph.input
        inputs.append(graph.add(ops.Reshape(shape), part))
        at += size
    return graph.network(graph.add(op, *inputs, name="suspect"))


# One of every kind, with fields that leave no symmetry to hide behind.
OPERATIONS: dict[str, Network] = {
    "linear": of(ops.Linear(numbers(4, 4), numbers(4)), (4,)),
    "conv": of(ops.Conv(numbers(4, 2, 3, 2), numbers(4), (2, 1), (1, 2), (1, 2), 2), (4, 5, 6)),
    "batch norm": of(ops.BatchNorm(numbers(3), numbers(3).abs(), numbers(3), numbers(3)), (3, 2)),
    "scale": of(ops.Scale(numbers(3, 1)), (3, 2)),
    "scale that broadcasts": of(ops.Scale(numbers(3, 2)), (3, 1)),
    "divide": of(ops.Divide(numbers(2)), (3, 2)),
    "shift": of(ops.Shift(numbers(3, 4)), (3, 1)),
    "add": of(ops.Add((2.0, -0.5)), (3, 2), (1, 2)),
    "mean": of(ops.Mean((0, 2)), (3, 2, 4)),
    "average": of(ops.AvgPool((3, 2), (2, 1), (1, 1), True, False), (2, 5, 4)),
    "average with padding": of(ops.AvgPool((3,), (2,), (1,), True, True), (2, 6)),
    "reshape": of(ops.Reshape((2, 6)), (3, 4)),
    "transpose": of(ops.Transpose((1, 2, 0)), (3, 3, 3)),
    "slice": of(ops.Slice(1, 1, 6, 2), (2, 7)),
    "pad": of(ops.Pad((1, -1, 0, 2), 3.0), (3, 4)),
    "concat": of(ops.Concat(-1), (2, 3), (2, 2)),
    "max": of(ops.MaxPool((3, 2), (2, 1), (1, 1), (1, 2)), (2, 6, 7)),
    "relu": of(ops.ReLU(), (5,)),
    "leaky": of(ops.LeakyReLU(numbers(2, 1)), (2, 3)),
    "leaky by channel": of(ops.LeakyReLU(numbers(3, 1, 1)), (3, 3, 3)),
    "clip": of(ops.Clip(-0.5, 2.0), (5,)),
    "clip far away": of(ops.Clip(0.0, 255.0), (5,)),
    "sigmoid": of(ops.Sigmoid(), (5,)),
    "tanh": of(ops.Tanh(), (5,)),
    "arctan": of(ops.Arctan(), (5,)),
    "elu": of(ops.ELU(1.7), (5,)),
    "softplus": of(ops.Softplus(3.0), (5,)),
    "silu": of(ops.SiLU(), (5,)),
    "gelu": of(ops.GELU(), (5,)),
    "gelu tanh": of(ops.GELU(True), (5,)),
}


def fresh(net: Network) -> Network:
    """The same network, not tried out yet."""
    return Network(net.nodes)


def test_every_kind_of_operation_is_here() -> None:
    assert {type(net.nodes[-1].op) for net in OPERATIONS.values()} | {
        type(node.op) for net in OPERATIONS.values() for node in net.nodes
    } >= {*rows.AFFINE, *relaxed.RELAXED}


@pytest.mark.parametrize("name", OPERATIONS)
def test_what_is_right_passes(name: str) -> None:
    refuse_uncovered(fresh(OPERATIONS[name]))


@cases(2)
@given(networks())
def test_random_graphs_pass(net: Network) -> None:
    refuse_uncovered(net)


@pytest.mark.parametrize("size", [1e-300, 1e-30, 1e30, 1e300])
def test_numbers_of_any_size_pass(size: float) -> None:
    for name in ("linear", "conv", "scale", "divide", "shift"):
        net = OPERATIONS[name]
        nodes = [dataclasses.replace(n, op=n.op.map_tensors(lambda t: t * size)) for n in net.nodes]
        refuse_uncovered(Network(tuple(nodes)))


# --- planted faults


def back(kind: type, wrong: Callable[..., Any]) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(type(rows.AFFINE[kind]), "back", wrong)


def sizes(kind: type, wrong: Callable[..., Any]) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(type(rows.AFFINE[kind]), "sizes", wrong)


def offset(kind: type, wrong: Callable[..., Any]) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(type(rows.AFFINE[kind]), "offset_size", wrong)


_conv_back, _avg_back = rows.AFFINE[ops.Conv].back, rows.AFFINE[ops.AvgPool].back
_planes, _windows = relaxed._Activation.planes, relaxed.windows


def _steeper(self: Any, op: Any, shape: Any, lows: Any, highs: Any, parallel: bool) -> relaxed.Planes:
    found = _planes(self, op, shape, lows, highs, parallel)
    (term,) = found.terms
    return found._replace(terms=(term._replace(upper=term.upper * 0.99),))


_pool_planes = relaxed._MaxPool.planes


def _next_door(self: Any, op: Any, shape: Any, lows: Any, highs: Any, parallel: bool) -> relaxed.Planes:
    found = _pool_planes(self, op, shape, lows, highs, parallel)
    (term,) = found.terms
    return found._replace(terms=(term._replace(source=(term.source + 1) % lows[0][0].numel()),))


def _first_channel(self: Any, op: Any, shape: Any, lows: Any, highs: Any, parallel: bool) -> relaxed.Planes:
    found = _pool_planes(self, op, shape, lows, highs, parallel)
    (term,) = found.terms
    return found._replace(terms=(term._replace(source=term.source % lows[0][0, 0].numel()),))


_lines = enclosures.lines


def _flat_slopes(op: Any, l: Tensor, u: Tensor, parallel: bool) -> enclosures.Lines:
    return _lines(dataclasses.replace(op, slope=op.slope.flatten()), l, u, parallel)


def _other_alpha(op: Any, x: Tensor) -> Tensor:
    return torch.where(x > 0, x, torch.expm1(x.clamp_max(0)))


FAULTS: dict[str, tuple[str, Callable[[pytest.MonkeyPatch], None]]] = {
    "a wrong transpose": ("linear", back(ops.Linear, lambda self, op, a, s: (a @ op.weight.T,))),
    "one row of a square matrix": (
        "linear", back(ops.Linear, lambda self, op, a, s: (a @ op.weight.roll(1, 0),)),
    ),
    "a flipped kernel": (
        "conv",
        back(ops.Conv, lambda self, op, a, s: _conv_back(dataclasses.replace(op, weight=op.weight.flip(2, 3)), a, s)),
    ),
    "channels of other groups": (
        "conv",
        back(ops.Conv, lambda self, op, a, s: _conv_back(dataclasses.replace(op, weight=op.weight.roll(1, 0)), a, s)),
    ),
    "a stride that means something else": (
        "max", lambda patch: patch.setattr(selfcheck, "windows", lambda op, o, i: _windows(
            dataclasses.replace(op, stride=op.kernel), o, i)),
    ),
    "a window without its last place": (
        "max", lambda patch: patch.setattr(selfcheck, "windows", lambda op, o, i: _windows(op, o, i)[:, :-1]),
    ),
    "a dropped sign": ("add", back(ops.Add, lambda self, op, a, s: tuple(rows._summed_to(a, t) for t in s))),
    "sums that are not added up": ("scale that broadcasts", back(
        ops.Scale, lambda self, op, a, s: ((a * op.factor)[..., :1],))),
    "a factor without its weight": (
        "batch norm", back(ops.BatchNorm, lambda self, op, a, s: (a * (op.var + op.eps).rsqrt()[None, :, None],)),
    ),
    "a divisor that counts the padding": ("average", back(ops.AvgPool, lambda self, op, a, s: _avg_back(
        dataclasses.replace(op, count_include_pad=True), a, s))),
    "a mean of too few": ("mean", back(ops.Mean, lambda self, op, a, s: (
        (a / s[0][0]).reshape(len(a), 1, s[0][1], 1).expand(len(a), *s[0]),))),
    "axes the wrong way round": (
        "transpose", back(ops.Transpose, lambda self, op, a, s: (a.permute(0, *(d + 1 for d in op.axes)),)),
    ),
    "every entry instead of every second": ("slice", back(
        ops.Slice, lambda self, op, a, s: (F.pad(a, (op.start, s[0][1] - op.start - a.shape[-1])),))),
    "padding on the other side": ("pad", back(
        ops.Pad, lambda self, op, a, s: (F.pad(a, [-p for p in (op.pads[1], op.pads[0], *op.pads[2:])]),))),
    "parts in another order": ("concat", back(
        ops.Concat, lambda self, op, a, s: tuple(a.flip(-1).split([t[-1] for t in s], -1)))),
    "sizes with signs": ("linear", sizes(ops.Linear, lambda self, op, r: r @ op.weight.T)),
    "sizes of another input": ("add", sizes(ops.Add, lambda self, op, *r: 2.5 * r[0])),
    "sizes of a flipped kernel": ("conv", sizes(ops.Conv, lambda self, op, r: F.conv2d(
        r, op.weight.abs().flip(2), None, op.stride, op.padding, op.dilation, op.groups))),
    "an offset that is left out": ("linear", offset(ops.Linear, lambda self, op, like: None)),
    "an offset that is said to be small": (
        "batch norm", offset(ops.BatchNorm, lambda self, op, like: 1e-3 * op.mean.abs()[None, :, None]),
    ),
    "a line of another entry": ("max", lambda patch: patch.setattr(relaxed._MaxPool, "planes", _next_door)),
    "a line in another channel": ("max", lambda patch: patch.setattr(relaxed._MaxPool, "planes", _first_channel)),
    "slopes that do not broadcast": (
        "leaky by channel", lambda patch: patch.setattr(enclosures, "lines", _flat_slopes),
    ),
    "no upper end": ("clip far away", lambda patch: patch.setitem(activations.TABLE, ops.Clip, lambda op: (op.low,))),
    "an upper line that is too flat": (
        "sigmoid", lambda patch: patch.setattr(relaxed._Activation, "planes", _steeper),
    ),
    "an activation with another parameter": ("elu", lambda patch: patch.setitem(
        activations.TABLE, ops.ELU, dataclasses.replace(activations.TABLE[ops.ELU], value=_other_alpha))),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_refused(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, plant = FAULTS[fault]
    net = fresh(OPERATIONS[name])
    plant(monkeypatch)
    with pytest.raises(UnsupportedError, match=r"suspect: "):
        refuse_uncovered(net)


@pytest.mark.parametrize("fault", ["a wrong transpose", "a flipped kernel"])
def test_faults_that_the_parameters_hide_are_refused(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole numbers are tried in place of parameters: those that are next to nothing would hide a fault."""
    name, plant = FAULTS[fault]
    net = OPERATIONS[name]
    nodes = [dataclasses.replace(n, op=n.op.map_tensors(lambda t: t * 1e-200)) for n in net.nodes]
    plant(monkeypatch)
    with pytest.raises(UnsupportedError, match="suspect"):
        refuse_uncovered(Network(tuple(nodes)))


@pytest.mark.parametrize("size", [1e7, 1e9, 1e12])
def test_a_batch_norm_whose_bias_cancels_its_mean_passes(size: float) -> None:
    mean, var = torch.full((3,), size, dtype=F64), torch.ones(3, dtype=F64)
    op = ops.BatchNorm(mean, var, None, mean / (var + 1e-5).sqrt())
    refuse_uncovered(Network.chain((3,), [op, ops.Linear(numbers(2, 3))]))


@pytest.mark.parametrize(
    "op",
    [
        ops.LeakyReLU(5e307), ops.LeakyReLU(-1e308),
        ops.LeakyReLU(torch.tensor([1e308, -1e308, 0.0, 1e-308, 1.0], dtype=F64)),
        ops.ELU(1e308), ops.Softplus(1e-320), ops.Softplus(1e300), ops.Clip(-1e308, 1e308), ops.Pad((1, 1), -1e308),
        ops.Scale(torch.tensor(1e308, dtype=F64)), ops.Shift(torch.tensor(-1e308, dtype=F64)),
    ],
)  # fmt: skip
def test_numbers_at_the_ends_of_float64_pass(op: ops.Operation) -> None:
    refuse_uncovered(Network.chain((5,), [op]))


def test_a_row_that_a_large_window_does_not_see_is_missed_by_none(monkeypatch: pytest.MonkeyPatch) -> None:
    net = of(ops.MaxPool((150, 150), (150, 150)), (1, 150, 150))
    refuse_uncovered(fresh(net))
    monkeypatch.setattr(selfcheck, "windows", lambda op, o, i: _windows(op, o, i)[:, :-150])
    with pytest.raises(UnsupportedError, match="windows"):
        refuse_uncovered(fresh(net))


def test_large_layers_take_little_memory() -> None:
    code = (
        "import resource, torch, elbowroom as er\n"
        "from elbowroom.network import operations as ops\n"
        "from elbowroom.proof.kernel.prove import refuse_uncovered\n"
        "net = er.Network.chain((16, 112, 112), [ops.ReLU(), ops.MaxPool((2, 2), (2, 2)), ops.Reshape((-1,))])\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "refuse_uncovered(net)\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True)
    assert int(done.stdout) < 400  # MiB


def test_once_per_network(monkeypatch: pytest.MonkeyPatch) -> None:
    net = fresh(OPERATIONS["conv"])
    refuse_uncovered(net)
    FAULTS["a flipped kernel"][1](monkeypatch)
    refuse_uncovered(net)  # not tried again
    exchanged = fresh(OPERATIONS["conv"])
    net.nodes = exchanged.nodes
    with pytest.raises(UnsupportedError, match="transpose"):
        refuse_uncovered(net)


def test_it_takes_little_time() -> None:
    weights = [torch.randn(300, n, dtype=F64) for n in (784, 300, 300)]
    net = Network.chain((784,), [op for w in weights for op in (ops.Linear(w), ops.ReLU())])
    started = time.process_time()
    refuse_uncovered(net)
    assert time.process_time() - started < 1.0


@given(st.integers(0, 2**32 - 1))
@cases(1)
def test_max_pool_windows_of_any_kind(seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)

    def some(low: int, high: int) -> tuple[int, ...]:
        return tuple(torch.randint(low, high + 1, (2,), generator=draw).tolist())

    kernel, stride, dilation = some(1, 3), some(1, 3), some(1, 2)
    padding = tuple(min(p, (d * (k - 1) + 1) // 2) for p, d, k in zip(some(0, 1), dilation, kernel))
    op = ops.MaxPool(kernel, stride, padding, dilation, ceil_mode=bool(seed % 2))
    sizes_ = tuple(d * (k - 1) + 1 + m for d, k, m in zip(dilation, kernel, some(0, 4)))
    shape = (1, *sizes_)
    assert not selfcheck._pool_faults(op, op.output_shape(shape), shape, draw)
