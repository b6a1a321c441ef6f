"""What must stay true of the outputs: a conjunction of `max_t (c_t . z + d_t) > 0`.

Each conjunct ("group") holds where at least one of its rows is proved positive. "The label stays" has one group of
one row per other class; "the label stays in the set T" has, per class outside T, a row per member of T.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elbowroom.arguments.tensors import tensor_of
from elbowroom.errors import InputError
from elbowroom.machine.torch_modes import in_own_modes, recordable
from elbowroom.network.graph import DECISIONS, Network


@dataclass(frozen=True, eq=False)
class Specification:
    """What must hold of the outputs z: in every group, some row has `rows . z + offset > 0`.

    Attributes:
        rows: `b x t x k` (or `1 x t x k`, for all inputs alike).
        offset: `b x t` (or `1 x t`).
        group: The group of each row, `t`; groups are numbered 0 to g-1, each with at least one row.
        decision: Which output decides, "max" or "min", where the rows are about decisions: such a specification is for
            networks that decide so.
    """

    rows: Tensor
    offset: Tensor
    group: Tensor
    decision: str | None = None

    def __post_init__(self) -> None:
        if self.rows.dim() != 3 or self.offset.shape != self.rows.shape[:2]:
            raise InputError(
                f"a specification needs rows of shape (b, t, k) and offsets (b, t), got "
                f"{tuple(self.rows.shape)} and {tuple(self.offset.shape)}"
            )
        if self.group.shape != self.rows.shape[1:2]:
            raise InputError(
                f"group needs one number per row, got {tuple(self.group.shape)} for {self.rows.shape[1]} rows"
            )
        used = set(self._listed)
        if used != set(range(len(used))):
            raise InputError(f"groups must be numbered 0, 1, 2, ... without gaps, got {sorted(used)}")

    @cached_property
    def _listed(self) -> tuple[int, ...]:
        """The group of each row. (Asked for in every evaluation, and a device would have to be waited for.)"""
        return tuple(self.group.tolist())

    @property
    def n_groups(self) -> int:
        return max(self._listed) + 1 if self._listed else 0

    def reduce(self, values: Tensor) -> Tensor:
        """From a bound per row to one per group: the best of its rows.

        Args:
            values: `b x t`.

        Returns:
            `b x g`.
        """
        if self.n_groups == len(self.group):  # one row each: only the order may differ
            return values[:, torch.argsort(self.group)] if not self._in_order else values
        groups = self.group.expand_as(values)
        out = values.new_full((values.shape[0], self.n_groups), -torch.inf)
        return out.scatter_reduce(1, groups, values, "amax")

    @property
    def _in_order(self) -> bool:
        return self._listed == tuple(range(len(self._listed)))

    def margins(self, outputs: Tensor) -> Tensor:
        """The groups' values at given outputs: the specification holds where all are positive.

        Args:
            outputs: `b x k`.

        Returns:
            `b x g`.
        """
        return self.reduce((self.rows @ outputs[..., None]).squeeze(-1) + self.offset)

    def cast(self, dtype: torch.dtype, device: torch.device | str) -> Specification:
        """The specification in another type or place; constants to autograd.

        Args:
            dtype: The type of rows and offsets.
            device: Where they are.

        Returns:
            The cast.
        """
        rows, offset = (recordable(t.detach().to(device=device, dtype=dtype)) for t in (self.rows, self.offset))
        return Specification(rows, offset, self.group.to(device=device), self.decision)

    def check_fits(self, batch: int, net: Network) -> None:
        """Refuses a network that the specification is not for.

        Args:
            batch: How many inputs there are; rows are for each of them, or shared by all.
            net: The network.

        Raises:
            InputError: The rows are not over its outputs, or not about its way to decide.
        """
        if self.rows.shape[0] not in (1, batch) or self.rows.shape[2] != net.n_outputs:
            raise InputError(
                f"the specification has rows of shape {tuple(self.rows.shape)}; it must be for {batch} inputs "
                f"(or 1) and {net.n_outputs} outputs"
            )
        if self.decision not in (None, net.decision):
            raise InputError(
                f"the specification is about the {_EXTREMES[self.decision]} output, but the {_EXTREMES[net.decision]} "
                f'one decides in this network: make it with decision="{net.decision}"'
            )
        if net.about.cut is not None and not self.only_compares:
            raise InputError(
                f"{net.about.cut} at the end of the model was left off when it was read as a classifier, so that its "
                "outputs are other numbers than the model's: only which of them is larger can be specified "
                "(label_in, or rows such as z_0 - z_1 > 0)"
            )

    @property
    def only_compares(self) -> bool:
        """Whether every row says of two outputs which is larger, and nothing else."""
        two = ((self.rows != 0).sum(-1) == 2) & (self.rows.sum(-1) == 0)
        return bool(two.all()) and bool((self.offset == 0).all())

    def part(self, index: Tensor) -> Specification:
        """The specification of some inputs of the batch.

        Args:
            index: Their positions, `m`.

        Returns:
            Their specification; a shared one is the same.
        """
        if self.rows.shape[0] == 1:
            return self
        found = copy(self)  # what was checked stays so
        object.__setattr__(found, "rows", self.rows[index])
        object.__setattr__(found, "offset", self.offset[index])
        return found


@in_own_modes
def label_stays(labels: Tensor, n_classes: int, decision: str = "max") -> Specification:
    """`z_label - z_j > 0` for every other class j (`z_j - z_label` where the smallest output decides).

    Args:
        labels: The decisions, `b`, whole numbers.
        n_classes: How many outputs the network has.
        decision: "max" or "min", as the network decides.

    Returns:
        The specification, with a group for each other class.

    Raises:
        InputError: These are not labels of so many classes.
    """
    check_labels(labels, n_classes)
    _check_decision(decision)
    classes = torch.arange(n_classes, device=labels.device)
    others = classes.expand(len(labels), -1)[classes[None] != labels[:, None]].reshape(len(labels), -1)
    eye = torch.eye(n_classes, dtype=torch.float64, device=labels.device)
    rows = eye[labels][:, None] - eye[others]
    return _ungrouped(rows if decision == "max" else -rows, decision=decision)


@in_own_modes
def label_in(allowed: Iterable[int], n_classes: int, decision: str = "max") -> Specification:
    """The decision stays within a set: every class outside loses against one of its members.

    Args:
        allowed: The set, as numbers of classes.
        n_classes: How many outputs the network has.
        decision: "max" or "min", as the network decides; refused for a network that decides otherwise.

    Returns:
        The specification, one for all inputs.

    Raises:
        InputError: The set is empty, holds every class, or something that is not a class.
    """
    members = _class_numbers(allowed)
    _check_decision(decision)
    if not members or not 0 <= members[0] <= members[-1] < n_classes:
        raise InputError(f"allowed classes must lie in 0..{n_classes - 1} and not be empty, got {members}")
    outside = [j for j in range(n_classes) if j not in members]
    if not outside:
        raise InputError("every class is allowed: there is nothing to prove")
    eye = torch.eye(n_classes, dtype=torch.float64)
    rows = torch.stack([eye[t] - eye[j] for j in outside for t in members])
    group = torch.arange(len(outside)).repeat_interleave(len(members))
    rows = rows if decision == "max" else -rows
    return Specification(rows[None], rows.new_zeros(1, len(rows)), group, decision)


@in_own_modes
def linear_specification(rows: Any, offset: Any = None) -> Specification:
    """`rows @ z + offset > 0`, every row of it.

    Args:
        rows: `t x k` for all inputs alike, or `b x t x k`.
        offset: `t` or `b x t`; zero by default.

    Returns:
        The specification.

    Raises:
        InputError: These are not finite numbers, or do not fit together.
    """
    rows = _numbers(rows, "rows")
    rows = rows[None] if rows.dim() == 2 else rows
    if rows.dim() != 3:
        raise InputError(f"rows must have the shape (t, k) or (b, t, k), got {tuple(rows.shape)}")
    if not rows.shape[1]:
        raise InputError("there are no rows, so there is nothing to prove")
    offset = rows.new_zeros(rows.shape[:2]) if offset is None else _numbers(offset, "offset").to(rows.device)
    offset = offset[None] if offset.dim() == 1 else offset
    inputs = {len(rows), *offset.shape[:1]} - {1}
    if offset.dim() != 2 or offset.shape[1] != rows.shape[1] or len(inputs) > 1:
        raise InputError(f"rows of shape {tuple(rows.shape)} and offset {tuple(offset.shape)} do not fit together")
    if not bool(rows.isfinite().all()) or not bool(offset.isfinite().all()):
        raise InputError("rows and offset must be finite numbers")
    count = max(len(rows), len(offset))
    return _ungrouped(rows.expand(count, -1, -1), offset.expand(count, -1))


@in_own_modes
def outputs_within(outputs: Tensor, tol: Any) -> Specification:
    """Every output stays within a tolerance of its value (regression): two rows per output.

    Args:
        outputs: The values, `b x k`.
        tol: A number, or one per output (`k`), or one per input and output (`b x k`).

    Returns:
        The specification.

    Raises:
        InputError: A tolerance is not positive and finite, or there is not one for each output.
    """
    if not isinstance(outputs, Tensor) or outputs.dim() != 2:
        raise InputError(f"outputs must be a tensor of shape (b, k), got {getattr(outputs, 'shape', outputs)!r}")
    outputs = outputs.to(torch.float64)
    tol = _numbers(tol, "tolerances").to(outputs.device)
    k = outputs.shape[1]
    if tol.shape not in ((), (1,), (k,), (1, k), tuple(outputs.shape)):
        got = f"{len(tol)}" if tol.dim() == 1 else f"shape {tuple(tol.shape)}"
        raise InputError(f"a tolerance must be one number, or one for each of the {k} outputs; got {got}")
    if not bool((tol > 0).all()) or not bool(tol.isfinite().all()):
        raise InputError("a tolerance must be positive and finite for every output")
    tol = tol.expand_as(outputs)
    eye = torch.eye(k, dtype=torch.float64, device=outputs.device)
    rows = torch.cat([eye, -eye])[None].expand(len(outputs), -1, -1)
    return _ungrouped(rows, torch.cat([tol - outputs, tol + outputs], 1))


def _ungrouped(rows: Tensor, offset: Tensor | None = None, decision: str | None = None) -> Specification:
    offset = rows.new_zeros(rows.shape[:2]) if offset is None else offset
    return Specification(rows, offset, torch.arange(rows.shape[1], device=rows.device), decision)


_EXTREMES = {"max": "largest", "min": "smallest"}


def _numbers(given: Any, name: str) -> Tensor:
    try:
        return tensor_of(given).detach().to(torch.float64)
    except InputError:
        raise InputError(f"{name} must be numbers, got {str(given)[:80]}") from None


def _class_numbers(allowed: Any) -> list[int]:
    """A set of classes as whole numbers, sorted. A mask of booleans is refused: as numbers it would mean others."""
    listed = isinstance(allowed, Iterable) and not isinstance(allowed, str | Tensor)
    try:
        found = np.asarray(list(allowed) if listed else allowed.cpu() if isinstance(allowed, Tensor) else allowed)
    except ValueError:  # lists of different lengths
        found = np.asarray(None)
    if found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
        raise InputError(f"allowed classes must be whole numbers such as [0, 2], got {str(allowed)[:80]}")
    return sorted({int(t) for t in found})


def _check_decision(decision: str) -> None:
    if decision not in DECISIONS:
        raise InputError(f'decision must be "max" or "min", got {decision!r}')


def check_labels(labels: Tensor, n_classes: int) -> None:
    """Raises an `InputError` unless these are labels of some of several classes, one per input."""
    if n_classes < 2:
        raise InputError(
            f"the network has {n_classes} output, so no other class could win; state what must hold of the "
            "output with spec="
        )
    whole = isinstance(labels, Tensor) and not labels.is_floating_point() and labels.dtype != torch.bool
    if not whole or labels.dim() != 1:
        raise InputError(f"labels must be a tensor of whole numbers, one per input, got {str(labels)[:80]}")
    if labels.numel() and not 0 <= int(labels.min()) <= int(labels.max()) < n_classes:
        raise InputError(
            f"labels must lie in 0..{n_classes - 1}, got values from {int(labels.min())} to {int(labels.max())}"
        )
