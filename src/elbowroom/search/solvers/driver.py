"""What all solvers share: a protocol of one method, the best that was found so far, and the loop around it.

A solver is a dataclass of its options with a generator, `run(problem, best)`: it offers regions to `best`, says how the
search of an input ended, and yields after every step, so that the driver can stop it. Its state are its own variables.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from elbowroom.search.solvers.problem import Problem


class Best:
    """The largest feasible region of every input that was offered: `theta`, `b x d`, and its size, `b`."""

    def __init__(self, problem: Problem, start: Tensor) -> None:
        """`start`: `b x d`, feasible."""
        self.theta = start.clone()
        self.size = problem.size(self.theta)
        self.ended = [""] * len(start)  # in words, per input

    def offer(self, problem: Problem, index: Tensor, theta: Tensor, feasible: Tensor) -> tuple[Tensor, Tensor]:
        """Takes what is larger and was found feasible. `problem`: of the inputs `index`, positions; `theta`: theirs,
        `m x d`. Returns which were taken, and by how much their objective grew (`m`, means nothing for the others)."""
        size = torch.where(feasible, problem.size(theta), -torch.inf)
        gain = size - self.size[index]
        better = size > self.size[index]
        where = index[better]
        self.theta[where], self.size[where] = theta[better], size[better]
        return better, gain

    def end(self, index: Tensor, why: str) -> None:
        """Says of the inputs `index` how their search ended; the last word counts."""
        for k in index.tolist():
            self.ended[k] = why


class Solver(Protocol):
    """Makes regions larger."""

    def run(self, problem: Problem, best: Best) -> Iterator[None]:
        """Offers feasible regions to `best`; yields after every step. No step may make `best` smaller or infeasible."""
        ...


@dataclass(frozen=True)
class Solution:
    """`theta`: `b x d`, feasible as far as the bounds' own precision goes; `ended`: per input, how the search ended."""

    theta: Tensor
    ended: tuple[str, ...]


def improve(problem: Problem, solver: Solver, start: Tensor, most: int | None = None) -> Solution:
    """The largest regions a solver finds from `start`, `b x d`, which is feasible. `most`: steps it may take."""
    best = Best(problem, start)
    for count, _ in enumerate(solver.run(problem, best), 1):
        if count == most:
            break
    return Solution(best.theta, tuple(best.ended))
