"""Faults planted in the proof's own code, and who catches each: the self-check (maps held to the forward pass), the
torture suite (exact arithmetic at points), Arb (the same claim in balls). docs/soundness.md has this table.

The self-check is switched off for the other two, to see what they would find by themselves.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from elbowroom.claim.hints import Hints
from elbowroom.claim.stated import Stated
from elbowroom.errors import UnsupportedError
from elbowroom.network import operations as ops
from elbowroom.network.graph import Graph, Network
from elbowroom.proof.arb import prove_arb
from elbowroom.proof.kernel import prove as kernel
from elbowroom.proof.kernel import relaxed, rows, support, walk
from proof import torture
from proof.test_selfcheck import OPERATIONS, fresh
from proof.test_strict import crossings

F64 = torch.float64
Plant = Callable[[pytest.MonkeyPatch], None]


def replaced(kind: type, name: str, wrong: Callable[..., Any]) -> Plant:
    return lambda patch: patch.setattr(type(rows.AFFINE[kind]), name, wrong)


_conv, _terms = rows.AFFINE[ops.Conv].back, rows.AFFINE[ops.Linear].terms
_windows = relaxed._windows


def _no_underflow(patch: pytest.MonkeyPatch) -> None:
    for module in (walk, rows, support, relaxed):
        patch.setattr(module, "ETA", 0.0)


# What is wrong, and whom it must not escape.
FAULTS: dict[str, tuple[Plant, set[str]]] = {
    "a wrong transpose": (
        replaced(ops.Linear, "back", lambda self, op, a, s: (
            a @ (op.weight.T if op.weight.shape[0] == op.weight.shape[1] else op.weight),)),
        {"self-check", "torture", "arb"},
    ),
    "a flipped kernel": (
        replaced(ops.Conv, "back", lambda self, op, a, s: _conv(
            dataclasses.replace(op, weight=op.weight.flip(*range(2, op.weight.dim()))), a, s)),
        {"self-check", "arb"},
    ),
    "a dropped sign": (
        replaced(ops.Add, "back", lambda self, op, a, s: tuple(rows._summed_to(a, t) for t in s)),
        {"self-check", "torture", "arb"},
    ),
    "a window one place off": (
        lambda patch: patch.setattr(relaxed, "_windows", lambda *told: _windows(*told).roll(1, 0)),
        {"self-check", "torture", "arb"},
    ),
    "half of the absolute map": (
        replaced(ops.Linear, "sizes", lambda self, op, r: 0.5 * (r @ op.weight.abs().T)),
        {"self-check", "torture", "arb"},
    ),
    "no rounding of products and sums": (lambda patch: patch.setattr(walk, "gamma", lambda n: 0.0), {"torture"}),
    "no rounding on the way back": (
        replaced(ops.Linear, "terms", lambda self, op, o, s: dataclasses.replace(_terms(op, o, s), back=0)),
        {"torture"},
    ),
    "too few roundings on the way forward": (
        replaced(ops.Linear, "terms", lambda self, op, o, s: dataclasses.replace(_terms(op, o, s), forward=1)),
        {"torture"},
    ),
    "no underflow": (_no_underflow, {"torture"}),
}  # fmt: skip


def by_the_self_check() -> bool:
    for name in ("linear", "conv", "add", "max"):
        try:
            kernel.refuse_uncovered(fresh(OPERATIONS[name]))
        except UnsupportedError:
            return True
    return False


def by_torture(patch: pytest.MonkeyPatch) -> bool:
    patch.setattr(kernel, "refuse_other_maps", lambda net: None)
    return any(crossings(torture.case(seed), seed % 2 == 1)[0] for seed in range(60))


def small(seed: int) -> Network:
    """A square layer, a convolution, a subtraction and a maximum."""
    rng = np.random.default_rng(seed)

    def numbers(*shape: int) -> torch.Tensor:
        return torch.from_numpy(rng.normal(size=shape))

    g = Graph((9,))
    first = g.add(ops.ReLU(), g.add(ops.Linear(numbers(9, 9), numbers(9)), g.input))
    image = g.add(ops.Reshape((1, 3, 3)), first)
    conv = g.add(ops.ReLU(), g.add(ops.Conv(numbers(1, 1, 2, 2), numbers(1), (1, 1), (1, 0)), image))
    pooled = g.add(ops.MaxPool((2, 1), (2, 1)), conv)
    flat = g.add(ops.Reshape((-1,)), pooled)
    moved = g.add(ops.Add((1.0, -0.5)), flat, g.add(ops.Linear(numbers(4, 9)), first))
    return g.network(g.add(ops.Linear(numbers(3, 4)), moved))


def by_arb(patch: pytest.MonkeyPatch) -> bool:
    """The kernel proves more than balls of 128 bits do, by more than the roundings that it must pay for."""
    patch.setattr(kernel, "refuse_other_maps", lambda net: None)
    for seed in range(6):
        net = small(seed)
        x = torch.from_numpy(np.random.default_rng(seed).normal(size=(1, 9)))
        region, outputs = Stated(x - 0.05, x + 0.05), torch.eye(3, dtype=F64)
        # Every output and its negative: what moves one of them too low moves another too high.
        task = torch.cat([outputs, -outputs])[None], torch.zeros(1, 6, dtype=F64), torch.arange(6)
        for hints in (Hints(), Hints(parallel=True), Hints(hidden=False)):
            claimed = kernel.prove(net, region, *task, hints)
            right = prove_arb(net, region, *task, hints)
            if bool((claimed > right + 1e-9 * (1 + right.abs())).any()):
                return True
    return False


def test_without_a_fault_nobody_complains(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not by_the_self_check() and not by_torture(monkeypatch) and not by_arb(monkeypatch)


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_caught(fault: str) -> None:
    plant, expected = FAULTS[fault]
    caught = set()
    for name, seen in (("self-check", lambda patch: by_the_self_check()), ("torture", by_torture), ("arb", by_arb)):
        with pytest.MonkeyPatch.context() as patch:
            plant(patch)
            if seen(patch):
                caught.add(name)
    assert caught == expected
