"""Labels: each means one output of the network, by name, or the run is refused; nothing is numbered without a word."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

import elbowroom as er
from commands import good, refused
from elbowroom.data.sources import open_data
from elbowroom.errors import InputError
from elbowroom.network.graph import About, Network
from elbowroom.runs.runner import run_dataset
from elbowroom.runs.settings import Settings
from runs.small import dataset, labels_for, network, points
from support import cases

X = points(12)
NET = network(7)  # which decides for each of its three classes among these
TRUTH = labels_for(NET, X)
ANIMALS = ("dog", "cat", "newt")  # not along the alphabet
NUMBERS = [("0", "1", "2"), ("1", "2", "3"), ("2", "0", "1"), ("7", "8", "9")]
FAST = ("--device", "cpu", "--bounds", "simple", "--solver-option", "gradients=1")
QUICK: dict[str, Any] = {"bounds": "simple", "solver": er.Sequential(gradients=1)}
TEXTS = [ANIMALS, ("cat", "dog", "newt"), ("Dog", "Cat", "Newt"), ("0", "cat", "newt"), ("dog", "cat", "eel")]


def called(names: tuple[str, ...] | None) -> Network:
    return Network(NET.nodes, NET.decision, About(classes=names))


@cases()
@given(
    own=st.sampled_from([None, None, *NUMBERS, *TEXTS]),
    told=st.sampled_from([None, None, None, *NUMBERS, *TEXTS]),
    used=st.sampled_from([*NUMBERS, *TEXTS]),
    kind=st.sampled_from(["csv", "npz", "floats", "set"]),
)
def test_what_labels_mean(own: Any, told: Any, used: tuple[str, ...], kind: str) -> None:
    """`own`: the model's names for its classes; `told`: --class-names; `used`: what the data call these classes."""
    assert set(TRUTH) == {0, 1, 2}
    labels = [used[k] for k in TRUTH]
    numeric = all(label.isdecimal() for label in labels)
    known = told or own or (("0", "1", "2") if numeric else None)
    contradicts = bool(told and own and any(name in own and own.index(name) != k for k, name in enumerate(told)))
    if kind == "set":  # which states its own numbers
        known, contradicts = (told or own or used), contradicts
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ("data.csv" if kind == "csv" else "data.npz")
        if kind == "csv":
            rows = ["a,b,label", *(f"{a!r},{b!r},{label}" for (a, b), label in zip(X.tolist(), labels))]
            path.write_text("\n".join(rows))
        elif kind != "set":
            y = np.array(labels)
            np.savez(path, x=X, y=y.astype(float) if numeric and kind == "floats" else y)
        data = open_data(path) if kind != "set" else dataset(X, TRUTH, classes=used)
        quick = {"device": "cpu", "bounds": "simple", "solver_options": {"gradients": 1}}
        settings = Settings.of({**quick, "class_names": None if told is None else ",".join(told)})
        good = known is not None and set(labels) <= set(known) and not contradicts
        if kind == "set" and not contradicts and known is not None:
            good = good or {"0", "1", "2"} <= set(known)  # a published set's numbers are names as well
        try:
            run_dataset(called(own), data, Path(folder) / "run", settings)
        except InputError as error:
            assert not good, error
            assert "class_names" in str(error) or "choose among what both have" in str(error)
            return
        assert good
        certs = er.Certificates.load(Path(folder) / "run")
        by_name = known is not None and set(labels) <= set(known)
        means = labels if by_name else [str(k) for k in TRUTH]
        assert [known[k] for k in certs.labels.tolist()] == means
        shown = certs.network.about.classes
        poor = own is None or all(name.isdecimal() for name in own)
        assert shown == ((told or own or (used if kind == "set" else None)) if poor else own)


def test_text_labels_of_a_model_without_names_are_refused(tmp_path: Path) -> None:
    er.save_network(NET, tmp_path / "net.elbowroom")
    np.savez(tmp_path / "data.npz", x=X, y=np.array(ANIMALS)[TRUTH])
    given = ("certify", tmp_path / "net.elbowroom", tmp_path / "data.npz", "--device", "cpu", "--bounds", "simple")
    said = refused(*given, "--out", tmp_path / "run")
    assert "the labels of data.npz are names ('cat', 'dog', 'newt'), and the model does not say which of its 3" in said
    assert "list the names in the order of its outputs, as in --class-names cat,dog,newt" in said
    result = good(*given, "--class-names", ",".join(ANIMALS), "--out", tmp_path / "run")
    assert "the network gets 12 of these 12 right" in result.stderr
    assert "(dog)" in good("show", tmp_path / "run", "--index", int(np.flatnonzero(TRUTH == 0)[0])).stdout
    assert "12 of 12" in good("certify", "--resume", "--out", tmp_path / "run").stdout
    for wrong in ("cat,dog", "cat,cat,dog", "cat,dog,newt,eel"):
        said = refused(*given, "--class-names", wrong, "--out", tmp_path / "none")
        assert "--class-names must be 3 different names, one for each output" in said
    assert "must be names of the network's outputs" in refused(*given, "--class-names", "", "--out", tmp_path / "none")
    (tmp_path / "run.toml").write_text('class-names = ["dog", "cat", "newt"]\n')
    good(*given, "--config", tmp_path / "run.toml", "--out", tmp_path / "toml")
    good(*given, "--predicted", "--out", tmp_path / "predicted")


def test_folders_of_images_say_nothing_about_outputs(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for k, name in enumerate(("cat", "dog")):
        (tmp_path / "images" / name).mkdir(parents=True)
        for i in range(2):
            pixels = np.full((2, 3), 100 * k + 20 * i, np.uint8)
            image.fromarray(pixels).save(tmp_path / "images" / name / f"{i}.png")
    net = network(sizes=(6, 8, 2))
    er.save_network(net, tmp_path / "net.elbowroom")
    given = ("certify", tmp_path / "net.elbowroom", tmp_path / "images", "--device", "cpu", "--out", tmp_path / "run")
    assert "are names ('cat', 'dog'), and the model does not say which of its 2 outputs" in refused(*given)
    good(*given, "--class-names", "dog,cat")
    assert er.Certificates.load(tmp_path / "run").labels.tolist() == [1, 1, 0, 0]


def test_labels_in_python() -> None:
    net = called(ANIMALS)
    certs = er.certify(net, X, labels=np.array(ANIMALS)[TRUTH], **QUICK)
    assert certs.labels.tolist() == TRUTH.tolist() and "misclassified" not in certs.status
    assert er.verify(net, X[0], X[0], labels=ANIMALS[TRUTH[0]])
    with pytest.raises(InputError, match="there is no class 'eel'; the network's classes are 'dog', 'cat', 'newt'"):
        er.certify(net, X[:2], labels=["dog", "eel"])
    counted = called(("1", "2", "3"))
    with pytest.warns(er.DataWarning, match=r"those of outputs, 0 to 2; .* called '1', '2', '3': give these"):
        certs = er.certify(counted, X[TRUTH > 0], labels=TRUTH[TRUTH > 0], **QUICK)
    assert certs.labels.tolist() == TRUTH[TRUTH > 0].tolist()
    er.certify(counted, X, labels=TRUTH, **QUICK)  # 0 is no name: these are outputs
    assert er.certify(counted, X, labels=(TRUTH + 1).astype(str), **QUICK).labels.tolist() == TRUTH.tolist()
    assert er.certify(called(("0", "1", "2")), X, labels=TRUTH, **QUICK).labels.tolist() == TRUTH.tolist()


SIGNS = np.where(X[:, 0] > 0, 1, -1)


def test_classes_that_are_numbers_of_no_output(tmp_path: Path) -> None:
    """As scikit-learn's -1 and 1: the model's names are these, and labels are matched with them by value."""
    linear = pytest.importorskip("sklearn.linear_model")
    joblib = pytest.importorskip("joblib")
    model = linear.LogisticRegression(C=100).fit(X, SIGNS)
    net = er.load(model)
    assert net.about.classes == ("-1", "1") and (model.predict(X) == SIGNS).all()
    outputs = (SIGNS > 0).astype(int).tolist()
    for labels in (SIGNS, SIGNS.astype(float), torch.from_numpy(SIGNS)):
        with pytest.warns(er.DataWarning, match=r"these are not, and were taken as the names of classes .* '-1', '1'"):
            certs = er.certify(net, X, labels=labels, **QUICK)
        assert certs.labels.tolist() == outputs and set(certs.status) == {"certified"}
    with pytest.warns(er.DataWarning, match="these are not, and were taken as the names of classes"):
        assert er.verify(net, X[SIGNS < 0][0], X[SIGNS < 0][0], labels=-1)
    assert er.verify(net, X[SIGNS > 0][0], X[SIGNS > 0][0], labels=1)  # by either reading
    with pytest.raises(InputError, match=r"labels must lie in 0\.\.1, got values from -1 to 2"):
        er.certify(net, X[:3], labels=[-1, 1, 2])
    joblib.dump(model, tmp_path / "model.joblib")
    for kind, written in (("int", str), ("float", lambda s: f"{s:.1f}"), ("padded", lambda s: f"{s:03d}")):
        rows = ["a,b,label", *(f"{a!r},{b!r},{written(s)}" for (a, b), s in zip(X.tolist(), SIGNS.tolist()))]
        (tmp_path / f"{kind}.csv").write_text("\n".join(rows))
        given = ("certify", tmp_path / "model.joblib", tmp_path / f"{kind}.csv", "--trust-pickle", *FAST)
        said = good(*given, "--out", tmp_path / kind).stderr
        assert ("matched with the classes by their values as numbers: '-01' is '-1'" in said) == (kind == "padded")
        assert er.Certificates.load(tmp_path / kind).labels.tolist() == outputs
        good(*given, "--classes", "-1", "--out", tmp_path / f"{kind} one")
        assert er.Certificates.load(tmp_path / f"{kind} one").labels.unique().tolist() == [0]
    two = network(sizes=(2, 8, 2))
    with pytest.raises(InputError, match="knows its outputs, 0 to 1, alone: list what the labels call"):
        run_dataset(two, dataset(X, SIGNS), tmp_path / "refused", Settings(device="cpu"))
    run_dataset(two, dataset(X, SIGNS), tmp_path / "told", Settings.of({"device": "cpu", "class_names": "-1,1"}))
    assert er.Certificates.load(tmp_path / "told").labels.tolist() == outputs


def test_zeros_in_front_are_part_of_a_name(tmp_path: Path) -> None:
    def certified(labels: list[str], known: tuple[str, ...] | None, **told: Any) -> er.Certificates:
        rows = ["a,b,label", *(f"{a!r},{b!r},{labels[k]}" for (a, b), k in zip(X.tolist(), TRUTH))]
        (tmp_path / "data.csv").write_text("\n".join(rows))
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        settings = Settings.of({"device": "cpu", "bounds": "simple", "solver_options": {"gradients": 1}, **told})
        run_dataset(called(known), open_data(tmp_path / "data.csv"), folder / "run", settings)
        return er.Certificates.load(folder / "run")

    codes = ["7", "007", "8"]
    assert certified(codes, tuple(codes)).labels.tolist() == TRUTH.tolist()
    assert certified(codes, None, class_names="7,007,8").labels.tolist() == TRUTH.tolist()
    assert certified(["007", "7", "8"], tuple(codes)).labels.tolist() == np.array([1, 0, 2])[TRUTH].tolist()
    assert certified(["00", "01", "02"], None).labels.tolist() == TRUTH.tolist()  # as folders of classes are called
    assert certified(["02", "00", "01"], ("2", "0", "1")).labels.tolist() == TRUTH.tolist()
    assert certified(["2", "0", "1"], ("002", "000", "001")).labels.tolist() == TRUTH.tolist()
    assert set(certified(["02", "00", "01"], ("2", "0", "1"), classes="2").labels.tolist()) == {0}
    for labels, known in ((codes, ("7", "8", "9")), (codes, None), (["07", "08", "8"], ("7", "07", "8"))):
        with pytest.raises(InputError, match=r"class_names|choose among what both have"):
            certified(labels, known)
    with pytest.raises(InputError, match=r"class_names|choose among what both have"):  # 007 could be either
        certified(codes, ("7", "8", "9"), classes="007")
    decimal = ["1", "1.0", "2"]  # so are zeros behind a point, where both are there
    assert certified(decimal, tuple(decimal)).labels.tolist() == TRUTH.tolist()
    assert certified(["2.0", "0.0", "1.0"], ("2", "0", "1")).labels.tolist() == TRUTH.tolist()
    for known in (None, ("0", "1", "2"), ("a", "b", "c")):
        with pytest.raises(InputError, match=r"'1' and '1.0' are one number: where they are one class, write it one"):
            certified(decimal, known)


def test_what_a_number_means_does_not_depend_on_the_others() -> None:
    """Of classes called 1, 2, 3 the numbers 1 and 2 are those of outputs: so are they beside a 3, which is none."""
    linear = pytest.importorskip("sklearn.linear_model")
    net = er.load(linear.LogisticRegression().fit(X, np.arange(len(X)) % 3 + 1))
    assert net.about.classes == ("1", "2", "3")
    with pytest.warns(er.DataWarning, match="are those of outputs"):
        two = er.certify(net, X[:2], labels=[1, 2], **QUICK)
    assert two.labels.tolist() == [1, 2]
    with pytest.raises(InputError, match=r"labels must lie in 0\.\.2"):
        er.certify(net, X[:3], labels=[1, 2, 3], **QUICK)
    assert er.certify(net, X[:3], labels=["1", "2", "3"], **QUICK).labels.tolist() == [0, 1, 2]


def test_names_that_are_numbers_written_otherwise_are_warned_about() -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    net = er.load(linear.LogisticRegression().fit(X, np.where(SIGNS > 0, "02", "01")))
    with pytest.warns(er.DataWarning, match="are those of outputs"):
        assert er.certify(net, X[:1], labels=[1], **QUICK).labels.tolist() == [1]
    turned = Network(net.nodes, net.decision, About(classes=("True", "False")))
    with pytest.warns(er.DataWarning, match="are those of outputs"):
        er.certify(turned, X[:2], labels=np.array([True, False]), **QUICK)


def test_numbers_that_float64_does_not_tell_apart_are_refused() -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    net = er.load(linear.LogisticRegression().fit(X, np.where(SIGNS > 0, 2**53 + 1, 2**53)))
    with pytest.raises(InputError, match="give names of classes as text"):
        er.certify(net, X[:1], labels=[2**53 + 1], **QUICK)
