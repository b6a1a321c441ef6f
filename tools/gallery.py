"""Runs the notebooks of docs/gallery and writes each as a page, with what it printed and drew: python tools/gallery.py

They are kept as scripts (jupytext's percent format), which any editor or Jupyter opens. `make gallery` runs this.
"""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import jupytext
from nbclient import NotebookClient

DOCS = Path(__file__).parents[1] / "docs"
HEAD = "<!-- Made by `make gallery` of {name}, which can be opened as a notebook. -->\n\n"


def main() -> None:
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    for path in sorted((DOCS / "gallery").glob("*.py")):
        page = path.with_suffix(".md")
        page.write_text(HEAD.format(name=path.name) + "\n\n".join(parts(path)).strip() + "\n")
        print(page)


def parts(path: Path) -> list[str]:
    """The page's paragraphs, blocks and pictures."""
    notebook = jupytext.read(path)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(path.parent)}}).execute()
    found, pictures = [], 0
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            found.append(cell.source)
            continue
        found.append(f"```python\n{cell.source}\n```")
        for output in cell.outputs:
            image = output.get("data", {}).get("image/png")
            if image is not None:
                pictures += 1
                name = f"gallery-{path.stem}-{pictures}.png"
                (DOCS / "figures" / name).write_bytes(base64.b64decode(image))
                found.append(f"![Picture {pictures} of this page: what the lines above draw](../figures/{name})")
            elif text(output):
                found.append(f"```text\n{text(output)}\n```")
    return found


def text(output: Any) -> str:
    said = output.get("text") or output.get("data", {}).get("text/plain", "")
    return "" if output.get("name") == "stderr" else said.rstrip()


if __name__ == "__main__":
    main()
