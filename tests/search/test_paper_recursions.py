"""Our backward pass against the paper's forward recursions, written here plainly with explicit matrices M.

Errata of the paper's pseudo-code are corrected: the `simp` lines add the bias; in the general algorithm
the recursion for M includes h = j, phi sums to i, and the `quad` lines sum over all h <= i with M^(l -> i+1).
"""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from elbowroom.network import operations as ops
from elbowroom.network.graph import Graph, Network
from elbowroom.search.bounds.methods import method_named
from elbowroom.search.bounds.propagate import Propagation
from elbowroom.search.regions.input_set import InputSet
from support import KINDS, METHODS, Builder, cases, normal, random_region


def lines_of_relu(l: Tensor, u: Tensor) -> Any:
    """k, m_1, m_2 of section 3.1."""
    width = torch.where(u > l, u - l, 1.0)
    crossing = (l < 0) & (u > 0)
    k = torch.where(crossing, u / width, (l >= 0).double())
    return k, torch.zeros_like(l), torch.where(crossing, -u * l / width, 0.0)


def lines_of_tanh(l: Tensor, u: Tensor) -> Any:
    """The chord's slope, and the extremes of tanh(x) - k x at the ends and at the points of that slope inside."""
    k = (u.tanh() - l.tanh()) / (u - l)
    turn = torch.atanh((1 - k).clamp_min(0).sqrt())
    points = torch.stack([l, u, turn.clamp(l, u), (-turn).clamp(l, u)])
    gaps = points.tanh() - k * points
    return k, gaps.amin(0), gaps.amax(0)


ACTIVATIONS = {"relu": (ops.ReLU(), torch.relu, lines_of_relu), "tanh": (ops.Tanh(), torch.tanh, lines_of_tanh)}


def positive(m: Any) -> Any:
    return m.clamp_min(0)


def negative(m: Any) -> Any:
    return m.clamp_max(0)


def norm_term(m: Any, eps: Any, p: Any) -> Any:
    """The largest `M m^(1)` over the set, per row: the dual norm."""
    dual = {math.inf: 1, 2: 2, 1: math.inf}[p]
    return torch.linalg.vector_norm(m * eps, ord=dual, dim=1)


# ---------------------------------------------------------------------------------------------------------------
# Algorithms 1 and 3, for chains


def papers_algorithm(weights: Any, biases: Any, x: Tensor, eps: Any, p: Any, activation: Any, combined: Any) -> Any:
    """Bounds `l^(i), u^(i)` of every layer of one input."""
    _, sigma, lines = ACTIVATIONS[activation]
    first = norm_term(weights[0], eps, p)
    phi = weights[0] @ x + biases[0]
    bounds = [(phi - first, phi + first)]
    m_matrices = [weights[0]]
    intercepts = [None]
    for w, b in zip(weights[1:], biases[1:]):
        l, u = bounds[-1]
        k, m1, m2 = lines(l, u)
        intercepts.append((m1, m2))
        m_matrices = [w @ torch.diag(k) @ m for m in m_matrices] + [w]
        phi = w @ (k * phi) + b
        extent = norm_term(m_matrices[0], eps, p)
        low, high = phi - extent, phi + extent
        for m, (m1, m2) in zip(m_matrices[1:], intercepts[1:]):
            low = low + negative(m) @ m2 + positive(m) @ m1
            high = high + negative(m) @ m1 + positive(m) @ m2
        if combined:
            low = torch.maximum(low, positive(w) @ sigma(l) + negative(w) @ sigma(u) + b)
            high = torch.minimum(high, negative(w) @ sigma(l) + positive(w) @ sigma(u) + b)
        bounds.append((low, high))
    return bounds


def chain(rng: np.random.Generator, sizes: Any, activation: Any) -> Any:
    weights = [normal(rng, m, n) * (1.5 / math.sqrt(n)) for n, m in pairwise(sizes)]
    biases = [0.4 * normal(rng, m) for m in sizes[1:]]
    layers = []
    for w, b in zip(weights, biases):
        layers += [ops.Linear(w, b), ACTIVATIONS[activation][0]]
    return weights, biases, Network.chain((sizes[0],), layers[:-1])


sizes = st.lists(st.integers(1, 7), min_size=3, max_size=6)


@cases(4)
@given(
    st.integers(0, 2**32 - 1), sizes, st.sampled_from(list(ACTIVATIONS)), st.booleans(),
    st.sampled_from([math.inf, 2, 1]), st.sampled_from([0.01, 0.1, 1.0]),
)  # fmt: skip
def test_backward_pass_is_the_papers_recursion(
    seed: int, sizes: Any, activation: str, combined: bool, p: Any, scale: float
) -> None:
    rng = np.random.default_rng(seed)
    weights, biases, net = chain(rng, sizes, activation)
    center = normal(rng, 2, sizes[0])
    radius = torch.from_numpy(rng.uniform(0.1, 1, (2, sizes[0]))) * scale
    found = Propagation(net, InputSet(center, radius, p), method_named("combined" if combined else "quadratic"))
    for i in range(2):
        expected = papers_algorithm(weights, biases, center[i], radius[i], p, activation, combined)
        for layer, (low, high) in enumerate(expected):
            node = 1 + 2 * layer
            size = float(torch.maximum(low.abs(), high.abs()).max()) + 1
            assert float((found.lower[node][i] - low).abs().max()) <= 1e-12 * size
            assert float((found.upper[node][i] - high).abs().max()) <= 1e-12 * size


# ---------------------------------------------------------------------------------------------------------------
# Appendix D, for general graphs


def papers_general_algorithm(weights: Any, biases: Any, x: Tensor, eps: Any, activation: Any, combined: Any) -> Any:
    """`weights[j, i]` leads from layer j to layer i; layer 1 is the input. Bounds of the layers 2 to N."""
    _, sigma, lines = ACTIVATIONS[activation]
    last = max(biases)
    d = {1: torch.ones_like(x)}
    m1, m2 = {1: -eps}, {1: eps}
    phi = {1: x}
    bounds = {1: (x - eps, x + eps)}
    composite = {(i, i): torch.eye(len(b), dtype=torch.float64) for i, b in biases.items()}
    for i in range(2, last + 1):
        for j in range(2, i):
            steps = [weights[h, i] @ torch.diag(d[h]) @ composite[j, h] for h in range(j, i) if (h, i) in weights]
            composite[j, i] = sum(steps, torch.zeros(len(biases[i]), len(biases[j]), dtype=torch.float64))
        phi[i] = sum(weights[j, i] @ (d[j] * phi[j]) for j in range(1, i) if (j, i) in weights) + biases[i]
        low = high = phi[i]
        for h in range(1, i):
            m = sum(composite[l, i] @ weights[h, l] for l in range(h + 1, i + 1) if (h, l) in weights)
            low = low + positive(m) @ m1[h] + negative(m) @ m2[h]
            high = high + negative(m) @ m1[h] + positive(m) @ m2[h]
        if combined:
            simple_low = simple_high = biases[i]
            for j in range(1, i):
                if (j, i) in weights:
                    l, u = bounds[j] if j == 1 else (sigma(bounds[j][0]), sigma(bounds[j][1]))
                    simple_low = simple_low + positive(weights[j, i]) @ l + negative(weights[j, i]) @ u
                    simple_high = simple_high + negative(weights[j, i]) @ l + positive(weights[j, i]) @ u
            low, high = torch.maximum(low, simple_low), torch.minimum(high, simple_high)
        bounds[i] = low, high
        d[i], m1[i], m2[i] = lines(low, high)
    return bounds


def general_network(weights: Any, biases: Any, n_inputs: Any, activation: Any, dense: Any) -> Any:
    """Every layer as a sum of linear maps (residual), or as one linear map of all it sees side by side (dense)."""
    graph = Graph((n_inputs,))
    after = {1: graph.input}
    before = {}
    for i in range(2, max(biases) + 1):
        sources = [j for j in range(1, i) if (j, i) in weights]
        if dense:
            seen = graph.add(ops.Concat(), *(after[j] for j in sources)) if len(sources) > 1 else after[sources[0]]
            before[i] = graph.add(ops.Linear(torch.cat([weights[j, i] for j in sources], 1), biases[i]), seen)
        else:
            before[i] = graph.add(ops.Linear(weights[sources[0], i], biases[i]), after[sources[0]])
            for j in sources[1:]:
                before[i] = graph.add(ops.Add(), before[i], graph.add(ops.Linear(weights[j, i]), after[j]))
        if i < max(biases):
            after[i] = graph.add(ACTIVATIONS[activation][0], before[i])
    return graph, before


@cases(4)
@given(
    st.integers(0, 2**32 - 1), st.lists(st.integers(1, 5), min_size=4, max_size=6), st.sampled_from(list(ACTIVATIONS)),
    st.booleans(), st.booleans(), st.sampled_from([0.01, 0.2, 1.0]),
)  # fmt: skip
def test_graphs_with_skips_follow_appendix_d(
    seed: int, sizes: Any, activation: str, combined: bool, dense: bool, scale: float
) -> None:
    rng = np.random.default_rng(seed)
    size = dict(enumerate(sizes, 1))
    edges = [(j, i) for i in size for j in range(1, i) if j == i - 1 or rng.random() < 0.6]
    weights = {(j, i): normal(rng, size[i], size[j]) * (1.2 / math.sqrt(size[j])) for j, i in edges}
    biases = {i: 0.4 * normal(rng, n) for i, n in size.items() if i > 1}
    graph, before = general_network(weights, biases, size[1], activation, dense)
    net = graph.network(before[len(sizes)])
    assert len(net.nodes) == len(graph.nodes)  # nothing was dropped, so numbers still hold
    center, radius = normal(rng, 2, size[1]), torch.from_numpy(rng.uniform(0.1, 1, (2, size[1]))) * scale
    found = Propagation(net, InputSet(center, radius), method_named("combined" if combined else "quadratic"))
    for b in range(2):
        expected = papers_general_algorithm(weights, biases, center[b], radius[b], activation, combined)
        for i, node in before.items():
            low, high = expected[i]
            allowed = 1e-12 * (float(torch.maximum(low.abs(), high.abs()).max()) + 1)
            assert float((found.lower[node][b] - low).abs().max()) <= allowed
            assert float((found.upper[node][b] - high).abs().max()) <= allowed


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("combined", [False, True])
def test_without_skips_the_papers_two_algorithms_agree(activation: str, combined: bool) -> None:
    """A test of the tests: appendix D without skips is Algorithm 1."""
    rng = np.random.default_rng(11)
    weights, biases, _ = chain(rng, [3, 5, 4, 2], activation)
    x, eps = normal(rng, 3), torch.tensor([0.1, 0.2, 0.05], dtype=torch.float64)
    plain = papers_algorithm(weights, biases, x, eps, math.inf, activation, combined)
    edges = {(i, i + 1): w for i, w in enumerate(weights, 1)}
    general = papers_general_algorithm(edges, dict(enumerate(biases, 2)), x, eps, activation, combined)
    for i, (low, high) in enumerate(plain, 2):
        torch.testing.assert_close(general[i][0], low, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(general[i][1], high, rtol=1e-12, atol=1e-12)


# ---------------------------------------------------------------------------------------------------------------
# Any affine operation is a matrix

AFFINE_BLOCKS = (
    "conv", "conv", "average pool", "batch norm", "transpose", "slice", "pad", "mean", "scale", "divide", "shift",
    "linear",
)  # fmt: skip


def as_matrices(net: Network) -> Any:
    """The same network on flat vectors, every affine operation written as one dense matrix."""
    graph = Graph((net.n_inputs,))
    at = graph.input
    for node in net.nodes[1:]:
        if isinstance(node.op, ops.Affine):
            shape = net.nodes[node.inputs[0]].shape
            n = math.prod(shape)
            offset = node.op(torch.zeros(1, *shape, dtype=torch.float64)).flatten()
            columns = node.op(torch.eye(n, dtype=torch.float64).reshape(n, *shape)).flatten(1) - offset
            at = graph.add(ops.Linear(columns.T.contiguous(), offset), at)
        else:
            at = graph.add(node.op, at)
    return graph.network(at)


@cases(4)
@given(
    st.integers(0, 2**32 - 1), st.sampled_from([(1, 7), (2, 6), (1, 5, 5), (2, 4, 5)]),
    st.lists(st.sampled_from(AFFINE_BLOCKS), min_size=2, max_size=5), st.sampled_from(METHODS), st.sampled_from(KINDS),
)  # fmt: skip
def test_convolutions_and_the_like_equal_dense_matrices(
    seed: int, shape: tuple[int, ...], blocks: Any, method: str, kind: Any
) -> None:
    rng = np.random.default_rng(seed)
    builder = Builder(rng, shape, "plain")
    for block in blocks:
        builder.block(block)
        builder.add(ops.ReLU() if rng.random() < 0.5 else ops.Sigmoid())
    net = builder.network(3)
    dense = as_matrices(net)
    inputs = random_region(rng, shape, kind, batch=2, scale=0.2).inputs
    flat = InputSet(inputs.center.flatten(1), inputs.radius.flatten(1), inputs.p, inputs.basis)
    ours = Propagation(net, inputs, method_named(method))
    theirs = Propagation(dense, flat, method_named(method))
    for i in range(len(net.nodes)):
        size = float(theirs.upper[i].abs().max() + theirs.lower[i].abs().max()) + 1
        assert float((ours.lower[i].flatten(1) - theirs.lower[i]).abs().max()) <= 1e-12 * size
        assert float((ours.upper[i].flatten(1) - theirs.upper[i]).abs().max()) <= 1e-12 * size
