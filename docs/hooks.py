"""What mkdocs adds to the pages of this folder: the commands' own help, pages of the repository's root, the gallery.

`make docs` runs it. Links that leave this folder lead to the pages made here.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
# Files of the root that are pages of the site, and how pages of docs/ link to them.
PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
COMMANDS = "<!-- commands -->"


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages of the root."""
    for name, page in PAGES.items():
        text = (ROOT / name).read_text()
        for other, its_page in PAGES.items():
            text = text.replace(f"({other}", f"({its_page}")
        text = re.sub(r"\]\(docs/", "](", text)
        text = re.sub(r"\[([^]]+)\]\(\.[\w.-]+\)", r"`\1`", text)  # files whose names begin with a dot are no pages
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links to the root lead to its pages; the commands' help is put in."""
    for name, its_page in PAGES.items():
        markdown = markdown.replace(f"(../{name}", f"({its_page}")
    markdown = re.sub(r"\[([^]]+)\]\(\.\./[\w./-]+\.py\)", r"\1", markdown)  # sources are no pages: their name stays
    markdown = re.sub(r"(?m)^\|.*$", lambda row: _plain_code(row[0]), markdown)
    if COMMANDS in markdown:
        markdown = markdown.replace(COMMANDS, commands())
    return markdown


def _plain_code(row: str) -> str:
    """A table's row without the backslashes that forges want before | in code: here they would be shown."""
    return re.sub(r"`[^`]*`", lambda code: code[0].replace("\\|", "|"), row)


def commands() -> str:
    """Every command with its arguments and flags, from what `--help` is made of."""
    import typer

    from elbowroom.commands.app import app

    group = typer.main.get_command(app)
    parts = []
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        context = typer.Context(command, info_name=f"elbowroom {name}")
        usage = " ".join(command.collect_usage_pieces(context))
        parts += [f"## elbowroom {name}", "", f"```text\nelbowroom {name} {usage}\n```", "", *_text(command.help or "")]
        panels: dict[str, list[str]] = {}
        for parameter in command.params:
            panel = getattr(parameter, "rich_help_panel", None) or "Arguments and options"
            panels.setdefault(panel, []).append(_row(parameter))
        for panel, rows in panels.items():
            parts += ["", f"| {panel} | |", "|---|---|", *rows]
        parts.append("")
    return "\n".join(parts)


def _text(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines()]


def _row(parameter: Any) -> str:
    shown = ", ".join(f"`{flag}`" for flag in (*parameter.opts, *parameter.secondary_opts) if flag.startswith("-"))
    value = parameter.metavar or parameter.name.upper()
    takes = "" if getattr(parameter, "is_flag", False) else f" `{value}`"
    said = (getattr(parameter, "help", None) or "").replace("|", "\\|")
    return f"| {(shown + takes).strip()} | {said} |"  # in code, | ends no cell
