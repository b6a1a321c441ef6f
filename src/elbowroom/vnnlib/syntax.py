"""The text of a VNN-LIB file as nested parts, each with its place, and its numbers as fractions.

The language is that of SMT-LIB: words and parentheses, comments from a semicolon to the end of the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from elbowroom.errors import InputError

DEEPEST = 100  # parentheses within parentheses
LONGEST_NUMBER = 2000  # characters; the longest float64 has 1,077 with all its decimals
LARGEST_EXPONENT = 1000
MOST_BITS = 1 << 14  # of a numerator or denominator that arithmetic may lead to

_TOKEN = re.compile(
    r"""(?P<skip>;[^\n]*) | (?P<open>\() | (?P<close>\)) | (?P<word>"[^"]*" | \|[^|]*\| | [^\s();"|]+) | (?P<bad>\S)""",
    re.VERBOSE,
)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE]([+-]?\d+))?", re.ASCII)


class Part(NamedTuple):
    """A word, or a list in parentheses (`word` is empty then), and where in the text it begins."""

    at: int
    word: str = ""
    parts: list[Part] = []  # noqa: RUF012 (words share it, and never add to it)

    @property
    def head(self) -> str:
        """The word a list begins with, as in `(head ...)`; empty if there is none."""
        return self.parts[0].word if self.parts else ""

    @property
    def rest(self) -> list[Part]:
        """What follows the head of a list."""
        return self.parts[1:]


@dataclass(frozen=True)
class Source:
    """A text, and what to call it in messages."""

    text: str
    name: str

    def line(self, at: int) -> int:
        return self.text.count("\n", 0, at) + 1

    def error(self, at: int, what: str) -> InputError:
        return InputError(f"{self.name}, line {self.line(at)}: {what}")

    def quote(self, part: Part) -> str:
        """The beginning of a part's text, for messages."""
        return shortened(part.word or (f"({part.head} ...)" if part.head else "(...)"))


def shortened(text: str, most: int = 40) -> str:
    """Text from a file as one printable line that is not too long."""
    shown = "".join(c if c.isprintable() else "?" for c in text[: most + 1])
    return shown if len(text) <= most else shown[:most] + "..."


def parts_of(source: Source) -> Iterator[Part]:
    """The lists a text is made of, one after the other; raises an `InputError` that names the line."""
    open_lists: list[Part] = []
    for token in _TOKEN.finditer(source.text):
        kind, at = token.lastgroup, token.start()
        if kind == "word":
            if not open_lists:
                raise source.error(at, f"{shortened(token.group())} stands outside all parentheses")
            open_lists[-1].parts.append(Part(at, token.group()))
        elif kind == "open":
            if len(open_lists) == DEEPEST:
                raise source.error(at, f"more than {DEEPEST} parentheses are open here")
            open_lists.append(Part(at, parts=[]))
        elif kind == "close":
            if not open_lists:
                raise source.error(at, "a closing parenthesis without an opening one")
            part = open_lists.pop()
            if open_lists:
                open_lists[-1].parts.append(part)
            else:
                yield part
        elif kind == "bad":
            raise source.error(at, f"a quotation mark {token.group()} that is never closed")
    if open_lists:
        raise source.error(open_lists[-1].at, "an opening parenthesis without a closing one")


def number_of(source: Source, part: Part) -> Fraction | None:
    """The number a word stands for, exactly; None if it is none."""
    if part.word[:1] not in "+-.0123456789" or part.word in ("+", "-", ""):
        return None
    if len(part.word) > LONGEST_NUMBER:
        raise source.error(part.at, f"a number of {len(part.word)} characters; at most {LONGEST_NUMBER} are read")
    found = _NUMBER.fullmatch(part.word)
    if found is None:
        raise source.error(part.at, f"{source.quote(part)} is not a number")
    if found[1] is not None and abs(int(found[1])) > LARGEST_EXPONENT:
        raise source.error(part.at, f"the exponent of {source.quote(part)} is beyond {LARGEST_EXPONENT}")
    return Fraction(part.word)


def refuse_long(source: Source, part: Part, values: Sequence[Fraction]) -> None:
    """Raises an `InputError` where sums and products have made a number too long to work with."""
    if any(max(v.numerator.bit_length(), v.denominator.bit_length()) > MOST_BITS for v in values):
        raise source.error(part.at, "arithmetic leads to a number with thousands of digits")
