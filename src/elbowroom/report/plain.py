"""What is found, for programs: JSON on stdout."""

from __future__ import annotations

import json
from typing import Any


def print_json(value: Any) -> None:
    print(json.dumps(plain(value), indent=1, allow_nan=False))


def plain(value: Any) -> Any:
    """As JSON holds it: a number that is not finite, which a file may state, becomes null."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not abs(value) < float("inf") else value
