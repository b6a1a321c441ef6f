"""Settings: the same values from flags, files and runs; what cannot be used is refused by name."""

import inspect
import json
from pathlib import Path
from typing import Any

import pytest

import elbowroom as er
from elbowroom.certify.api import PRECISIONS
from elbowroom.errors import InputError
from elbowroom.readers.load import LAYOUTS, TASKS, load
from elbowroom.runs import settings as module
from elbowroom.runs.problem import arguments
from elbowroom.runs.settings import OPTIONS, Option, Settings, read_config
from runs.small import network

# name, text of a flag (a list where it may be repeated), the same in a file, what is kept
SAME = [
    ("input_shape", "1,28,28", [1, 28, 28], [1, 28, 28]),
    ("input_shape", "1x28x28", "1,28,28", [1, 28, 28]),
    ("input_shape", "784", 784, [784]),
    ("scale", "1/255", 1 / 255, 1 / 255),
    ("scale", "0.5", 0.5, 0.5),
    ("mean", "0.5", 0.5, 0.5),
    ("mean", "0.4, 0.5", [0.4, 0.5], [0.4, 0.5]),
    ("std", "1,2", [1, 2], [1.0, 2.0]),
    ("limit", "7", 7, 7),
    ("offset", "0", 0, 0),
    ("indices", "0-9,17", "0-9,17", "0-9,17"),
    (
        "features",
        ["age=whole number", "sex=fixed"],
        {"age": "whole number", "sex": "fixed"},
        {"age": "whole number", "sex": "fixed"},
    ),
    ("within", "0.5", 0.5, 0.5),
    ("within", "0.5,1", [0.5, 1], [0.5, 1.0]),
    ("domain", ["0,1"], [0, 1], {"*": [0.0, 1.0]}),
    ("domain", ["0:1"], "0,1", {"*": [0.0, 1.0]}),
    ("domain", ["-1,1", "age=0,inf"], {"*": [-1, 1], "age": [0, float("inf")]}, {"*": [-1.0, 1.0], "age": [0.0, None]}),
    ("domain", ["data"], "data", "data"),
    ("max_eps", ["0.5"], 0.5, {"*": 0.5}),
    ("max_eps", ["a=b=0.5", "2"], {"a=b": 0.5, "*": 2}, {"a=b": 0.5, "*": 2.0}),
    ("importance", ["age=2", "3=1/4"], {"age": 2, "3": 0.25}, {"age": 2.0, "3": 0.25}),
    ("frozen", ["age", "0-3"], ["age", "0-3"], ["age", "0-3"]),
    ("frozen", ["3"], [3], ["3"]),
    ("feature_columns", "a,b", ["a", "b"], ["a", "b"]),
    ("solver_options", ["steps=2000", "rate=1e-2"], {"steps": 2000, "rate": 0.01}, {"steps": 2000.0, "rate": 0.01}),
    ("delta", "1e-3", 1e-3, 1e-3),
    ("batch", "64", 64, 64),
    ("memory", "4GiB", "4GiB", "4GiB"),
    ("shuffle", True, True, True),
    ("deployed", "float32", "float32", "float32"),
    ("threshold", "0.3", 0.3, 0.3),
    ("units", ["age=years", "a=b=m/s"], {"age": "years", "a=b": "m/s"}, {"age": "years", "a=b": "m/s"}),
    ("reach", True, True, True),
    ("region", "ball:1.50", "ball:1.5", "ball:1.5"),
    ("region", "ball:3/1", "ball:3.0", "ball:3"),
    ("region", "ball:inf", "ball:Infinity", "ball:inf"),
]


@pytest.mark.parametrize(("name", "flag", "file", "kept"), SAME, ids=[f"{s[0]}-{k}" for k, s in enumerate(SAME)])
def test_flags_and_files_say_the_same(name: str, flag: list[str] | str, file: Any, kept: Any) -> None:
    for value in (flag, file):
        assert getattr(Settings.of({name: value}), name) == kept


def test_what_is_kept_is_read_again() -> None:
    found = Settings.of({name: file for name, _, file, _ in SAME})
    plain = json.loads(json.dumps(found.plain(), allow_nan=False))
    assert Settings.of(plain) == found
    assert Settings.of(Settings().plain()) == Settings()


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("regin", "box", "regin is not a setting; did you mean region?"),
        ("zzz", 1, "zzz is not a setting$"),
        ("features", ["age=whole numbr"], "features must be a feature and its kind.*; did you mean whole number"),
        ("features", {"age": {"domain": {"low": 1}}}, "features must be texts, numbers and lists"),
        ("region", "elipsoid", "region must be one of .*; did you mean ellipsoid"),
        ("bounds", 3, "bounds must be one of"),
        *(
            ("region", f"ball:{p}", "region must be ball:P with a norm P from 1 to inf")
            for p in ("P", "", "0.5", "nan")
        ),
        ("region", 1.5, "region must be one of"),
        ("scale", "1/0", "scale must be a number"),
        ("scale", "inf", "scale must be a finite number"),
        ("scale", "nan", "scale must be a number"),
        ("mean", "a,b", "mean must be a number, got 'a,b'"),
        ("mean", True, "mean must be a number"),
        ("limit", 0, "limit must be a whole number of at least 1"),
        ("limit", "1.5", "limit must be a whole number"),
        ("limit", True, "limit must be a whole number"),
        ("input_shape", "1,x", "input_shape must be a whole number of at least 1"),
        ("input_shape", [0], "input_shape must be a whole number of at least 1"),
        ("domain", ["1,0"], "domain must be the lowest and then the highest"),
        ("domain", ["5"], "domain must be the lowest and the highest value, such as 0,1"),
        ("domain", ["inf,inf"], "domain must be the lowest and then"),
        ("domain", ["0,1", "0,2"], "one value for all features"),
        ("max_eps", ["-1"], "max_eps must be a number that is not negative"),
        ("importance", ["age=0"], "importance must be a number above 0"),
        ("importance", ["age"], "importance must be a number"),
        ("importance", ["a=1", "a=2"], "one value for a"),
        ("frozen", [1.5], "frozen must be a list of names"),
        ("within", "0", "within must be a number above 0"),
        ("solver_options", ["2000"], "options such as steps=2000"),
        ("memory", 0, "memory must be a whole number"),
        ("predicted", "yes", "predicted must be true or false"),
        ("model", 7, "model must be text"),
        ("threshold", "1", "threshold must be a number above 0 and below 1"),
        ("threshold", "nan", "threshold must be a number"),
        ("units", "years", "units must be a feature and its unit, such as age=years"),
        ("units", {"age": 3}, "units must be text"),
        ("deployed", "float16", "deployed must be one of float32"),
    ],
)
def test_what_is_refused(name: str, value: int | list[str] | str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        Settings.of({name: value})


def test_kinds_of_settings() -> None:
    """What a run must not change, what it stores, and how a model is read."""
    assert set(Settings().claim()) == {
        "predicted", "within", "region", "domain", "max_eps", "frozen", "importance", "room_scale", "bounds", "margin",
        "solver", "solver_options", "objective", "delta", "precision", "deployed", "reach", "effort", "proof_bytes",
    }  # fmt: skip
    assert set(Settings().plain()) - set(Settings().stored()) == {
        "trust_pickle", "device", "memory", "batch", "engine", "workers", "threads", "address"
    }  # fmt: skip
    told = set(inspect.signature(load).parameters) - {"model", "classes", "trust_pickle"}
    assert set(Settings().reading()) == told


@pytest.mark.parametrize("option", OPTIONS.values(), ids=OPTIONS)
def test_help_names_choices_and_defaults_are_values(option: Option) -> None:
    assert all(name in option.help for name in option.choices) and "{" not in option.help
    if option.default is not None:
        assert option.parse(option.default) == option.default
    assert option.kind in (module.CLAIM, module.READING, module.MOMENT, module.PLAIN)


def test_choices_are_those_of_the_registries() -> None:
    assert OPTIONS["precision"].choices == tuple(PRECISIONS)
    assert (OPTIONS["layout"].choices, OPTIONS["task"].choices) == (LAYOUTS, TASKS)


# Settings of the claim that no parameter of `certify` has the name and the default of, and why.
OTHERWISE = {
    "predicted": "labels=None is this: then what the network decides is to stay",
    "within": "becomes spec, from the outputs at each input",
    "region": "a shape; Box() where none is given, as the name box is",
    "solver_options": "fields of the solver object",
}


def test_settings_of_the_claim_are_parameters_of_certify() -> None:
    parameters = inspect.signature(er.certify).parameters
    for name, value in Settings().claim().items():
        same = name in parameters and parameters[name].default == value
        assert same != (name in OTHERWISE), f"{name}: a gap, or an excuse that is not needed"
    assert set(OTHERWISE) <= set(Settings().claim())


def test_a_run_tells_certify_all_that_it_can_be_told() -> None:
    told = set(arguments(Settings(device="cpu"), network()))
    carried = {"features"}  # by the network, into whose table they are read
    own = {"net", "x", "labels", "spec", "prior", "progress"}
    assert told | carried | own == set(inspect.signature(er.certify).parameters)


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text('model = "a.onnx"\nmax-eps = 0.5\nlimit = 3\n[domain]\nage = [0, 120]\n')
    assert read_config(path) == {"model": "a.onnx", "max_eps": 0.5, "limit": 3, "domain": {"age": [0, 120]}}
    path.write_text("max-eps = 1\nmax_eps = 2\n")
    with pytest.raises(InputError, match="given twice"):
        read_config(path)
    path.write_text("limit = \n")
    with pytest.raises(InputError, match=r"run\.toml is not a TOML file: .*line 1"):
        read_config(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="not a TOML file"):
        read_config(path)
    with pytest.raises(InputError, match=r"cannot be read: No such file"):
        read_config(tmp_path / "none.toml")


def test_the_task_follows_from_the_tolerance() -> None:
    assert Settings().settled() == Settings()
    assert Settings(within=0.1).settled() == Settings(within=0.1, task="regression").settled()
    assert Settings(within=0.1).settled().task == "regression"
    with pytest.raises(InputError, match="say how closely with `within=TOL`"):
        Settings(task="regression").settled()
    with pytest.raises(InputError, match="leave out `task='classification'`, or `within`"):
        Settings(task="classification", within=0.1).settled()
