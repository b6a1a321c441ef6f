"""One batch, from inputs to certificates: which need no search, what the search proposes, what the proof makes of it.

The only place that writes the status "certified".
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from elbowroom.certificates.result import Certificates, sizes_of
from elbowroom.certificates.schema import blank_rows
from elbowroom.certify.free import free_features
from elbowroom.certify.larger import Short
from elbowroom.certify.reach import reaches
from elbowroom.certify.verdict import largest_proved
from elbowroom.claim.hints import PROOF_BYTES, Hints
from elbowroom.claim.specification import Specification
from elbowroom.claim.stated import Stated
from elbowroom.claim.tree import Trees
from elbowroom.claim.tree_bytes import as_words, pack
from elbowroom.proof.kernel.prove import prove
from elbowroom.search.branching.enlarge import Effort, enlarge
from elbowroom.search.find import BLUR, Found, Inputs, Search, positions
from elbowroom.search.free import Freeing
from elbowroom.search.regions.base import Placed, Region
from elbowroom.search.regions.input_set import InputSet
from elbowroom.search.regions.objective import Objective
from elbowroom.search.solvers.boundary import to_boundary
from elbowroom.search.solvers.problem import Problem, Work

_GRAIN = 2.0**-15  # the least extent of a feature, beside its value, that float32 tells from zero
_THIN = 0.1  # the share of features that may be thinner: of a hundred thousand, some are
_NONE = (
    "no region was found in which the strict check proves the specification; the margin at the input itself is {:.3g}"
)
_NO_FEATURE = "no feature was found that may take any value of its domain; the margin at the input itself is {:.3g}"


def parts_of(region: Region, reach: bool, splits: bool, free: bool) -> set[str]:
    """Which parts the columns have that a search writes; `reach`: whether it looks for counterexamples, too; `splits`:
    whether regions are cut into parts; `free`: whether it looks for features that may take any value."""
    boxes = {"boxes"} if region.stated_by_corners else set()
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
        return parts_of(self.search.region, self.reach, self.effort is not None, self.free)

    def run(self, inputs: Inputs, labels: Tensor) -> dict[str, Any]:
        """Certificates of one batch, as the fields of `Certificates`; features flat."""
        status, message = self._triage(inputs, labels)
        work = Work.none(len(inputs))
        sizes = dataclasses.replace(sizes_of(self.search.net, inputs.spec.group), input_shape=inputs.x.shape[1:])
        result = blank_rows(Certificates, sizes, inputs.x, self.parts)
        result["labels"] = labels
        objective = self.search.objective(inputs)
        passed = torch.zeros(len(inputs), dtype=torch.bool, device=inputs.x.device)
        todo = torch.tensor([s == "" for s in status], device=passed.device).nonzero().squeeze(1)
        if self.free:
            self._free(inputs, todo, passed, result)
            todo = todo[:0]
        if len(todo) and self.dtype != torch.float64:
            clear = ~self.search.is_blurred(inputs.take(todo), self.dtype)
            first, left = todo[clear], todo[~clear]
            if len(first):
                found, doubtful = self._attempt(inputs.take(first), self.dtype, work)
                _keep_better(result, passed, inputs, first, found, objective)
                left = torch.cat([left, first[doubtful]]).sort().values
            todo = left
        if len(todo):
            found, _ = self._attempt(inputs.take(todo), torch.float64, work)
            _keep_better(result, passed, inputs, todo, found, objective)
        if self.effort is not None and not self.free:
            self._enlarge(inputs, passed, result, self.effort)
        least = inputs.spec.margins(inputs.outputs).amin(1).tolist()
        for k, ok in enumerate(passed.tolist()):
            if not status[k]:
                status[k] = "certified" if ok else "not_certified"
                message[k] = "" if ok else (_NO_FEATURE if self.free else _NONE).format(least[k])
        result.update(status=status, message=message, evaluations=work.evaluations, gradients=work.gradients)
        result.update(gradient_rows=work.rows)
        if self.reach:
            self._look_beyond(inputs, passed.nonzero().squeeze(1), result)
        return result

    def _free(self, inputs: Inputs, todo: Tensor, passed: Tensor, result: dict[str, Any]) -> None:
        """Writes which features of the inputs `todo` may take any value of their domain, and why the others stay."""
        if not len(todo):
            return
        part, device = inputs.take(todo), inputs.x.device
        margins = part.spec.margins(part.outputs) - self.search.delta
        spec = dataclasses.replace(part.spec, offset=part.spec.offset - self.search.delta)
        search = Freeing(
            self.search.net.cast(self.dtype, device), self.search.evaluate, spec.cast(self.dtype, device), part.x,
            part.space.lowest, part.space.highest, part.space.free, margins.to(self.dtype),
        )  # fmt: skip
        fits = Short(self.proof_bytes)
        found = free_features(search, part, self.search.net, self.effort, fits, self._prove, self._passes)
        good = found.pop("certified")
        passed[todo] = good
        for name, value in found.items():
            for k in good.nonzero().squeeze(1).tolist():
                result[name][int(todo[k])] = value[k]

    def _enlarge(self, inputs: Inputs, passed: Tensor, result: dict[str, Any], effort: Effort) -> None:
        """Replaces certified regions, those that `passed`, `b`, by larger ones, where such are found and proved."""
        good, objective = passed.nonzero().squeeze(1), self.search.objective(inputs)
        blurred = self.search.is_blurred(inputs.take(good), torch.float32) | (self.dtype == torch.float64)
        for dtype, some in ((torch.float32, good[~blurred]), (torch.float64, good[blurred])):
            if not len(some):
                continue
            part = inputs.take(some)
            shape = self.search.region
            shift = result["center"][some] - part.x
            shift = shift if shape.basis is None else shift @ shape.basis.to(shift)
            down, up = ((result["eps"][some] + side * shift).clamp_min(0) for side in (-1, 1))
            found = self.search.around(part, shape.theta(down, up), result["uniform"][some])
            found.ended = [result["ended"][k] for k in some.tolist()]
            placed = self.search.place(part, found.cap, dtype)
            theta = torch.minimum(found.theta.to(dtype), placed.caps)
            spec = dataclasses.replace(part.spec, offset=part.spec.offset - self.search.delta)
            net = self.search.net.cast(dtype, inputs.x.device)
            spec, fits = spec.cast(dtype, inputs.x.device), Short(self.proof_bytes)
            larger = enlarge(net, placed, theta, spec, effort, fits, shape.one_radius, objective)
            found.theta = larger.theta.double()
            trees = [tuple(own.items()) for own in larger.trees]
            columns = self._verdict(part, found, trees)
            columns.pop("factor")
            columns["trees"] = [as_words(pack(own)) for own in trees]
            _keep_better(result, passed, inputs, some, columns, objective)

    def _look_beyond(self, inputs: Inputs, good: Tensor, result: dict[str, Any]) -> None:
        """Writes how much larger the certified regions, those of the inputs `good`, could be at most."""
        if not len(good):
            return
        shape = self.search.region
        if shape.stated_by_corners:
            region = Stated(result["lower"][good], result["upper"][good])
        else:
            basis = None if shape.basis is None else shape.basis.double().to(inputs.x.device)
            region = Stated(center=result["center"][good], radius=result["eps"][good], p=shape.p, basis=basis)
        for name, value in reaches(self.search.net, inputs.take(good), region).items():
            result[name][good] = value

    def _attempt(self, inputs: Inputs, dtype: torch.dtype, work: Work) -> tuple[dict[str, Any], Tensor]:
        """What a search in one precision leads to, and where another is worth trying, `b`: no region, or one that is
        not proved whole, or extents that float32 hardly tells from zero."""
        proposed, problem = self.search.find(inputs, dtype, work)
        if self.deployed and bool((proposed.radius > 0).any()):
            proposed.theta = self._leave_room_for_rounding(inputs, problem, proposed)
        found = self._verdict(inputs, proposed)
        thin = (found["eps"] < _GRAIN * inputs.x.abs()) & inputs.space.free
        many = thin.sum(1) > _THIN * inputs.space.free.expand_as(thin).sum(1)
        return found, ~found["certified"] | (found.pop("factor") < 1 - BLUR) | many

    def _triage(self, inputs: Inputs, labels: Tensor) -> tuple[list[str], list[str]]:
        """Status and message of the inputs that need no search; "" for the others."""
        # Everything to the CPU at once: asking a GPU for one number at a time would take longer than the search.
        x, outputs, space = inputs.x, inputs.outputs, inputs.space
        least = inputs.spec.margins(outputs).amin(1).tolist()
        decided, labels_ = self.search.net.decide(outputs).tolist(), labels.tolist()
        finite, outputs_finite = torch.isfinite(x).all(1).tolist(), torch.isfinite(outputs).all(1).tolist()
        beyond = (x < space.lowest) | (x > space.highest)
        outside = beyond.any(1).tolist()
        status, message = [], []
        for k in range(len(x)):
            kind, why = "", ""
            if not finite[k]:
                kind, why = "nonfinite", "the input holds NaN or infinite values"
            elif outside[k]:
                place = int(beyond[k].nonzero()[0])
                kind, why = "error", f"feature {place} = {float(x[k, place]):.6g} lies outside the domain"
            elif not outputs_finite[k]:
                kind, why = "nonfinite", "the network's outputs are NaN or infinite here"
            elif least[k] <= 0 and self.told_labels:
                kind, why = "misclassified", f"the network decides {decided[k]} here, not {labels_[k]}"
            elif least[k] <= 0 and self.told_spec:
                kind, why = "misclassified", "the specification does not hold at the input itself"
            elif least[k] <= 0:
                kind, why = "not_certified", "two classes tie at the input itself"
            elif least[k] <= self.search.delta:
                why = f"the margin at the input itself, {least[k]:.3g}, is not above delta = {self.search.delta:g}"
                kind = "not_certified"
            status.append(kind)
            message.append(why)
        return status, message

    def _leave_room_for_rounding(self, inputs: Inputs, problem: Problem, found: Found) -> Tensor:
        """Shrinks regions until their margins also pay for the errors of the network as executed.

        Where that leaves nothing, or the errors are not known, the region stays, and the verdict shrinks it.
        """
        whole = self._stated(inputs, found)[1]
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
            whole, x, free, found.radius > 0, proof, self._passes, at_input, self.search.delta
        )
        passed = factor > 0
        half = proved.half_widths()
        half = torch.where(passed[:, None], half, 0.0)
        n_free = region.n_free
        log_geomean = torch.where(free, half, 1.0).log().sum(1) / n_free
        to_uniform = log_geomean - region.log_geomean(torch.minimum(found.uniform, region.caps))
        # Within a percent: scaling to the boundary moves a feature off its cap by a trifle.
        at_cap = (factor[:, None] * found.theta >= 0.99 * region.caps) & (region.caps > 0) & passed[:, None]
        if at_cap.shape != x.shape:
            at_cap = at_cap.chunk(2, 1)[0] & at_cap.chunk(2, 1)[1]
        ends = {"lower": proved.lower, "upper": proved.upper}
        corners = {name: torch.where(passed[:, None], t, x) for name, t in ends.items() if t is not None}
        return {
            "certified": passed,
            "factor": factor,
            "ended": found.ended,
            "eps": half,
            "center": torch.where(passed[:, None], proved.middle(), x),
            **corners,
            "capped": at_cap,
            "uniform": torch.where(passed, found.radius, 0.0),
            "geomean": torch.where(passed, log_geomean.exp(), 0.0),
            "log_volume": torch.where(passed, n_free * log_geomean + region.log_unit_volume(n_free), -torch.inf),
            "ratio": torch.where(passed, to_uniform.exp(), 0.0),
            "margins": margins,
        }


def _keep_better(
    result: dict[str, Any], passed: Tensor, inputs: Inputs, rows: Tensor, found: dict[str, Any], objective: Objective
) -> None:
    """Writes what was found for the inputs `rows` of a batch over what there was, where it is better."""
    space = inputs.space.part(rows)
    below, above = space.around(inputs.x[rows])
    full = below / 2 + above / 2
    new, old = (objective.of(t, full, space.free, space.importance) for t in (found["eps"], result["eps"][rows]))
    better = found.pop("certified") & (new > old)
    passed[rows[better]] = True
    for name, value in found.items():
        if isinstance(value, list):
            for k in better.nonzero().squeeze(1).tolist():
                result[name][int(rows[k])] = value[k]
        else:
            result[name][rows[better]] = value[better]
