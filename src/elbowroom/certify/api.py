"""`certify`: the largest region around each input in which the specification provably holds.

The only place that writes the status "certified". The search runs in float32, or float64 where float32 could not tell;
the verdict is the strict check on the very corners that are stored, and the region shrinks until it passes.
"""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from elbowroom.arguments.accuracy import warn_near_chance
from elbowroom.arguments.frames import by_name
from elbowroom.arguments.inputs import batched, labels_of
from elbowroom.arguments.tensors import Array, tensor_of
from elbowroom.certificates.result import Certificates, sizes_of
from elbowroom.certificates.schema import blank_rows, write_rows
from elbowroom.certify.verdict import largest_proved
from elbowroom.claim.hints import Hints
from elbowroom.claim.space import Space, space_of
from elbowroom.claim.specification import Specification, check_labels, label_stays
from elbowroom.claim.stated import Stated
from elbowroom.errors import InputError
from elbowroom.machine.device import usable_device
from elbowroom.machine.torch_modes import in_own_modes
from elbowroom.network.file import network_hash
from elbowroom.network.graph import Network
from elbowroom.proof.kernel.prove import prove, refuse_uncovered
from elbowroom.search.bounds.propagate import BoundFunction, margins_of
from elbowroom.search.memory import Budget
from elbowroom.search.regions.base import Placed, Region
from elbowroom.search.regions.box import Box
from elbowroom.search.regions.input_set import InputSet
from elbowroom.search.solvers.augmented_lagrangian import AugmentedLagrangian
from elbowroom.search.solvers.boundary import to_boundary
from elbowroom.search.solvers.prior import start_from
from elbowroom.search.solvers.problem import Problem, Work
from elbowroom.search.solvers.sequential import Sequential
from elbowroom.search.solvers.uniform import uniform_radius

Solver = Sequential | AugmentedLagrangian
SOLVERS: dict[str, type[Sequential] | type[AugmentedLagrangian]] = {
    "sequential": Sequential,
    "augmented-lagrangian": AugmentedLagrangian,
}
PRECISIONS = {"float32": torch.float32, "float64": torch.float64}
CAP = 1000.0  # without domain or max_eps, no feature may reach farther than this many uniform radii
_FARTHEST = 1e6  # and no uniform radius is looked for beyond this many times the input's size
_LEAST_SIZE, _MOST_SIZE = 1e-3, 1e15  # for inputs and margins that say nothing of their units

# What float32 can tell: rounding of a margin, per unit of what was added up; what it may be of a margin; the least
# extent of a feature beside its value; the largest value at an input, beside what it may be elsewhere.
_ROUNDINGS, _BLUR, _GRAIN, _LARGE = 16 * 2.0**-24, 1e-2, 2.0**-15, 1e18

_NONE = (
    "no region was found in which the strict check proves the specification; the margin at the input itself is {:.3g}"
)


@in_own_modes
@torch.enable_grad()
def certify(
    net: Network,
    x: Array,
    labels: Array | None = None,
    region: Region | None = None,
    spec: Specification | None = None,
    bounds: str | BoundFunction = "adaptive",
    margin: str = "direct",
    solver: str | Solver = "sequential",
    domain: tuple[Array, Array] | None = None,
    frozen: Array | None = None,
    importance: Array | None = None,
    max_eps: Array | None = None,
    delta: float = 0.0,
    device: str | torch.device | None = None,
    memory: int | str | None = None,
    deployed: str | None = None,
    batch: int | None = None,
    precision: str = "float32",
    prior: Certificates | None = None,
) -> Certificates:
    """The largest certified region around each input.

    `x`: `b x *input_shape` (or one input), in the units the network was loaded for, or a data frame, whose columns are
    matched by name with the network's features. `labels`: the decisions to certify, as numbers of outputs or names of
    classes; default, what the network decides. `region`: the shape, `Box()` by default. `spec`: something other
    than "the label stays". `bounds`: "adaptive", "combined", "quadratic", "simple", "fast" (intervals for the hidden
    layers: for networks where the others take too long), or a function of your own from (network, input set,
    specification) to margins. `margin`: "direct" or "logits" (the paper's). `solver`:
    "sequential", "augmented-lagrangian" (the paper's), or a solver object. `domain`: (lowest, highest) valid input,
    numbers or arrays; boxes are cut to it. `frozen`: booleans, or names: features that must not move (directions, for
    `Oblique`). `importance`: positive weights of log eps. `max_eps`: the largest extent per feature; default, the
    domain or 1000 uniform radii. All of these may be one number, or one per channel (the first axis), per feature, or
    per feature and input.
    `delta`: by how much margins must exceed zero; by default it is enough that they are proved to. `memory`: what the
    work may take, in bytes or as "4GiB"; default, half of what is free. `batch`: how many inputs at a time; default,
    what fits. `deployed`: "float32" to certify also the network as executed in float32 (see docs/soundness.md); inputs
    are then rounded to float32. `precision`: in which the search runs, "float64" or "float32", which is faster; inputs
    for which float32 does not do (a margin too small beside the outputs, extents too small beside the input) are then
    searched in float64. The verdict is float64 in any case.
    `prior`: certificates of other inputs, of the same network and kind of region: the search starts from their mean
    shape. Regions of one network are so similar that this may save gradients, or give regions nearly as large without
    any (`solver=er.Sequential(gradients=0)`).

    >>> certs = er.certify(net, x, domain=(0, 1))
    >>> certs.status[0], certs.eps[0], certs.ratio[0]
    """
    started = time.perf_counter()
    shape_of, solver = _chosen(region, solver, delta, precision, batch)
    where = usable_device(device) if device is not None else _device_of(x)
    points = batched(net, tensor_of(by_name(net, x, "x")).detach(), "x").to(device=where, dtype=torch.float64)
    if not len(points):
        raise InputError("x holds no inputs")
    refuse_uncovered(net, deployed)  # before a long search, whose findings nobody could prove
    settings = _settings(net, shape_of, solver, bounds, margin, delta, precision, deployed)
    net.must_agree(points[points.flatten(1).isfinite().all(1)][:3])
    budget = Budget.of(memory, where)
    task = _Task(
        net=net,
        region=shape_of,
        evaluate=margins_of(bounds, margin, budget),
        solver=solver,
        delta=float(delta),
        told_labels=labels is not None,
        told_spec=spec is not None,
        hints=Hints.of(bounds, margin) if isinstance(bounds, str) else Hints(),
        deployed=deployed,
        dtype=PRECISIONS[precision],
        prior=None if prior is None else _mean_shape(prior, net, shape_of).to(where),
    )
    limits = space_of(net, points, domain, frozen, importance, max_eps)
    if deployed:
        points = _as_executed(points, limits)
    work64 = net.cast(torch.float64, where)
    outputs = _in_parts(lambda part: work64.values(part)[-1], points)
    if spec is None:
        chosen = net.decide(outputs) if labels is None else labels_of(net, labels, len(points)).to(where)
        check_labels(chosen, net.n_outputs)
        warn_near_chance(net, outputs, None if labels is None else chosen)
    else:
        if labels is not None:
            raise InputError("give labels or spec, not both")
        spec.check_fits(len(points), net)
        spec = spec.cast(torch.float64, where)
        chosen = torch.full((len(points),), -1, device=where)

    def part_of_spec(index: Tensor) -> Specification:
        # Of labels only now: with many classes those of all inputs take more memory than the work does.
        return spec.part(index) if spec is not None else label_stays(chosen[index], net.n_outputs, net.decision)

    sizes = sizes_of(net, None if spec is None else spec.group)
    found = blank_rows(Certificates, sizes, points.cpu(), _parts(shape_of))
    rows = net.n_outputs - 1 if spec is None else spec.rows.shape[1]
    size, first = batch or budget.batch(net, where, bounds != "simple", rows), 0
    while first < len(points):
        index = torch.arange(first, min(first + size, len(points)), device=where)
        try:
            own = part_of_spec(index), limits.part(index), index - first
            part = task.run(_Inputs(points[index], outputs[index], *own), chosen[index])
        except (RuntimeError, MemoryError) as error:
            if not _is_out_of_memory(error):
                raise
            size = _smaller(len(index), where)
            continue
        started = _stamp(part, started)
        write_rows(found, part, first)
        first += len(index)
    if network_hash(net) != settings["network_hash"]:
        raise InputError("the network's parameters were changed while it was being certified; certify it again")
    if spec is not None:
        stated = spec.cast(torch.float64, "cpu")
        found.update(spec_rows=stated.rows, spec_offset=stated.offset, spec_group=stated.group)
    return _collect(found, net, shape_of, limits if domain is not None else None, settings)


@in_own_modes
def uncertified(
    net: Network, x: Tensor, labels: Tensor | None = None, group: Tensor | None = None, message: str = "", **told: Any
) -> Certificates:
    """Certificates of inputs for which nothing is searched: their status is "error", and why is `message`. All else is
    as `certify` has it that was told the same, whose refusals are made here as well.

    `x`: `b x *input_shape`, float64. `labels`: `b`. `group`: `t`, that of the inputs' own specifications, where these
    are not about labels. `told`: the arguments of `certify` that are the same for all inputs, every one of them.
    """
    region, solver = _chosen(*(told[name] for name in ("region", "solver", "delta", "precision", "batch")))
    x = batched(net, x, "x")
    refuse_uncovered(net, told["deployed"])
    search = (told[name] for name in ("bounds", "margin", "delta", "precision", "deployed"))
    settings = _settings(net, region, solver, *search)
    margins_of(told["bounds"], told["margin"], Budget.of(told["memory"], usable_device(told["device"])))
    limits = space_of(net, x, *(told[name] for name in ("domain", "frozen", "importance", "max_eps")))
    has = _parts(region) | ({"specification"} if group is not None else set())
    found = blank_rows(Certificates, sizes_of(net, group), x, has)
    found["message"] = [message] * len(x)
    if labels is not None:
        found["labels"] = labels
    if group is not None:
        found["spec_group"] = group
    return _collect(found, net, region, limits if told["domain"] is not None else None, settings)


def _chosen(
    region: Region | None, solver: str | Solver, delta: float, precision: str, batch: int | None
) -> tuple[Region, Solver]:
    """Shape and solver, after a look at what was told."""
    region = Box() if region is None else region
    if not isinstance(region, Region):
        raise InputError(f"region must be a shape such as Box(), got {region!r}")
    if isinstance(solver, str):
        if solver not in SOLVERS:
            raise InputError(f"unknown solver {solver!r}; choose one of {', '.join(SOLVERS)}")
        solver = SOLVERS[solver]()
    if not hasattr(solver, "solve") or isinstance(solver, type):
        raise InputError(f"solver must be a name or a solver object such as er.Sequential(), got {solver!r}")
    if not isinstance(delta, int | float) or not delta >= 0:
        raise InputError(f"delta must not be negative, got {delta}")
    if precision not in PRECISIONS:
        raise InputError(f"precision must be one of {', '.join(PRECISIONS)}, got {precision!r}")
    if batch is not None and (not isinstance(batch, int) or batch < 1):
        raise InputError(f"batch must be a positive number of inputs, got {batch!r}")
    return region, solver


def _settings(
    net: Network, region: Region, solver: Solver, bounds: str | BoundFunction, margin: str, delta: float,
    precision: str, deployed: str | None,
) -> dict[str, Any]:  # fmt: skip
    """How certificates are found, as they state it."""
    return {
        "region": region.name, "bounds": bounds if isinstance(bounds, str) else "own function",
        "margin": margin, "solver": repr(solver), "delta": float(delta), "decision": net.decision,
        "precision": precision, "p": _norm(region), "deployed": deployed, "network_hash": network_hash(net),
    }  # fmt: skip


def _norm(region: Region) -> Any:
    return region.p if region.p != torch.inf else "inf"


def _parts(region: Region) -> set[str]:
    """Which parts the columns have that a search writes."""
    return {"boxes"} if region.stated_by_corners else set()


def _as_executed(points: Tensor, limits: Space) -> Tensor:
    """Inputs as a network executed in float32 sees them: the nearest float32 numbers, in the domain where they were.

    Otherwise a region might hold no float32 input at all: a frozen feature at 1/255, say.
    """
    lowest, highest = limits.lowest.reshape(points.shape), limits.highest.reshape(points.shape)
    near = points.float()
    near = torch.where((near.double() > highest) & (points <= highest), torch.nextafter(near, near - torch.inf), near)
    near = torch.where((near.double() < lowest) & (points >= lowest), torch.nextafter(near, near + torch.inf), near)
    return near.double()


def _is_out_of_memory(error: Exception) -> bool:
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return any(words in str(error) for words in ("not enough memory", "can't allocate memory", "out of memory"))


def _smaller(size: int, device: torch.device) -> int:
    if size == 1:
        raise InputError(
            f"the memory of {device} does not suffice for one input of this network; try a smaller memory=..., "
            'or bounds="fast"'
        )
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return size // 2


def _device_of(x: Array) -> torch.device:
    return x.device if isinstance(x, Tensor) else torch.device("cpu")


def _in_parts(function: Any, points: Tensor, size: int = 1024) -> Tensor:
    return torch.cat([function(points[i : i + size]) for i in range(0, len(points), size)])


def _stamp(part: dict[str, Any], started: float) -> float:
    now = time.perf_counter()
    count = len(part["status"])
    part["seconds"] = torch.full((count,), (now - started) / count, dtype=torch.float64)
    return now


@dataclass
class _Inputs:
    """Some inputs of a batch: `points`, `b x *input_shape`, and `outputs`, `b x k`, in float64; what must hold, and
    where; `rows`, `b`: which of the batch they are, in order."""

    points: Tensor
    outputs: Tensor
    spec: Specification
    limits: Space
    rows: Tensor

    def take(self, index: Tensor) -> _Inputs:
        points, outputs, rows = self.points[index], self.outputs[index], self.rows[index]
        return _Inputs(points, outputs, self.spec.part(index), self.limits.part(index), rows)

    @property
    def x(self) -> Tensor:
        return self.points.flatten(1)

    def __len__(self) -> int:
        return len(self.points)


@dataclass
class _Found:
    """What a search found, in float64: parameters of the region and of the uniform one, `b x d`; the uniform radius,
    `b`, zero where there is no region; caps, `b x n`."""

    theta: Tensor
    uniform: Tensor
    radius: Tensor
    cap: Tensor


@dataclass
class _Task:
    """Everything that is the same for all batches."""

    net: Network
    region: Region
    evaluate: BoundFunction
    solver: Solver
    delta: float
    told_labels: bool
    told_spec: bool
    hints: Hints
    deployed: str | None
    dtype: torch.dtype  # of the search
    prior: Tensor | None = None  # d: extents per unit of the uniform radius

    def run(self, inputs: _Inputs, labels: Tensor) -> dict[str, Any]:
        """Certificates of one batch, as the fields of `Certificates`; features flat."""
        status, message = self._triage(inputs, labels)
        work = Work.none(len(inputs))
        sizes = dataclasses.replace(sizes_of(self.net, inputs.spec.group), input_shape=inputs.x.shape[1:])
        result = blank_rows(Certificates, sizes, inputs.x, _parts(self.region))
        result["labels"] = labels
        passed = torch.zeros(len(inputs), dtype=torch.bool, device=inputs.x.device)
        todo = torch.tensor([s == "" for s in status], device=passed.device).nonzero().squeeze(1)
        if len(todo) and self.dtype != torch.float64:
            clear = ~self._is_blurred(inputs.take(todo))
            first, left = todo[clear], todo[~clear]
            if len(first):
                found, doubtful = self._attempt(inputs.take(first), self.dtype, work)
                _keep_larger(result, passed, first, found)
                left = torch.cat([left, first[doubtful]]).sort().values
            todo = left
        if len(todo):
            found, _ = self._attempt(inputs.take(todo), torch.float64, work)
            _keep_larger(result, passed, todo, found)
        least = inputs.spec.margins(inputs.outputs).amin(1).tolist()
        for k, ok in enumerate(passed.tolist()):
            if not status[k]:
                status[k] = "certified" if ok else "not_certified"
                message[k] = "" if ok else _NONE.format(least[k])
        result.update(status=status, message=message, evaluations=work.evaluations, gradients=work.gradients)
        result.update(gradient_rows=work.rows)
        return result

    def _attempt(self, inputs: _Inputs, dtype: torch.dtype, work: Work) -> tuple[dict[str, Tensor], Tensor]:
        """What a search in one precision leads to, and where another is worth trying, `b`: no region, or one that is
        not proved whole, or extents that float32 hardly tells from zero."""
        found = self._verdict(inputs, self._search(inputs, dtype, work))
        thin = (found["eps"] < _GRAIN * inputs.x.abs()) & inputs.limits.free
        return found, ~found["certified"] | (found.pop("factor") < 1 - _BLUR) | thin.any(1)

    def _is_blurred(self, inputs: _Inputs) -> Tensor:
        """Where float32 does not do at the input itself, `b`: its rounding may be a good part of a margin, or values
        are so large that on a region they may be infinite."""
        spec, exact = inputs.spec, inputs.spec.margins(inputs.outputs)
        dtype, device = self.dtype, inputs.points.device
        values = self.net.cast(dtype, device).values(inputs.points.to(dtype))
        seen = spec.cast(dtype, device).margins(values[-1]).double()
        added = (spec.rows.abs() @ inputs.outputs.abs()[..., None]).squeeze(-1) + spec.offset.abs()
        error = 8 * (seen - exact).abs() + _ROUNDINGS * spec.reduce(added)
        small = torch.stack([v.flatten(1).abs().amax(1) for v in values]).amax(0) <= _LARGE
        return ~((error <= _BLUR * (exact - self.delta)).all(1) & small)

    def _triage(self, inputs: _Inputs, labels: Tensor) -> tuple[list[str], list[str]]:
        """Status and message of the inputs that need no search; "" for the others."""
        # Everything to the CPU at once: asking a GPU for one number at a time would take longer than the search.
        x, outputs, limits = inputs.x, inputs.outputs, inputs.limits
        least = inputs.spec.margins(outputs).amin(1).tolist()
        decided, labels_ = self.net.decide(outputs).tolist(), labels.tolist()
        finite, outputs_finite = torch.isfinite(x).all(1).tolist(), torch.isfinite(outputs).all(1).tolist()
        beyond = (x < limits.lowest) | (x > limits.highest)
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
            elif least[k] <= self.delta:
                why = f"the margin at the input itself, {least[k]:.3g}, is not above delta = {self.delta:g}"
                kind = "not_certified"
            status.append(kind)
            message.append(why)
        return status, message

    def _place(self, inputs: _Inputs, cap: Tensor, dtype: torch.dtype) -> Placed:
        space = self.region.binding(inputs.limits).capped(cap)
        return self.region.place(inputs.x, space, self.net.input_shape, dtype)

    def _search(self, inputs: _Inputs, dtype: torch.dtype, work: Work) -> _Found:
        device = inputs.points.device
        rows = inputs.rows
        net, rounded = self.net.cast(dtype, device), inputs.spec.cast(dtype, device)
        at_input = (inputs.spec.margins(inputs.outputs).amin(1) - self.delta).to(dtype)

        def margins(sets: InputSet, index: Tensor) -> Tensor:
            return self.evaluate(net, sets, rounded.part(_positions(rows, index))) - self.delta

        # The uniform radius first: it is the baseline, the start, and what caps are measured in.
        length = self._length(inputs)
        size = torch.maximum(inputs.x.abs().amax(1), length).clamp_min(_LEAST_SIZE)[:, None]
        own = self.region.binding(inputs.limits).farthest()
        cap = torch.where(own.isfinite(), own, _FARTHEST * size)
        problem = Problem(self._place(inputs, cap, dtype), margins, rows, at_input, work)
        scale = self.region.scale(problem.region)
        guess = 0.02 * inputs.x.abs().mean(1).clamp_min(_LEAST_SIZE)
        guess = torch.where(length > 0, torch.minimum(torch.maximum(guess, 1e-3 * length), length), guess)
        radius = uniform_radius(problem, scale, guess.to(dtype) / scale.amax(1))
        reach = CAP * (radius[:, None] * scale.amax(1, keepdim=True)).double()
        cap = torch.where(own.isfinite(), own, reach)
        problem = Problem(self._place(inputs, cap, dtype), margins, rows, at_input, work)
        uniform = problem.region.uniform(radius, scale)
        theta, keep = uniform.clone(), (radius > 0).nonzero().squeeze(1)
        if not self.region.one_radius and len(keep):
            part, start = problem.take(keep), uniform[keep]
            if self.prior is not None:
                start = start_from(part, start, radius[keep], self.prior)
            theta[keep] = self.solver.solve(part, start).theta
        found = _Found(theta.double(), uniform.double(), radius.double(), cap)
        if self.deployed and len(keep):
            found.theta = self._leave_room_for_rounding(inputs, problem, found)
        return found

    def _length(self, inputs: _Inputs) -> Tensor:
        """How far all features could move if the margins were linear, `b`: a scale for the search, which inputs alone
        need not have (an input of zeros does not say in which units). Zero where it is unknown."""
        points = inputs.points.clone().requires_grad_()
        outputs = self.net.cast(torch.float64, points.device).values(points)[-1]
        least = inputs.spec.margins(outputs).amin(1)
        if not least.requires_grad:  # nothing depends on the input
            return torch.zeros_like(least)
        (slope,) = torch.autograd.grad(least.sum(), points)
        length = (least.detach() - self.delta) / slope.flatten(1).abs().sum(1)
        return torch.nan_to_num(length, nan=0.0, posinf=0.0).clamp(0, _MOST_SIZE)

    def _leave_room_for_rounding(self, inputs: _Inputs, problem: Problem, found: _Found) -> Tensor:
        """Shrinks regions until their margins also pay for the errors of the network as executed.

        Where that leaves nothing, or the errors are not known, the region stays, and the verdict shrinks it.
        """
        whole = self._stated(inputs, found)[1]
        dtype = problem.at_input.dtype
        short = self.delta - self._prove(whole, inputs.spec).amin(1)
        short = torch.where(torch.isfinite(short), short, torch.inf).clamp_min(0).to(dtype)[:, None]
        plain = problem.evaluate

        def margins(sets: InputSet, index: Tensor) -> Tensor:
            return plain(sets, index) - 1.02 * short[_positions(problem.index, index)]

        stricter = dataclasses.replace(problem, evaluate=margins, at_input=problem.at_input - 1.02 * short[:, 0])
        theta = found.theta.to(dtype)
        factor = to_boundary(stricter, theta)[0].clamp_max(1)
        return problem.region.grow(theta, torch.where(factor > 0, factor, 1.0)).double()

    def _stated(self, inputs: _Inputs, found: _Found) -> tuple[Placed, Stated]:
        """The regions found, and how they are stated."""
        region = self._place(inputs, found.cap, torch.float64)
        return region, region.stated(torch.minimum(found.theta, region.caps))

    def _prove(self, region: Stated, spec: Specification) -> Tensor:
        return prove(self.net, region, spec.rows, spec.offset, spec.group, self.hints, self.deployed)

    def _passes(self, margins: Tensor) -> Tensor:
        """Which inputs' proved margins, `b x g`, are a certificate's."""
        return ((margins >= self.delta) & (margins > 0)).all(1)

    def _verdict(self, inputs: _Inputs, found: _Found) -> dict[str, Tensor]:
        """Runs the strict check on what will be stored, shrinking until it passes."""
        x, free = inputs.x, inputs.limits.free
        region, whole = self._stated(inputs, found)

        def proof(part: Stated, index: Tensor) -> Tensor:
            return self._prove(part, inputs.spec.part(index))

        empty = x.new_zeros(len(x), inputs.spec.n_groups)
        proved, margins, factor = largest_proved(whole, x, free, found.radius > 0, proof, self._passes, empty)
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


def _keep_larger(result: dict[str, Any], passed: Tensor, rows: Tensor, found: dict[str, Tensor]) -> None:
    """Writes what was found for some inputs over what there was, where it is larger."""
    better = found.pop("certified") & (found["log_volume"] > result["log_volume"][rows])
    passed[rows[better]] = True
    for name, value in found.items():
        result[name][rows[better]] = value[better]


def _mean_shape(prior: Certificates, net: Network, region: Region) -> Tensor:
    """The mean of earlier regions' extents as multiples of their uniform radii, `d`."""
    if not isinstance(prior, Certificates):
        raise InputError(f"prior must be Certificates of other inputs, got {type(prior).__name__}")
    if prior.settings.get("network_hash") != network_hash(net):
        raise InputError("prior speaks of another network; its regions say nothing of this one's")
    if prior.settings.get("region") != region.name:
        raise InputError(f"prior holds regions of shape {prior.settings.get('region')}, not {region.name}")
    good = prior.certified & (prior.uniform > 0)
    if not bool(good.any()):
        raise InputError("prior holds no certificate")
    extents = prior.eps.flatten(1)
    if prior.lower is not None and prior.upper is not None:
        down, up = (prior.x - prior.lower).flatten(1), (prior.upper - prior.x).flatten(1)
        extents = region.theta(down, up)
    return (extents[good] / prior.uniform[good][:, None]).mean(0)


def _positions(rows: Tensor, index: Tensor) -> Tensor:
    """Where each of `index` stands in `rows` (sorted)."""
    return torch.searchsorted(rows, index)


def _collect(
    rows: dict[str, Any], net: Network, region: Region, limits: Space | None, settings: dict[str, Any]
) -> Certificates:
    """Certificates from their columns per input; `limits`: where a domain was given."""
    once: dict[str, Any] = {}
    if region.basis is not None:
        once["basis"] = region.basis.double().cpu()
    if limits is not None:
        ends = {"lowest": limits.lowest, "highest": limits.highest}
        if all(bool((end == end[:1]).all()) for end in ends.values()):  # one stands for all inputs
            ends = {name: end[:1].clone() for name, end in ends.items()}
        once.update({name: end.reshape(-1, *net.input_shape).cpu() for name, end in ends.items()})
    columns: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in rows.items()}
    return Certificates(**columns, **once, settings=settings, network=net)


__all__ = ["CAP", "SOLVERS", "Solver", "certify", "uncertified"]
