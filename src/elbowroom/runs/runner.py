"""A whole data set, certified part by part into a folder; to be interrupted and resumed at any time."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from elbowroom.arguments.accuracy import Accuracy
from elbowroom.arguments.axes import channels_of
from elbowroom.arguments.names import printable
from elbowroom.certificates.header import Plan
from elbowroom.certificates.lock import locked
from elbowroom.certificates.result import Certificates
from elbowroom.certificates.store import HEADER, Run, make_folder, remove_leftovers, rows_per_part
from elbowroom.data.dataset import Dataset
from elbowroom.data.selection import select
from elbowroom.errors import ElbowroomError, InputError
from elbowroom.network.graph import Network
from elbowroom.network.names import counted
from elbowroom.network.operations import Conv, Linear
from elbowroom.network.table_file import written_table
from elbowroom.runs.directions import with_directions
from elbowroom.runs.engines.choice import Engine, engine_for, engine_of
from elbowroom.runs.engines.worker import Part, Worker
from elbowroom.runs.matching import matched
from elbowroom.runs.problem import device_of, resolve
from elbowroom.runs.ranges import ranged
from elbowroom.runs.settings import Settings
from elbowroom.runs.sharing import shared, threads_each
from elbowroom.runs.stored import stored_settings
from elbowroom.runs.summary import Tally

_LOOKED_AT = 16  # inputs among which to find three that network and model are compared at
_READ_AT_ONCE = 1 << 27  # bytes of inputs held while counting what the network gets right
# Per part, on a CPU and elsewhere: rows at most, and multiplications of one bound evaluation of all rows. A part then
# takes some 20 seconds.
_MOST_ROWS, _MOST_WORK = (1024, 8192), (5e9, 1e12)
_PARTS_EACH = 4  # at least, for each of several workers
_MOST_IDS = 1 << 20  # characters of the inputs' names that run.json holds


class Watch(Protocol):
    """Who wants to know how a run goes."""

    def begin(self, start: Start) -> None:
        """Everything is known, nothing is done yet.

        Args:
            start: What is known.
        """

    def advance(self, tally: Tally) -> None:
        """A part was written.

        Args:
            tally: Over all inputs that are done.
        """


@dataclass(frozen=True)
class Start:
    """What is known before the first part.

    Attributes:
        run: The run.
        data: The data set.
        device: Where the work is done.
        workers: How many work on it.
        threads: Of each worker; None where that is not for us to say.
        done: Inputs certified before.
        right: How many of the selected inputs the network gets right; None where there is nothing to be right about, or
            where a run is resumed.
    """

    run: Run
    data: Dataset
    device: str
    workers: int
    threads: int | None
    done: int
    right: int | None


@dataclass(frozen=True)
class Outcome:
    """How far a run came.

    Attributes:
        run: The run.
        tally: Over all inputs that are done, also those done before.
        complete: Whether all inputs are done.
    """

    run: Run
    tally: Tally
    complete: bool


def run_dataset(
    net: Network,
    data: Dataset,
    out: str | Path,
    settings: Settings | None = None,
    *,
    resume: bool = False,
    watch: Watch | None = None,
    stop: Callable[[], bool] = lambda: False,
    engine: Engine | None = None,
    sharing: bool = False,
) -> Outcome:
    """Certifies the inputs of a data set that the settings select, part by part, into a folder.

    Columns and labels are matched by name with the network's features and classes, see `elbowroom.runs.matching`; the
    model that the network was read from is compared with it at the first inputs.

    Args:
        net: The network, see `load`.
        data: The data set, see `open_data`.
        out: The run's folder.
        settings: What to certify and how; by default all inputs, and the defaults of `certify`.
        resume: Resumes the run in `out`, if there is one: finished parts are kept, and the network, the data and the
            settings must be the same (those of the machine may differ).
        watch: Is told how it goes.
        stop: Asked before each part; true ends the run cleanly.
        engine: What computes the parts; by default what the settings ask for.
        sharing: Whether to choose workers and threads by the work, where the settings do not say; else there is this
            process alone, since a script must be one that other processes can read.

    Returns:
        The run, and how far it came.

    Raises:
        InputError: Data, settings or folder do not fit; of a run to resume, the message names all that differs.
        UnsupportedError: The proof does not cover the network, or the model it was read from computes something else.
        ElbowroomError: A worker or a device failed; finished parts are kept.

    Example:
        >>> from elbowroom.data.sources import open_data
        >>> run_dataset(net, open_data("digits"), "run", Settings(limit=100))
    """
    net, data, told = matched(net, data, settings or Settings())
    _must_fit(net, data)
    asked, notes = ranged(resolve(told, net, data.domain), net, data)
    data = dataclasses.replace(data, notes=(*data.notes, *notes))
    rows = _selection(data, asked)
    asked, basis, data = with_directions(asked, net, data, Path(out), resume)
    net.must_agree(_first_inputs(data, rows))
    with engine_of(shared(asked, net, len(rows)) if sharing else asked) as (chosen, there):
        # Whoever drives a cluster may have no such device.
        here = there if there.engine == "local" else dataclasses.replace(there, device=None)
        sample = Worker(net, here, basis).sample()
        wanted = _plan(data, asked, rows, asked.part_rows or rows_per_part(sample, _good_rows(net, there, len(rows))))
        target = Path(out)
        make_folder(target)
        with locked(target):
            if (target / HEADER).exists():
                if not resume:
                    raise InputError(
                        f"{target} already holds a run; resume it (`resume=True`), or choose another folder"
                    )
                run, tally = _resumed(target, wanted, asked, sample)
                right = None
            else:
                accuracy = _accuracy(net, data, rows, here)
                right = None if accuracy is None else accuracy.right
                run = Run.create(target, sample, dataclasses.replace(wanted, notes=_notes(data, accuracy)))
                tally = Tally()
            done = set(run.finished())
            todo = [k for k in range(run.n_parts) if k not in done]
            if sharing and there.engine == "local":  # anew: of a run that goes on there is less to do
                now = shared(asked, net, sum(len(run.rows(k)) for k in todo))
                there = dataclasses.replace(there, workers=now.workers, threads=now.threads)
            there = dataclasses.replace(there, workers=max(1, min(there.workers or 1, len(todo))))
            chosen = engine_for(there) if sharing and there.engine == "local" else chosen
            if watch:
                threads = threads_each(there) if there.engine == "local" and there.device == "cpu" else None
                watch.begin(Start(run, data, str(there.device), there.workers or 1, threads, tally.count, right))
            if todo:
                work = _parts(run, data, rows, asked, todo, stop)
                compute: Any = engine or chosen
                compute = compute if basis is None else functools.partial(compute, basis=basis)
                with contextlib.closing(compute(net, there, work)) as found:
                    for number, certs in found:
                        _write(run, number, certs, tally)
                        tally.add(certs)
                        if watch:
                            watch.advance(tally)
    return Outcome(run, tally, tally.count == run.plan.inputs)


# --- which inputs


def _must_fit(net: Network, data: Dataset) -> None:
    if tuple(data.shape) != net.input_shape:
        hint = (
            f"; er.load(net, input_shape={data.shape}) takes these" if channels_of(data.shape, net.input_shape) else ""
        )
        raise InputError(f"{data.name} has inputs of shape {data.shape}, but the network takes {net.input_shape}{hint}")


def _selection(data: Dataset, settings: Settings) -> np.ndarray:
    if not settings.shuffle:
        return select(data, settings.limit, settings.offset, settings.indices, settings.classes)
    found = select(data, None, 0, settings.indices, settings.classes)
    found = np.random.default_rng(settings.seed).permutation(found)
    last = None if settings.limit is None else settings.offset + settings.limit
    if not len(found[settings.offset : last]):
        raise InputError(f"no input of {data.name} is left after offset {settings.offset}")
    return found[settings.offset : last]


def _labels(data: Dataset, rows: np.ndarray, settings: Settings) -> np.ndarray | None:
    """What must stay: the labels of these inputs; None where it is what the network says."""
    if data.labels is None or settings.predicted or settings.within is not None:
        return None
    return np.asarray(data.labels[rows], dtype=np.int64)


def _parts(
    run: Run, data: Dataset, rows: np.ndarray, settings: Settings, todo: list[int], stop: Callable[[], bool]
) -> Iterator[Part]:
    for k in todo:
        if stop():
            return
        index = rows[run.rows(k).start : run.rows(k).stop]
        yield _read(k, data, index, settings)


def _read(number: int, data: Dataset, index: np.ndarray, settings: Settings) -> Part:
    x = data.inputs(index)
    faults, troubles = {}, {}
    for k in np.flatnonzero(~np.isfinite(x.reshape(len(x), -1)).all(1)).tolist():
        unread = None if data.fault is None else data.fault(int(index[k]))
        if unread is not None:
            faults[k] = unread
        else:
            troubles[k] = data.trouble(int(index[k])) or ""
    imputed = None if data.imputed is None else data.imputed(index).reshape(x.shape)
    return Part(number, index, x, _labels(data, index, settings), faults, troubles, imputed)


def _first_inputs(data: Dataset, rows: np.ndarray) -> torch.Tensor:
    """The first inputs that hold finite numbers, `b x *shape`, three at most; few are looked at."""
    x = data.inputs(rows[:_LOOKED_AT])
    return torch.from_numpy(x[np.isfinite(x.reshape(len(x), -1)).all(1)][:3])


def _accuracy(net: Network, data: Dataset, rows: np.ndarray, settings: Settings) -> Accuracy | None:
    """How many of the inputs with finite outputs the network gets right; also the first time that all of them are
    read."""
    labels = _labels(data, rows, settings)
    if labels is None:
        return None
    size = max(1, min(1024, _READ_AT_ONCE // (8 * max(n.size for n in net.nodes))))
    device, decided = device_of(settings), np.full(len(rows), -1)
    for first in range(0, len(rows), size):
        x = torch.from_numpy(data.inputs(rows[first : first + size])).to(device, net.dtype)
        outputs = net(x).cpu()
        found = torch.where(outputs.isfinite().all(1), net.decide(outputs), -1)
        decided[first : first + size] = found.numpy()
    known = decided >= 0
    return Accuracy.of(decided[known], labels[known], net.n_outputs)


def _notes(data: Dataset, accuracy: Accuracy | None) -> list[str]:
    """What whoever reads the run must know about its data."""
    warned = []
    if accuracy is not None and accuracy.near_chance:
        warned.append(f"warning: {accuracy.warning('class_names', 'predicted=True')}")
    return [*(f"note: {note}" for note in printable(data.notes)), *warned]


# --- the plan


def _plan(data: Dataset, settings: Settings, rows: np.ndarray, part_rows: int) -> Plan:
    labels = _labels(data, rows, settings)
    kept = "labels" if labels is not None else "decisions" if settings.within is None else "outputs"
    about = {
        "name": data.name, "digest": data.digest, "count": data.count, "selection": _sha256(rows),
        "labels": _sha256(np.empty(0) if labels is None else labels), "kept": kept,
    }  # fmt: skip
    numbers = rows.tolist()
    ids = [] if data.ids is str else [data.ids(k) for k in numbers]
    tell = bool(ids) and sum(map(len, ids)) <= _MOST_IDS and ids != [str(k) for k in numbers]
    return Plan(len(rows), part_rows, about, settings.stored(), ids if tell else None)


def _good_rows(net: Network, settings: Settings, inputs: int) -> int:
    """Rows that take some 20 seconds: an interrupted run loses, and an end that is asked for waits, no longer. Fewer
    where workers would be without a part, or wait for the last one.

    The work of a bound is about (neurons) x (multiplications of a forward pass).
    """
    neurons = sum(net.nodes[i].size for i in net.preactivations)
    products = sum(n.size * n.op.weight[0].numel() for n in net.nodes if isinstance(n.op, Linear | Conv))
    elsewhere = settings.device != "cpu"
    most = min(_MOST_ROWS[elsewhere], _MOST_WORK[elsewhere] // max(1, neurons * products))
    workers = settings.workers or 1
    if workers > 1:
        most = min(most, inputs // (_PARTS_EACH * workers))
    return max(1, int(most))


def _resumed(folder: Path, wanted: Plan, settings: Settings, sample: Certificates) -> tuple[Run, Tally]:
    """The run in the folder, if it can be resumed, and what is done of it. The lock must be held."""
    run, tally = _same(Run.open(folder), wanted, settings, sample), Tally()
    remove_leftovers(folder)
    for k in run.finished():
        tally.add(_finished(run, k))
    return run, tally


def _same(run: Run, wanted: Plan, settings: Settings, sample: Certificates) -> Run:
    """The run, if resuming it adds what it was begun with; else an `InputError` names all that differs."""
    plan = run.plan
    if plan.data is None or plan.settings is None or wanted.data is None:
        raise InputError(f"{run.folder} holds certificates that were saved as they are; there is nothing to resume")
    differing = []
    if run.claim["network_hash"] != sample.settings["network_hash"]:
        differing.append("another network")
    elif _names(run.network) != _names(sample.network):
        differing.append("other names of features or classes")
    elif _kinds(run.network) != _kinds(sample.network):
        differing.append("other kinds of features")
    if plan.data["digest"] != wanted.data["digest"]:
        differing.append(f"other data (then {plan.data['name']}, now {wanted.data['name']})")
    elif (plan.data["selection"], plan.inputs) != (wanted.data["selection"], wanted.inputs):
        differing.append(f"another choice of inputs (then {plan.inputs}, now {wanted.inputs} of them)")
    elif plan.data["labels"] != wanted.data["labels"]:
        differing.append("other labels")
    before, now = Settings.of(stored_settings(plan) or {}).claim(), settings.claim()
    differing.extend(
        f"{name} (then {_shown(before[name])}, now {_shown(now[name])})" for name in now if before[name] != now[name]
    )
    if settings.part_rows not in (None, plan.part_rows):
        differing.append(f"part_rows (then {plan.part_rows}, now {settings.part_rows})")
    if not differing and sample.settings != {**run.claim["settings"], "network_hash": run.claim["network_hash"]}:
        differing.append("defaults of another version of this program")
    if differing:
        raise InputError(f"{run.folder} was begun with something else: {'; '.join(differing)}; choose another folder")
    return run


def _names(net: Network | None) -> list[tuple[str, ...]]:
    """As a network's file holds them."""
    return [] if net is None else [printable(names or ()) for names in (net.about.features, net.about.classes)]


def _kinds(net: Network | None) -> Any:
    """What is said of the columns of a network's table, as its file holds it."""
    return None if net is None else written_table(net.about.table)


def _shown(value: Any) -> str:
    return "none" if value is None else str(value)[:60]


def _sha256(values: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(values, "<i8").tobytes()).hexdigest()


# --- files


def _finished(run: Run, part: int) -> Certificates:
    try:
        return run.read(part)
    except InputError as error:
        raise InputError(f"{error}; remove that file to have the part computed again") from None


def _write(run: Run, part: int, certs: Certificates, tally: Tally) -> None:
    try:
        run.write(part, certs)
    except ElbowroomError as error:
        raise InputError(
            f"{error}; {tally.count:,} of {counted(run.plan.inputs, 'input')} are done and kept: fix this, then resume "
            "with `resume=True`"
        ) from None
