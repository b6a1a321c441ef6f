"""elbowroom certify, status and show, as they are called."""

import dataclasses
import json
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import elbowroom as er
from commands import good, refused, run
from elbowroom.certificates.store import Run
from elbowroom.commands import app as cli
from elbowroom.data.selection import select
from elbowroom.data.sources import open_data
from elbowroom.network import operations as ops
from elbowroom.network.file import save_network
from elbowroom.network.graph import Network
from elbowroom.runs.settings import Settings
from elbowroom.search.regions.registry import REGIONS
from forgery import edit_run, reseal
from support import mlp


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of three features, and data in several forms."""
    folder = tmp_path_factory.mktemp("work")
    net = mlp(np.random.default_rng(3), [3, 10, 3], ops.ReLU()).cast(torch.float32)
    er.save_network(net, folder / "net.elbowroom")
    er.save_network(mlp(np.random.default_rng(1), [3, 10, 3], ops.ReLU()), folder / "other.elbowroom")
    er.save_network(mlp(np.random.default_rng(0), [3, 10, 1], ops.ReLU()), folder / "regression.elbowroom")
    x = np.random.default_rng(0).uniform(-1, 1, size=(20, 3))
    y = net.decide(net(torch.from_numpy(x))).numpy()
    assert set(y) == {0, 1, 2}
    np.savez(folder / "data.npz", x=x, y=y)
    np.savez(folder / "wrong.npz", x=x, y=(y + 1) % 3)
    np.save(folder / "data.npy", 255 * x)
    rows = ["age,income,height,kind", *(f"{a},{b},{c},{'xyz'[k]}" for (a, b, c), k in zip(x.tolist(), y))]
    (folder / "data.csv").write_text("\n".join(rows) + "\n")
    return folder


@pytest.fixture
def given(place: Path) -> tuple[Any, ...]:
    return "certify", place / "net.elbowroom", place / "data.npz", "--device", "cpu"


def test_from_start_to_end(given: tuple[Any, ...], tmp_path: Path) -> None:
    result = good(*given, "--out", tmp_path / "run", "--part-rows", 6)
    assert "the network gets 20 of these 20 right" in result.stderr
    assert "data: Dataset(" in result.stderr and "4 parts of up to 6 inputs" in result.stderr
    assert "20 of 20" in result.stdout and "ratio (of an input's size to its uniform size): least" in result.stdout
    assert "complete" in good("status", tmp_path / "run").stdout
    assert good("show", tmp_path / "run").stdout.splitlines()[0] == result.stdout.splitlines()[0]
    shown = good("show", tmp_path / "run", "--index", 13, "--features", 2).stdout
    assert shown.startswith("input 13: certified") and "... and 1 more feature " in shown
    assert "all proved: 20 of 20" in good("check", tmp_path / "run").stdout


def test_json(given: tuple[Any, ...], tmp_path: Path) -> None:
    result = good(*given, "--out", tmp_path / "run", "--limit", 3, "--json", "--quiet")
    found = json.loads(result.stdout)
    assert not result.stderr and found["complete"] and found["status"]["certified"] == 3
    assert json.loads(good("show", tmp_path / "run", "--json").stdout) == found
    assert json.loads(good("status", tmp_path / "run", "--json").stdout)["done"] == 3
    one = json.loads(good("show", tmp_path / "run", "--json", "--index", 1).stdout)
    assert one["input"] == 1 and len(one["features"]) == 3
    quiet = good(*given, "--out", tmp_path / "quiet", "--limit", 2, "--quiet")
    assert not quiet.stdout and not quiet.stderr


def test_flags_become_settings(given: tuple[Any, ...], place: Path, tmp_path: Path) -> None:
    flags = {
        "scale": "1/255", "mean": "0.1,0.2,0.3", "std": "2", "decision": "min", "task": "classification",
        "limit": "4", "offset": "1", "indices": "0-9,17", "seed": "3", "region": "box-asymmetric",
        "max-eps": "0.5", "frozen": "1", "bounds": "combined", "margin": "logits", "delta": "1e-3",
        "deployed": "float32", "memory": "1GiB", "batch": "2", "part-rows": "3", "solver": "sequential",
        "precision": "float64", "workers": "1", "threads": "1", "engine": "local",
    }  # fmt: skip
    more = ["--shuffle", "--predicted", "--domain", "-600,600", "--domain", "2=-500,500", "--importance", "0=2"]
    more += ["--importance", "2=3", "--solver-option", "gradients=2"]
    pairs = [item for name, value in flags.items() for item in (f"--{name}", value)]
    result = good("certify", place / "net.elbowroom", place / "data.npy", "--out", tmp_path, *pairs, *more)
    opened = Run.open(tmp_path)
    kept = Settings.of(opened.plan.settings)
    assert kept.scale == 1 / 255 and kept.mean == [0.1, 0.2, 0.3] and kept.std == 2 and kept.decision == "min"
    assert (kept.limit, kept.offset, kept.indices, kept.seed, kept.shuffle) == (4, 1, "0-9,17", 3, True)
    assert (kept.region, kept.max_eps, kept.frozen) == ("box-asymmetric", {"*": 0.5}, ["1"])
    assert kept.domain == {"*": [-600, 600], "2": [-500, 500]} and kept.importance == {"0": 2, "2": 3}
    assert kept.solver_options == {"gradients": 2} and kept.part_rows == 3
    of_the_moment = {"trust_pickle", "device", "memory", "batch", "engine", "workers", "threads", "address"}
    assert not of_the_moment & set(opened.plan.settings)
    certs = er.Certificates.load(tmp_path)
    assert len(certs) == 4 and certs.settings["region"] == "Box(asymmetric)" and certs.network.decision == "min"
    assert certs.settings["bounds"] == "combined" and certs.settings["deployed"] == "float32"
    assert (
        certs.settings["precision"] == "float64"
        and certs.settings["delta"] == 1e-3
        and "gradients=2" in certs.settings["solver"]
    )
    assert [node.name for node in certs.network.nodes[1:4]] == ["scale", "normalise_mean", "normalise_std"]
    assert "what the network decides stays" in result.stderr


@pytest.mark.parametrize("region", [*REGIONS, "ball:1.5"])
def test_regions(given: tuple[Any, ...], tmp_path: Path, region: str) -> None:
    good(*given, "--out", tmp_path, "--limit", 2, "--region", region, "--quiet")
    assert "all proved: 2 of 2" in good("check", tmp_path).stdout


def test_every_setting_has_a_flag() -> None:
    shown = CliRunner().invoke(cli.app, ["certify", "--help"], env={"COLUMNS": "200"}).stdout
    for name in vars(Settings()):
        flag = {
            "solver_options": "--solver-option", "units": "--unit", "features": "--kind", "model": "model",
            "data": "data",
        }.get(name)  # fmt: skip
        assert (flag or f"--{name.replace('_', '-')}") in shown, name


def test_a_table_with_names(place: Path, tmp_path: Path) -> None:
    table = ("certify", place / "net.elbowroom", place / "data.csv", "--label-column", "kind", "--device", "cpu")
    said = refused(*table, "--out", tmp_path / "a")
    assert "the labels of data.csv are names ('x', 'y', 'z'), and the model does not say which of its 3 outputs" in said
    assert "as in --class-names x,y,z; --predicted goes without labels" in said
    table = (*table, "--class-names", "x,y,z")
    result = good(*table, "--out", tmp_path / "a", "--frozen", "age", "--importance", "income=3", "--limit", 4)
    assert "note: the model does not name its features: the columns of data.csv are taken in the order" in result.stderr
    certs = er.Certificates.load(tmp_path / "a")
    assert certs.network.about.features == ("age", "income", "height") and certs.network.about.classes == (
        "x",
        "y",
        "z",
    )
    assert bool((certs.eps[:, 0] == 0).all()) and set(certs.status) == {"certified"}
    shown = good("show", tmp_path / "a", "--index", 0).stdout
    assert "income" in shown and "height" in shown and "frozen" in shown and "label that stays: " in shown
    assert "no feature 'agee'; did you mean age?" in refused(*table, "--out", tmp_path / "b", "--frozen", "agee")
    good(*table, "--out", tmp_path / "c", "--feature-columns", "age,income,height", "--classes", "y", "--limit", 2)


def test_classes_that_do_not_fit(place: Path, tmp_path: Path) -> None:
    (tmp_path / "two.csv").write_text("a,b,c,kind\n1,2,3,cat\n3,4,5,dog\n")
    table = ("certify", place / "net.elbowroom", tmp_path / "two.csv", "--label-column", "kind", "--device", "cpu")
    said = refused(*table, "--out", tmp_path / "run")
    assert "the labels of two.csv are names ('cat', 'dog'), and the model does not say which of its 3 outputs" in said
    assert not (tmp_path / "run").exists()
    good(*table, "--out", tmp_path / "run", "--predicted")


def test_regression(place: Path, tmp_path: Path) -> None:
    net, data = place / "regression.elbowroom", place / "data.npz"
    plain = ("certify", net, data, "--task", "regression", "--device", "cpu", "--limit", 3)
    assert "say how closely with --within TOL" in refused(*plain, "--out", tmp_path / "a")
    bare = (*plain[:3], "--device", "cpu", "--limit", 3)
    assert "give a tolerance: --within TOL" in refused(*bare, "--out", tmp_path / "a")
    result = good(*plain, "--out", tmp_path / "a", "--within", 0.1)
    assert "outputs stay within 0.1" in result.stderr and "all proved: 3 of 3" in good("check", tmp_path / "a").stdout
    assert result.stdout.splitlines()[1].split()[0] == "-"


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models of three features whose last operation a classifier's reader may leave off."""
    from onnx import TensorProto, helper, numpy_helper, save

    folder = tmp_path_factory.mktemp("ends")
    rng = np.random.default_rng(5)
    for end, outputs in (("Sigmoid", 1), ("Sigmoid", 3), ("LogSoftmax", 3), ("Softmax", 3), ("ArgMax", 3)):
        weight, bias = rng.normal(size=(3, outputs)), rng.normal(size=outputs)
        kind, shape = (TensorProto.INT64, [None]) if end == "ArgMax" else (TensorProto.FLOAT, [None, outputs])
        more = {"ArgMax": {"axis": 1, "keepdims": 0}, "Sigmoid": {}}.get(end, {"axis": 1})
        graph = helper.make_graph(
            [helper.make_node("Gemm", ["x", "w", "b"], ["z"]), helper.make_node(end, ["z"], ["y"], **more)],
            "ends",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 3])],
            [helper.make_tensor_value_info("y", kind, shape)],
            [numpy_helper.from_array(a.astype(np.float32), n) for n, a in (("w", weight), ("b", bias))],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        save(model, str(folder / f"{end}{outputs}.onnx"))
    return folder


@pytest.mark.parametrize("model", ["Sigmoid1", "Sigmoid3"])
def test_a_tolerance_is_about_what_the_model_gives(ends: Path, place: Path, tmp_path: Path, model: str) -> None:
    """Never about the logits in front of an end that is left off."""
    given = ("certify", ends / f"{model}.onnx", place / "data.npz", "--device", "cpu", "--limit", 4)
    result = good(*given, "--out", tmp_path / "run", "--within", 0.05)
    assert "left off" not in result.stderr and "two classes" not in result.stderr
    assert "outputs stay within 0.05" in result.stderr
    certs = er.Certificates.load(tmp_path / "run")
    assert isinstance(certs.network.nodes[-1].op, ops.Sigmoid) and set(certs.status) == {"certified"}
    import onnxruntime

    session = onnxruntime.InferenceSession(ends / f"{model}.onnx", providers=["CPUExecutionProvider"])
    at = session.run(None, {"x": certs.x.float().numpy()})[0]
    for corner in (certs.lower, certs.upper):
        # (onnxruntime computes in float32, the claim is about real arithmetic)
        assert np.abs(session.run(None, {"x": corner.float().numpy()})[0] - at).max() <= 0.05 + 1e-6
    assert Settings.of(Run.open(tmp_path / "run").plan.settings).task == "regression"
    assert "4 of 4" in good("certify", "--resume", "--out", tmp_path / "run").stdout


@pytest.mark.parametrize("model", ["LogSoftmax3", "Softmax3", "ArgMax3"])
def test_a_tolerance_on_an_end_without_a_bound_is_refused(ends: Path, place: Path, tmp_path: Path, model: str) -> None:
    given = ("certify", ends / f"{model}.onnx", place / "data.npz", "--device", "cpu", "--out", tmp_path / "run")
    result = run(*given, "--within", 0.05)
    assert result.exit_code == 2 and result.stderr.startswith("elbowroom: ") and not result.stdout
    assert model[:-1] in result.stderr and not (tmp_path / "run").exists()
    good(*given, "--predicted", "--limit", 2)


def test_tolerances_and_tasks(place: Path, ends: Path, tmp_path: Path) -> None:
    out = ("--device", "cpu", "--limit", 2, "--out", tmp_path / "run")
    for model in (place / "net.elbowroom", ends / "Sigmoid3.onnx"):
        given = ("certify", model, place / "data.npz", *out)
        said = refused(*given, "--within", 0.1, "--task", "classification")
        assert "leave out --task classification" in said
        assert "say how closely with --within TOL" in refused(*given, "--task", "regression")
        assert "one for each of the 3 outputs; got 2" in refused(*given, "--within", "0.1,0.2")
    (tmp_path / "run.toml").write_text("within = [0.1, 0.2, 0.3]\n")
    good(*given, "--config", tmp_path / "run.toml")
    assert "all proved: 2 of 2" in good("check", tmp_path / "run").stdout


def test_what_a_saved_network_left_off_is_said(ends: Path, place: Path, tmp_path: Path) -> None:
    er.save_network(er.load(ends / "Sigmoid1.onnx"), tmp_path / "cut.elbowroom")
    given = ("certify", tmp_path / "cut.elbowroom", place / "data.npz", "--device", "cpu", "--limit", 2)
    said = refused(*given, "--within", 0.05, "--out", tmp_path / "run")  # of other numbers than the model's
    assert "the sigmoid at the end of the model was left off" in said
    result = good(*given, "--predicted", "--out", tmp_path / "run")
    assert "note: " in result.stderr and "sigmoid" in result.stderr and "left off" in result.stderr


def test_a_run_that_could_try_nothing(place: Path, tmp_path: Path) -> None:
    """It is done, and worth nothing: scripts must see that. To certify none of those tried is a finding."""
    np.savez(tmp_path / "holes.npz", x=np.full((3, 3), np.nan), y=np.zeros(3, int))
    given = ("certify", place / "net.elbowroom", tmp_path / "holes.npz", "--device", "cpu", "--quiet")
    for again in ((), ("--resume",)):
        result = run(*given, "--out", tmp_path / "holes", *again)
        assert result.exit_code == 1
        assert "could be tried; why: elbowroom show " in result.stderr.splitlines()[-1]
    assert json.loads(good("show", tmp_path / "holes", "--json").stdout)["tried"] == 0
    assert "input 0: no finite number in features 0, 1, 2\n" in good("show", tmp_path / "holes").stdout
    good("certify", place / "net.elbowroom", place / "wrong.npz", "--device", "cpu", "--out", tmp_path / "wrong")


def test_a_device_that_is_not_there(given: tuple[Any, ...], tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    said = refused(*given, "--out", tmp_path / "run", "--device", "cuda")
    assert said == "elbowroom: device 'cuda' cannot be used here; the device 'cpu' always can\n"


def test_accuracy_near_chance(given: tuple[Any, ...], place: Path, tmp_path: Path) -> None:
    wrong = ("certify", place / "net.elbowroom", place / "wrong.npz", "--device", "cpu")
    result = good(*wrong, "--out", tmp_path / "a", "--quiet")
    assert result.stderr.startswith("warning: the network gets only 0 of 20 right, hardly more than by chance")
    for words in ("order of the features' columns", "--layout", "--scale", "--class-names", "--decision max or min"):
        assert words in result.stderr
    shown = good("show", tmp_path / "a").stdout.splitlines()
    assert shown[0] == result.stderr.strip() and shown[2].split() == ["0.00%", "-", "-", "-", "0", "of", "20"]
    assert good("certify", "--resume", "--out", tmp_path / "a", "--quiet").stderr == result.stderr
    good(*wrong, "--out", tmp_path / "b", "--predicted", "--limit", 2)
    assert Run.open(tmp_path / "b").plan.data["kept"] == "decisions"


def test_labels_the_network_does_not_know(place: Path, tmp_path: Path) -> None:
    x = np.load(place / "data.npz")["x"]
    np.savez(tmp_path / "data.npz", x=x, y=np.arange(20) % 5)
    given = ("certify", place / "net.elbowroom", tmp_path / "data.npz", "--device", "cpu", "--out", tmp_path / "run")
    said = refused(*given)
    assert "has 5 classes, but the network knows its outputs, 0 to 2, alone; choose among what both have" in said
    assert "--classes 0,1,2 (its labels: '0', '1', '2', '3', '4'); --predicted goes without labels" in said
    good(*given, "--classes", "0,1,2")
    assert len(er.Certificates.load(tmp_path / "run")) == 12


def test_labels_that_begin_with_one(place: Path, tmp_path: Path) -> None:
    x, y = (np.load(place / "data.npz")[k] for k in "xy")
    np.savez(tmp_path / "data.npz", x=x, y=y + 1)
    given = ("certify", place / "net.elbowroom", tmp_path / "data.npz", "--device", "cpu", "--out", tmp_path / "run")
    said = refused(*given)
    assert "has 3 classes, but the network knows its outputs, 0 to 2, alone: where labels begin with 1" in said
    assert "say --class-names 1..3; --predicted goes without labels" in said
    assert "gets 20 of these 20 right" in good(*given, "--class-names", "1..3").stderr
    certs = er.Certificates.load(tmp_path / "run")
    assert certs.labels.tolist() == y.tolist() and certs.network.about.classes == ("1", "2", "3")
    np.savez(tmp_path / "data.npz", x=x, y=y + 7)
    said = refused(*given)
    assert "labels of data.npz ('7', '8', '9') are none of the classes that the network knows, '0', '1', '2'" in said
    assert "as in --class-names 7..9" in said


def test_numbers_that_are_missing(place: Path, tmp_path: Path) -> None:
    lines = (place / "data.csv").read_text().splitlines()
    lines[3] = "," + lines[3].partition(",")[2]
    (tmp_path / "holes.csv").write_text("\n".join(lines))
    given = ("certify", place / "net.elbowroom", tmp_path / "holes.csv", "--label-column", "kind", "--device", "cpu")
    result = good(*given, "--class-names", "x,y,z", "--out", tmp_path / "run")
    assert "    input 2: row 3 below the header: 'age' is missing\n" in result.stdout
    assert "3 features, 3 classes, labels from column 'kind')" in result.stderr
    assert "the network gets 19 of these 20 right" in result.stderr
    assert "accuracy: of the 19 inputs that could be tried; 1 could not (see below)\n" in result.stdout


def test_workers(given: tuple[Any, ...], tmp_path: Path) -> None:
    result = good(*given, "--out", tmp_path / "run", "--workers", 2)
    assert "on cpu by 2 workers of 1 thread each" in result.stderr and "10 parts of up to 2 inputs" in result.stderr
    assert "20 of 20" in result.stdout


# --- settings from a file


def test_a_config_says_everything(place: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(
        f'model = "{place}/net.elbowroom"\ndata = "{place}/data.npz"\nout = "{tmp_path}/run"\n'
        'limit = 3\nregion = "ellipsoid"\nmax-eps = 0.5\ndevice = "cpu"\n[importance]\n0 = 2\n'
    )
    good("certify", "--config", path)
    kept = Settings.of(Run.open(tmp_path / "run").plan.settings)
    assert (kept.limit, kept.region, kept.max_eps, kept.importance) == (3, "ellipsoid", {"*": 0.5}, {"0": 2})
    good("certify", "--config", path, "--out", tmp_path / "other", "--region", "box", "--limit", 2)
    kept = Settings.of(Run.open(tmp_path / "other").plan.settings)
    assert (kept.limit, kept.region, kept.max_eps) == (2, "box", {"*": 0.5})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("regoin = 'box'", "run.toml: regoin is not a setting; did you mean region?"),
        ("region = 'bx'", "run.toml: region must be one of"),
        ("limit = 'many'", "run.toml: limit must be a whole number"),
        ("out = 3", "run.toml: out must be text"),
        ("= 3", "is not a TOML file"),
    ],
)
def test_configs_that_are_refused(given: tuple[Any, ...], tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "run.toml").write_text(text)
    assert words in refused(*given, "--config", tmp_path / "run.toml", "--out", tmp_path / "run")


# --- resuming


def test_resume(given: tuple[Any, ...], place: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "run")
    good(*given, *out, "--part-rows", 6, "--limit", 12)
    assert "already holds a run; resume it (--resume)" in refused(*given, *out)
    (tmp_path / "run" / "parts" / "part-00001.parquet").unlink()
    assert "6 of 12 inputs (50%)" in good("status", tmp_path / "run").stdout
    said = refused(*given, *out, "--resume", "--limit", 12, "--region", "l1")
    assert "was begun with something else: region (then box, now l1)" in said
    other = ("certify", place / "other.elbowroom", place / "data.npz", "--device", "cpu")
    assert "another network" in refused(*other, *out, "--resume", "--limit", 12)
    result = run("certify", "--resume", *out, "--delta", 0.5)
    assert result.exit_code == 2 and "delta (then 0.0, now 0.5)" in result.stderr
    assert f"resuming {tmp_path}/run: its own network, and the data that it names, {place}/data.npz\n" in result.stderr
    result = good("certify", "--resume", *out)
    assert "6 inputs done already" in result.stderr and "12 of 12" in result.stdout
    assert "12 of 12" in good(*given, *out, "--resume", "--limit", 12).stdout


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("address", "ray://203.0.113.7:10001"), ("engine", "ray"), ("trust_pickle", True), ("trust_pickle", False),
        ("device", "cuda"), ("memory", "1TiB"), ("workers", 4), ("batch", 2),
    ],
)  # fmt: skip
def test_trust_and_machines_never_come_from_a_file(
    given: tuple[Any, ...], tmp_path: Path, name: str, value: bool | int | str
) -> None:
    """Whoever resumes a run that others made must not connect to their cluster, or run code from their models."""
    good(*given, "--out", tmp_path / "run", "--limit", 2)
    edit_run(tmp_path / "run", lambda r: r["plan"]["settings"].update({name: value}))
    reseal(tmp_path / "run")
    for command in (("certify", "--resume", "--out", tmp_path / "run"), ("show", tmp_path / "run")):
        assert f"plan: {name} has no place in a run's file; it is given anew each time" in refused(*command)


def test_a_run_that_names_a_model_is_gone_on_with_its_own_network(
    given: tuple[Any, ...], place: Path, tmp_path: Path
) -> None:
    good(*given, "--out", tmp_path / "run", "--limit", 4, "--part-rows", 2)
    (tmp_path / "run" / "parts" / "part-00001.parquet").unlink()

    class Trap:
        def __reduce__(self) -> tuple[Callable[..., Any], tuple[Path]]:
            return (Path.touch, (tmp_path / "sprung",))

    (tmp_path / "model.pkl").write_bytes(pickle.dumps(Trap()))
    edit_run(tmp_path / "run", lambda r: r["plan"]["settings"].update(model=str(tmp_path / "model.pkl")))
    reseal(tmp_path / "run")
    assert "4 of 4" in good("certify", "--resume", "--out", tmp_path / "run").stdout
    assert not (tmp_path / "sprung").exists()


def test_a_plan_of_more_inputs_than_were_chosen(given: tuple[Any, ...], tmp_path: Path) -> None:
    good(*given, "--out", tmp_path / "run", "--limit", 2)
    edit_run(tmp_path / "run", lambda r: r["plan"].update(inputs=1 << 39, part_rows=1))
    result = run("certify", "--resume", "--out", tmp_path / "run")
    assert result.exit_code == 2 and "another choice of inputs" in result.stderr


def test_going_on_under_other_names(place: Path, tmp_path: Path) -> None:
    """The network has no names of its own: those of the table's columns are part of what was begun."""
    table = "\n".join(",".join(map(str, row)) for row in np.load(place / "data.npz")["x"][:4].tolist())
    for names, again in (("a,b,c", False), ("a,c,b", True)):
        (tmp_path / "data.csv").write_text(f"{names}\n{table}\n")
        more = ("--resume",) if again else ()
        result = run("certify", place / "net.elbowroom", tmp_path / "data.csv", "--out", tmp_path / "run", *more)
        assert result.exit_code == (2 if again else 0), result.output
    assert "other names of features or classes" in result.stderr


def test_interrupted(given: tuple[Any, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("elbowroom.runs.runner.run_dataset", stop)
    result = run(*given, "--out", tmp_path / "run")
    assert result.exit_code == 130
    assert result.stderr.startswith("elbowroom: stopped at once; finished parts are kept")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("certify",), "give a model and data (elbowroom certify MODEL DATA [--out RUN]), or the folder of a run"),
        (("certify", "--out", "{tmp}/run"), "give a model and data"),
        (("certify", "--resume", "--out", "{tmp}/run"), "run holds no run to resume; begin one"),
        (
            ("certify", "{place}/net.elbowroom", "digits", "--out", "{tmp}/run"),
            "digits does not fit {place}/net.elbowroom: inputs of shape (1, 8, 8) do not fit the model",
        ),
        (
            ("certify", "{place}/net.elbowroom", "{place}/data.npz", "--out", "{tmp}/run", "--address", "auto"),
            "only the engine ray uses",
        ),
        (
            ("certify", "{place}/net.elbowroom", "{place}/data.npz", "--out", "{tmp}/run", "--engine", "rya"),
            "--engine must be one of local, ray; did you mean ray?, got 'rya'",
        ),
        (("certify", "{place}/net.elbowroom", "--out", "{tmp}/run"), "give a model and data"),
        (("certify", "{tmp}/none.onnx", "{place}/data.npz", "--out", "{tmp}/run"), "none.onnx"),
        (("certify", "{place}/net.elbowroom", "nosuch", "--out", "{tmp}/run"), "'nosuch' is neither a file"),
        (
            ("certify", "{place}/net.elbowroom", "{place}/data.npz", "--out", "{tmp}/run", "--limit", "0"),
            "--limit must",
        ),
        (("certify", "{place}/net.elbowroom", "{place}/data.npz", "--out", "{tmp}/run", "--max-eps", "x"), "--max-eps"),
        (("status", "{tmp}"), "holds no run"),
        (("show", "{tmp}"), "holds no run"),
    ],
)
def test_what_is_refused(place: Path, tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    said = refused(*(a.format(tmp=tmp_path, place=place) for a in arguments))
    assert words.format(tmp=tmp_path, place=place) in said
    assert not (tmp_path / "run").exists()


def test_status_and_show_write_nothing(given: tuple[Any, ...], tmp_path: Path) -> None:
    good(*given, "--out", tmp_path / "run", "--limit", 2)
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")}
    good("status", tmp_path / "run")
    good("show", tmp_path / "run")
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")} == before


def test_help_needs_no_torch() -> None:
    import subprocess

    code = (
        "import sys; from typer.testing import CliRunner; from elbowroom.commands import app as cli\n"
        "assert CliRunner().invoke(cli.app, ['certify', '--help']).exit_code == 0\n"
        "print([m for m in ('torch', 'numpy', 'pyarrow') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_a_network_that_knows_some_of_the_classes(tmp_path: Path) -> None:
    """Its classes have other numbers than the data's: they are matched by name."""
    pytest.importorskip("sklearn")
    net = tmp_path / "net.elbowroom"
    good("train", "digits", "--classes", "3,8", "--widths", "16", "--epochs", "30", "--rate", "0.01", "--out", net)
    given = ["certify", net, "digits", "--limit", "8"]
    said = refused(*given, "--out", tmp_path / "none")
    assert "has 10 classes, but the network knows 3 and 8 alone; choose among what both have: --classes 3,8" in said
    for others in ("3,4", "0,1"):  # 0 and 1 are digits here, not the network's numbers for 3 and 8
        assert "knows 3 and 8 alone" in refused(*given, "--classes", others, "--out", tmp_path / "none")
    good(*given, "--classes", "8,3", "--out", tmp_path / "run")
    certs = Run.open(tmp_path / "run").read(0)
    data = open_data("digits")
    chosen = select(data, limit=8, classes="3,8")
    assert certs.labels.tolist() == [{3: 0, 8: 1}[k] for k in data.labels[chosen].tolist()]
    assert int(certs.certified.sum()) >= 6
    good(*given, "--classes", "8,3", "--out", tmp_path / "run", "--resume")
    good("check", tmp_path / "run")


@pytest.mark.parametrize("kind", [int, float])
def test_classes_that_are_numbers_from_one(tmp_path: Path, kind: type[Any]) -> None:
    """scikit-learn's classes 1 and 2 are the network's 0 and 1; labels in a table are 1 and 2."""
    neural = pytest.importorskip("sklearn.neural_network")
    joblib = pytest.importorskip("joblib")
    x = np.random.default_rng(0).normal(size=(60, 3))
    y = (1 + (x.sum(1) > 0)).astype(kind)
    model = neural.MLPClassifier((8,), learning_rate_init=0.02, max_iter=400, random_state=0).fit(x, y)
    joblib.dump(model, tmp_path / "model.joblib")
    table = "\n".join(["a,b,c,label", *(",".join(map(str, [*row, k])) for row, k in zip(x.tolist(), y))])
    (tmp_path / "data.csv").write_text(table)
    given = ["--label-column", "label", "--trust-pickle", "--out", tmp_path / "run"]
    good("certify", tmp_path / "model.joblib", tmp_path / "data.csv", *given)
    certs = Run.open(tmp_path / "run").read(0)
    assert certs.labels.tolist() == (y - 1).tolist() and int(certs.certified.sum()) >= 55
    good("certify", "--out", tmp_path / "run", "--resume")
    # One of the two classes alone, and one that the network does not know.
    (tmp_path / "data.csv").write_text("a,b,c,label\n1,1,1,2\n2,1,1,2")
    given[-1] = tmp_path / "one"
    good("certify", tmp_path / "model.joblib", tmp_path / "data.csv", *given)
    assert Run.open(tmp_path / "one").read(0).labels.tolist() == [1, 1]
    (tmp_path / "data.csv").write_text("a,b,c,label\n1,1,1,2\n2,1,1,0")
    given[-1] = tmp_path / "other"
    said = refused("certify", tmp_path / "model.joblib", tmp_path / "data.csv", *given)
    assert "the network knows 1 and 2 alone; choose among what both have: --classes 2" in said


def test_names_of_classes_that_contradict(tmp_path: Path) -> None:
    """cat and dog are not dog and fish; names of another kind are never numbered without a word."""
    net = mlp(np.random.default_rng(0), [2, 6, 2], ops.ReLU())
    for names in (("cat", "dog"), ("0", "1"), ("dog", "fish")):
        about = dataclasses.replace(net.about, classes=names)
        save_network(Network(net.nodes, net.decision, about), tmp_path / "net.elbowroom")
        (tmp_path / "data.csv").write_text("a,b,label\n0.5,1,dog\n-1,2,fish\n")
        given = ["certify", tmp_path / "net.elbowroom", tmp_path / "data.csv", "--label-column", "label"]
        out = tmp_path / names[0]
        if names[0] == "cat":
            assert "the network knows cat and dog alone" in refused(*given, "--out", out)
            good(*given, "--classes", "dog", "--out", out)
            assert Run.open(out).read(0).labels.tolist() == [1]
            said = refused(*given, "--class-names", "dog,fish", "--out", tmp_path / "none")
            assert "--class-names: the model's class 'dog' is output 1, not 0" in said
            continue
        if names[0] == "0":
            said = refused(*given, "--out", out)
            assert "('dog', 'fish') are none of the classes that the network knows, '0', '1': list what they" in said
            given += ["--class-names", "dog,fish"]
        good(*given, "--out", out)
        opened = Run.open(out)
        assert opened.read(0).labels.tolist() == [0, 1] and opened.network.about.classes == ("dog", "fish")


def test_without_a_folder_the_run_is_named_after_model_and_data(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    good("certify", place / "net.elbowroom", place / "data.npz", "--limit", "2", "--quiet")
    assert [each.name for each in tmp_path.iterdir()] == ["net-data"]
    said = refused("certify", place / "net.elbowroom", place / "data.npz", "--limit", "2")
    assert "net-data" in said and "--resume" in said
    good("certify", place / "net.elbowroom", place / "data.npz", "--limit", "2", "--quiet", "--resume")
