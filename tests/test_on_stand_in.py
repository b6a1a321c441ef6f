"""What a GPU would be the first to tell, where there is none: tests that need one run on a stand-in, in processes of
their own, since torch looks for devices once. See `device/stand_in.py`."""

import subprocess
import sys
from pathlib import Path

import pytest

from device import hooks

ROOT = Path(__file__).parents[1]
# Tests that compare kernels of Triton's with torch's are not among them: these a GPU alone can run.
PARTS = {
    "itself": ["tests/device/test_stand_in.py", "tests/machine/test_recorder.py"],
    "certificates": ["tests/device/test_gpu.py", "-k", "certificates"],
    "other calls": ["tests/device/test_gpu.py", "-k", "not certificates"],
    "search": [
        "tests/search/test_recorded.py::test_on_a_gpu", "tests/search/test_newton.py::test_on_a_gpu",
        "tests/search/test_solvers.py::test_where_margins_jump_on_a_gpu[24]",
    ],
}  # fmt: skip


@pytest.mark.skipif(hooks.refusal() is not None, reason=str(hooks.refusal()))
@pytest.mark.parametrize("part", PARTS)
def test_on_a_stand_in(part: str) -> None:
    run = [sys.executable, "tests/device/on_stand_in.py", *PARTS[part], "-q", "-m", "", "-o", "addopts="]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, timeout=900)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-6000:]
    assert "passed" in said and "skipped" not in said, said[-2000:]
