"""Tables as Markdown and CSV, and their places in a page."""

import csv
import io
from pathlib import Path

import pytest

from elbowroom.errors import InputError
from elbowroom.paper.compare import claims
from elbowroom.paper.tables import Column, Table, fill, number, percent

COLUMNS = (Column("name"), Column("size", number(2)), Column("share %", percent(1)))


def test_markdown_is_for_people_and_csv_is_exact() -> None:
    table = Table("t", COLUMNS, [["a, b", 1 / 3, 0.5], ["c", None, 2 / 3]], "a note")
    assert table.markdown().split("\n") == [
        "| name | size | share % |", "|---|---:|---:|", "| a, b | 0.33 | 50.0 |", "| c | – | 66.7 |", "", "a note",
    ]  # fmt: skip
    assert list(csv.reader(io.StringIO(table.csv()))) == [
        ["name", "size", "share %"], ["a, b", repr(1 / 3), "0.5"], ["c", "", repr(2 / 3)],
    ]  # fmt: skip


def test_rows_must_fit() -> None:
    with pytest.raises(ValueError, match="2 values for 3 columns"):
        Table("t", COLUMNS, [["a", 1.0]])


def test_files(tmp_path: Path) -> None:
    files = Table("t", COLUMNS, []).write(tmp_path / "deep")
    assert [f.name for f in files] == ["t.md", "t.csv"] and files[1].read_text() == "name,size,share %\n"


def test_filling_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- a -->\n<!-- end of a -->\n<!-- b -->\nx\ny\n<!-- end of b -->\nend\n")
    assert fill(page, {"a": "1\\g<0>", "c": "no place"}) == ["a"]
    assert page.read_text() == "<!-- a -->\n1\\g<0>\n<!-- end of a -->\n<!-- b -->\nx\ny\n<!-- end of b -->\nend\n"
    assert fill(page, {"a": "2", "b": "3\n4"}) == ["a", "b"]
    assert page.read_text() == "<!-- a -->\n2\n<!-- end of a -->\n<!-- b -->\n3\n4\n<!-- end of b -->\nend\n"
    page.write_text("<!-- end of a -->\n")
    with pytest.raises(InputError, match="does not begin"):
        fill(page, {"a": "1"})


def test_nothing_to_compare_is_no_verdict() -> None:
    lines = claims([], []).splitlines()
    assert lines and all("not looked at, there are no " in line for line in lines)
