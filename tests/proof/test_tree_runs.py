"""Certificates with trees of splits: stored, read and proved again; forged ones are refused or fail."""

from __future__ import annotations

import dataclasses
import functools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import elbowroom as er
from elbowroom.certificates.result import Certificates
from elbowroom.claim.specification import label_stays
from elbowroom.claim.stated import Stated
from elbowroom.claim.tree import EMPTY, Tree
from elbowroom.claim.tree_bytes import as_bytes, as_words, pack, unpack
from elbowroom.errors import InputError
from elbowroom.network.graph import Network
from elbowroom.proof.kernel.prove import prove
from elbowroom.proof.recheck import check
from forgery import edit_rows, sized
from support import mlp

NET = mlp(np.random.default_rng(2), [2, 8, 8, 3])
X = torch.tensor(np.random.default_rng(2).uniform(-1, 1, size=(5, 2)))
Trees = list[tuple[int, Tree]]


def halved(net: Network, lower: Tensor, upper: Tensor, rows: Tensor, offset: Tensor, group: Tensor) -> Tree | None:
    """A tree of splits of the input whose leaves the proof passes; None where some do not."""
    nodes: list[tuple[int, int, float]] = []
    depths: list[int] = []

    def grow(low: Tensor, high: Tensor, depth: int) -> bool:
        if float(prove(net, Stated(low[None], high[None]), rows[None, None], offset[None, None], group)) > 0:
            nodes.append((-1, number, 0.0))
            depths.append(depth)
            return True
        if depth == 9:
            return False
        k = int((high - low).argmax())
        middle = float(low[k] / 2 + high[k] / 2)
        nodes.append((0, k, middle))
        left, right = high.clone(), low.clone()
        left[k] = right[k] = middle
        return grow(low, left, depth + 1) and grow(right, high, depth + 1)

    number, group = int(group), torch.tensor([0])
    if not grow(lower, upper, 0):
        return None
    node, entry, value = zip(*nodes)
    return Tree(
        torch.tensor(node), torch.tensor(entry), torch.tensor(value, dtype=torch.float64),
        torch.zeros(sum(depths), dtype=torch.float64), torch.zeros(0, 2, dtype=torch.long),
        torch.zeros(len(depths), 0, dtype=torch.uint8),
    )  # fmt: skip


@functools.cache
def cut() -> Certificates:
    """Boxes twice as wide as `certify` makes them, as far as halving proves them."""
    certs = er.certify(NET, X)
    spec = label_stays(certs.labels, NET.n_outputs, NET.decision).cast(torch.float64, "cpu")
    lower, upper = certs.lower.clone(), certs.upper.clone()
    words: list[Tensor] = []
    for k in range(len(X)):
        for factor in (2.0, 1.5, 1.2, 1.0):
            low, high = (X[k] + factor * (t[k] - X[k]) for t in (certs.lower, certs.upper))
            trees = [
                (g, halved(NET, low, high, spec.rows[k, g], spec.offset[k, g], torch.tensor([g])))
                for g in range(spec.n_groups)
            ]
            if all(tree is not None for _, tree in trees):
                lower[k], upper[k] = low, high
                words.append(as_words(pack([(g, tree) for g, tree in trees if tree is not None])))
                break
    half = upper / 2 - lower / 2
    half = torch.where(half > 0, torch.nextafter(half, torch.zeros_like(half)), 0.0)
    center = lower / 2 + upper / 2
    found = dataclasses.replace(
        certs, lower=lower, upper=upper, eps=half, center=center, trees=tuple(words),
    )  # fmt: skip
    return sized(found)


def with_trees(change: Callable[[Trees], Trees], k: int = 0) -> Certificates:
    trees = [*cut().trees]
    trees[k] = as_words(pack(change(unpack(as_bytes(trees[k])))))
    return dataclasses.replace(cut(), trees=tuple(trees))


def test_stored_trees_are_proved_again(tmp_path: Path) -> None:
    certs = Certificates.load(cut().save(tmp_path / "run"))
    assert all(torch.equal(a, b) for a, b in zip(certs.trees, cut().trees))
    assert check(certs) and certs.certified.all()
    # They are needed.
    bare = check(dataclasses.replace(certs, trees=None))
    assert len(bare.failures) >= 2 and "could only be bounded by" in bare.message[bare.failures[0]]
    assert check(certs.rows(1, 3)) and len(certs.rows(1, 3).trees) == 2
    alone = subprocess.run(
        [sys.executable, "-m", "elbowroom.proof", str(tmp_path / "run")], capture_output=True, text=True, timeout=300
    )
    assert alone.returncode == 0 and json.loads(alone.stdout)["proved"] == len(X), alone.stderr


def test_balls_prove_them_too() -> None:
    assert check(cut().rows(0, 2), arithmetic="arb")


def test_runs_without_trees_have_no_such_column(tmp_path: Path) -> None:
    certs = Certificates.load(dataclasses.replace(cut(), trees=None).save(tmp_path / "run"))
    assert (
        certs.trees is None and "splits" not in json.loads((tmp_path / "run" / "run.json").read_text())["claim"]["has"]
    )


def test_changed_trees_are_found_by_their_checksum(tmp_path: Path) -> None:
    cut().save(tmp_path / "run")
    edit_rows(tmp_path / "run", "trees", lambda rows: rows[1].__setitem__(2, rows[1][2] ^ 1))
    with pytest.raises(InputError, match="was changed: it does not match its checksum"):
        Certificates.load(tmp_path / "run")


def needing() -> int:
    """The first certificate that is not proved without its trees."""
    return check(dataclasses.replace(cut(), trees=None)).failures[0]


FORGERIES: dict[str, tuple[Callable[[Trees], Trees], str]] = {
    "no trees": (lambda trees: [], "could only be bounded by"),
    "a group twice": (lambda trees: [trees[0], *trees], "two trees for one group"),
    "another group": (lambda trees: [(1 - g, tree) for g, tree in trees], "not of its group"),
    "a group that is not there": (lambda trees: [(g + 2, tree) for g, tree in trees], "does not have"),
    "leaves that are not empty": (
        lambda trees: [(g, dataclasses.replace(t, entry=torch.where(t.node < 0, EMPTY, t.entry))) for g, t in trees],
        "could only be bounded by",
    ),
    "splits elsewhere": (
        lambda trees: [(g, dataclasses.replace(t, value=t.value + 100)) for g, t in trees], "could only be bounded by",
    ),
    "a missing side": (
        lambda trees: [(g, dataclasses.replace(t, node=t.node[:-1], entry=t.entry[:-1], value=t.value[:-1],
                                               slopes=t.slopes[:-1])) for g, t in trees],
        "ends before all of its sides|multipliers than",
    ),
}  # fmt: skip


@pytest.mark.parametrize("forgery", FORGERIES)
@pytest.mark.parametrize("arithmetic", ["float64", "arb"])
def test_forged_trees_prove_nothing(forgery: str, arithmetic: str, tmp_path: Path) -> None:
    change, why = FORGERIES[forgery]
    k = needing()
    certs = with_trees(change, k).rows(k, k + 1)
    report = check(Certificates.load(certs.save(tmp_path / "run")), arithmetic=arithmetic)
    assert not report and report.failures == (0,)
    assert any(part in report.message[0] for part in why.split("|")), report.message


def test_words_that_are_no_trees_fail_their_certificate_alone(tmp_path: Path) -> None:
    trees = [*cut().trees]
    for k, words in ((0, torch.arange(5)), (2, trees[2][:-1])):
        trees[k] = words
    certs = dataclasses.replace(cut(), trees=tuple(trees))
    report = check(Certificates.load(certs.save(tmp_path / "run")))
    assert report.failures == (0, 2) and all("damaged" in report.message[k] for k in (0, 2))
