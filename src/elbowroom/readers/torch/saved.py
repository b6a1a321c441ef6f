"""A saved program as a module: a list of calls, run one after the other, and what the file states of their values."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from elbowroom.errors import InputError, UnsupportedError
from elbowroom.network.file import LARGEST
from elbowroom.readers.torch.takes import Takes

_GIVES_SIZE = {"view", "_unsafe_view", "reshape", "expand"}  # their second argument

# What reading a file of another make than torch's raises.
DAMAGE = (KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError)


class RoomError(UnsupportedError):
    """A value of the program has too many numbers."""


@dataclass(frozen=True)
class Name:
    """A value of the program."""

    name: str


@dataclass(frozen=True)
class Stated:
    """What the file says of a value: None where that is nothing."""

    sizes: list[int | None]
    dtype: torch.dtype | None

    def fits(self, value: Tensor) -> bool:
        sizes = len(self.sizes) == value.dim() and all(n in (None, m) for n, m in zip(self.sizes, value.shape))
        return sizes and self.dtype in (None, value.dtype)


@dataclass(frozen=True)
class Call:
    """One operation: arguments are constants, `Name`s, and lists of them; `results` likewise."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: Any


class SavedProgram(nn.Module):
    """Runs the calls one after the other. `takes`: its inputs; `batch`: the only batch size it is for, if any; `dtype`:
    of its real numbers; `output`: the name of the value it gives.

    `stated`: what the file says of its values, by name: their sizes (None for one that is an expression) and types.
    """

    def __init__(
        self, takes: Takes, batch: int | None, dtype: torch.dtype, output: str, calls: list[Call],
        tensors: Mapping[str, Tensor], stated: Mapping[str, Stated],
    ) -> None:  # fmt: skip
        super().__init__()
        self.takes, self.batch, self.dtype, self.output, self.calls = takes, batch, dtype, output, calls
        self.stated = stated
        self.buffer_names = {name: f"t{i}" for i, name in enumerate(tensors)}
        for name, tensor in tensors.items():
            self.register_buffer(self.buffer_names[name], tensor)

    def forward(self, *given: Tensor) -> Tensor:
        outputs: Tensor = self._values(given)[self.output]
        return outputs

    def _values(self, given: Sequence[Tensor]) -> dict[str, Any]:
        values: dict[str, Any] = {name: getattr(self, buffer) for name, buffer in self.buffer_names.items()}
        values.update(zip(self.takes.names, given, strict=True))
        computed = set(self.takes.names)
        for call in self.calls:
            args = [_replace(arg, values) for arg in call.args]
            kwargs = {key: _replace(arg, values) for key, arg in call.kwargs.items()}
            inputs = names_in([*call.args, *call.kwargs.values()])
            if inputs & computed:
                computed |= names_in(call.results)
                # A size of the example's batch means the batch. (Where it does not, the trace finds the batch mixed.)
                if self.batch is not None and call.name in _GIVES_SIZE and args[1][:1] == [self.batch]:
                    args[1] = [given[0].shape[0], *args[1][1:]]
            result = call.function(*args, **kwargs)
            _assign(call.results, result, values)
            for value in result if isinstance(result, tuple | list) else [result]:
                count = value.numel() if isinstance(value, Tensor) else 0
                if type(count) is int and count > LARGEST:  # a trace counts in symbols
                    raise RoomError(f"{call.name} would give {count} numbers, for which there is no room")
        return values

    def must_be_sound(self) -> None:
        """Refuses a program whose values would not fit into memory (a few bytes can ask for that) or are not as stated.

        The sizes and types that torch stated when it saved the program are the one thing in the file that calls which
        are read wrongly can be told by.
        """
        values: dict[str, Any] = {}
        with contextlib.suppress(*DAMAGE), FakeTensorMode(allow_non_fake_inputs=True):
            values = self._values(self.takes.split(torch.empty(self.batch or 2, self.takes.count), self.dtype))
        for name, value in values.items():
            if name in self.stated and isinstance(value, Tensor) and not self.stated[name].fits(value):
                raise InputError(
                    f"the file states another shape or type for its value {name!r} than its calls give, which is "
                    f"{tuple(value.shape)} of {value.dtype}; the file is damaged, or read wrongly here"
                )


def _replace(arg: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(arg, list):
        return [_replace(a, values) for a in arg]
    return values[arg.name] if isinstance(arg, Name) else arg


def names_in(arg: Any) -> set[str]:
    """The values that arguments name."""
    if isinstance(arg, list):
        return {name for a in arg for name in names_in(a)}
    return {arg.name} if isinstance(arg, Name) else set()


def _assign(names: Any, result: Any, values: dict[str, Any]) -> None:
    if isinstance(names, Name):
        values[names.name] = result
    elif isinstance(names, list):
        for name, value in zip(names, result, strict=True):
            _assign(name, value, values)
