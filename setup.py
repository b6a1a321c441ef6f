"""What the package index shows: README.md, whose links and pictures lead to files that only a checkout has.

Where pyproject.toml names the repository (`[project.urls]`, `Source`), they lead there; else links are plain text, and
pictures are left out. All else is in pyproject.toml.
"""

import re
import tomllib
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).parent


def for_the_index(text: str, source: str | None) -> str:
    """README.md with links that work anywhere; `source`: where the repository's files can be read on the web."""

    def link(found: re.Match[str]) -> str:
        picture, shown, place = found.groups()
        if re.match(r"[a-z]+:|#", place):
            return found[0]
        if source is None:
            return "" if picture else shown
        kind = "raw" if picture else "blob"
        return f"{picture}[{shown}]({source.rstrip('/')}/{kind}/HEAD/{place})"

    return re.sub(r"(!?)\[([^]]*)\]\(([^)\s]+)\)", link, text)


if __name__ == "__main__":
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    text = for_the_index((HERE / "README.md").read_text(), project.get("urls", {}).get("Source"))
    setup(long_description=text, long_description_content_type="text/markdown")
