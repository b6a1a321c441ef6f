"""One batch, from inputs to certificates: which need no search, what the search proposes, what the proof makes of it.

Here alone, and in `boxes` for boxes that were given, the status "certified" is written.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from elbowroom.certificates.result import Certificates, sizes_of
from elbowroom.certificates.schema import blank_rows
from elbowroom.certify.columns import keep_better, sizes, write
from elbowroom.certify.fill_up import fill_up, trees_in
from elbowroom.certify.free import free_features
from elbowroom.certify.larger import Short
from elbowroom.certify.reach import reaches
from elbowroom.certify.triage import triage
from elbowroom.certify.verdict import largest_proved
from elbowroom.certify.whole import coarse_ones, values_of
from elbowroom.claim.categories import Categories
from elbowroom.claim.directions import coordinates
from elbowroom.claim.hints import PROOF_BYTES, Hints
from elbowroom.claim.specification import Specification
from elbowroom.claim.stated import Stated
from elbowroom.claim.tree import Trees
from elbowroom.claim.tree_bytes import as_words, pack
from elbowroom.machine.meter import doing
from elbowroom.network.graph import Network
from elbowroom.network.table import Table
from elbowroom.proof.kernel.prove import prove
from elbowroom.search.branching.enlarge import Effort, enlarge
from elbowroom.search.evaluated import positions
from elbowroom.search.find import BLUR, Found, Inputs, Search
from elbowroom.search.free import Freeing
from elbowroom.search.levels import grow
from elbowroom.search.regions.base import Placed, Region
from elbowroom.search.regions.input_set import InputSet
from elbowroom.search.regions.objective import Volume
from elbowroom.search.solvers.boundary import to_boundary
from elbowroom.search.solvers.problem import Problem, Work

_GRAIN = 2.0**-15  # the least extent of a feature, beside its value, that float32 tells from zero
_THIN = 0.1  # the share of features that may be thinner: of a hundred thousand, some are
_NONE = (
    "no region was found in which the strict check proves the specification; the margin at the input itself is {:.3g}"
)
_NO_FEATURE = "no feature was found that may take any value of its domain; the margin at the input itself is {:.3g}"


def parts_of(net: Network, region: Region, reach: bool, splits: bool, free: bool) -> set[str]:
    """Which parts the columns have that a search writes; `reach`: whether it looks for counterexamples, too; `splits`:
    whether regions are cut into parts; `free`: whether it looks for features that may take any value."""
    boxes = {"boxes"} if region.stated_by_corners else set()
    if boxes and not free and any(c.decimals is not None for c in (net.about.table or Table(())).columns):
        boxes.add("values")
    if boxes and Categories.of(net.about.table) is not None:
        boxes.add("categories")
    beyond = {"reach", *(["faces"] if boxes else [])} if reach else set()
    return boxes | beyond | ({"splits"} if splits else set()) | ({"explained"} if free else set())


@dataclass
class Task:
    """Everything that is the same for all batches. `dtype`: of the first search; `reach`: whether counterexamples are
    looked for beyond what was certified; `effort`: what may be spent on larger regions, proved by trees of at most
    `proof_bytes`; `free`: whether features are looked for that may take any value of their domain."""

    search: Search
    told_labels: bool
    told_spec: bool
    hints: Hints
    deployed: str | None
    dtype: torch.dtype
    reach: bool = False
    effort: Effort | None = None
    proof_bytes: int = PROOF_BYTES
    free: bool = False

    @property
    def parts(self) -> set[str]:
        """See `parts_of`."""
        return parts_of(self.search.net, self.search.region, self.reach, self.effort is not None, self.free)

    def run(self, inputs: Inputs, labels: Tensor) -> dict[str, Any]:
        """Certificates of one batch, as the fields of `Certificates`; features flat."""
        if not self.search.region.stated_by_corners:  # only boxes have sets of levels, and end at values
            inputs = dataclasses.replace(inputs, space=inputs.space.of_numbers())
        status, message = self._triage(inputs, labels)
        work = Work.none(len(inputs))
        sizes = dataclasses.replace(sizes_of(self.search.net, inputs.spec.group), input_shape=inputs.x.shape[1:])
        result = blank_rows(Certificates, sizes, inputs.x, self.parts)
        result["labels"] = labels
        objective = self.search.objective(inputs)
        passed = torch.zeros(len(inputs), dtype=torch.bool, device=inputs.x.device)
        todo = torch.tensor([s == "" for s in status], device=passed.device).nonzero().squeeze(1)
        if self.free:
            with doing("features that are free"):
                self._free(inputs, todo, passed, result)
            todo = todo[:0]
        if len(todo) and self.dtype != torch.float64:
            clear = ~self.search.is_blurred(inputs.take(todo), self.dtype)
            first, left = todo[clear], todo[~clear]
            if len(first):
                found, doubtful = self._attempt(inputs.take(first), self.dtype, work)
                keep_better(result, passed, inputs, first, found, objective)
                left = torch.cat([left, first[doubtful]]).sort().values
            todo = left
        if len(todo):
            found, _ = self._attempt(inputs.take(todo), torch.float64, work)
            keep_better(result, passed, inputs, todo, found, objective)
        if inputs.space.categories is not None:
            with doing("sets of levels"):
                inputs = self._grow_sets(inputs, passed, result, work)
        met: dict[int, Tensor] = {}
        if self.effort is not None and not self.free:
            met = self._enlarge(inputs, passed, result, self.effort)
        if inputs.space.decimals is not None and self.search.region.stated_by_corners and not self.free:
            coarse, both = coarse_ones(inputs.space.decimals, inputs.x, result["lower"], result["upper"])
            some = dataclasses.replace(inputs, space=dataclasses.replace(inputs.space, decimals=coarse))
            met.update(self._settle(some, (passed & both).nonzero().squeeze(1), passed, result, work))
            met.update(self._settle(inputs, passed.nonzero().squeeze(1), passed, result, work))
        if inputs.space.categories is not None and not self.free:  # whose explanations hold them
            fill_up(inputs, passed, result, self._prove_somehow, self._passes)
        least = inputs.spec.margins(inputs.outputs).amin(1).tolist()
        for k, ok in enumerate(passed.tolist()):
            if not status[k]:
                status[k] = "certified" if ok else "not_certified"
                message[k] = "" if ok else (_NO_FEATURE if self.free else _NONE).format(least[k])
        result.update(status=status, message=message, evaluations=work.evaluations, gradients=work.gradients)
        result.update(gradient_rows=work.rows)
        if self.reach:
            with doing("counterexamples beyond regions"):
                self._look_beyond(inputs, passed.nonzero().squeeze(1), result, met)
        return result

    def _free(self, inputs: Inputs, todo: Tensor, passed: Tensor, result: dict[str, Any]) -> None:
        """Writes which features of the inputs `todo` may take any value of their domain, and why the others stay."""
        if not len(todo):
            return
        part, device = inputs.take(todo), inputs.x.device
        margins = part.spec.margins(part.outputs) - self.search.delta
        spec = dataclasses.replace(part.spec, offset=part.spec.offset - self.search.delta)
        search = Freeing(
            self.search.cast(self.dtype, device), self.search.evaluate, spec.cast(self.dtype, device), part.x,
            part.space.lowest, part.space.highest, part.space.free, margins.to(self.dtype),
        )  # fmt: skip
        fits = Short(self.proof_bytes)
        found = free_features(search, part, self.search.net, self.effort, fits, self._prove, self._passes)
        good = found.pop("certified")
        passed[todo] = good
        for name, value in found.items():
            for k in good.nonzero().squeeze(1).tolist():
                result[name][int(todo[k])] = value[k]
        if part.space.allowed is not None and part.space.categories is not None:  # as they are
            result["allowed"][todo[good]] = part.space.allowed[good]

    def _grow_sets(self, inputs: Inputs, passed: Tensor, result: dict[str, Any], work: Work) -> Inputs:
        """Replaces certified regions by others with more levels, where these are worth more; the inputs, with the sets
        that they now have."""
        space = inputs.space
        assert space.allowed is not None and space.may is not None
        some = (passed & (space.may & ~space.allowed).any(1)).nonzero().squeeze(1)
        if len(some) and not self.free and not self.search.smallest:  # where a level is worth as much as a width
            part = inputs.take(some)
            found = self._found_again(part, some, result)
            grown = grow(self.search, part, found.theta, found.cap, self.dtype)
            larger = dataclasses.replace(part, space=part.space.allowing(grown.allowed))
            proposed = dataclasses.replace(found, theta=grown.theta)
            for columns in (self._verdict(larger, proposed), self._attempt(larger, self.dtype, work)[0]):
                columns.pop("factor", None)
                keep_better(result, passed, inputs, some, columns, Volume())
        own = torch.where(passed[:, None], result["allowed"], space.allowed)
        return dataclasses.replace(inputs, space=space.allowing(own))

    def _settle(
        self, inputs: Inputs, rows: Tensor, passed: Tensor, result: dict[str, Any], work: Work
    ) -> dict[int, Tensor]:
        """Replaces certified regions, those of the inputs `rows`, by others that end at values of the features of which
        these count, and gives what is left over to the others. Returns what `_enlarge` does."""
        if not len(rows):
            return {}
        part, trees = inputs.take(rows), trees_in(result, rows)
        found = self._found_again(part, rows, result)
        corners = result["lower"][rows], result["upper"][rows]
        held, factor = values_of(self.search, part, found, corners, self._prove, self._passes, trees)
        found.theta, found.ended = found.theta * factor[:, None], [result["ended"][k] for k in rows.tolist()]
        columns = self._verdict(dataclasses.replace(part, space=part.space.holding(held)), found, trees)
        columns.pop("factor")
        passed[rows] = columns.pop("certified")
        write(result, rows, columns, torch.ones_like(factor, dtype=torch.bool))
        inputs = dataclasses.replace(inputs, space=inputs.space.holding(held.spread(rows, len(inputs))))
        more = torch.zeros_like(passed).index_fill(0, rows, True) & passed & inputs.space.free.any(1)
        rows = more.nonzero().squeeze(1) if not self.search.region.one_radius else rows[:0]
        if len(rows) and self.effort is not None:
            return self._enlarge(inputs, more, result, self.effort)
        if len(rows):
            part = inputs.take(rows)
            found = self.search.again(part, self._found_again(part, rows, result), self.dtype, work)
            columns = self._verdict(part, found)
            columns.pop("factor")
            columns["ended"] = [result["ended"][k] for k in rows.tolist()]
            keep_better(result, passed, inputs, rows, columns, self.search.objective(inputs))
        return {}

    def _found_again(self, part: Inputs, rows: Tensor, result: dict[str, Any]) -> Found:
        """What is written for the inputs `rows`, `part` of the batch, as a search finds it."""
        shape = self.search.region
        moves = True if part.space.categories is None else part.space.categories.moves.to(part.x.device)
        shift = torch.where(torch.as_tensor(moves, device=part.x.device), result["center"][rows] - part.x, 0.0)
        shift = shift if shape.basis is None else coordinates(shape.basis.to(shift), shift)
        down, up = ((result["eps"][rows] + side * shift).clamp_min(0) for side in (-1, 1))
        return self.search.around(part, shape.theta(down, up), result["uniform"][rows])

    def _enlarge(self, inputs: Inputs, passed: Tensor, result: dict[str, Any], effort: Effort) -> dict[int, Tensor]:
        """Replaces certified regions, those that `passed`, `b`, by larger ones, where such are found and proved; what
        the search takes for counterexamples, `m x n`, by the inputs' numbers."""
        met: dict[int, Tensor] = {}
        good, objective = passed.nonzero().squeeze(1), self.search.objective(inputs)
        blurred = self.search.is_blurred(inputs.take(good), torch.float32) | (self.dtype == torch.float64)
        for dtype, some in ((torch.float32, good[~blurred]), (torch.float64, good[blurred])):
            if not len(some):
                continue
            part = inputs.take(some)
            found = self._found_again(part, some, result)
            found.ended = [result["ended"][k] for k in some.tolist()]
            placed = self.search.place(part, found.cap, dtype)
            theta = torch.minimum(found.theta.to(dtype), placed.caps)
            spec = dataclasses.replace(part.spec, offset=part.spec.offset - self.search.delta)
            net = self.search.cast(dtype, inputs.x.device)
            spec, fits = spec.cast(dtype, inputs.x.device), Short(self.proof_bytes)
            with doing("larger regions, cut into parts"):
                larger = enlarge(net, placed, theta, spec, effort, fits, self.search.region.one_radius, objective)
            found.theta = larger.theta.double()
            trees = [tuple(own.items()) for own in larger.trees]
            columns = self._verdict(part, found, trees)
            columns.pop("factor")
            columns["trees"] = [as_words(pack(own)) for own in trees]
            keep_better(result, passed, inputs, some, columns, objective)
            met.update(zip(some.tolist(), (points.double() for points in larger.known)))
        return met

    def _look_beyond(self, inputs: Inputs, good: Tensor, result: dict[str, Any], met: dict[int, Tensor]) -> None:
        """Writes how much larger the certified regions, those of the inputs `good`, could be at most. `met`: see
        `_enlarge`."""
        if not len(good):
            return
        shape = self.search.region
        if shape.stated_by_corners:
            lower, upper = result["lower"][good], result["upper"][good]
            if inputs.space.categories is not None:  # as they are: what is beyond is looked for among numbers
                moves, x = inputs.space.categories.moves.to(lower.device), inputs.x[good]
                lower, upper = torch.where(moves, lower, x), torch.where(moves, upper, x)
            region = Stated(lower, upper)
        else:
            basis = None if shape.basis is None else shape.basis.double().to(inputs.x.device)
            region = Stated(center=result["center"][good], radius=result["eps"][good], p=shape.p, basis=basis)
        known = [met.get(k, inputs.x[:0]) for k in good.tolist()]
        for name, value in reaches(self.search.net, inputs.take(good), region, known).items():
            result[name][good] = value

    def _attempt(self, inputs: Inputs, dtype: torch.dtype, work: Work) -> tuple[dict[str, Any], Tensor]:
        """What a search in one precision leads to, and where another is worth trying, `b`: no region, or one that is
        not proved whole, or extents that float32 hardly tells from zero."""
        moving = inputs.space.free.any(1).nonzero().squeeze(1)  # others have sets of levels that may grow
        proposed = self.search.still(inputs) if len(moving) < len(inputs) else None
        if len(moving):
            part = inputs if proposed is None else inputs.take(moving)
            found_there, problem = self.search.find(part, dtype, work)
            if self.deployed and bool((found_there.radius > 0).any()):
                found_there.theta = self._leave_room_for_rounding(part, problem, found_there)
            proposed = found_there if proposed is None else proposed.put(moving, found_there)
        assert proposed is not None
        found = self._verdict(inputs, proposed)
        thin = (found["eps"] < _GRAIN * inputs.x.abs()) & inputs.space.free
        many = thin.sum(1) > _THIN * inputs.space.free.expand_as(thin).sum(1)
        return found, ~found["certified"] | (found.pop("factor") < 1 - BLUR) | many

    def _triage(self, inputs: Inputs, labels: Tensor) -> tuple[list[str], list[str]]:
        """Status and message of the inputs that need no search; "" for the others."""
        least = inputs.spec.margins(inputs.outputs).amin(1)
        told = "labels" if self.told_labels else "spec" if self.told_spec else ""
        own = inputs.x, inputs.outputs, least, labels, inputs.space
        return triage(self.search.net, *own, told, self.search.delta)

    def _leave_room_for_rounding(self, inputs: Inputs, problem: Problem, found: Found) -> Tensor:
        """Shrinks regions until their margins also pay for the errors of the network as executed.

        Where that leaves nothing, or the errors are not known, the region stays, and the verdict shrinks it.
        """
        whole, problem = self._stated(inputs, found)[1], problem.precise()
        dtype = problem.at_input.dtype
        short = self.search.delta - self._prove(whole, inputs.spec).amin(1)
        short = torch.where(torch.isfinite(short), short, torch.inf).clamp_min(0).to(dtype)[:, None]
        plain = problem.evaluate

        def margins(sets: InputSet, index: Tensor) -> Tensor:
            return plain(sets, index) - 1.02 * short[positions(problem.index, index)]

        stricter = dataclasses.replace(problem, evaluate=margins, at_input=problem.at_input - 1.02 * short)
        theta = found.theta.to(dtype)
        factor = to_boundary(stricter, theta).low.clamp_max(1)
        return problem.region.grow(theta, torch.where(factor > 0, factor, 1.0)).double()

    def _stated(self, inputs: Inputs, found: Found) -> tuple[Placed, Stated]:
        """The regions found, and how they are stated."""
        region = self.search.place(inputs, found.cap, torch.float64)
        return region, region.stated(torch.minimum(found.theta, region.caps))

    def _prove(self, region: Stated, spec: Specification, trees: Trees | None = None) -> Tensor:
        return prove(self.search.net, region, spec.rows, spec.offset, spec.group, self.hints, self.deployed, trees)

    def _prove_somehow(self, region: Stated, spec: Specification, trees: Trees | None = None) -> Tensor:
        """As `_prove`, and where that is not enough with the other lines, which `check` tries as well."""
        margins = self._prove(region, spec, trees)
        left = (~self._passes(margins)).nonzero().squeeze(1)
        if len(left):
            other = Hints(not self.hints.parallel, logits=True)
            part, own = spec.part(left), None if trees is None else [trees[k] for k in left.tolist()]
            again = prove(
                self.search.net, region.take(left), part.rows, part.offset, part.group, other, self.deployed, own
            )
            margins[left] = torch.maximum(margins[left], again)
        return margins

    def _passes(self, margins: Tensor) -> Tensor:
        """Which inputs' proved margins, `b x g`, are a certificate's."""
        return ((margins >= self.search.delta) & (margins > 0)).all(1)

    def _verdict(self, inputs: Inputs, found: Found, trees: Trees | None = None) -> dict[str, Any]:
        """Runs the strict check on what will be stored, shrinking until it passes. `trees`: of each input."""
        x, free = inputs.x, inputs.space.free
        region, whole = self._stated(inputs, found)

        def proof(part: Stated, index: Tensor) -> Tensor:
            own = None if trees is None else [trees[k] for k in index.tolist()]
            return self._prove(part, inputs.spec.part(index), own)

        at_input = inputs.spec.margins(inputs.outputs)
        proved, margins, factor = largest_proved(
            whole, x, free, (found.radius > 0) | ~free.any(1), proof, self._passes, at_input, self.search.delta
        )
        passed = factor > 0
        half = proved.half_widths()
        if proved.categories is not None:  # codes have no extent
            half = torch.where(proved.categories.moves.to(half.device), half, 0.0)
        half = torch.where(passed[:, None], half, 0.0)
        # Within a percent: scaling to the boundary moves a feature off its cap by a trifle.
        at_cap = (factor[:, None] * found.theta >= 0.99 * region.caps) & (region.caps > 0) & passed[:, None]
        if at_cap.shape != x.shape:
            at_cap = at_cap.chunk(2, 1)[0] & at_cap.chunk(2, 1)[1]
        stuck = {}
        if inputs.space.held is not None:
            held = inputs.space.held
            at_cap = at_cap | (held.capped & passed[:, None])
            stuck["stuck"] = held.features & (half == 0) & ~at_cap & passed[:, None]
        ends = {"lower": proved.lower, "upper": proved.upper}
        corners = {name: torch.where(passed[:, None], t, x) for name, t in ends.items() if t is not None}
        middle = proved.middle()
        if proved.categories is not None and proved.allowed is not None:
            corners["allowed"] = proved.allowed & passed[:, None]
            middle = torch.where(proved.categories.moves.to(x.device), middle, x)
        return {
            "certified": passed,
            "factor": factor,
            "ended": found.ended,
            "eps": half,
            "center": torch.where(passed[:, None], middle, x),
            **corners,
            "capped": at_cap,
            "uniform": torch.where(passed, found.radius, 0.0),
            **sizes(region, inputs.space, half, torch.minimum(found.uniform, region.caps), passed),
            **stuck,
            "margins": margins,
        }
