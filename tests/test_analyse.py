"""Cosines between the regions of all pairs of inputs, their spectrum, the ranking of features, smoothness of maps."""

import math

import pytest
import torch

from elbowroom.analyse import correlation, cosine_similarity, feature_robustness, neighbour_correlation, spectrum
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


# --- the other things regions have in common


def test_spectrum_of_known_directions():
    collinear = spectrum(torch.tensor([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [0.5, 1.0, 1.5]]))
    assert (collinear.participation, collinear.entropy) == (pytest.approx(1), pytest.approx(1))
    assert collinear.needed(0.99) == 1
    apart = spectrum(torch.eye(5)[:4] * torch.tensor([[1.0], [10.0], [100.0], [1e-3]]))
    assert (apart.participation, apart.entropy) == (pytest.approx(4), pytest.approx(4))
    assert [apart.needed(s) for s in (0.25, 0.26, 0.75, 1.0)] == [1, 2, 3, 4]
    assert torch.allclose(apart.shares[:4], torch.full((4,), 0.25, dtype=torch.float64))


@pytest.mark.parametrize("shape", [(40, 3, 4), (9, 30)])
def test_spectrum_equals_the_singular_values(shape):
    eps = torch.rand(shape, generator=torch.Generator().manual_seed(2)) + 0.01
    u = eps.flatten(1).double()
    values = torch.linalg.svdvals(u / u.norm(dim=1, keepdim=True)).square()
    shares = values / values.sum()
    found = spectrum(eps)
    n = min(len(shares), len(found.shares))
    assert torch.allclose(found.shares[:n], shares[:n], atol=1e-12)
    assert found.participation == pytest.approx(1 / float(shares.square().sum()))
    assert found.shares[0] >= cosine_similarity(eps)[0]


def test_features_are_ranked_by_their_room():
    direction = torch.tensor([[4.0, 1.0], [0.5, 2.0]])
    sizes = torch.tensor([0.1, 1.0, 7.0])[:, None, None]
    found = feature_robustness(direction * sizes)
    assert torch.allclose(found.score, direction.double() / 2**0.5)  # 2^0.5: the geometric mean
    assert torch.allclose(found.spread, torch.ones(2, 2, dtype=torch.float64))
    assert found.order.tolist() == [2, 1, 3, 0]
    varied = feature_robustness(torch.tensor([[1.0, 1.0], [4.0, 1.0]]))
    assert varied.score.tolist() == pytest.approx([2**0.5, 2**-0.5])
    assert varied.spread.tolist() == pytest.approx([2**0.5, 2**0.5])
    with pytest.raises(InputError, match="frozen"):
        feature_robustness(torch.tensor([[1.0, 0.0], [1.0, 1.0]]))


def test_neighbours():
    generator = torch.Generator().manual_seed(3)
    noise = torch.rand(6, 40, 40, generator=generator)
    assert abs(neighbour_correlation(noise)) < 0.05
    ramp = torch.arange(20.0)[None, :, None] + torch.arange(30.0)
    assert neighbour_correlation(ramp) > 0.98
    board = (torch.arange(8)[:, None] + torch.arange(8)) % 2
    assert neighbour_correlation(board[None].float()) == pytest.approx(-1)
    assert neighbour_correlation(torch.stack([noise, noise], 1)) == pytest.approx(neighbour_correlation(noise))
    assert neighbour_correlation(torch.ones(1, 3, 3)) == 0
    with pytest.raises(InputError):
        neighbour_correlation(torch.ones(5, 5))


def test_correlation_row_by_row():
    a = torch.tensor([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [5.0, 5.0, 5.0]])
    assert correlation(a, torch.tensor([[2.0, 4.0, 6.0]])).tolist() == pytest.approx([1, 1, 0])
    assert correlation(a[:1], torch.tensor([[3.0, 2.0, 1.0]])).tolist() == pytest.approx([-1])
