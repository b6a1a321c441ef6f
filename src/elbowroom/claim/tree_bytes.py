"""Trees of splits as bytes: compact, and read without trust.

    4 bytes   "ERT3" ("ERT2": the same, of trees whose `cases` is 0)
    4 bytes   how long the rest is when it is unpacked
    then, packed by zlib: the number of trees, and of each its group, `m` (nodes), `p` (multipliers), `u` (neurons),
    `again` plus twice (`sharpened` plus 17 times `cases`), and the multipliers' power of 2; node (int32), entries of
    splits, then rows of leaves (int32); the number of values, each value that splits have (float64) and, split by
    split, which one it is (int32); multipliers (float16); neurons (int32: nodes, then how far each entry is from the
    one before); which leaves have slopes of their own (a byte each), and of these the slopes (a byte each; those of one
    neuron together, since most leaves share them).

All numbers little end first; arrays by the place of the byte, all first bytes first, which packs better. Bytes of zero
may follow, so that a file may keep whole words.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from elbowroom.claim.tree import (
    MOST_CASES,
    MOST_MULTIPLIERS,
    MOST_NEURONS,
    MOST_NODES,
    MOST_SHARPENED,
    MOST_SLOPES,
    USUAL,
    Tree,
    exponent,
)
from elbowroom.errors import InputError

MOST_BYTES = 1 << 25  # of one input's trees, unpacked
MOST_TREES = 1 << 12  # of one input
_MAGIC, _BEFORE, _OLD = b"ERT3", b"ERT2", b"ERT1"
_HEAD, _TREE = struct.Struct("<4sI"), struct.Struct("<IIIIBh")


def pack(trees: Sequence[tuple[int, Tree]], quick: bool = False) -> bytes:
    """The trees of one input, each with the number of its group; no bytes where there is none. `quick`: a few more
    bytes, in a tenth of the time."""
    if not trees:
        return b""
    if len(trees) > MOST_TREES:
        raise InputError(f"{len(trees):,} trees are more than an input may have, {MOST_TREES:,}")
    raw = struct.pack("<I", len(trees)) + b"".join(_packed(group, tree) for group, tree in trees)
    if len(raw) > MOST_BYTES:
        raise InputError(f"trees of {len(raw):,} bytes are more than an input may have, {MOST_BYTES:,}")
    if sum(tree.slopes.numel() for _, tree in trees) > MOST_BYTES:
        raise InputError(f"the trees have more slopes than an input may have, {MOST_BYTES:,}")
    return _HEAD.pack(_MAGIC, len(raw)) + zlib.compress(raw, 1 if quick else 9)


def unpack(data: bytes) -> list[tuple[int, Tree]]:
    """What `pack` was given. Raises an `InputError` where the bytes are no trees; allocates a small multiple of
    `MOST_BYTES` at most. Whether the trees fit a network and a specification, `fitting_leaves` says."""
    if not data:
        return []
    raw = _Reader(_unzipped(data))
    (count,) = raw.numbers("<I")
    if not 0 < count <= MOST_TREES:
        raise InputError("the trees of splits are damaged: their number cannot be right")
    found = [_unpacked(raw) for _ in range(count)]
    if raw.at != len(raw.data):
        raise InputError("the trees of splits are damaged: there is more in them than they state")
    if data[:4] == _BEFORE and any(tree.cases for _, tree in found):
        raise InputError("the trees of splits are damaged: those of their version know no cases")
    return found


def _unzipped(data: bytes) -> bytes:
    if data[:4] == _OLD:
        raise InputError("the trees of splits are of an earlier version of this program: certify once more")
    if len(data) < _HEAD.size or data[:4] not in (_MAGIC, _BEFORE):
        raise InputError("the trees of splits are damaged: they do not begin as such")
    _, size = _HEAD.unpack_from(data)
    if size > MOST_BYTES:
        raise InputError(f"trees of {size:,} bytes are more than an input may have, {MOST_BYTES:,}")
    stream = zlib.decompressobj()
    try:
        raw = stream.decompress(data[_HEAD.size :], size + 1)
    except zlib.error as error:
        raise InputError(f"the trees of splits are damaged: {error}") from None
    rest = stream.unused_data
    if len(raw) != size or not stream.eof or len(rest) > 7 or rest.strip(b"\0"):
        raise InputError("the trees of splits are damaged: they are not as long as they state")
    return raw


def _packed(group: int, tree: Tree) -> bytes:
    power = exponent(tree.multipliers)
    halves = (tree.multipliers / 2.0**power).half().numpy()
    shape = (len(tree.node), len(tree.multipliers), len(tree.neurons))
    split, own = (tree.node >= 0).numpy(), (tree.slopes != USUAL).any(1)
    entry, neurons = tree.entry.numpy().astype("<i4"), tree.neurons.numpy().astype("<i4")
    steps = np.diff(neurons[:, 1], prepend=0)
    values, which = _distinct(tree.value.numpy()[split])
    how = tree.again + 2 * (tree.sharpened + (MOST_SHARPENED + 1) * tree.cases)
    return _TREE.pack(group, *shape, how, power) + b"".join([
        _by_place(tree.node.numpy().astype("<i4")), _by_place(entry[split]), _by_place(entry[~split]),
        struct.pack("<I", len(values)), _by_place(values.astype("<f8")), _by_place(which.astype("<i4")),
        _by_place(halves.astype("<f2")), _by_place(neurons[:, 0]), _by_place(steps.astype("<i4")),
        own.numpy().astype(np.uint8).tobytes(), tree.slopes[own].numpy().T.tobytes(),
    ])  # fmt: skip


def _distinct(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each of some values, `m`, once, as they first come; and which of them they are, `m`."""
    some, first, which = np.unique(values, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return some[order], place[which.reshape(-1)]


def _unpacked(raw: _Reader) -> tuple[int, Tree]:
    group, m, p, u, how, power = raw.numbers(_TREE.format)
    cases, sharpened = divmod(how // 2, MOST_SHARPENED + 1)
    counts = (m, MOST_NODES), (p, MOST_MULTIPLIERS), (u, MOST_NEURONS), (cases, MOST_CASES), (abs(power), 1000)
    if any(count > most for count, most in counts):
        raise InputError("the trees of splits are damaged: a number in them cannot be right")
    node = raw.array("<i4", m).long()
    split = node >= 0
    leaves = m - int(split.sum())
    raw.slopes += leaves * u  # of leaves that have none of their own, too: these take no bytes, but memory
    if leaves * u > MOST_SLOPES or raw.slopes > MOST_BYTES:
        raise InputError("the trees of splits have more slopes than are allowed")
    entry, value = torch.empty_like(node), torch.zeros(m, dtype=torch.float64)
    entry[split], entry[~split] = raw.array("<i4", m - leaves).long(), raw.array("<i4", leaves).long()
    value[split] = _chosen(raw, m - leaves)
    multipliers = raw.array("<f2", p).double() * 2.0**power
    neurons = torch.stack([raw.array("<i4", u).long(), raw.array("<i4", u).long().cumsum(0)], 1)
    own = raw.array("|u1", leaves)
    if bool((own > 1).any()):
        raise InputError("the trees of splits are damaged: a leaf has slopes or has none")
    slopes = torch.full((leaves, u), USUAL, dtype=torch.uint8)
    slopes[own == 1] = raw.array("|u1", int(own.sum()) * u).reshape(u, -1).T if u else slopes[own == 1]
    return group, Tree(node, entry, value, multipliers, neurons, slopes, bool(how % 2), sharpened, cases)


def _chosen(raw: _Reader, count: int) -> Tensor:
    """The values of so many splits: each stands there once, with the places where it is."""
    (distinct,) = raw.numbers("<I")
    if distinct > count:
        raise InputError("the trees of splits are damaged: there are more values in them than splits")
    values, which = raw.array("<f8", distinct), raw.array("<i4", count).long()
    if bool(((which < 0) | (which >= distinct)).any()):
        raise InputError("the trees of splits are damaged: a split has a value that is not there")
    return values[which]


def _by_place(array: np.ndarray) -> bytes:
    """The first bytes of all numbers, then the second ones, and so on."""
    return np.ascontiguousarray(array).view(np.uint8).reshape(len(array), array.itemsize).T.tobytes()


class _Reader:
    """Bytes, read from the beginning on. `slopes`: of all trees so far."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at, self.slopes = data, 0, 0

    def _next(self, size: int) -> bytes:
        if self.at + size > len(self.data):
            raise InputError("the trees of splits are damaged: they end too early")
        self.at += size
        return self.data[self.at - size : self.at]

    def numbers(self, form: str) -> tuple[int, ...]:
        return struct.unpack(form, self._next(struct.calcsize(form)))

    def array(self, kind: str, count: int) -> Tensor:
        """`count` numbers that `_by_place` wrote."""
        dtype = np.dtype(kind)
        places = np.frombuffer(self._next(count * dtype.itemsize), np.uint8).reshape(dtype.itemsize, count)
        # In this machine's order, as torch wants it.
        return torch.from_numpy(
            np.ascontiguousarray(places.T).view(dtype).reshape(count).astype(dtype.newbyteorder("="))
        )


def as_words(data: bytes) -> Tensor:
    """Bytes as whole words, int64, as tables keep them; bytes of zero are added."""
    return torch.from_numpy(np.frombuffer(data + b"\0" * (-len(data) % 8), "<i8").astype(np.int64))


def as_bytes(words: Tensor) -> bytes:
    return words.numpy().astype("<i8").tobytes()
