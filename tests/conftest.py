"""How much the tests generate: ELBOWROOM_CASES=full asks for all cases, the default for about a sixteenth.

Cases are derandomised: the same ones on every run. No deadline, since machines differ.
"""

import functools
import gc
import os
import sys
import warnings
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings

SLOW_IS_FINE = (HealthCheck.too_slow, HealthCheck.data_too_large)

settings.register_profile(
    "default", max_examples=16, derandomize=True, deadline=None, suppress_health_check=SLOW_IS_FINE
)
settings.register_profile("full", settings.get_profile("default"), max_examples=250)
settings.load_profile("full" if os.environ.get("ELBOWROOM_CASES") == "full" else "default")

torch.set_num_threads(1)  # the cases are small, and test runners use a process per core


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """What is imported and collected stays: to look for garbage in it, again and again, takes a fifth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        _export_for_devices_of_tests()


def _export_for_devices_of_tests() -> None:
    """torch.export prepares all operators for the twelve kinds of device there are, each time, and lists all of them
    26 times: half of the time in which a module is read. Prepared for those of tests alone, and listed once, programs
    are the same. Where torch does this differently, it takes its time."""
    exported, utils = (sys.modules.get(name) for name in ("torch.export.exported_program", "torch._export.utils"))
    keys = torch._C.DispatchKey
    for name, kept in (
        ("_AUTOGRAD_ALIAS_BACKEND_KEYS_TO_OVERRIDE", [keys.AutogradCPU, keys.AutogradCUDA, keys.AutogradMeta]),
        ("_BACKEND_KEYS_TO_OVERRIDE", [keys.CPU, keys.CUDA, keys.Meta]),
    ):
        if isinstance(getattr(exported, name, None), list):
            setattr(exported, name, kept)
    if hasattr(utils, "_materialize_cpp_cia_ops"):
        utils._materialize_cpp_cia_ops = functools.cache(utils._materialize_cpp_cia_ops)


@pytest.fixture(scope="session")
def shared() -> Path:
    """Data, models and reference results that are not part of the repository (ELBOWROOM_SHARED)."""
    place = Path(os.environ.get("ELBOWROOM_SHARED", Path(__file__).parents[2] / "shared"))
    if not place.is_dir():
        pytest.skip(f"no reference data: {place} is not there; set ELBOWROOM_SHARED to its place")
    return place


@pytest.fixture(scope="session")
def marabou() -> Any:
    """Marabou, where it is installed."""
    pytest.importorskip("maraboupy")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it has no tensorflow
        from maraboupy import Marabou
    return Marabou
