"""`certify`: the largest region around each input in which the specification provably holds.

The only place that writes the status "certified". The search runs in float32 (or float64); the verdict is the strict
check on the very corners that are stored, and the region shrinks in tiny steps until it passes.
"""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from elbowroom.accuracy import warn_near_chance
from elbowroom.bounds.api import Array, batched, labels_of, tensor_of
from elbowroom.bounds.propagate import BoundFunction, margins_of
from elbowroom.certificate import Certificates
from elbowroom.check.prove import Hints, prove
from elbowroom.claim import Claim
from elbowroom.device import usable_device
from elbowroom.errors import InputError
from elbowroom.frames import by_name
from elbowroom.limits import Limits, limits_of
from elbowroom.memory import Budget
from elbowroom.network.files import network_hash
from elbowroom.network.graph import Network
from elbowroom.regions.input_set import InputSet
from elbowroom.regions.shapes import Box, Oblique, Placed, Region, Uniform
from elbowroom.solvers.augmented_lagrangian import AugmentedLagrangian
from elbowroom.solvers.boundary import to_boundary
from elbowroom.solvers.prior import start_from
from elbowroom.solvers.problem import Problem, Work
from elbowroom.solvers.sequential import Sequential
from elbowroom.solvers.uniform import uniform_radius
from elbowroom.specification import Specification, label_stays

Solver = Sequential | AugmentedLagrangian
SOLVERS: dict[str, type[Sequential] | type[AugmentedLagrangian]] = {
    "sequential": Sequential,
    "augmented-lagrangian": AugmentedLagrangian,
}
PRECISIONS = {"float32": torch.float32, "float64": torch.float64}
CAP = 1000.0  # without domain or max_eps, no feature may reach farther than this many uniform radii
_FARTHEST = 1e6  # and no uniform radius is looked for beyond this many times the input's size


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
    delta: float = 1e-4,
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
    `delta`: by how much margins must exceed zero. `memory`: what the work may take, in bytes or as "4GiB"; default,
    half of what is free. `batch`: how many inputs at a time; default, what fits. `deployed`: "float32" to certify also
    the network as executed in float32 (see docs/soundness.md); inputs are then rounded to float32. `precision`: in
    which the search runs, "float32" or "float64" (slower; for networks whose values span many orders of magnitude). The
    verdict is float64 in any case.
    `prior`: certificates of other inputs, of the same network and kind of region: the search starts from their mean
    shape. Regions of one network are so similar that this may save gradients, or give regions nearly as large without
    any (`solver=er.Sequential(gradients=0)`).

    >>> certs = er.certify(net, x, domain=(0, 1))
    >>> certs.status[0], certs.eps[0], certs.ratio[0]
    """
    started = time.perf_counter()
    shape_of = Box() if region is None else region
    if not isinstance(shape_of, Region):
        raise InputError(f"region must be a shape such as Box(), got {shape_of!r}")
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
    where = usable_device(device) if device is not None else _device_of(x)
    points = batched(net, tensor_of(by_name(net, x, "x")).detach(), "x").to(device=where, dtype=torch.float64)
    if not len(points):
        raise InputError("x holds no inputs")
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
    limits = limits_of(net, points, domain, frozen, importance, max_eps)
    if deployed:
        points = _as_executed(points, limits)
    work64 = net.cast(torch.float64, where)
    outputs = _in_parts(lambda part: work64.values(part)[-1], points)
    if spec is None:
        chosen = net.decide(outputs) if labels is None else labels_of(net, labels, len(points)).to(where)
        spec = label_stays(chosen, net.n_outputs, net.decision)
        warn_near_chance(net, outputs, None if labels is None else chosen)
    else:
        if labels is not None:
            raise InputError("give labels or spec, not both")
        spec.check_fits(len(points), net.n_outputs)
        chosen = torch.full((len(points),), -1, device=where)
    spec = spec.cast(torch.float64, where)
    parts: list[dict[str, Any]] = []
    size, first = batch or budget.batch(net, where, bounds != "simple"), 0
    with torch.backends.cudnn.flags(allow_tf32=False):  # TF32 would blur the search
        while first < len(points):
            index = torch.arange(first, min(first + size, len(points)), device=where)
            try:
                part = task.run(points[index], outputs[index], chosen[index], spec.part(index), limits.part(index))
            except (RuntimeError, MemoryError) as error:
                if not _is_out_of_memory(error):
                    raise
                size = _smaller(len(index), where)
                continue
            started = _stamp(part, started)
            parts.append(part)
            first += len(index)
    settings = {
        "region": repr_of(shape_of), "bounds": bounds if isinstance(bounds, str) else "own function",
        "margin": margin, "solver": repr(solver), "delta": float(delta), "decision": net.decision,
        "precision": precision,
        "p": shape_of.p if shape_of.p != torch.inf else "inf", "deployed": deployed,
        "network_hash": network_hash(net),
    }  # fmt: skip
    basis = shape_of.basis.double().cpu() if isinstance(shape_of, Oblique) else None
    stated = spec.cast(torch.float64, "cpu") if task.told_spec else None
    return _collect(parts, net, basis, stated, settings)


def repr_of(region: Region) -> str:
    """The shape in words, without its tensors."""
    inner = getattr(region, "inner", None)
    name = type(region).__name__
    if inner is not None:
        return f"{name}({repr_of(inner)})"
    return f"{name}(asymmetric)" if getattr(region, "asymmetric", False) else name


def _as_executed(points: Tensor, limits: Limits) -> Tensor:
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

    def run(
        self, points: Tensor, outputs: Tensor, labels: Tensor, spec: Specification, limits: Limits
    ) -> dict[str, Any]:
        """Certificates of one batch, as the fields of `Certificates`; features flat."""
        batch = len(points)
        x = points.flatten(1)
        status, message = self._triage(x, outputs, labels, spec, limits)
        work = Work.none(batch)
        result = _empty(x, labels, spec.n_groups)
        todo = torch.tensor([s == "" for s in status], device=x.device).nonzero().squeeze(1)
        if len(todo):
            found = self._search(points[todo], outputs[todo], spec.part(todo), limits.part(todo), work, todo)
            done = found.pop("certified")
            for name, value in found.items():
                result[name][todo] = value
            for k, ok in zip(todo.tolist(), done.tolist()):
                status[k] = "certified" if ok else "not_certified"
                message[k] = "" if ok else "no region was found in which the strict check proves the specification"
        result.update(status=status, message=message, evaluations=work.evaluations, gradients=work.gradients)
        result.update(gradient_rows=work.rows, boxes=self._is_box())
        return result

    def _is_box(self) -> bool:
        return isinstance(self.region, (Box, Uniform))

    def _triage(
        self, x: Tensor, outputs: Tensor, labels: Tensor, spec: Specification, limits: Limits
    ) -> tuple[list[str], list[str]]:
        """Status and message of the inputs that need no search; "" for the others."""
        # Everything to the CPU at once: asking a GPU for one number at a time would take longer than the search.
        least = spec.margins(outputs).amin(1).tolist()
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

    def _search(
        self, points: Tensor, outputs: Tensor, spec: Specification, limits: Limits, work: Work, rows: Tensor
    ) -> dict[str, Tensor]:
        device = points.device
        dtype = self.dtype
        net, rounded = self.net.cast(dtype, device), spec.cast(dtype, device)
        x64 = points.flatten(1)
        at_input = spec.margins(outputs).amin(1).to(dtype) - self.delta

        def margins(inputs: InputSet, index: Tensor) -> Tensor:
            return self.evaluate(net, inputs, rounded.part(_positions(rows, index))) - self.delta

        def place(cap: Tensor, dtype: torch.dtype = dtype) -> Placed:
            return self.region.place(limits.room(x64, cap, self.region.rotated).to(dtype), self.net.input_shape)

        # The uniform radius first: it is the baseline, the start, and what caps are measured in.
        size = x64.abs().amax(1, keepdim=True).clamp_min(1e-3)
        own = limits.farthest(self.region.rotated)
        cap = torch.where(own.isfinite(), own, _FARTHEST * size)
        problem = Problem(place(cap), margins, rows, at_input, work)
        scale = self.region.scale(problem.region.room)
        guess = (0.02 * x64.abs().mean(1).clamp_min(1e-3)).to(dtype) / scale.amax(1)
        radius = uniform_radius(problem, scale, guess)
        found = radius > 0
        reach = CAP * (radius[:, None] * scale.amax(1, keepdim=True)).double()
        cap = torch.where(own.isfinite(), own, reach)
        problem = Problem(place(cap), margins, rows, at_input, work)
        uniform = problem.region.uniform(radius, scale)
        theta = uniform
        if not isinstance(self.region, Uniform) and bool(found.any()):
            keep = found.nonzero().squeeze(1)
            theta, part, start = uniform.clone(), problem.take(keep), uniform[keep]
            if self.prior is not None:
                start = start_from(part, start, radius[keep], self.prior)
            theta[keep] = self.solver.solve(part, start).theta
        if self.deployed and bool(found.any()):
            theta = self._leave_room_for_rounding(problem, theta, place(cap, torch.float64), spec, limits)
        return self._verdict(place(cap, torch.float64), theta.double(), uniform.double(), radius, found, spec, limits)

    def _leave_room_for_rounding(
        self, problem: Problem, theta: Tensor, region: Placed, spec: Specification, limits: Limits
    ) -> Tensor:
        """Shrinks regions until their margins also pay for the errors of the network as executed."""
        claim = Claim.of(region, torch.minimum(theta.double(), region.caps), limits, self._is_box())
        short = self.delta - self._prove(claim, spec).amin(1)
        short = torch.where(torch.isfinite(short), short, torch.inf).clamp_min(0).to(self.dtype)[:, None]
        plain = problem.evaluate

        def margins(inputs: InputSet, index: Tensor) -> Tensor:
            return plain(inputs, index) - 1.02 * short[_positions(problem.index, index)]

        stricter = dataclasses.replace(problem, evaluate=margins, at_input=problem.at_input - 1.02 * short[:, 0])
        return problem.region.grow(theta, to_boundary(stricter, theta)[0].clamp_max(1))

    def _prove(self, claim: Claim, spec: Specification) -> Tensor:
        return prove(self.net, claim.area(), spec.rows, spec.offset, spec.group, self.hints, self.deployed)

    def _verdict(
        self,
        region: Placed,
        theta: Tensor,
        uniform: Tensor,
        radius: Tensor,
        found: Tensor,
        spec: Specification,
        limits: Limits,
    ) -> dict[str, Tensor]:
        """Runs the strict check on what will be stored, shrinking until it passes."""
        x = region.room.x
        theta = torch.minimum(theta, region.caps)
        claim = Claim.of(region, theta, limits, self._is_box())
        margins = x.new_zeros(len(x), spec.n_groups)
        passed = torch.zeros_like(found)
        pending = found.nonzero().squeeze(1)
        shrink = 1e-7
        while len(pending) and shrink < 1:
            proved = self._prove(claim.take(pending), spec.part(pending))
            ok = (proved >= self.delta).all(1) & (proved > 0).all(1)
            margins[pending[ok]], passed[pending[ok]] = proved[ok], True
            pending = pending[~ok]
            claim.pull_in(pending, x, 1 - shrink)
            shrink *= 4
        half = claim.half_widths()
        # A region too thin for float64 in some free feature is no region.
        passed &= ((half > 0) | ~region.room.free).all(1)
        half = torch.where(passed[:, None], half, 0.0)
        free, n_free = region.room.free, region.room.n_free
        log_geomean = torch.where(free, half, 1.0).log().sum(1) / n_free
        to_uniform = log_geomean - region.log_geomean(torch.minimum(uniform, region.caps))
        # Within a percent: scaling to the boundary moves a feature off its cap by a trifle.
        at_cap = (theta >= 0.99 * region.caps) & (region.caps > 0) & passed[:, None]
        if at_cap.shape != x.shape:
            at_cap = at_cap.chunk(2, 1)[0] & at_cap.chunk(2, 1)[1]
        return {
            "certified": passed,
            "eps": half,
            "center": torch.where(passed[:, None], claim.center(), x),
            "lower": torch.where(passed[:, None], claim.lower, x),
            "upper": torch.where(passed[:, None], claim.upper, x),
            "capped": at_cap,
            "uniform": torch.where(passed, radius.double(), 0.0),
            "geomean": torch.where(passed, log_geomean.exp(), 0.0),
            "log_volume": torch.where(passed, n_free * log_geomean + region.log_unit_volume(n_free), -torch.inf),
            "ratio": torch.where(passed, to_uniform.exp(), 0.0),
            "margins": margins,
        }


def _mean_shape(prior: Certificates, net: Network, region: Region) -> Tensor:
    """The mean of earlier regions' extents as multiples of their uniform radii, `d`."""
    if not isinstance(prior, Certificates):
        raise InputError(f"prior must be Certificates of other inputs, got {type(prior).__name__}")
    if prior.settings.get("network_hash") != network_hash(net):
        raise InputError("prior speaks of another network; its regions say nothing of this one's")
    if prior.settings.get("region") != repr_of(region):
        raise InputError(f"prior holds regions of shape {prior.settings.get('region')}, not {repr_of(region)}")
    good = prior.certified & (prior.uniform > 0)
    if not bool(good.any()):
        raise InputError("prior holds no certificate")
    extents = prior.eps.flatten(1)
    if prior.lower is not None and prior.upper is not None:
        down, up = (prior.x - prior.lower).flatten(1), (prior.upper - prior.x).flatten(1)
        asymmetric = isinstance(region, Box) and region.asymmetric
        extents = torch.cat([down, up], 1) if asymmetric else torch.maximum(down, up)
    return (extents[good] / prior.uniform[good][:, None]).mean(0)


def _positions(rows: Tensor, index: Tensor) -> Tensor:
    """Where each of `index` stands in `rows` (sorted)."""
    return torch.searchsorted(rows, index)


def _empty(x: Tensor, labels: Tensor, groups: int) -> dict[str, Any]:
    """The fields of inputs without a certificate."""
    batch = len(x)

    def zeros(*shape: int) -> Tensor:
        return x.new_zeros(batch, *shape)

    return {
        "x": x, "labels": labels, "eps": zeros(x.shape[1]),
        "center": x.clone(), "lower": x.clone(), "upper": x.clone(),
        "capped": zeros(x.shape[1]).bool(), "uniform": zeros(), "geomean": zeros(), "ratio": zeros(),
        "log_volume": zeros() - torch.inf, "margins": zeros(groups),
    }  # fmt: skip


def _collect(
    parts: list[dict[str, Any]],
    net: Network,
    basis: Tensor | None,
    spec: Specification | None,
    settings: dict[str, Any],
) -> Certificates:
    boxes = parts[0].pop("boxes")
    for part in parts[1:]:
        part.pop("boxes")
    joined: dict[str, Any] = {}
    for name in parts[0]:
        values = [p[name] for p in parts]
        if isinstance(values[0], list):
            joined[name] = tuple(v for part in values for v in part)
        else:
            tensor = torch.cat(values).cpu()
            joined[name] = tensor.reshape(-1, *net.input_shape) if name in _PER_FEATURE else tensor
    if not boxes:
        joined["lower"] = joined["upper"] = None
    if spec is not None:
        joined.update(spec_rows=spec.rows, spec_offset=spec.offset, spec_group=spec.group)
    return Certificates(**joined, basis=basis, settings=settings, network=net)


_PER_FEATURE = ("x", "eps", "center", "lower", "upper", "capped")

__all__ = ["CAP", "SOLVERS", "Solver", "certify"]
