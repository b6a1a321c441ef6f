"""Recordings on a GPU. Where there is none, `test_on_stand_in` runs this on a stand-in for one."""

import threading
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

from elbowroom.machine.recorder import Recorder, is_recording

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
CUDA = torch.device("cuda")


def test_recorders_of_a_thread_share_a_stream() -> None:
    """Of every stream that products ran on, libraries keep tens of megabytes: one for each batch was 1.5 GiB."""
    streams: list[Any] = []

    def look() -> None:
        streams.append([Recorder(CUDA)._stream for _ in range(2)])

    look()
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    (here, again), (there, _) = streams
    assert here is again and here is not there
    a = torch.ones(256, 256, device=CUDA)
    held = []
    for _ in range(8):
        recorder = Recorder(CUDA)
        recorder.warm(lambda: [a @ a])
        recorder.record(lambda: [a @ a])[1]()
        held.append(torch.cuda.memory_allocated())
        del recorder
    assert held[-1] <= held[0]


def test_work_that_cannot_be_recorded() -> None:
    """It fails with its own error and without a warning, and the next recording is as any other."""
    a = torch.ones(4, device=CUDA)

    def waits() -> list[Tensor]:
        return [a + float(a.sum())]

    def fails() -> list[Tensor]:
        raise RuntimeError("a reason of its own")

    recorder = Recorder(CUDA)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for work, why in ((fails, "a reason of its own"), (waits, "capturing")):
            with pytest.raises(RuntimeError, match=why):
                recorder.record(work)
            assert not is_recording()
    (found,), replay = recorder.record(lambda: [a * 2])
    replay()
    assert found.tolist() == [2.0] * 4
