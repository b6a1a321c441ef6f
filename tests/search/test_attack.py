"""The one PGD: uphill, inside the box, every point on the way told."""

import torch

from elbowroom.search.attack import pgd


def test_uphill_and_inside() -> None:
    lower, upper = torch.tensor([[-1.0, -1.0]]), torch.tensor([[1.0, 0.5]])
    told = []
    end = pgd(
        lambda x: ((x * torch.tensor([2.0, 1.0])).sum(), x.detach().sum()), torch.zeros(1, 2), lower, upper,
        [0.4, 0.4, 0.4], lambda x, about: told.append((x.tolist(), float(about))),
    )  # fmt: skip
    assert torch.equal(end, upper)
    assert [point for point, _ in told] == [[[0.0, 0.0]], [[0.4000000059604645] * 2], [[0.800000011920929, 0.5]]]
    assert [round(about, 3) for _, about in told] == [0.0, 0.8, 1.3]


def test_a_feature_without_a_gradient_stays() -> None:
    x = torch.tensor([[0.0, 0.0]])
    end = pgd(lambda x: ((x[:, 0] - 1) ** 2 + x[:, 1].sqrt() * 0, None), x, x - 1, x + 1, [0.5])
    assert end.tolist() == [[-0.5, 0.0]]
