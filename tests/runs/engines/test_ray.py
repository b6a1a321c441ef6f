"""Workers on a Ray cluster: the same results, and deaths of workers and nodes survived."""

import builtins
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import elbowroom as er
from elbowroom.certificates.result import Certificates
from elbowroom.errors import InputError
from elbowroom.runs.engines.ray import _Actor, connected
from elbowroom.runs.engines.transport import network_bytes
from elbowroom.runs.engines.worker import Part
from elbowroom.runs.runner import Start, run_dataset
from elbowroom.runs.settings import Settings
from elbowroom.runs.summary import Tally
from elbowroom.version import __version__
from runs.small import assert_same_rows, assert_same_within, dataset, files, labels_for, network, points

COUNT = 60
NET = network(sizes=(10, 30, 30, 4))
X = points(COUNT, n=10)
DATA = dataset(X, labels_for(NET, X, wrong=(7, 50)))
STORE = 100 << 20  # bytes

linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


def run(out: Path, watch: Any | None = None, resume: bool = False, **given: str) -> Certificates:
    quick = {"bounds": "simple", "solver_options": {"gradients": 1}}  # it is not the search that is looked at
    found = Settings.of({"part_rows": 3, "device": "cpu", "engine": "ray", **quick, **given})
    done = run_dataset(NET, DATA, out, found, watch=watch, resume=resume)
    assert done.complete and sorted(p.name for p in out.iterdir()) == ["network.elbowroom", "parts", "run.json"]
    certs = er.Certificates.load(out)
    assert certs.index.tolist() == list(range(COUNT)) and certs.status.count("misclassified") == 2
    return certs


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """The run in this process."""
    return run(tmp_path_factory.mktemp("here"), engine="local")


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    return pytest.importorskip("ray")


@pytest.fixture
def two_cores(ray: ModuleType) -> Iterator[ModuleType]:
    ray.init("local", num_cpus=2, object_store_memory=STORE, include_dashboard=False, log_to_driver=False,
             logging_level="ERROR")  # fmt: skip
    yield ray
    ray.shutdown()


class Interferer:
    """Does something once, after so many inputs."""

    def __init__(self, after: int, act: Callable[..., Any]) -> None:
        self.after, self.act, self.workers = after, act, 0

    def begin(self, start: Start) -> None:
        self.workers = start.workers

    def advance(self, tally: Tally) -> None:
        if self.act and tally.count >= self.after:
            self.act()
            self.act = None


@linux
def test_a_cluster_on_this_machine(two_cores: ModuleType, here: Certificates, tmp_path: Path) -> None:
    """As many workers as there is room for; one is killed under way."""
    watch = Interferer(20, lambda: os.kill(_pids()[0], signal.SIGKILL))
    found = run(tmp_path, watch)
    assert watch.act is None and watch.workers == 2 and two_cores.is_initialized()
    assert_same_rows(here, found)


def command_lines() -> dict[int, str]:
    """Of the processes of this machine, by number."""
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended
            found[int(place.name)] = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return found


def _pids() -> list[int]:
    """Of workers on this machine; Ray gives their processes the name of the class."""
    return [pid for pid, line in command_lines().items() if line.startswith("ray::_Actor")]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("batch", [1, 64])
def test_the_same_everywhere(ray: Any, here: Any, tmp_path: Path, workers: int, batch: int) -> None:
    ray.init("local", num_cpus=4, object_store_memory=STORE, include_dashboard=False, log_to_driver=False)
    try:
        far = run(tmp_path / "ray", workers=workers, batch=batch)
    finally:
        ray.shutdown()
    near = run(tmp_path / "local", engine="local", workers=workers, batch=batch)
    assert_same_within(here, far)
    assert_same_within(near, far)


@pytest.mark.slow
def test_a_node_dies(ray: Any, here: Any, tmp_path: Path) -> None:
    """Two nodes of two cores; one goes, with its workers and what they hold. There is no room for others then."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 2, "object_store_memory": STORE, "include_dashboard": False},
    )
    try:
        node = cluster.add_node(num_cpus=2, object_store_memory=STORE)
        cluster.wait_for_nodes()
        undisturbed = run(tmp_path / "a", address=cluster.address)
        watch = Interferer(25, lambda: cluster.remove_node(node, allow_graceful=False))
        found = run(tmp_path / "b", watch, address=cluster.address)
        assert watch.act is None and watch.workers == 4
        assert_same_rows(undisturbed, found)
        assert_same_within(here, found)
        node = cluster.add_node(num_cpus=2, object_store_memory=STORE)  # and one comes
        assert_same_rows(undisturbed, run(tmp_path / "c", address=cluster.address))
    finally:
        ray.shutdown()
        cluster.shutdown()


@linux
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_stopped(ray: Any, tmp_path: Path, number: Any) -> None:
    """The command, with a cluster of its own: it stops in good order, and takes that cluster with it, also where it
    is killed."""
    model, data = files(tmp_path, 4000)
    out = tmp_path / "run"
    arguments = ("--out", out, "--device", "cpu", "--engine", "ray", "--workers", 2, "--part-rows", 10)
    with subprocess.Popen(
        [sys.executable, "-m", "elbowroom", "certify", model, data, *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        until(lambda: list((out / "parts").glob("*.parquet")))
        session = re.findall(r"--session-name=(\S+)", "\n".join(command_lines().values()))
        assert session
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # as a terminal does it
        else:
            process.send_signal(number)
        _, errors = process.communicate(timeout=120)
    certs = er.Certificates.load(out)
    assert 10 <= len(certs) < 4000 and "Traceback" not in errors
    if number != signal.SIGKILL:
        assert process.returncode == 130, errors
        assert errors.splitlines()[-1].startswith(f"elbowroom: stopped at {len(certs):,} of 4,000 inputs, all saved")
        assert len(errors.splitlines()) < 12, errors  # Ray is quiet
    until(lambda: not any(name in line for line in command_lines().values() for name in session))


def until(condition: Any, seconds: int = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.05)


# --- without a cluster


def test_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: dict[str, Any] | int | None, **more: Any) -> Any:
        if name == "ray":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(InputError, match=r"needs Ray: pip install 'elbowroom\[ray\]'"), connected(Settings()):
        pass


def test_devices(ray: ModuleType) -> None:
    with (
        pytest.raises(InputError, match="the device is cpu or cuda, not 'cuda:1'"),
        connected(Settings(device="cuda:1")),
    ):
        pass


@pytest.mark.parametrize("address", ["nosuch", "127.0.0.1:1", "127.0.0.1:99999", ":0"])
def test_addresses_that_are_none(ray: ModuleType, address: str) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(InputError, match=f"no Ray cluster .* at {address}: "), connected(Settings(address=address)):
        pass
    assert signal.getsignal(signal.SIGTERM) == before


def test_other_versions_are_refused() -> None:
    actor = _Actor("0.0.0", network_bytes(NET), Settings(device="cpu").plain(), 1, None)
    kind, words = actor.state()
    assert kind == "failed" and "install the same everywhere" in words


def test_actors_are_given_directions() -> None:
    told = Settings(device="cpu", region="oblique", memory="1GiB").plain()
    basis = np.linalg.qr(np.random.default_rng(0).normal(size=(10, 10)))[0]
    actor = _Actor(__version__, network_bytes(NET), told, 1, basis)
    assert actor.state() == ("ready", None)
    kind, found = actor.compute(vars(Part(0, np.arange(2), points(2, n=10), None, {}, {})))
    assert kind == "done" and (found["basis"] == basis).all() and found["settings"]["region"] == "Oblique(Box)"
    kind, words = _Actor(__version__, network_bytes(NET), told, 1, None).state()
    assert kind == "failed" and "needs the directions that were found for its run" in words
