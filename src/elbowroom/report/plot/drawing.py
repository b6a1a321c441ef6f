"""What all pictures share: colours, plain ticks, and how they come into files."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from elbowroom.errors import InputError

Files = Path | Sequence[Path]
NORMAL, ROBUST = "#d9772b", "#2b6cb0"


def need_matplotlib() -> None:
    """An error in words where pictures cannot be drawn; worth asking before long work that ends in one."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise InputError("pictures need matplotlib, which is not installed: pip install 'elbowroom[demo]'") from None


def save(path: Files, size: tuple[float, float], draw: Callable[[Any], None]) -> tuple[Path, ...]:
    """Draws once, writes every file asked for (the ending decides the format)."""
    need_matplotlib()
    import matplotlib
    from matplotlib.figure import Figure

    files = (path,) if isinstance(path, Path) else tuple(path)
    # A fixed salt and no date: the same picture is the same file.
    style: Any = {"svg.hashsalt": "elbowroom", "font.size": 10, "figure.constrained_layout.h_pad": 0.07}
    with matplotlib.rc_context(style):
        # Not through pyplot, which would open the caller's backend; files are drawn by Agg as it is.
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        for file in files:
            file.parent.mkdir(parents=True, exist_ok=True)
            metadata = {"Date": None} if file.suffix == ".svg" else None
            figure.savefig(file, dpi=160, metadata=metadata)
    return files


def plain_ticks(axis: Any, least: float, most: float, steps: Sequence[int] = (1, 2, 5)) -> None:
    """Ticks at `steps` times powers of ten, as plain numbers: a log axis without exponents."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    decades = range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
    ticks = [m * 10.0**d for d in decades for m in steps]
    inside = [t for t in ticks if least * 0.999 <= t <= most * 1.001]
    axis.set_major_locator(FixedLocator(inside))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
