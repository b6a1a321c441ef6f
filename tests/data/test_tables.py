"""Tables: features by name, labels by name or number, and entries that are not numbers."""

import decimal
import errno
import io
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data.samples import CSV, TABLE, parquet, put
from elbowroom.data import parquet as parquet_files
from elbowroom.data import spool, tables
from elbowroom.data.sources import open_data
from elbowroom.errors import InputError
from elbowroom.network.table import Column, Table

EXPECTED = np.array([[1.5, 1], [math.nan, 2], [3, 3]])


def csv(folder: Path, text: bytes | str, name: str = "a.csv") -> Path:
    return put(folder, {name: text.encode() if isinstance(text, str) else text}) / name


@pytest.mark.parametrize("name, data", [
    ("a.csv", CSV),
    ("A.CSV", b"\xef\xbb\xbf" + CSV.replace(b"\n", b"\r\n")),
    ("a.parquet", parquet()),
    ("a.pq", parquet(row_group_size=2)),
    ("a.parquet", parquet({**TABLE, "label": pa.array(TABLE["label"]).dictionary_encode()})),
])  # fmt: skip
def test_tables(tmp_path: Path, name: str, data: bytes) -> None:
    found = open_data(put(tmp_path, {name: data}) / name)
    assert (found.name, found.shape, found.count, found.domain) == (name, (2,), 3, None)
    assert (
        found.features == ("width", "age") and found.classes == ("ham", "spam") and found.labels.tolist() == [0, 1, 0]
    )
    assert np.array_equal(found.inputs([2, 0, 1]), EXPECTED[[2, 0, 1]], equal_nan=True)
    assert found.trouble(0) is None and found.trouble(1).endswith("'width' is missing")


@pytest.mark.parametrize("names, label_column, feature_columns, label, features", [
    ("a,b,label", None, None, "label", "a,b"),
    ("target,a,b", None, None, "target", "a,b"),
    ("a,class,b", None, None, "class", "a,b"),
    ("x,y", None, None, "y", "x"),
    ("x,y,label", None, None, None, "x,y,label"),
    ("x,y,label", None, ["y", "x"], "label", "y,x"),
    ("x,y,label", "y", None, "y", "x,label"),
    ("x,y,label", "x", ["label"], "x", "label"),
    ("a,label", "", None, None, "a,label"),
    ("a,label", "", ["a"], None, "a"),
    ("a,Label", None, None, None, "a,Label"),
    ("a,b", None, ["b"], None, "b"),
])  # fmt: skip
def test_which_columns(
    tmp_path: Path,
    names: str,
    label_column: str | None,
    feature_columns: list[str] | None,
    label: str | None,
    features: str,
) -> None:
    columns = names.split(",")
    path = csv(tmp_path, f"{names}\n{','.join(str(k) for k in range(len(columns)))}\n")
    table = {name: [k] for k, name in enumerate(columns)}
    put(tmp_path, {"a.parquet": parquet(table)})
    for place in (path, tmp_path / "a.parquet"):
        found = open_data(place, label_column=label_column, feature_columns=feature_columns)
        assert found.features == tuple(features.split(","))
        assert found.inputs([0])[0].tolist() == [columns.index(name) for name in found.features]
        assert (None if found.labels is None else found.labels.tolist()) == (label and [columns.index(label)])


@pytest.mark.parametrize("options, words", [
    ({"label_column": "kind"}, "has no column 'kind'; it has 'width', 'age', 'label'"),
    ({"feature_columns": ["age", "size"]}, "has no column 'size'"),
    ({"feature_columns": "age"}, "must be a list of names, got the text 'age'"),
    ({"feature_columns": ["age", "age"]}, "names a column twice"),
    ({"feature_columns": ["age"], "label_column": "age"}, "'age' cannot be both the label and a feature"),
    ({"feature_columns": []}, "no columns for features"),
    ({"label_column": ""}, r"no numbers in the column 'label'.*; features must be .* `label_column`"),
    ({"label_column": "age"}, "no numbers in the column 'label'"),
    ({"label_column": "width", "feature_columns": ["age"]}, "input 1 has no label"),
    ({"input_shape": (2, 2)}, r"the shape \(2,\), which cannot be seen as \(2, 2\)"),
])  # fmt: skip
def test_wrong_options(tmp_path: Path, options: dict[str, list[str] | str | tuple[int, int]], words: str) -> None:
    put(tmp_path, {"a.csv": CSV, "a.parquet": parquet()})
    for name in ("a.csv", "a.parquet"):
        with pytest.raises(InputError, match=words):
            open_data(tmp_path / name, **options)


def test_entries_of_a_csv(tmp_path: Path) -> None:
    entries = ["1", " -2.5 ", "+3", ".5", "4.", "1e-3", "0.1", "5e-324", "9007199254740993", '"6"', "True", "FALSE"]
    bad = ["", "?", "n/a", "nan", "inf", "1e999", "0x10", "1_000", '"1,5"', "12 kg", "yes", "٣", '"1\n2"']
    path = csv(tmp_path, "a,b\n" + "".join(f"{e},0\n" for e in entries + bad))
    found = open_data(path)
    got = found.inputs(np.arange(found.count))[:, 0]
    assert got[: len(entries)].tolist() == [1, -2.5, 3, 0.5, 4, 1e-3, 0.1, 5e-324, 9007199254740992, 6, 1, 0]
    assert found.count == len(entries) + len(bad) and not np.isfinite(got[len(entries) :]).any()
    assert all(found.trouble(k) for k in range(len(entries), found.count))


def test_text_among_numbers_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = csv(tmp_path, f"a,b\n1,2\nn/a,{'x' * 99}\n3,\n")
    found = open_data(path)
    long = f"'{'x' * 40}...'"
    assert found.trouble(1) == f"row 2 below the header: 'a' is missing ('n/a'); 'b' is {long}, which is no number"
    assert found.trouble(2) == "row 3 below the header: 'b' is missing"
    with pytest.raises(InputError, match=r"no numbers in the column 'b' \(row 1 below the header: 'b' is 'x', which"):
        open_data(csv(tmp_path, "a,b\n1,x\n2,y\n"))
    with pytest.raises(InputError, match=r"no numbers in the columns 'b', 'c' \(row 1 below the header: 'b' is 'x',"):
        open_data(csv(tmp_path, "a,b,c\n1,x,\n2,y,\n"))
    monkeypatch.setattr(tables, "_MOST_FAULTS", 1)
    few = open_data(csv(tmp_path, "a\n1\nn/a\n?\n"))
    assert "'n/a'" in few.trouble(1) and few.trouble(2) == "no finite number in feature 'a'"


def test_text_is_found_in_later_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_BLOCK", 64)
    rows = [f"{k},0" for k in range(100)]
    rows[77] = "odd,0"
    found = open_data(csv(tmp_path, "\n".join(["a,b", *rows]) + "\n"))
    assert found.trouble(77) == "row 78 below the header: 'a' is 'odd', which is no number"


def test_the_column_of_the_labels_is_named(tmp_path: Path) -> None:
    put(tmp_path, {"a.csv": CSV, "a.parquet": parquet()})
    for name in ("a.csv", "a.parquet"):
        shown = repr(open_data(tmp_path / name))
        assert shown == f"Dataset({name}: 3 inputs, 2 features, 2 classes, labels from column 'label')"
    path = csv(tmp_path, "a,y\n1,0\n")
    assert repr(open_data(path)) == "Dataset(a.csv: 1 input, 1 feature, 1 class, labels from column 'y')"
    assert "no labels" in repr(open_data(path, label_column=""))


def test_numbers_are_rounded_correctly(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=300) * 10.0 ** np.random.default_rng(1).integers(-300, 300, 300)
    path = csv(tmp_path, "a\n" + "".join(f"{v!r}\n" for v in values.tolist()))
    assert np.array_equal(open_data(path).inputs(np.arange(300))[:, 0], values)


def test_long_files_are_read_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_BLOCK", 500)
    rows = [f"{k},{-k},c{k % 3}" for k in range(500)]
    rows[400] = "oops,,c1"  # far from the first block, from which a reader may guess types
    found = open_data(csv(tmp_path, "a,b,label\n" + "\n".join(rows)))
    assert found.count == 500 and found.labels.tolist() == [k % 3 for k in range(400)] + [1] + [
        k % 3 for k in range(401, 500)
    ]
    assert np.isnan(found.inputs([400])).all() and found.inputs([499]).tolist() == [[499, -499]]


def test_text_stays_text(tmp_path: Path) -> None:
    found = open_data(csv(tmp_path, "a,label\n1,b-07\n2,a-1\n3,b-07\n"))
    assert found.classes == ("a-1", "b-07") and found.labels.tolist() == [1, 0, 1]
    assert open_data(csv(tmp_path, "a,label\n1,7\n2,1\n")).labels.tolist() == [7, 1]
    assert open_data(csv(tmp_path, "a,label\n1,07\n2,7\n")).classes == ("07", "7")


@pytest.mark.parametrize("text, words", [
    ("", "a.csv is empty"),
    (b"\xef\xbb\xbf\r\n", "a.csv is empty"),
    ("a,b\n", "has no rows"),
    ("a,b\n1,2\n3\n", "Expected 2 columns, got 1"),
    ("a,a\n1,2\n", "the column 'a' appears twice"),
    ("5.1,3.5,0\n4.9,3.0,1\n", "the first row must name the columns; it holds '5.1', '3.5', '0'"),
    ("7,0,0\n2,0,0\n", "the first row must name the columns"),
    (",a,label\n0,1,x\n1,2,y\n", "looks like an index that was saved with the data"),
    ("a;b\n1;2\n", "'a;b', has no commas but semicolons"),
    ("a\tb\n1\t2\n", "has no commas but tabs"),
    ("5.1,3.5,setosa\n4.9,3.0,setosa\n", "the first row must name the columns; it holds '5.1', '3.5', 'setosa'"),
    ("5.1,setosa\n4.9,setosa\n", "the first row must name the columns"),
    ("a,b,c\n1,x,\n2,y,\n", "no numbers in the columns 'b', 'c'"),
    ("a,label\n1,x\n2,\n", "input 1 has no label"),
    ("a,target\n1,0.5\n2,1\n", "input 0 has the label 0.5, which is not a class number"),
    ("a,label\n1,-1.5\n2,1\n", "label -1.5"),
    ("label\n1\n", "no columns for features; it has 'label'"),
    (b"a,b\n1,\xff\xfe\n", "UTF8|UTF-8"),
    (b"a,\xff\n1,2\n", "not a table"),
])  # fmt: skip
def test_wrong_csv(tmp_path: Path, text: bytes | str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        open_data(csv(tmp_path, text))


def test_columns_that_are_counted(tmp_path: Path) -> None:
    """A frame without names has the columns 0, 1, 2: these are names, not a lost row."""
    assert open_data(csv(tmp_path, "0,1,2\n5,6,7\n")).inputs([0]).tolist() == [[5, 6, 7]]


def test_a_saved_index_can_be_left_out(tmp_path: Path) -> None:
    found = open_data(csv(tmp_path, ",a,label\n0,1,x\n1,2,y\n"), feature_columns=["a"])
    assert found.inputs([1]).tolist() == [[2]] and found.labels.tolist() == [0, 1]
    put(tmp_path, {"a.parquet": parquet({"a": [1], "__index_level_0__": [5]})})
    with pytest.raises(InputError, match="looks like an index"):
        open_data(tmp_path / "a.parquet")


def test_types_of_parquet_columns(tmp_path: Path) -> None:
    columns = {
        "f2": pa.array([1.5, None], pa.float16()),
        "f4": pa.array([0.1, None], pa.float32()),
        "u8": pa.array([2**64 - 1, None], pa.uint64()),
        "i1": pa.array([-3, None], pa.int8()),
        "bool": pa.array([True, None]),
        "decimal": pa.array([decimal.Decimal("1.25"), None]),
        "coded": pa.array([7, None], pa.int32()).dictionary_encode(),
        "a.b": pa.array([4.5, None]),
    }
    put(tmp_path, {"a.parquet": parquet(columns)})
    found = open_data(tmp_path / "a.parquet")
    assert found.inputs([0]).tolist() == [[1.5, float(np.float32(0.1)), 2.0**64, -3, 1, 1.25, 7, 4.5]]
    assert np.isnan(found.inputs([1])).all()


@pytest.mark.parametrize("column", [
    pa.array(["1", "2"]), pa.array([[1.0], [2.0]]), pa.array([{"a": 1}, {"a": 2}]),
    pa.array([b"1", b"2"]), pa.nulls(2), pa.array(["a", "b"]).dictionary_encode(),
])  # fmt: skip
def test_parquet_columns_that_are_no_numbers(tmp_path: Path, column: Any) -> None:
    put(tmp_path, {"a.parquet": parquet({"a": [1, 2], "odd": column, "label": [0, 1]})})
    with pytest.raises(InputError, match="no numbers in the column 'odd'"):
        open_data(tmp_path / "a.parquet")
    assert open_data(tmp_path / "a.parquet", feature_columns=["a"]).features == ("a",)


@pytest.mark.parametrize("kind", [pa.timestamp("s"), pa.date32(), pa.time32("s"), pa.duration("s")])
def test_dates_in_parquet_are_refused_by_name(tmp_path: Path, kind: Any) -> None:
    put(tmp_path, {"a.parquet": parquet({"a": [1, 2], "when": pa.array([0, 1], kind)})})
    with pytest.raises(InputError, match=r"a\.parquet: the column 'when' holds dates or times .*days since"):
        open_data(tmp_path / "a.parquet")


@pytest.mark.parametrize("column, numbers, names", [
    (pa.array([3, 1]), [3, 1], None),
    (pa.array([3.0, 1.0]), [3, 1], None),
    (pa.array([True, False]), [1, 0], ("False", "True")),
    (pa.array(["b", "a"], pa.large_string()), [1, 0], ("a", "b")),
])  # fmt: skip
def test_labels_in_parquet(tmp_path: Path, column: Any, numbers: list[int], names: tuple[str, str] | None) -> None:
    put(tmp_path, {"a.parquet": parquet({"a": [1, 2], "label": column})})
    found = open_data(tmp_path / "a.parquet")
    assert found.labels.tolist() == numbers and found.classes == names


def test_wrong_parquet(tmp_path: Path) -> None:
    put(tmp_path, {"a.parquet": b"PAR1 and no more", "b.parquet": parquet({"a": pa.array([], pa.float64())})})
    put(tmp_path, {"c.parquet": parquet({"a": [1], "label": [[1]]}), "d.parquet": parquet({"a": [1], "y": [None]})})
    for name, words in (
        ("a", "damaged, or no Parquet file"),
        ("b", "has no rows"),
        ("c", "'label' holds list"),
        ("d", "no label"),
    ):
        with pytest.raises(InputError, match=words):
            open_data(tmp_path / f"{name}.parquet")


def test_parquet_is_read_by_row_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).normal(size=(1000, 3))
    columns = {name: values[:, k] for k, name in enumerate("abc")} | {"label": np.arange(1000) % 4}
    put(tmp_path, {"a.parquet": parquet(columns, row_group_size=300)})
    found = open_data(tmp_path / "a.parquet")
    reads, read = [], parquet_files.read_columns

    def spy(path: Path, groups: list[int], names: list[str], rows: int) -> Any:
        reads.append(list(groups))
        return read(path, groups, names, rows)

    monkeypatch.setattr(parquet_files, "read_columns", spy)
    chosen = [999, 0, 299, 300, 5, 998]
    assert np.array_equal(found.inputs(chosen), values[chosen])
    assert reads == [[0], [1], [3]]
    for k in range(900, 1000, 10):
        assert np.array_equal(found.inputs(np.arange(k, k + 10)), values[k : k + 10])
    assert reads == [[0], [1], [3]]
    again = pickle.loads(pickle.dumps(found))  # as when it is sent to another process: without what it remembers
    assert len(pickle.dumps(found)) < 12_000 and np.array_equal(again.inputs(chosen), values[chosen])


def test_a_table_that_changed(tmp_path: Path) -> None:
    put(tmp_path, {"a.parquet": parquet({"a": [1, 2, 3]})})
    found = open_data(tmp_path / "a.parquet")
    put(tmp_path, {"a.parquet": parquet({"a": [1, 2]})})
    with pytest.raises(InputError, match=r"2 rows where its footer states 3|cannot be read"):
        found.inputs([0])


def test_parquet_bombs_are_refused(tmp_path: Path) -> None:
    """A column of one value takes a few bytes, however long it is."""
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(1_000_000, np.int8)), pa.array([1.5]))
    pq.write_table(pa.table({f"c{k}": column for k in range(150)}), tmp_path / "a.parquet", row_group_size=10**6)
    assert (tmp_path / "a.parquet").stat().st_size < 1 << 20
    with pytest.raises(InputError, match=r"would unpack to 1200000000, which is refused.*smaller row groups"):
        open_data(tmp_path / "a.parquet")


def test_digests_follow_the_columns(tmp_path: Path) -> None:
    path = csv(tmp_path, "x,y,label\n1,2,3\n")
    choices = (
        {},
        {"label_column": "y"},
        {"label_column": ""},
        {"feature_columns": ["y", "x"]},
        {"input_shape": (3, 1)},
    )
    digests = [open_data(path, **options).digest for options in choices]
    assert digests[0] == digests[2] and len(set(digests)) == 4  # two candidates for the label: there is none
    csv(tmp_path, "x,y,label\n1,2,4\n")
    assert open_data(path).digest not in digests


def test_input_shape(tmp_path: Path) -> None:
    path = csv(tmp_path, "label," + ",".join(f"p{k}" for k in range(6)) + "\n1,0,1,2,3,4,5\n")
    found = open_data(path, input_shape=(1, 2, 3))
    assert found.inputs([0]).tolist() == [[[[0, 1, 2], [3, 4, 5]]]] and found.features[3] == "p3"


# --- tables with categories and missing values, as a model takes them

JOB = Column("job", ("admin", "clerk"), ((1.0, 0.0), (0.0, 1.0)), unknown=(0.0, 0.0))
SIZE = Column("size", (1.0, 2.0), ((0.0,), (1.0,)))
YES = Column("yes", (False, True), ((0.0,), (1.0,)), missing=False)
AGE, PAY = Column("age", missing=40.0), Column("pay")
READ = Table((AGE, JOB, PAY, SIZE, YES))
ROWS = {
    "pay": [1.5, 2.5, None, 4.5], "yes": [True, False, True, None], "size": [1, 2, 2, 3],
    "job": ["clerk", "painter", "admin", "admin"], "age": [None, 18, 30, 50], "label": ["a", "b", "b", "a"],
}  # fmt: skip
TAKEN = [[40, 0, 1, 1.5, 0, 1], [18, 0, 0, 2.5, 1, 0], [30, 1, 0, math.nan, 1, 1], [50, 1, 0, 4.5, math.nan, 0]]


@pytest.mark.parametrize("kind", ["csv", "parquet", "coded"])
def test_values_of_a_table(tmp_path: Path, kind: str) -> None:
    if kind == "csv":
        lines = [",".join("" if v is None else str(v) for v in row) for row in zip(*ROWS.values())]
        path = csv(tmp_path, ",".join(ROWS) + "\n" + "\n".join(lines) + "\n")
    else:
        columns = {**ROWS, "job": pa.array(ROWS["job"]).dictionary_encode()} if kind == "coded" else ROWS
        path = put(tmp_path, {"a.parquet": parquet(columns, row_group_size=3)}) / "a.parquet"
    found = open_data(path, features=READ)
    assert found.features == READ.entries and found.labels.tolist() == [0, 1, 1, 0]
    assert np.array_equal(found.inputs([3, 0, 1, 2]), np.array(TAKEN)[[3, 0, 1, 2]], equal_nan=True)
    assert found.imputed is not None
    marks = np.zeros((4, 6), dtype=bool)
    marks[0, 0] = marks[3, 5] = True
    assert np.array_equal(found.imputed(np.arange(4)), marks)
    assert found.trouble(0) is None and found.trouble(2).endswith("'pay' is missing")
    assert "row 4" in found.trouble(3) and "'size' is 3, which is none of its levels 1, 2" in found.trouble(3).replace(
        "'3'", "3"
    )
    notes = " ".join(found.notes)
    assert "'age' is missing in 1 row, for which the model takes 40" in notes
    assert "'job' is none of its levels in 1 row (the first: 'painter' in row 2" in notes
    assert "another order" in notes


def test_a_table_is_part_of_the_digest(tmp_path: Path) -> None:
    path = csv(tmp_path, "age,pay\n1,2\n")
    other = Table((Column("age", missing=41.0), PAY))
    digests = {open_data(path, features=t).digest for t in (Table((AGE, PAY)), other, ("age", "pay"))}
    assert len(digests) == 3


@pytest.mark.parametrize("text, words", [
    ("Age,pay\n1,2\n", r"no column for 1 of the 2 features that the model names: 'age' \(nearest: 'Age'\)"),
    ("age,pay,age\n1,2,3\n", "the column 'age' appears twice"),
    ("age,pay\nold,2\nyoung,3\n", r"no numbers in the column 'age' \(row 1 below the header: 'age' is 'old'"),
    ("age,pay\n2020-01-01,2\n", "'2020-01-01', which is no number"),
    ("age;pay\n1;2\n", "semicolons"),
])  # fmt: skip
def test_wrong_tables_for_a_model(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        open_data(csv(tmp_path, text), features=Table((Column("age"), PAY)))


def test_quoted_line_breaks_and_commas_are_texts(tmp_path: Path) -> None:
    odd = Column("odd", ("a\nb", "c,d", ' "e" ', ""), ((0.0,), (1.0,), (2.0,), (3.0,)))
    path = csv(tmp_path, 'odd,n\n"a\nb",1\n"c,d",2\n" ""e"" ",3\n,4\n')
    assert open_data(path, features=Table((odd, Column("n")))).inputs(range(4)).tolist() == [
        [k, k + 1] for k in range(4)
    ]


def test_long_tables_are_kept_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_BLOCK", 500)
    monkeypatch.setattr(spool, "HELD", 3000)
    values = np.random.default_rng(0).normal(size=(700, 3))
    rows = [f"{a!r},{b!r},{c!r}" for a, b, c in values.tolist()]
    rows[300] = ",".join(["", *rows[300].split(",")[1:]])
    values[300, 0] = 40.0
    found = open_data(csv(tmp_path, "age,b,c\n" + "\n".join(rows)), features=Table((AGE, Column("b"), Column("c"))))
    assert isinstance(found.load, spool.FileRows) and found.count == 700
    chosen = np.random.default_rng(1).integers(0, 700, 200)
    for some in (chosen, np.sort(chosen), np.arange(700), np.arange(5), np.array([], dtype=np.int64)):
        assert np.array_equal(found.inputs(some), values[some])
        assert found.imputed is not None and np.array_equal(found.imputed(some)[:, 0], some == 300)
    assert np.array_equal(pickle.loads(pickle.dumps(found.load))(chosen), values[chosen])


class FullDisk(io.BytesIO):
    def write(self, _: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_no_room_for_a_long_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "HELD", 10)
    monkeypatch.setattr("tempfile.TemporaryFile", lambda **_: FullDisk())
    with pytest.raises(InputError, match=r"temporary files, .*failed: No space left on device; the variable TMPDIR"):
        open_data(csv(tmp_path, "a,b\n" + "1,2\n" * 10_000))
