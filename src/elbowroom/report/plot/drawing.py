"""What all pictures share: colours, plain ticks, and how they come into files."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elbowroom.errors import InputError
from elbowroom.network.names import printable

Files = Path | Sequence[Path]
NORMAL, ROBUST = "#d9772b", "#2b6cb0"
ENDINGS = (".png", ".svg", ".pdf")
_LONGEST = 36  # characters of a name beside a picture
_STYLE: Any = {"svg.hashsalt": "elbowroom", "font.size": 10, "figure.constrained_layout.h_pad": 0.07}


@dataclass(frozen=True)
class Drawing:
    """A picture that is still to be drawn: its size in inches, what draws it on axes, and what draws something on
    axes of its own beside it, where the figure is ours."""

    size: tuple[float, float]
    draw: Callable[[Any], None]
    beside: Callable[[Any], None] | None = None

    def on(self, ax: Any = None) -> Any:
        """Draws on these axes, or in a figure of its own; returns the axes."""
        need_matplotlib()
        # Outside of the style: loading pyplot sets up a notebook, which leaving the style would undo.
        figure = _figure(self.size) if ax is None else None
        with _styled():
            ax = self._axes(figure) if ax is None else ax
            self.draw(ax)
        return ax

    def _axes(self, figure: Any) -> Any:
        if self.beside is None:
            return figure.subplots()
        left, right = figure.subplots(1, 2)
        self.beside(left)
        return right

    def save(self, path: Files) -> tuple[Path, ...]:
        """Writes it into files."""
        return save(path, self.size, lambda figure: self.draw(self._axes(figure)))


def _figure(size: tuple[float, float]) -> Any:
    """A figure. Through pyplot only where that shows it: in a notebook, or where the caller uses it already."""
    from matplotlib.figure import Figure

    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is None and "matplotlib.pyplot" not in sys.modules:
        return Figure(figsize=size, layout="constrained")
    import matplotlib.pyplot

    return matplotlib.pyplot.figure(figsize=size, layout="constrained")


def _styled() -> Any:
    import matplotlib

    # Names are no formulas, whatever the caller's settings make of text.
    return matplotlib.rc_context({"text.usetex": False})


def as_text(text: str, most: int = _LONGEST) -> str:
    """A name as a picture shows it: no control characters, no formula between dollars, and not too long."""
    shown = printable(text)
    if len(shown) > most:
        head = (most - 1) * 2 // 3
        shown = f"{shown[:head]}…{shown[len(shown) - (most - 1 - head) :]}"
    return shown.replace("$", r"\$")


def as_texts(names: Sequence[str]) -> list[str]:
    """Names as a picture shows them; those that shortening makes alike are told apart by their numbers."""
    shown = [as_text(name) for name in names]
    return [f"{text} [{k}]" if shown.count(text) > 1 else text for k, text in enumerate(shown)]


def must_be_picture(path: Path) -> None:
    """Refuses names of files that pictures are not written into."""
    if path.suffix.lower() not in ENDINGS:
        raise InputError(f"a picture's file ends in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}, which {path} does not")


def need_matplotlib() -> None:
    """An error in words where pictures cannot be drawn; worth asking before long work that ends in one."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise InputError("pictures need matplotlib, which is not installed: pip install 'elbowroom[plot]'") from None


def save(path: Files, size: tuple[float, float], draw: Callable[[Any], None]) -> tuple[Path, ...]:
    """Draws once, writes every file asked for (the ending decides the format)."""
    need_matplotlib()
    import matplotlib
    from matplotlib.figure import Figure

    files = (path,) if isinstance(path, Path) else tuple(path)
    # A fixed salt and no date: the same picture is the same file.
    with matplotlib.rc_context(_STYLE), _styled():
        # Not through pyplot, which would open the caller's backend; files are drawn by Agg as it is.
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        for file in files:
            file.parent.mkdir(parents=True, exist_ok=True)
            metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(file.suffix.lower())
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
