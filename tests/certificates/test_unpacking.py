"""A run takes no more memory than its rows need, whatever its files would unpack to."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import elbowroom as er
from elbowroom.certificates import parts
from elbowroom.certificates import store as files
from elbowroom.certificates.header import Plan
from elbowroom.certificates.pages import Odd, Unpacked, unpacked
from elbowroom.certificates.store import Run
from elbowroom.network import operations as ops
from forgery import edit_run
from support import cases, mlp

_HUGE = 1 << 26  # bytes that a bomb unpacks to
_READ = """
import resource, sys
import elbowroom as er
from elbowroom.certificates.store import Run
from elbowroom.runs.check import check_run
from pathlib import Path

good, bomb = map(Path, sys.argv[1:])
assert check_run(Run.open(good)).proved
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    check_run(Run.open(bomb))
    print("read")
except er.InputError as error:
    print(error)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
PART = "parts/part-00000.parquet"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    net = mlp(np.random.default_rng(0), [3, 6, 3], ops.ReLU())
    certs = er.certify(net, torch.tensor(np.random.default_rng(0).uniform(-1, 1, size=(4, 3))))
    assert certs.certified.any()
    return certs.save(tmp_path_factory.mktemp("run") / "good")


def in_a_process(good: Path, bomb: Path) -> tuple[str, float]:
    """What is said of a run, and by how many MiB reading it makes a process grow."""
    done = subprocess.run([sys.executable, "-c", _READ, good, bomb], capture_output=True, text=True, check=True)
    *said, grown = done.stdout.splitlines()
    return "\n".join(said), int(grown) / 1024


def forged(good: Path, tmp_path: Path, change: Callable[..., Any], **options: list[str]) -> Path:
    """The run with another table for its part, written with `options`."""
    bomb = tmp_path / "bomb"
    (bomb / "parts").mkdir(parents=True)
    for name in ("run.json", "network.elbowroom"):
        (bomb / name).write_bytes((good / name).read_bytes())
    given = {"compression": "zstd", "use_dictionary": False, **options}
    pq.write_table(change(pq.read_table(good / PART)), bomb / PART, **given)
    assert (bomb / PART).stat().st_size < 200_000
    return bomb


def with_text(table: Any, column: str, texts: list[str]) -> Any:
    at = table.schema.get_field_index(column)
    return table.set_column(at, table.schema.field(at), pa.array(texts, type=pa.string()))


LONG = "no " * (_HUGE // 3)


def test_one_long_text(good: Path, tmp_path: Path) -> None:
    bomb = forged(good, tmp_path, lambda t: with_text(t, "message", ["", "", "", LONG]))
    said, grown = in_a_process(good, bomb)
    assert f"the column 'message' unpacks to {len(LONG) + 16:,} bytes, more than 4 rows need" in said
    assert grown < 24


def test_one_long_text_for_all_rows(good: Path, tmp_path: Path) -> None:
    bomb = forged(good, tmp_path, lambda t: with_text(t, "message", [LONG] * 4), use_dictionary=["message"])
    said, grown = in_a_process(good, bomb)
    assert "the column 'message' is packed in a way that this program does not write" in said and grown < 24


def test_lists_longer_than_they_say(good: Path, tmp_path: Path) -> None:
    """In the file a list of three numbers and one of millions are of one type: only the footer's schema tells them."""

    def change(table: Any) -> Any:
        stated = pq.ParquetFile(good / PART).metadata.metadata[b"ARROW:schema"]
        schema = table.schema.with_metadata({**table.schema.metadata, b"ARROW:schemX": stated})
        at = schema.get_field_index("x")
        kind = pa.list_(pa.field("element", pa.float64(), nullable=False))
        flat, ends = pa.array(np.zeros(_HUGE // 8)), [0, 1, 2, 3, _HUGE // 8]
        longer = pa.ListArray.from_arrays(pa.array(ends, type=pa.int32()), flat, type=kind)
        arrays = [longer if k == at else table.column(k) for k in range(table.num_columns)]
        fields = [pa.field("x", kind, nullable=False) if k == at else field for k, field in enumerate(schema)]
        return pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata=schema.metadata))

    bomb = forged(good, tmp_path, change)
    content = (bomb / PART).read_bytes().replace(b"ARROW:schema", b"ARROW:schemY")
    (bomb / PART).write_bytes(content.replace(b"ARROW:schemX", b"ARROW:schema"))
    said, grown = in_a_process(good, bomb)
    assert "the pages of the column 'x' do not hold 12 values" in said and grown < 24


def test_columns_under_other_names(good: Path, tmp_path: Path) -> None:
    """pyarrow finds a column by its place, whatever the footer calls its pages."""
    bomb = forged(good, tmp_path, lambda t: with_text(t, "message", ["", "", "", "no " * 10**5]))
    content = (bomb / PART).read_bytes()
    path = b"\x19\x18\x07message"
    assert content.count(path) == 1
    (bomb / PART).write_bytes(content.replace(path, path[:-1] + b"X"))
    assert len(pq.read_table(bomb / PART).column("message")[3].as_py()) == 300_000
    with pytest.raises(er.InputError, match="its footer has other columns than its schema"):
        er.Certificates.load(bomb)


def test_files_that_are_too_long(good: Path, tmp_path: Path) -> None:
    bomb = forged(good, tmp_path, lambda t: t)
    with open(bomb / PART, "ab") as file:
        file.write(bytes(10**6))
    with pytest.raises(er.InputError, match="such a file never needs"):
        er.Certificates.load(bomb)
    text = (bomb / "run.json").read_text()
    (bomb / "run.json").write_text(text[:-1] + " " * (1 << 25) + "}")
    with pytest.raises(er.InputError, match=r"run\.json is damaged: it has more than 33,554,432 bytes"):
        er.Certificates.load(bomb)


# In a process that can be ended: who waits for a pipe waits for ever.
_COMMANDS = """
import json, sys
from commands import run
found = [run(command, folder) for command, folder in zip(sys.argv[1::2], sys.argv[2::2])]
print(json.dumps([(one.exit_code, "it is not a file" in one.stderr) for one in found]))
"""


def test_pipes_are_not_waited_for(good: Path, tmp_path: Path) -> None:
    """In whose place a folder from elsewhere may have one, and which nobody writes into."""
    asked: list[Any] = []
    for name in (PART, "network.elbowroom", "run.json", "lock"):
        bomb = forged(good, tmp_path / str(len(asked)), lambda t: t)
        (bomb / name).unlink(missing_ok=True)
        os.mkfifo(bomb / name)
        asked += ["status" if name == "lock" else "check", bomb]
    told = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", _COMMANDS, *asked], capture_output=True, text=True, timeout=60, check=True, env=told
    )
    assert json.loads(done.stdout) == [[2, True], [2, True], [2, True], [0, False]]


def test_runs_without_end(good: Path, tmp_path: Path) -> None:
    """A million million parts of which one is there."""
    bomb = forged(good, tmp_path, lambda t: t)
    edit_run(bomb, lambda r: r["plan"].update(inputs=(1 << 40) - 1, part_rows=1))
    assert Run.open(bomb).finished() == [0]


def test_long_messages_are_cut(good: Path, tmp_path: Path) -> None:
    certs = er.Certificates.load(good)
    text = "é" * 1500
    longer = er.Certificates(**{**vars(certs), "message": (text, "short", "", "")})
    again = er.Certificates.load(longer.save(tmp_path))
    assert again.message == (text[:1000], "short", "", "") and len(text[:1000].encode()) == parts.TEXT_BYTES


def test_what_a_part_may_hold(good: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    certs = er.Certificates.load(good)
    each = parts.bytes_per_row(files.cells_of(json.loads((good / "run.json").read_text())["claim"], er.Certificates))
    monkeypatch.setattr(files, "PART_BYTES", 2 * each)
    with pytest.raises(er.InputError, match=r"part_rows`? can be 2 at most for this network, got 4"):
        Run.create(tmp_path / "run", certs, Plan(4, 4))
    Run.create(tmp_path / "run", certs, Plan(4, 2))
    monkeypatch.setattr(files, "ROW_BYTES", each - 1)
    for touch in (lambda: Run.create(tmp_path / "run", certs, Plan(4, 2)), lambda: Run.open(tmp_path / "run")):
        with pytest.raises(er.InputError, match=f"takes {each:,} bytes; a run holds at most {each - 1:,} each"):
            touch()


# --- the headers of pages, read here


def test_what_pages_hold(good: Path, tmp_path: Path) -> None:
    """As pyarrow states it, for a file of several row groups and pages."""
    table = pa.table({"a": np.arange(5000.0), "b": ["x" * (k % 7) for k in range(5000)]})
    path = tmp_path / "some.parquet"
    pq.write_table(table, path, compression="zstd", use_dictionary=False, row_group_size=2000, data_page_size=512)
    stated = pq.ParquetFile(path).metadata
    found = unpacked(path.read_bytes())
    assert {name: column.values for name, column in found.items()} == {"a": 5000, "b": 5000}
    for k, name in enumerate(("a", "b")):
        groups = [stated.row_group(g).column(k) for g in range(3)]
        headers = sum(g.total_uncompressed_size for g in groups) - found[name].size
        assert 0 < headers < 100 * 200  # which count pages with their headers
    everything = unpacked((good / PART).read_bytes())
    assert everything["x"].values == 12 and everything["checksum"] == Unpacked(4, 128)


def number(value: int) -> bytes:
    value, out = value << 1, bytearray()  # zigzag, of what is not negative
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def field(step: int, kind: int, content: bytes) -> bytes:
    return bytes([step << 4 | kind]) + content


def a_file(header: bytes, packed: bytes = b"", values: int = 3, **more: Any) -> bytes:
    """One column with one page, whose header is given in bytes."""
    page = header + packed
    column = field(3, 9, bytes([1 << 4 | 8]) + b"\x01x") + field(1, 5, number(6)) + field(1, 6, number(values))
    column += field(2, 6, number(more.get("size", len(page)))) + field(2, 6, number(more.get("first", 4)))
    column += more.get("also", b"")
    chunk = field(3, 12, column + b"\0")
    group = field(1, 9, bytes([1 << 4 | 12]) + chunk + b"\0")
    footer = field(4, 9, bytes([1 << 4 | 12]) + group + b"\0") + b"\0"
    return b"PAR1" + page + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def a_page(
    kind: int = 0, whole: int = 24, packed: int = 0, count: int = 3, encoding: int = 0, also: bytes = b""
) -> bytes:
    inner = field(1, 5, number(count)) + field(1, 5, number(encoding)) + b"\0"
    outer = field(1, 5, number(kind)) + field(1, 5, number(whole)) + field(1, 5, number(packed))
    return outer + also + field(2, 12, inner) + b"\0"


def test_headers_by_hand() -> None:
    assert unpacked(a_file(a_page())) == {"x": Unpacked(3, 24)}
    assert unpacked(a_file(a_page(packed=5), b"abcde")) == {"x": Unpacked(3, 24)}


# Longer field numbers, in which the step is 0: beyond 16 bits other readers see the second field in them.
AGAIN = bytes([5]) + number(2) + number(1 << 30)
CUT = bytes([5]) + number((1 << 16) + 2) + number(1 << 30)
HEADERS = {
    "a dictionary": (a_file(a_page(kind=2)), "a page of a kind"),
    "indices into one": (a_file(a_page(encoding=8)), "a page of a kind"),
    "dictionary elsewhere": (a_file(a_page(), also=field(2, 6, number(4))), "packed in a way"),
    "a field twice": (a_file(a_page(also=AGAIN)), "given twice"),
    "a number that is cut": (a_file(a_page(also=CUT)), "a number that none has"),
    "more values in the footer": (a_file(a_page(), values=4), "another number of values"),
    "size beyond 32 bits": (a_file(a_page(whole=1 << 32)), "out of range"),
    "page beyond its column": (a_file(a_page(packed=1)), "out of range"),
    "column beyond the file": (a_file(a_page(), size=10**6), "out of range"),
    "header beyond its column": (a_file(a_page(), size=3), "cut short"),
    "no page": (a_file(b"\0"), "a page of a kind"),
    "no footer": (b"PAR1" + (1 << 20).to_bytes(4, "little") + b"PAR1", "not a Parquet file"),
    "nothing": (b"", "not a Parquet file"),
}  # fmt: skip


@pytest.mark.parametrize("name", list(HEADERS))
def test_headers_that_are_refused(name: str) -> None:
    data, words = HEADERS[name]
    with pytest.raises(Odd, match=words):
        unpacked(data)


@cases(8)
@given(data=st.data())
def test_damaged_headers_are_refused_in_words(good: Path, data: st.DataObject) -> None:
    """Whatever bytes there are: an answer, or `Odd`; in a moment."""
    content = bytearray((good / PART).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.one_of(st.just(len(content)), st.integers(0, len(content))))
    for attempt in (bytes(content[:cut]), bytes(content[len(content) - cut :])):
        with contextlib.suppress(Odd):
            unpacked(attempt)


def test_no_part_is_a_file_of_another_kind(good: Path, tmp_path: Path) -> None:
    bomb = forged(good, tmp_path, lambda t: t)
    Path(bomb / PART).write_bytes(b"PAR1" * 1000)
    with pytest.raises(er.InputError, match=r"part-00000\.parquet is damaged"):
        er.Certificates.load(bomb)
