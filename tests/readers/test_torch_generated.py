"""Random torch modules are refused, or the network read from them is the module in float64, in batches of any size."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from hypothesis import event, given, note, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from elbowroom.errors import InputError, UnsupportedError
from elbowroom.network.graph import Network
from elbowroom.readers.torch.modules import read_module
from elbowroom.readers.torch.program import read_program
from support import FULL

DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
SHAPES = ((1,), (3,), (2, 5), (257,), (1, 3), (2, 3, 4))
NUMBERS = (0.1, 0.3, -0.7, 1 / 3, 1e-3, 3.0, 0.5, -2.0, 771.0, 1.0507009873554805)


@dataclass(frozen=True)
class Piece:
    """One step of a random module. `make` draws it: what it is made of, and how it is called with these parts.

    `plain`: the module must be readable with it. `rounded`: it has constants that are rounded in a float32 model.
    """

    make: Callable[[Maker], tuple[Callable[..., Tensor], dict[str, Any]]]
    plain: bool = True
    rounded: bool = False


class Maker:
    """Draws the parts of a step for values of shape `shape`."""

    def __init__(self, rng: np.random.Generator, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        self.rng, self.shape, self.dtype = rng, shape, dtype
        self.rounds = False  # whether a number has been drawn that is no float32

    def number(self) -> float:
        value = float(self.rng.choice(NUMBERS))
        self.rounds |= float(np.float32(value)) != value
        return value

    def tensor(self, *shape: int) -> Tensor:
        return torch.from_numpy(self.rng.standard_normal(shape)).to(self.dtype)

    def axis(self) -> int:
        return int(self.rng.integers(1, len(self.shape) + 1))

    def some(self, *options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def values(self) -> Tensor:
        """A constant that meets the values element by element, with some axes of size 1."""
        return self.tensor(*(n if self.rng.random() < 0.7 else 1 for n in self.shape))


def parts(f: Callable[..., Tensor], **tensors: Any) -> tuple[Callable[..., Tensor], dict[str, Any]]:
    return f, tensors


def linear(d: Maker) -> Any:
    layer = nn.Linear(d.shape[-1], int(d.rng.integers(1, 5)), bias=bool(d.rng.random() < 0.8))
    return parts(lambda m, x: m["layer"](x), layer=layer)


def normed(d: Maker) -> Any:
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(d.shape[-1], 3))
    return parts(lambda m, x: m["layer"](x), layer=layer)


def batch_norm(d: Maker) -> Any:
    norm = nn.BatchNorm1d(d.shape[0]) if len(d.shape) < 3 else nn.BatchNorm2d(d.shape[0])
    norm.running_mean = torch.from_numpy(d.rng.standard_normal(d.shape[0])).float()
    norm.running_var = torch.from_numpy(d.rng.uniform(0.1, 3, d.shape[0])).float()
    return parts(lambda m, x: m["norm"](x), norm=norm)


def conv(d: Maker) -> Any:
    kind = nn.Conv1d if len(d.shape) == 2 else nn.Conv2d
    layer = kind(d.shape[0], 2, d.some(1, 2), stride=d.some(1, 2), padding=d.some(0, 1))
    return parts(lambda m, x: m["layer"](x), layer=layer)


def activation(d: Maker) -> Any:
    a = abs(d.number())
    f = d.some(
        F.relu, torch.sigmoid, torch.tanh, F.silu, F.gelu, F.softplus, F.hardsigmoid, F.logsigmoid, torch.atan, F.relu6,
        lambda x: F.leaky_relu(x, a), lambda x: F.elu(x, a), lambda x: F.hardtanh(x, -a, 2 * a), nn.Dropout(),
        lambda x: F.softplus(x, a), lambda x: F.gelu(x, approximate="tanh"), lambda x: x.clamp(-a, a), torch.abs,
    )  # fmt: skip
    if isinstance(f, nn.Dropout):
        return parts(lambda m, x: m["drop"](x), drop=f)
    return parts(lambda m, x: f(x))


def scaled_activation(d: Maker) -> Any:
    a, b = abs(d.number()), d.number()
    f = d.some(F.selu, lambda x: F.celu(x, a), lambda x: torch.ops.aten.elu(x, a, b))
    return parts(lambda m, x: f(x))


def arithmetic(d: Maker) -> Any:
    a, v = d.number(), d.values()
    f = d.some(
        lambda m, x: x * a, lambda m, x: a * x, lambda m, x: x / a, lambda m, x: x + a, lambda m, x: a - x,
        lambda m, x: x - a, lambda m, x: x * m["v"], lambda m, x: x / (m["v"].abs() + 0.5), lambda m, x: m["v"] - x,
        lambda m, x: torch.add(x, m["v"], alpha=a), lambda m, x: torch.sub(x, m["v"], alpha=a),
        lambda m, x: torch.sub(m["v"], x, alpha=a), lambda m, x: torch.rsub(x, m["v"], alpha=a),
        lambda m, x: torch.add(x, x.relu(), alpha=a), lambda m, x: torch.maximum(x, m["v"]), lambda m, x: -x,
        lambda m, x: x * m["n"], lambda m, x: x.add(a).mul_(2),
    )  # fmt: skip
    return parts(f, v=v, n=torch.tensor(int(d.rng.integers(1, 5000))))


def folded(d: Maker) -> Any:
    a, v = d.number(), d.values()
    f = d.some(
        lambda m, x: x * (m["v"] * a + 0.5), lambda m, x: x + torch.where(m["v"] > 0, m["v"], a * m["v"]),
        lambda m, x: x * m["v"].abs().sqrt().add(1), lambda m, x: x + torch.full((1,), a, dtype=x.dtype),
        lambda m, x: x * torch.tensor(a), lambda m, x: x + m["v"].sum(),
    )  # fmt: skip
    return parts(f, v=v)


def reduction(d: Maker) -> Any:
    axis, keep = d.axis(), bool(d.rng.random() < 0.8 or len(d.shape) == 1)
    f = d.some(
        lambda m, x: x.sum(axis, keepdim=keep), lambda m, x: x.mean(axis, keepdim=keep),
        lambda m, x: x.sum(tuple(range(1, x.dim())), keepdim=True), lambda m, x: x + x.mean(-1, keepdim=True),
    )  # fmt: skip
    return parts(f)


def shapes(d: Maker) -> Any:
    axis = d.axis()
    f = d.some(
        lambda m, x: x.flatten(1), lambda m, x: x.unsqueeze(axis), lambda m, x: x.transpose(1, -1),
        lambda m, x: torch.cat([x, x.relu()], axis), lambda m, x: x.narrow(axis, 0, max(1, x.shape[axis] - 1)),
        lambda m, x: x.flip(axis), lambda m, x: torch.stack([x, 2 * x], 1), lambda m, x: F.pad(x, (1, 0), value=0.3),
        lambda m, x: x.reshape(x.shape[0], -1), lambda m, x: x[:, :1], lambda m, x: x[..., ::2],
        lambda m, x: x.view(x.size(0), -1), lambda m, x: x.chunk(2, axis)[0], lambda m, x: x[:, [0, -1]],
        lambda m, x: x.clone().contiguous(),
    )  # fmt: skip
    return parts(f)


def to(m: dict[str, Any], x: Tensor, dtype: torch.dtype) -> Tensor:
    """A conversion, which real arithmetic does not know."""
    return x if m["real"] else x.to(dtype)


def cast(d: Maker) -> Any:
    f = d.some(
        lambda m, x: to(m, x, torch.float32), lambda m, x: to(m, x, torch.float64),
        lambda m, x: to(m, x, torch.float16),
        lambda m, x: to(m, x, m["v"].dtype), lambda m, x: to(m, to(m, x, torch.float32).tanh(), m["v"].dtype),
        lambda m, x: x * m["v"].to(x.dtype), lambda m, x: x + torch.tensor([0.1]), lambda m, x: x + x.new_tensor([0.1]),
        lambda m, x: x + torch.ones(1), lambda m, x: to(m, x * m["v"].float() * 0.1, m["v"].dtype),
        lambda m, x: x + torch.full((1,), 0.1, dtype=torch.bfloat16), lambda m, x: x + m["v"].float().mul(0.1),
        lambda m, x: to(m, x, torch.float64) * 0.1, lambda m, x: F.linear(to(m, x, m["w"].dtype), m["w"]),
    )  # fmt: skip
    return parts(f, v=d.tensor(1), w=d.tensor(2, d.shape[-1]))


def batch_dependent(d: Maker) -> Any:
    a = d.some(1e-8, 1e-4, 1.0)
    f = d.some(
        lambda m, x: x if x.shape[0] > 1 else x * (1 + a), lambda m, x: x + a if x.shape[0] == 1 else x,
        lambda m, x: x - x.mean(0), lambda m, x: x - a * x.mean(0, keepdim=True), lambda m, x: x / x.shape[0],
        lambda m, x: x.squeeze(), lambda m, x: x + a * x[:1], lambda m, x: x.roll(1, 0), lambda m, x: x.flip(0),
        lambda m, x: x.flatten()[: x.shape[0]], lambda m, x: x.reshape(-1, *x.shape[2:]), lambda m, x: x * x.size(0),
        lambda m, x: x.t() if x.dim() == 2 else x, lambda m, x: x.sum() + x, lambda m, x: x.squeeze(0),
        lambda m, x: x.half().to(x.dtype) if x.shape[0] == 1 else x, lambda m, x: x if len(x) > 2 else x * 2,
        lambda m, x: x.squeeze().reshape(x.shape[0], -1), lambda m, x: x.flatten(0, 1).reshape(x.shape),
        lambda m, x: x.squeeze().sum(-1, keepdim=True), lambda m, x: x if x.numel() > 3 else -x,
        lambda m, x: x.cumsum(0), lambda m, x: x.view(-1, x.numel() // x.shape[0]),
        lambda m, x: x[torch.randperm(len(x))],
        lambda m, x: F.batch_norm(x, None, None, training=True) if x.shape[0] > 1 else x,
        lambda m, x: torch.cat([x, x])[: x.shape[0]], lambda m, x: x.sort(0)[0],
    )  # fmt: skip
    return parts(f)


PIECES = {
    "linear": Piece(linear),
    "batch norm": Piece(batch_norm),
    "conv": Piece(conv),
    "activation": Piece(activation),
    "scaled activation": Piece(scaled_activation, rounded=True),
    "arithmetic": Piece(arithmetic),
    "reduction": Piece(reduction),
    "shapes": Piece(shapes),
    "weight norm": Piece(normed, rounded=True),
    "folded": Piece(folded, rounded=True),
    "cast": Piece(cast, plain=False, rounded=True),
    "batch": Piece(batch_dependent, plain=False),
}


class Drawn(nn.Module):
    """Steps one after the other, each with its own parts. `real`: conversions between types are left out."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.functions: list[Callable[..., Tensor]] = []
        self.names: list[dict[str, str]] = []
        self.kinds: list[str] = []
        self.rounds = self.real = False
        self.register_buffer("one", torch.ones(1, dtype=dtype))

    def append(self, kind: str, function: Callable[..., Tensor], given: dict[str, Any]) -> None:
        names = {name: f"{name}_{len(self.functions)}" for name in given}
        for name, part in given.items():
            self.add_module(names[name], part) if isinstance(part, nn.Module) else self.register_buffer(
                names[name], part
            )
        self.functions.append(function)
        self.names.append(names)
        self.kinds.append(kind)

    def steps(self, x: Tensor) -> Iterator[Tensor]:
        """The value after each step."""
        for function, names in zip(self.functions, self.names):
            x = function({"real": self.real, **{name: getattr(self, own) for name, own in names.items()}}, x)
            yield x

    def forward(self, x: Tensor) -> Tensor:
        for y in self.steps(x):
            x = y
        return x


@st.composite
def modules(draw: Callable, kinds: tuple[str, ...] = tuple(PIECES)) -> tuple[Drawn, tuple[int, ...]]:
    """A random module that runs on a batch of 2, and the shape of its inputs; steps that do not fit are left out."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1), label="seed"))
    torch.manual_seed(int(rng.integers(1 << 31)))
    dtype, shape = draw(st.sampled_from(DTYPES)), draw(st.sampled_from(SHAPES))
    module, x = Drawn(dtype), torch.randn(2, *shape).to(dtype)
    for kind in draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=5)):
        maker = Maker(rng, tuple(x.shape[1:]), dtype)
        try:
            function, given = PIECES[kind].make(maker)
            given = {k: p.to(dtype).eval() if isinstance(p, nn.Module) else p for k, p in given.items()}
            with torch.no_grad():
                y = function({"real": False, **given}, x.clone())
        except (RuntimeError, ValueError, IndexError, TypeError):
            continue
        if y.dim() > 1 and y.is_floating_point() and 0 < y.numel() < 4000 and bool(y.isfinite().all()):
            module.append(kind, function, given)
            module.rounds |= maker.rounds or PIECES[kind].rounded
            x = y
    note(f"{dtype}, {shape}: {', '.join(module.kinds)}")
    return module, shape


def must_be_real(net: Network, module: Drawn, sizes: tuple[int, ...], seed: int) -> None:
    """The network is the module in float64 (with numbers that a float32 model rounds: nearly), whatever the batch."""
    wide = copy.deepcopy(module).eval().double()
    wide.real = True
    rounded = module.one.dtype == torch.float32 and module.rounds
    rng = np.random.default_rng(seed)
    for n in sizes:
        x = torch.from_numpy(rng.standard_normal((n, *net.input_shape)) * 10.0 ** rng.integers(-2, 3))
        with torch.no_grad():
            values = [x, *wide.steps(x.clone())]
        largest = max(float(v.abs().max()) for v in values)
        difference = float((net(x) - values[-1].reshape(n, -1)).abs().max())
        assert difference <= (2e-5 if rounded else 1e-9) * largest, (n, difference, largest)
    assert net.source is not None and net.source.differs(x) is None


@settings(max_examples=400 if FULL else 15)
@given(modules(), st.integers(0, 100))
def test_random_modules(drawn: tuple[Drawn, tuple[int, ...]], seed: int) -> None:
    module, shape = drawn
    try:
        net = read_module(module, shape)
    except UnsupportedError as error:
        event("refused")
        assert not all(PIECES[kind].plain for kind in module.kinds) or "does not depend on its input" in str(error), (
            error
        )
        return
    event(f"read: {module.one.dtype!s}")
    assert net.about.origin is not None and "in float64" in net.about.origin.compared[0]
    must_be_real(net, module, (1, 2, 3, 5), seed)


@settings(max_examples=100 if FULL else 4)
@given(modules(), st.sampled_from([None, 1, 2, 3]), st.integers(0, 100))
def test_random_programs(drawn: tuple[Drawn, tuple[int, ...]], batch: int | None, seed: int) -> None:
    """Of a program it is known what it was in the batches that it was exported for: of several, or of one size."""
    module, shape = drawn
    x = torch.randn(batch or 2, *shape).to(module.one.dtype)
    dynamic: Any = ({0: torch.export.Dim("n")},) if batch is None else None
    try:
        program = torch.export.export(module.eval(), (x,), dynamic_shapes=dynamic, strict=False)
    except Exception:  # torch's own refusals, of many kinds
        event("not exported")
        return
    with tempfile.TemporaryDirectory() as folder:
        torch.export.save(program, Path(folder) / "model.pt2")
        try:
            net = read_program(Path(folder) / "model.pt2")
        except (UnsupportedError, InputError) as error:
            event("refused")
            assert not all(PIECES[kind].plain for kind in module.kinds) or "not supported" in str(error), error
            return
    event(f"read: {module.one.dtype!s}, {batch}")
    must_be_real(net, module, (2, 3, 5) if batch is None else (batch,), seed)
