"""Trees of splits as data: what is not one is refused, and bytes give back what was packed."""

import dataclasses
import math
import random
import struct
import tracemalloc
import zlib
from typing import Any

import numpy as np
import pytest
import torch

from elbowroom.claim.stated import Stated
from elbowroom.claim.tree import EMPTY, MOST_SHARPENED, USUAL, Tree, fitting_leaves, leaves_of, rounded, single_leaf
from elbowroom.claim.tree_bytes import MOST_BYTES, MOST_TREES, as_bytes, as_words, pack, unpack
from elbowroom.errors import InputError
from elbowroom.network.graph import Network
from proof.tree_cases import random_tree
from support import mlp

F64 = torch.float64
NET = mlp(np.random.default_rng(0), [3, 6, 6, 4])  # nodes 1 and 3 are linear, 2 and 4 ReLUs, 5 the output
GROUP = torch.tensor([0, 1, 1])


def tree(**changed: Any) -> Tree:
    """The first neuron is split at 0, on its high side an input at 0.5; groups: its rows are of group 1."""
    plain = Tree(
        torch.tensor([1, -1, 0, -1, -1]), torch.tensor([2, 1, 0, EMPTY, 2]),
        torch.tensor([0.0, 0.0, 0.5, 0.0, 0.0], dtype=F64), torch.tensor([0.25, 0.5, 0.125, 1.0, 0.0], dtype=F64),
        torch.tensor([[2, 0], [4, 5]]), torch.tensor([[0, 15], [7, 8], [1, 2]], dtype=torch.uint8),
    )  # fmt: skip
    return dataclasses.replace(plain, **changed)


def test_leaves_and_their_paths() -> None:
    found = fitting_leaves(tree(), 1, GROUP, NET, box=True)
    assert [leaf.row for leaf in found] == [1, EMPTY, 2] and [leaf.first for leaf in found] == [0, 1, 3]
    assert [tuple(leaf.path[0]) for leaf in found] == [(1, 2, 0.0, False), (1, 2, 0.0, True), (1, 2, 0.0, True)]
    assert [tuple(leaf.path[1]) for leaf in found[1:]] == [(0, 0, 0.5, False), (0, 0, 0.5, True)]
    assert len(fitting_leaves(single_leaf(0), 0, GROUP, NET, box=False)) == 1


FORGED: dict[str, tuple[dict[str, Any], str]] = {
    "a missing side": ({"node": torch.tensor([1, -1, 0, -1, 0])}, "a slope per leaf"),
    "a missing side, and its slopes": (
        {"node": torch.tensor([1, -1, 0, -1, 0]), "slopes": torch.zeros(2, 2, dtype=torch.uint8)},
        "ends before all of its sides|more multipliers",
    ),
    "an extra leaf": (
        {"node": torch.tensor([1, -1, -1, -1, -1]), "entry": torch.tensor([2, 1, 1, 1, 1]),
         "slopes": torch.zeros(4, 2, dtype=torch.uint8)},
        "complete after 3",
    ),
    "no nodes": ({"node": torch.zeros(0).long(), "entry": torch.zeros(0).long(), "value": torch.zeros(0).double(),
                  "slopes": torch.zeros(0, 2, dtype=torch.uint8)}, "ends before"),
    "a negative multiplier": ({"multipliers": torch.tensor([0.25, 0.5, -0.125, 1.0, 0.0], dtype=F64)}, "negative"),
    "a multiplier that is NaN": ({"multipliers": torch.tensor([0.25, math.nan, 0.1, 1, 0], dtype=F64)}, "not finite"),
    "an infinite multiplier": ({"multipliers": torch.tensor([0.25, math.inf, 0.1, 1, 0], dtype=F64)}, "not finite"),
    "too few multipliers": ({"multipliers": torch.zeros(4, dtype=F64)}, "fewer multipliers"),
    "too many multipliers": ({"multipliers": torch.zeros(6, dtype=F64)}, "more multipliers"),
    "another node": ({"node": torch.tensor([6, -1, 0, -1, -1])}, "a node that the network"),
    "a node below the input": ({"node": torch.tensor([1, -2, 0, -1, -1])}, "a node that the network"),
    "another entry": ({"entry": torch.tensor([6, 1, 0, EMPTY, 2])}, "an entry that its node"),
    "an entry of another kind": ({"entry": torch.tensor([-1, 1, 0, EMPTY, 2])}, "an entry that its node"),
    "a value that is NaN": ({"value": torch.tensor([math.nan, 0.0, 0.5, 0, 0], dtype=F64)}, "not finite"),
    "an infinite value": ({"value": torch.tensor([math.inf, 0.0, 0.5, 0, 0], dtype=F64)}, "not finite"),
    "a row of another group": ({"entry": torch.tensor([2, 0, 0, EMPTY, 2])}, "not of its group, 1"),
    "a row that is not there": ({"entry": torch.tensor([2, 3, 0, EMPTY, 2])}, "not of its group, 1"),
    "a row under EMPTY": ({"entry": torch.tensor([2, -2, 0, EMPTY, 2])}, "not of its group, 1"),
    "a slope above one": ({"slopes": torch.full((3, 2), 17, dtype=torch.uint8)}, "15 fifteenths"),
    "slopes of no ReLU": ({"neurons": torch.tensor([[2, 0], [3, 5]])}, "node 3, which is no ReLU"),
    "slopes of no node": ({"neurons": torch.tensor([[2, 0], [-1, 5]])}, "node -1, which is no ReLU"),
    "slopes of no entry": ({"neurons": torch.tensor([[2, 0], [4, 6]])}, "entry 6 of node 4"),
    "slopes twice": ({"neurons": torch.tensor([[2, 0], [2, 0]])}, "twice"),
    "slopes for other leaves": ({"slopes": torch.zeros(2, 2, dtype=torch.uint8)}, "a slope per leaf"),
    "values for other nodes": ({"value": torch.zeros(4, dtype=F64)}, "differ in number"),
    "another type": ({"slopes": torch.zeros(3, 2)}, "must be a tensor of torch.uint8"),
}  # fmt: skip


@pytest.mark.parametrize("forgery", FORGED)
def test_forged_trees_are_refused(forgery: str) -> None:
    changed, why = FORGED[forgery]
    with pytest.raises(InputError, match=why):
        fitting_leaves(tree(**changed), 1, GROUP, NET, box=True)


def test_a_tree_belongs_to_one_group_and_one_input() -> None:
    region = Stated(torch.zeros(2, 3).double(), torch.ones(2, 3).double())
    assert [(b, number) for b, number, *_ in leaves_of([[], [(1, tree())]], GROUP, NET, region)] == [(1, 1)]
    for trees, why in (
        ([[(1, tree())]], "1 lists of trees were given for 2"),
        ([[(1, tree()), (1, tree())], []], "two trees for one group"),
        ([[(2, tree())], []], "group 2, which the specification does not have"),
        ([[(-1, tree())], []], "group -1, which the specification does not have"),
    ):
        with pytest.raises(InputError, match=why):
            leaves_of(trees, GROUP, NET, region)
    ball = Stated(center=torch.zeros(1, 3).double(), radius=torch.ones(1, 3).double(), p=2)
    with pytest.raises(InputError, match="only regions that are boxes"):
        leaves_of([[(1, tree())]], GROUP, NET, ball)


def test_multipliers_are_rounded_once() -> None:
    rng = np.random.default_rng(3)
    for size in (1e-300, 1e-30, 1e-9, 1.0, 1e7, 1e30, 1e307):
        for _ in range(50):
            given = torch.from_numpy(rng.uniform(0, size, 7) * 10.0 ** rng.uniform(-6, 0, 7))
            found = rounded(given)
            assert torch.equal(rounded(found), found) and (found >= 0).all() and torch.isfinite(found).all()
            if 1e-250 < size < 1e300:
                assert ((found - given).abs() <= given / 2000 + given.max() * 2.0**-38).all()
    assert torch.equal(
        rounded(torch.tensor([1 - 2.0**-20, 1e-9]).double()), rounded(rounded(torch.tensor([1.0, 1e-9]).double()))
    )
    assert rounded(torch.zeros(3).double()).eq(0).all() and len(rounded(torch.zeros(0))) == 0
    assert math.isnan(float(rounded(torch.tensor([math.nan, 1.0]).double())[0]))


# --- bytes


def same(a: Tree, b: Tree) -> bool:
    return all(
        torch.equal(one, other) if isinstance(one, torch.Tensor) else one is other
        for one, other in ((getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(Tree))
    )


def random_trees(seed: int, net: Network = NET) -> list[tuple[int, Tree]]:
    rng = np.random.default_rng(seed)
    about = [rng.normal(size=node.size).tolist() for node in net.nodes]
    return [(g, random_tree(rng, net, about, rows, True)) for g, rows in ((0, [0]), (1, [1, 2])) if rng.random() < 0.8]


def test_bytes_and_back() -> None:
    assert pack([]) == b"" and unpack(b"") == [] and len(as_words(b"")) == 0
    for seed in range(50):
        trees = [*random_trees(seed), (7, tree())]
        data = pack(trees)
        for given in (data, data + b"\0" * 7, as_bytes(as_words(data))):
            found = unpack(given)
            assert [number for number, _ in found] == [number for number, _ in trees]
            assert all(same(a, b) for (_, a), (_, b) in zip(found, trees))


def halved(depth: int, features: int) -> Tree:
    """A box cut at short numbers across one feature after the other, `2 ** depth` leaves with the usual slopes."""
    node, entry, value = [], [], []

    def grow(ends: list[tuple[float, float]], level: int) -> None:
        at = level % features
        low, high = ends[at]
        node.append(-1 if level == depth else 0)
        entry.append(0 if level == depth else at)
        value.append(0.0 if level == depth else (low + high) / 2)
        for side in ((low, value[-1]), (value[-1], high)) if level < depth else ():
            grow([*ends[:at], side, *ends[at + 1 :]], level + 1)

    grow([(-1.0, 1.0)] * features, 0)
    leaves = 2**depth
    neurons = torch.stack([torch.full((300,), 2), torch.arange(300)], 1)
    return Tree(
        torch.tensor(node), torch.tensor(entry), torch.tensor(value, dtype=F64), torch.zeros(depth * leaves, dtype=F64),
        neurons, torch.full((leaves, 300), USUAL, dtype=torch.uint8),
    )  # fmt: skip


def test_a_leaf_of_a_box_that_is_halved_takes_few_bytes() -> None:
    tree = halved(12, 5)
    data = pack([(0, tree)])
    assert len(data) < 0.6 * tree.n_leaves and same(unpack(data)[0][1], tree)


def test_bytes_of_an_earlier_version_are_refused_by_name() -> None:
    with pytest.raises(InputError, match="earlier version"):
        unpack(b"ERT1" + pack([(1, tree())])[4:])


def test_bytes_of_the_version_before_are_read() -> None:
    """What it wrote, where it knew: nothing was taken by cases."""
    old = dataclasses.replace(tree(), again=True, sharpened=MOST_SHARPENED)
    raw = zlib.decompress(pack([(1, old)])[8:])
    group, *_, how, _ = struct.unpack_from("<IIIIbh", raw, 4)
    assert group == 1 and how == 1 + 2 * MOST_SHARPENED
    ((_, found),) = unpack(b"ERT2" + struct.pack("<I", len(raw)) + zlib.compress(raw))
    assert same(found, old) and found.cases == 0
    with pytest.raises(InputError, match="know no cases"):
        unpack(b"ERT2" + pack([(1, dataclasses.replace(old, cases=1))])[4:])


def test_too_many_slopes_are_refused_before_they_are_packed() -> None:
    with pytest.raises(InputError, match="more slopes"):
        pack([(g, halved(13, 5)) for g in range(14)])


def test_a_leaf_takes_some_hundred_bytes() -> None:
    """A full tree of 256 leaves, half of the slopes of 100 unstable neurons idle."""
    rng = np.random.default_rng(0)
    nodes, entries = [], []

    def grow(depth: int) -> None:
        nodes.append(-1 if depth == 8 else int(rng.choice([1, 3])))
        entries.append(0 if depth == 8 else int(rng.integers(6)))
        for _ in range(2 if depth < 8 else 0):
            grow(depth + 1)

    grow(0)
    slopes = torch.from_numpy(rng.integers(0, 16, (256, 100)) * (rng.random((256, 100)) < 0.5)).to(torch.uint8)
    neurons = torch.stack([torch.full((100,), 2), torch.arange(100)], 1)
    zeros, betas = torch.zeros(len(nodes), dtype=F64), torch.from_numpy(rng.uniform(0, 0.1, 256 * 8))
    big = Tree(torch.tensor(nodes), torch.tensor(entries), zeros, betas, neurons, slopes)
    assert len(pack([(0, big)])) < 80 * 256


def test_damaged_bytes_are_refused_or_another_tree() -> None:
    data, rng = pack([*random_trees(5), (1, tree())]), random.Random(1)
    assert len(unpack(data)) > 1
    for k in range(len(data)):
        with pytest.raises(InputError, match="damaged"):
            unpack(data[:k] if k else b"x")
    for _ in range(2000):
        changed = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        try:
            found = unpack(bytes(changed))
        except InputError:
            continue
        assert bytes(changed) == data or found  # zlib's checksum leaves next to nothing
    raw = bytearray(zlib.decompress(data[8:]))
    for _ in range(5000):  # behind the checksum
        changed = bytearray(raw)
        for _ in range(rng.randint(1, 6)):
            changed[rng.randrange(len(changed))] = rng.choice([0, 1, 127, 128, 255, rng.randrange(256)])
        try:
            for number, each in unpack(b"ERT3" + struct.pack("<I", len(changed)) + zlib.compress(bytes(changed))):
                fitting_leaves(each, number, GROUP, NET, box=True)
        except InputError:
            continue


def test_bombs_are_refused_before_they_go_off() -> None:
    bomb = zlib.compress(b"\0" * (1 << 28))
    head = struct.pack("<IIIIbh", 0, 1 << 18, 1 << 22, 1 << 18, 0, 0)
    comb = struct.pack("<IIIIbh", 0, (1 << 18) - 1, 0, 0, 0, 0)
    half = np.array([1, -1] * ((1 << 17) - 1) + [-1], "<i4").view(np.uint8).reshape(-1, 4).T.tobytes()
    splits = (1 << 17) - 1  # and one leaf more: their entries and rows, one value, that of all splits, no slopes
    deep = struct.pack("<I", 1) + comb + half + b"\0" * (4 * (2 * splits + 1)) + struct.pack("<Id", 1, 0.0)
    deep += b"\0" * (4 * splits + splits + 1)
    wide = struct.pack("<IIIIbh", 0, 8191, 0, 4000, 0, 0)  # 4096 leaves without slopes of their own, 4000 neurons
    wide += np.array([1, -1] * 4095 + [-1], "<i4").view(np.uint8).reshape(-1, 4).T.tobytes() + b"\0" * (4 * 8191)
    wide += struct.pack("<Id", 1, 0.0) + b"\0" * (4 * 4095 + 8 * 4000 + 4096)
    many = struct.pack("<I", 100) + 100 * wide
    tracemalloc.start()
    try:
        for data in (
            b"ERT3" + struct.pack("<I", 1 << 28) + bomb,
            b"ERT3" + struct.pack("<I", 1000) + bomb,
            b"ERT3" + struct.pack("<I", MOST_BYTES) + bomb,
            b"ERT3" + struct.pack("<I", 4 + len(head)) + zlib.compress(struct.pack("<I", 1) + head),
            b"ERT3" + struct.pack("<I", 4) + zlib.compress(struct.pack("<I", 1 << 31)),
            b"ERT3" + struct.pack("<I", len(many)) + zlib.compress(many),
        ):
            with pytest.raises(InputError):
                unpack(data)
        ((_, found),) = unpack(b"ERT3" + struct.pack("<I", len(deep)) + zlib.compress(deep))
        with pytest.raises(InputError, match="fewer multipliers"):  # paths of 2^17 splits in each of 2^17 leaves
            fitting_leaves(found, 0, torch.tensor([0]), NET, box=True)
        assert tracemalloc.get_traced_memory()[1] < 8 * MOST_BYTES
    finally:
        tracemalloc.stop()


def test_very_many_trees_are_refused_before_they_are_read() -> None:
    one = zlib.decompress(pack([(0, tree())])[8:])[4:]
    raw = struct.pack("<I", MOST_TREES + 1) + one * (MOST_TREES + 1)
    with pytest.raises(InputError, match="their number"):
        unpack(b"ERT3" + struct.pack("<I", len(raw)) + zlib.compress(raw))
    with pytest.raises(InputError, match="more than an input may have"):
        pack([(k, tree()) for k in range(MOST_TREES + 1)])
