"""Training: deterministic, leaves the global state alone, and against an adversary it helps."""

import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import elbowroom as er
from elbowroom.data.embedded import Dataset, digits, voronoi
from elbowroom.errors import InputError
from elbowroom.training.adversary import PGD, accuracy, accuracy_under, perturb, pgd_attack
from elbowroom.training.models import ACTIVATIONS, convnet, mlp
from elbowroom.training.train import train


@pytest.fixture(scope="module")
def squares() -> Dataset:
    """Four classes, the quadrants of the square."""
    x = 2 * torch.rand(1000, 2, generator=torch.Generator().manual_seed(0)) - 1
    y = 2 * (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
    return Dataset("quadrants", x[:800], y[:800], x[800:], y[800:], -1.0, 1.0, (2,))


def same(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters()))


def test_learns_and_loads(squares: Any) -> None:
    model, report = train([16], squares, epochs=40, rate=1e-2)
    assert report.test_accuracy > 0.95 and len(report.losses) == 40 and report.losses[-1] < report.losses[0] / 3
    assert report.test_accuracy == accuracy(model, squares.x_test, squares.y_test)
    net = er.load(model, input_shape=(2,))
    assert torch.allclose(net(squares.x_test), model(squares.x_test), atol=1e-5)
    assert "40 epochs" in repr(report)


@pytest.mark.parametrize("adversary", [None, PGD(0.1, steps=2)])
def test_the_seed_decides_and_nothing_else_moves(squares: Any, adversary: Any) -> None:
    torch.manual_seed(5)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    first, _ = train([8], squares, epochs=2, rate=1e-2, adversary=adversary, seed=1)
    assert torch.equal(torch.get_rng_state(), before) and torch.get_num_threads() == threads
    torch.manual_seed(6)
    again, _ = train([8], squares, epochs=2, rate=1e-2, adversary=adversary, seed=1)
    other, _ = train([8], squares, epochs=2, rate=1e-2, adversary=adversary, seed=2)
    assert same(first, again) and not same(first, other)


def test_progress_and_activation(squares: Any) -> None:
    seen = []
    model, _ = train([8, 8], squares, epochs=3, activation=nn.Tanh, decay_rate=True, progress=seen.append)
    assert seen == [1, 2, 3]
    assert [type(m) for m in model] == [nn.Linear, nn.Tanh, nn.Linear, nn.Tanh, nn.Linear]


def test_weight_decay_shrinks_weights(squares: Any) -> None:
    sizes = [
        sum(
            float(p.detach().square().sum())
            for p in train([16], squares, epochs=20, rate=1e-2, weight_decay=w)[0].parameters()
        )
        for w in (0.0, 1e-2)
    ]
    assert sizes[1] < 0.7 * sizes[0]


def test_the_adversary_stays_in_ball_and_domain(squares: Any) -> None:
    seen = []

    class Spy(nn.Module):
        def forward(self, x: Tensor) -> Any:
            seen.append(x.detach())
            return x

    model = nn.Sequential(Spy(), mlp([2, 4, 4], generator=torch.Generator().manual_seed(0)))
    x, y = squares.x_train[:100], squares.y_train[:100]
    generator = torch.Generator().manual_seed(0)
    for random_start in (True, False):
        seen.clear()
        by = PGD(0.2, steps=5, random_start=random_start)
        seen.append(perturb(model, x, y, by, squares, generator))
        assert len(seen) == 6
        for points in seen:
            assert float((points - x).abs().max()) <= 0.2 + 1e-6 and float(points.abs().max()) <= 1
        assert torch.equal(seen[0], x) is not random_start
    free = perturb(model, x, y, PGD(0.2, steps=5, clip=False), squares, generator)
    assert float((free - x).abs().max()) <= 0.2 + 1e-6 and float(free.abs().max()) > 1


def test_the_adversary_may_grow(squares: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    by = PGD(0.4, steps=1, ramp=4)
    assert [by.at(e).tau for e in range(6)] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4, 0.4])
    assert PGD(0.4).at(0).tau == 0.4
    seen = []
    monkeypatch.setattr("elbowroom.training.train.perturb", lambda model, x, y, by, *_: seen.append(by.tau) or x)
    train([4], squares, epochs=3, batch=800, adversary=PGD(0.2, steps=1, ramp=2))
    assert seen == pytest.approx([0.1, 0.2, 0.2])


def test_adversarial_training_withstands_attacks() -> None:
    data = digits()
    x, y = data.x_test[:150], data.y_test[:150]
    shares = []
    for adversary in (None, PGD(0.3, steps=5, step=0.5)):
        model, report = train([32], data, epochs=15, rate=5e-3, adversary=adversary)
        assert report.test_accuracy > 0.9
        attack = pgd_attack(model, y, (x - 0.3).clamp_min(-1), (x + 0.3).clamp_max(1))
        shares.append(1 - float(attack.found.double().mean()))
    assert shares[1] > shares[0] + 0.15


def test_accuracy_under_attack(squares: Any) -> None:
    model, _ = train([16], squares, epochs=20, rate=1e-2)
    x, y = squares.x_test, squares.y_test
    lower, upper = (x - 0.2).clamp_min(-1), (x + 0.2).clamp_max(1)
    found = pgd_attack(model, y, lower, upper, steps=5, step=0.5, starts=2).found
    under = accuracy_under(model, x, y, PGD(0.2, steps=5, step=0.5), -1, 1, starts=2)
    assert under == pytest.approx(1 - float(found.double().mean())) and under < accuracy(model, x, y)
    assert accuracy_under(model, x, y, PGD(1e-9, steps=1), -1, 1) == pytest.approx(accuracy(model, x, y))


def test_convolutions(squares: Any) -> None:
    data = digits()
    model, report = train([16], data, channels=[4, 8], epochs=4, rate=1e-2)
    assert report.test_accuracy > 0.7
    net = er.load(model, input_shape=(64,))
    assert torch.allclose(net(data.x_test), model(data.x_test), atol=1e-5)
    again, _ = train([16], data, channels=[4, 8], epochs=4, rate=1e-2)
    assert same(model, again)
    for shape, channels in (((2,), [4]), ((8, 8), []), ((8, 8), [0]), ((1, 8, 8), [2, 2, 2, 2])):
        with pytest.raises(InputError):
            convnet(shape, channels, [4], 3)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_activation_can_be_certified(squares: Any, name: str) -> None:
    model = mlp([2, 6, 4], ACTIVATIONS[name], generator=torch.Generator().manual_seed(0))
    certs = er.certify(er.load(model, input_shape=(2,)), squares.x_test[:3])
    assert set(certs.status) == {"certified"}


def test_attack_reports_points_that_change_the_label(squares: Any) -> None:
    model, _ = train([16], squares, epochs=20, rate=1e-2)
    y = model(squares.x_test).argmax(1)
    lower, upper = squares.x_test - 0.3, squares.x_test + 0.3
    attack = pgd_attack(model, y, lower, upper, steps=7, starts=3)
    assert attack.tried == len(y) * 8 * 3
    assert bool(attack.found.any()) and not bool(attack.found.all())
    assert bool(((attack.points >= lower) & (attack.points <= upper)).all())
    assert torch.equal(model(attack.points).argmax(1) != y, attack.found)
    # In a box of no width there is nothing to find.
    assert not bool(pgd_attack(model, y, squares.x_test, squares.x_test).found.any())


@pytest.mark.parametrize("wrong", [{"epochs": 0}, {"batch": 0}, {"rate": 0.0}, {"weight_decay": -1.0}])
def test_settings_that_make_no_sense(squares: Any, wrong: dict[str, float]) -> None:
    with pytest.raises(InputError):
        train([4], squares, **wrong)


@pytest.mark.parametrize("wrong", [{"tau": 0.0}, {"steps": 0}, {"step": -1.0}, {"ramp": -1}])
def test_adversaries_that_make_no_sense(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError):
        PGD(**wrong)


def test_sizes_that_make_no_sense(squares: Any) -> None:
    with pytest.raises(InputError):
        train([0], squares)


# --- the data


def test_digits() -> None:
    data = digits()
    assert data.x_train.shape == (1400, 64) and data.x_test.shape == (397, 64) and data.x_train.dtype == torch.float32
    assert float(data.x_train.min()) == -1 and float(data.x_train.max()) == 1
    assert data.n_classes == 10 and data.shape == (8, 8) and "1400 train" in repr(data)
    again, other = digits(), digits(seed=1)
    assert torch.equal(data.x_test, again.x_test) and not torch.equal(data.x_test, other.x_test)
    # Each digit once: the two parts together are the whole set.
    assert torch.bincount(torch.cat([data.y_train, data.y_test])).tolist() == [
        178,
        182,
        177,
        183,
        181,
        182,
        181,
        179,
        174,
        180,
    ]
    with pytest.raises(InputError):
        digits(n_test=1797)


def test_digits_without_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(InputError, match="pip install"):
        digits()


def test_voronoi() -> None:
    data = voronoi(3)
    assert data.x_train.shape == (9000, 2) and data.x_test.shape == (1000, 2) and data.seeds.shape == (10, 2)
    every = torch.cat([data.x_train, data.x_test, data.seeds])
    assert float(every.abs().max()) <= 1 and data.n_classes == 10
    k = torch.tensor([int((data.seeds - x).square().sum(1).argmin()) for x in data.x_test])
    assert torch.equal(k, data.y_test)
    assert torch.equal(voronoi(3).x_train, data.x_train)
    with pytest.raises(InputError):
        voronoi(n_seeds=1)
