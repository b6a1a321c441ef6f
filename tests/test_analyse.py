"""Cosines between the regions of all pairs of inputs, their spectrum, the ranking of features, smoothness of maps."""

import dataclasses
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import elbowroom as er
from elbowroom.analyse import correlation, cosine_similarity, feature_robustness, neighbour_correlation, spectrum
from elbowroom.certificates.result import Certificates
from elbowroom.errors import InputError


@pytest.mark.parametrize("block", [1, 3, 7, 50, 1024])
def test_equals_the_full_matrix(block: int) -> None:
    eps = torch.rand(50, 4, 5, generator=torch.Generator().manual_seed(0))
    u = eps.flatten(1).double()
    u = u / u.norm(dim=1, keepdim=True)
    pairs = (u @ u.T)[tuple(torch.triu_indices(50, 50, 1))]
    mean, least = cosine_similarity(eps, block=block)
    assert mean == pytest.approx(float(pairs.mean()), abs=1e-13)
    assert least == pytest.approx(float(pairs.min()), abs=1e-13)


def test_known_cosines() -> None:
    assert cosine_similarity(torch.tensor([[1.0, 1.0], [3.0, 3.0]])) == pytest.approx((1, 1))
    assert cosine_similarity(torch.tensor([[1.0, 0.0], [0.0, 2.0]])) == (0, 0)
    mean, least = cosine_similarity(torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]))
    assert (mean, least) == (pytest.approx(2 * math.sqrt(0.5) / 3), 0)


def test_size_does_not_matter() -> None:
    eps = torch.rand(6, 9, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.1
    factors = torch.tensor([1e-200, 1e-3, 1, 10, 1e8, 1e200], dtype=torch.float64)[:, None]
    assert cosine_similarity(eps * factors) == pytest.approx(cosine_similarity(eps), abs=1e-12)


@pytest.mark.parametrize(
    "eps", [torch.ones(1, 3), torch.ones(3), torch.tensor([[1.0, 2.0], [0.0, 0.0]]), torch.full((2, 2), torch.nan)]
)
def test_what_has_no_direction_is_refused(eps: Tensor) -> None:
    with pytest.raises(InputError):
        cosine_similarity(eps)


# --- the other things regions have in common


def test_spectrum_of_known_directions() -> None:
    collinear = spectrum(torch.tensor([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [0.5, 1.0, 1.5]]))
    assert (collinear.participation, collinear.entropy) == (pytest.approx(1), pytest.approx(1))
    assert collinear.needed(0.99) == 1
    apart = spectrum(torch.eye(5)[:4] * torch.tensor([[1.0], [10.0], [100.0], [1e-3]]))
    assert (apart.participation, apart.entropy) == (pytest.approx(4), pytest.approx(4))
    assert [apart.needed(s) for s in (0.25, 0.26, 0.75, 1.0)] == [1, 2, 3, 4]
    assert torch.allclose(apart.shares[:4], torch.full((4,), 0.25, dtype=torch.float64))


@pytest.mark.parametrize("shape", [(40, 3, 4), (9, 30)])
def test_spectrum_equals_the_singular_values(shape: tuple[int, ...]) -> None:
    eps = torch.rand(shape, generator=torch.Generator().manual_seed(2)) + 0.01
    u = eps.flatten(1).double()
    values = torch.linalg.svdvals(u / u.norm(dim=1, keepdim=True)).square()
    shares = values / values.sum()
    found = spectrum(eps)
    n = min(len(shares), len(found.shares))
    assert torch.allclose(found.shares[:n], shares[:n], atol=1e-12)
    assert found.participation == pytest.approx(1 / float(shares.square().sum()))
    assert found.shares[0] >= cosine_similarity(eps)[0]


def test_features_are_ranked_by_their_room() -> None:
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


def test_neighbours() -> None:
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


def test_correlation_row_by_row() -> None:
    a = torch.tensor([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [5.0, 5.0, 5.0]])
    assert correlation(a, torch.tensor([[2.0, 4.0, 6.0]])).tolist() == pytest.approx([1, 1, 0])
    assert correlation(a[:1], torch.tensor([[3.0, 2.0, 1.0]])).tolist() == pytest.approx([-1])


# --- of certificates, as users see it


@pytest.fixture(scope="module")
def certs() -> Certificates:
    torch.manual_seed(0)
    net = er.load(nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3)), input_shape=(1, 4, 4))
    x = torch.rand(6, 1, 4, 4)
    labels = net(x).argmax(1)
    labels[2] = (labels[2] + 1) % 3  # which is not certified, and does not count
    return er.certify(net, x, labels)


def test_certificates_and_arrays_give_the_same(certs: Certificates) -> None:
    eps = certs.eps[certs.certified]
    assert len(eps) == 5
    for given in (certs, eps.numpy()):
        assert er.analyse.cosine_similarity(given) == cosine_similarity(eps)
        assert er.analyse.spectrum(given).participation == spectrum(eps).participation
        ranked = er.analyse.feature_robustness(given)
        assert torch.equal(ranked.order, feature_robustness(eps).order) and ranked.score.shape == (1, 4, 4)
    assert er.analyse.neighbour_correlation(certs) == neighbour_correlation(eps.log().numpy())


def test_certificates_without_extents_of_features(certs: Certificates) -> None:
    rotated = dataclasses.replace(certs, basis=torch.eye(16, dtype=torch.float64))
    assert er.analyse.cosine_similarity(rotated) == er.analyse.cosine_similarity(certs)
    for measure in (feature_robustness, neighbour_correlation):
        with pytest.raises(InputError, match="not of features"):
            measure(rotated)
    frozen = dataclasses.replace(certs, eps=certs.eps * (torch.arange(16).reshape(1, 4, 4) > 0))
    for measure in (feature_robustness, neighbour_correlation):
        with pytest.raises(InputError, match="frozen"):
            measure(frozen)


def test_the_module_is_public_and_loaded_on_first_use() -> None:
    code = "import sys, elbowroom as er; assert 'torch' not in sys.modules and 'analyse' in dir(er); "
    code += "assert er.analyse is sys.modules['elbowroom.analyse']; er.analyse.spectrum; print(er.certify.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "certify\n", done.stderr


def test_the_example_of_the_documentation_runs() -> None:
    text = (Path(__file__).parents[1] / "docs" / "results.md").read_text()
    code = text.partition("### Measures of one's own regions")[2].partition("```python\n")[2].partition("```")[0]
    names: dict = {}
    exec(code, names)
    assert 0 < names["least"] <= names["mean"] <= 1 and names["ranked"].score.shape == (1, 6, 6)
