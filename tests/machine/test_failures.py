"""Which errors say that memory ran out, and which that the device failed."""

from typing import Any

import pytest
import torch

from elbowroom.errors import InputError, NotEnoughMemoryError
from elbowroom.machine.failures import is_device_failure, is_out_of_memory
from elbowroom.machine.torch_modes import in_own_modes

NO_MEMORY = [
    MemoryError(),
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"),
    RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes"),
    RuntimeError("Cannot allocate memory"),
    RuntimeError("CUDA error: out of memory"),
]
NO_DEVICE = [RuntimeError("CUDA error: device-side assert triggered"), RuntimeError("HIP error: invalid argument")]
NEITHER = [RuntimeError("sizes do not match"), InputError("a feature is called 'out of memory'"), ValueError()]


@pytest.mark.parametrize("error", [*NO_MEMORY, *NO_DEVICE, *NEITHER], ids=str)
def test_each_error_is_known(error: Any) -> None:
    assert is_out_of_memory(error) == (error in NO_MEMORY)
    assert is_device_failure(error) == (error in NO_DEVICE)


def test_no_error_is_none() -> None:
    assert not is_out_of_memory(None)


@pytest.mark.parametrize("error", NO_MEMORY, ids=str)
def test_memory_that_runs_out_is_said_in_our_words(error: Any) -> None:
    """By whatever users call; and whoever can make do with less still knows it."""

    @in_own_modes
    def called() -> None:
        raise error

    with pytest.raises(InputError, match="is not enough for all of this at once") as caught:
        called()
    where = "GPU" if "CUDA" in str(error) else "machine"
    assert str(caught.value).startswith(f"the memory of the {where}") and str(error) in str(caught.value)
    assert is_out_of_memory(caught.value) and not is_device_failure(caught.value)
    assert caught.value.__context__ is None  # which would hold all that was being computed


@pytest.mark.parametrize("error", [*NO_DEVICE, *NEITHER, NotEnoughMemoryError("for one input")], ids=str)
def test_all_else_is_as_it_was(error: Any) -> None:
    @in_own_modes
    def called() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        called()
    assert caught.value is error
