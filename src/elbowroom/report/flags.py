"""Parameters that a message names, as the flags of a command.

Messages are written for callers of the library. They mark a parameter as Python would be told it, `within` or
`layout="NHWC"`, or begin with its name: "max_eps must be ...", "frozen: there is no ...". Whoever typed a command reads
--within, --layout NHWC and --max-eps instead.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

_MARKED = re.compile(r"`([a-z_]+)(?:=([^`]+))?`")
_FIRST = re.compile(r"([a-z_]+)(?= must |: )")


def as_flags(text: str, flags: Mapping[str, str]) -> str:
    """The message with each parameter that has a flag (`flags`, by name) in that form; others stay as they are."""

    def flag(match: re.Match[str]) -> str:
        name, value = match[1], match[2]
        if name not in flags:
            return match[0]
        return flags[name] if value in (None, "True") else f"{flags[name]} {_typed(value)}"

    text = _MARKED.sub(flag, text)
    first = _FIRST.match(text)
    return flags.get(first[1], first[1]) + text[first.end() :] if first else text


def _typed(value: str) -> str:
    """A value as it is typed: without quotes and brackets; a word that stands for one stays."""
    try:
        found = ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return value
    return ",".join(map(str, found)) if isinstance(found, list | tuple) else str(found)
