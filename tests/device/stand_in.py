"""A GPU stood in for: its memory is the host's, and whatever only a GPU would tell is told all the same.

After `hooks.load()` and `install()` torch says that there is a GPU, tensors on it say `cuda:0`, and the CPU's kernels
work on them. As on a GPU these are errors:

- operands on two devices;
- to ask the device for numbers, or to copy from or to it, while work is recorded (CUDA graphs).

And what is recorded has not run: until it is replayed the tensors that it makes are NaN, and those that it writes to
are as before. Not told: speed, how a GPU rounds, what kernels in Triton's language do, and whether several streams wait
for each other; those need a real one.
"""

from __future__ import annotations

import contextlib
import math
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_unflatten

_CUDA = torch.device("cuda", 0)
_BETWEEN = {"aten.copy_.default", "aten._to_copy.default"}  # what takes operands on two devices
_WAITS = (  # parts of names
    "_local_scalar_dense", "nonzero", "masked_select", "aten.equal.", "unique", "bincount", "_linalg_check_errors",
    "linalg_eigh", "linalg_svd",
)  # fmt: skip
_recording: _Work | None = None
_memory: _Memory | None = None


class OnDevice(Tensor):
    """A tensor on the device. `inner`: what it is, on the host."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> OnDevice:
        like = {"dtype": inner.dtype, "strides": inner.stride(), "storage_offset": inner.storage_offset()}
        made = Tensor._make_wrapper_subclass(cls, inner.shape, device=_CUDA, **like)
        made.inner = inner
        if _memory is not None:
            _memory.hold(made)
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        return _done(func, args, kwargs or {})

    __torch_function__ = torch._C._disabled_torch_function_impl

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def numpy(self, **_: Any) -> Any:
        raise TypeError("can't convert cuda:0 device type tensor to numpy")

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"OnDevice({self.inner!r})"


class _Device(TorchDispatchMode):
    """Sees what has no operand on the device yet: what is made there, or copied to it."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _done(func, args, kwargs or {})


class _Work:
    """What is recorded: operations with their operands and results, and what their operands were."""

    def __init__(self) -> None:
        self._steps: list[tuple[Any, Any, Any, list[Tensor]]] = []
        self._made: set[int] = set()  # storages
        self._before: list[tuple[Tensor, Tensor]] = []  # of tensors that are written to, but not made here

    def about_to(self, func: Any, args: Any, kwargs: Any) -> None:
        for t in _written(func, args, kwargs):
            if t.untyped_storage()._cdata not in self._made:
                self._before.append((t, t.clone()))

    def note(self, func: Any, args: Any, kwargs: Any, found: list[Tensor]) -> None:
        self._steps.append((func, args, kwargs, found))
        if not _shares(func):
            self._made |= {t.untyped_storage()._cdata for t in found}

    def forget(self) -> None:
        """Nothing of it has happened."""
        with torch.no_grad():
            for func, _, _, found in self._steps:
                for t in () if _shares(func) else found:
                    t.fill_(math.nan if t.is_floating_point() else True if t.dtype == torch.bool else 0)
            for t, before in reversed(self._before):
                t.copy_(before)

    def again(self) -> None:
        with _disable_current_modes(), torch.no_grad():
            for func, args, kwargs, found in self._steps:
                new = func(*args, **kwargs)
                for place, t in () if _shares(func) else zip(found, _tensors(new), strict=True):
                    place.copy_(t)


class Graph:
    """In place of `torch.cuda.CUDAGraph`."""

    recorded = replayed = 0  # by all

    def capture_begin(self, **_: Any) -> None:
        global _recording
        assert _recording is None, "something is recorded already"
        _recording = self._work = _Work()

    def capture_end(self) -> None:
        global _recording
        _recording = None
        Graph.recorded += 1
        with _disable_current_modes():
            self._work.forget()

    def replay(self) -> None:
        Graph.replayed += 1
        self._work.again()


class _Stream:
    def __init__(self, *_: Any) -> None:
        pass

    def wait_stream(self, other: _Stream) -> None:
        pass


def _done(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """What an operation gives; on the device, if an operand, or what is asked for, is there."""
    given, layout = tree_flatten((args, kwargs))
    some, asked = any(isinstance(t, OnDevice) for t in given), kwargs.get("device")
    here = some if asked is None else torch.device(asked).type == "cuda"
    if asked is not None and here and torch.device(asked).index not in (None, 0):
        raise RuntimeError(f"CUDA error: invalid device ordinal: {asked}")
    if str(func) == "aten.copy_.default":
        here = isinstance(args[0], OnDevice)
    if not here and not some:
        return func(*args, **kwargs)
    _refuse(str(func), args, given, here)
    inner = [t.inner if isinstance(t, OnDevice) else t for t in given]
    args, kwargs = tree_unflatten(inner, layout)
    if "device" in kwargs:
        kwargs["device"] = torch.device("cpu")
    if _recording is not None:
        _recording.about_to(func, args, kwargs)
    found = func(*args, **kwargs)
    if _recording is not None:
        _recording.note(func, args, kwargs, _tensors(found))
    if not here:
        return found
    own = {id(t): at for t, at in zip(inner, given, strict=True) if isinstance(at, OnDevice)}  # one that is written to

    def placed(t: Any) -> Any:
        return (own[id(t)] if id(t) in own else OnDevice(t)) if isinstance(t, Tensor) else t

    return type(found)(map(placed, found)) if isinstance(found, tuple | list) else placed(found)


def _refuse(name: str, args: Any, given: list[Any], here: bool) -> None:
    """Raises what torch would."""
    elsewhere = [t for t in given if isinstance(t, Tensor) and not isinstance(t, OnDevice)]
    between = name in _BETWEEN and (not here or bool(elsewhere))
    by = tree_flatten(args[1])[0] if name.startswith(("aten.index.", "aten.index_put", "aten._index_put")) else []
    # Single numbers may be on the host, and what is looked up by.
    strange = [t for t in elsewhere if t.dim() > 0 and not any(t is index for index in by)]
    if strange and name not in _BETWEEN:
        raise RuntimeError(f"Expected all tensors to be on the same device, but {name} has some on cpu and on cuda:0")
    masks = any(isinstance(t, Tensor) and t.dtype in (torch.bool, torch.uint8) for t in by)
    looked_up = any(t is index for t in elsewhere for index in by)
    if _recording is not None and (between or masks or looked_up or any(word in name for word in _WAITS)):
        raise RuntimeError(f"CUDA error: operation not permitted when stream is capturing: {name}")


def _tensors(found: Any) -> list[Tensor]:
    return [t for t in (found if isinstance(found, tuple | list) else [found]) if isinstance(t, Tensor)]


def _shares(func: Any) -> bool:
    """Whether what is given is a view of an operand, or one that was written to."""
    return any(r.alias_info is not None for r in func._schema.returns)


def _written(func: Any, args: Any, kwargs: dict[str, Any]) -> Iterator[Tensor]:
    for n, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield from _tensors(kwargs[argument.name] if argument.name in kwargs else args[n])


class _Memory:
    """The storages of tensors on the device, and how many tensors each has; those of before are not counted."""

    def __init__(self, room: int) -> None:
        self.room, self.held, self._tensors = room, 0, dict[int, int]()

    def hold(self, t: OnDevice) -> None:
        storage = t.inner.untyped_storage()
        key, size = storage.data_ptr(), storage.nbytes()
        if key not in self._tensors and self.held + size > self.room:
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size} bytes.")
        if key not in self._tensors:
            self.held += size
        self._tensors[key] = self._tensors.get(key, 0) + 1
        weakref.finalize(t, self._let_go, key, size)

    def _let_go(self, key: int, size: int) -> None:
        self._tensors[key] -= 1
        if not self._tensors[key]:
            del self._tensors[key]
            self.held -= size


@contextlib.contextmanager
def room(most: int) -> Iterator[_Memory]:
    """Tensors on the device may take no more bytes, together."""
    global _memory
    _memory = _Memory(most)
    try:
        yield _memory
    finally:
        _memory = None


def _left() -> int:
    return 16 << 30 if _memory is None else _memory.room - _memory.held


def _in_mode(run: Callable[[threading.Thread], None]) -> Callable[[threading.Thread], None]:
    def within(self: threading.Thread) -> None:
        with _Device():  # each thread has modes of its own
            run(self)

    return within


def install() -> None:
    """For the rest of the process."""
    cuda: Any = torch.cuda
    for name, value in {
        "is_available": True, "is_initialized": True, "device_count": 1, "current_device": 0, "_lazy_init": None,
        "get_device_name": "stand-in", "empty_cache": None, "synchronize": None, "reset_peak_memory_stats": None,
        "memory_reserved": 0, "memory_allocated": 0, "max_memory_allocated": 0,
        "graph_pool_handle": (0, 0), "current_stream": _Stream(), "manual_seed_all": None,
    }.items():  # fmt: skip
        setattr(cuda, name, lambda *_, _value=value: _value)
    cuda.Stream, cuda.CUDAGraph = _Stream, Graph
    cuda.mem_get_info = lambda *_: (_left(), _left())
    cuda.stream = lambda _: contextlib.nullcontext()
    cuda.is_current_stream_capturing = lambda: _recording is not None
    torch._C._set_only_lift_cpu_tensors(True)  # `torch.tensor(..., device="cuda")` is a copy of one on the host
    torch.Generator = _Generator
    threading.Thread.run = _in_mode(threading.Thread.run)
    _Device().__enter__()


class _Generator:
    """Random numbers for the device are drawn on the host."""

    _plain = torch.Generator

    def __new__(cls, device: Any = "cpu") -> Any:
        return cls._plain("cpu")


__all__ = ["Graph", "OnDevice", "install", "room"]
