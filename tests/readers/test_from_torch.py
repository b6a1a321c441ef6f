"""Torch modules read through `torch.export`: the same outputs, and errors that say what is wrong and where."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elbowroom.errors import InputError, UnsupportedError
from elbowroom.network.file import network_hash
from elbowroom.network.operations import Linear
from elbowroom.readers.reading import computes_in, left_off
from elbowroom.readers.torch import modules
from elbowroom.readers.torch.modules import read_module
from torch_support import Calls


def autocast(m: Calls, x: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return m.layer(x)


class Residual(nn.Module):
    def __init__(self, c: int) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(c, c, 3, padding=1, bias=False), nn.Conv2d(c, c, 3, padding=1)
        self.norm = nn.BatchNorm2d(c)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.b(F.relu(self.norm(self.a(x)), inplace=True)))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Dropout(0.5), nn.Linear(7, 4), nn.Tanh(), nn.Linear(4, 3))


def activations() -> nn.Module:
    kinds = [nn.ReLU(), nn.LeakyReLU(0.2), nn.PReLU(), nn.PReLU(6), nn.Sigmoid(), nn.Tanh(), nn.ELU(0.5)]
    kinds += [nn.Softplus(), nn.Softplus(2.0, 30.0), nn.Hardtanh(-0.5, 0.75), nn.ReLU6(), nn.SiLU()]
    kinds += [nn.GELU(), nn.GELU("tanh"), nn.Tanhshrink(), nn.Identity(), nn.CELU()]
    kinds += [nn.Hardsigmoid(), nn.LogSigmoid()]
    modules = nn.ModuleList(kinds)
    return Calls(lambda m, x: torch.cat([k(m.first(x)) for k in m.kinds], 1), first=nn.Linear(5, 6), kinds=modules)


def sums(m: Calls, x: Tensor) -> Tensor:
    parts = [x.sum(1), x.sum(-1, keepdim=True).flatten(1), x.sum((1, 2))[:, None], torch.sum(x, (2,), dtype=x.dtype)]
    return torch.cat(parts, 1)


def picks(m: Calls, x: Tensor) -> Tensor:
    parts = [x.index_select(1, m.order), x[:, [0, 2]], x[:, m.order].flip(-1), x.flip(1, 2), x[:, m.order[0]][:, None]]
    return torch.cat([*(p.flatten(1) for p in parts), x[..., [1, -1, 0]].flatten(1), x[:, 0, [2, 0]]], 1)


def clamps(m: Calls, x: Tensor) -> Tensor:
    parts = [x.clamp(0), x.clamp_min(0), x.clamp(max=0.5), x.clamp(-0.25, 0.5), x.clamp_max(1), x.atan(), x.arctan()]
    parts += [x.abs(), torch.maximum(x, 2 * x + 1), torch.minimum(x, m.v), torch.maximum(m.v, x), x.max(-x)]
    return torch.cat([*parts, F.relu6(x), F.hardtanh(x)], -1)


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2),
        nn.ReLU(),
        nn.Conv2d(6, 4, 4, padding="same", bias=False),
        nn.Conv2d(4, 3, (2, 3), padding="same", dilation=(1, 2)),
        nn.Conv2d(3, 2, 2, padding="valid"),
        nn.Flatten(),
    )


def shared(m: Calls, x: Tensor) -> Tensor:
    y = m.layer(x).relu()
    return m.layer(y) + m.layer(y.tanh())


def dense(m: Calls, x: Tensor) -> Tensor:
    y = torch.cat([x, m.a(x).relu()], 1)
    y = torch.cat((y, m.b(y).relu()), dim=-3)
    return y.mean((-1, -2))


def arithmetic(m: Calls, x: Tensor) -> Tensor:
    y = (1 - x) * 2 + 3 - x / 4 + torch.add(x, x.relu(), alpha=2) - x * m.v + torch.rsub(x, 2, alpha=3)
    y = y + torch.sub(x, x.tanh(), alpha=3) + (-x) / m.v.abs() + m.v - m.row * y
    return (m.v - y) + torch.rsub(y, m.row, alpha=0.5) + torch.sub(m.v, y, alpha=0.25) + (m.row > 0) * x


def products(m: Calls, x: Tensor) -> Tensor:
    y = x @ m.w + torch.addmm(m.w[0], x, m.w) + torch.mm(x, m.w.t().t() * 2) + F.linear(x, m.w.t())
    return torch.cat([y, (x @ m.w[:, 0]).unsqueeze(1), torch.addmm(y, x, m.w)], 1)


def products_3d(m: Calls, x: Tensor) -> Tensor:
    y = m.left @ (x @ m.w) + m.bias
    return m.layer(y).flatten(1)


def views(m: Calls, x: Tensor) -> Tensor:
    y = x.view(x.size(0), -1).view(-1, 4, 6).reshape(x.shape[0], 2, 2, 6).relu()
    y = y.permute(0, 3, 1, 2).transpose(-1, 1).contiguous()
    y = y.unsqueeze(1).squeeze(1).squeeze().flatten(2).unflatten(1, (1, 2)).movedim(1, 2)
    return y.expand(-1, -1, -1, -1).flatten(1)


def pieces(m: Calls, x: Tensor) -> Tensor:
    a, b, c = x.split([1, 2, 3], 1)
    d, e = x.chunk(2, dim=-2)
    s = torch.stack([d, e.relu()], 2)
    first, second = x[..., 2:4].unbind(-1)
    y = b[:, :, 1:-1] + c[:, ::2, -2:] + a.detach().clone()[:, :, ::2][..., :2]
    return torch.cat([y.flatten(1), x[:, -1, 1:], s[:, 1, 0], first - second, x[:, 1:3].split(1, 1)[1][:, 0]], 1)


def padding(m: Calls, x: Tensor) -> Tensor:
    y = F.pad(F.pad(x, (1, 2)), (0, -1, 2, 0), value=0.5)
    return F.pad(y, (0, 0, 1, 1, 0, 0), value=-1.0).relu().flatten(1)


def pool_1d(m: Calls, x: Tensor) -> Tensor:
    parts = [F.avg_pool1d(x, 3, 2, 1), F.max_pool1d(x, 2, dilation=2), F.max_pool1d(x, 3, 2, 1, ceil_mode=True)]
    parts += [F.adaptive_avg_pool1d(x, 4), F.adaptive_max_pool1d(x, 2), F.max_pool1d(x[:, 0], 4)[:, None]]
    return torch.cat([p.flatten(1) for p in parts], 1)


def pool_2d(m: Calls, x: Tensor) -> Tensor:
    parts = [F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), F.avg_pool2d(x, (2, 3), ceil_mode=True)]
    parts += [F.max_pool2d(x, 3, (1, 2), 1), F.max_pool2d(x, 2, return_indices=True)[0]]
    parts += [F.adaptive_avg_pool2d(x, 1), F.adaptive_avg_pool2d(x, (2, None)), F.adaptive_max_pool2d(x, (4, 1))]
    parts += [x.mean(-1), x.mean((2, 3), keepdim=True), F.adaptive_max_pool2d(x[:, 1], (2, 4))]
    return torch.cat([p.flatten(1) for p in parts], 1)


def pool_3d(m: Calls, x: Tensor) -> Tensor:
    parts = [F.avg_pool3d(m.conv(x), 2), F.max_pool3d(x, (1, 2, 2)), F.adaptive_avg_pool3d(x, (1, 2, 4))]
    return torch.cat([p.flatten(1) for p in [*parts, F.adaptive_max_pool3d(x, 2)]], 1)


def no_grad(m: Calls, x: Tensor) -> Tensor:
    with torch.no_grad():
        x = m.norm(x.to(x.dtype).type_as(x))
    if x.dim() != 2:  # a branch on what the trace knows is fine
        raise ValueError
    return F.dropout(x.mul_(2).add_(torch.tensor([1.0, 2.0, 3.0, 4.0])), 0.5, m.training)


def unused(m: Calls, x: Tensor) -> Tensor:
    torch.softmax(x, 1)
    return m.layer(x)


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (mlp, (5,)),
    "activations": (activations, (5,)),
    "clamps": (lambda: Calls(clamps, v=torch.randn(6)), (6,)),
    "prelu per channel": (lambda: nn.Sequential(nn.Conv2d(2, 3, 2), nn.PReLU(3), nn.Flatten()), (2, 4, 4)),
    "linear on the last axis": (lambda: nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Flatten()), (2, 5, 4)),
    "a dropout of nothing": (lambda: Calls(lambda m, x: m.layer(F.dropout(x, 0, True)), layer=nn.Linear(4, 3)), (4,)),
    "no bias": (lambda: nn.Sequential(nn.Linear(4, 3, bias=False), nn.ReLU6(), nn.Linear(3, 2)), (4,)),
    "conv 1d": (
        lambda: nn.Sequential(nn.Conv1d(3, 4, 3, 2, 1), nn.ReLU(), nn.Conv1d(4, 2, 2, padding="same"), nn.Flatten()),
        (3, 9),
    ),
    "conv 2d": (convolutions, (4, 9, 8)),
    "batch norm 1d": (
        lambda: nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.BatchNorm1d(6, affine=False)),
        (4,),
    ),
    "batch norm 1d, 2d": (
        lambda: Calls(lambda m, x: m.b(m.a(x).unsqueeze(-1)).flatten(1), a=nn.BatchNorm1d(3), b=nn.BatchNorm2d(3)),
        (3, 5),
    ),
    "residual": (lambda: nn.Sequential(Residual(2), Residual(2), nn.AvgPool2d(2), nn.Flatten()), (2, 6, 6)),
    "dense": (lambda: Calls(dense, a=nn.Conv2d(2, 3, 3, 1, 1), b=nn.Conv2d(5, 2, 1)), (2, 5, 4)),
    "branches": (
        lambda: Calls(
            lambda m, x: m.out(m.a(x).relu() - m.b(x).sigmoid()),
            a=nn.Linear(4, 5),
            b=nn.Linear(4, 5),
            out=nn.Linear(5, 2),
        ),
        (4,),
    ),
    "broadcast sum": (lambda: Calls(lambda m, x: (x + x.mean(1, keepdim=True)).flatten(1)), (3, 4)),
    "shared": (lambda: Calls(shared, layer=nn.Linear(4, 4)), (4,)),
    "arithmetic": (lambda: Calls(arithmetic, v=torch.randn(4), row=torch.randn(1, 4)), (4,)),
    "products": (lambda: Calls(products, w=torch.randn(4, 3)), (4,)),
    "products 3d": (
        lambda: Calls(
            products_3d,
            left=torch.randn(5, 3),
            w=torch.randn(4, 6),
            bias=torch.randn(5, 6),
            layer=nn.Linear(6, 2),
        ),
        (3, 4),
    ),
    "views": (lambda: Calls(views), (2, 3, 4)),
    "pieces": (lambda: Calls(pieces), (6, 4)),
    "padding": (lambda: Calls(padding), (3, 4)),
    "pool 1d": (lambda: Calls(pool_1d), (2, 8)),
    "pool 2d": (lambda: Calls(pool_2d), (2, 4, 8)),
    "pool 3d": (lambda: Calls(pool_3d, conv=nn.Conv3d(2, 3, (1, 2, 2), padding=(0, 1, 0))), (2, 4, 4, 4)),
    "no_grad, in place": (lambda: Calls(no_grad, norm=nn.BatchNorm1d(4)), (4,)),
    "in place on the input": (lambda: nn.Sequential(nn.ReLU(inplace=True), nn.Linear(3, 2)), (3,)),
    "constants": (
        lambda: Calls(lambda m, x: m.w.reshape(2, 3).t().flatten() * x + torch.ones(6), w=torch.rand(6)),
        (6,),
    ),
    "unused softmax": (lambda: Calls(unused, layer=nn.Linear(4, 3)), (4,)),
    "sums": (lambda: Calls(sums), (3, 4)),
    "picks": (lambda: Calls(picks, order=torch.tensor([2, 0, 3, 0])), (4, 3)),
    "shared embedding": (
        lambda: Calls(lambda m, x: m.b(m.a(x[:, :2]) + m.a(x[:, 2:])), a=nn.Linear(2, 3), b=nn.Hardsigmoid()),
        (4,),
    ),
    "nested": (
        lambda: nn.Sequential(
            nn.Unflatten(1, (2, 3)),
            nn.Sequential(nn.Sequential(nn.Conv1d(2, 4, 2), nn.Identity()), nn.AdaptiveAvgPool1d(1)),
            nn.Flatten(),
        ),
        (6,),
    ),
    "one output": (lambda: Calls(lambda m, x: m.layer(x).squeeze(1), layer=nn.Linear(4, 1)), (4,)),
    "image output": (lambda: nn.Conv2d(1, 2, 3), (1, 5, 5)),
    "identity": (nn.Identity, (3,)),
}


def randomise(module: nn.Module) -> nn.Module:
    """Values that a mistake would show in: slopes and statistics away from their start."""
    for name, t in module.named_buffers():
        if t.is_floating_point():
            t.uniform_(0.5, 2.0) if "var" in name else t.normal_()
    for m in module.modules():
        if isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d | nn.PReLU) and m.weight is not None:
            nn.init.uniform_(m.weight, -0.5, 1.5)
    return module


@pytest.mark.parametrize("name", MODELS)
def test_same_outputs(name: str) -> None:
    torch.manual_seed(0)
    make, shape = MODELS[name]
    module = randomise(make())
    net = read_module(module, shape)
    assert module.training, "the module must be left as it is"
    assert net.input_shape == shape and net.dtype == torch.float32
    module.eval()
    with torch.no_grad():
        # Numbers in the code of a float32 module are float32 numbers, as torch takes them.
        exact = 2e-8 if "activations" in make.__name__ else 1e-12
        for dtype, tolerance in ((torch.float64, exact), (torch.float32, 1e-5)):
            x = torch.randn(8, *shape, dtype=torch.float64).to(dtype)
            expected = copy.deepcopy(module).to(dtype)(x.clone())
            got = net(x)
            assert got.dtype == dtype
            torch.testing.assert_close(got, expected.reshape(8, -1), rtol=tolerance, atol=tolerance)


def test_parameters_are_as_stored_and_independent() -> None:
    module = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    before = module[0].weight.detach().clone()
    net = read_module(module, (3,))
    with torch.no_grad():
        module[0].weight.zero_()
    assert [n.op.name for n in net.nodes] == ["Input", "Linear", "BatchNorm"]
    assert torch.equal(net.nodes[1].op.tensors()["weight"], before)
    assert not net.nodes[1].op.tensors()["weight"].requires_grad
    assert [n.name for n in net.nodes[1:2]] == ["0.linear"]


@pytest.mark.parametrize("name", ["code", "graph", "_graph", "meta", "recompile"])
def test_parts_are_called_as_parts_of_a_graph_are(name: str) -> None:
    """torch.export has a graph of its own, with these attributes, in the place of the module."""
    module = nn.Sequential()
    module.add_module(name, nn.Linear(3, 4))
    module.add_module("out", nn.ReLU())
    net, same = read_module(module, (3,)), read_module(nn.Sequential(getattr(module, name), nn.ReLU()), (3,))
    x = torch.randn(5, 3)
    assert torch.equal(net(x), same(x)) and torch.equal(net(x), module(x))
    holder = Calls(lambda m, x: getattr(m, name) * x, layer=nn.Linear(3, 3))
    holder.register_parameter(name, nn.Parameter(torch.randn(3)))
    assert torch.equal(read_module(holder, (3,))(x), holder(x))


def rewritten(m: Calls, x: Tensor) -> Tensor:
    """As residual networks are written: nobody looks at what is written over."""
    h = m.norm(m.first(x))
    h += x
    h = F.relu_(h)
    h = F.hardtanh_(m.second(h) - h, -1.0, 1.0)
    return h.mul_(2.0).add_(x, alpha=0.5)


def seen_again(m: Calls, x: Tensor) -> Tensor:
    h = m.first(x)
    g = F.relu_(h)
    return g + 2 * h  # which is the same by now


def seen_before(m: Calls, x: Tensor) -> Tensor:
    h = m.first(x)
    return 2 * h + F.relu_(h)


def through_a_view(m: Calls, x: Tensor) -> Tensor:
    h = m.first(x)
    F.relu_(h.view(-1, 2, 2))
    return h


def through_a_dropout(m: Calls, x: Tensor) -> Tensor:
    h = m.first(x)
    return F.relu_(F.dropout(h, 0.5, m.training)) + 2 * h


def through_a_dropout_of_nothing(m: Calls, x: Tensor) -> Tensor:
    h = m.first(x)
    return F.relu_(F.dropout(h, 0, True)) + 2 * h


@pytest.mark.parametrize(("forward", "plain"), [
    (rewritten, True), (seen_again, True), (seen_before, False), (through_a_view, False),
    (lambda m, x: m.first(x.relu_()), False), (lambda m, x: m.first(x).double().relu_().float(), False),
])  # fmt: skip
def test_what_is_written_over(forward: Callable[..., Tensor], plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    module = randomise(Calls(forward, first=nn.Linear(4, 4), second=nn.Linear(4, 4), norm=nn.BatchNorm1d(4))).eval()
    decomposed: list[bool] = []
    own = torch.export.ExportedProgram.run_decompositions

    def noted(program: Any, *given: Any) -> Any:
        decomposed.append(True)
        return own(program, *given)

    monkeypatch.setattr(torch.export.ExportedProgram, "run_decompositions", noted)
    net = read_module(module, (4,))
    assert bool(decomposed) != plain
    x = torch.randn(9, 4)
    torch.testing.assert_close(net(x), module(x.clone()), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("forward", [through_a_dropout, through_a_dropout_of_nothing])
def test_what_torch_export_writes_over_wrongly_is_refused(forward: Callable[..., Tensor]) -> None:
    """A dropout that does nothing gives its input itself, which torch.export takes for another value."""
    with pytest.raises(UnsupportedError, match="computes something else than its trace"):
        read_module(Calls(forward, first=nn.Linear(4, 4)), (4,))


@pytest.mark.parametrize("name", ["mlp", "batch norm 1d", "residual", "views", "branches"])
def test_what_is_decomposed_first_is_read_as_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, shape = MODELS[name]
    module = randomise(make())
    net = read_module(module, shape)
    monkeypatch.setattr(modules, "is_read", lambda node: False)
    assert network_hash(read_module(module, shape)) == network_hash(net)


def test_training_modes_are_left_alone() -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.Dropout(), nn.BatchNorm1d(3))
    module[2].eval()
    read_module(module, (3,))
    assert [m.training for m in module.modules()] == [True, True, True, False]


def test_numbers_are_rounded_to_the_models_type() -> None:
    module = Calls(lambda m, x: x * 0.1)
    assert float(read_module(module, (2,)).nodes[1].op.tensors()["factor"]) == float(np.float32(0.1))
    doubled = Calls(lambda m, x: x * 0.1, v=torch.ones(1, dtype=torch.float64))
    assert float(read_module(doubled, (2,)).nodes[1].op.tensors()["factor"]) == 0.1


@pytest.mark.parametrize("module", [nn.SELU(), nn.CELU(0.7), Calls(lambda m, x: torch.ops.aten.elu(x, 1.5, 0.3))])
def test_scaled_activations(module: nn.Module) -> None:
    """Their scales are numbers of the model's type as well."""
    x = torch.randn(100, 3, dtype=torch.float64)
    for dtype, tolerance in ((torch.float64, 1e-14), (torch.float32, 1e-6)):
        linear = nn.Linear(3, 3).to(dtype)
        net = read_module(nn.Sequential(linear, module), (3,))
        assert net.dtype == dtype
        with torch.no_grad():
            expected = module(linear(x.to(dtype)))
        torch.testing.assert_close(net(x.to(dtype)), expected, rtol=tolerance, atol=tolerance)


def test_computed_weights_are_evaluated() -> None:
    module = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)).double()
    net = read_module(module, (4,))
    assert [n.op.name for n in net.nodes] == ["Input", "Linear"]
    x = torch.randn(8, 4, dtype=torch.float64)
    torch.testing.assert_close(net(x), module(x).detach(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_other_types(dtype: torch.dtype) -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).to(dtype)
    net = read_module(module, (3,))
    assert net.dtype == torch.promote_types(dtype, torch.float32)
    assert net.nodes[1].op.tensors()["weight"].dtype == dtype
    assert net.about.notes == (() if dtype == torch.float64 else (computes_in(str(dtype).removeprefix("torch.")),))
    x = torch.randn(8, 3, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(net(x), module.double()(x), rtol=1e-12, atol=1e-12)


def test_conversions_that_lose_nothing() -> None:
    wide = Calls(lambda m, x: m.layer(x).double().tanh().float(), layer=nn.Linear(3, 2))
    assert read_module(wide, (3,)).about.notes == ()
    back = Calls(lambda m, x: m.layer(x).float().tanh().half(), layer=nn.Linear(3, 2).half())
    assert read_module(back, (3,)).about.notes == (computes_in("float16"),)


# --- the softmax at the end ---

SOFTMAX: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "softmax": (lambda: nn.Sequential(nn.Linear(3, 4), nn.Softmax(1)), (3,)),
    "log softmax": (lambda: nn.Sequential(nn.Linear(3, 4), nn.LogSoftmax(-1)), (3,)),
    "function": (lambda: Calls(lambda m, x: F.softmax(m.layer(x), dim=1), layer=nn.Linear(3, 4)), (3,)),
    "flattened": (lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.Softmax(1), nn.Flatten()), (1, 3, 3)),
    "in another type": (lambda: Calls(lambda m, x: m.layer(x).softmax(1, torch.float64), layer=nn.Linear(3, 4)), (3,)),
}


@pytest.mark.parametrize("name", SOFTMAX)
def test_a_softmax_at_the_end_is_left_off(name: str) -> None:
    torch.manual_seed(0)
    make, shape = SOFTMAX[name]
    module = make()
    net = read_module(module, shape)
    assert net.about.notes == (left_off("the softmax"),)
    assert net.n_outputs == 4 and "softmax" not in repr(net).lower()
    x = torch.randn(100, *shape)
    with torch.no_grad():
        assert torch.equal(net(x).argmax(1), module(x).flatten(1).argmax(1))
        log = "log" in name
        torch.testing.assert_close(net(x).log_softmax(1) if log else net(x).softmax(1), module(x).flatten(1).float())
    with pytest.raises(UnsupportedError, match=r"softmax.*return the logits"):
        read_module(module, shape, "regression")


def test_a_softmax_inside_is_not_told_to_be_a_final_one() -> None:
    inside = nn.Sequential(nn.Linear(3, 4), nn.Softmax(1), nn.Linear(4, 2))
    for module in (inside, nn.Sequential(nn.Linear(3, 2), nn.Softmax(1), nn.ReLU())):
        with pytest.raises(UnsupportedError, match="a softmax inside a network has no bound here") as caught:
            read_module(module, (3,))
        assert "logits" not in str(caught.value)


def test_what_is_no_softmax_over_the_classes_stays() -> None:
    for module, shape in (
        (nn.Sequential(nn.Linear(3, 1), nn.Softmax(1)), (3,)),  # always 1
        (nn.Sequential(nn.Linear(3, 2), nn.Softmax(1)), (2, 3)),
        (nn.Sequential(nn.Linear(3, 2), nn.Softmax(0)), (3,)),
        (Calls(lambda m, x: x.softmax(1).flatten()), (2,)),
        (Calls(lambda m, x: x + x.softmax(1)), (3,)),
    ):
        with pytest.raises(UnsupportedError, match=r"softmax.*(return the logits|inside a network)"):
            read_module(module, shape)
    sigmoid = read_module(nn.Sequential(nn.Linear(3, 2), nn.Sigmoid()), (3,))
    assert sigmoid.nodes[-1].op.name == "Sigmoid" and not sigmoid.about.notes


# --- errors ---


class Bad(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.fmod(self.layer(x), x)


def test_every_unsupported_operation_is_named_with_its_place() -> None:
    blocks = nn.Sequential(nn.Linear(4, 4), Bad(), nn.ELU(), nn.LayerNorm(4), nn.Hardswish())
    module = Calls(lambda m, x: F.elu(m.blocks(x) * x.t().relu().t(), 1.0).softmax(0), blocks=blocks)
    with pytest.raises(UnsupportedError) as caught:
        read_module(module, (4,))
    lines = str(caught.value).splitlines()
    assert len(lines) == 7
    expected = [
        ("aten.fmod.Tensor", "'blocks.1'", "Bad", "test_from_torch.py:"),
        ("aten.layer_norm.default", "'blocks.3'", "LayerNorm"),
        ("aten.hardswish.default", "'blocks.4'", "Hardswish"),
        ("aten.t.default", "'t'", "batch"),
        ("aten.mul.Tensor", "two computed values"),
        ("aten.softmax.int", "return the logits"),
    ]
    for line, parts in zip(lines[1:], expected):
        assert all(part in line for part in parts), line


UNSUPPORTED: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], str]] = {
    "square": (lambda: Calls(lambda m, x: x * x), (3,), "product of two computed values"),
    "power": (lambda: Calls(lambda m, x: x**2), (3,), "aten.pow"),
    "quotient": (lambda: Calls(lambda m, x: 1 / (x + x)), (3,), "aten.reciprocal|division by a computed"),
    "attention": (lambda: Calls(lambda m, x: x @ x.transpose(1, 2)), (3, 4), "product of two computed values"),
    "stack of matrices": (lambda: Calls(lambda m, x: x @ m.w, w=torch.ones(5, 4, 2)), (5, 3, 4), "stack"),
    "computed weight": (lambda: Calls(lambda m, x: F.linear(torch.ones(2, 3), x[:, 0])), (1, 3), "batch|weights"),
    "transposed conv": (lambda: nn.ConvTranspose2d(1, 1, 2), (1, 3, 3), "aten.conv_transpose2d"),
    "softmax inside": (lambda: nn.Sequential(nn.Softmax(1), nn.Linear(3, 2)), (3,), "softmax.*at the end"),
    "elu scales": (lambda: Calls(lambda m, x: torch.ops.aten.elu(x, 1, 1, 2)), (3,), "input_scale 1"),
    "celu alpha": (lambda: nn.CELU(-1.0), (3,), "alpha > 0"),
    "hard swish": (nn.Hardswish, (3,), "aten.hardswish"),
    "upsampling": (lambda: nn.Upsample(scale_factor=2), (1, 4), "aten.upsample"),
    "mask": (lambda: Calls(lambda m, x: x[:, m.v], v=torch.tensor([True, False, True])), (3,), "mask|batch axis"),
    "two indices": (lambda: Calls(lambda m, x: x[:, [0, 1], [1, 0]]), (2, 2), "several axes"),
    "batch order": (lambda: Calls(lambda m, x: x.flip(0)), (3,), "from the batch"),
    "computed index": (lambda: Calls(lambda m, x: m.v[x.argmax(1)], v=torch.ones(3, 2)), (3,), "computed positions"),
    "elu alpha": (lambda: nn.ELU(-1.0), (3,), "alpha > 0"),
    "softplus threshold": (lambda: nn.Softplus(1.0, 5.0), (3,), "threshold of at least 20"),
    "empty clamp": (lambda: Calls(lambda m, x: x.clamp(1, 0)), (3,), "not an interval"),
    "clamp by a tensor": (lambda: Calls(lambda m, x: x.clamp(m.v), v=torch.ones(3)), (3,), "aten.clamp.Tensor"),
    "adaptive": (lambda: nn.AdaptiveAvgPool1d(3), (2, 8), r"\(3,\) does not divide its input size \(8,\)"),
    "divisor": (lambda: nn.AvgPool2d(2, divisor_override=3), (1, 4, 4), "divisor_override"),
    "pool positions": (
        lambda: Calls(lambda m, x: F.max_pool2d(x, 2, return_indices=True)[1].float()),
        (1, 4, 4),
        "positions",
    ),
    "reflection": (lambda: nn.Conv2d(1, 1, 3, padding=1, padding_mode="reflect"), (1, 4, 4), "mode 'reflect'"),
    "infinite padding": (lambda: Calls(lambda m, x: F.pad(x, (1, 1), value=-math.inf).relu()), (3,), "infinite"),
    "merged batch": (lambda: Calls(lambda m, x: x.reshape(-1, 2).relu().reshape(-1, 4, 2)), (4, 2), "batch axis"),
    "batch mean": (lambda: Calls(lambda m, x: x - x.mean(0)), (3,), "aten.mean.dim.*batch axis"),
    "batch cat": (lambda: Calls(lambda m, x: torch.cat([x, x])), (3,), "aten.cat.*batch axis"),
    "batch slice": (lambda: Calls(lambda m, x: x + x[:1]), (3,), "aten.slice.*batch axis"),
    "batch split": (lambda: Calls(lambda m, x: x + x.split(1)[0]), (3,), "split|fixed batch"),
    "batch size": (lambda: Calls(lambda m, x: x / x.size(0)), (3,), "batch size"),
    "item": (lambda: Calls(lambda m, x: x * x.sum().item()), (3,), "aten.sum.default.*batch axis"),
    "batch constant": (
        lambda: Calls(lambda m, x: torch.cat([x, torch.zeros(x.size(0), 2)], 1)),
        (3,),
        "aten.zeros.default",
    ),
    "batch statistics": (lambda: nn.BatchNorm1d(3, track_running_stats=False), (3,), "statistics of the batch"),
    "active dropout": (lambda: Calls(lambda m, x: F.dropout(x, 1e-300)), (3,), "at random"),
    "random numbers": (lambda: Calls(lambda m, x: x + torch.rand(3)), (3,), "draws random numbers"),
    "half": (lambda: Calls(lambda m, x: x.half().float()), (3,), "rounds its values to float16"),
    "half at the end": (lambda: Calls(lambda m, x: x.softmax(1).half()), (3,), "rounds its values to float16"),
    "a softmax of halves": (lambda: Calls(lambda m, x: x.softmax(1, torch.float16)), (3,), "softmax"),
    "a sum of halves": (
        lambda: Calls(lambda m, x: x.sum(1, dtype=torch.bfloat16)),
        (3,),
        "rounds its values to bfloat",
    ),
    "float in double": (
        lambda: Calls(lambda m, x: m.layer(x).float().relu().double(), layer=nn.Linear(3, 2).double()),
        (3,),
        r"aten\.to\.dtype.*rounds its values to float32, which is not part of a network in real arithmetic",
    ),
    "autocast": (lambda: Calls(autocast, layer=nn.Linear(3, 2)), (3,), "rounds its values to bfloat16|autocast"),
    "mixed halves": (
        lambda: Calls(lambda m, x: (x.float() + m.v).half(), layer=nn.Linear(3, 3).half(), v=torch.ones(3)),
        (3,),
        "rounds its values to float16",
    ),
    "whole numbers": (lambda: Calls(lambda m, x: x.long().float()), (3,), "a conversion to torch.int64"),
    "repeat": (lambda: Calls(lambda m, x: x.unsqueeze(1).expand(-1, 3, -1)), (2,), "repeats values"),
    "constant output": (lambda: Calls(lambda m, x: m.v * 2, v=torch.ones(2, 3)), (3,), "does not depend"),
    "counter": (lambda: Calls(lambda m, x: x + m.v.add_(1), v=torch.zeros(1)), (3,), "changes its buffers"),
    "control flow": (lambda: Calls(lambda m, x: x if x.sum() > 0 else -x), (3,), "cannot trace.*torch says"),
    "control flow by torch.cond": (
        lambda: Calls(lambda m, x: torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,))),
        (3,),
        "cond",
    ),
    "numpy": (lambda: Calls(lambda m, x: torch.from_numpy(x.numpy())), (3,), "cannot trace.*numpy"),
    "fixed batch": (lambda: Calls(lambda m, x: x.view(2, 3)), (3,), "fixed batch size"),
    "two outputs": (lambda: Calls(lambda m, x: (x, x)), (3,), "returns a tuple"),
    "two inputs": (lambda: nn.Bilinear(2, 2, 2), (2,), "takes 2 inputs"),
    "class numbers": (lambda: Calls(lambda m, x: x.argmax(1)), (3,), "torch.int64.*logits"),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_unsupported(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    make, shape, message = UNSUPPORTED[name]
    with pytest.raises(UnsupportedError, match=f"(?s){message}") as caught:
        read_module(make(), shape)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert capfd.readouterr() == ("", ""), "torch must not print"


def test_wrong_input_shape() -> None:
    with pytest.raises(InputError, match=r"does not run on a batch of 2 inputs of shape \(4,\).*mat1 and mat2"):
        read_module(nn.Linear(3, 2), (4,))


def test_torchscript_is_refused() -> None:
    module = torch.jit.ScriptModule()
    with pytest.raises(UnsupportedError, match=r"TorchScript.*give the torch.nn.Module"):
        read_module(module, (3,))


def test_damaged_models() -> None:
    module = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    with torch.no_grad():
        module[0].weight[0, 0] = math.nan
    with pytest.raises(InputError, match=r"0\.linear.*weight holds NaN"):
        read_module(module, (3,))
    module[0].reset_parameters()
    module[1].running_var[0] = -1
    with pytest.raises(InputError, match="negative running variance"):
        read_module(module, (3,))
    with pytest.raises(InputError, match="lazy"):
        read_module(nn.LazyLinear(2), (3,))


def test_a_misread_operation_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Linear, "__call__", lambda self, x: F.linear(x, self.weight))
    with pytest.raises(UnsupportedError, match="differs from the model itself"):
        read_module(nn.Linear(3, 2), (3,))
