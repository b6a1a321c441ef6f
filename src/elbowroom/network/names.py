"""What people call a network's classes."""

from __future__ import annotations

from elbowroom.network.graph import Network


def class_title(net: Network, label: int) -> str:
    """A class by its name; else by its number."""
    classes = net.about.classes or ()
    return classes[label] if 0 <= label < len(classes) else f"class {label}"


__all__ = ["class_title"]
