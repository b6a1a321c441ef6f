"""What is known of a network beside its function: names, origin, and the model it was read from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from elbowroom.network.table import Table


@dataclass(frozen=True)
class Origin:
    """Which model a network was read from, so that an auditor can read it again and compare.

    `model`: the file's name, or the class of an object. `sha256`: of the file's bytes; None for an object.
    `options`: what `load` was told, by name, as JSON holds it. `compared`: with what the network was compared when it
    was read, and what could not be compared, in sentences.
    """

    model: str
    sha256: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    compared: tuple[str, ...] = ()


@dataclass(frozen=True)
class About:
    """What people call things, and what they should know; no part of the function, nor of its hash.

    `features`: names of the inputs, flat; `classes`: names of the classes; `notes`: what was done to read the model
    that its user should know, in sentences; `origin`: what it was read from, None where it was built by hand; `cut`:
    what stood behind the outputs in the model and was left off, since it does not change which of them is the largest.
    Of such outputs nothing but their order means anything of the model. `table`: how rows of a table become inputs,
    with the columns' names, categories and units; `features` are then the names of its entries.
    """

    features: tuple[str, ...] | None = None
    classes: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()
    origin: Origin | None = None
    cut: str | None = None
    table: Table | None = None


@dataclass(frozen=True, eq=False)
class Source:
    """The model itself, kept in memory beside the network that was read from it; never saved.

    `differs`: compares both at inputs `b x *input_shape` of the network (float64), at batch sizes of at most b, and
    says in words where and by how much they differ beyond rounding; None where they agree.
    """

    differs: Callable[[Tensor], str | None]


__all__ = ["About", "Origin", "Source"]
