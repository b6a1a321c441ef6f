"""Questions for Marabou, a complete verifier. It computes in floating point, to about 1e-6."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

Literal = tuple[list[Fraction], Fraction]  # row, offset: row . Y + offset <= 0


@dataclass
class Query:
    """A box and the unsafe outputs: those for which every literal of some clause holds."""

    lower: list[Fraction]
    upper: list[Fraction]
    clauses: list[list[Literal]]

    def unsafe(self, outputs: Iterable[Fraction]) -> bool:
        z = list(outputs)
        return any(all(sum(c * v for c, v in zip(row, z)) + d <= 0 for row, d in clause) for clause in self.clauses)


SECONDS = 3  # per query; no answer by then is no answer


@dataclass
class Verifier:
    """Asks about one exported network and counts the answers."""

    marabou: Any
    network: Path
    answers: Counter[str] = field(default_factory=Counter)

    def whole(self, path: Path) -> tuple[str, list[float]]:
        """By Marabou's own reader of VNN-LIB."""
        net = self.marabou.read_onnx(str(self.network))
        return self._solve(net, propertyFilename=str(path))

    def clause(self, found: Query, number: int) -> tuple[str, list[float]]:
        """By our reader, one clause alone."""
        net = self.marabou.read_onnx(str(self.network))
        xs, ys = net.inputVars[0].flatten().tolist(), net.outputVars[0].flatten().tolist()
        for x, low, high in zip(xs, found.lower, found.upper, strict=True):
            net.setLowerBound(x, float(low))
            net.setUpperBound(x, float(high))
        for row, offset in found.clauses[number]:
            terms = [(y, float(c)) for y, c in zip(ys, row, strict=True) if c]
            net.addInequality([y for y, _ in terms], [c for _, c in terms], float(-offset))
        return self._solve(net)

    def _solve(self, net: Any, **more: Any) -> tuple[str, list[float]]:
        options = self.marabou.createOptions(verbosity=0, timeoutInSeconds=SECONDS)
        answer, values, _ = net.solve(verbose=False, options=options, **more)
        answer = answer if answer in ("sat", "unsat") else "unknown"
        self.answers[answer] += 1
        return answer, [values[x] for x in net.inputVars[0].flatten().tolist()] if answer == "sat" else []
