"""Between which values some data lie, feature by feature."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from elbowroom.arguments.names import few
from elbowroom.errors import InputError

ENOUGH = 10  # rows, from which on the range that was seen says something of how far a feature moves
OBSERVED = "observed"  # a domain: the range of the data given


@dataclass(frozen=True, eq=False)
class Observed:
    """The least and the largest finite value of each feature, `n` each, NaN where it has none; `rows`: of how many."""

    lowest: np.ndarray
    highest: np.ndarray
    rows: int

    @staticmethod
    def of(blocks: Iterable[np.ndarray], features: int) -> Observed:
        """That of blocks of rows, `b x n` each."""
        lowest, highest, rows = np.full(features, np.inf), np.full(features, -np.inf), 0
        for block in blocks:
            finite = np.isfinite(block)
            rows += len(block)
            lowest = np.minimum(lowest, np.where(finite, block, np.inf).min(0, initial=np.inf))
            highest = np.maximum(highest, np.where(finite, block, -np.inf).max(0, initial=-np.inf))
        seen = lowest <= highest
        return Observed(np.where(seen, lowest, np.nan), np.where(seen, highest, np.nan), rows)

    @property
    def widths(self) -> np.ndarray:
        """Highest less lowest, `n`; 0 where nothing was seen, or too few rows to say, or a width beyond all numbers."""
        with np.errstate(over="ignore"):
            found = np.nan_to_num(self.highest - self.lowest, nan=0.0, posinf=0.0)
        return found if self.rows >= ENOUGH else np.zeros_like(found)

    def domain(self, moves: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The ends, `n` each, of the features that move, `n` booleans; infinite for others."""
        if self.rows < 2:
            raise InputError(
                f'domain="{OBSERVED}" is the range of the data given, which needs two rows at least; there is '
                f"{self.rows}. Give the lowest and the highest valid values"
            )
        bounded = moves & ~np.isnan(self.lowest)
        return np.where(bounded, self.lowest, -np.inf), np.where(bounded, self.highest, np.inf)

    def constant(self, names: tuple[str, ...], moves: np.ndarray) -> str | None:
        """A note on features that have the same value everywhere, and so no room; None where there are none."""
        same = [name for name, low, high, own in zip(names, self.lowest, self.highest, moves) if own and low == high]
        if not same:
            return None
        verb = "has" if len(same) == 1 else "have"
        return f"{few(same)} {verb} the same value in all rows, and so no room in the range of the data"


__all__ = ["ENOUGH", "OBSERVED", "Observed"]
