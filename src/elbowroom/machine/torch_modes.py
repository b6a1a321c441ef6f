"""The settings of torch that our arithmetic depends on: the same ones wherever we are called from.

Callers work in `no_grad`, `inference_mode` or `autocast`, with another default type or device, or with TF32 allowed.
None of these may change an answer, and all are as they were when we return.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from elbowroom.errors import ElbowroomError, NotEnoughMemoryError
from elbowroom.machine.failures import is_out_of_memory, place_of_memory
from elbowroom.machine.threads import own_threads

P = ParamSpec("P")
R = TypeVar("R")
_LOCK = threading.Lock()


class Held:
    """A setting of the whole process, at one value while anybody is inside `hold`, then what it was before.

    (Restored by the last to leave: of several threads each would otherwise restore what another had set.)
    """

    def __init__(self, read: Callable[[], Any], write: Callable[[Any], None], value: Any) -> None:
        self._read, self._write, self._value = read, write, value
        self._depth = 0
        self._before: Any = None

    @contextmanager
    def hold(self) -> Iterator[None]:
        with _LOCK:
            if not self._depth:
                self._before = self._read()
                self._write(self._value)
            self._depth += 1
        try:
            yield
        finally:
            with _LOCK:
                self._depth -= 1
                if not self._depth:
                    self._write(self._before)

    @contextmanager
    def released(self) -> Iterator[None]:
        """As the caller has it, for code that is the caller's."""
        held = self._depth > 0
        if held:
            self._write(self._before)
        try:
            yield
        finally:
            if held:
                self._write(self._value)


# --- float32 that is float32: no TF32 or bfloat16 inside of products and convolutions


@dataclass(frozen=True)
class _Setting:
    """How a setting is read and written, and its value for full precision."""

    read: Callable[[], Any]
    write: Callable[[Any], None]
    exact: Any


def _attributes(name: str, exact: Any, *places: str) -> list[_Setting]:
    """`torch.backends.<place>.<name>` of each place that this torch has."""
    found = []
    for place in places:
        owner: Any = torch.backends
        for part in place.split("."):
            owner = getattr(owner, part, None)
        setting = _Setting(partial(getattr, owner, name), partial(setattr, owner, name), exact)
        try:
            setting.read()
        except AttributeError:
            continue
        except RuntimeError:  # see below
            pass
        found.append(setting)
    return found


# Torch has older and newer settings for the same things, kept in step as long as callers use the older ones. After
# that the older ones may raise when they are read; and a newer one may follow a general one whatever the older says.
_OLDER = [
    _Setting(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "highest"),
    *_attributes("allow_tf32", False, "cudnn"),
]
_NEWER = _attributes("fp32_precision", "ieee", "cuda.matmul", "cudnn.conv", "cudnn.rnn", "mkldnn.matmul", "mkldnn.conv")
_UNSET = "none"  # of the newer ones: full precision, where none above it says otherwise


def _read_float32() -> list[Any]:
    """The values of the older settings (None where one cannot be read), then of the newer ones."""
    values: list[Any] = []
    for setting in _OLDER:
        try:
            values.append(setting.read())
        except RuntimeError:
            values.append(None)
    return values + [setting.read() for setting in _NEWER]


def _write_float32(values: list[Any] | None) -> None:
    """Writes what `_read_float32` gave; None: full precision."""
    older = values or [None if now in (None, s.exact) else s.exact for now, s in zip(_read_float32(), _OLDER)]
    for setting, value in zip(_OLDER, older):
        if value is not None:
            setting.write(value)
    newer = values[len(_OLDER) :] if values else [_UNSET if s.read() == _UNSET else s.exact for s in _NEWER]
    for setting, value in zip(_NEWER, newer):
        if setting.read() != value:
            setting.write(value)


DEFAULT_DTYPE = Held(torch.get_default_dtype, torch.set_default_dtype, torch.float32)
FULL_FLOAT32 = Held(_read_float32, _write_float32, None)
CUDNN_OFF = Held(
    lambda: torch.backends.cudnn.enabled, lambda value: setattr(torch.backends.cudnn, "enabled", value), False
)


@contextmanager
def own_modes() -> Iterator[None]:
    """Outside of `inference_mode` and `autocast`, default type float32 on the CPU, float32 in full precision; whether
    gradients are recorded stays the caller's choice."""
    recording = torch.is_grad_enabled()
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))  # which would turn recording on
        stack.enter_context(torch.set_grad_enabled(recording))
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        stack.enter_context(DEFAULT_DTYPE.hold())
        stack.enter_context(FULL_FLOAT32.hold())
        yield


def in_own_modes(function: Callable[P, R]) -> Callable[P, R]:
    """The function, run in `own_modes` and `own_threads`, memory that runs out said in our words: for everything that
    users call."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            with own_modes(), own_threads():
                return function(*args, **kwargs)
        except (RuntimeError, MemoryError) as error:
            if isinstance(error, ElbowroomError) or not is_out_of_memory(error):
                raise
            where, said = place_of_memory(error), str(error).partition("\n")[0]
        # Not in the handler: the error holds all that was being computed.
        raise NotEnoughMemoryError(
            f"the memory of the {where} is not enough for all of this at once; give fewer inputs at a time, or a "
            "smaller memory=..." + (f" ({said})" if said else "")
        )

    return run


def recordable(t: Tensor) -> Tensor:
    """The tensor, or a copy of one made in `inference_mode`, which autograd would refuse."""
    return t.clone() if t.is_inference() else t


__all__ = ["CUDNN_OFF", "DEFAULT_DTYPE", "FULL_FLOAT32", "Held", "in_own_modes", "own_modes", "recordable"]
