"""The published search, run again, on small networks."""

import dataclasses
from pathlib import Path

import pytest
import torch

from elbowroom.data.embedded import Dataset
from elbowroom.paper import unconverged as module
from elbowroom.paper.bench import Bench
from elbowroom.paper.models import MAIN, TINY, Model
from elbowroom.paper.tables import Column, Table
from elbowroom.paper.unconverged import Published, Setting, statements, unconverged_table
from elbowroom.training.sets import training_data

pytest.importorskip("sklearn")


def source(model: Model) -> tuple[Dataset, tuple[str, ...]]:
    return training_data("digits", None, model.classes)


def test_long_steps_come_near_bisection_and_short_ones_stay_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long, short = Setting("Adam 0.05", "adam", 0.05), Setting("SGD 0.001, rescaled to 0.01", "sgd", 1e-3, 0.01)
    monkeypatch.setattr(module, "SETTINGS", (long, short))
    bench = Bench(tmp_path, dataclasses.replace(TINY, few=3, steps=50), source, torch.device("cpu"), say=lambda _: None)
    table = unconverged_table(bench, MAIN[:1])
    paper, converged, ended, started = table.rows
    assert paper[3] == "the paper" and paper[4] == MAIN[0].reported.uniform
    assert converged[5] == converged[7] == 1
    assert 0.3 < ended[5] <= 1.001 and 0.3 < ended[7] <= 1.001  # feasible, so never larger
    # 50 steps of at most 1e-5 from 0.001's root, then less and less: it is where it began.
    assert 0.0009 < started[4] < 0.0013 and 0.0009 < started[6] < 0.0013
    monkeypatch.setattr(module, "certify", lambda *_, **__: pytest.fail("done already"))
    assert unconverged_table(bench, MAIN[:1]).rows == table.rows


def test_statements_say_what_the_rows_hold() -> None:
    about = ["SVHN", "9-9", "nobody"]
    rows = [
        [*about, "the paper", 0.002, None, 0.006, None, 3.0, None],
        [*about, "bisection, sequential", 0.008, 1.0, 0.009, 1.0, 1.125, 1.2],
        [*about, "short", 0.001, 0.125, 0.0005, 0.056, 0.5, 0.5],
        [*about, "mixed", 0.002, 0.25, 0.0061, 0.678, 3.05, 3.1],
        [*about, "none", 0.0, 0.0, 0.0, 0.0, None, None],
        [*about[:2], "PGD", "the paper", 0.002, None, 0.006, None, 3.0, None],
        [*about[:2], "PGD", "bisection, sequential", 0.008, 1.0, 0.009, 1.0, 1.125, 1.2],
        [*about[:2], "PGD", "short", 0.001, 0.125, 0.0005, 0.056, 0.5, 0.5],
    ]
    columns = [Column(str(k)) for k in range(10)]
    first, second = statements(Table("unconverged", columns, rows)).splitlines()
    assert "printed 0.0020 and 0.0060, a ratio of 3.00" in first and "0.0080 and 0.0090, 1.12" in first
    assert "0.00 to 0.25 of bisection's" in first and "0.00 to 0.68 of the sequential" in first
    assert "ratios 0.50 to 3.05" in first and "reached by mixed." in first and "bounds: mixed (0.0020" in first
    assert "None has the printed ratio" in second and "bounds: short" in second and "mixed" not in second


def test_gradients_are_rescaled_the_more_the_larger_rho_is() -> None:
    search = Published(clip=10.0, rho=1.0)
    assert [search.longest(rho) for rho in (1.0, 25.0, 625.0)] == [10.0, 2.0, 0.4]
