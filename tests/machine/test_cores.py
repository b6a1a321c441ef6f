"""Cores as the system and its control groups give them; what commands set before torch is loaded, and leave alone."""

import os
from pathlib import Path

import pytest

from elbowroom.machine import cores
from elbowroom.machine.cores import settle_threads, usable_cores


@pytest.fixture(autouse=True)
def eight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "_allowed", lambda: 8)


def system(root: Path, groups: str, **files: str) -> Path:
    """A file system with these control groups; of a file, "__" in its name stands for "/", and "_dot_" for "."."""
    for name, text in {"proc__self__cgroup": groups, **files}.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_cores_that_the_process_may_run_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    if hasattr(os, "sched_getaffinity"):
        monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 3, 5})
        assert cores._allowed() == 3
        monkeypatch.delattr(os, "sched_getaffinity")
    assert cores._allowed() == os.cpu_count()


@pytest.mark.parametrize(("text", "found"), [("max 100000", 8), ("300000 100000", 3), ("250000 100000", 2),
                         ("50000 100000", 1), ("1600000 100000", 8), ("nonsense", 8), ("1 0", 8)])  # fmt: skip
def test_a_container_of_version_2(tmp_path: Path, text: str, found: int) -> None:
    assert usable_cores(system(tmp_path, "0::/\n", sys__fs__cgroup__cpu_dot_max=text)) == found


def test_the_least_of_all_groups_around(tmp_path: Path) -> None:
    root = system(
        tmp_path, "0::/user/job/step\n", sys__fs__cgroup__cpu_dot_max="max 100000",
        sys__fs__cgroup__user__cpu_dot_max="700000 100000", sys__fs__cgroup__user__job__cpu_dot_max="400000 100000",
        sys__fs__cgroup__user__job__step__cpu_dot_max="600000 100000", sys__fs__cgroup__other__cpu_dot_max="1 1",
    )  # fmt: skip
    assert usable_cores(root) == 4


@pytest.mark.parametrize("folder", ["cpu", "cpu,cpuacct"])
@pytest.mark.parametrize(("quota", "found"), [("-1", 8), ("200000", 2)])
def test_version_1(tmp_path: Path, folder: str, quota: str, found: int) -> None:
    files = {f"sys__fs__cgroup__{folder}__cpu_dot_cfs_{name}_us": text
             for name, text in (("quota", quota), ("period", "100000"))}  # fmt: skip
    assert usable_cores(system(tmp_path, "5:memory:/there\n4:cpu,cpuacct:/docker/ab12\n0::/\n", **files)) == found


def test_no_groups_at_all(tmp_path: Path) -> None:
    assert usable_cores(tmp_path) == 8


def test_threads_wait_passively(tmp_path: Path) -> None:
    environment = {"PATH": "/bin"}
    settle_threads(environment, tmp_path)
    assert environment == {"PATH": "/bin", "OMP_WAIT_POLICY": "PASSIVE"}


@pytest.mark.parametrize("name", ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY"])
def test_what_the_user_says_about_waiting_stays(tmp_path: Path, name: str) -> None:
    environment = {name: "1"}
    settle_threads(environment, tmp_path)
    assert environment == {name: "1"}


def test_no_more_threads_than_the_quota_has_room_for(tmp_path: Path) -> None:
    root = system(tmp_path, "0::/\n", sys__fs__cgroup__cpu_dot_max="300000 100000")
    environment: dict[str, str] = {}
    settle_threads(environment, root)
    assert environment["OMP_NUM_THREADS"] == "3"
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        environment = {name: "6", "OMP_WAIT_POLICY": "ACTIVE"}
        settle_threads(environment, root)
        assert environment == {name: "6", "OMP_WAIT_POLICY": "ACTIVE"}
