"""Pages and comparisons of runs that a forger changed: refused in words, or made; never anything else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from elbowroom.certificates.store import Run
from elbowroom.errors import InputError
from elbowroom.report.page.gather import report_of
from elbowroom.report.page.write import embedded, page_of
from elbowroom.runs.diff import diff_of
from elbowroom.runs.limits import exit_status, judged
from forgery import reseal
from proof.test_forged_runs import GOOD, forge
from support import cases

SOME = ("box", "cut and frozen", "ellipsoid", "oblique", "a set of labels", "outputs", "data set")


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("good")
    for name in SOME:
        GOOD[name](place / name)
    return place


@pytest.mark.parametrize("name", SOME)
def test_good_runs_have_pages(name: str, good: Path) -> None:
    assert page_of(report_of([good / name, good / name]))


@cases(0.4)
@given(data=st.data())
def test_forged_runs_are_shown_or_refused(
    good: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(SOME), label="run")
    run = Path(shutil.copytree(good / name, tmp_path_factory.mktemp("forged") / "run"))
    try:
        for _ in range(data.draw(st.sampled_from([1, 1, 2]))):
            forge(data.draw, run)
        reseal(run)
        try:
            report = report_of([good / name, run])
            text = page_of(report)
            assert all(c.isprintable() or c == "\n" for c in text) and "NaN" not in embedded(report)
            json.loads(embedded(report))
            event("shown")
        except InputError:
            event("page refused")
        try:
            found = diff_of(Run.open(good / name), Run.open(run))
            code = exit_status(found, judged(found, {"max_shrink": "0%"}))
            lost = any(row["old"] is not None and row["new"] is None for row in found["rows"])
            smaller = any(
                row["new"] is not None and row["old"] is not None and row["new"] < row["old"] for row in found["rows"]
            )
            assert code == 1 if lost or smaller else code in (0, 3)
        except InputError:
            event("comparison refused")
    finally:
        shutil.rmtree(run.parent)
