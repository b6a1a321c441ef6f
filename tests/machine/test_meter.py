"""Work under way is shown where somebody looks, and nowhere else."""

from __future__ import annotations

import io
import sys
import time
import types
from typing import Any

import pytest

import elbowroom as er
from elbowroom.machine import meter
from elbowroom.machine.meter import Meter, doing, watched
from runs.small import network, points


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    class ZMQInteractiveShell:
        pass

    shell = types.SimpleNamespace(get_ipython=ZMQInteractiveShell)
    monkeypatch.setitem(sys.modules, "IPython", shell)


def said(monkeypatch: pytest.MonkeyPatch, terminal: bool = False) -> io.StringIO:
    found = io.StringIO()
    found.isatty = lambda: terminal
    monkeypatch.setattr(sys, "stderr", found)
    return found


def test_silent_where_nobody_looks(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "_SOON", 0.0)
    monkeypatch.setattr(meter, "_EVERY", 0.0)
    for progress in (None, False):
        er.certify(network(), points(6), batch=2, progress=progress)
    assert capsys.readouterr() == ("", "")


def test_lines_where_it_is_asked_for(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "_EVERY", 0.0)
    certs = er.certify(network(), points(6), batch=2, progress=True)
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == "" and len(lines) == 3 and len(certs) == 6
    assert lines[0].startswith("2 of 6 inputs, ") and lines[0].endswith(" left") and "inputs/s" in lines[0]


def test_what_is_soon_done_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    found = said(monkeypatch, terminal=True)
    with watched(None, 4) as shown:
        shown.advance(2)
        shown.tick()
    assert found.getvalue() == ""


def test_a_bar_on_a_terminal_once_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "_SOON", 0.0)
    found = said(monkeypatch, terminal=True)
    with watched(None, 4) as shown:
        shown.tick()
        shown.advance(2)
    assert "2/4" in found.getvalue()


def test_a_line_that_changes_in_a_notebook(monkeypatch: pytest.MonkeyPatch, notebook: Any) -> None:
    monkeypatch.setattr(meter, "_SOON", 0.0)
    found = said(monkeypatch)
    with watched(None, 4) as shown:
        shown.tick()
        time.sleep(0.01)
        shown.advance(2)
        shown.tick()
    text = found.getvalue()
    assert "\n" not in text and "first batch in work" in text and "2 of 4 inputs, " in text
    assert text.rstrip(" ").endswith("\r") and text.split("\r")[-2].strip() == ""


def test_a_quiet_notebook(monkeypatch: pytest.MonkeyPatch, notebook: Any) -> None:
    found = said(monkeypatch)
    with watched(False, 4) as shown, Meter(4, quiet=True) as other:
        shown.advance(2)
        other.advance(1)
    assert found.getvalue() == ""


def test_it_is_said_what_is_being_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "_SILENCE", 0.0)
    monkeypatch.setattr(meter, "_TICK", 60.0)
    found = said(monkeypatch)
    with watched(True, 4) as shown:
        with pytest.raises(KeyError), doing("one thing"):
            with doing("another"):
                shown.tick()
            shown.tick()
            raise KeyError
        shown.tick()
    told = [f"0 of 4 inputs, first batch in work{what}, 0 s so far" for what in (" (another)", " (one thing)", "")]
    assert found.getvalue().splitlines() == told


def test_stages_of_a_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    stages: list[str] = []

    class Noted(Meter):
        def tick(self) -> None:
            stages.append("".join(words for (words,) in meter._stages[-1:]))

    monkeypatch.setattr(meter, "_TICK", 0.001)
    monkeypatch.setattr(meter, "Meter", Noted)
    er.certify(network(), points(2), effort=20, reach=True, progress=True)
    assert {"", "larger regions, cut into parts", "counterexamples beyond regions"} == set(stages)


def test_stages_of_two_threads_that_end_in_another_order() -> None:
    first, second = doing("first"), doing("second")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert meter._stages == [["second"]]
    second.__exit__(None, None, None)
    assert not meter._stages
