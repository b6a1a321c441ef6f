"""Trees as they grow, and as they are stored: one per input and group that is split."""

from __future__ import annotations

import numpy as np
import torch

from elbowroom.claim.tree import EMPTY, USUAL, Tree
from elbowroom.search.bounds.sharpened import Sharpening
from elbowroom.search.branching.choose import Choice
from elbowroom.search.branching.climb import Climbed
from elbowroom.search.branching.leaves import Leaves


class Growing:
    """One tree. Nodes are numbered as they come, 0 is the root; `children` of a leaf are -1."""

    def __init__(self) -> None:
        self.node, self.entry, self.value = [-1], [0], [0.0]
        self.children = [-1]  # the low side; the high one follows it
        self.finished: dict[int, tuple[int, np.ndarray, np.ndarray, np.ndarray]] = {}

    @property
    def n_leaves(self) -> int:
        return (len(self.node) + 1) // 2

    def split(self, place: int, node: int, entry: int, value: float) -> int:
        """The number of the low side."""
        first = len(self.node)
        self.node[place], self.entry[place], self.value[place] = node, entry, value
        self.children[place] = first
        self.node += [-1, -1]
        self.entry += [0, 0]
        self.value += [0.0, 0.0]
        self.children += [-1, -1]
        return first

    def order(self) -> list[int]:
        """The nodes in preorder."""
        found, stack = [], [0]
        while stack:
            at = stack.pop()
            found.append(at)
            if self.children[at] >= 0:
                stack += [self.children[at] + 1, self.children[at]]
        return found

    def stored(self, places: torch.Tensor, sharpened: Sharpening, usual: bool) -> Tree:
        """The tree, all of whose leaves are finished. `places`: nodes and entries of the ReLUs, `u x 2`;
        `sharpened`: as the bounds of hidden nodes were; `usual`: whether slopes that are not of a leaf's own must be
        the usual ones, or count for nothing."""
        order = self.order()
        leaves = [self.finished[at] for at in order if self.children[at] < 0]
        used = np.stack([leaf[3] for leaf in leaves])
        listed = used.any(0)
        used, slopes = used[:, listed], np.stack([leaf[2] for leaf in leaves])[:, listed]
        slopes = np.where(used, slopes, USUAL) if usual else _repeated(slopes, used)
        return Tree(
            node=torch.tensor([self.node[at] for at in order]),
            entry=torch.tensor([self.entry[at] if self.children[at] >= 0 else self.finished[at][0] for at in order]),
            value=torch.tensor([self.value[at] for at in order], dtype=torch.float64),
            multipliers=torch.from_numpy(np.concatenate([leaf[1] for leaf in leaves])),
            neurons=places[torch.from_numpy(listed)],
            slopes=torch.from_numpy(slopes.astype(np.uint8)),
            sharpened=sharpened.steps,
            cases=sharpened.cases,
        )


def _repeated(slopes: np.ndarray, used: np.ndarray) -> np.ndarray:
    """Slopes, `l x u`, those that are not used as in the leaf before: nothing is packed better."""
    last = np.maximum.accumulate(np.where(used, np.arange(len(used))[:, None], 0))
    return np.take_along_axis(slopes, last, 0)


class Forest:
    """The trees of all problems, by number."""

    def __init__(self) -> None:
        self.trees: dict[int, Growing] = {}

    def tree(self, problem: int) -> Growing:
        return self.trees.setdefault(problem, Growing())

    def split(self, leaves: Leaves, choice: Choice) -> Leaves:
        """The sides of these leaves, low ones first, in their places."""
        sides = leaves.halves(choice.node, choice.entry, choice.value, (choice.low, choice.high))
        numbers = zip(*(t.tolist() for t in (leaves.problem, leaves.place, choice.node, choice.entry, choice.value)))
        low = [self.tree(p).split(at, *split) for p, at, *split in numbers]
        first = torch.tensor(low, dtype=torch.long, device=leaves.place.device)
        return sides.with_(place=torch.cat([first, first + 1]))

    def finish(self, climbed: Climbed) -> None:
        """Notes what was proved."""
        leaves = climbed.leaves
        columns = (leaves.problem, leaves.place, torch.where(climbed.empty, EMPTY, leaves.row), leaves.depth)
        numbers = zip(*(t.tolist() for t in columns))
        multiplier = leaves.multiplier.double().cpu().numpy()
        slope, used = leaves.slope.cpu().numpy(), climbed.used.cpu().numpy()
        for k, (problem, place, row, depth) in enumerate(numbers):
            self.tree(problem).finished[place] = (row, multiplier[k, :depth], slope[k], used[k])
