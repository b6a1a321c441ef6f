"""Features by their numbers: what `frozen=[0, 1]` and the like stand for, and that no mask is taken for a list."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from elbowroom.claim.space import Space, space_of
from elbowroom.errors import InputError
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network


def space(shape: tuple[int, ...] = (4,), **told: Any) -> Space:
    net = Network.chain(shape, [ops.Reshape((-1,)), ops.Linear(torch.ones(2, int(np.prod(shape))))])
    return space_of(net, torch.zeros(2, *shape, dtype=torch.float64), **told)


@pytest.mark.parametrize(
    "frozen", [[0, 2], (2, 0), range(0, 3, 2), np.array([0, 2]), torch.tensor([0, 2]), [np.int64(0), 2]]
)
def test_frozen_by_number(frozen: Any) -> None:
    assert space(frozen=frozen).free.tolist() == [[False, True, False, True]] * 2
    assert space((1, 2, 2), frozen=frozen).free.tolist() == [[False, True, False, True]] * 2


def test_one_number_and_a_column_of_numbers() -> None:
    """One number is that of a feature, as one name is one, and a column of pandas is what an array of its values is."""
    assert space(frozen=0).free.tolist() == space(frozen=np.int64(0)).free.tolist() == [[False, True, True, True]] * 2
    assert space(frozen=1).free.tolist() == [[True, False, True, True]] * 2
    pandas = pytest.importorskip("pandas")
    assert space(frozen=pandas.Series([0, 2])).free.tolist() == [[False, True, False, True]] * 2
    assert space(frozen=pandas.Series([True, False, True, False])).free.tolist() == [[False, True, False, True]] * 2
    with pytest.raises(InputError, match="every feature is frozen"):
        space(frozen=pandas.Series([3, 1, 2, 0]))


@pytest.mark.parametrize(
    "mask", [[True, False, True, False], np.array([True, False, True, False]), torch.tensor([1, 0, 1, 0]).bool()]
)
def test_masks_are_truth_values(mask: Any) -> None:
    assert space(frozen=mask).free.tolist() == [[False, True, False, True]] * 2


@pytest.mark.parametrize("mask", [[1, 0, 1, 0], [0, 0, 0, 1], np.array([1, 0, 1, 0]), torch.tensor([0, 1, 0, 0])])
def test_ones_and_zeros_are_not_taken_for_numbers_of_features(mask: Any) -> None:
    with pytest.raises(InputError, match="is listed twice; a mask has True and False, not 1 and 0"):
        space(frozen=mask)


def test_of_two_features_a_mask_of_numbers_would_freeze_both() -> None:
    for mask in ([0, 1], [1, 0]):
        with pytest.raises(InputError, match="every feature is frozen"):
            space((2,), frozen=mask)


def test_numbers_that_no_feature_has() -> None:
    for told in ({"frozen": [4]}, {"frozen": [-1]}, {"max_eps": {4: 1.0}}, {"domain": {-1: (0, 1)}}):
        with pytest.raises(InputError, match="the features have the numbers 0 to 3, not"):
            space(**told)


def test_mappings_by_number() -> None:
    found = space(max_eps={1: 2.0}, importance={3: 5.0}, domain={0: (-1, 1)})
    assert found.cap[0].tolist() == [torch.inf, 2.0, torch.inf, torch.inf]
    assert found.importance[0].tolist() == [1, 1, 1, 5]
    assert found.lowest[0].tolist() == [-1, -torch.inf, -torch.inf, -torch.inf]
    with pytest.raises(InputError, match=r"there is no feature True|features are named"):
        space(max_eps={True: 1.0})
