"""The two toy networks of the paper's appendix B, whose bounds are known in closed form."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from elbowroom.network.graph import Network
from elbowroom.network.operations import Linear, ReLU
from elbowroom.search.bounds.api import bounds

# The output's interval in units of a * b * eps. With CROWN's lines (lower slope 0 on [-c, c]) `adaptive` is exact too.
NETWORK_1 = {"simple": (0, 2), "quadratic": (-1, 2), "combined": (0, 2), "adaptive": (0, 2)}
NETWORK_2 = {"simple": (0, 4), "quadratic": (0, 2), "combined": (0, 2), "adaptive": (0, 2)}


def matrix(*rows: Any) -> Any:
    return torch.tensor(rows, dtype=torch.float64)


def network_1(a: Any, b: Any) -> Any:
    return Network.chain((2,), [Linear(matrix([a, -a])), ReLU(), Linear(matrix([b]))])


def network_2(a: Any, b: Any) -> Any:
    return Network.chain((2,), [Linear(matrix([a, -a], [-a, a])), ReLU(), Linear(matrix([b, b]))])


def output_interval(net: Network, x: Tensor, eps: Any, method: str) -> Any:
    point = torch.full((1, 2), x, dtype=torch.float64)
    found = bounds(net, point - eps, point + eps, method)
    return float(found.lower), float(found.upper)


BOTH = [pytest.param(network_1, NETWORK_1, id="network 1"), pytest.param(network_2, NETWORK_2, id="network 2")]


@pytest.mark.parametrize("method", NETWORK_1)
@pytest.mark.parametrize(("build", "expected"), BOTH)
@pytest.mark.parametrize(("a", "b", "eps"), [(1.0, 1.0, 0.5), (2.0, 0.25, 0.125), (0.5, 8.0, 2.0)])
def test_dyadic_numbers_give_the_exact_interval(
    build: Any, expected: Any, method: str, a: float, b: float, eps: float
) -> None:
    low, high = expected[method]
    assert output_interval(build(a, b), 4.0, eps, method) == (low * a * b * eps, high * a * b * eps)


positive = st.floats(1e-3, 1e3)


@pytest.mark.parametrize("method", NETWORK_1)
@pytest.mark.parametrize(("build", "expected"), BOTH)
@given(a=positive, b=positive, eps=positive)
def test_any_numbers_give_the_papers_interval(build: Any, expected: Any, method: str, a: Any, b: Any, eps: Any) -> None:
    # At the origin: x itself cancels, but x - eps and x + eps round.
    low, high = expected[method]
    found = output_interval(build(a, b), 0.0, eps, method)
    unit = a * b * eps
    assert abs(found[0] - low * unit) <= 1e-12 * unit
    assert abs(found[1] - high * unit) <= 1e-12 * unit


@pytest.mark.parametrize("method", NETWORK_1)
@pytest.mark.parametrize(("build", "expected"), BOTH)
@given(a=positive, b=positive, eps=positive, x=st.floats(0, 10))
def test_the_input_point_cancels(build: Any, expected: Any, method: str, a: Any, b: Any, eps: Any, x: float) -> None:
    low, high = expected[method]
    found = output_interval(build(a, b), x, eps, method)
    unit, allowed = a * b * eps, 1e-12 * a * b * (eps + x)
    assert abs(found[0] - low * unit) <= allowed
    assert abs(found[1] - high * unit) <= allowed
