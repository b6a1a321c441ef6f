"""`certify`: the largest region that is found around each input in which the specification provably holds.

The search runs in float32, or float64 where float32 could not tell;
the verdict is the strict check on the very corners that are stored, and the region shrinks until it passes.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from elbowroom.arguments.accuracy import warn_near_chance
from elbowroom.arguments.frames import Taken
from elbowroom.arguments.inputs import batched, labels_of, points_of
from elbowroom.arguments.tensors import Array
from elbowroom.arguments.types import with_kinds
from elbowroom.certificates.result import Certificates, sizes_of
from elbowroom.certificates.schema import blank_rows, write_rows
from elbowroom.certify.choices import PRECISIONS, asked_of, chosen_ways, effort_for, settings_of
from elbowroom.certify.larger import check_proof_bytes
from elbowroom.certify.measure import measure
from elbowroom.certify.oblique import measured_along
from elbowroom.certify.prior import mean_shape
from elbowroom.certify.task import Task, parts_of
from elbowroom.claim.hints import PROOF_BYTES, Hints
from elbowroom.claim.space import Space, space_of
from elbowroom.claim.specification import Specification, check_labels, label_stays
from elbowroom.errors import InputError, NotEnoughMemoryError
from elbowroom.machine.allocator import settle
from elbowroom.machine.device import usable_device
from elbowroom.machine.failures import is_out_of_memory
from elbowroom.machine.meter import Meter, watched
from elbowroom.machine.torch_modes import in_own_modes
from elbowroom.network.file import network_hash
from elbowroom.network.graph import Network
from elbowroom.network.work import settle_threads_for
from elbowroom.proof.kernel.prove import refuse_uncovered
from elbowroom.readers.given import network_for
from elbowroom.search.bounds.propagate import BoundFunction, margins_of
from elbowroom.search.find import Inputs, Search
from elbowroom.search.memory import Budget
from elbowroom.search.regions.base import Region
from elbowroom.search.solvers.driver import Solver


@in_own_modes
@torch.enable_grad()
def certify(
    net: Network | Any,
    x: Array | Any,
    labels: Array | None = None,
    region: Region | None = None,
    spec: Specification | None = None,
    bounds: str | BoundFunction = "adaptive",
    margin: str = "direct",
    solver: str | Solver = "sequential",
    objective: str = "volume",
    domain: tuple[Array, Array] | Mapping[str, tuple[float, float]] | str | None = None,
    frozen: Array | Sequence[str] | None = None,
    importance: Array | Mapping[str, float] | None = None,
    max_eps: Array | Mapping[str, float] | None = None,
    delta: float = 0.0,
    device: str | torch.device | None = None,
    memory: int | str | None = None,
    deployed: str | None = None,
    batch: int | None = None,
    precision: str = "float32",
    prior: Certificates | None = None,
    reach: bool = False,
    effort: str | int = "fast",
    proof_bytes: int = PROOF_BYTES,
    room_scale: Array | Mapping[str, float] | None = None,
    progress: bool | None = None,
    features: Mapping[str, Any] | None = None,
) -> Certificates:
    """The largest region that is found and proved around each input.

    `frozen`, `importance`, `max_eps` and the ends of `domain` may be one number, or one per channel (the first axis),
    per feature, or per feature and input; or, for some of them, a mapping from names or numbers of features (columns).

    Args:
        net: The network, see `load`; or a model that `load` reads as it is (of a torch module, the shape of an input is
            that of `x`).
        x: The inputs, `b x *input_shape` (or one input), in the units the network was loaded for; or a data frame,
            whose columns are matched by name with the network's features. Of a network that takes rows of a table,
            rows of raw values; a tensor holds the network's own entries, or a value for each column. Of a module that
            takes several tensors, a tuple of them or a mapping from their names. Rows that cannot be taken get the
            status "error", and a message that names column and value.
        labels: The decisions to certify, as numbers of outputs or names of classes; default, what the network decides.
        region: The shape, `Box()` by default.
        spec: Something other than "the label stays".
        bounds: "adaptive", "combined", "quadratic", "simple", "fast" (intervals for the hidden layers: for networks
            where the others take too long), or a function of your own from (network, input set, specification) to
            margins.
        margin: "direct" or "logits" (the paper's).
        solver: "sequential", "augmented-lagrangian" (the paper's), or a solver object.
        objective: What is to be as large as possible: "volume", or "smallest", the least half-width of a box (in what
            the uniform region is measured in; features that have all of their room do not count), and then the volume.
            Of a symmetric box that no domain cuts the latter is the uniform region. Or "free": as many features as
            possible that may take any value of their domain, which is finite, while the others stay at the input; see
            `Certificates.kept`.
        domain: (lowest, highest) valid input; or a mapping to such pairs; or "observed": between the least and the
            largest value of each feature in `x`. Boxes are cut to it.
        frozen: Features that must not move (directions, for `Oblique` with a basis), as booleans, names or numbers.
            Categories of a table never do so: frozen, they keep the input's level; else their sets of levels grow.
        importance: Positive weights of log eps.
        max_eps: The largest extent per feature; default, the domain; else of a table with 10 rows or more the width of
            the range that each feature has in it; else 1000 uniform radii.
        delta: By how much margins must exceed zero; by default it is enough that they are proved to.
        device: Where to work; by default where `x` is.
        memory: What the work may take, in bytes or as "4GiB"; default, half of what is free.
        deployed: "float32" to certify also the network as executed in float32 (see docs/soundness.md); inputs are then
            rounded to float32.
        batch: How many inputs at a time; default, what fits.
        precision: In which the search runs, "float64" or "float32", which is faster; inputs for which float32 is too
            coarse (a margin too small compared with the outputs, extents too small compared with the input) are then
            searched in float64. The verdict is float64 in any case.
        prior: Certificates of other inputs, of the same network and kind of region: the search starts from their mean
            shape. Regions of one network are so similar that this may save gradients, or give regions nearly as large
            without any (`solver=er.Sequential(gradients=0)`).
        reach: Whether to look for counterexamples as well: how much larger each region could be at most (`reach`,
            `seen`, and of boxes `seen_lower` and `seen_upper`).
        effort: What to spend on larger regions: "fast" (none), "medium" or "high", a number of leaves, or seconds per
            input such as "30s". Regions are then cut into parts, each of which is proved: certificates carry how, in
            `trees`. Serves `bounds="adaptive"`, `margin="direct"`.
        proof_bytes: The most bytes that the trees of one input may take.
        room_scale: What the room of each feature is a share of (`Certificates.room`), 0 where that is not known: the
            uniform region then has the same share in all features. Default, the width of the domain; of a table, else
            that of the range in `x`, from 10 rows on.
        progress: Whether to show on stderr how far the work is, and how long it will take; by default on a terminal
            and in a notebook, where it takes longer than a moment.
        features: What features are, by their names: "number", "whole number", "ordered levels", "category", "yes/no",
            "fixed", or a mapping with kind, unit, decimals, domain, levels, codes, columns, dropped, unknown; see
            docs/tables.md. Of all others the types of a frame's columns say it, in a warning. `certs.network` carries
            it. (Names of features that have none are for `load`.)

    Returns:
        One certificate per input, in the order of `x`; an input without a region says why in `status` and `message`.

    Raises:
        InputError: An argument cannot be used as it is; the message names it.
        UnsupportedError: The proof does not cover the network, or the model it was read from computes something else.

    Example:
        >>> certs = er.certify(net, x, domain=(0, 1))
        >>> certs.status[0], certs.down[0], certs.up[0]
    """
    started = time.perf_counter()
    shape, solver = chosen_ways(region, solver, delta, precision, batch, reach, objective)
    where = usable_device(device) if device is not None else _device_of(x)
    net, given, points = _points(net, x, features, where)
    refuse_uncovered(net, deployed)  # before a long search, whose findings nobody could prove
    told = domain, frozen, importance, max_eps, room_scale
    shape, measured = measured_along(net, shape, points, given.of_table, spec, *told)
    known = net.exact(points.device)
    settings = settings_of(known, shape, solver, bounds, margin, delta, precision, deployed, measured.shares, objective)
    net.must_agree(points[points.flatten(1).isfinite().all(1)][:3])
    budget = _budget(memory, where)
    task = Task(
        search=Search(
            net, shape, margins_of(bounds, margin, budget), solver, float(delta), smallest=objective == "smallest",
            prior=None if prior is None else mean_shape(prior, net, shape, measured.shares).to(where),
            scale=None if not measured.shares or measured.scale is None else measured.scale.to(where),
        ),
        told_labels=labels is not None, told_spec=spec is not None, deployed=deployed, dtype=PRECISIONS[precision],
        hints=Hints.of(bounds, margin) if isinstance(bounds, str) else Hints(), free=objective == "free",
        reach=reach, effort=effort_for(effort, bounds, margin, budget), proof_bytes=check_proof_bytes(proof_bytes),
    )  # fmt: skip
    most = measured.max_eps if objective != "free" else max_eps  # what is free has all of its domain
    space = space_of(net, points, measured.domain, frozen, importance, most, **asked_of(shape, objective))
    asked = _asked(net, points, space, labels, spec, deployed)
    sizes = sizes_of(net, None if asked.spec is None else asked.spec.group)
    found = blank_rows(Certificates, sizes, asked.points.cpu(), task.parts | _imputing(net))
    size = batch or budget.batch(net, where, net.n_outputs - 1 if asked.spec is None else asked.spec.rows.shape[1])
    with watched(progress, len(points)) as meter:
        _fill(found, task, asked, size, started, meter)
    _note(found, given, asked.spec)
    _must_be_unchanged(net, known, settings["network_hash"])
    return collect(found, net, shape, asked.space if measured.domain_given else None, measured.scale, settings)


@dataclass(frozen=True, eq=False)
class _Asked:
    """The inputs, `b x *input_shape`, what the network gives there, `b x k`, the labels that must stay, `b`, or what
    must hold instead; and where regions may lie."""

    points: Tensor
    outputs: Tensor
    labels: Tensor
    spec: Specification | None
    space: Space

    def part(self, index: Tensor, net: Network) -> Inputs:
        # Specifications of labels only now: with many classes those of all inputs take more memory than the work does.
        spec = self.spec
        own = label_stays(self.labels[index], net.n_outputs, net.decision) if spec is None else spec.part(index)
        return Inputs(self.points[index], self.outputs[index], own, self.space.part(index), index - index[0])


def _asked(
    net: Network, points: Tensor, space: Space, labels: Array | None, spec: Specification | None, deployed: str | None
) -> _Asked:
    points, space = (_as_executed(points, space), space.executable()) if deployed else (points, space)
    outputs = _outputs(net.exact(points.device), points)
    return _Asked(points, outputs, *what_stays(net, outputs, labels, spec), space)


def _must_be_unchanged(net: Network, known: Network, stated: str) -> None:
    """`known`: a cast in float64, whose hash is stated. Casts are kept as long as they have the network's numbers,
    which is looked at whenever somebody asks for one, as every proof does; so where this is still the one, and a copy,
    nothing has changed, and another hash, which takes longer, is not needed."""
    pairs = [(a, b.op.tensors()[k]) for n, b in zip(net.nodes, known.nodes) for k, a in n.op.tensors().items()]
    copied = bool(pairs) and all(ours is not theirs for theirs, ours in pairs)
    if copied and net.exact(pairs[0][1].device) is known:
        return
    if network_hash(net) != stated:
        raise InputError("the network's parameters were changed while it was being certified; certify it again")


def _points(net: Any, x: Any, features: Any, where: torch.device) -> tuple[Network, Taken, Tensor]:
    """The network with what features are declared to be, what was given, and the inputs of it, `b x *input_shape`."""
    net = with_kinds(network_for(net, x), x, features)
    if where.type == "cpu":
        settle_threads_for(net)
    return net, *points_of(net, x, where)


def _note(found: dict[str, Any], given: Taken, spec: Specification | None) -> None:
    """Writes into the columns what was wrong with inputs, or filled in, and what was to hold."""
    for row, why in given.faults.items():
        found["status"][row], found["message"][row] = "error", why
    if given.imputed is not None:
        found["imputed"] = torch.from_numpy(given.imputed).reshape(found["imputed"].shape)
    if spec is not None:
        stated = spec.cast(torch.float64, "cpu")
        found.update(spec_rows=stated.rows, spec_offset=stated.offset, spec_group=stated.group)


def what_stays(
    net: Network, outputs: Tensor, labels: Array | None, spec: Specification | None
) -> tuple[Tensor, Specification | None]:
    """The labels that must stay, `b`, -1 where a specification says what must; and that, in float64."""
    where = outputs.device
    if spec is None:
        chosen = net.decide(outputs) if labels is None else labels_of(net, labels, len(outputs)).to(where)
        check_labels(chosen, net.n_outputs)
        warn_near_chance(net, outputs, None if labels is None else chosen)
        return chosen, None
    if labels is not None:
        raise InputError("give labels or spec, not both")
    spec.check_fits(len(outputs), net)
    return torch.full((len(outputs),), -1, device=where), spec.cast(torch.float64, where)


def _fill(found: dict[str, Any], task: Task, asked: _Asked, size: int, started: float, meter: Meter) -> None:
    """Writes what the task finds into the columns, `size` inputs at a time, fewer where memory is not enough.

    `started`: when the work began.
    """
    where, count, first = asked.points.device, len(asked.points), 0
    while first < count:
        index = torch.arange(first, min(first + size, count), device=where)
        part = _run(task, asked, index)
        if part is None:
            size = _smaller(len(index), where)
            continue
        started = _stamp(part, started)
        write_rows(found, part, first)
        first += len(index)
        meter.advance(first)


def _budget(memory: int | str | None, where: torch.device) -> Budget:
    budget = Budget.of(memory, where)
    settle(budget.total)
    return budget


def _run(task: Task, asked: _Asked, index: Tensor) -> dict[str, Any] | None:
    """What the task finds for some inputs; None where memory ran out. (The error holds all that was being computed, so
    it has to be gone before less is tried.)"""
    try:
        return task.run(asked.part(index, task.search.net), asked.labels[index])
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return None


@in_own_modes
def uncertified(
    net: Network, x: Tensor, labels: Tensor | None = None, group: Tensor | None = None, message: str = "", **told: Any
) -> Certificates:
    """Certificates of inputs for which nothing is searched: their status is "error", and `message` says why.
    All else is as in `certify` with the same arguments, and what it refuses is refused here.

    `x`: `b x *input_shape`, float64. `labels`: `b`. `group`: `t`, that of the inputs' own specifications, where these
    are not about labels. `told`: the arguments of `certify` that are the same for all inputs, every one of them.
    """
    shape = ("region", "solver", "delta", "precision", "batch", "reach", "objective")
    region, solver = chosen_ways(*(told[name] for name in shape))
    x = batched(net, x, "x")
    refuse_uncovered(net, told["deployed"])
    measure_told = (told[name] for name in ("domain", "max_eps", "room_scale"))
    measured = measure(net, x, region, net.about.table is not None, *measure_told)
    settings = settings_of(
        net, region, solver, told["bounds"], told["margin"], told["delta"], told["precision"], told["deployed"],
        measured.shares, told["objective"],
    )  # fmt: skip
    budget = Budget.of(told["memory"], usable_device(told["device"]))
    margins_of(told["bounds"], told["margin"], budget)
    spent = effort_for(told["effort"], told["bounds"], told["margin"], budget)
    limits = {name: told[name] for name in ("domain", "frozen", "importance", "max_eps")}
    space = space_of(net, x, **limits, **asked_of(region, told["objective"]))
    check_proof_bytes(told["proof_bytes"])
    has = parts_of(net, region, told["reach"], spent is not None, told["objective"] == "free") | _imputing(net)
    has |= {"specification"} if group is not None else set()
    found = blank_rows(Certificates, sizes_of(net, group), x, has)
    found["message"] = [message] * len(x)
    if labels is not None:
        found["labels"] = labels
    if group is not None:
        found["spec_group"] = group
    return collect(found, net, region, space if measured.domain_given else None, measured.scale, settings)


def fills_in(net: Network) -> bool:
    """Whether the network's table knows what stands for missing values, so that certificates must say where."""
    columns = () if net.about.table is None else net.about.table.columns
    return any(column.fills for column in columns)


def _imputing(net: Network) -> set[str]:
    return {"imputed"} if fills_in(net) else set()


def _as_executed(points: Tensor, space: Space) -> Tensor:
    """Inputs as a network executed in float32 sees them: the nearest float32 numbers, in the domain where they were.

    Otherwise a region might hold no float32 input at all: a frozen feature at 1/255, say.
    """
    lowest, highest = space.lowest.reshape(points.shape), space.highest.reshape(points.shape)
    near = points.float()
    near = torch.where((near.double() > highest) & (points <= highest), torch.nextafter(near, near - torch.inf), near)
    near = torch.where((near.double() < lowest) & (points >= lowest), torch.nextafter(near, near + torch.inf), near)
    return near.double()


def _smaller(size: int, device: torch.device) -> int:
    if size == 1:
        raise NotEnoughMemoryError(
            f"the memory of {device} is not enough for one input of this network; try a smaller memory=..., "
            'or bounds="fast"'
        )
    gc.collect()  # errors may hold one another
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return size // 2


def _device_of(x: Array) -> torch.device:
    return x.device if isinstance(x, Tensor) else torch.device("cpu")


def _outputs(net: Network, points: Tensor, size: int = 1024) -> Tensor:
    return torch.cat([net.values(points[i : i + size])[-1] for i in range(0, len(points), size)])


def _stamp(part: dict[str, Any], started: float) -> float:
    now = time.perf_counter()
    count = len(part["status"])
    part["seconds"] = torch.full((count,), (now - started) / count, dtype=torch.float64)
    return now


def collect(
    rows: dict[str, Any], net: Network, region: Region, space: Space | None, scale: Tensor | None,
    settings: dict[str, Any],
) -> Certificates:  # fmt: skip
    """Certificates from their columns per input; `space`: where a domain was given; `scale`: `n`."""
    once: dict[str, Any] = {} if scale is None else {"scale": scale.reshape(net.input_shape)}
    if region.basis is not None:
        once["basis"] = region.basis.double().cpu()
    if space is not None:
        ends = {"lowest": space.lowest, "highest": space.highest}
        if all(bool((end == end[:1]).all()) for end in ends.values()):  # one stands for all inputs
            ends = {name: end[:1].clone() for name, end in ends.items()}
        once.update({name: end.reshape(-1, *net.input_shape).cpu() for name, end in ends.items()})
    columns: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in rows.items()}
    return Certificates(**columns, **once, settings=settings, network=net)


__all__ = ["PRECISIONS", "certify", "collect", "fills_in", "uncertified", "what_stays"]
