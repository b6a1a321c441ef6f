"""The forward gradient against reverse mode, bounds against the propagation they are supposed to repeat."""

from typing import Any

import pytest
import torch

from elbowroom.errors import InputError, UnsupportedError
from elbowroom.network import operations as ops
from elbowroom.network.graph import Graph, Network
from elbowroom.search.bounds.forward_gradient import forward_gradient
from elbowroom.search.bounds.methods import METHODS
from elbowroom.search.bounds.propagate import Propagation
from elbowroom.search.regions.input_set import InputSet

ACTIVATIONS = [
    ops.ReLU(),
    ops.LeakyReLU(0.2),
    ops.LeakyReLU(torch.tensor([0.0, 0.1, 0.3, 0.5, 0.7, 1.5])),
    ops.Clip(-0.5, 0.75),
    ops.Sigmoid(),
    ops.Tanh(),
    ops.Arctan(),
    ops.ELU(),
    ops.ELU(1.7),
    ops.Softplus(2.0),
    ops.SiLU(),
    ops.GELU(),
    ops.GELU(tanh=True),
]
NAMED = pytest.mark.parametrize("op", ACTIVATIONS, ids=lambda op: f"{op.name}-{ACTIVATIONS.index(op)}")
METHOD = pytest.mark.parametrize("method", ["simple", "quadratic", "combined"])


def linear(n_out: int, n_in: int, generator: torch.Generator) -> ops.Linear:
    draw = {"generator": generator, "dtype": torch.float64}
    return ops.Linear(torch.randn(n_out, n_in, **draw) * (2 / n_in) ** 0.5, torch.randn(n_out, **draw) * 0.3)


def chain(op: ops.Activation, seed: int = 0) -> Network:
    g = torch.Generator().manual_seed(seed)
    layers = [linear(6, 5, g), op, linear(6, 6, g), op, linear(6, 6, g), op, linear(3, 6, g)]
    return Network.chain((5,), layers)


def box(shape: tuple[int, ...], seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(100 + seed)
    center = torch.randn(*shape, generator=g, dtype=torch.float64)
    width = torch.tensor([0.03, 0.2, 1.0], dtype=torch.float64)[: shape[0]].reshape(-1, *[1] * (len(shape) - 1))
    return center, width * torch.rand(*shape, generator=g, dtype=torch.float64)


def by_reverse_mode(
    net: Network, center: torch.Tensor, eps: torch.Tensor, method: str
) -> dict[str, list[torch.Tensor]]:
    """Per layer: lower, upper, and their full Jacobians (`b x n_i x n_1`) by autograd."""
    eps = eps.clone().requires_grad_()
    found = Propagation(net, InputSet(center, eps), METHODS[method])
    out = {}
    for i in {*net.preactivations, len(net.nodes) - 1}:
        ends = [found.lower[i].flatten(1), found.upper[i].flatten(1)]
        jacobians = [
            torch.stack(
                [
                    torch.autograd.grad(end[:, k].sum(), eps, retain_graph=True)[0].flatten(1)
                    for k in range(end.shape[1])
                ],
                1,
            )
            for end in ends
        ]
        out[net.nodes[i].name] = [end.detach() for end in ends] + jacobians
    return out


def assert_same(net: Network, center: torch.Tensor, eps: torch.Tensor, method: str, chunk: int) -> None:
    expected = by_reverse_mode(net, center, eps, method)
    found = forward_gradient(net, center, eps, method, chunk=chunk)
    assert found.layers.keys() == expected.keys()
    for name, values in expected.items():
        for quantity, a, e in zip(found.layers[name]._fields, found.layers[name], values):
            torch.testing.assert_close(a, e, rtol=1e-9, atol=1e-11, msg=lambda m: f"{name}.{quantity}: {m}")  # noqa: B023
    last = found.layers[net.nodes[-1].name]
    assert all(a is b for a, b in zip(last, (found.lower, found.upper, found.lower_gradient, found.upper_gradient)))


@NAMED
@METHOD
@pytest.mark.parametrize("seed", range(3))
def test_equals_reverse_mode(op: Any, method: str, seed: int) -> None:
    assert_same(chain(op, seed), *box((3, 5), seed), method, chunk=2)


@METHOD
def test_affine_operations_of_other_kinds(method: str) -> None:
    g = torch.Generator().manual_seed(3)
    draw = {"generator": g, "dtype": torch.float64}
    layers = [
        ops.Shift(torch.randn(1, 4, 4, **draw)),
        ops.Conv(torch.randn(2, 1, 3, 3, **draw), torch.randn(2, **draw), padding=(1,)),
        ops.BatchNorm(torch.randn(2, **draw), torch.rand(2, **draw) + 0.5),
        ops.ReLU(),
        ops.AvgPool((2, 2), (2, 2)),
        ops.Reshape((8,)),
        linear(5, 8, g),
        linear(5, 5, g),  # two in a row: intervals are taken one operation at a time
        ops.Tanh(),
        ops.Sigmoid(),  # and two activations in a row
        linear(3, 5, g),
        ops.SiLU(),  # which may also come last
    ]
    assert_same(Network.chain((1, 4, 4), layers), *box((2, 1, 4, 4)), method, chunk=5)


@METHOD
@pytest.mark.parametrize("first", [ops.Sigmoid(), ops.Scale(torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64))])
def test_first_layer_may_be_anything(method: str, first: Any) -> None:
    g = torch.Generator().manual_seed(4)
    assert_same(
        Network.chain((3,), [first, linear(4, 3, g), ops.ReLU(), linear(2, 4, g)]), *box((3, 3)), method, chunk=3
    )


@METHOD
def test_chunks_make_no_difference(method: str) -> None:
    net, (center, eps) = chain(ops.ReLU()), box((3, 5))
    whole = forward_gradient(net, center, eps, method, chunk=100)
    for chunk in (1, 2, 4, 5):
        part = forward_gradient(net, center, eps, method, chunk=chunk)
        for name, layer in whole.layers.items():
            for a, b in zip(part.layers[name], layer):
                torch.testing.assert_close(a, b, rtol=1e-13, atol=1e-14)


@METHOD
def test_agrees_with_differences(method: str) -> None:
    net, (center, eps) = chain(ops.ReLU(), 1), box((3, 5), 1)
    found, step = forward_gradient(net, center, eps, method), 1e-6
    for d in range(5):
        shift = step * torch.eye(5, dtype=torch.float64)[d]
        above, below = (forward_gradient(net, center, eps + s, method) for s in (shift, -shift))
        for end in ("lower", "upper"):
            slope = (getattr(above, end) - getattr(below, end)) / (2 * step)
            torch.testing.assert_close(getattr(found, f"{end}_gradient")[..., d], slope, rtol=1e-5, atol=1e-6)


def test_scalar_eps_and_single_input() -> None:
    net = chain(ops.ReLU())
    found = forward_gradient(net, torch.zeros(5, dtype=torch.float64), 0.1)
    assert found.lower.shape == (1, 3) and found.lower_gradient.shape == (1, 3, 5)
    assert bool((found.lower_gradient <= 1e-12).all()) and bool((found.upper_gradient >= -1e-12).all())


def test_refusals() -> None:
    weight = torch.eye(4)
    graph = Graph((4,))
    hidden = graph.add(ops.ReLU(), graph.add(ops.Linear(weight), graph.input))
    fork = graph.network(graph.add(ops.Add(), hidden, graph.input, name="skip"))
    with pytest.raises(UnsupportedError, match=r"skip \(Add\)"):
        forward_gradient(fork, torch.zeros(1, 4), 0.1)
    pooled = Network.chain((1, 4), [ops.MaxPool((2,), (2,)), ops.Reshape((-1,))])
    with pytest.raises(UnsupportedError, match="MaxPool"):
        forward_gradient(pooled, torch.zeros(1, 1, 4), 0.1)
    net = chain(ops.ReLU())
    with pytest.raises(InputError, match="adaptive"):
        forward_gradient(net, torch.zeros(1, 5), 0.1, "adaptive")
    with pytest.raises(InputError, match="chunk"):
        forward_gradient(net, torch.zeros(1, 5), 0.1, chunk=0)
    with pytest.raises(InputError, match="eps has shape"):
        forward_gradient(net, torch.zeros(2, 5), torch.zeros(3, 5))
    with pytest.raises(InputError, match="negative"):
        forward_gradient(net, torch.zeros(2, 5), -0.1)
