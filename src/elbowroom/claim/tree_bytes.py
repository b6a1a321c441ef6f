"""Trees of splits as bytes: compact, and read without trust.

    4 bytes   "ERT2"
    4 bytes   how long the rest is when it is unpacked
    then, packed by zlib: the number of trees, and of each its group, `m` (nodes), `p` (multipliers), `u` (neurons),
    `again` plus twice `sharpened`, and the multipliers' power of 2; node, entry (int32), value (float64), multipliers
    (float16), neurons (int32), slopes (a byte each; those of one neuron together, since most leaves share them).

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

from elbowroom.claim.tree import MOST_MULTIPLIERS, MOST_NEURONS, MOST_NODES, MOST_SHARPENED, MOST_SLOPES, Tree, exponent
from elbowroom.errors import InputError

MOST_BYTES = 1 << 25  # of one input's trees, unpacked
_MAGIC, _OLD = b"ERT2", b"ERT1"
_HEAD, _TREE = struct.Struct("<4sI"), struct.Struct("<IIIIbh")


def pack(trees: Sequence[tuple[int, Tree]], quick: bool = False) -> bytes:
    """The trees of one input, each with the number of its group; no bytes where there is none. `quick`: a few more
    bytes, in a tenth of the time."""
    if not trees:
        return b""
    raw = struct.pack("<I", len(trees)) + b"".join(_packed(group, tree) for group, tree in trees)
    if len(raw) > MOST_BYTES:
        raise InputError(f"trees of {len(raw):,} bytes are more than an input may have, {MOST_BYTES:,}")
    return _HEAD.pack(_MAGIC, len(raw)) + zlib.compress(raw, 1 if quick else 9)


def unpack(data: bytes) -> list[tuple[int, Tree]]:
    """What `pack` was given. Raises an `InputError` where the bytes are no trees; allocates a small multiple of
    `MOST_BYTES` at most. Whether the trees fit a network and a specification, `fitting_leaves` says."""
    if not data:
        return []
    raw = _Reader(_unzipped(data))
    (count,) = raw.numbers("<I")
    if not 0 < count <= len(raw.data) // _TREE.size:
        raise InputError("the trees of splits are damaged: their number cannot be right")
    found = [_unpacked(raw) for _ in range(count)]
    if raw.at != len(raw.data):
        raise InputError("the trees of splits are damaged: there is more in them than they state")
    return found


def _unzipped(data: bytes) -> bytes:
    if data[:4] == _OLD:
        raise InputError("the trees of splits are of an earlier version of this program: certify once more")
    if len(data) < _HEAD.size or data[:4] != _MAGIC:
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
    return _TREE.pack(group, *shape, tree.again + 2 * tree.sharpened, power) + b"".join([
        _by_place(tree.node.numpy().astype("<i4")), _by_place(tree.entry.numpy().astype("<i4")),
        _by_place(tree.value.numpy().astype("<f8")), _by_place(halves.astype("<f2")),
        _by_place(tree.neurons.flatten().numpy().astype("<i4")), tree.slopes.numpy().T.tobytes(),
    ])  # fmt: skip


def _unpacked(raw: _Reader) -> tuple[int, Tree]:
    group, m, p, u, how, power = raw.numbers(_TREE.format)
    sharpened, again = divmod(how, 2)
    counts = (m, MOST_NODES), (p, MOST_MULTIPLIERS), (u, MOST_NEURONS), (sharpened, MOST_SHARPENED), (abs(power), 1000)
    if how < 0 or any(count > most for count, most in counts):
        raise InputError("the trees of splits are damaged: a number in them cannot be right")
    node, entry = raw.array("<i4", m).long(), raw.array("<i4", m).long()
    value, halves = raw.array("<f8", m), raw.array("<f2", p)
    leaves = int((node < 0).sum())
    if leaves * u > MOST_SLOPES:
        raise InputError(f"the trees of splits have more slopes than are allowed, {MOST_SLOPES:,}")
    neurons = raw.array("<i4", 2 * u).long().reshape(u, 2)
    slopes = raw.array("|u1", leaves * u).reshape(u, leaves).T.contiguous()
    multipliers = halves.double() * 2.0**power
    return group, Tree(node, entry, value, multipliers, neurons, slopes, bool(again), sharpened)


def _by_place(array: np.ndarray) -> bytes:
    """The first bytes of all numbers, then the second ones, and so on."""
    return np.ascontiguousarray(array).view(np.uint8).reshape(len(array), array.itemsize).T.tobytes()


class _Reader:
    """Bytes, read from the beginning on."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

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
