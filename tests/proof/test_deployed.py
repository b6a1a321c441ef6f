"""The claim about execution in float32: no executed value leaves its bounds, whatever the order of the sums."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from elbowroom.certify.api import certify
from elbowroom.claim.specification import label_stays
from elbowroom.claim.stated import Stated
from elbowroom.errors import UnsupportedError
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network
from elbowroom.proof.kernel import float32 as deployed
from elbowroom.proof.kernel.float32 import Float32Noise
from elbowroom.proof.kernel.prove import prove
from elbowroom.proof.kernel.walk import StrictBounds
from proof.executed import KERNELS, flushing, in_onnxruntime
from support import ACTIVATIONS, FULL, cases, networks, normal

F32, F64 = torch.float32, torch.float64


def shuffled(net: Network, x: Tensor, rng: np.random.Generator) -> Tensor:
    """A chain of linear layers and activations in float32, each sum in a random order and in random pieces."""
    net = net.cast(F32)
    for node in net.nodes[1:]:
        if not isinstance(node.op, ops.Linear):
            x = node.op(x)
            continue
        order = torch.from_numpy(rng.permutation(x.shape[1]))
        first = bool(rng.random() < 0.5)  # the bias first or last
        total = node.op.bias.expand(len(x), -1).clone() if first else torch.zeros(len(x), node.size)
        for part in order.split(int(rng.integers(1, len(order) + 1))):
            subtotal = torch.zeros(len(x), node.size)
            for k in part:
                subtotal = subtotal + x[:, k, None] * node.op.weight[None, :, k]
            total = total + subtotal
        x = total if first else total + node.op.bias
    return x


def random_mlp(rng: np.random.Generator) -> Network:
    """Of zero to two hidden layers, with biases and weights that cancel: rounding matters."""
    sizes = [int(rng.integers(2, 7)), *(int(rng.integers(4, 13)) for _ in range(rng.integers(0, 3))), 3]
    size = 10.0 ** rng.uniform(0, 3)
    layers: list[ops.Operation] = []
    for n, m in pairwise(sizes):
        layers += [ops.Linear((normal(rng, m, n) * 1.5 / math.sqrt(n)).float(), (normal(rng, m) * size).float())]
        layers += [list(ACTIVATIONS.values())[rng.integers(len(ACTIVATIONS))] if rng.random() < 0.5 else ops.ReLU()]
    back = layers[-2]
    assert isinstance(back, ops.Linear) and back.bias is not None
    layers[-2] = ops.Linear(back.weight, (back.bias / size).float())
    return Network.chain((sizes[0],), layers[:-1])


def float32_points(rng: np.random.Generator, lower: Tensor, upper: Tensor, count: int) -> Tensor:
    """Float32 numbers between float64 corners, the outermost ones among them."""
    low, high = lower.float(), upper.float()
    low = torch.where(low.double() < lower, torch.nextafter(low, torch.full_like(low, torch.inf)), low)
    high = torch.where(high.double() > upper, torch.nextafter(high, torch.full_like(high, -torch.inf)), high)
    n = len(low)
    corners = torch.where(torch.from_numpy(rng.random((count // 2, n)) < 0.5), low, high)
    inside = low + torch.from_numpy(rng.random((count - count // 2, n))).float() * (high - low)
    return torch.cat([corners, torch.minimum(torch.maximum(inside, low), high)])


def test_executed_margins_are_never_below_the_proved_ones() -> None:
    count, points = (200, 4000) if FULL else (20, 2000)
    rng = np.random.default_rng(0)
    certified = crossed_without = 0
    for trial in range(count):
        net = random_mlp(rng)
        x = torch.from_numpy(rng.standard_normal((2, net.n_inputs))).float()
        certs = certify(net, x, deployed="float32", delta=0.0)
        spec = label_stays(certs.labels, 3, net.decision).cast(F64, "cpu")
        for b, status in enumerate(certs.status):
            if status != "certified":
                continue
            certified += 1
            lower, upper = certs.lower[b], certs.upper[b]
            inside = float32_points(rng, lower, upper, points)
            assert ((inside.double() >= lower) & (inside.double() <= upper)).all()
            executed = [net.cast(F32)(inside), shuffled(net, inside[:300], rng), shuffled(net, inside[:300], rng)]
            executed.append(in_onnxruntime(net, inside))
            part = spec.part(torch.tensor([b]))
            plain = prove(net, Stated(lower[None], upper[None]), part.rows, part.offset, part.group)[0]
            for z in executed:
                assert (net.decide(z) == certs.labels[b]).all(), trial
                margins = part.margins(z.double())
                assert (margins >= certs.margins[b]).all(), (trial, net)
                crossed_without += int((margins < plain).any())
    print(f"{certified} regions of {2 * count}; {crossed_without} runs are below what real arithmetic proves")
    assert certified > count
    assert crossed_without > 0  # without the errors of execution the claim would be false


@pytest.mark.parametrize("flush", [False, True])
def test_every_executed_node_stays_within_its_bounds(flush: bool) -> None:
    @cases(3.0)
    @given(networks(), st.integers(0, 2**32 - 1), st.sampled_from([1.0, 1e-20, 1e-37, 1e4]), st.booleans())
    def check(net: Network, seed: int, size: float, parallel: bool) -> None:
        net32 = net.cast(F32)
        net64 = net32.cast(F64)
        rng = np.random.default_rng(seed)
        centre = normal(rng, net.n_inputs) * size
        lower, upper = centre - 1e-3 * size, centre + 1e-3 * size
        try:
            deployed.refuse_unfit(net64)
        except UnsupportedError:
            return
        bounds = StrictBounds(net64, Stated(lower[None], upper[None]), parallel, Float32Noise(net64))
        x = float32_points(rng, lower, upper, 40).reshape(-1, *net.input_shape)
        torch.set_flush_denormal(flush)
        try:
            executed = net32.values(x)
        finally:
            torch.set_flush_denormal(False)
        for i, value in enumerate(executed):
            wide = value.double()
            assert ((wide >= bounds.lower[i]) & (wide <= bounds.upper[i]) | ~torch.isfinite(bounds.upper[i])).all(), i

    check()


def test_a_label_that_float32_changes_is_not_certified() -> None:
    """(1e8 x + 1) - 1e8 x is 1, but 0 in float32."""
    first = ops.Linear(torch.tensor([[1e8], [1e8]]), torch.tensor([1.0, 0.0]))
    net = Network.chain((1,), [first, ops.Linear(torch.tensor([[1.0, -1.0], [0.0, 0.0]]), torch.tensor([-0.5, 0.0]))])
    x = torch.tensor([[1.0]])
    assert int(net.decide(net.cast(F64)(x.double()))) == 0 and int(net.decide(net(x))) == 1
    assert int(net.decide(in_onnxruntime(net, x))) == 1
    area = Stated(x.double() - 1e-3, x.double() + 1e-3)
    task = (torch.tensor([[[1.0, -1.0]]]), torch.zeros(1, 1), torch.tensor([0]))
    assert float(prove(net, area, *task)) > 0.49
    assert float(prove(net, area, *task, deployed="float32")) < -0.5
    assert certify(net, x, labels=[0], deployed="float32").status[0] == "not_certified"


def test_networks_outside_the_model_are_refused_by_name() -> None:
    third = torch.tensor([[1 / 3]], dtype=F64)
    both = torch.cat([third, -third])
    one = torch.ones(1, dtype=F64)
    bad: list[tuple[list[ops.Operation], str]] = [
        ([ops.Linear(third), ops.ReLU(), ops.Linear(both.float(), both[:, 0])], r"linear_1: weight.*; linear_3: bias"),
        ([ops.LeakyReLU(1e300)], "leakyrelu_1: slope"),
        ([ops.ELU(1e39)], "elu_1: alpha"),
        ([ops.Softplus(1e-40)], "softplus_1: beta"),
        ([ops.Clip(0.0, 1e39)], "clip_1: high"),
        ([ops.Reshape((1, 1)), ops.BatchNorm(one, one * 0, eps=1e-40), ops.Reshape((1,))], "batchnorm_2: the variance"),
    ]
    for layers, message in bad:
        net = Network.chain((1,), layers)
        with pytest.raises(UnsupportedError, match=message):
            prove(
                net,
                Stated(one[None], one[None]),
                torch.ones(1, 1, net.n_outputs),
                one[None],
                torch.tensor([0]),
                deployed="float32",
            )
        if "linear" in message:
            with pytest.raises(UnsupportedError, match=message):
                certify(net, torch.ones(1, 1), deployed="float32", labels=[0])


OVERFLOWING = {
    "product": [ops.Linear(torch.tensor([[1e30]])), ops.Linear(torch.tensor([[1e10]]))],
    "average": [
        ops.Linear(torch.full((4, 1), 1.5e38)),
        ops.Reshape((1, 4)),
        ops.AvgPool((4,), (4,)),
        ops.Reshape((1,)),
    ],
    "mean": [ops.Linear(torch.full((4, 1), 1.5e38)), ops.Mean((0,), keepdim=True)],
    "batch norm": [
        ops.Reshape((1, 1)),
        ops.BatchNorm(torch.full((1,), -1e30), torch.zeros(1), torch.full((1,), 1e-20), eps=1e-20),
        ops.Reshape((1,)),
    ],
}


@pytest.mark.parametrize("name", OVERFLOWING)
def test_overflow_in_float32_is_not_certified(name: str) -> None:
    """A number in float64, infinity on the way in float32."""
    net = Network.chain((1,), [*OVERFLOWING[name], ops.Clip()])
    one, zero = torch.ones(1, 1, dtype=F64), torch.zeros(1, 1, dtype=F64)
    assert float(prove(net, Stated(one, one), one[None], zero, torch.tensor([0]))) > 0.99
    assert float(prove(net, Stated(one, one), one[None], zero, torch.tensor([0]), deployed="float32")) <= -1.0


CURVED = {n: a for n, a in ACTIVATIONS.items() if deployed.ANALYSES[type(a)] is deployed._curved} | {
    "tall elu": ops.ELU(100.0),
    "blunt softplus": ops.Softplus(1e-3),
    "very blunt softplus": ops.Softplus(1e-25),
    "very sharp softplus": ops.Softplus(50.0),
}


@pytest.mark.parametrize("name", CURVED)
def test_float32_activations_are_within_half_of_their_stated_error(name: str) -> None:
    """Over all of float32's range, with and without flushing; the other half is room for other machines' kernels."""
    op = CURVED[name]
    net = Network.chain((1,), [op])
    far = [*np.logspace(-45, 38.5, 4000), 0.0, torch.finfo(F32).max]
    grid = np.concatenate([np.linspace(-30, 30, 60001), np.linspace(-120, 120, 30001), far, np.negative(far)])
    x = torch.from_numpy(np.unique(grid.astype(np.float32)))[:, None]
    exact = op(x.double())
    allowed = Float32Noise(net)(1, [x.double().abs()], exact.abs())
    claimed = torch.isfinite(allowed)
    assert bool(claimed[x.abs() < 1e10].all())
    x, exact, allowed = x[claimed][:, None], exact[claimed][:, None], allowed[claimed][:, None]
    for flush in (False, True):
        with flushing(flush):
            results = [kernel(x) for kernel in (op, *KERNELS[type(op)](op))]
        for z in [*results, in_onnxruntime(net, x, flush)]:
            share = (z.double() - exact).abs() / allowed
            assert float(share.max()) < 0.5, (name, flush, float(x[share.argmax()]))
