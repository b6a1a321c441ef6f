"""All inputs of a run, a row each; and what the regions say of its features, gathered part by part."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import torch

from elbowroom.arguments.features import feature_titles
from elbowroom.certificates.result import Certificates
from elbowroom.certificates.store import Run
from elbowroom.errors import InputError
from elbowroom.report.room import Scale, of_mixed_units, shares
from elbowroom.runs.one_input import name_of, numbers_of

_LARGEST = 2**53  # whole numbers up to there are exact in a script
_PER_DECADE = 4  # bars of the histogram of rooms

COLUMNS = ("number", "name", "status", "label", "message", "size", "ratio", "reach", "least", "share", "seconds")


class Gathered:
    """What was seen of a run so far, see `columns_of` and `features_of`."""

    def __init__(self, run: Run, scale: Scale) -> None:
        n = run.network.n_inputs
        self.run, self.scale = run, scale
        self.table: dict[str, list[Any]] = {name: [] for name in COLUMNS}
        self.share, self.extent = np.zeros(n), np.zeros(n)  # sums over certified inputs
        self.least, self.whole, self.frozen = (np.zeros(n, dtype=np.int64) for _ in range(3))
        self.certified = 0
        self.rooms: Counter[int] = Counter()
        self.direction, self.directed = np.zeros(n), 0  # the sum of the regions' unit directions, and how many
        self.mixed = "basis" not in run.shared and of_mixed_units(scale, run.network)
        # Shares order features of different units; without an axis for each, extents do.
        self.by_share = "basis" not in run.shared and bool((scale.low < scale.high).any())

    def add(self, part: int, certs: Certificates) -> None:
        good = certs.certified
        room, eps = shares(certs, self.scale), certs.eps.flatten(1)
        measured = room if self.by_share else eps
        # What keeps its value, since none further is proved, has no room.
        moves = eps > 0 if certs.stuck is None else (eps > 0) | certs.stuck.flatten(1)
        free = moves & measured.isfinite()
        first = torch.where(free, measured, torch.inf).min(1)
        for row, number in enumerate(numbers_of(self.run, part, certs)):
            has = bool(good[row]) and math.isfinite(float(first.values[row]))
            label = int(certs.labels[row])
            reach = math.inf if certs.reach is None else float(certs.reach[row])
            found = (
                number,
                name_of(self.run, part, row),
                certs.status[row],
                label if label >= 0 else None,
                certs.message[row],
                float(certs.geomean[row]) if good[row] else None,
                float(certs.ratio[row]) if good[row] else None,
                reach if good[row] and math.isfinite(reach) else None,
                int(first.indices[row]) if has else None,
                float(first.values[row]) if has else None,
                float(certs.seconds[row]),
            )
            for name, value in zip(COLUMNS, found):
                self.table[name].append(value)
        if bool(good.any()):
            self.frozen += (~moves[good]).sum(0).numpy()
            self._features(room[good], eps[good], free[good], first.indices[good])
            if certs.lower is not None and certs.upper is not None:
                lower, upper = certs.lower.flatten(1)[good], certs.upper.flatten(1)[good]
                self.whole += ((lower <= self.scale.low) & (upper >= self.scale.high)).sum(0).numpy()

    def _features(self, room: torch.Tensor, eps: torch.Tensor, free: torch.Tensor, first: torch.Tensor) -> None:
        """`room`, `eps`, `free`: of the certified inputs, `b x n`; `first`: which feature has the least room, `b`."""
        self.certified += len(eps)
        self.share += room.nan_to_num(0.0, 0.0, 0.0).sum(0).numpy()
        self.extent += eps.sum(0).numpy()
        some = free.any(1)
        self.least += np.bincount(first[some].numpy(), minlength=eps.shape[1])
        values = (room if self.by_share else eps)[free].numpy()
        bins = np.floor(_PER_DECADE * np.log10(values[values > 0])).astype(np.int64)
        self.rooms.update(dict(zip(*(each.tolist() for each in np.unique(bins, return_counts=True)))))
        sides = room.nan_to_num(0.0, 0.0, 0.0) if self.mixed else eps
        lengths = sides.norm(dim=1, keepdim=True)
        self.direction += torch.where(lengths > 0, sides / lengths, 0.0).sum(0).numpy()
        self.directed += int((lengths > 0).sum())

    def features(self) -> list[dict[str, Any]]:
        """A row per feature, in the network's order: `share` and `extent` are means over the certified inputs; `least`,
        `whole`, `fixed`: for how many of these it has the least room, may have every value of its axis (boxes only), is
        held fixed."""
        names, table = feature_titles(self.run.network), self.run.network.about.table
        if "basis" in self.run.shared:
            names = [f"direction {k}" for k in range(len(names))]
        units = [c.unit for c in table.columns for _ in range(c.width)] if table else [""] * len(names)
        count = self.certified
        return [
            {
                "feature": name,
                "number": k,
                "unit": units[k],
                "low": _finite(self.scale.low[k]),
                "high": _finite(self.scale.high[k]),
                "axis": self.scale.of[k],
                "share": float(self.share[k] / count) if count and self.scale.low[k] < self.scale.high[k] else None,
                "extent": float(self.extent[k] / count) if count else None,
                "least": int(self.least[k]),
                "whole": int(self.whole[k]),
                "fixed": int(self.frozen[k]),
            }
            for k, name in enumerate(names)
            if table is None or table.moves[k]  # codes of categories have no extent
        ]

    def histogram(self) -> dict[str, list[float]] | None:
        """How many rooms, of all features that may move and all certified inputs, lie between which edges."""
        if not self.rooms:
            return None
        bins = range(min(self.rooms), max(self.rooms) + 1)
        edges = [10 ** (k / _PER_DECADE) for k in (*bins, bins[-1] + 1)]
        return {"edges": edges, "counts": [self.rooms[k] for k in bins]}

    def similarity(self) -> float | None:
        """The mean cosine between the extents of two certified inputs, see `analyse.cosine_similarity`; between
        their rooms, where units differ."""
        n = self.directed
        return (float(self.direction @ self.direction) - n) / (n * (n - 1)) if n > 1 else None


def gathered(run: Run, scale: Scale) -> Gathered:
    """All inputs of a run, one part at a time in memory. Refuses numbers that stand twice, or are none to a script."""
    found = Gathered(run, scale)
    for k in run.finished():
        found.add(k, run.read(k))
    numbers = found.table["number"]
    odd = [n for n in numbers if abs(n) > _LARGEST] or [n for n, times in Counter(numbers).items() if times > 1]
    if odd:
        raise InputError(f"{run.folder}: the number {odd[0]} of an input is too large, or stands twice")
    return found


def _finite(value: torch.Tensor) -> float | None:
    found = float(value)
    return found if math.isfinite(found) else None
