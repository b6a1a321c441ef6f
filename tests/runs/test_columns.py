"""Columns by name: whatever a table or a frame looks like, a certificate is about the model's own features."""

from __future__ import annotations

import functools
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import torch
from hypothesis import given

import elbowroom as er
from commands import good, refused
from elbowroom.arguments.names import places
from elbowroom.data.sources import open_data
from elbowroom.errors import InputError
from elbowroom.network.graph import About, Network
from elbowroom.runs.runner import run_dataset
from elbowroom.runs.settings import Settings
from runs.small import dataset, labels_for, network, points
from support import cases

pandas = pytest.importorskip("pandas")
joblib = pytest.importorskip("joblib")
neural = pytest.importorskip("sklearn.neural_network")
pipeline = pytest.importorskip("sklearn.pipeline")
preprocessing = pytest.importorskip("sklearn.preprocessing")

# Names that are easily taken for each other, for a label, for an index, or for a number.
NAMES = ["age", "Age", " age", "age ", "mean radius", "mean  radius", "größe", "label", "y", "target"]
NAMES += ["0", "1", "a,b", "", "x"]
CLASSES = np.array(["ill", "unsure", "well"])
ROWS = 6


@functools.cache
def fitted(seed: int) -> tuple[Any, Any]:
    """A pipeline fitted to a frame of 2 to 5 columns in different units, and rows of that frame with labels it gets
    right."""
    rng = np.random.default_rng(seed)
    names = rng.permutation(NAMES)[: 2 + seed % 4].tolist()
    x = rng.normal(size=(60, len(names))) * 10.0 ** rng.integers(-1, 3, len(names)) + rng.normal(size=len(names))
    score = (x - x.mean(0)) / x.std(0) @ rng.normal(size=len(names))
    frame = pandas.DataFrame(x, columns=names)
    scaler = preprocessing.StandardScaler() if seed % 2 else preprocessing.MinMaxScaler((-1, 1))
    mlp = neural.MLPClassifier((6,), solver="lbfgs", max_iter=30, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a few steps are enough
        model = pipeline.make_pipeline(scaler, mlp)
        model.fit(frame, CLASSES[np.digitize(score, np.quantile(score, [0.3, 0.7]))])
    return model, frame[:ROWS]


@dataclass
class Case:
    """A table as somebody might have it: `frame`, to be used as `kind`; `fits`: whether every feature is in it once."""

    model: Any
    right: Any
    frame: Any
    kind: str
    fits: bool
    label: str | None
    explicit: list[str] | None


@st.composite
def tables(draw: st.DrawFn, kinds: tuple[str, ...]) -> Case:
    model, right = fitted(draw(st.integers(0, 11)))
    names = list(right.columns)
    kind = draw(st.sampled_from(kinds))
    columns: list[tuple[str, Any]] = [(name, right[name].to_numpy()) for name in names]
    fits = True
    change = draw(st.sampled_from(["none", "none", "none", "rename", "drop", "twice"]))
    which = draw(st.integers(0, len(names) - 1))
    if change == "rename":
        new = draw(st.sampled_from([n for n in NAMES if n not in names]))
        columns[which], fits = (new, columns[which][1]), False
    elif change == "drop":
        del columns[which]
        fits = False
    elif change == "twice":
        columns.append(columns[which])
        fits = False
    taken = {name for name, _ in columns} | set(names)
    for extra in draw(st.lists(st.sampled_from(["id", "note", "__index_level_0__", *NAMES]), max_size=2, unique=True)):
        if extra not in taken:
            text = draw(st.booleans())
            columns.append((extra, np.array([f"p{k}" for k in range(ROWS)]) if text else np.arange(ROWS) * 1.5))
    label = None
    if kind in ("csv", "parquet") and draw(st.booleans()):
        label = "diagnosis"
        columns.append((label, model.predict(right)))
    columns = draw(st.permutations(columns))
    explicit = None
    if kind in ("csv", "parquet") and draw(st.integers(0, 3)) == 0 and all(n.isalnum() for n in names):
        explicit = [name for name, _ in columns if name in names]
    frame = pandas.concat([pandas.Series(values, name=name) for name, values in columns] or [right[[]]], axis=1)
    return Case(model, right, frame, kind, fits and len(columns) > 0, label, explicit)


def assert_certified_as_they_are(case: Case, certs: er.Certificates) -> None:
    """Names, values and decisions are those of the model on its own frame; so are the decisions in the regions."""
    names, net = list(case.right.columns), certs.network
    assert net is not None and net.about.features == tuple(names)
    assert np.array_equal(certs.x.numpy(), case.right.to_numpy())
    decided = case.model.predict(case.right)
    assert np.array_equal(np.array(net.about.classes)[certs.labels.numpy()], decided)
    good = certs.certified.numpy()
    for k in range(4):
        low = np.random.default_rng(k).random(certs.x.shape) < 0.5
        moved = pandas.DataFrame(np.where(low, certs.lower, certs.upper), columns=names)
        assert (case.model.predict(moved) == decided)[good].all()


def write(case: Case, path: Path) -> None:
    names = [str(name) for name in case.frame.columns]
    table = pa.table([pa.array(case.frame.iloc[:, k].to_numpy()) for k in range(len(names))], names=names)
    if case.kind == "csv":
        pyarrow.csv.write_csv(table, path)
    else:
        pyarrow.parquet.write_table(table, path, row_group_size=4)


@cases(0.8)
@given(tables(("csv", "parquet")))
def test_files(case: Case) -> None:
    with tempfile.TemporaryDirectory() as folder:
        model, path, out = Path(folder) / "model.joblib", Path(folder) / f"data.{case.kind}", Path(folder) / "run"
        joblib.dump(case.model, model)
        write(case, path)
        quick = ["--trust-pickle", "--bounds", "simple", "--solver-option", "gradients=1", "--device", "cpu"]
        flags = ["--out", out]
        flags += ["--label-column", case.label or ""]
        flags += ["--feature-columns", ",".join(case.explicit)] if case.explicit else []
        if not case.fits:
            said = refused("certify", model, path, *quick, *flags)
            words = ("has no column for", "appears twice", "no columns for features", "first row must name the columns")
            assert any(w in said for w in words)
            assert not out.exists()
            return
        result = good("certify", model, path, *quick, *flags)
        certs = er.Certificates.load(out)
        assert_certified_as_they_are(case, certs)
        used = [n for n in case.frame.columns if n in set(case.right.columns)]
        moved = used != list(case.right.columns)
        notes = f"{result.stderr}{good('show', out).stdout}"
        assert notes.count("stand in another order than the model's features; they were matched by name") == 2 * moved
        extra = set(case.frame.columns) - {*used, case.label} and not case.explicit
        assert notes.count("of the model and ") == (2 if extra else 0)
        again = good("certify", "--resume", *flags)  # the run's own network finds its columns as well
        assert f"{ROWS} of {ROWS}" in again.stdout or "without a certificate" in again.stdout


@cases(0.8)
@given(tables(("pandas", "arrow", "row")))
def test_frames(case: Case) -> None:
    net = er.load(case.model)
    frame: Any = case.frame
    if case.kind == "arrow":
        names = [str(name) for name in frame.columns]
        frame = pa.table([pa.array(frame.iloc[:, k].to_numpy()) for k in range(len(names))], names=names)
    elif case.kind == "row":
        case.right, frame = case.right.iloc[2:3], frame.iloc[2]
    if not case.fits:
        with pytest.raises(InputError, match=r"x has no column for .* that the model names|is there twice"):
            er.certify(net, frame)
        return
    same = [n for n in case.frame.columns if n in set(case.right.columns)] == list(case.right.columns)
    plain = same and len(case.frame.columns) == len(case.right.columns)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        certs = er.certify(net, frame, bounds="simple", solver=er.Sequential(gradients=1))
        proved = er.verify(net, frame, frame)
        found = er.bounds(net, frame, frame)
    assert plain == (not said) and all(issubclass(w.category, er.DataWarning) for w in said)
    assert all(w.filename == __file__ for w in said)
    assert_certified_as_they_are(case, certs)
    assert torch.equal(proved.labels, certs.labels) and bool(proved)
    torch.testing.assert_close(found.lower, net(certs.x), rtol=1e-9, atol=1e-9)


# --- single things


def test_domains_and_caps_by_name() -> None:
    """A Series that a shuffled frame gives has the frame's order, not the network's."""
    net = named("a", "b")
    right = pandas.DataFrame(points(4), columns=["a", "b"])
    right["b"] *= 0.1
    frame = right[["b", "a"]]
    with pytest.warns(er.DataWarning, match="stand in another order"):
        certs = er.certify(net, frame, domain=(frame.min() - 0.1, frame.max() + 0.1), max_eps=frame.max().abs() + 0.1)
    low, high = right.min().to_numpy() - 0.1, right.max().to_numpy() + 0.1
    expected = er.certify(net, right, domain=(low, high), max_eps=right.max().abs().to_numpy() + 0.1)
    assert torch.equal(certs.lower, expected.lower) and torch.equal(certs.upper, expected.upper)


def named(*names: str) -> Network:
    net = network()
    return Network(net.nodes, net.decision, About(features=names))


def test_frames_without_names_are_arrays() -> None:
    net, x = named("a", "b"), points(3)
    certs = er.certify(net, pandas.DataFrame(x))
    assert np.array_equal(certs.x.numpy(), x)
    with pytest.raises(InputError, match="has no column for 2 of the 2 features"):
        er.certify(net, pandas.DataFrame(x, columns=[1, 0]))


def test_frames_of_other_libraries() -> None:
    """That have columns, and give one by its name."""

    class Frame(dict):
        @property
        def columns(self) -> list[str]:
            return list(self)

    x = points(3)
    with pytest.warns(er.DataWarning, match="another order"):
        certs = er.certify(named("a", "b"), Frame(b=x[:, 1].tolist(), a=x[:, 0]))
    assert np.array_equal(certs.x.numpy(), x)


def test_networks_without_names_take_columns_by_place() -> None:
    net, x = network(), points(3)
    with pytest.warns(er.DataWarning, match="does not name its features, so the columns of x are taken in the order"):
        certs = er.certify(net, pandas.DataFrame(x, columns=["b", "a"]))
    assert np.array_equal(certs.x.numpy(), x) and certs.network.about.features is None
    with pytest.raises(InputError, match="columns of the same name"):
        er.certify(net, pandas.DataFrame(x, columns=["a", "a"]))
    with pytest.warns(er.DataWarning), pytest.raises(InputError, match="x must have shape"):
        er.certify(net, pandas.DataFrame(points(3, n=3), columns=["a", "b", "c"]))


def test_columns_that_are_no_numbers() -> None:
    net = named("a", "b")
    with pytest.raises(InputError, match="x: the column 'b' holds no numbers, but object"):
        er.certify(net, pandas.DataFrame({"a": [1.0], "b": ["x"]}))
    with pytest.raises(InputError, match="holds no numbers"):
        er.certify(net, pandas.DataFrame({"a": [1.0], "b": pandas.to_datetime(["2020-01-01"])}))
    frame = pandas.DataFrame({"a": pandas.array([1, None], "Int64"), "b": [0.5, 1.0]})
    found = er.certify(net, frame, features={"a": "number"})
    assert found.status[1] == "error" and found.message[1] == "row 1: 'a' is missing"
    assert found.x[0].tolist() == [1.0, 0.5]
    found = er.certify(net, frame.astype(float))
    assert found.status[1] == "nonfinite" and found.x[0].tolist() == [1.0, 0.5]


def test_images_from_frames() -> None:
    """Columns are the values of an image in row-major order."""
    from elbowroom.network import operations as ops

    names = [f"p{k}" for k in range(6)]
    net = Network.chain((1, 2, 3), [ops.Reshape((6,)), ops.Linear(torch.randn(2, 6, dtype=torch.float64))])
    net = Network(net.nodes, net.decision, About(features=tuple(names)))
    frame = pandas.DataFrame(np.arange(12.0).reshape(2, 6), columns=names)
    with pytest.warns(er.DataWarning):
        certs = er.certify(net, frame[names[::-1]])
    assert certs.x.tolist() == np.arange(12.0).reshape(2, 1, 2, 3).tolist()


def test_the_nearest_names_are_told(tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        places(["mean radius", "area", "z"], ["Mean Radius", "mean radius error", "are", "q"], "a.csv")
    assert str(error.value) == (
        "a.csv has no column for 3 of the 3 features that the model names: 'mean radius' (nearest: 'Mean Radius' and "
        "'mean radius error'); 'area' (nearest: 'are'); 'z'. Columns are matched by name: rename those that have other "
        "names"
    )
    order, notes = places(["b", "a"], ["id", "a", "b"], "a.csv")
    assert order == [2, 1] and notes == (
        "the columns of a.csv stand in another order than the model's features; they were matched by name",
        "a.csv has a column that is not a feature of the model and is left out: 'id'",
    )


def test_many_names_are_matched_quickly() -> None:
    names = [f"feature {k}" for k in range(20_000)]
    order, _ = places(names, names[::-1], "a.csv")
    assert order == list(range(20_000))[::-1]


def test_a_label_column_is_no_feature(tmp_path: Path) -> None:
    """A model that has a feature called y: it is not taken for the label, and cannot be one."""
    er.save_network(named("y", "x"), tmp_path / "net.elbowroom")
    (tmp_path / "data.csv").write_text("x,y,target\n0.1,0.2,1\n0.3,0.4,2\n")
    given = ("certify", tmp_path / "net.elbowroom", tmp_path / "data.csv", "--device", "cpu")
    result = good(*given, "--out", tmp_path / "run")
    assert "labels from column 'target'" in result.stderr
    assert er.Certificates.load(tmp_path / "run").x.tolist() == [[0.2, 0.1], [0.4, 0.3]]
    said = refused(*given, "--out", tmp_path / "other", "--label-column", "y")
    assert "the column 'y' cannot be both the label and a feature" in said


def test_names_that_are_numbers(tmp_path: Path) -> None:
    """Where the model has them, such a first row is one of names."""
    er.save_network(named("7", "3"), tmp_path / "net.elbowroom")
    (tmp_path / "data.csv").write_text("3,7\n0.1,0.2\n")
    given = ("certify", tmp_path / "net.elbowroom", tmp_path / "data.csv", "--device", "cpu", "--out", tmp_path / "run")
    good(*given)
    assert er.Certificates.load(tmp_path / "run").x.tolist() == [[0.2, 0.1]]
    (tmp_path / "data.csv").write_text("3,8\n0.1,0.2\n")
    assert "the first row must name the columns" in refused(*given)


def test_run_dataset_matches_as_well(tmp_path: Path) -> None:
    """From Python no command stands before it."""
    net = named("a", "b")
    x = points(8)
    data = dataset(np.concatenate([x[:, ::-1], x[:, :1]], 1), labels_for(net, x), features=("b", "a", "id"))
    outcome = run_dataset(net, data, tmp_path / "run", Settings(device="cpu"))
    certs = er.Certificates.load(tmp_path / "run")
    assert np.array_equal(certs.x.numpy(), x) and len(outcome.run.plan.notes) == 2
    with pytest.raises(InputError, match="has no column for 1 of the 2 features that the model names: 'b'"):
        run_dataset(net, dataset(x, features=("a", "B")), tmp_path / "other", Settings(device="cpu"))


def test_a_shuffled_table_keeps_what_it_says_about_holes(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("b,id,a\n0.1,p1,0.2\nn/a,p2,0.4\n")
    found = open_data(tmp_path / "data.csv", features=["a", "b"])
    assert found.features == ("a", "b") and found.inputs([0]).tolist() == [[0.2, 0.1]]
    assert found.trouble(1) == "row 2 below the header: 'b' is missing ('n/a')"
    whole = open_data(tmp_path / "data.csv", feature_columns=["b", "a"])
    turned = whole.with_features(["a", "b"])
    assert turned.trouble(1) == found.trouble(1) and turned.inputs([0]).tolist() == [[0.2, 0.1]]
    assert turned.digest != whole.digest and whole.with_features(["b", "a"]) is whole
