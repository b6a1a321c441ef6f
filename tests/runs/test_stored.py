"""Settings in a run's file are looked at before they are used or shown, by everything that does either."""

import dataclasses
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from elbowroom.certificates.store import Run
from elbowroom.commands import app as cli
from elbowroom.errors import InputError
from elbowroom.runs.settings import Settings
from elbowroom.runs.stored import stored_settings
from forgery import edit_run, reseal
from runs.small import files

ODD = {
    "no setting": ({"regin": 1}, "plan: regin is not a setting; did you mean region"),
    "no value of it": ({"region": "ball"}, "plan: region must be one of"),
    "not as stored": ({"delta": "0.5"}, "plan: delta"),
    "of the moment": ({"device": "cuda"}, "plan: device has no place in a run's file; it is given anew each time"),
    "escapes": ({"\x1b[2J": 1}, "is not a setting"),
}


def run(*arguments: Path | str) -> Result:
    return CliRunner().invoke(cli.app, [*map(str, arguments)], env={"COLUMNS": "120", "NO_COLOR": "1"})


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("stored")
    model, data = files(place, 3)
    assert run("certify", model, data, "--device", "cpu", "--region", "uniform", "--out", place / "run").exit_code == 0
    return place / "run"


def test_settings_are_given_back(begun: Path) -> None:
    plan = Run.open(begun).plan
    assert stored_settings(plan) == plan.settings and plan.settings["region"] == "uniform"
    fewer = dataclasses.replace(plan, settings={"region": "l1", "delta": None})
    assert stored_settings(fewer) == {**Settings().stored(), "region": "l1"}
    assert stored_settings(dataclasses.replace(plan, settings=None)) is None


@pytest.mark.parametrize("name", list(ODD))
def test_odd_settings_are_refused_by_what_uses_them(begun: Path, name: str, tmp_path: Path) -> None:
    change, words = ODD[name]
    for path in begun.rglob("*"):
        if path.is_file():
            (tmp_path / path.relative_to(begun)).parent.mkdir(exist_ok=True)
            (tmp_path / path.relative_to(begun)).write_bytes(path.read_bytes())
    edit_run(tmp_path, lambda r: r["plan"]["settings"].update(change))
    reseal(tmp_path)
    with pytest.raises(InputError, match=words.split(" has ")[0]):
        stored_settings(Run.open(tmp_path).plan)
    for command in (("show", tmp_path), ("status", tmp_path), ("certify", "--resume", "--out", tmp_path)):
        result = run(*command)
        said = result.stdout + result.stderr
        assert result.exit_code == 2 and words in said and "\x1b" not in said, command
    checked = run("check", tmp_path)  # which has no use for them, and does not show them
    assert checked.exit_code == 0 and not any(word in checked.stdout for word in ("regin", "ball", "cuda", "\x1b"))
