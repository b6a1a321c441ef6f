"""`Certificates`: what was found and proved for a batch of inputs, and its files."""
# ruff: noqa: RUF009 (`column` makes a field; it is no default)

from __future__ import annotations

import math
import os
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from elbowroom.certificates.objects import Views
from elbowroom.certificates.schema import (
    FINITE,
    NOT_NEGATIVE,
    NUMBERS,
    Ragged,
    Sizes,
    column,
    must_fit,
    sliced,
)
from elbowroom.claim.categories import Categories
from elbowroom.claim.directions import is_straight
from elbowroom.errors import InputError
from elbowroom.network.graph import Network

FIXED, NEEDED, UNDECIDED = 0, 1, 2  # why a feature stays at the input: see `Certificates.kept`
STATUSES = ("certified", "misclassified", "not_certified", "nonfinite", "error")
_NORMS = {"inf": math.inf, 1: 1.0, 2: 2.0}  # as settings name them; any other is a number between 1 and infinity
_SHAPES = {"inf": "Box", 2: "Ellipsoid", 1: "L1"}  # by norm; the others are balls
_TIED = ("", "(uniform)", "(asymmetric)")  # how a search may tie extents to one another, or a side to the other
MOST_WORDS = 1 << 17  # 8 bytes each, of one input's trees


def sizes_of(net: Network, group: Tensor | None) -> Sizes:
    """What the axes of the columns measure. `group`: that of a specification, `t`; None where labels stay."""
    categories = Categories.of(net.about.table)
    levels = 0 if categories is None else categories.count
    if group is None:
        return Sizes(net.input_shape, net.n_outputs, 0, net.n_outputs - 1, levels)
    return Sizes(net.input_shape, net.n_outputs, group.numel(), len(group.unique()), levels)


def norm_of(stated: Any) -> float:
    """The norm p of regions, from what settings name it by: one name each, so neither 1.0 nor true stands for 1."""
    for name, p in _NORMS.items():
        if type(stated) is type(name) and stated == name:
            return p
    if type(stated) is not float or not 1 < stated < math.inf or stated == 2:
        raise InputError(f"settings: p cannot be {stated!r:.80}")
    return stated


def name_of_norm(p: float) -> Any:
    """How settings name a norm: "inf", 1, 2, or a number such as 1.5."""
    return next((name for name, known in _NORMS.items() if known == p), float(p))


def shape_name(p: Any, rotated: bool, tied: str = "") -> str:
    """What regions are: "Box", "Ellipsoid", "L1" or "Ball(1.5)", by their norm as settings name it; "Oblique(Box)" and
    so on in a basis. `tied`: what a search adds to that, as in "Box(asymmetric)"."""
    name = _SHAPES.get(p, f"Ball({p!r})".replace(".0)", ")")) + tied
    return f"Oblique({name})" if rotated else name


@dataclass(frozen=True, eq=False, repr=False)
class Certificates(Views):
    """One certificate per input. `b` inputs of shape `*s`; sizes count the free features only.

    An input without a certificate has a region of no size: eps 0, corners at x, geomean 0. Those read from a file are
    what the file states; `elbowroom.check` says which of it is true.

    Attributes:
        index: The inputs' numbers in the data set they come from, `b`.
        status: "certified", "misclassified", "not_certified", "nonfinite" or "error", `b` texts.
        message: Why there is no certificate, in words, `b` texts; empty where there is one.
        ended: How the search of the region ended, `b` texts.
        labels: The decisions, `b`; -1 where the specification is not about a label.
        x: The inputs, `b x *s`.
        eps: Half-widths (boxes), semi-axes (the other shapes), `b x *s`.
        center: The region's centre, `b x *s`: x, except for boxes with unequal sides.
        lower: The certified lower corner, for boxes along the axes, `b x *s`.
        upper: The upper one.
        allowed: Of boxes over a table with categories: the levels that each category may take, `b x c`, those of all
            categories side by side, in the table's order, each followed by "none of the levels" where the model has a
            code for that. At their entries the corners are the hull of the codes of these, of which the region has
            nothing but the codes themselves; extents are zero there.
        maximal: Whether the proof was tried, and failed, for every further level by itself, `b`.
        basis: The directions of a rotated shape, `n x n`.
        lowest: The domain's lower end, `b x *s` or `1 x *s`. Inputs lie in the domain, and boxes; other shapes are not
            cut to it.
        highest: The domain's upper end.
        spec_rows: The specification, where it is not "the label stays", `b x t x k` or `1 x t x k`; see
            `Specification`.
        spec_offset: `b x t` or `1 x t`.
        spec_group: `t`.
        reach: Where counterexamples were looked for: by how much the region must at most be scaled about its input
            until it holds one (a box stays in its domain), `b`; infinity where none was found.
        seen: That counterexample, `b x *s`; x where there is none. Whole numbers of a table may be any numbers in it.
        seen_lower: Of boxes: the value of each feature nearest below its range at which a counterexample was found
            while all others stay in theirs, `b x *s`; minus infinity where none was found, or not looked for.
        seen_upper: The nearest above, or infinity.
        kept: Of `objective="free"`, why a feature stays at the input, `b x *s`: 1 where it is needed (a counterexample
            was found and proved with it and the free features anywhere in their domain), 2 where that is not decided; 0
            for features that are free, which the corners say, and for frozen ones.
        margins: The margins that `certify` proved, `b x g`.
        trees: How regions are cut into parts that are proved one by one, packed by `elbowroom.claim.tree_bytes` into
            whole words, `b` tensors; empty where a region is proved whole.
        capped: Features whose extent is at its cap, `b x *s`.
        stuck: Of boxes, features whose values count (whole numbers, or numbers of so many decimals) that may move, but
            have no further value that is proved beside the ranges of the others, `b x *s`; None where the network has
            none. That says nothing of what the network decides there.
        imputed: Features whose value was missing in the data, and is what the model takes for it, `b x *s`; None where
            the model fills in nothing.
        scale: What the room of a feature is a share of, `*s`: the width of its domain, of a table else that of the
            range in which the data lie; 0 where it is not known.
        uniform: The uniform radius under the same bounds, without splits, `b`; with `settings["shares"]` as a share of
            `scale`, the same in all features.
        geomean: The paper's measure, (prod eps)^(1/n), `b`. Of a feature whose values count, k of them count as k
            steps, half of which is eps and half a step; so they do in `log_volume` and in `ratio`.
        ratio: To the uniform region, per feature: exp((log_volume - uniform's) / n), `b`.
        log_volume: Log of the region's volume, `b`.
        seconds: Time spent, shared evenly by the inputs of a batch, `b`.
        evaluations: Evaluations of the bounds, `b`.
        gradients: Those with gradient, `b`.
        gradient_rows: Margins differentiated, in all, `b`.
        settings: How they were found; `network_hash`: of which network.
        network: The network they are about.
        missing: How many inputs of the run they were read from are still to be certified.
    """

    # How a field is declared: see `elbowroom.certificates.schema`.
    index: Tensor | None = column("int64", "b", role="identity", when="index")
    status: tuple[str, ...] = column("text", "b", role="claim", blank="error")
    message: tuple[str, ...] = column("text", "b", role="report", blank="")
    ended: tuple[str, ...] = column("text", "b", role="report", blank="")
    labels: Tensor = column("int64", "b", role="claim", blank=-1)
    x: Tensor = column("float64", "b s", role="claim", blank="x")
    eps: Tensor = column("float64", "b s", role="claim")
    center: Tensor = column("float64", "b s", role="claim", blank="x")
    lower: Tensor | None = column("float64", "b s", role="claim", blank="x", when="boxes")
    upper: Tensor | None = column("float64", "b s", role="claim", blank="x", when="boxes")
    allowed: Tensor | None = column("bool", "b c", role="claim", blank=False, when="categories")
    maximal: Tensor | None = column("bool", "b", role="report", blank=False, when="categories")
    basis: Tensor | None = column("float64", "n n", role="claim", when="basis")
    lowest: Tensor | None = column("float64", "1|b s", role="claim", blank=-math.inf, when="domain", span=NUMBERS)
    highest: Tensor | None = column("float64", "1|b s", role="claim", blank=math.inf, when="domain", span=NUMBERS)
    spec_rows: Tensor | None = column("float64", "1|b t k", role="claim", when="specification")
    spec_offset: Tensor | None = column("float64", "1|b t", role="claim", when="specification")
    spec_group: Tensor | None = column("int64", "t", role="claim", when="specification")
    reach: Tensor | None = column(
        "float64", "b", role="claim", blank=math.inf, when="reach", show=".4g", span=(0.0, math.inf)
    )
    seen: Tensor | None = column("float64", "b s", role="claim", blank="x", when="reach")
    seen_lower: Tensor | None = column("float64", "b s", role="report", blank=-math.inf, when="faces", span=NUMBERS)
    seen_upper: Tensor | None = column("float64", "b s", role="report", blank=math.inf, when="faces", span=NUMBERS)
    kept: Tensor | None = column("int64", "b s", role="report", when="explained", span=(FIXED, UNDECIDED))
    margins: Tensor = column("float64", "b g", role="report", span=FINITE)
    trees: Ragged | None = column("int64", f"b ..{MOST_WORDS}", role="hint", when="splits")
    capped: Tensor = column("bool", "b s", role="report", blank=False)
    stuck: Tensor | None = column("bool", "b s", role="report", blank=False, when="values")
    imputed: Tensor | None = column("bool", "b s", role="report", blank=False, when="imputed")
    scale: Tensor | None = column("float64", "s", role="report", when="scale", span=NOT_NEGATIVE)
    uniform: Tensor = column("float64", "b", role="report", show=".4g", span=NOT_NEGATIVE)
    geomean: Tensor = column("float64", "b", role="claim", show=".4g", span=NOT_NEGATIVE)
    ratio: Tensor = column("float64", "b", role="report", show=".3f", span=NOT_NEGATIVE)
    log_volume: Tensor = column("float64", "b", role="claim", blank=-math.inf, span=(-math.inf, sys.float_info.max))
    seconds: Tensor = column("float64", "b", role="report", show=".3g", span=NOT_NEGATIVE)
    evaluations: Tensor = column("int64", "b", role="report")
    gradients: Tensor = column("int64", "b", role="report")
    gradient_rows: Tensor = column("int64", "b", role="report")

    settings: dict[str, Any] = field(default_factory=dict)
    network: Network | None = field(default=None, repr=False)
    missing: int = 0

    @property
    def certified(self) -> Tensor:
        """Which inputs have a certificate, `b` booleans."""
        return torch.tensor([s == "certified" for s in self.status], dtype=torch.bool)

    @property
    def shape(self) -> str:
        """What the regions are, by the fields that a proof uses; see `shape_name`."""
        return shape_name(self.settings["p"], self.basis is not None)

    @property
    def room(self) -> Tensor | None:
        """The share of `scale` that a region covers in each feature, `b x *s`; NaN where the scale is not known. Of
        other shapes than boxes, what it covers while all others stay where they are. None without a scale."""
        if self.scale is None:
            return None
        width = 2 * self.eps if self.lower is None or self.upper is None else self.upper - self.lower
        known = self.scale > 0
        share = torch.where(known, width / torch.where(known, self.scale, 1.0), math.nan)
        return torch.where(known & (self.eps == 0), 0.0, share)  # also where an input holds NaN

    @property
    def orthogonal(self) -> bool:
        """Whether directions are those of an orthogonal basis, each feature in a unit of its own whose product over all
        features is 1, so that extents along them mean something, and their product a volume."""
        if self.basis is None:
            return True
        return is_straight(self.basis)

    def number(self, row: int) -> int:
        """The number by which people know the input of a row: its number in the data set, if it came from one.

        Args:
            row: The row, counted from 0.

        Returns:
            That number.
        """
        return row if self.index is None else int(self.index[row])

    def rows(self, first: int, last: int) -> Certificates:
        """The certificates of some inputs, in their order.

        Args:
            first: The first row.
            last: The row after the last one.

        Returns:
            The certificates of the rows `first` to `last - 1`.
        """
        return replace(sliced(self, first, last), missing=0)

    def to_arrow(self, alone: Any = None) -> Any:
        """The certificates as a tidy table of Arrow, see `to_frame`.

        Args:
            alone: What `er.alone` found for the same inputs.

        Returns:
            A `pyarrow.Table`; where the network takes categories, all values are texts.

        Raises:
            InputError: The regions are along other directions than features, or `alone` is about others.
        """
        from elbowroom.certificates.frame import arrow_of  # which stands above, as in `save`

        return arrow_of(self, alone)

    def to_frame(self, alone: Any = None) -> Any:
        """The certificates as a tidy table of pandas: a row per input and feature (column of a table).

        Columns: `input` (its number), `label` (the name of the class that stays, or its number), `status`, `feature`,
        `value` (of a category, its level), `levels` (of a category, those that the region has, apart by " | "), `low`
        and `high` (the certified range; of a frozen feature its value),
        `room` (the share of `scale` that it covers), `alone_low` and `alone_high` (the range in which it may move
        while all others stay where they are; needs `alone`), `seen_low` and `seen_high` (the nearest values beyond at
        which a counterexample was found: with `alone`, all others as they are, else within their ranges), `unit`, and
        `note` (what holds the feature: "frozen", "at its cap", of a whole number "no further value proved", of a
        category "as it is"; "imputed"; or why there is no certificate).
        An input without a certificate has rows with NaN in place of what was not certified.

        Args:
            alone: What `er.alone` found for the same inputs: `lower`, `upper`, `seen_lower`, `seen_upper`, `b x n`.

        Returns:
            A `pandas.DataFrame`.

        Raises:
            InputError: pandas is not installed, the regions are along other directions than features, or `alone` is
                about others.
        """
        from elbowroom.certificates.frame import frame_of  # which stands above, as in `save`

        return frame_of(self, alone)

    def save(self, directory: str | os.PathLike[str]) -> Path:
        """Writes a run: the network, the certificates and what they claim, in place of the run that was there.

        Args:
            directory: The folder, made if it is not there.

        Returns:
            The folder.

        Raises:
            InputError: The certificates do not know their network or do not fit it, or the folder cannot be written.
        """
        # The store stands above: it reads and writes what is declared here. This is only the short way to it.
        from elbowroom.certificates.store import save_run

        return save_run(self, directory)

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> Self:
        """Reads what `save` or a run over a data set wrote; of a run that is not complete, what is there (`missing`).

        Never runs code from the files.

        Args:
            directory: The run's folder.

        Returns:
            The certificates, as the files state them.

        Raises:
            InputError: There is no run, or something in its files is damaged, was changed or is unknown; the message
                names it.
        """
        from elbowroom.certificates.store import load_run  # which stands above, as in `save`

        return load_run(directory, cls)

    def must_fit(self, net: Network) -> None:
        """Refuses certificates whose fields do not fit a network or each other.

        Args:
            net: The network.

        Raises:
            InputError: Names the field whose type or shape is not what `net` and the others ask for.
        """
        sizes = sizes_of(net, self.spec_group)
        must_fit(self, sizes)
        for k, status in enumerate(self.status):
            if status not in STATUSES:
                raise InputError(f"status: that of input {self.number(k)}, {status!r:.80}, is unknown")
        if self.spec_group is not None:  # one group at least: of none, everything would be proved
            numbers = self.spec_group.unique().tolist()
            if not numbers or numbers != list(range(sizes.groups)):
                raise InputError(f"spec_group must number the groups 0, 1, 2, ..., got {numbers}")
        if self.basis is not None and self.lower is not None:
            raise InputError("a region is stated either by its corners or in a basis, not by both")
        if self.basis is not None and self.scale is not None:
            raise InputError("scale is about features, and the regions lie along other directions")
        if self.seen_lower is not None and self.lower is None:
            raise InputError("seen_lower and seen_upper are about the faces of boxes, and the regions are none")
        if self.lowest is not None and self.highest is not None and not bool((self.lowest <= self.highest).all()):
            raise InputError("lowest and highest: the domain's lowest value is above its highest")
        self._settings_must_fit(net)

    def _settings_must_fit(self, net: Network) -> None:
        settings = self.settings
        norm_of(settings.get("p", "missing"))
        allowed: dict[str, tuple[Any, ...]] = {"decision": (net.decision,), "deployed": (None, "float32")}
        for name, values in allowed.items():
            stated = settings.get(name, "missing")
            if not any(type(stated) is type(value) and stated == value for value in values):
                raise InputError(f"settings: {name} cannot be {settings.get(name, 'missing')!r}")
        for name, kind in {"bounds": str, "margin": str, "network_hash": str, "delta": float}.items():
            if not isinstance(settings.get(name), kind):
                raise InputError(f"settings: {name} cannot be {settings.get(name, 'missing')!r}")
        if not isinstance(settings.get("shares", False), bool):
            raise InputError(f"settings: shares cannot be {settings['shares']!r:.80}")
        if self.lower is not None and settings["p"] != "inf":
            raise InputError(f"settings: p is {settings['p']!r}, but the regions are boxes")
        # What the search called them is a report, but one that must not be of another shape.
        if settings.get("region") not in [shape_name(settings["p"], self.basis is not None, tied) for tied in _TIED]:
            called = str(settings.get("region", "missing"))[:80]
            raise InputError(f"settings: region cannot be {called!r}: by its other fields, it is {self.shape}")
