"""`bounds` and `verify`: questions about a given box."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor

from elbowroom.arguments.axes import channels_of
from elbowroom.arguments.frames import by_name
from elbowroom.arguments.names import few
from elbowroom.arguments.tensors import Array, tensor_of
from elbowroom.claim.hints import Hints
from elbowroom.claim.specification import Specification, label_stays
from elbowroom.claim.stated import Stated
from elbowroom.errors import InputError, warn
from elbowroom.machine.torch_modes import in_own_modes, recordable
from elbowroom.network.graph import Network
from elbowroom.proof.kernel.prove import prove
from elbowroom.search.bounds.propagate import Propagation, check_margin, method_named
from elbowroom.search.memory import Budget
from elbowroom.search.regions.input_set import InputSet


@dataclass(frozen=True, eq=False)
class Interval:
    """Lower and upper bound of one layer, `b x *shape` each."""

    lower: Tensor
    upper: Tensor


@dataclass(frozen=True, eq=False)
class Bounds:
    """What the network can compute on a set of inputs.

    `lower`, `upper`: the outputs, `b x k`. `layers`: every node by name, in the order of computation;
    the nodes that feed an activation have the method's bound, the others the interval that follows from it.
    """

    lower: Tensor
    upper: Tensor
    layers: Mapping[str, Interval]


@in_own_modes
def bounds(
    net: Network,
    lower: Array | InputSet,
    upper: Array | None = None,
    method: str = "combined",
    memory: int | str | None = None,
) -> Bounds:
    """Bounds of every layer when the input lies in `[lower, upper]`.

    `lower`, `upper`: `b x *input_shape` or `*input_shape`, or data frames, whose columns are matched by name with the
    network's features; or one `InputSet` (balls, rotated boxes) in place of both. `method`: "simple", "quadratic",
    "combined" (the paper's), "adaptive" or "fast". Computed in the inputs' own precision (float32 for anything
    shorter), and differentiable by them. Bounds are right in real arithmetic; floating point may move them by rounding.

    >>> out = er.bounds(net, x - 0.1, x + 0.1)
    >>> out.lower, out.upper            # the logits
    >>> list(out.layers)                # the names of the layers, in order
    """
    chosen = method_named(method)
    inputs = set_of(net, lower) if isinstance(lower, InputSet) else box_of(net, lower, upper)
    work = net.cast(inputs.center.dtype, inputs.center.device)
    found = Propagation(work, inputs, chosen, Budget.of(memory, inputs.center.device))
    layers = {n.name: Interval(l, u) for n, l, u in zip(net.nodes, found.lower, found.upper)}
    return Bounds(found.lower[-1], found.upper[-1], MappingProxyType(layers))


@dataclass(frozen=True, eq=False)
class Verification:
    """`proved`: `b`, whether the decision is proved constant; `margins`: `b x g`, what was proved of each
    other class (or group of the specification); `labels`: `b`, the decisions spoken of."""

    proved: Tensor
    margins: Tensor
    labels: Tensor | None

    def __bool__(self) -> bool:
        return bool(self.proved.all())


@in_own_modes
def verify(
    net: Network,
    lower: Array,
    upper: Array,
    labels: Array | None = None,
    *,
    spec: Specification | None = None,
    method: str = "adaptive",
    margin: str = "direct",
    deployed: str | None = None,
) -> Verification:
    """Is the decision the same on the whole box `[lower, upper]`? By the strict check; "not proved" is not "false".

    `labels`: the decision to prove, as numbers of outputs or names of classes; default, what the network decides at
    the box's midpoint.
    `spec`: something else to prove of the outputs.
    """
    method_named(method)
    check_margin(margin)
    low, high = corners_of(net, lower, upper, torch.float64)
    net.must_agree(torch.cat([low[:1] / 2 + high[:1] / 2, low[:1], high[:1]]))
    chosen: Tensor | None = None
    if spec is None:
        if labels is None:
            chosen = net.decide(net(low / 2 + high / 2))
        else:
            chosen = labels_of(net, labels, len(low)).to(low.device)
        spec = label_stays(chosen, net.n_outputs, net.decision)
    elif labels is not None:
        raise InputError("give labels or spec, not both")
    spec.check_fits(len(low), net)
    spec = spec.cast(torch.float64, low.device)
    region, hints = Stated(low.flatten(1), high.flatten(1)), Hints.of(method, margin)
    margins = prove(net, region, spec.rows, spec.offset, spec.group, hints, deployed)
    return Verification((margins > 0).all(1), margins, chosen)


def labels_of(net: Network, labels: Array, batch: int) -> Tensor:
    """Labels as a vector of `batch` numbers of outputs, or an `InputError`; text is the name of a class."""
    known = net.about.classes or ()
    named = None if not known or isinstance(labels, Tensor) else _by_class(known, labels)
    given = tensor_of(labels if named is None else named)
    if given.is_floating_point() and not bool((given == given.round()).all()):
        raise InputError("labels must be whole numbers")
    given = given.to(torch.long).reshape(-1)
    place = {name: str(k) for k, name in enumerate(known)}
    present = [str(k) for k in given.unique().tolist()] if named is None else []
    if set(present) <= set(known) and any(place[name] != name for name in present):
        warn(
            f"labels that are numbers are those of outputs, 0 to {net.n_outputs - 1}; the network's classes are called "
            f"{few(known)}: give these names as text if they are meant"
        )
    if len(given) not in (1, batch):
        raise InputError(f"got {len(given)} labels for {batch} inputs")
    return given.expand(batch)


def _by_class(known: tuple[str, ...], labels: Array) -> np.ndarray | None:
    """Names of classes as the numbers of their outputs; None where labels are no text."""
    try:
        names = np.asarray(labels).reshape(-1).tolist()
    except ValueError:  # rows of different lengths, which is said elsewhere
        return None
    if not names or not all(isinstance(name, str) for name in names):
        return None
    for name in names:
        if name not in known:
            raise InputError(f"there is no class {name!r}; the network's classes are {few(known)}")
    return np.array([known.index(name) for name in names], dtype=np.int64)


def set_of(net: Network, inputs: InputSet) -> InputSet:
    """The set, after checking that it can be one of the network's inputs; in one type, at least float32."""
    if tuple(inputs.center.shape[1:]) != net.input_shape:
        raise InputError(
            f"the set's center must have shape (batch, {', '.join(map(str, net.input_shape))}), "
            f"got {tuple(inputs.center.shape)}"
        )
    for name, t in (("center", inputs.center), ("radius", inputs.radius)):
        if not bool(torch.isfinite(t).all()):
            raise InputError(f"the set's {name} holds NaN or infinite values")
    if bool((inputs.radius < 0).any()):
        raise InputError("the set's radius must not be negative")
    dtype = _at_least_float32(inputs.center.dtype, inputs.radius.dtype)
    basis = None if inputs.basis is None else recordable(inputs.basis.to(dtype))
    center, radius = (recordable(t.to(dtype)) for t in (inputs.center, inputs.radius))
    return replace(inputs, center=center, radius=radius, basis=basis)


def box_of(net: Network, lower: Array, upper: Array | None, dtype: torch.dtype | None = None) -> InputSet:
    """The boxes `[lower, upper]` as an input set, after checking what was given."""
    return InputSet.box(*corners_of(net, lower, upper, dtype))


def corners_of(
    net: Network, lower: Array, upper: Array | None, dtype: torch.dtype | None = None
) -> tuple[Tensor, Tensor]:
    """The corners, `b x *input_shape`, after checking what was given. `dtype`: default, the wider one's, at least
    float32."""
    if upper is None:
        raise InputError("bounds need a lower and an upper corner (or one InputSet)")
    low, high = tensor_of(by_name(net, lower, "lower")), tensor_of(by_name(net, upper, "upper"))
    dtype = dtype or _at_least_float32(low.dtype, high.dtype)
    low, high = batched(net, low.to(dtype), "lower"), batched(net, high.to(dtype), "upper")
    if low.shape != high.shape:
        raise InputError(f"lower has shape {tuple(low.shape)}, upper {tuple(high.shape)}")
    for name, t in (("lower", low), ("upper", high)):
        if not bool(torch.isfinite(t).all()):
            raise InputError(f"{name} holds NaN or infinite values")
    crossed = (low > high).nonzero()
    if len(crossed):
        raise InputError(f"lower is above upper at {len(crossed)} places, first at {crossed[0].tolist()}")
    return low, high


def _at_least_float32(*dtypes: torch.dtype) -> torch.dtype:
    return functools.reduce(torch.promote_types, dtypes, torch.float32)


def batched(net: Network, t: Tensor, name: str) -> Tensor:
    """`t` with a batch axis, or an `InputError` where its shape is not the network's."""
    if not isinstance(net, Network):
        raise InputError(f"the first argument must be a Network; make one with er.load, got {type(net).__name__}")
    if tuple(t.shape) == net.input_shape:
        t = t[None]
    if tuple(t.shape[1:]) != net.input_shape or t.dim() == 0:
        one = next((s for s in (tuple(t.shape[1:]), tuple(t.shape)) if channels_of(s, net.input_shape)), None)
        hint = "" if one is None else f"; er.load(net, input_shape={one}) takes inputs of that layout"
        raise InputError(
            f"{name} must have shape {net.input_shape} or (batch, "
            f"{', '.join(map(str, net.input_shape))}), got {tuple(t.shape)}{hint}"
        )
    return t
