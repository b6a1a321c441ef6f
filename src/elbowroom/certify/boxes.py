"""Certificates of boxes that were given and not searched: proved on the very numbers that are stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from elbowroom.certificates.result import MOST_WORDS, Certificates, sizes_of
from elbowroom.certificates.schema import blank_rows
from elbowroom.certify.api import collect
from elbowroom.certify.task import parts_of
from elbowroom.claim.categories import Categories
from elbowroom.claim.space import Space
from elbowroom.claim.specification import Specification, label_stays
from elbowroom.claim.stated import Stated
from elbowroom.claim.tree import Tree
from elbowroom.claim.tree_bytes import as_bytes, as_words, pack, unpack
from elbowroom.errors import InputError
from elbowroom.network.file import network_hash
from elbowroom.network.graph import Network
from elbowroom.proof.kernel.prove import prove
from elbowroom.search.memory import Budget
from elbowroom.search.regions.box import Box

_NOT_PROVED = "the strict check does not prove the box"


def certificates_of(
    net: Network,
    points: Tensor,
    labels: Tensor,
    spec: Specification | None,
    space: Space | None,
    boxes: Stated,
    trees: Sequence[dict[int, Tree]],
    status: Sequence[str],
    message: Sequence[str],
    imputed: Tensor | None = None,
    scale: Tensor | None = None,
    memory: int | str | None = None,
) -> Certificates:
    """Certificates of the boxes that the strict check proves; an input whose `status` is "" is to have one.

    `points`: `b x *input_shape`, float64. `labels`: `b`, -1 with a specification. `space`: where there is a domain, in
    which the boxes lie. `boxes`: `b x n`, they hold their inputs. `trees`: by group, of each box. `status`, `message`:
    of the inputs that are to have none. `imputed`: `b x *input_shape`, values that were missing. `scale`: `n`, what
    room is a share of. All but these are on one device.
    """
    sizes = sizes_of(net, None if spec is None else spec.group)
    has = parts_of(net, Box(), False, True, False) | ({"imputed"} if imputed is not None else set())
    rows = blank_rows(Certificates, sizes, points.cpu(), has)
    if imputed is not None:
        rows["imputed"] = imputed
    categories = Categories.of(net.about.table)
    rows["labels"] = labels.cpu().clone()
    rows["status"], rows["message"] = [s or "not_certified" for s in status], list(message)
    packed: list[Any] = [_words(own) for own in trees]
    for k, words in enumerate(packed):
        if not status[k] and words is None:
            rows["message"][k] = "the proof is longer than a certificate may be; less effort, or smaller boxes, may do"
    index = torch.tensor([not s and w is not None for s, w in zip(status, packed)]).nonzero().squeeze(1)
    size = Budget.of(memory, points.device).batch(net, points.device, sizes.rows or net.n_outputs - 1)
    for part in index.split(size) if len(index) else ():
        at = part.to(points.device)
        own = label_stays(labels[at], net.n_outputs, net.decision) if spec is None else spec.part(at)
        region = boxes.take(at)
        forest = [unpack(as_bytes(packed[k])) for k in part.tolist()]  # as the checker will read them
        margins = prove(net, region, own.rows, own.offset, own.group, None, None, forest).cpu()
        passed = (margins > 0).all(1)
        _write(rows, part[passed], region.take(passed.to(at.device)), margins[passed], packed)
        if categories is not None:  # as they are
            rows["allowed"][part[passed]] = categories.sets_of(points.flatten(1).cpu()[part[passed]])
        for k in part[~passed].tolist():
            rows["message"][k] = _NOT_PROVED
    found: dict[str, Any] = rows
    if spec is not None:
        stated = spec.cast(torch.float64, "cpu")
        found.update(spec_rows=stated.rows, spec_offset=stated.offset, spec_group=stated.group)
    settings = {
        "region": Box().name, "bounds": "adaptive", "margin": "direct", "solver": "none: boxes were given",
        "delta": 0.0, "decision": net.decision, "precision": "float64", "p": "inf", "deployed": None,
        "shares": False, "network_hash": network_hash(net),
    }  # fmt: skip
    return collect(found, net, Box(), space, scale, settings)


def _write(rows: dict[str, Any], index: Tensor, region: Stated, margins: Tensor, packed: list[Any]) -> None:
    """Writes proved boxes, those of the inputs `index`, into the columns."""
    half, middle = region.half_widths().cpu(), region.middle().cpu()
    free = half > 0
    count = free.sum(1)
    log_geomean = torch.where(free, half, 1.0).log().sum(1) / count  # NaN where nothing moves
    moves = count > 0
    least = torch.where(moves, torch.where(free, half, torch.inf).amin(1), 0.0)
    columns = {
        "eps": half, "center": middle, "lower": region.lower, "upper": region.upper, "margins": margins,
        "geomean": torch.where(moves, log_geomean.exp(), 0.0),
        "log_volume": torch.where(moves, count * (log_geomean + torch.tensor(2.0).double().log()), -torch.inf),
        # No uniform region was looked for: that which the box holds.
        "uniform": least, "ratio": torch.where(moves, (log_geomean - least.log()).exp(), 0.0),
    }  # fmt: skip
    for name, value in columns.items():
        assert value is not None
        rows[name][index] = value.cpu().reshape(len(index), *rows[name].shape[1:])
    for k in index.tolist():
        rows["status"][k], rows["message"][k], rows["ended"][k] = "certified", "", "the box was given"
        rows["trees"][k] = packed[k]


def _words(trees: dict[int, Tree]) -> Tensor | None:
    """Trees as certificates keep them; None where they are too long."""
    try:
        words = as_words(pack(tuple(trees.items())))
    except InputError:
        return None
    return words if len(words) <= MOST_WORDS else None


__all__ = ["certificates_of"]
