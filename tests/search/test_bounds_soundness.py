"""No point of a set is ever outside the bounds: of any layer, by any method, on any network.

Beyond rounding, that is; `support.rounding` says how much is allowed.
"""

from typing import Any

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from elbowroom.claim.specification import Specification, label_stays, linear_specification
from elbowroom.network.graph import Network
from elbowroom.search.bounds.methods import method_named
from elbowroom.search.bounds.propagate import Propagation
from support import METHODS, ROUNDOFF, attack, cases, networks, normal, regions, rounding

SAMPLES = 12


def attacked(net: Network, region: Any, rng: np.random.Generator) -> Any:
    """Points that push every output, and a few neurons of other layers, up and down."""
    batch = len(region.inputs.center)
    targets = [(len(net.nodes) - 1, j) for j in range(net.n_outputs)]
    for i in rng.integers(1, len(net.nodes), 6):
        targets.append((int(i), int(rng.integers(net.nodes[i].size))))
    signs = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat_interleave(len(targets))
    start = region.unit_points(rng, 2 * len(targets))[-2 * len(targets) :]

    def objective(values: Any) -> Any:
        aims = [values[i].reshape(len(signs), batch, -1)[:, :, j] for i, j in targets * 2]
        return torch.stack([aim[k] for k, aim in enumerate(aims)]) * signs[:, None]

    return attack(net, region, start, objective)


def points_of(net: Network, region: Any, rng: np.random.Generator) -> Any:
    """`m x b x *input_shape` in float64: sampled, extreme and attacked points."""
    exact = net.cast(torch.float64)
    sampled = region.place(region.unit_points(rng, SAMPLES))
    points = torch.cat([sampled, attacked(exact, region, rng)])
    return points.reshape(*points.shape[:2], *net.input_shape)


def specification(net: Network, batch: Any, rng: np.random.Generator) -> Specification:
    if net.n_outputs > 1 and rng.random() < 0.5:
        return label_stays(torch.from_numpy(rng.integers(0, net.n_outputs, batch)), net.n_outputs, net.decision)
    return linear_specification(normal(rng, batch, 3, net.n_outputs), normal(rng, batch, 3))


@st.composite
def problems(draw: st.DrawFn, dtype: torch.dtype) -> Any:
    net = draw(networks())
    return net, draw(regions(net.input_shape, dtype)), draw(st.integers(0, 2**32 - 1), label="seed of the points")


def check(problem: Any, dtype: torch.dtype) -> None:
    net, region, seed = problem
    rng = np.random.default_rng(seed)
    points = points_of(net, region, rng)
    count, batch = points.shape[:2]
    exact = net.cast(torch.float64)
    values = [v.reshape(count, batch, *v.shape[1:]) for v in exact.values(points.flatten(0, 1))]
    spec = specification(net, batch, rng)
    sampled = torch.stack([spec.margins(v) for v in values[-1]])
    for method in METHODS:
        found = Propagation(net.cast(dtype), region.inputs, method_named(method))
        slack = rounding(net, found.lower, found.upper, dtype)
        for i, (low, high, value, allowed) in enumerate(zip(found.lower, found.upper, values, slack)):
            where = f"{method}, node {i} ({net.nodes[i].op.name})"
            assert bool((low <= high).all()), where
            assert bool((low.double() - allowed <= value).all()), f"{where}: below the lower bound"
            assert bool((value <= high.double() + allowed).all()), f"{where}: above the upper bound"
        cast = spec.cast(dtype, "cpu")
        allowed = (spec.rows.abs() @ slack[-1][..., None]).squeeze(-1) + 8 * ROUNDOFF[dtype] * spec.offset.abs()
        for margin in ("direct", "logits"):
            proved = found.margins(cast, margin).double()
            assert bool((proved - allowed <= sampled.amin(0)).all()), f"{method}, {margin} margin is not proved"


@cases(9)
@given(problems(torch.float64))
def test_no_point_is_outside_the_bounds(problem: Any) -> None:
    check(problem, torch.float64)


@cases(2)
@given(problems(torch.float32))
def test_no_point_is_outside_the_bounds_in_float32(problem: Any) -> None:
    check(problem, torch.float32)
