"""Tables and figures from what was computed: tables/NAME.md and NAME.csv, figures/NAME.png and NAME.svg; and a page
that shows them."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from elbowroom.errors import InputError
from elbowroom.paper.compare import TABLES, claims
from elbowroom.paper.figures import histogram_figures, map_figures, ranking_figure
from elbowroom.paper.findings import read
from elbowroom.paper.models import BINARY, FULL, MAIN, Size
from elbowroom.paper.tables import fill

SMALLER = "**Smaller networks than the paper's, whose figures stand beside them: this shows that it works, no more.**"
PARTS = ("table1", "table2", "histograms", "bounding-maps")


def render(out: Path, size: Size, parts: Sequence[str] = PARTS, figures: bool = True) -> list[Path]:
    """Writes tables and (`figures`) figures of what is there; returns the files.

    `parts`: "table1" (the main table and all that belongs to it), "table2" (cosines and dimensions), "histograms",
    "bounding-maps".
    """
    main, binary = read(out, size, MAIN), read(out, size, BINARY)
    if not main and not binary:
        raise InputError(f"{out} holds no results of size {size.name}; compute them first")
    files: list[Path] = []
    for name, (part, make) in TABLES.items():
        found = binary if name == "maps" else main
        if part in parts and found:
            table = make(found)
            if size.shrink:
                table = replace(table, note=f"{SMALLER} {table.note}".rstrip())
            files += table.write(out / "tables")
    if "histograms" in parts and figures:
        files += [*histogram_figures(out, main), *ranking_figure(out, main)]
    if "bounding-maps" in parts and figures:
        files += map_figures(out, binary)
    path = out / "tables" / "claims.md"
    text = claims(main, binary) + (f"\n\n{SMALLER}" if size.shrink else "")
    path.write_text(text + "\n", encoding="utf-8")
    return [*files, path]


def into_docs(out: Path, size: Size, page: Path) -> list[str]:
    """Puts the tables into their places in a page, and the figures (PNG) it shows into a folder figures beside it; of
    another size than full only the tables, to places named NAME-SIZE. Returns the names of the places filled."""
    suffix = "" if size is FULL else f"-{size.name}"
    files = sorted((out / "tables").glob("*.md"))
    parts = {path.stem + suffix: path.read_text(encoding="utf-8").rstrip() for path in files}
    if size is FULL:
        figures = page.parent / "figures"
        figures.mkdir(parents=True, exist_ok=True)
        text = page.read_text(encoding="utf-8")
        for path in sorted((out / "figures").glob("*.png")):
            if f"figures/{path.name})" in text:
                shutil.copyfile(path, figures / path.name)
    return fill(page, parts)
