"""Torch modules are compared with what was read of them: in batches of several sizes, at several scales, in float64."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elbowroom import certify, load
from elbowroom.errors import UnsupportedError
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network
from elbowroom.readers import compare
from elbowroom.readers.torch import aten
from elbowroom.readers.torch.modules import read_module
from elbowroom.readers.torch.program import read_program
from torch_support import Calls

HALVES = (torch.bfloat16, torch.float16)


def compared(net: Network) -> tuple[str, ...]:
    assert net.about.origin is not None
    return net.about.origin.compared


def randomised(module: nn.Module, dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    for p in module.parameters():
        p.data.normal_()
    return module.to(dtype)


def must_be_the_module_in_float64(net: Network, module: nn.Module, share: float = 1e-12) -> None:
    wide = copy.deepcopy(module).double().eval()
    for n, scale in ((1, 1.0), (2, 0.01), (3, 100.0), (5, 1.0)):
        x = scale * torch.randn(n, *net.input_shape, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
        with torch.no_grad():
            expected = wide(x.clone()).reshape(n, -1)
        assert float((net(x) - expected).abs().max()) <= share * float(expected.abs().max())


# --- batches


def guarded_norm(m: Calls, x: Tensor) -> Tensor:
    """A usual guard: BatchNorm1d refuses a batch of one in training."""
    return m.norm(x) if x.shape[0] > 1 else x


def counting(m: Calls, x: Tensor) -> Tensor:
    m.calls = getattr(m, "calls", 0) + 1
    return x * m.calls


BATCHES: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "branch": (lambda: Calls(guarded_norm, norm=nn.BatchNorm1d(3)), "size of its batch.*batch of 1 than in one of 2"),
    "small": (lambda: Calls(lambda m, x: x + 1e-7 if x.shape[0] == 1 else x), "size of its batch"),
    "small, beside rounded numbers": (
        lambda: Calls(lambda m, x: x * 0.1 + (1e-7 if x.shape[0] == 1 else 0)), "size of its batch",
    ),
    "half the digits": (lambda: Calls(lambda m, x: x.half().float() if x.shape[0] == 1 else x), "size of its batch"),
    "fewer digits of bfloat16": (
        lambda: Calls(lambda m, x: x.half().to(x.dtype) if x.shape[0] == 1 else x, v=torch.ones(1).bfloat16()),
        "size of its batch",
    ),
    "other axes": (lambda: Calls(lambda m, x: x.squeeze().sum(1, keepdim=True) + x), "not run on a batch of 1"),
    "another shape": (lambda: Calls(lambda m, x: x[:, :2] if x.shape[0] > 1 else x), r"\(1, 3\) for a batch of 1"),
    "state": (lambda: Calls(counting), "depends on"),
}  # fmt: skip


@pytest.mark.parametrize("name", BATCHES)
def test_answers_that_depend_on_the_batch_are_refused(name: str) -> None:
    make, message = BATCHES[name]
    with pytest.raises(UnsupportedError, match=message):
        load(make(), (3,))


def test_a_batch_norm_that_a_batch_of_one_skips() -> None:
    """With statistics that decide: this was certified as class 1, where the module says 0."""
    norm = nn.BatchNorm1d(2)
    norm.running_mean = torch.tensor([3.0, 0.0])
    with pytest.raises(UnsupportedError, match="something else for it in a batch of 1 than in one of 2"):
        load(Calls(guarded_norm, norm=norm), (2,))


@pytest.mark.parametrize(
    "f",
    [
        lambda m, x: m.layer(x).squeeze(),
        lambda m, x: m.layer(x).squeeze().reshape(x.shape[0], -1),
        lambda m, x: m.layer(x) if x.dim() == 2 else x,
        lambda m, x: m.layer(x.float() if x.dtype != torch.float32 else x),
    ],
)
def test_code_that_only_looks_like_it_is_read(f: Callable[..., Tensor]) -> None:
    net = load(randomised(Calls(f, layer=nn.Linear(3, 2))), (3,))
    assert "batches of 1, 2 and 3 at inputs of sizes 0.01, 1 and 100" in compared(net)[0]
    assert "in float64" in compared(net)[0] and "in float32" in compared(net)[0] and len(compared(net)) == 1


def test_who_shares_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trace that mixes a batch is refused; should one pass, the module is still found to."""
    monkeypatch.setitem(aten.HANDLERS, torch.ops.aten.flip.default, lambda to, x, dims: x)
    with pytest.raises(UnsupportedError, match=r"aten\.flip\.default \(node 'flip'.*read differently"):
        load(Calls(lambda m, x: x.flip(0)), (3,))
    monkeypatch.setattr("elbowroom.readers.torch.guard.in_float64", lambda function, args, kwargs: args[0])
    with pytest.raises(UnsupportedError, match=r"depends on the other inputs in its batch: .* of 2 than in another"):
        load(Calls(lambda m, x: x.flip(0)), (3,))


# --- what is misread is named


class Inner(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.elu(x, 0.5)


def test_the_first_operation_that_is_misread_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(aten.HANDLERS, torch.ops.aten.elu.default, lambda to, x, *_: to.add(ops.ELU(0.500001), x))
    module = nn.Sequential(nn.Linear(3, 4), Inner(), nn.Linear(4, 4), nn.ELU(0.5), nn.Linear(4, 2))
    with pytest.raises(UnsupportedError) as caught:
        load(module, (3,))
    words = str(caught.value)
    assert "aten.elu.default (node 'elu', module '1' of type Inner, test_torch_guard.py:" in words
    assert "elu_1" not in words and "please report this" in words


def test_a_trace_that_is_not_the_module() -> None:
    traced = Calls(lambda m, x: m.layer(x) * (2 if torch.compiler.is_exporting() else 1), layer=nn.Linear(3, 2))
    with pytest.raises(UnsupportedError, match=r"the module computes something else than its trace by torch\.export"):
        load(traced, (3,))


def test_numbers_that_are_not_finite_must_be_the_same_ones() -> None:
    huge = torch.tensor([1e308, 1.0], dtype=torch.float64)
    net = load(Calls(lambda m, x: x * m.v + x * m.v, v=huge), (2,))
    assert compared(net)[1].startswith("in float64 some outputs of the module are not finite at some of these inputs; ")
    assert net.source is not None
    assert net.source.differs(torch.full((2, 2), 100.0).double()) is None
    assert compare.difference(torch.tensor([[math.nan], [1.0]]), torch.tensor([[1.0], [math.inf]])).tolist() == [
        [math.inf],
        [math.inf],
    ]
    same = torch.tensor([[math.nan, math.inf, 1.0]])
    assert compare.difference(same, same).tolist() == [[0.0, 0.0, 0.0]]


# --- at a user's inputs


def test_the_module_is_kept_as_it_was() -> None:
    module = randomised(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)))
    net = load(module, (3,), mean=[0.5, 0.1, 0.0], std=2.0)
    x = torch.randn(9, 3, dtype=torch.float64)
    with torch.no_grad():
        module[0].weight.zero_()
    net.must_agree(x)
    net.must_agree(x[:1])
    net.must_agree(x[:0])
    net.must_agree(torch.full((2, 3), math.nan))


def test_inputs_where_the_module_differs() -> None:
    """A jump that no sample of ours meets: the operations agree, and the module is not its trace."""

    def jumps(m: Calls, x: Tensor) -> Tensor:
        if not torch.compiler.is_exporting() and bool((x == 7).all()):
            return m.layer(x) + 1
        return m.layer(x)

    net = load(Calls(jumps, layer=nn.Linear(3, 2)), (3,))
    net.must_agree(torch.ones(3, 3))
    with pytest.raises(UnsupportedError, match="something else than its trace"):
        net.must_agree(torch.full((1, 3), 7.0))
    with pytest.raises(UnsupportedError, match=r"depends on the other inputs in its batch|size of its batch"):
        net.must_agree(torch.tensor([[7.0] * 3, [1.0] * 3, [2.0] * 3]))


def test_inputs_that_the_module_does_not_take() -> None:
    def checked(m: Calls, x: Tensor) -> Tensor:
        if not torch.compiler.is_exporting() and bool((x > 1e6).any()):
            raise ValueError("out of range")
        return m.layer(x)

    net = load(Calls(checked, layer=nn.Linear(3, 2)), (3,))
    with pytest.raises(UnsupportedError, match=r"does not run on a batch of 1 of these.*torch says: out of range"):
        net.must_agree(torch.full((2, 3), 1e7))


# --- what is not compared is said


def test_a_module_that_does_not_run_in_float64() -> None:
    def narrow(m: Calls, x: Tensor) -> Tensor:
        assert x.dtype == torch.float32, "float32 only"
        return m.layer(x)

    net = load(Calls(narrow, layer=nn.Linear(3, 2)), (3,))
    assert "in float64" not in compared(net)[0] and "in float32" in compared(net)[0]
    assert compared(net)[1:] == ("the module does not run in float64 (torch says: float32 only)",)


def test_large_modules_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    for limit, words in (("MOST_WORK", "more than 100 multiplications"), ("MOST_NUMBERS", "more than 100 numbers")):
        with monkeypatch.context() as patch:
            patch.setattr(compare, limit, 100 if limit == "MOST_WORK" else 40)
            net = load(module, (3,))
        assert compared(net)[0].startswith("not compared with the module, here or at the inputs to certify: that would")
        assert words.split()[-1] in compared(net)[0]
        net.must_agree(torch.ones(2, 3))


def test_work() -> None:
    net = read_module(nn.Sequential(nn.Conv2d(2, 3, 3), nn.Flatten(), nn.Linear(12, 5)), (2, 4, 4))
    # inputs, then a 3 x 2 x 2 convolution of 18 products each, flattened, then 5 sums of 12
    assert compare.work(net.nodes) == 32 + 12 * 19 + 12 + 5 * 13


# --- constants


HALF: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "sum": (lambda: Calls(lambda m, x: m.out(x.sum(-1, keepdim=True)), out=nn.Linear(1, 2)), (257,)),
    "long sum": (lambda: Calls(lambda m, x: m.out(x.sum(-1, keepdim=True)), out=nn.Linear(1, 2)), (2049,)),
    "sum of axes": (lambda: Calls(lambda m, x: m.out(x.sum((1, 2)).unsqueeze(1)), out=nn.Linear(1, 2)), (3, 257)),
    "product": (lambda: Calls(lambda m, x: m.layer(x) * 0.1, layer=nn.Linear(3, 2)), (3,)),
    "quotient": (lambda: Calls(lambda m, x: m.layer(x) / 0.3, layer=nn.Linear(3, 2)), (3,)),
    "offsets": (lambda: Calls(lambda m, x: 0.7 - (m.layer(x) + 0.1), layer=nn.Linear(3, 2)), (3,)),
    "alpha": (
        lambda: Calls(
            lambda m, x: torch.add(torch.sub(m.layer(x), m.v, alpha=0.3), m.v, alpha=3) + torch.rsub(m.v, x, alpha=0.7),
            layer=nn.Linear(3, 3), v=torch.randn(3),
        ), (3,),
    ),
    "selu": (lambda: nn.Sequential(nn.Linear(3, 2), nn.SELU()), (3,)),
    "celu": (lambda: nn.Sequential(nn.Linear(3, 2), nn.CELU(0.3)), (3,)),
    "elu": (lambda: Calls(lambda m, x: torch.ops.aten.elu(m.layer(x), 1.3, 0.7), layer=nn.Linear(3, 2)), (3,)),
    "hardsigmoid": (lambda: nn.Sequential(nn.Linear(3, 2), nn.Hardsigmoid()), (3,)),
    "ends and slopes": (
        lambda: nn.Sequential(
            nn.Linear(3, 4), nn.Hardtanh(-0.3, 0.7), nn.LeakyReLU(0.3), nn.Softplus(1.3), nn.ELU(0.3)
        ),
        (3,),
    ),
    "padding": (lambda: Calls(lambda m, x: F.pad(m.layer(x), (1, 1), value=0.3), layer=nn.Linear(3, 2)), (3,)),
    "weight norm": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(3, 2)), (3,)),
    "folded": (lambda: Calls(lambda m, x: x * (m.v * 0.1 + 0.3), v=torch.randn(3)), (3,)),
    "full": (
        lambda: Calls(lambda m, x: m.layer(x) + torch.full((2,), 0.1, dtype=x.dtype), layer=nn.Linear(3, 2)), (3,),
    ),
    "a tensor of its own": (
        lambda: Calls(lambda m, x: m.layer(x) * torch.tensor(0.1), layer=nn.Linear(3, 2)), (3,),
    ),
    "whole numbers": (
        lambda: Calls(lambda m, x: m.layer(x) * m.n, layer=nn.Linear(3, 2), n=torch.tensor([1001, 3])), (3,),
    ),
    "picked by a mask": (
        lambda: Calls(lambda m, x: x * torch.where(m.v > 0, m.v * 0.1, 0.7), v=torch.randn(3)), (3,),
    ),
    "batch norm": (lambda: nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2, eps=0.1)), (3,)),
}  # fmt: skip


FLOAT16 = ("long sum", "product", "selu", "weight norm", "whole numbers")


@pytest.mark.parametrize(
    ("name", "dtype"), [*((name, torch.bfloat16) for name in HALF), *((name, torch.float16) for name in FLOAT16)]
)
def test_constants_of_half_precision_stay_exact(name: str, dtype: torch.dtype) -> None:
    make, shape = HALF[name]
    module = randomised(make(), dtype)
    net = read_module(module, shape)
    must_be_the_module_in_float64(net, module)
    for node in net.nodes:
        for t in node.op.tensors().values():  # in no wider a type than it takes
            assert t.dtype == dtype or not torch.equal(t.to(dtype).double(), t.double())
    assert not any("numbers in the code" in text for text in compared(net))


def test_a_sum_of_257_halves_decides() -> None:
    """bfloat16 holds no 257: the sum was read as 256 times the mean, and certified as class 1, where it is class 0."""
    module = Calls(lambda m, x: m.out(x.sum(-1, keepdim=True)), out=nn.Linear(1, 2))
    module.out.weight.data, module.out.bias.data = torch.tensor([[1.0], [0.0]]), torch.tensor([0.0, 256.0])
    net = load(module.bfloat16(), (257,))
    x = torch.full((1, 257), 0.998, dtype=torch.float64)
    assert certify(net, x, max_eps=1e-4).labels.tolist() == [0]


@pytest.mark.parametrize("dtype", HALVES)
def test_constants_of_its_own_type_that_a_trace_keeps(dtype: torch.dtype) -> None:
    """In the trace these are rounded, in the module in float64 they are not."""
    module = Calls(lambda m, x: x * x.new_tensor([0.1, 0.2, 0.3]), v=torch.ones(1, dtype=dtype))
    with pytest.raises(UnsupportedError, match=r"Constants that it makes in .*float16 \(x.new_tensor.* into buffers"):
        load(module, (3,))
    exact = Calls(lambda m, x: x * x.new_tensor([0.5, 2.0, 3.0]), v=torch.ones(1, dtype=dtype))
    must_be_the_module_in_float64(load(exact, (3,)), exact)


ROUNDED: dict[str, Callable[..., Tensor]] = {
    "product": lambda m, x: m.layer(x) * 0.1,
    "selu": lambda m, x: F.selu(m.layer(x)),
    "celu": lambda m, x: F.celu(m.layer(x), 0.3),
    "new_tensor": lambda m, x: (x - x.new_tensor([0.485, 0.456, 0.406])) / torch.tensor([0.229, 0.224, 0.225]),
    "full": lambda m, x: m.layer(x) + torch.full((3,), 0.1, dtype=x.dtype),
    "folded": lambda m, x: x * (m.layer.weight[0] * 0.1),
    "alpha": lambda m, x: torch.add(m.layer(x), m.layer.bias, alpha=0.3),
}


@pytest.mark.parametrize("name", ROUNDED)
def test_constants_of_float32_are_float32_numbers(name: str) -> None:
    """So that the network can be claimed to run in float32; what was rounded is said."""
    module = randomised(Calls(ROUNDED[name], layer=nn.Linear(3, 3)))
    net = read_module(module, (3,))
    assert net.dtype == torch.float32
    assert compared(net)[1:] == ("numbers in the code of the module are taken in float32, as torch takes them",)
    must_be_the_module_in_float64(net, module, 1e-5)
    must_be_the_module_in_float64(read_module(module.double(), (3,)), module)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_another_default_type(dtype: torch.dtype) -> None:
    """Tensors that the code makes are then of float64, and so are the network's constants."""
    module = Calls(lambda m, x: m.layer(x) * torch.tensor([0.1, 0.2]), layer=nn.Linear(3, 2, dtype=dtype))
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        net = load(module, (3,))
        net.must_agree(torch.ones(2, 3))
    finally:
        torch.set_default_dtype(before)
    assert net.nodes[-1].op.tensors()["factor"].tolist() == [0.1, 0.2] and len(compared(net)) == 1


def test_no_product_with_alpha_is_rounded() -> None:
    v = torch.randn(4)
    for f, ops_read in (
        (lambda m, x: torch.add(x, m.v, alpha=0.1), ["Divide", "Shift", "Scale"]),
        (lambda m, x: torch.sub(x, m.v, alpha=3), ["Divide", "Shift", "Scale"]),
        (lambda m, x: torch.add(x, m.v, alpha=0.25), ["Shift"]),
        (lambda m, x: torch.sub(x, m.v), ["Shift"]),
        (lambda m, x: torch.add(x, m.v, alpha=0), ["Shift"]),
        (lambda m, x: torch.add(x, m.v * 0 + 2**-149, alpha=0.5), ["Divide", "Shift", "Scale"]),
    ):
        module = Calls(f, v=v)
        net = read_module(module, (4,))
        assert [n.op.name for n in net.nodes[1:]] == ops_read
        must_be_the_module_in_float64(net, module, 1e-7)


# --- modules of all kinds


class Hooked(nn.Linear):
    def __init__(self) -> None:
        super().__init__(3, 3)
        self.register_forward_hook(lambda m, args, y: y * 2)
        self.register_forward_pre_hook(lambda m, args: (args[0] + 1,))


def old_weight_norm() -> nn.Module:
    with pytest.warns(FutureWarning):
        return nn.utils.weight_norm(nn.Linear(3, 2))


class Plain(nn.Module):
    """A tensor that is neither parameter nor buffer, and never changes its type."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.table = nn.Linear(3, 3), torch.randn(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) @ self.table


KINDS: dict[str, tuple[Callable[[], nn.Module], str | None]] = {
    "hooks": (lambda: nn.Sequential(Hooked(), nn.ReLU()), None),
    "old weight norm": (old_weight_norm, "refused"),
    "dropout in training": (lambda: nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.9), nn.BatchNorm1d(4)).train(), None),
    "shared": (lambda: (lambda l: nn.Sequential(l, nn.Tanh(), l, nn.Tanh(), l))(nn.Linear(3, 3)), None),
    "views": (lambda: Calls(lambda m, x: m.layer(x)[:, 1:].unflatten(1, (1, 2))[:, 0], layer=nn.Linear(3, 3)), None),
    "a batch transposed and back": (lambda: Calls(lambda m, x: m.layer(x).t().t(), layer=nn.Linear(3, 3)), "refused"),
    "its input": (lambda: Calls(lambda m, x: x[:, :2]), None),
    "frozen": (lambda: nn.Linear(3, 2).requires_grad_(False), None),
    "a plain tensor": (Plain, None),
    "float at the start": (lambda: Calls(lambda m, x: m.layer(x.float()), layer=nn.Linear(3, 2)), None),
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_modules_of_all_kinds(name: str) -> None:
    make, outcome = KINDS[name]
    module = make()
    if outcome == "refused":
        with pytest.raises(UnsupportedError):
            load(module, (3,))
        return
    net = load(module, (3,))
    assert [("numbers in the code" in text) for text in compared(net)] == [False, *[True] * (outcome == "rounded")]
    assert "in float64" in compared(net)[0]
    x = torch.randn(4, 3)
    with torch.no_grad():
        torch.testing.assert_close(net(x), module.eval()(x), rtol=1e-5, atol=1e-5)


# --- saved programs


def saved(module: nn.Module, path: Path, shape: tuple[int, ...], batch: int | None) -> Path:
    x = torch.randn(batch or 2, *shape, dtype=next(iter(module.parameters())).dtype)
    dynamic: Any = ({0: torch.export.Dim("n")},) if batch is None else None
    torch.export.save(torch.export.export(module.eval(), (x,), dynamic_shapes=dynamic, strict=False), path / "m.pt2")
    return path / "m.pt2"


@pytest.mark.parametrize("batch", [None, 1, 2, 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_programs_are_compared_in_their_own_batches(batch: int | None, dtype: torch.dtype, tmp_path: Path) -> None:
    def f(m: Calls, x: Tensor) -> Tensor:
        return m.out(F.selu(m.layer(x)) * 0.1).sum(-1, keepdim=True) - x[:, :2]

    module = randomised(Calls(f, layer=nn.Linear(4, 9), out=nn.Linear(9, 257)), dtype)
    net = read_program(saved(module, tmp_path, (4,), batch))
    assert f"with the saved program in batches of {batch or '1, 2 and 3'} at" in compared(net)[0]
    must_be_the_module_in_float64(net, module, 1e-5 if dtype == torch.float32 else 1e-12)
    x = torch.randn(3, 4, dtype=torch.float64)
    net.must_agree(x)
    net.must_agree(x[:1])


def test_a_program_for_a_batch_of_one_is_what_it_was_exported_as(tmp_path: Path) -> None:
    module = randomised(Calls(lambda m, x: m.layer(x) if x.shape[0] > 1 else -m.layer(x), layer=nn.Linear(3, 2)))
    net = read_program(saved(module, tmp_path, (3,), 1))
    x = torch.randn(1, 3)
    with torch.no_grad():
        torch.testing.assert_close(net(x), module(x))


def test_inputs_of_a_fixed_batch_must_be_independent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = randomised(Calls(lambda m, x: m.layer(x) + x.flip(0)[:, :2], layer=nn.Linear(3, 2)))
    path = saved(module, tmp_path, (3,), 3)
    with pytest.raises(UnsupportedError, match=r"aten\.flip\.default.*from the batch(?s:.)*batches of 3 alone"):
        read_program(path)
    monkeypatch.setitem(aten.HANDLERS, torch.ops.aten.flip.default, lambda to, x, dims: x)
    guard = "elbowroom.readers.torch.guard._NodeByNode.compare"
    monkeypatch.setattr(guard, lambda self: torch.ones(len(self.rows)))
    with pytest.raises(UnsupportedError, match=r"saved program.*other inputs in its batch(?s:.)*batches of 3 alone"):
        read_program(path)
