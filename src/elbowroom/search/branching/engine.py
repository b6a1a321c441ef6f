"""Branch and bound over inputs, groups and leaves together: which groups of a specification hold on which regions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from elbowroom.claim.specification import Specification
from elbowroom.claim.tree import STEPS, USUAL, Tree
from elbowroom.machine.allocator import settle
from elbowroom.network.graph import Network
from elbowroom.search.bounds.sharpened import PLAIN, Sharpening, worthwhile
from elbowroom.search.branching.carry import Carrier
from elbowroom.search.branching.choose import Choice, choose
from elbowroom.search.branching.climb import Climbed, climb
from elbowroom.search.branching.forest import Forest
from elbowroom.search.branching.halving import halve
from elbowroom.search.branching.leaves import Leaves, joined, rank, worst_first
from elbowroom.search.branching.planting import planted, with_own_boxes
from elbowroom.search.branching.roots import Neurons, Roots
from elbowroom.search.memory import Budget
from elbowroom.search.regions.input_set import InputSet

_AT_ONCE = {"cpu": 256, "cuda": 4096}  # leaves that are split in a round
_BYTES_PER_ENTRY = 64  # of a node, per leaf at work: intervals, lines, coefficients, what is reached
_STALE = 2  # times as many boxes as leaves: some are of no use any more
_LONG = 10  # times the steps of other climbs
FEW_FEATURES = 20  # boxes of so many free features are halved
SHARPENED_HALVES = Sharpening(
    1
)  # where proofs are to be short: trees have less than half the leaves, in about the same time
MANY_FEATURES = 1 << 13  # from where on rows over the input are not written out


@dataclass(frozen=True)
class Limits:
    """What may be spent, and how.

    Attributes:
        leaves: The most leaves of one tree.
        seconds: For all inputs together.
        steps: Of the ascent in slopes and multipliers, per leaf.
        candidates: Splits tried per leaf.
        sharpened: What is done for each row of the hidden nodes, where boxes are not halved; by default what may take
            about as long as the leaves.
        sharpened_halves: The same where they are: there are many of them.
        halve: Whether boxes are halved; by default where few features are free.
        memory: Bytes, or None for a share of what is free.
    """

    leaves: int = 3000
    seconds: float = float("inf")
    steps: int = 20
    candidates: int = 4
    sharpened: Sharpening | None = None
    sharpened_halves: Sharpening = PLAIN
    halve: bool | None = None
    memory: int | str | None = None


# Whether points, `m x *input_shape`, lead to counterexamples: of which inputs and groups they are, `m` each, and the
# corners of the boxes that hold the leaves where they come from.
Look = Callable[[Tensor, Tensor, Tensor, tuple[Tensor, Tensor]], Tensor]


@dataclass
class Outcome:
    """What was found of `b` inputs and `g` groups.

    Attributes:
        proved: `b x g`.
        bound: `b x g`: the least bound of a leaf; where not proved, of those that are left.
        trees: Per input, by group: how groups were proved that the plain bounds did not prove.
        points: Per input a counterexample, `*input_shape`, as far as the search's arithmetic can tell; None where none
            was met.
        leaves: `b x g`: how many leaves were made.
        left: Per input, by group: the leaves that were not proved, where a group was not.
    """

    proved: Tensor
    bound: Tensor
    trees: list[dict[int, Tree]]
    points: list[Tensor | None]
    leaves: Tensor
    left: list[dict[int, Leaves]] = field(default_factory=list)


def prove(
    net: Network,
    sets: InputSet,
    spec: Specification,
    limits: Limits | None = None,
    start: Sequence[Mapping[int, Tree]] | None = None,
    look: Look | None = None,
    every: bool = False,
) -> Outcome:
    """Tries to prove every group of a specification on every set of inputs, by splitting where plain bounds fail.

    An input is given up as a whole when one of its groups is: at a counterexample, or at a limit.

    Args:
        net: The network, in the type and on the device to compute with.
        sets: The regions, likewise.
        spec: What must hold, likewise.
        limits: What may be spent.
        start: Per input, by group: trees to begin with, found on other sets.
        look: Which of the points where leaves' bounds are attained lead to counterexamples, after which an input is
            given up; default, those that break the specification as computed here.
        every: Whether groups have trees as well that the plain bounds prove, if only of one leaf.

    Returns:
        What was proved, by which trees.
    """
    with torch.no_grad():
        return Search(net, sets, spec, limits or Limits(), look).run(start, every)


class Search:
    """One call of `prove`. `pool`: leaves that were bounded and not proved; `bounds`, theirs."""

    def __init__(
        self, net: Network, sets: InputSet, spec: Specification, limits: Limits, look: Look | None = None
    ) -> None:
        self.net, self.spec, self.limits, self.look = net, spec, limits, look or self._breaks
        self.pace = 0.0  # seconds per leaf that was split, lately
        self.deadline = time.monotonic() + limits.seconds
        device = sets.center.device
        budget = Budget.of(limits.memory, device)
        settle(budget.total)
        batch, self.groups = len(sets.center), spec.n_groups
        self.neurons = Neurons(net)
        self.group_rows = [(spec.group == g).nonzero().squeeze(1) for g in range(self.groups)]
        self.forest = Forest()
        fits = budget.total // (4 * _BYTES_PER_ENTRY * sum(node.size for node in net.nodes))
        self.at_once = max(1, min(fits, _AT_ONCE.get(device.type, _AT_ONCE["cpu"])))
        few = sets.is_box and int((sets.radius > 0).flatten(1).sum(1).max()) <= FEW_FEATURES if batch else False
        self.halves_first = few if limits.halve is None else limits.halve and sets.is_box
        useless = net.n_inputs >= MANY_FEATURES or not self.neurons.count  # the proof does not do it for very many
        sharpened = limits.sharpened_halves if self.halves_first else limits.sharpened
        sharpened = worthwhile(net, limits.leaves) if sharpened is None else sharpened
        self.roots = Roots(net, sets, budget, PLAIN if useless else sharpened)
        self.points: list[Tensor | None] = [None] * batch
        self.given_up = torch.zeros(batch, dtype=torch.bool, device=device)
        self.least = sets.center.new_full((batch * self.groups,), torch.inf)
        self.count = torch.ones(batch * self.groups, dtype=torch.long, device=device)

    # --- leaves and their rows

    def rows(self, leaves: Leaves) -> tuple[Tensor, Tensor]:
        """The row and offset of each leaf: `l x k`, `l`."""
        spec = self.spec
        of = leaves.problem // self.groups if len(spec.rows) > 1 else torch.zeros_like(leaves.problem)
        return spec.rows[of, leaves.row], spec.offset[of, leaves.row]

    def prepare(self, leaves: Leaves, roots: Roots | None = None) -> tuple[Carrier, Tensor]:
        roots = roots or self.roots
        rows, offset = self.rows(leaves)
        carrier = Carrier(self.net, self.neurons, roots, leaves, rows, offset)
        return carrier, roots.room(leaves.root, rows, offset)

    def first(self, every: bool = False) -> Leaves:
        """The leaves to begin with: groups that the plain bounds do not prove (or `every` one), their best rows."""
        plain = Roots(self.net, self.roots.sets, self.roots.budget) if self.roots.sharpened else self.roots
        bounds = plain.rows(self.spec)
        problems, rows = [], []
        for g, members in enumerate(self.group_rows):
            best, row = bounds[:, members].max(1)
            row = members[row]
            problem = torch.arange(len(best), device=best.device) * self.groups + g
            of = problem // self.groups if len(self.spec.rows) > 1 else torch.zeros_like(problem)
            input_ = problem // self.groups
            room = self.roots.room(input_, self.spec.rows[of, row], self.spec.offset[of, row])
            open_ = ~(best > room)
            self.least[problem] = torch.where(open_, torch.inf, best)
            open_ = open_ | every
            problems.append(problem[open_])
            rows.append(row[open_])
        problem, row = torch.cat(problems), torch.cat(rows)
        input_ = problem // self.groups
        return Leaves.whole(problem, input_, row, self.usual_slopes(input_))

    def planted(self, work: Leaves, start: Sequence[Mapping[int, Tree]]) -> Leaves:
        """The leaves of trees in place of the leaves that nothing has split yet, where there are trees."""
        parts, whole = [work.take(slice(0, 0))], []
        for k, (problem, row) in enumerate(zip(work.problem.tolist(), work.row.tolist())):
            input_, group = divmod(problem, self.groups)
            tree = start[input_].get(group)
            if tree is None or tree.n_leaves > self.limits.leaves:
                whole.append(k)
                continue
            self.forest.trees[problem], leaves = planted(tree, self.neurons, problem, input_, row, work.slope.device)
            self.count[problem] = len(leaves)
            parts.append(leaves)
        leaves = with_own_boxes(self.roots, joined(parts))
        leaves = leaves.with_(slope=torch.where(leaves.slope == USUAL, self.usual_slopes(leaves.root), leaves.slope))
        return joined([leaves, work.take(torch.tensor(whole, dtype=torch.long, device=work.problem.device))])

    def usual_slopes(self, root: Tensor) -> Tensor:
        """Those of the plain lines on some roots, `m x u`."""
        parts = [root.new_zeros(len(root), 0, dtype=torch.bool)]
        for i in self.neurons.first:
            j = self.net.nodes[i].inputs[0]
            parts.append((self.roots.upper[j][root] > -self.roots.lower[j][root]).flatten(1))
        return torch.cat(parts, 1).to(torch.uint8) * STEPS

    # --- rounds

    def run(self, start: Sequence[Mapping[int, Tree]] | None = None, every: bool = False) -> Outcome:
        work = self.first(every)
        if start is not None:
            work = self.planted(work, start)
        self.pool, self.bounds = work.take(slice(0, 0)), self.least[:0]
        begun = time.monotonic()
        while len(work):
            self._bound(work)
            if time.monotonic() > self.deadline:
                self.given_up[self.pool.problem // self.groups] = True
            self._give_up()
            self.pace = (time.monotonic() - begun) / len(work)
            begun = time.monotonic()
            work = self._split()
        return self._outcome()

    def _bound(self, work: Leaves) -> None:
        """Bounds leaves; the proved ones are finished, the others go to the pool."""
        for part in torch.arange(len(work), device=work.problem.device).split(2 * self.at_once):
            climbed = climb(self.prepare, work.take(part).trimmed(), self.limits.steps)
            done = climbed.proved
            self._finish(climbed, done)
            rest = climbed.leaves.take(~done)
            self.pool = joined([self.pool, rest])
            self.bounds = torch.cat([self.bounds, climbed.bound[~done]])
            self._look_at(climbed.point[~done], rest)

    def _finish(self, climbed: Climbed, done: Tensor) -> None:
        climbed = climbed.take(done)
        if self.halves_first:  # a proof has the usual slopes of each box by itself
            usual = self.usual_slopes(climbed.leaves.root)
            climbed.used = climbed.used & (climbed.leaves.slope != usual)
        bound = torch.where(climbed.empty, torch.inf, climbed.bound)
        self.least.scatter_reduce_(0, climbed.leaves.problem, bound, "amin")
        self.forest.finish(climbed)

    def _look_at(self, points: Tensor, leaves: Leaves) -> None:
        """Points where bounds were attained may be counterexamples."""
        if not len(points):
            return
        of, group = leaves.problem // self.groups, leaves.problem % self.groups
        sets = self.roots.sets
        box = sets.take(leaves.root).hull()
        broken = self.look(of, group, points, box)
        for k in broken.nonzero().squeeze(1).tolist():
            input_ = int(of[k])
            if self.points[input_] is None:
                self.points[input_] = points[k]
        self.given_up[of[broken]] = True

    def _breaks(self, of: Tensor, group: Tensor, points: Tensor, box: tuple[Tensor, Tensor]) -> Tensor:
        return (self.spec.part(of).margins(self.net.values(points)[-1]) <= 0).any(1)

    def _give_up(self) -> None:
        """Leaves the inputs alone that are broken, or past their limit."""
        full = self.count[self.pool.problem] >= self.limits.leaves
        self.given_up[self.pool.problem[full] // self.groups] = True

    def _split(self) -> Leaves:
        """The sides of the worst leaves of every problem; out of the pool they go."""
        alive = (~self.given_up[self.pool.problem // self.groups]).nonzero().squeeze(1)
        if not len(alive):
            return self.pool.take(slice(0, 0))
        order = alive[worst_first(self.pool.problem[alive], self.bounds[alive])]
        # No tree grows past its limit.
        order = order[rank(self.pool.problem[order]) < self.limits.leaves - self.count[self.pool.problem[order]]]
        order = order[torch.argsort(rank(self.pool.problem[order]), stable=True)][: self._in_time()]
        if self.halves_first:
            order = self._with_their_box(order, alive)
        leaves, bounds = self.pool.take(order).trimmed(), self.bounds[order]
        keep = torch.ones(len(self.pool), dtype=torch.bool, device=order.device)
        sides, found = halve(self, leaves, bounds) if self.halves_first else self._split_neurons(leaves)
        if not bool(found.all()):
            sides, found = self._last_resort(leaves, sides, found)
        # What cannot be split any more stays, and its input is given up.
        self.given_up[leaves.problem[~found] // self.groups] = True
        keep[order[found]] = False
        self.pool, self.bounds = self.pool.take(keep), self.bounds[keep]
        split = leaves.problem[found]
        self.count.index_add_(0, split, torch.ones_like(split))
        return self._with_fewer_roots(sides)

    def _in_time(self) -> int:
        """How many leaves to split in the next round."""
        left = (self.deadline - time.monotonic()) / (2 * self.pace) if self.pace > 0 else self.at_once
        return max(1, int(min(left, self.at_once)))

    def _with_their_box(self, order: Tensor, alive: Tensor) -> Tensor:
        """All leaves of the boxes that these leaves are of, as far as their trees may grow."""
        wanted = torch.zeros(len(self.roots), dtype=torch.bool, device=order.device)
        wanted[self.pool.root[order]] = True
        found = alive[wanted[self.pool.root[alive]]]
        problem = self.pool.problem[found]
        return found[rank(problem) < self.limits.leaves - self.count[problem]]

    def _with_fewer_roots(self, sides: Leaves) -> Leaves:
        """Lets go of boxes that no leaf is left of, where there are many."""
        used = torch.cat([self.pool.root, sides.root])
        if len(self.roots) <= _STALE * len(used):
            return sides
        place = self.roots.kept(used)
        self.pool = self.pool.with_(root=place[self.pool.root])
        return sides.with_(root=place[sides.root])

    def _split_neurons(self, leaves: Leaves) -> tuple[Leaves, Tensor]:
        choice = choose(self.prepare, leaves, self.limits.candidates)
        if choice is None:
            return leaves.take(slice(0, 0)), torch.zeros_like(leaves.problem, dtype=torch.bool)
        return self.grown(leaves.take(choice.found), choice.take(choice.found)), choice.found

    def _last_resort(self, leaves: Leaves, sides: Leaves, found: Tensor) -> tuple[Leaves, Tensor]:
        """Where no neuron is left to split, the network is linear: long climbs, and halves of what that leaves."""
        stuck = (~found).nonzero().squeeze(1)
        climbed = climb(self.prepare, leaves.take(stuck), _LONG * self.limits.steps)
        self._finish(climbed, climbed.proved)
        found = found.clone()
        found[stuck[climbed.proved]] = True
        done = leaves.problem[stuck[climbed.proved]]
        self.count.index_add_(0, done, -torch.ones_like(done))  # they are not split, after all
        rest = stuck[~climbed.proved]
        if self.halves_first or not self.roots.sets.is_box or not len(rest):
            return sides, found
        more, halved = halve(self, climbed.leaves.take(~climbed.proved), climbed.bound[~climbed.proved])
        found[rest[halved]] = True
        return joined([sides, more]), found

    def grown(self, leaves: Leaves, choice: Choice, root: Tensor | None = None) -> Leaves:
        """The sides of leaves, with the best rows of their groups. `root`: where they have own boxes, `2 l`."""
        sides = self.forest.split(leaves, choice)
        if root is not None:
            sides = sides.with_(root=root)
        if self.halves_first:
            sides = sides.with_(slope=self.usual_slopes(sides.root))
        return self._best_rows(sides)

    def _best_rows(self, leaves: Leaves) -> Leaves:
        """Of groups with several rows, the one with the best bound."""
        if all(len(m) == 1 for m in self.group_rows):
            return leaves
        row = leaves.row.clone()
        for g, members in enumerate(self.group_rows):
            here = (leaves.problem % self.groups == g).nonzero().squeeze(1)
            if len(members) == 1 or not len(here):
                continue
            bounds = []
            for r in members:
                some = leaves.take(here).with_(row=r.expand(len(here)))
                bounds.append(climb(self.prepare, some, 0).bound)
            row[here] = members[torch.stack(bounds).argmax(0)]
        return leaves.with_(row=row)

    # --- results

    def _outcome(self) -> Outcome:
        batch = len(self.points)
        failed = torch.zeros(batch * self.groups, dtype=torch.bool, device=self.least.device)
        failed[self.pool.problem] = True
        self.least.scatter_reduce_(0, self.pool.problem, self.bounds, "amin")
        trees: list[dict[int, Tree]] = [{} for _ in range(batch)]
        left: list[dict[int, Leaves]] = [{} for _ in range(batch)]
        places = self.neurons.places(self.net, torch.device("cpu"))
        for problem, tree in self.forest.trees.items():
            if not bool(failed[problem]):
                trees[problem // self.groups][problem % self.groups] = tree.stored(
                    places, self.roots.sharpened, self.halves_first
                )
        for problem in failed.nonzero().squeeze(1).tolist():
            mine = self.pool.take(self.pool.problem == problem)
            left[problem // self.groups][problem % self.groups] = mine
        shape = (batch, self.groups)
        return Outcome(
            ~failed.reshape(shape), self.least.reshape(shape), trees, self.points, self.count.reshape(shape), left
        )
