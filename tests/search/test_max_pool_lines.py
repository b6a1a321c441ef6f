"""Lines and intervals of max-pooling over random windows."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from elbowroom.network import operations as ops
from elbowroom.network.graph import Graph, Network
from elbowroom.search.bounds.max_pool import MaxPooling, windows
from elbowroom.search.bounds.methods import method_named
from elbowroom.search.bounds.propagate import Propagation
from elbowroom.search.regions.input_set import InputSet
from support import METHODS, cases, lines_of


@st.composite
def pools(draw: st.DrawFn) -> Any:
    """A max-pooling that fits its input shape: any window, stride, padding and dilation torch accepts."""
    dims = draw(st.integers(1, 3))
    spatial = tuple(draw(st.integers(2, 7 if dims < 3 else 4)) for _ in range(dims))
    kernel = tuple(draw(st.integers(1, min(3, n))) for n in spatial)
    dilation = tuple(draw(st.integers(1, 2)) if 2 * (k - 1) < n else 1 for k, n in zip(kernel, spatial))
    padding = tuple(draw(st.integers(0, k // 2)) for k in kernel)
    stride = tuple(draw(st.integers(1, 3)) for _ in kernel)
    return ops.MaxPool(kernel, stride, padding, dilation, draw(st.booleans())), (draw(st.integers(1, 2)), *spatial)


def intervals(rng: np.random.Generator, shape: Any, width: Any, batch: int = 2) -> Any:
    center = torch.from_numpy(rng.standard_normal((batch, *shape)))
    radius = torch.from_numpy(rng.random((batch, *shape))) * width
    return center - radius, center + radius


def line_values(lines: Any, x: Tensor, z: Any, z_max: Any, slope: Any, intercept: Any) -> Any:
    """The line of every output at `x` (`m x b x *shape`)."""
    moved = (x - z).flatten(2).gather(2, lines.source.expand(len(x), -1, -1))
    return z_max + intercept + slope * moved.reshape(len(x), *intercept.shape)


@cases(4)
@given(pools(), st.integers(0, 2**32 - 1), st.sampled_from([0.0, 1e-3, 0.3, 3.0]), st.booleans())
def test_the_maximum_lies_between_its_lines(pool: Any, seed: int, width: float, parallel: bool) -> None:
    op, shape = pool
    rng = np.random.default_rng(seed)
    l, u = intervals(rng, shape, width)
    z = l + (u - l) * torch.from_numpy(rng.random(l.shape))
    out = op.output_shape(shape)
    lines = lines_of(op, l, u, z, parallel)
    share = torch.from_numpy(rng.random((40, *l.shape)))
    share[:20] = share[:20].round()  # corners
    x = torch.minimum(l + (u - l) * share, u)
    values = op(x.flatten(0, 1)).reshape(40, len(l), *out)
    below = line_values(lines, x, z, op(z), lines.lower_slope, lines.lower)
    above = line_values(lines, x, z, op(z), lines.upper_slope, lines.upper)
    assert bool((below <= values + 1e-13).all())
    assert bool((above >= values - 1e-13).all())
    low, high = MaxPooling().interval(op, [l], [u])
    assert bool((low == op(l)).all())
    assert bool((high == op(u)).all())


@cases(2)
@given(pools(), st.integers(0, 2**32 - 1), st.booleans())
def test_exact_where_one_input_dominates(pool: Any, seed: int, parallel: bool) -> None:
    """With widths below the distance of any two centres the maximum is one of its inputs."""
    op, shape = pool
    rng = np.random.default_rng(seed)
    center = torch.from_numpy(rng.permutation(int(np.prod(shape)) * 2)).double().reshape(2, *shape)
    radius = torch.from_numpy(rng.uniform(0, 0.5, (2, *shape)))
    l, u = center - radius, center + radius
    lines = lines_of(op, l, u, center, parallel)
    assert bool((lines.lower == 0).all())
    assert bool((lines.upper.abs() <= 1e-14).all())
    assert bool((lines.lower_slope == 1).all())
    assert bool((lines.upper_slope == 1).all())
    picked = center.flatten(1).gather(1, lines.source)
    assert bool((picked == op(center).flatten(1)).all())


@cases()
@given(pools())
def test_windows_are_those_of_torch(pool: Any) -> None:
    op, shape = pool
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((1, *shape)))
    padded = torch.cat([x.flatten(2), torch.full((1, shape[0], 1), -torch.inf, dtype=x.dtype)], -1)
    assert bool((padded[:, :, windows(op, shape, op.output_shape(shape))].amax(-1) == op(x).flatten(2)).all())


@pytest.mark.parametrize("method", METHODS)
def test_a_window_of_one_is_the_identity(method: str) -> None:
    net = Network.chain((1, 4), [ops.MaxPool((1,), (1,)), ops.Reshape((4,))])
    l, u = intervals(np.random.default_rng(1), (1, 4), 1.0)
    found = Propagation(net, InputSet.box(l, u), method_named(method))
    torch.testing.assert_close(found.lower[-1], l.flatten(1))
    torch.testing.assert_close(found.upper[-1], u.flatten(1))


def test_adaptive_lines_are_no_looser_than_parallel_ones() -> None:
    op = ops.MaxPool((2, 2), (1, 1))
    l, u = intervals(np.random.default_rng(2), (2, 5, 5), 1.0, batch=50)
    z = (l + u) / 2
    parallel, adaptive = (lines_of(op, l, u, z, p) for p in (True, False))
    ends = [
        line_values(lines, x[None], z, op(z), lines.upper_slope, lines.upper)
        for lines in (adaptive, parallel)
        for x in (l, u)
    ]
    assert bool((ends[0] <= ends[2] + 1e-14).all())
    assert bool((ends[1] <= ends[3] + 1e-14).all())


def pool_minus_input(n: int, k: Any) -> Any:
    """`max(x_1, ..., x_n) - x_k`: with lines of slope 1 through x_k what is left of the bound is its intercept."""
    graph = Graph((1, n))
    pooled = graph.add(ops.Reshape((1,)), graph.add(ops.MaxPool((n,), (n,)), graph.input))
    own = graph.add(ops.Reshape((1,)), graph.add(ops.Slice(1, k, k + 1), graph.input))
    return graph.network(graph.add(ops.Add((1.0, -1.0)), pooled, own))


@pytest.mark.parametrize("method", METHODS)
@cases()
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(2, 4), width=st.sampled_from([0.1, 1.0, 3.0]))
def test_a_maximum_minus_one_of_its_inputs(method: str, seed: int, n: int, width: float) -> None:
    rng = np.random.default_rng(seed)
    l, u = intervals(rng, (1, n), width)
    for k in range(n):
        others = [i for i in range(n) if i != k]
        exact_low = (l[:, 0, others].amax(1) - u[:, 0, k]).clamp_min(0)
        exact_high = (u[:, 0, others].amax(1) - l[:, 0, k]).clamp_min(0)
        found = Propagation(pool_minus_input(n, k), InputSet.box(l, u), method_named(method))
        assert bool((found.lower[-1][:, 0] <= exact_low + 1e-13).all())
        assert bool((found.upper[-1][:, 0] >= exact_high - 1e-13).all())
        if method in ("quadratic", "combined"):
            chosen = l[:, 0].argmax(1) == k
            torch.testing.assert_close(found.upper[-1][chosen, 0], exact_high[chosen], rtol=0, atol=1e-13)


def test_parallel_lines_are_parallel() -> None:
    op = ops.MaxPool((2, 2), (1, 1))
    l, u = intervals(np.random.default_rng(3), (1, 4, 4), 1.0)
    lines = lines_of(op, l, u, (l + u) / 2, True)
    assert bool((lines.lower_slope == lines.upper_slope).all())
