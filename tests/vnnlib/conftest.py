"""Marabou, where it is installed."""

import warnings
from typing import Any

import pytest


@pytest.fixture(scope="session")
def marabou() -> Any:
    pytest.importorskip("maraboupy")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it has no tensorflow
        from maraboupy import Marabou
    return Marabou
