"""Who computes the parts of a run: this process, processes of this machine, or a Ray cluster."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Generator, Iterable, Iterator

from torch import Tensor

from elbowroom.certificates.result import Certificates
from elbowroom.errors import InputError
from elbowroom.machine.threads import using_threads
from elbowroom.network.graph import Network
from elbowroom.runs.engines.worker import Part, Worker
from elbowroom.runs.problem import device_of
from elbowroom.runs.settings import Settings

# From a network, settings and parts to the certificates of each, in any order. Must not take a part before it has use
# for it: the run stops by giving no more. Of a run along directions that were found, these are given as `basis`.
Engine = Callable[[Network, Settings, Iterable[Part]], Generator[tuple[int, Certificates], None, None]]


def local(
    net: Network, settings: Settings, work: Iterable[Part], basis: Tensor | None = None
) -> Generator[tuple[int, Certificates], None, None]:
    """One part after another, in this process; with `settings.threads`, where they are given, while it lasts."""
    with using_threads(settings.threads):
        worker = Worker(net, settings, basis)
        for part in work:
            yield part.number, worker.compute(part)


@contextlib.contextmanager
def engine_of(settings: Settings) -> Iterator[tuple[Engine, Settings]]:
    """The engine that the settings ask for, and the settings with the device and the number of workers it has."""
    if settings.engine == "ray":
        if settings.threads is not None:
            raise InputError("on a Ray cluster a worker has a core or a GPU; leave out `threads`")
        from elbowroom.runs.engines.ray import actors, connected

        with connected(settings) as found:
            yield actors, found
        return
    if settings.address is not None:
        raise InputError("an address is that of a Ray cluster, which only the engine ray uses: `engine='ray'`")
    found = dataclasses.replace(settings, device=str(device_of(settings)), workers=settings.workers or 1)
    yield engine_for(found), found


def engine_for(settings: Settings) -> Engine:
    """Of this machine: this process, or several."""
    if settings.workers == 1:
        return local
    from elbowroom.runs.engines.processes import processes

    return processes
