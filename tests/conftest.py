"""How much the tests generate: ELBOWROOM_CASES=full asks for all cases, the default for a twenty-fifth.

Cases are derandomised: the same ones on every run. No deadline, since machines differ.
"""

import gc
import os
import warnings
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings

SLOW_IS_FINE = (HealthCheck.too_slow, HealthCheck.data_too_large)

settings.register_profile(
    "default", max_examples=10, derandomize=True, deadline=None, suppress_health_check=SLOW_IS_FINE
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
