"""Steps of the sub-problem that are recorded lead where plain ones do. CUDA is stood in for."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from elbowroom.claim.space import space_of
from elbowroom.machine import recorder
from elbowroom.machine.recorder import Rounds
from elbowroom.network.graph import Network
from elbowroom.network.operations import Linear
from elbowroom.search.regions.box import Box
from elbowroom.search.regions.newton import solved, solved_at_once
from elbowroom.search.regions.subproblem import largest_widths


class Stand:
    """In place of a GPU's: what was recorded is done again."""

    made = 0

    def __init__(self, device: torch.device) -> None:
        pass

    def warm(self, work: Callable[[], list[Tensor]]) -> list[Tensor]:
        return work()

    def record(self, work: Callable[[], list[Tensor]]) -> tuple[list[Tensor], Callable[[], None]]:
        Stand.made += 1

        def replay() -> None:
            work()

        return [], replay


def program(seed: int, batch: int, rows: int, n: int, per: int, odd: str) -> list[Tensor]:
    rng = np.random.default_rng(seed)
    a = rng.uniform(size=(batch, rows, per * n)) ** 3
    b = rng.uniform(0.05, 1, size=(batch, rows))
    cap = rng.uniform(0.5, 20, size=(batch, per * n))
    if odd == "duplicate rows":
        a[:, rows // 2 :], b[:, rows // 2 :] = a[:, :1], b[:, :1]
    if odd == "nearly duplicate rows":
        a[:, rows // 2 :], b[:, rows // 2 :] = a[:, :1] * (1 + 1e-13), b[:, :1]
    if odd == "zero rows":
        a[:, -1] = 0
    if odd == "fixed entries":
        cap[:, rng.random(per * n) < 0.3] = 0
    weight = rng.uniform(0.3, 3, size=(batch, n))
    return [torch.from_numpy(t) for t in (a, b, cap, weight)]


def sizes(theta: Tensor, cap: Tensor, weight: Tensor) -> Tensor:
    """The mean log width, weighted, `B`."""
    per = cap.shape[1] // weight.shape[1]
    width, moves = (t.reshape(len(t), per, -1).sum(1) for t in (theta, cap))
    weight = torch.where(moves > 0, weight, 0.0)
    return (weight * torch.where(moves > 0, width, 1.0).log()).sum(1) / weight.sum(1)


@pytest.mark.parametrize("odd", ["", "duplicate rows", "nearly duplicate rows", "zero rows", "fixed entries"])
@pytest.mark.parametrize("per", [1, 2])
def test_the_same_answers(odd: str, per: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "Recorder", Stand)
    monkeypatch.setattr(Stand, "made", 0)
    rounds = Rounds(torch.device("cpu"))
    for seed, batch in enumerate((6, 6, 2, 1, 5)):  # fewer than were recorded for are filled up
        a, b, cap, weight = program(seed, batch, 7, 30, per, odd)
        expected, found = largest_widths(a, b, cap, weight), largest_widths(a, b, cap, weight, None, rounds)
        spent = (a @ found[..., None]).squeeze(-1)
        assert bool((found >= 0).all() and (found <= cap).all() and (spent <= b * (1 + 1e-9)).all())
        torch.testing.assert_close(sizes(found, cap, weight), sizes(expected, cap, weight), rtol=0, atol=3e-4)
    assert Stand.made == 1
    a, b, cap, weight = program(9, 8, 7, 30, per, odd)  # more, and other shapes, are recorded anew
    assert largest_widths(a, b, cap, weight, None, rounds).shape == cap.shape and Stand.made == 2
    a, b, cap, weight = program(9, 8, 3, 30, per, odd)
    assert largest_widths(a, b, cap, weight, None, rounds).shape == cap.shape and Stand.made == 3


def test_what_cannot_be_recorded_is_done_as_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Stand):
        def record(self, work: Any) -> Any:
            raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(recorder, "Recorder", Broken)
    given = program(0, 3, 5, 12, 1, "")
    rounds = Rounds(torch.device("cpu"))
    for _ in range(2):
        assert torch.equal(largest_widths(*given, rounds=rounds), largest_widths(*given))
    monkeypatch.setattr(recorder, "Recorder", Stand)
    monkeypatch.setattr(recorder, "_LARGE", 100)
    assert torch.equal(largest_widths(*given, rounds=Rounds(torch.device("cpu"))), largest_widths(*given))


def test_prices_at_edges_of_the_domain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "Recorder", Stand)
    monkeypatch.setattr(Stand, "made", 0)
    rounds = Rounds(torch.device("cpu"))
    net = Network.chain((30,), [Linear(torch.ones(2, 30))])
    for seed, batch in enumerate((4, 3, 4)):
        rng = np.random.default_rng(seed)
        x, theta = (torch.from_numpy(rng.uniform(0.0, 1.0, size=(batch, 30))) for _ in range(2))
        placed = Box().place(x, space_of(net, x, (0.0, 1.0), None, None, None), (30,), torch.float64)
        a, margins = (torch.from_numpy(rng.uniform(size=s)) for s in ((batch, 5, 60), (batch, 5)))
        theta = 0.3 * torch.minimum(theta, placed.caps)
        expected, found = (placed.program(a, margins, theta, 0, r) for r in (None, rounds))
        for one, other in zip(dataclasses.astuple(expected)[:5], dataclasses.astuple(found)[:5]):
            torch.testing.assert_close(other, one)
    assert rounds.has("prices") and Stand.made == 1


def test_systems_solved_at_once() -> None:
    rng = np.random.default_rng(0)
    half = torch.from_numpy(rng.normal(size=(5, 9, 20)))
    matrix = half @ half.mT * torch.from_numpy(10.0 ** rng.uniform(-9, 9, size=(5, 1, 1)))
    right = torch.from_numpy(rng.normal(size=(5, 9)))
    torch.testing.assert_close(solved_at_once(matrix, right), solved(matrix, right), rtol=1e-6, atol=0)
    matrix[1, 0, 0] = torch.nan
    found = solved_at_once(matrix, right)
    assert bool((found[1] == 0).all()) and bool(found.isfinite().all())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("per", [1, 2])
def test_on_a_gpu(per: int) -> None:
    rounds = Rounds(torch.device("cuda"))
    for seed, batch in enumerate((6, 6, 2)):
        a, b, cap, weight = (t.cuda() for t in program(seed, batch, 7, 30, per, ""))
        expected, found = largest_widths(a, b, cap, weight), largest_widths(a, b, cap, weight, None, rounds)
        torch.testing.assert_close(sizes(found, cap, weight), sizes(expected, cap, weight), rtol=0, atol=3e-4)
    assert rounds.has("newton")
