"""Two runs of two models on the same inputs: whose room shrank and by how much, and whose decision changed.

Inputs are matched by their numbers in the data set, and must be the same to the last bit. Whatever would make two sizes
two different measures (another shape, other features that may move, another order of columns) is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elbowroom.arguments.axes import keeps_axes
from elbowroom.arguments.features import feature_titles
from elbowroom.certificates.frame import levels_allowed
from elbowroom.certificates.result import Certificates
from elbowroom.certificates.store import Run
from elbowroom.errors import InputError
from elbowroom.network.graph import Network
from elbowroom.runs.one_input import name_of, numbers_of
from elbowroom.runs.settings import CLAIM, OPTIONS
from elbowroom.runs.stored import stored_settings
from elbowroom.runs.summary import QUANTILES, extent_of

_SHOWN = 60  # characters of a setting
_BOTH = ("certified", "certified")


def diff_of(old: Run, new: Run) -> dict[str, Any]:
    """What became of the room of every input, as a JSON object; an `InputError` where the runs cannot be compared.

    A size is the geometric mean of an input's extents over the features that may move. `shrink`: by which share of
    the old size the new one is smaller; negative where it is larger, 1 where the certificate is lost, None where there
    was none. `mean_shrink`: the same of the sum of sizes over all inputs that had a certificate. `changed`: how many
    decisions differ, None where runs are not about decisions. Sizes are of numbers; `levels_lost` and `levels_gained`
    say, of inputs certified by both, which levels of categories their regions have no longer, and which they have now.
    """
    notes = _refuse_other_questions(old, new)
    places = _places(old)
    tally = _Changes(old.network, new.network)
    here = _places(new)
    for k in new.finished():
        ours = new.read(k)
        for theirs, pairs in _partners(old, places, numbers_of(new, k, ours)):
            for before, row, number in pairs:
                _refuse_other_input(old, new, theirs, before, ours, row, number)
                tally.add(number, name_of(new, k, row), theirs, before, ours, row)
    if not tally.rows:
        raise InputError(
            f"{old.folder} and {new.folder} have no input in common; certify the same inputs of one data set"
        )
    only_old = len(places.keys() - here.keys())
    unfinished = [str(r.folder) for r in (old, new) if sum(len(r.rows(k)) for k in r.finished()) != r.plan.inputs]
    return {
        "old": str(old.folder),
        "new": str(new.folder),
        "inputs": len(tally.rows),
        "only_old": only_old,
        "only_new": len(here.keys() - places.keys()),
        "unfinished": unfinished,
        "complete": not unfinished and not only_old,
        "notes": notes,
        "extent": extent_of(new.read()),
        **tally.found(),
    }


# --- what cannot be compared


def _refuse_other_questions(old: Run, new: Run) -> list[str]:
    """Raises `InputError` where sizes would be other measures; returns what else differs, in sentences."""
    first, second = old.read(), new.read()
    if not keeps_axes(old.network.input_shape, new.network.input_shape):
        raise InputError(
            f"the networks take other inputs: {old.folder} of shape {old.network.input_shape}, {new.folder} of "
            f"{new.network.input_shape}"
        )
    before, after = old.network.about.features, new.network.about.features
    if before and after and before != after:
        at = next(k for k, (a, b) in enumerate(zip(before, after)) if a != b)
        raise InputError(
            f"feature {at} is {before[at]!r:.80} in {old.folder} and {after[at]!r:.80} in {new.folder}: rooms of other "
            "features cannot be compared"
        )
    if first.shape != second.shape:
        raise InputError(
            f"the regions of {old.folder} are {first.shape}, those of {new.folder} {second.shape}, and sizes of "
            "other shapes cannot be compared"
        )
    if (first.spec_group is None) != (second.spec_group is None):
        raise InputError(f"only one of {old.folder} and {new.folder} is about decisions: certify both for one question")
    kept = [_kept(old, first), _kept(new, second)]
    if None not in kept and kept[0] != kept[1]:
        raise InputError(
            f"in {old.folder} {kept[0]}, in {new.folder} {kept[1]}: certify both runs for the same question"
        )
    return [
        *_class_notes(old.network, new.network, first),
        *_setting_notes(old, new),
        *_domain_note(first, second),
        *_claim_notes(first, second),
    ]


def _kept(run: Run, certs: Certificates) -> str | None:
    """What must stay; None where the run does not say enough to tell it from another."""
    if run.plan.data is None:
        return None
    if certs.spec_group is not None:
        return f"outputs must stay within {(stored_settings(run.plan) or {}).get('within')}"
    return f"the {'labels of the data' if run.plan.data['kept'] == 'labels' else 'decisions'} must stay"


def _class_notes(old: Network, new: Network, certs: Certificates) -> list[str]:
    if certs.spec_group is not None:
        return ["what must hold of the outputs is each run's own specification"]
    if (old.about.classes is None) != (new.about.classes is None):
        return ["only one of the networks names its classes, so that decisions are compared by number"]
    if set(old.about.classes or ()) != set(new.about.classes or ()) or old.n_outputs != new.n_outputs:
        return ["the networks have other classes"]
    return []


def _setting_notes(old: Run, new: Run) -> list[str]:
    before, after = stored_settings(old.plan), stored_settings(new.plan)
    if before is None or after is None:
        return []
    names = [n for n, option in OPTIONS.items() if option.kind == CLAIM and before[n] != after[n]]
    return [f"another {OPTIONS[n].flag}: {_short(before[n])}, then {_short(after[n])}" for n in names]


def _short(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _domain_note(old: Certificates, new: Certificates) -> list[str]:
    """Where both have one domain for all inputs; a domain per input is compared nowhere."""
    for a, b in ((old.lowest, new.lowest), (old.highest, new.highest)):
        if (a is None) != (b is None):
            return ["only one of the runs has a domain, to which its regions are cut"]
        if a is not None and b is not None and len(a) == len(b) == 1 and not torch.equal(a.flatten(), b.flatten()):
            return ["the runs have other domains, to which their regions are cut"]
    return []


def _claim_notes(old: Certificates, new: Certificates) -> list[str]:
    """What else the certificates themselves say of what was asked for."""
    said = []
    if old.settings["region"] != new.settings["region"]:
        said.append(f"regions were searched for as {old.settings['region']}, then as {new.settings['region']}")
    if old.settings["deployed"] != new.settings["deployed"]:
        each = [certs.settings["deployed"] or "the real numbers" for certs in (old, new)]
        said.append(f"the claims are about the arithmetic of {each[0]}, then of {each[1]}")
    return said


def _refuse_other_input(
    old: Run, new: Run, theirs: Certificates, before: int, ours: Certificates, after: int, number: int
) -> None:
    x, y = theirs.x[before].flatten(), ours.x[after].flatten()
    same = _bits(x) == _bits(y)
    if not bool(same.all()):
        k = int((~same).nonzero()[0])
        raise InputError(
            f"input {number} is another one: its {feature_titles(new.network)[k]!r:.80} is {float(x[k])!r} in "
            f"{old.folder} and {float(y[k])!r} in {new.folder}; compare runs over the same inputs"
        )
    if theirs.status[before] == ours.status[after] == "certified":
        moves = (theirs.eps[before].flatten() > 0) ^ (ours.eps[after].flatten() > 0)
        if bool(moves.any()):
            k = int(moves.nonzero()[0])
            raise InputError(
                f"input {number}: {feature_titles(new.network)[k]!r:.80} may move in one of the runs only, so that "
                "sizes are of other features; certify both with the same features frozen"
            )


def _bits(values: Tensor) -> Tensor:
    """The same where numbers are, NaN and signed zeros included."""
    return values.contiguous().view(torch.int64)


# --- which inputs belong together


def _places(run: Run) -> dict[int, tuple[int, int]]:
    """Part and row of every input, by its number."""
    found: dict[int, tuple[int, int]] = {}
    for k in run.finished():
        for row, number in enumerate(numbers_of(run, k, run.read(k))):
            if number in found:
                raise InputError(f"{run.folder} has input {number} twice, so that it cannot be compared")
            found[number] = (k, row)
    return found


def _partners(
    run: Run, places: Mapping[int, tuple[int, int]], numbers: list[int]
) -> Iterator[tuple[Certificates, list[tuple[int, int, int]]]]:
    """The parts of `run` that hold some of these inputs; of each: their row there, their row here, their number."""
    wanted: dict[int, list[tuple[int, int, int]]] = {}
    for row, number in enumerate(numbers):
        if number in places:
            part, before = places[number]
            wanted.setdefault(part, []).append((before, row, number))
    for part, pairs in wanted.items():
        yield run.read(part), pairs


# --- what became of them


class _Changes:
    """Rows so far, and sums over features. `old`, `new`: the networks."""

    def __init__(self, old: Network, new: Network) -> None:
        self.old, self.new = old, new
        self.by_name = old.about.classes is not None and new.about.classes is not None
        self.rows: list[dict[str, Any]] = []
        self.logs = np.zeros(old.n_inputs)  # of the extents' ratios, over the inputs certified by both
        self.free = np.zeros(old.n_inputs, dtype=bool)
        self.both = 0
        self.axes = True  # whether extents are those of features

    def add(self, number: int, name: str | None, old: Certificates, before: int, new: Certificates, after: int) -> None:
        states = old.status[before], new.status[after]
        sizes = [
            float(certs.geomean[row]) if certs.status[row] == "certified" else None
            for certs, row in ((old, before), (new, after))
        ]
        decisions = _decision(self.old, old, before), _decision(self.new, new, after)
        called = self._name(self.old, decisions[0]), self._name(self.new, decisions[1])
        # A network that decides nothing any more, since its outputs overflow, has changed its decision.
        changed = None if decisions == (None, None) else len(set(called if self.by_name else decisions)) > 1
        self.rows.append(
            {
                "input": number,
                "name": name,
                "old_status": states[0],
                "new_status": states[1],
                "old": sizes[0],
                "new": sizes[1],
                "shrink": _shrink(*sizes),
                "old_decision": called[0],
                "new_decision": called[1],
                "changed": changed,
                "levels_lost": _levels_beyond(old, before, new, after) if states == _BOTH else [],
                "levels_gained": _levels_beyond(new, after, old, before) if states == _BOTH else [],
            }
        )
        self.axes = self.axes and old.basis is None and new.basis is None
        if states == _BOTH:
            self.both += 1
            extents = [certs.eps[row].flatten().numpy() for certs, row in ((old, before), (new, after))]
            free = extents[0] > 0
            self.free |= free
            self.logs[free] += np.log(extents[1][free]) - np.log(extents[0][free])

    def _name(self, net: Network, decision: int | None) -> str | None:
        if decision is None:
            return None
        return net.about.classes[decision] if net.about.classes else str(decision)

    def found(self) -> dict[str, Any]:
        rows = sorted(self.rows, key=lambda row: row["input"])
        had = [row for row in rows if row["old"] is not None]
        both = [row for row in had if row["new"] is not None]
        before, after = sum(row["old"] for row in had), sum(row["new"] or 0.0 for row in had)
        decided = [row["changed"] for row in rows if row["changed"] is not None]
        shrinks = np.array([row["shrink"] for row in both])
        return {
            "both": len(both),
            "lost": len(had) - len(both),
            "gained": sum(row["old"] is None and row["new"] is not None for row in rows),
            "shrunk": int((shrinks > 0).sum()),
            "grown": int((shrinks < 0).sum()),
            "levels_lost": sum(bool(row["levels_lost"]) for row in rows),
            "levels_gained": sum(bool(row["levels_gained"]) for row in rows),
            "changed": sum(decided) if decided else None,
            "decided": len(decided),
            "mean_shrink": 1 - after / before if before > 0 else None,
            "most_shrink": max((row["shrink"] for row in had), default=None),
            "shrinks": {f"{q:.0%}": float(v) for q, v in zip(QUANTILES, np.quantile(shrinks, QUANTILES))}
            if len(shrinks)
            else None,
            "features": self._features(),
            "rows": rows,
        }

    def _features(self) -> list[dict[str, Any]]:
        """By which share the room of each feature shrank, by the geometric mean over the inputs certified by both; the
        most first. None have a number where regions lie in a basis."""
        if not self.both or not self.axes:
            return []
        names, shrinks = feature_titles(self.new), 1 - np.exp(self.logs / self.both)
        order = sorted(np.flatnonzero(self.free).tolist(), key=lambda k: -shrinks[k])
        return [{"feature": names[k], "number": k, "shrink": float(shrinks[k])} for k in order]


def _levels_beyond(one: Certificates, row: int, other: Certificates, other_row: int) -> list[dict[str, Any]]:
    """The levels of categories that a region has and the other one, of the same input, has not."""
    tables = [certs.network.about.table if certs.network is not None else None for certs in (one, other)]
    if tables[0] is None or tables[1] is None:
        return []
    columns = {column.name: column for column in tables[1].columns if column.levels is not None}
    own, others, found = one.rows(row, row + 1), other.rows(other_row, other_row + 1), []
    for column in tables[0].columns:
        if column.levels is not None and column.name in columns:
            there = set(levels_allowed(others, columns[column.name])[0])
            beyond = [level for level in levels_allowed(own, column)[0] if level not in there]
            if beyond:
                found.append({"feature": column.name, "levels": beyond})
    return found


def _shrink(old: float | None, new: float | None) -> float | None:
    if old is None:
        return None
    if new is None:
        return 1.0
    return 1 - new / old if old > 0 else 0.0  # of nothing, nothing can be lost


def _decision(net: Network, certs: Certificates, row: int) -> int | None:
    """What the network decides: the label that stays, else as it is evaluated in float64; None where the run is not
    about decisions, or the input has no finite numbers."""
    if certs.spec_group is not None:
        return None
    label = int(certs.labels[row])
    if certs.status[row] == "certified" and 0 <= label < net.n_outputs:
        return label
    x = certs.x[row : row + 1].double()
    if not bool(x.isfinite().all()):
        return None
    with torch.no_grad():
        outputs = net(x)
    return int(net.decide(outputs)[0]) if bool(outputs.isfinite().all()) else None
