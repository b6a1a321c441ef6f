"""Shared by the tests of torch modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn


class Calls(nn.Module):
    """A module whose forward is `f(self, x)`, with whatever submodules and buffers it needs."""

    def __init__(self, f: Callable[..., Any], **parts: nn.Module | Tensor) -> None:
        super().__init__()
        self.f = f
        for name, part in parts.items():
            if isinstance(part, nn.Module):
                self.add_module(name, part)
            else:
                self.register_buffer(name, part)

    def forward(self, x: Tensor) -> Tensor:
        return self.f(self, x)
