"""How a bound was found, for whoever proves it again."""

from __future__ import annotations

from dataclasses import dataclass

PROOF_BYTES = 100_000  # of the trees of one input, packed, where nothing is said


@dataclass(frozen=True)
class Hints:
    """How the bound was found, which a checker need not believe: no method is better than every other.

    `parallel`: lines with one slope per neuron; `logits`: from the outputs' own bounds, as in the paper; `hidden`:
    with linear bounds of the hidden layers, too.
    """

    parallel: bool = False
    logits: bool = False
    hidden: bool = True

    @staticmethod
    def of(bounds: str, margin: str) -> Hints:
        return Hints(bounds in ("combined", "quadratic"), margin == "logits", bounds not in ("simple", "fast"))
