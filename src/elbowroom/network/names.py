"""Words for people: what a network's classes are called, how many things there are, text that can be shown."""

from __future__ import annotations

from elbowroom.network.graph import Network


def class_title(net: Network, label: int) -> str:
    """A class by its name; else by its number."""
    classes = net.about.classes or ()
    return classes[label] if 0 <= label < len(classes) else f"class {label}"


def counted(count: int, one: str, many: str | None = None) -> str:
    """A number of things, in words: "1 input", "1,200 inputs"."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def printable(text: str) -> str:
    """Without control characters: names and messages may come from files."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


__all__ = ["class_title", "counted", "printable"]
