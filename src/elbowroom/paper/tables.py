"""Tables as Markdown and CSV, and their places in a page that is otherwise written by people."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elbowroom.errors import InputError

Format = Callable[[Any], str]


def number(digits: int) -> Format:
    return lambda value: f"{value:.{digits}f}"


def percent(digits: int) -> Format:
    """Of a share."""
    return lambda value: f"{100 * value:.{digits}f}"


@dataclass(frozen=True)
class Column:
    """`name`: the head, plain. `show`: how a value looks in Markdown; the CSV holds it as it is."""

    name: str
    show: Format = str


@dataclass(frozen=True)
class Table:
    """`rows`: a value per column; None where there is none, which the reader sees as a dash."""

    name: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]
    note: str = ""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"table {self.name}: {len(row)} values for {len(self.columns)} columns")

    def markdown(self) -> str:
        lines = ["| " + " | ".join(c.name for c in self.columns) + " |"]
        lines.append("|" + "|".join("---:" if self._is_number(k) else "---" for k in range(len(self.columns))) + "|")
        for row in self.rows:
            cells = ("–" if v is None else c.show(v) for c, v in zip(self.columns, row))
            lines.append("| " + " | ".join(cells) + " |")
        return "\n".join(lines) + (f"\n\n{self.note}" if self.note else "")

    def csv(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([c.name for c in self.columns])
        writer.writerows(["" if v is None else v for v in row] for row in self.rows)
        return text.getvalue()

    def write(self, folder: Path) -> tuple[Path, Path]:
        """`NAME.md` and `NAME.csv`."""
        folder.mkdir(parents=True, exist_ok=True)
        files = folder / f"{self.name}.md", folder / f"{self.name}.csv"
        files[0].write_text(self.markdown() + "\n", encoding="utf-8")
        files[1].write_text(self.csv(), encoding="utf-8")
        return files

    def _is_number(self, column: int) -> bool:
        held = [row[column] for row in self.rows if row[column] is not None]
        return bool(held) and all(isinstance(v, int | float) for v in held)


def fill(page: Path, parts: Mapping[str, str]) -> list[str]:
    """Puts each part into its place in a page, between `<!-- NAME -->` and `<!-- end of NAME -->`.

    Returns the names of the places that were filled. A place without a part stays as it is.
    """
    text = page.read_text(encoding="utf-8")
    names = re.findall(r"<!-- end of ([\w-]+) -->", text)
    filled = []
    for name in names:
        place = re.compile(rf"(<!-- {name} -->\n).*?(\n?<!-- end of {name} -->)", re.DOTALL)
        if not place.search(text):
            raise InputError(f"{page}: the place {name} ends, but does not begin")
        if name in parts:
            text = place.sub(lambda m, part=parts[name]: f"{m[1]}{part}\n{m[2].lstrip()}", text)  # type: ignore[misc]
            filled.append(name)
    page.write_text(text, encoding="utf-8")
    return filled
