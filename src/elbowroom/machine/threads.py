"""How many threads torch works on: as many as the caller has, or fewer where these would mostly wait for one another.

Of two threads that share an operation one waits for the other, by trying again and again. Where other work keeps that
one from running, a millisecond's operation takes many: small networks take some ten times as long as on one thread.

The number belongs to the thread of the program that asks for it, and new threads begin with the last one that anybody
asked for. So where ours is lowered another thread puts the latter right at once, and nobody else sees a difference.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from elbowroom.machine.cores import usable_cores

_LOCK = threading.Lock()
_SIZE, _TRIES, _PAYS = 384, 5, 0.8  # of a product that is tried, how often, and the time it may take, of one thread's


class _Here(threading.local):
    told = False  # somebody has said how many
    before: int | None = None  # how many there were, where they are fewer now
    depth = 0


_HERE = _Here()


def _set(count: int, others: int) -> None:
    with _LOCK:
        torch.set_num_threads(count)
        restoring = threading.Thread(target=torch.set_num_threads, args=(others,))
        restoring.start()
        restoring.join()


@contextmanager
def own_threads() -> Iterator[None]:
    """What `at_most` does inside ends here; of scopes inside of others, with the outermost."""
    _HERE.depth += 1
    try:
        yield
    finally:
        _HERE.depth -= 1
        if not _HERE.depth and _HERE.before is not None:
            torch.set_num_threads(_HERE.before)
            _HERE.before = None


def at_most(count: int) -> None:
    """Within `own_threads`, from here on no more threads than so many; not where a user has said how many."""
    now = torch.get_num_threads()
    if _HERE.depth and not _HERE.told and count < now:
        if _HERE.before is None:
            _HERE.before = now
        _set(count, _HERE.before)


def may_be_lowered() -> bool:
    """Whether `at_most` may do anything."""
    return bool(_HERE.depth) and not _HERE.told and torch.get_num_threads() > 1


@contextmanager
def using_threads(count: int | None) -> Iterator[None]:
    """With so many threads, as a user has said, and then as many as before; None: nobody has."""
    before, told = torch.get_num_threads(), _HERE.told
    if count is not None:
        torch.set_num_threads(count)
        _HERE.told = True
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _HERE.told = told


def threads_pay() -> bool:
    """Whether a product is faster on all threads than on one, as things are on this machine. Takes some
    milliseconds."""
    many, a = torch.get_num_threads(), torch.ones(_SIZE, _SIZE)
    others = _HERE.before or many
    alone: list[float] = []
    together: list[float] = []
    try:
        for number in range(_TRIES + 1):
            for count, taken in ((1, alone), (many, together)):
                _set(count, others)
                started = time.perf_counter()
                a @ a
                if number:  # the first starts the threads
                    taken.append(time.perf_counter() - started)
    finally:
        _set(many, others)
    return bool(statistics.mean(together) < _PAYS * statistics.median(alone))


def cores_here() -> int:
    """What torch uses by itself (what the user has set, if anything), as far as this process may use it."""
    return min(torch.get_num_threads(), usable_cores())


__all__ = ["at_most", "cores_here", "may_be_lowered", "own_threads", "threads_pay", "using_threads"]
