"""From inputs to proposals: the uniform radius, caps, and the largest region that the bounds allow.

Fast, and only as right as its precision: what is found here is proposed, and `certify` proves it or not.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from elbowroom.claim.space import Space
from elbowroom.claim.specification import Specification
from elbowroom.network.graph import Network
from elbowroom.search.bounds.propagate import BoundFunction, OwnBounds
from elbowroom.search.evaluated import Evaluated, Kept, OwnEvaluated
from elbowroom.search.regions.base import Placed, Region
from elbowroom.search.regions.objective import Objective, Volume
from elbowroom.search.regions.smallest import Smallest
from elbowroom.search.solvers.boundary import to_boundary
from elbowroom.search.solvers.driver import Solver, improve
from elbowroom.search.solvers.prior import start_from
from elbowroom.search.solvers.problem import Margins, Problem, Work
from elbowroom.search.solvers.uniform import uniform_radius

CAP = 1000.0  # without domain or max_eps, no feature may reach farther than this many uniform radii
_FARTHEST = 1e6  # and no uniform radius is looked for beyond this many times the input's size
_LEAST_SIZE, _MOST_SIZE = 1e-3, 1e15  # for inputs and margins that say nothing of their units

# What float32 can tell: rounding of a margin, per unit of what was added up; what it may be of a margin; the largest
# value at an input, beside what it may be elsewhere.
_ROUNDINGS, BLUR, _LARGE = 16 * 2.0**-24, 1e-2, 1e18
_NEAR = 0.5  # of where linearised margins end: the least that is tried first for the uniform radius


@dataclass
class Inputs:
    """Some inputs of a batch: `points`, `b x *input_shape`, and `outputs`, `b x k`, in float64; what must hold, and
    where; `rows`, `b`: which of the batch they are, in order."""

    points: Tensor
    outputs: Tensor
    spec: Specification
    space: Space
    rows: Tensor

    def take(self, index: Tensor) -> Inputs:
        points, outputs, rows = self.points[index], self.outputs[index], self.rows[index]
        return Inputs(points, outputs, self.spec.part(index), self.space.part(index), rows)

    @property
    def x(self) -> Tensor:
        return self.points.flatten(1)

    def __len__(self) -> int:
        return len(self.points)


@dataclass
class Found:
    """What a search found, in float64: parameters of the region and of the uniform one, `b x d`; the uniform radius,
    `b`, zero where there is no region; caps, `b x n`; per input, how the solver ended."""

    theta: Tensor
    uniform: Tensor
    radius: Tensor
    cap: Tensor
    ended: list[str]

    def put(self, index: Tensor, other: Found) -> Found:
        """With what was found for some of the inputs, `index`, in place of what stands there."""
        for name in ("theta", "uniform", "radius", "cap"):
            getattr(self, name)[index] = getattr(other, name)
        for k, why in zip(index.tolist(), other.ended):
            self.ended[k] = why
        return self


@dataclass
class Search:
    """How regions are looked for: the same for all batches. `prior`: `d`, extents per unit of the uniform radius;
    `smallest`: whether the least width is to be as large as possible, rather than the volume. `scale`: where the
    uniform region is to have the same share of it in every feature, `n`, 0 where it is not known."""

    net: Network
    region: Region
    evaluate: BoundFunction
    solver: Solver
    delta: float
    prior: Tensor | None = None
    scale: Tensor | None = None
    smallest: bool = False
    passes: Kept = field(default_factory=Kept, repr=False)
    _casts: dict[tuple[torch.dtype, torch.device], Network] = field(default_factory=dict, repr=False, init=False)
    _exact: dict[torch.device, Network] = field(default_factory=dict, repr=False, init=False)
    volume: Volume = field(default_factory=Volume, repr=False)  # one for all batches: its steps are recorded, too

    def cast(self, dtype: torch.dtype, device: torch.device) -> Network:
        """The network in the type and on the device to compute with; found once, since to do so looks at every
        parameter. (The proof finds its own.)"""
        if (dtype, device) not in self._casts:
            self._casts[dtype, device] = self.net.cast(dtype, device)
        return self._casts[dtype, device]

    def exact(self, device: torch.device) -> Network:
        """The network in float64, see `Network.exact`; found once."""
        if device not in self._exact:
            self._exact[device] = self.net.exact(device)
        return self._exact[device]

    def place(self, inputs: Inputs, cap: Tensor, dtype: torch.dtype) -> Placed:
        """The shape around the inputs, with these caps, `b x n`."""
        space = self.region.binding(inputs.space).capped(cap)
        return self.region.place(inputs.x, space, self.net.input_shape, dtype)

    def objective(self, inputs: Inputs) -> Objective:
        """What makes regions around these inputs good. Widths are measured in what the uniform one grows in."""
        if not self.smallest:
            return self.volume
        scale = self._direction(self.place(inputs, torch.ones_like(inputs.x), torch.float64)).amax(0)
        return Smallest(torch.where(scale > 0, scale, 1.0))

    def caps(self, inputs: Inputs, radius: Tensor, scale: Tensor) -> Tensor:
        """How far features may reach, `b x n`, by the space or by the uniform radius, `b`; `scale`: `b x n`."""
        own = self.region.binding(inputs.space).farthest()
        if self.scale is None:
            scale = scale.amax(1, keepdim=True)
        reach = CAP * (radius[:, None] * scale).double()
        return torch.where(own.isfinite(), own, reach)

    def around(self, inputs: Inputs, theta: Tensor, radius: Tensor) -> Found:
        """Regions that were found before, `b x d`, with their uniform radii, `b`, in float64."""
        shape = self.place(inputs, torch.ones_like(inputs.x), torch.float64)
        scale = self._direction(shape)
        cap = self.caps(inputs, radius, scale)
        uniform = self.place(inputs, cap, torch.float64).uniform(radius, scale)
        return Found(theta, uniform, radius, cap, [""] * len(theta))

    def _margins(self, inputs: Inputs, dtype: torch.dtype) -> Margins:
        """How margins of regions around the inputs are computed in `dtype`, less delta."""
        device = inputs.points.device
        net, spec = self.cast(dtype, device), inputs.spec.cast(dtype, device)
        if not isinstance(self.evaluate, OwnBounds):
            return Evaluated(net, self.evaluate, spec, inputs.rows, self.delta)
        return OwnEvaluated(net, self.evaluate, spec, inputs.rows, self.delta, self.passes)

    def again(self, inputs: Inputs, found: Found, dtype: torch.dtype, work: Work) -> Found:
        """Regions that were found before, made larger in the features that are free; others, whose ends the space
        holds, stay as they are."""
        placed = self.place(inputs, found.cap, dtype)
        theta = torch.minimum(found.theta.to(dtype), placed.caps)
        problem = Problem(placed, self._margins(inputs, dtype), inputs.rows, torch.empty(0), work)
        problem.at_input = problem.margins(torch.zeros_like(theta))
        problem.objective = self.objective(inputs)
        keep = ((problem.at_input > 0).all(1) & (theta > 0).any(1)).nonzero().squeeze(1)
        if len(keep):
            part = problem.take(keep)
            start = placed.take(keep).grow(theta[keep], to_boundary(part, theta[keep]).low)
            some = (start > 0).any(1).nonzero().squeeze(1)
            if len(some):
                theta[keep[some]] = improve(part.take(some), self.solver, start[some]).theta
        return replace(found, theta=theta.double())

    def still(self, inputs: Inputs) -> Found:
        """Regions of no size, of inputs of which no number may move."""
        theta = torch.zeros_like(self.place(inputs, torch.ones_like(inputs.x), torch.float64).caps)
        radius = torch.zeros_like(theta[:, 0])
        return Found(theta, theta.clone(), radius, torch.zeros_like(inputs.x), ["no number may move"] * len(inputs))

    def find(self, inputs: Inputs, dtype: torch.dtype, work: Work) -> tuple[Found, Problem]:
        """The largest regions found, computing in `dtype`, and the problem they were found for."""
        rows, margins = inputs.rows, self._margins(inputs, dtype)
        at_input = (inputs.spec.margins(inputs.outputs) - self.delta).to(dtype)

        # The uniform radius first: it is the baseline, the start, and what caps are measured in.
        least, slope = self._linear(inputs)
        length = _length(least, slope)
        size = torch.maximum(inputs.x.abs().amax(1), length).clamp_min(_LEAST_SIZE)[:, None]
        own = self.region.binding(inputs.space).farthest()
        cap = torch.where(own.isfinite(), own, _FARTHEST * size)
        problem = Problem(self.place(inputs, cap, dtype), margins, rows, at_input, work)
        scale = self._direction(problem.region)
        if self.scale is None:
            guess = 0.02 * inputs.x.abs().mean(1).clamp_min(_LEAST_SIZE) / scale.amax(1)
            length = length / scale.amax(1)
        else:  # radii are shares
            guess, length = torch.full_like(length, 0.02), _length(least, slope * scale)
        guess = torch.where(length > 0, torch.minimum(torch.maximum(guess, _NEAR * length), length), guess)
        radius = uniform_radius(problem, scale, guess.to(dtype))
        cap = self.caps(inputs, radius, scale)
        problem = Problem(self.place(inputs, cap, dtype), margins, rows, at_input, work)
        problem.objective = self.objective(inputs)
        uniform = problem.region.uniform(radius, scale)
        theta, keep = uniform.clone(), (radius > 0).nonzero().squeeze(1)
        ended = [""] * len(theta)
        if not self.region.one_radius and len(keep):
            part, start = problem.take(keep), uniform[keep]
            if self.prior is not None:
                start = start_from(part, start, radius[keep], self.prior)
            solution = improve(part, self.solver, start)
            theta[keep] = solution.theta
            for k, why in zip(keep.tolist(), solution.ended):
                ended[k] = why
        return Found(theta.double(), uniform.double(), radius.double(), cap, ended), problem

    def _direction(self, placed: Placed) -> Tensor:
        """The direction, `b x n`, along which the uniform region grows."""
        found = self.region.scale(placed)
        return found if self.scale is None else found * torch.where(self.scale > 0, self.scale, 1.0).to(found)

    def _linear(self, inputs: Inputs) -> tuple[Tensor, Tensor]:
        """The least margins, `b`, and the sizes of their derivatives by the inputs, `b x n`."""
        points = inputs.points.clone().requires_grad_()
        outputs = self.exact(points.device).values(points)[-1]
        least = inputs.spec.margins(outputs).amin(1)
        if not least.requires_grad:  # nothing depends on the input
            return least, torch.zeros_like(inputs.x)
        (slope,) = torch.autograd.grad(least.sum(), points)
        return least.detach() - self.delta, slope.flatten(1).abs()

    def is_blurred(self, inputs: Inputs, dtype: torch.dtype) -> Tensor:
        """Where `dtype`, float32, does not do at the input itself, `b`: its rounding may be a good part of a margin, or
        values are so large that on a region they may be infinite."""
        spec, exact = inputs.spec, inputs.spec.margins(inputs.outputs)
        device = inputs.points.device
        values = self.cast(dtype, device).values(inputs.points.to(dtype))
        seen = spec.cast(dtype, device).margins(values[-1]).double()
        added = (spec.rows.abs() @ inputs.outputs.abs()[..., None]).squeeze(-1) + spec.offset.abs()
        error = 8 * (seen - exact).abs() + _ROUNDINGS * spec.reduce(added)
        small = torch.stack([v.flatten(1).abs().amax(1) for v in values]).amax(0) <= _LARGE
        return ~((error <= BLUR * (exact - self.delta)).all(1) & small)


def _length(least: Tensor, slope: Tensor) -> Tensor:
    """How far all features could move if the margins were linear, `b`: a scale for the search, which inputs alone
    need not have (an input of zeros does not say in which units). Zero where it is unknown."""
    length = least / slope.sum(1)
    return torch.nan_to_num(length, nan=0.0, posinf=0.0).clamp(0, _MOST_SIZE)
