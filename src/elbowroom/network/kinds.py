"""What features can be declared to be. Names only, which the command line lists before anything large is loaded."""

from __future__ import annotations

from typing import Literal, get_args

Kind = Literal["", "number", "whole number", "ordered levels", "category", "yes/no", "fixed"]  # "": nobody said

KINDS: tuple[Kind, ...] = get_args(Kind)

__all__ = ["KINDS", "Kind"]
