"""Cosines between the regions of all pairs of inputs."""

import math

import pytest
import torch

from elbowroom.analyse import cosine_similarity
from elbowroom.errors import InputError


@pytest.mark.parametrize("block", [1, 3, 7, 50, 1024])
def test_equals_the_full_matrix(block):
    eps = torch.rand(50, 4, 5, generator=torch.Generator().manual_seed(0))
    u = eps.flatten(1).double()
    u = u / u.norm(dim=1, keepdim=True)
    pairs = (u @ u.T)[tuple(torch.triu_indices(50, 50, 1))]
    mean, least = cosine_similarity(eps, block=block)
    assert mean == pytest.approx(float(pairs.mean()), abs=1e-13)
    assert least == pytest.approx(float(pairs.min()), abs=1e-13)


def test_known_cosines():
    assert cosine_similarity(torch.tensor([[1.0, 1.0], [3.0, 3.0]])) == pytest.approx((1, 1))
    assert cosine_similarity(torch.tensor([[1.0, 0.0], [0.0, 2.0]])) == (0, 0)
    mean, least = cosine_similarity(torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]))
    assert (mean, least) == (pytest.approx(2 * math.sqrt(0.5) / 3), 0)


def test_size_does_not_matter():
    eps = torch.rand(6, 9, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.1
    factors = torch.tensor([1e-200, 1e-3, 1, 10, 1e8, 1e200], dtype=torch.float64)[:, None]
    assert cosine_similarity(eps * factors) == pytest.approx(cosine_similarity(eps), abs=1e-12)


@pytest.mark.parametrize(
    "eps", [torch.ones(1, 3), torch.ones(3), torch.tensor([[1.0, 2.0], [0.0, 0.0]]), torch.full((2, 2), torch.nan)]
)
def test_what_has_no_direction_is_refused(eps):
    with pytest.raises(InputError):
        cosine_similarity(eps)
