"""Runs over data sets: resumed without doing anything twice, never mixed, whatever happens to the folder."""

import dataclasses
import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import elbowroom as er
from elbowroom.certificates import lock
from elbowroom.certificates.result import Certificates
from elbowroom.certificates.store import Run
from elbowroom.data.dataset import Dataset
from elbowroom.errors import ElbowroomError, InputError, UnsupportedError
from elbowroom.network.graph import About, Network, Source
from elbowroom.runs import runner
from elbowroom.runs.engines.choice import local
from elbowroom.runs.engines.worker import Part
from elbowroom.runs.runner import Outcome, Start, run_dataset
from elbowroom.runs.settings import Settings
from elbowroom.runs.summary import Tally
from forgery import edit_run
from runs.small import assert_same_rows, dataset, labels_for, network, points

NET = network()
COUNT = 11
X = points(COUNT)
LABELS = labels_for(NET, X, wrong=(3,))
DATA = dataset(X, LABELS)
PARTS = 4  # of 3 rows


def settings(**given: Any) -> Settings:
    """With the bounds that cost least, since they are not what is looked at."""
    return Settings.of({"part_rows": 3, "device": "cpu", "bounds": "simple", **given})


def run(
    out: Path, net: Network = NET, data: Dataset = DATA, given: Settings | None = None, **more: Any
) -> Outcome | None:
    return run_dataset(net, data, out, given or settings(), **more)


def after(count: int) -> Callable[..., Any]:
    """A stop after so many questions."""
    asked = iter(range(10**9))
    return lambda: next(asked) >= count


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run, undisturbed."""
    return run(tmp_path_factory.mktemp("run") / "whole").run.folder


def test_a_run(whole: Path) -> None:
    certs = er.Certificates.load(whole)
    assert len(certs) == COUNT and certs.missing == 0 and certs.index.tolist() == list(range(COUNT))
    assert certs.status[3] == "misclassified" and certs.status.count("certified") == COUNT - 1
    assert torch.equal(certs.x, torch.from_numpy(X)) and certs.labels.tolist() == LABELS.tolist()
    assert bool(er.check(certs))
    assert sorted(p.name for p in whole.iterdir()) == ["network.elbowroom", "parts", "run.json"]
    assert len(list((whole / "parts").iterdir())) == PARTS
    plan = json.loads((whole / "run.json").read_text())["plan"]
    assert (plan["inputs"], plan["part_rows"], plan["data"]["name"]) == (COUNT, 3, "points")
    assert plan["data"]["kept"] == "labels" and plan["settings"]["region"] == "box" and plan["ids"] is None


@pytest.mark.parametrize("count", [10, pytest.param(300, marks=pytest.mark.slow)])
def test_batches_and_parts_make_no_difference(tmp_path: Path, count: int) -> None:
    net, x = network(sizes=(10, 20, 20, 4)), points(count, n=10)
    data = dataset(x)
    whole_at_once = er.certify(net, x)
    for given in ({"batch": 1, "part_rows": count}, {"batch": 64, "part_rows": 200}, {"part_rows": 7}):
        folder = tmp_path / str(given["part_rows"])
        run_dataset(net, data, folder, Settings.of({"device": "cpu", **given}))
        certs = er.Certificates.load(folder)
        assert certs.status == whole_at_once.status
        off = (certs.geomean / whole_at_once.geomean - 1).abs()[certs.certified]
        assert (off <= 1e-4).double().mean() >= 0.9 and off.max() <= 1e-3


def test_stopped_and_resumed(tmp_path: Path, whole: Path) -> None:
    for asked in range(PARTS):
        found = run(tmp_path, resume=True, stop=after(1))
        assert found.complete == (asked == PARTS - 1)
        certs = er.Certificates.load(tmp_path)
        assert len(certs) == found.tally.count == min(COUNT, 3 * (asked + 1))
        assert certs.missing == COUNT - len(certs)
    assert_same_rows(er.Certificates.load(whole), er.Certificates.load(tmp_path))


def test_nothing_is_done_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, stop=after(2))
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "parts").iterdir()}
    header = (tmp_path / "run.json").read_bytes()
    computed = []

    def counted(net: Network, given: Settings, work: Iterable[Part]) -> Iterator[tuple[int, Certificates]]:
        for number, certs in local(net, given, work):
            computed.append(number)
            yield number, certs

    assert run(tmp_path, resume=True, engine=counted).complete and computed == [2, 3]
    assert all(p.stat().st_mtime_ns == t for p, t in before.items())
    assert (tmp_path / "run.json").read_bytes() == header
    monkeypatch.setattr(runner.Worker, "compute", None)
    again = run(tmp_path, resume=True)
    assert again.complete and again.tally.count == COUNT and computed == [2, 3]


def test_memory_and_rate_stay_flat(tmp_path: Path) -> None:
    """As `benchmarks/run.py` measures with more inputs."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        pytest.skip("no /proc here")
    seen = []

    class Clock:
        def begin(self, start: Start) -> None:
            pass

        def advance(self, tally: Tally) -> None:
            seen.append((int(statm.read_text().split()[1]) * 4096, time.process_time()))

    given = Settings.of({"region": "uniform", "bounds": "simple", "part_rows": 250, "batch": 250, "device": "cpu"})
    run(tmp_path, data=dataset(points(5000)), given=given, watch=Clock())
    memory, clock = zip(*seen)
    assert len(seen) == 20 and memory[-1] - memory[4] < 10 << 20
    assert clock[-1] - clock[-6] < 3 * (clock[9] - clock[4])


def test_parts_in_any_order(tmp_path: Path, whole: Path) -> None:
    """As another engine may deliver them."""

    def backwards(net: Network, given: Settings, work: Iterable[Part]) -> Iterator[tuple[int, Certificates]]:
        yield from reversed(list(local(net, given, work)))

    assert run(tmp_path, engine=backwards).complete
    assert_same_rows(er.Certificates.load(whole), er.Certificates.load(tmp_path))


def test_a_lost_part_is_computed_again(tmp_path: Path, whole: Path) -> None:
    shutil.copytree(whole, tmp_path / "run")
    (tmp_path / "run" / "parts" / "part-00001.parquet").unlink()
    assert run(tmp_path / "run", resume=True).complete
    assert_same_rows(er.Certificates.load(whole), er.Certificates.load(tmp_path / "run"))


def test_a_damaged_part_is_named(tmp_path: Path, whole: Path) -> None:
    shutil.copytree(whole, tmp_path / "run")
    (tmp_path / "run" / "parts" / "part-00001.parquet").write_bytes(b"x" * 200)
    with pytest.raises(InputError, match=r"part-00001\.parquet is damaged.*; remove that file"):
        run(tmp_path / "run", resume=True)


def test_an_old_run_is_not_overwritten(tmp_path: Path, whole: Path) -> None:
    shutil.copytree(whole, tmp_path / "run")
    before = (tmp_path / "run" / "run.json").read_bytes()
    with pytest.raises(InputError, match=r"already holds a run; resume it \(`resume=True`\), or choose another folder"):
        run(tmp_path / "run")
    assert (tmp_path / "run" / "run.json").read_bytes() == before


def test_resuming_nothing_begins(tmp_path: Path) -> None:
    assert run(tmp_path / "new", resume=True).complete


def test_certificates_that_were_saved_have_nothing_to_go_on_with(tmp_path: Path) -> None:
    er.certify(NET, X).save(tmp_path)
    with pytest.raises(InputError, match="nothing to resume"):
        run(tmp_path, resume=True)


OTHER_X = X.copy()
OTHER_X[0, 0] += 1e-9
OTHERS = {
    "network": ({"net": network(1)}, "another network"),
    "data": ({"data": dataset(OTHER_X, LABELS, "others")}, r"other data \(then points, now others\)"),
    "labels": ({"data": dataset(X, labels_for(NET, X))}, "other labels"),
    "no labels": ({"data": dataset(X)}, "other labels"),
    "fewer": ({"given": settings(limit=5)}, r"another choice of inputs \(then 11, now 5 of them\)"),
    "order": ({"given": settings(shuffle=True)}, "another choice of inputs"),
    "part rows": ({"given": settings(part_rows=4)}, r"part_rows \(then 3, now 4\)"),
    **{
        name: ({"given": settings(**{name: value})}, name)
        for name, value in {
            "region": "l1", "bounds": "combined", "margin": "logits", "solver": "augmented-lagrangian", "delta": 1e-3,
            "deployed": "float32", "domain": [-2, 2], "max_eps": 0.5, "frozen": ["0"], "importance": {"1": 2},
            "solver_options": {"gradients": 2}, "predicted": True, "within": 0.1,
        }.items()
    },
}  # fmt: skip


@pytest.mark.parametrize("name", list(OTHERS))
def test_nothing_is_mixed(whole: Path, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    (folder / "parts" / "part-00002.parquet").unlink()
    other, words = OTHERS[name]
    with pytest.raises(InputError, match=rf"was begun with something else: .*{words}"):
        run(folder, resume=True, **other)
    assert not (folder / "parts" / "part-00002.parquet").exists() and not (folder / "lock").exists()


def test_all_differences_are_named(whole: Path) -> None:
    with pytest.raises(InputError) as refusal:
        run(whole, network(1), dataset(OTHER_X, LABELS), settings(region="l1", delta=0.5), resume=True)
    said = str(refusal.value)
    assert "another network" in said and "other data" in said
    assert "region (then box, now l1)" in said and "delta (then 0.0, now 0.5)" in said


def test_other_defaults_are_noticed(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "run")
    edit_run(tmp_path / "run", lambda r: r["claim"]["settings"].update(solver="Sequential(gradients=99)"))
    with pytest.raises(InputError, match="defaults of another version of this program"):
        run(tmp_path / "run", resume=True)


def test_the_machine_may_change(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    (folder / "parts" / "part-00002.parquet").unlink()
    assert run(folder, resume=True, given=settings(batch=2, memory="1GiB", part_rows=None)).complete


def test_names_and_numbers_are_the_same_setting(tmp_path: Path) -> None:
    net = Network(NET.nodes, NET.decision, About(features=("age", "income")))
    run(tmp_path, net, given=settings(frozen=["age"]), stop=after(1))
    assert run(tmp_path, net, given=settings(frozen=["0"]), resume=True).complete
    certs = er.Certificates.load(tmp_path)
    assert bool((certs.eps[certs.certified][:, 0] == 0).all()) and bool((certs.eps[certs.certified][:, 1] > 0).all())
    assert certs.network.about.features == ("age", "income")


def test_the_model_is_compared_once_at_the_first_inputs(tmp_path: Path) -> None:
    """Whatever the number of parts; inputs without finite numbers are passed over."""
    seen = []
    net = Network(NET.nodes, NET.decision, NET.about, Source(seen.append))
    x = X.copy()
    x[1, 0] = np.nan
    assert run(tmp_path / "a", net, dataset(x, LABELS), settings(offset=1)).complete
    assert len(seen) == 1 and torch.equal(seen[0], torch.from_numpy(x[2:5]))
    seen.clear()
    er.certify(net, x)
    assert len(seen) == 1 and torch.equal(seen[0], torch.from_numpy(x[[0, 2, 3]]))
    seen.clear()
    er.certify(net, np.full((2, 2), np.nan))
    run(tmp_path / "b", net, dataset(np.full((2, 2), np.nan)))
    assert not seen
    wrong = Network(NET.nodes, NET.decision, NET.about, Source(lambda x: "the network differs from the model"))
    with pytest.raises(UnsupportedError, match="the network differs from the model"):
        run(tmp_path / "c", wrong)
    assert not (tmp_path / "c").exists()


def test_selections(tmp_path: Path) -> None:
    some = dataset(X, LABELS, ids=lambda k: f"image {k}.png")
    assert run(tmp_path / "a", data=some, given=settings(indices="8-9,2", limit=2)).complete
    found = Run.open(tmp_path / "a")
    assert found.read(0).index.tolist() == [8, 9] and found.plan.ids == ["image 8.png", "image 9.png"]
    run(tmp_path / "b", given=settings(shuffle=True, seed=1, limit=4))
    run(tmp_path / "c", given=settings(shuffle=True, seed=2, limit=4))
    one, two = (er.Certificates.load(tmp_path / k).index.tolist() for k in "bc")
    assert len(set(one)) == 4 and one != two and one != sorted(one)
    with pytest.raises(InputError, match="no input of points is left"):
        run(tmp_path / "d", given=settings(shuffle=True, offset=11))
    chosen = int(LABELS[0])
    run(tmp_path / "e", given=settings(classes=[chosen], limit=3))
    assert set(er.Certificates.load(tmp_path / "e").labels.tolist()) == {chosen}


def test_long_lists_of_names_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_MOST_IDS", 50)
    run(tmp_path, data=dataset(X, ids=lambda k: f"image {k}.png"), stop=after(0))
    assert Run.open(tmp_path).plan.ids is None


def test_bad_inputs_are_rows(tmp_path: Path) -> None:
    x = X.copy()
    x[1, 0], x[4, 1], x[5] = np.nan, 7.0, np.nan
    data = dataset(x, LABELS, features=("age", "income"), fault=lambda k: "5.png is no image" if k == 5 else None)
    assert run(tmp_path, data=data, given=settings(domain=[-2, 2])).complete
    certs = er.Certificates.load(tmp_path)
    assert [certs.status[k] for k in (1, 3, 4, 5)] == ["nonfinite", "misclassified", "error", "error"]
    assert "no finite number in feature 'age'" in certs.message[1]
    assert "outside the domain" in certs.message[4] and certs.message[5] == "5.png is no image"
    assert certs.status.count("certified") == COUNT - 4


def test_what_is_wrong_is_known_before_anything_is_written(tmp_path: Path) -> None:
    for given, words in (
        (settings(frozen=["age"]), "no feature 'age'"),
        (settings(frozen=["0,1"]), "every feature is frozen"),
        (settings(device="nosuch"), "device 'nosuch' cannot be used"),
        (settings(memory="lots"), "memory must be"),
        (settings(solver_options={"x": 1}), "has no 'x'"),
        (settings(indices="99"), "not 99"),
        (settings(classes=[9]), "no class 9"),
    ):
        with pytest.raises(InputError, match=words):
            run(tmp_path / "run", given=given)
    with pytest.raises(InputError, match=r"inputs of shape \(3,\), but the network takes \(2,\)"):
        run(tmp_path / "run", data=dataset(points(4, n=3)))
    assert not (tmp_path / "run").exists()


# --- the folder


def test_one_writer_at_a_time(tmp_path: Path, whole: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    with lock.locked(folder):
        who = f"process {os.getpid()} on "
        assert lock.holder(folder).startswith(who)
        with pytest.raises(InputError, match=f"run is being written by {who}"):
            run(folder, resume=True)
        with pytest.raises(InputError, match="is being written by"):
            er.certify(NET, X).save(folder)
    assert lock.holder(folder) is None
    assert run(folder, resume=True).complete


def test_a_lock_that_a_killed_process_left(tmp_path: Path, whole: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    (folder / "lock").write_text('{"pid": 1, "host": "elsewhere"}')
    assert lock.holder(folder) is None and run(folder, resume=True).complete
    assert not (folder / "lock").exists()


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    run(tmp_path, stop=after(1))
    left = [tmp_path / "parts" / "part-00001.parquet.123.part", tmp_path / "run.json.123.part"]
    for path in left:
        path.write_bytes(b"half")
    assert len(er.Certificates.load(tmp_path)) == 3
    assert run(tmp_path, resume=True).complete and not any(path.exists() for path in left)


def test_a_folder_without_header_begins_anew(tmp_path: Path, whole: Path) -> None:
    """A process killed before run.json was there."""
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    (folder / "run.json").unlink()
    (folder / "parts" / "part-00009.parquet").write_bytes(b"old")
    assert run(folder).complete
    assert_same_rows(er.Certificates.load(whole), er.Certificates.load(folder))
    assert len(list((folder / "parts").iterdir())) == PARTS


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_writes_that_fail(tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """The third write of a part fails; what is there is kept, and later the run goes on."""
    replace, written = os.replace, []

    def fragile(source: Path, target: Path) -> None:
        if str(target).endswith(".parquet"):
            written.append(target)
            if len(written) > 2:
                raise OSError(code, os.strerror(code))
        replace(source, target)

    monkeypatch.setattr(os, "replace", fragile)
    with pytest.raises(InputError) as failure:
        run(tmp_path)
    said = str(failure.value)
    assert f"part-00002.parquet: {os.strerror(code)}" in said
    assert said.endswith("6 of 11 inputs are done and kept: fix this, then resume with `resume=True`")
    monkeypatch.undo()
    assert len(er.Certificates.load(tmp_path)) == 6 and not list(tmp_path.rglob("*.part"))
    assert run(tmp_path, resume=True).complete
    assert_same_rows(er.Certificates.load(whole), er.Certificates.load(tmp_path))


def test_files_that_may_not_grow(tmp_path: Path) -> None:
    """The kernel refuses the write itself, in the middle of a file."""
    wide = network(sizes=(400, 4, 2))
    data = dataset(points(6, n=400))
    given = Settings.of({"part_rows": 2, "device": "cpu", "region": "uniform"})
    run_dataset(wide, data, tmp_path / "run", given, stop=after(1))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, before[1]))
    try:
        with pytest.raises(InputError, match=r"part-00001\.parquet: File too large; 2 of 6 inputs are done and kept"):
            run_dataset(wide, data, tmp_path / "run", given, resume=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert [p.name for p in (tmp_path / "run" / "parts").iterdir()] == ["part-00000.parquet"]
    assert run_dataset(wide, data, tmp_path / "run", given, resume=True).complete


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    place = tmp_path / "small"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", place], capture_output=True)
    if done.returncode:
        pytest.skip("mounting a small file system is not permitted here")
    yield place
    subprocess.run(["umount", place], check=True)


def test_a_full_disk(mounted: Path) -> None:
    wide, count = network(sizes=(400, 4, 2)), 40
    data = dataset(points(count, n=400))
    given = Settings.of({"part_rows": 2, "device": "cpu", "region": "uniform"})
    with pytest.raises(InputError, match=r"No space left on device; \d+ of 40 inputs are done and kept"):
        run_dataset(wide, data, mounted / "run", given)
    kept = er.Certificates.load(mounted / "run")
    assert 0 < len(kept) < count and not list((mounted / "run").rglob("*.part"))
    with pytest.raises(InputError, match="No space left on device"):
        run_dataset(wide, data, mounted / "run", given, resume=True)
    assert len(er.Certificates.load(mounted / "run")) >= len(kept)
    subprocess.run(["mount", "-o", "remount,size=4m", mounted], check=True)
    assert run_dataset(wide, data, mounted / "run", given, resume=True).complete
    assert len(er.Certificates.load(mounted / "run")) == count


def test_a_disk_that_becomes_read_only(tmp_path: Path) -> None:
    parts = tmp_path / "run" / "parts"

    def mount(*options: Path | str) -> bool:
        return subprocess.run(["mount", *options, parts], capture_output=True).returncode == 0

    def interfere(net: Network, given: Settings, work: Iterable[Part]) -> Iterator[tuple[int, Certificates]]:
        for number, certs in local(net, given, work):
            if number == 2 and not (mount("--bind", parts) and mount("-o", "remount,ro,bind")):
                pytest.skip("mounting read-only is not permitted here")
            yield number, certs

    try:
        with pytest.raises(InputError, match=r"Read-only file system; 6 of 11 inputs are done and kept"):
            run(tmp_path / "run", engine=interfere)
        assert len(er.Certificates.load(tmp_path / "run")) == 6 and lock.holder(tmp_path / "run") is None
        with pytest.raises(InputError, match="Read-only file system"):
            run(tmp_path / "run", resume=True)
    finally:
        while subprocess.run(["umount", parts], capture_output=True).returncode == 0:
            pass
    assert run(tmp_path / "run", resume=True).complete


def test_folders_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot make the folder"):
        run(tmp_path / "file" / "run")


# --- what is said


class Watched:
    def __init__(self) -> None:
        self.start, self.counts = None, []

    def begin(self, start: Start) -> None:
        self.start = start

    def advance(self, tally: Tally) -> None:
        self.counts.append(tally.count)


def test_who_watches_is_told(tmp_path: Path) -> None:
    watch = Watched()
    run(tmp_path, watch=watch, stop=after(2))
    assert (watch.start.right, watch.start.done, watch.start.device) == (COUNT - 1, 0, "cpu")
    assert watch.counts == [3, 6]
    run(tmp_path, watch=watch, resume=True)
    assert (watch.start.right, watch.start.done, watch.counts) == (None, 6, [3, 6, 9, 11])


def test_counting_what_is_right(tmp_path: Path) -> None:
    x = X.copy()
    x[1, 0] = np.nan
    cases = [(LABELS, {}, COUNT - 2), (None, {}, None), (LABELS, {"predicted": True}, None)]
    for k, (labels, given, right) in enumerate(cases):
        watch = Watched()
        run(tmp_path / str(k), data=dataset(x, labels), given=settings(**given), watch=watch, stop=after(0))
        assert watch.start.right == right


def test_how_many_rows_a_part_has() -> None:
    def rows(sizes: tuple[int, ...], inputs: int = 10**6, **given: int) -> int:
        return runner._good_rows(network(sizes=sizes), settings(**given), inputs)

    assert rows((2, 12, 3)) == 1024
    assert 8 < rows((784, 300, 300, 300, 10)) < 64
    assert rows((3072, 2000, 2000, 10)) == 1
    assert (
        rows((2, 12, 3), 100) == 1024 and rows((2, 12, 3), 100, workers=4) == 6 and rows((2, 12, 3), 3, workers=4) == 1
    )


def test_an_unexpected_end_keeps_what_is_there(tmp_path: Path) -> None:
    def broken(net: Network, given: Settings, work: Iterable[Part]) -> Iterator[tuple[int, Certificates]]:
        yield from [next(iter(local(net, given, work)))]
        raise ElbowroomError("the device failed")

    with pytest.raises(ElbowroomError, match="the device failed"):
        run(tmp_path, engine=broken)
    assert len(er.Certificates.load(tmp_path)) == 3 and lock.holder(tmp_path) is None
    assert run(tmp_path, resume=True).complete


def test_data_that_change_under_way_are_noticed(tmp_path: Path) -> None:
    """The digest is part of the plan: another one is other data, whatever the name."""
    run(tmp_path, stop=after(1))
    changed = dataclasses.replace(DATA, digest="0" * 64)
    with pytest.raises(InputError, match="other data"):
        run(tmp_path, data=changed, resume=True)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"task": "regression"}, "in a regression outputs stay"),
        ({"task": "classification", "within": 0.1}, "the task is regression"),
        ({"within": [0.1, 0.2]}, "one for each of the 3 outputs; got 2"),
    ],
)
def test_tolerances_that_do_not_fit_begin_nothing(tmp_path: Path, given: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        run(tmp_path / "run", given=settings(**given))
    assert not (tmp_path / "run").exists()
