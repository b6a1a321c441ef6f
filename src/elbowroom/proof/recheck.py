"""`check`: certificates proved again, by code that shares nothing with the code that found them.

What is proved of a certificate: the region is the one its numbers state (the input lies in it; centre, extents, their
geometric mean and the log-volume are what corners or radii give, and extents of boxes never more), and on all of it the
specification holds strictly, for the network with the stated hash; and of the counterexample that it may state
(`seen`), that it is one, in the region scaled by `reach`. Stored margins, uniform radius, ratio, marks of caps,
counterexamples beyond single faces and settings (delta: by how much margins were to exceed zero) are reports of the
search and are not proved; nor are the names of features and classes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from elbowroom.certificates.objects import Certificate
from elbowroom.certificates.result import Certificates
from elbowroom.claim.hints import Hints
from elbowroom.claim.stated import Stated
from elbowroom.claim.tree import Trees
from elbowroom.errors import InputError
from elbowroom.machine.allocator import settle
from elbowroom.machine.device import usable_device
from elbowroom.machine.torch_modes import in_own_modes
from elbowroom.network.file import network_hash
from elbowroom.network.graph import Network
from elbowroom.network.names import class_title
from elbowroom.network.table import Code, Column
from elbowroom.network.work import settle_threads_for
from elbowroom.proof.arb import prove_arb
from elbowroom.proof.faults import faults, region_of, trees_of
from elbowroom.proof.kernel.prove import DEPLOYED, prove
from elbowroom.proof.reach import broken_on, held_by

ARITHMETICS = ("float64", "arb")
BATCH = 64
_GPU_BATCH = 8192  # a GPU is as fast with few inputs as with many: as many as fit
_GPU_BYTES = 4 << 30
_MOST_ROWS = 1 << 25  # numbers in the rows of one batch's specification
_BYTES_PER_ENTRY, _BYTES_PER_COEFFICIENT = 256, 64
_LOOKED_AT = 1 << 18  # numbers of inputs whose faults are looked for at a time: what the cache holds


class Prover(Protocol):
    """A proof: margins of regions, `b x g`, from rows, offsets, groups, hints and trees of splits."""

    def __call__(
        self, region: Stated, rows: Tensor, offset: Tensor, group: Tensor, hints: Hints, trees: Trees
    ) -> Tensor: ...


@dataclass(frozen=True, eq=False)
class CheckReport:
    """What `check` found, per input; true if there are certificates, all of them proved, and none is missing.

    Attributes:
        checked: Which inputs have a certificate, `b`.
        passed: Which certificates were proved again, `b`.
        margins: The margins proved here, `b x g`; minus infinity where nothing was.
        message: Why not, in words; empty where the certificate passed.
        arithmetic: In which arithmetic it was proved.
        deployed: "float32" where the network as executed was proved as well.
        missing: How many inputs of the run they were read from are still to be certified.
        seconds: How long it took.
    """

    checked: Tensor
    passed: Tensor
    margins: Tensor
    message: tuple[str, ...]
    arithmetic: str
    deployed: str | None
    missing: int = 0
    seconds: float = field(default=0.0, repr=False)

    def __len__(self) -> int:
        return len(self.message)

    def __bool__(self) -> bool:
        return bool(self.passed.any()) and not self.failures and not self.missing

    @property
    def failures(self) -> tuple[int, ...]:
        """The inputs whose certificate was not proved."""
        return tuple((self.checked & ~self.passed).nonzero().squeeze(1).tolist())

    @property
    def counts(self) -> dict[str, int]:
        proved, failed = int(self.passed.sum()), len(self.failures)
        return {"proved": proved, "failed": failed, "no certificate": len(self) - proved - failed}

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {name}" for name, count in self.counts.items())
        how = self.arithmetic + (f", as executed in {self.deployed}" if self.deployed else "")
        text = f"CheckReport({counts}; {how}"
        if self.missing:
            text += f"; incomplete: {self.missing} more inputs are still to be certified"
        if self.failures:
            text += f"; first failure: input {self.failures[0]}, {self.message[self.failures[0]]}"
        return text + ")"


@in_own_modes
def check(
    certs: Certificates | Certificate,
    net: Network | None = None,
    arithmetic: str = "float64",
    deployed: str | None = None,
    device: str | torch.device = "cpu",
    progress: Callable[[int], None] | None = None,
) -> CheckReport:
    """Proves every certificate again, by code that shares nothing with the search.

    Args:
        certs: What to prove, all of it or the certificate of one input.
        net: The network they should be about, by default the one they carry.
        arithmetic: "float64", the strict check that counts its own rounding, or "arb", ball arithmetic by python-flint
            (slow).
        deployed: "float32" to prove also the network as executed in float32; certificates that claim this are held to
            it in any case (Arb has no part in that: this half of the claim is proved in float64).
        device: Where the float64 proof is computed.
        progress: Called with numbers of inputs as they are done.

    Returns:
        What was proved, per input. The report is true where there is at least one certificate, and all are proved.

    Raises:
        InputError: An argument cannot be used, the certificates contradict themselves, or `net` does not have the hash
            that they state.

    Example:
        >>> report = er.check(er.Certificates.load("run"))
        >>> bool(report), report.passed, report.message
    """
    certs = certs.certificates if isinstance(certs, Certificate) else certs
    started = time.perf_counter()
    if not isinstance(certs, Certificates):
        raise InputError(f"check needs Certificates (see Certificates.load), got {type(certs).__name__}")
    if arithmetic not in ARITHMETICS:
        raise InputError(f"unknown arithmetic {arithmetic!r}; choose one of {', '.join(ARITHMETICS)}")
    if deployed not in DEPLOYED:
        raise InputError(f'deployed must be None or "float32", got {deployed!r}')
    net, device = _network_of(certs, net), usable_device(device)
    if device.type == "cpu":
        settle_threads_for(net)
        settle()
    certs.must_fit(net)
    deployed = deployed or certs.settings["deployed"]
    attempts = _attempts(certs, net, arithmetic, deployed, device)
    at_points, _ = _attempts(certs, net, arithmetic, None, device)  # a counterexample is one in real arithmetic
    message = _faults(certs, net)
    margins = torch.full_like(certs.margins, -torch.inf)
    passed = torch.zeros(len(certs), dtype=torch.bool)
    pending = [k for k, fault in enumerate(message) if not fault]
    tell = progress or (lambda count: None)
    tell(len(certs) - len(pending))
    batch = _batch(certs, net, device) if arithmetic == "float64" else 1
    for start in range(0, len(pending), batch):
        index = torch.tensor(pending[start : start + batch])
        margins[index], passed[index] = _prove_again(certs, net, index, *attempts)
        for k in index[~passed[index]].tolist():
            message[k] = _why_not(certs, net, k, margins[k])
        if certs.reach is not None:
            _refuse_other_limits(certs, net, index[passed[index]], at_points, passed, message)
        tell(len(index))
    seconds = time.perf_counter() - started
    return CheckReport(certs.certified, passed, margins, tuple(message), arithmetic, deployed, certs.missing, seconds)


def _faults(certs: Certificates, net: Network) -> list[str]:
    """See `faults`; of some inputs at a time, since numbers of very many would be fetched again for every question."""
    step = max(1, _LOOKED_AT // net.n_inputs if certs.basis is None else len(certs))  # a basis is looked at once
    return [why for k in range(0, len(certs), step) for why in faults(certs.rows(k, k + step), net)]


def _batch(certs: Certificates, net: Network, device: torch.device) -> int:
    """How many certificates are proved at a time in float64: at least one."""
    rows = net.n_outputs - 1 if certs.spec_group is None else len(certs.spec_group)
    most = _MOST_ROWS // max(1, rows * net.n_outputs)
    if device.type != "cuda":
        return max(1, min(BATCH, most))
    # Of an input: bounds and lines of every node, and its rows over the widest one.
    sizes = [node.size for node in net.nodes]
    each = max(_BYTES_PER_ENTRY * sum(sizes), _BYTES_PER_COEFFICIENT * rows * max(sizes))
    return max(1, min(_GPU_BATCH, most, _GPU_BYTES // each))


def _network_of(certs: Certificates, net: Network | None) -> Network:
    net = certs.network if net is None else net
    if not isinstance(net, Network):
        raise InputError("these certificates do not carry their network; give it as net")
    stated, found = certs.settings.get("network_hash"), network_hash(net)
    if stated != found:
        raise InputError(f"the certificates are about the network with hash {stated}; this one has the hash {found}")
    if certs.network is not None and certs.network is not net:
        return _refuse_other_levels(certs.network, net, certs.allowed is not None)
    return net


def _refuse_other_levels(ours: Network, given: Network, needed: bool) -> Network:
    """The given network with the certificates' own table, by which levels are read off codes: it must be the given
    one's, but for what was declared of features that the given one takes as numbers. `needed`: whether both must have
    levels."""
    own, other = (_categories(net) for net in (ours, given))
    if not needed and (not own or not other):
        return given
    for first, column in own.items():
        entries = range(first, first + column.width)
        if first in other or not column.parts:
            continue
        if any(k in range(start, start + theirs.width) for start, theirs in other.items() for k in entries):
            raise InputError(_OTHER_LEVELS)
        named = given.about.features
        if named is not None and tuple(named[k] for k in entries) != column.parts:
            raise InputError(
                f"the certificates take {', '.join(map(repr, column.parts))} as the columns of {column.name!r}, which "
                f"this network calls {', '.join(repr(named[k]) for k in entries)}"
            )
    if {first for first, column in own.items() if first in other or not column.parts} != set(other):
        raise InputError(_OTHER_LEVELS)
    for first, theirs in other.items():
        mine = own[first]
        if sorted(mine.codes) != sorted(theirs.codes) or mine.unknown != theirs.unknown:
            raise InputError(_OTHER_LEVELS)
        # By name: levels in an order may have been put into it.
        if _named_codes(mine) != _named_codes(theirs):
            raise InputError(
                f"the certificates call the levels of {mine.name!r} {mine.levels!r:.80}, this network "
                f"{theirs.levels!r:.80}"
            )
    table = ours.about.table
    if not needed or table is None:
        return given
    return Network(given.nodes, given.decision, replace(given.about, table=table, features=table.entries), given.source)


_OTHER_LEVELS = "the certificates are about other categories, or other codes of them, than this network's"


def _categories(net: Network) -> dict[int, Column]:
    """The columns of categories, by their first entries."""
    table = net.about.table
    return {} if table is None else {p.start: c for c, p in zip(table.columns, table.places) if c.levels is not None}


def _named_codes(column: Column) -> set[tuple[str, Code]]:
    """Codes by the names of their levels; what is text is not what is a number."""
    return {(repr(level), code) for level, code in zip(column.levels or (), column.codes)}


def _attempts(
    certs: Certificates, net: Network, arithmetic: str, deployed: str | None, device: str | torch.device
) -> tuple[Prover, list[Hints]]:
    """How to prove, and the bounds to try: those that found the certificate, then the others.

    The hints come from the certificate. Wrong ones cost time, or a proof; they cannot make a false one.
    """
    hints = Hints.of(certs.settings["bounds"], certs.settings["margin"])

    def strict(region: Stated, rows: Tensor, offset: Tensor, group: Tensor, hints: Hints, trees: Trees) -> Tensor:
        rows, offset, group = (t.to(device) for t in (rows, offset, group))
        return prove(net, region.to(device), rows, offset, group, hints, deployed, trees).cpu()

    if arithmetic == "float64":
        return strict, [hints, Hints(not hints.parallel, logits=True)]

    def by_arb(region: Stated, rows: Tensor, offset: Tensor, group: Tensor, hints: Hints, trees: Trees) -> Tensor:
        found = prove_arb(net, region, rows, offset, group, hints, trees)
        return torch.minimum(found, strict(region, rows, offset, group, hints, trees)) if deployed else found

    return by_arb, [hints]


# --- does the specification hold on it?


def _prove_again(
    certs: Certificates, net: Network, index: Tensor, prover: Prover, hints: list[Hints]
) -> tuple[Tensor, Tensor]:
    """Margins proved for some of the certificates, `b x g`, and which of them pass, `b`."""
    rows, offset, group = _specification(certs, net, index)
    region = region_of(certs, net, index)
    trees = [trees_of(certs, k) for k in index.tolist()]
    margins = prover(region, rows, offset, group, hints[0], trees)
    passed = (margins > 0).all(1)
    for other in hints[1:]:
        left = (~passed).nonzero().squeeze(1)
        if len(left):
            some = [trees[k] for k in left.tolist()]
            again = prover(region.take(left), _part(rows, left), _part(offset, left), group, other, some)
            margins[left] = torch.maximum(margins[left], again)
            passed = (margins > 0).all(1)
    off = (certs.center[index] != certs.x[index]).flatten(1).any(1) & passed
    if certs.lower is None and bool(off.any()):
        chosen = off.nonzero().squeeze(1)
        point = certs.x[index][chosen].flatten(1)
        there = prover(Stated(point, point), _part(rows, chosen), _part(offset, chosen), group, hints[0], ())
        passed[chosen] = (there > 0).all(1)
    return margins, passed


def _refuse_other_limits(
    certs: Certificates, net: Network, index: Tensor, prover: Prover, passed: Tensor, message: list[str]
) -> None:
    """Takes back what passed, of some of the certificates, where a counterexample that is stated is not proved."""
    assert certs.reach is not None and certs.seen is not None
    index = index[certs.reach[index].isfinite()]
    if not len(index):
        return
    x, point = certs.x[index].flatten(1), certs.seen[index].flatten(1)
    held, box = held_by(_of_numbers(region_of(certs, net, index), x), x, point, certs.reach[index])
    if certs.lower is not None and certs.lowest is not None and certs.highest is not None:
        ends = (_part(end.flatten(1), index) for end in (certs.lowest, certs.highest))
        held &= (next(ends) <= point).all(1) & (point <= next(ends)).all(1)
    broken = torch.zeros_like(held)
    if bool(held.any()):
        rows, offset, group = _specification(certs, net, index[held])
        broken[held] = broken_on(box.take(held), rows, offset, group, partial(prover, trees=()))
    for k, inside, known in zip(index.tolist(), held.tolist(), broken.tolist()):
        passed[k] = known
        if not inside:
            message[k] = "the counterexample it states (seen) does not lie in its region scaled by reach"
        elif not known:
            message[k] = "not proved: that the point it states (seen) is a counterexample"


def _of_numbers(region: Stated, x: Tensor) -> Stated:
    """The region with categories held at the inputs' own levels: a counterexample that is stated is one of these."""
    if region.categories is None or region.lower is None or region.upper is None:
        return region
    moves = region.categories.moves
    return Stated(torch.where(moves, region.lower, x), torch.where(moves, region.upper, x))


def _part(t: Tensor, index: Tensor) -> Tensor:
    return t if len(t) == 1 else t[index]


def _specification(certs: Certificates, net: Network, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rows `b x t x k`, offsets `b x t`, groups `t`: as stated, or "the label stays", written out here once more."""
    if certs.spec_rows is not None and certs.spec_offset is not None and certs.spec_group is not None:
        return _part(certs.spec_rows, index), _part(certs.spec_offset, index), certs.spec_group
    k = net.n_outputs
    rows = torch.zeros(len(index), k - 1, k, dtype=torch.float64)
    sign = 1.0 if net.decision == "max" else -1.0
    label, row = certs.labels[index][:, None], torch.arange(k - 1)
    rows.scatter_(2, label.expand(-1, k - 1)[..., None], sign)
    rows.scatter_(2, (row + (row >= label))[..., None], -sign)  # the other classes, in order
    return rows, rows.new_zeros(rows.shape[:2]), row


def _others(label: int, k: int) -> list[int]:
    return [j for j in range(k) if j != label]


def _why_not(certs: Certificates, net: Network, k: int, margins: Tensor) -> str:
    worst = int(margins.argmin())
    least, which = float(margins[worst]), f"of group {worst}"
    if certs.spec_rows is None:
        label, decided = int(certs.labels[k]), int(net.decide(net(certs.x[k : k + 1]))[0])
        if decided != label:
            titles = class_title(net, decided), class_title(net, label)
            return f"not proved: the network decides {titles[0]} at the input itself, not {titles[1]}"
        which = f"against {class_title(net, _others(label, net.n_outputs)[worst])}"
    if least > 0:
        return "not proved: it holds on the region, but the input, which rounding puts beside it, was not proved"
    if not math.isfinite(least):
        return f"not proved: nothing finite could be said of the margin {which} on this region"
    return f"not proved: the margin {which} could only be bounded by {least:.3g} from below, and must be above 0"
