"""`bounds` and `verify` as users call them: what comes back, and what is refused."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from elbowroom.claim.specification import label_in, label_stays, linear_specification, outputs_within
from elbowroom.errors import InputError
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network
from elbowroom.readers.load import load
from elbowroom.search.bounds.api import bounds
from elbowroom.search.regions.input_set import InputSet
from elbowroom.verify.box import verify
from support import METHODS, mlp

ZERO, ONE = np.zeros(3), np.ones(3)


@pytest.fixture
def net() -> Any:
    return mlp(np.random.default_rng(0), [3, 5, 4])


def test_bounds_have_every_layer_by_name(net: Network) -> None:
    found = bounds(net, ZERO, ONE)
    assert list(found.layers) == [n.name for n in net.nodes]
    assert found.lower.shape == found.upper.shape == (1, 4)
    last = found.layers[net.nodes[-1].name]
    assert last.lower is found.lower
    for node in net.nodes:
        assert found.layers[node.name].upper.shape == (1, *node.shape)
    with pytest.raises(TypeError):
        found.layers["input"] = None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bounds_have_the_inputs_precision(net: Network, dtype: torch.dtype) -> None:
    assert bounds(net, torch.zeros(3, dtype=dtype), torch.ones(3, dtype=dtype)).lower.dtype == dtype


def test_integers_are_numbers_too(net: Network) -> None:
    assert bool((bounds(net, [0, 0, 0], [1, 1, 1]).lower == bounds(net, ZERO, ONE).lower).all())


def test_pythons_numbers_are_not_rounded() -> None:
    """The box from 0.1 holds 0.1, where `x > 0.1` is false; from 0.1 rounded to float32 it would be proved."""
    net = Network.chain((1,), [ops.Linear(torch.ones(1, 1)), ops.Shift(torch.tensor([-0.1], dtype=torch.float64))])
    above = linear_specification(torch.ones(1, 1))
    assert not verify(net, [0.1], [0.3], spec=above)
    assert float(bounds(net, [0.1], [0.3]).lower) <= 0
    assert verify(net, [0.1 + 1e-12], [0.3], spec=above)
    big = 2**24 + 1
    assert bounds(net, [big], [big]).layers["input"].lower.item() == big


def test_a_set_may_be_given_in_place_of_corners(net: Network) -> None:
    box = bounds(net, ZERO, ONE)
    center = torch.full((1, 3), 0.5, dtype=torch.float64)
    torch.testing.assert_close(bounds(net, InputSet(center, center)).lower, box.lower)
    ball = bounds(net, InputSet(center, center, 2))
    assert bool((ball.lower >= box.lower - 1e-12).all())


@pytest.mark.parametrize("ask", [bounds, verify])
@pytest.mark.parametrize(
    ("lower", "upper", "message"),
    [
        (np.zeros(4), np.ones(4), r"lower must have shape \(3,\) or \(batch, 3\), got \(4,\)"),
        (ZERO, np.ones(4), r"upper must have shape \(3,\)"),
        (np.zeros((2, 3)), np.ones((4, 3)), r"lower has shape \(2, 3\), upper \(4, 3\)"),
        (np.zeros((1, 2, 3)), np.ones((1, 2, 3)), "lower must have shape"),
        (0.0, 1.0, "lower must have shape"),
        (ZERO * math.nan, ONE, "lower holds NaN or infinite values"),
        (ZERO, ONE * math.nan, "upper holds NaN or infinite values"),
        (ZERO, ONE * math.inf, "upper holds NaN or infinite values"),
        (ONE, ZERO, r"lower is above upper at 3 places, first at \[0, 0\]"),
        (ZERO, None, "a lower and an upper corner"),
    ],
)
def test_bad_boxes_are_refused(net: Network, ask: Any, lower: Tensor, upper: Tensor, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ask(net, lower, upper)


@pytest.mark.parametrize("ask", [bounds, verify])
def test_unknown_methods_are_refused(net: Network, ask: Any) -> None:
    with pytest.raises(InputError, match="unknown bounds 'crown'; choose one of adaptive, combined, quadratic, simple"):
        ask(net, ZERO, ONE, method="crown")


def test_unknown_margins_are_refused(net: Network) -> None:
    with pytest.raises(InputError, match='margin must be "direct" or "logits"'):
        verify(net, ZERO, ONE, margin="best")


@pytest.mark.parametrize("labels", [4, -1, [7]])
def test_labels_out_of_range_are_refused(net: Network, labels: int | list[int]) -> None:
    with pytest.raises(InputError, match=r"labels must lie in 0\.\.3"):
        verify(net, ZERO, ONE, labels)


def test_labels_that_are_no_labels_are_refused(net: Network) -> None:
    with pytest.raises(InputError, match="whole numbers"):
        verify(net, ZERO, ONE, 0.5)
    with pytest.raises(InputError, match="got 3 labels for 1 inputs"):
        verify(net, ZERO, ONE, [0, 1, 2])


def test_labels_and_specification_together_are_refused(net: Network) -> None:
    with pytest.raises(InputError, match="labels or spec, not both"):
        verify(net, ZERO, ONE, 0, spec=label_in([0, 1], 4))


def test_a_specification_of_other_outputs_is_refused(net: Network) -> None:
    with pytest.raises(InputError, match=r"rows of shape \(1, 10, 7\).* and 4 outputs"):
        verify(net, ZERO, ONE, spec=label_in([0, 1], 7))
    with pytest.raises(InputError, match=r"rows of shape \(3, 3, 4\).* for 1 inputs"):
        verify(net, ZERO, ONE, spec=label_stays(torch.tensor([0, 1, 2]), 4))


@pytest.mark.parametrize(
    ("center", "radius", "message"),
    [
        (torch.zeros(1, 4), torch.ones(1, 4), "shape"),
        (torch.zeros(1, 3), -torch.ones(1, 3), "radius"),
        (torch.zeros(1, 3), torch.ones(1, 3) * math.nan, "NaN"),
        (torch.ones(1, 3) * math.inf, torch.ones(1, 3), "infinite"),
    ],
)
def test_bad_sets_are_refused(net: Network, center: Tensor, radius: Tensor, message: str) -> None:
    with pytest.raises(InputError, match=message):
        bounds(net, InputSet(center, radius))


def test_a_single_output_needs_a_specification() -> None:
    net = mlp(np.random.default_rng(1), [3, 4, 1])
    with pytest.raises(InputError, match="spec="):
        verify(net, ZERO, ONE)
    high = float(bounds(net, ZERO, ONE, "adaptive").upper)
    below = linear_specification(torch.tensor([[-1.0]]), torch.tensor([high + 0.1]))
    assert verify(net, ZERO, ONE, spec=below)


def test_one_label_for_all(net: Network) -> None:
    found = verify(net, np.stack([ZERO, ZERO]), np.stack([ONE, ONE]), 2)
    assert found.labels.tolist() == [2, 2]


# ---------------------------------------------------------------------------------------------------------------
# Specifications


def outputs(*rows: Any) -> Any:
    return torch.tensor(rows, dtype=torch.float64)


def test_the_label_stays_where_it_wins() -> None:
    spec = label_stays(torch.tensor([1, 0]), 3)
    margins = spec.margins(outputs([1, 5, 2], [1, 5, 2]))
    assert margins.tolist() == [[4, 3], [-4, -1]]
    assert label_stays(torch.tensor([0]), 3, "min").margins(outputs([1, 5, 2])).tolist() == [[4, 1]]


def test_the_decision_stays_in_a_set_where_each_other_class_loses_to_a_member() -> None:
    spec = label_in([2, 0], 4)
    assert spec.margins(outputs([3, 1, 0, 2], [0, 1, 0.5, -1])).tolist() == [[2, 1], [-0.5, 1.5]]
    assert label_in([0], 3, "min").margins(outputs([1, 5, 2])).tolist() == [[4, 1]]


def test_outputs_stay_within_a_tolerance() -> None:
    spec = outputs_within(outputs([1, 2]), 0.5)
    assert bool((spec.margins(outputs([1.4, 1.6])) > 0).all())
    assert not bool((spec.margins(outputs([1.4, 2.6])) > 0).all())


@pytest.mark.parametrize("method", METHODS)
def test_groups_in_another_order_keep_their_margins(net: Network, method: str) -> None:
    from elbowroom.claim.specification import Specification

    rows = torch.eye(4, dtype=torch.float64)[None]
    plain = Specification(rows, torch.zeros(1, 4, dtype=torch.float64), torch.arange(4))
    shuffled = Specification(rows[:, [2, 0, 3, 1]], plain.offset, torch.tensor([2, 0, 3, 1]))
    a, b = (verify(net, ZERO, ONE, spec=s, method=method).margins for s in (plain, shuffled))
    torch.testing.assert_close(a, b)


def test_damaged_specifications_are_refused() -> None:
    from elbowroom.claim.specification import Specification

    with pytest.raises(InputError, match="without gaps"):
        Specification(torch.zeros(1, 2, 3), torch.zeros(1, 2), torch.tensor([0, 2]))
    with pytest.raises(InputError, match="one number per row"):
        Specification(torch.zeros(1, 2, 3), torch.zeros(1, 2), torch.tensor([0]))
    with pytest.raises(InputError, match="offsets"):
        Specification(torch.zeros(1, 2, 3), torch.zeros(1, 3), torch.tensor([0, 1]))
    with pytest.raises(InputError, match="do not fit together"):
        linear_specification(torch.zeros(2, 3, 4), torch.zeros(5, 3))
    with pytest.raises(InputError, match="must be positive"):
        outputs_within(outputs([1, 2]), 0.0)
    with pytest.raises(InputError, match="nothing to prove"):
        label_in([0, 1, 2], 3)
    with pytest.raises(InputError, match="must lie in"):
        label_in([3], 3)


def test_an_overflow_proves_nothing() -> None:
    layers = [ops.Linear(torch.full((2, 2), 1e200, dtype=torch.float64)), ops.ReLU()] * 3
    net = Network.chain((2,), layers[:-1])
    for method in METHODS:
        assert not verify(net, np.zeros(2), np.ones(2), 0, method=method)


def test_arrays_in_another_layout_are_refused_with_a_way_out() -> None:
    weight = torch.randn(2, 60, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    net = Network.chain((3, 4, 5), [ops.Reshape((60,)), ops.Linear(weight)])
    x = torch.rand(2, 4, 5, 3, dtype=torch.float64)
    for given in (x, x[0]):
        with pytest.raises(InputError, match=r"er\.load\(net, input_shape=\(4, 5, 3\)\) takes inputs of that layout"):
            bounds(net, given, given)
    found = bounds(load(net, input_shape=(4, 5, 3)), x, x)
    torch.testing.assert_close(found.lower, net(x.movedim(-1, 1)))
    with pytest.raises(InputError, match=r"got \(2, 60\)$"):
        bounds(net, x.flatten(1), x.flatten(1))
