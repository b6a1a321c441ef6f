"""The experiments on images, in the smallest size and on embedded digits: computed, resumed, read back, drawn."""

import csv
import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import elbowroom as er
from elbowroom.certificates.result import STATUSES
from elbowroom.certificates.store import Run
from elbowroom.errors import InputError
from elbowroom.paper import certified
from elbowroom.paper.bench import Bench, Stopped
from elbowroom.paper.certified import WAYS, held_of
from elbowroom.paper.compare import TABLES, claims
from elbowroom.paper.compute import compute
from elbowroom.paper.findings import Summary, pairs, read
from elbowroom.paper.models import BINARY, FULL, MAIN, QUICK, SIZES, TINY
from elbowroom.paper.render import into_docs, render
from elbowroom.training.sets import training_data

pytest.importorskip("sklearn")
MODELS = (*MAIN[:2], *BINARY[:2])


def bench(out: Path, **options: Any) -> Bench:
    return Bench(out, TINY, lambda m: training_data("digits", None, m.classes), torch.device("cpu"), **options)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    out = tmp_path_factory.mktemp("compute")
    said = []
    compute(bench(out, say=said.append), MODELS)
    return out, said


def test_all_ways_are_runs_that_are_proved_again(done: tuple[Path, list[str]]) -> None:
    out, said = done
    for model in MODELS:
        name = TINY.of(model).name
        ways = list(WAYS) if model.classes is None else ["sequential"]
        assert sorted(p.stem for p in (out / "runs" / name).iterdir()) == sorted(ways)
        for way in ways:
            held = held_of(out, name, way)
            wanted = TINY.maps if model.classes else TINY.every if way == "sequential" else TINY.inputs
            wanted = TINY.lagrangian if way == "lagrangian" else wanted
            assert {len(column) for column in held.values()} == {wanted}
            good = held["status"] == STATUSES.index("certified")
            assert good.any() and (held["proved"] == good).all()
            assert (held["ratio"][good] >= 1 - 1e-6).all() and (held["geomean"][~good] == 0).all()
            assert any(f"{name}: {way}: " in line for line in said)
            assert Run.open(out / "runs" / name / way).plan.inputs == wanted


def test_what_is_stored_is_what_certify_finds(done: tuple[Path, list[str]]) -> None:
    out, _ = done
    model = TINY.of(MAIN[1])
    net = er.load(out / "models" / f"{model.name}.elbowroom")
    data, _ = training_data("digits")
    paper = {"bounds": "combined", "margin": "logits", "delta": 1e-4}
    certs = er.certify(net, data.x_test[:6].reshape(-1, 8, 8), data.y_test[:6], **paper)
    stored = er.Certificates.load(out / "runs" / model.name / "sequential")
    assert stored.x.shape == (TINY.every, 8, 8) and stored.index.tolist() == list(range(TINY.every))
    np.testing.assert_allclose(stored.geomean[:6], certs.geomean, rtol=1e-6)
    np.testing.assert_allclose(stored.eps[:6], certs.eps, rtol=1e-6)
    facts = json.loads((out / "analysis" / f"{model.name}.json").read_text())
    assert facts["inputs"] == TINY.every and facts["certified"] == int(stored.certified.sum())
    first = facts["first"]
    assert first["inputs"] == TINY.inputs < TINY.every and first["least_cosine"] >= facts["least_cosine"]
    alone = stored.eps[: TINY.inputs][stored.certified[: TINY.inputs]].flatten(1)
    mean, least = er.analyse.cosine_similarity(alone)
    assert first["mean_cosine"] == pytest.approx(mean) and first["least_cosine"] == pytest.approx(least)
    training = json.loads((out / "models" / f"{model.name}.json").read_text())
    assert training["adversary"]["tau"] == 0.1 and training["test_accuracy"] > training["attacked_accuracy"] > 0.3


def test_lagrangian_runs_take_the_steps_of_the_size(done: tuple[Path, list[str]]) -> None:
    out, _ = done
    run = Run.open(out / "runs" / TINY.of(MAIN[0]).name / "lagrangian")
    assert run.plan.settings["solver_options"] == {"steps": TINY.steps, "rho_every": 1}
    assert f"steps={TINY.steps}" in run.claim["settings"]["solver"]


def test_nothing_is_done_twice(done: tuple[Path, list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    out, _ = done
    for where, name in (
        ("elbowroom.paper.bench", "train"), ("elbowroom.paper.certified", "run_dataset"),
        ("elbowroom.paper.certified", "check_run"), ("elbowroom.paper.compute", "cosine_similarity"),
    ):  # fmt: skip
        monkeypatch.setattr(f"{where}.{name}", lambda *_, **__: pytest.fail("done already"))
    compute(bench(out, say=pytest.fail), MODELS)


def test_goes_on_where_it_stopped(
    done: tuple[Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of a run too: the part that is done is kept."""
    out, _ = done
    name = TINY.of(MAIN[0]).name
    shutil.copytree(out / "models", tmp_path / "models")
    shutil.copy(out / "size.json", tmp_path)
    monkeypatch.setattr(certified, "_MOST", {"cpu": 4})
    parts = tmp_path / "runs" / name / "sequential" / "parts"

    def stop() -> bool:
        return parts.exists() and len(list(parts.iterdir())) == 1

    said = []
    with pytest.raises(Stopped):
        compute(bench(tmp_path, say=said.append, stop=stop), MAIN[:1])
    run = Run.open(parts.parent)
    assert run.finished() == [0] and run.plan.inputs == TINY.every and run.plan.part_rows == 4
    assert not said and not (tmp_path / "checks").exists() and held_of(tmp_path, name, "sequential") is None
    compute(bench(tmp_path, say=said.append), MAIN[:1])
    for way in WAYS:
        first, second = (held_of(o, name, way) for o in (out, tmp_path))
        np.testing.assert_allclose(first["geomean"], second["geomean"], rtol=1e-4)
        assert (second["proved"] == (second["status"] == STATUSES.index("certified"))).all()


def test_a_run_of_another_network_is_refused(done: tuple[Path, list[str]], tmp_path: Path) -> None:
    out, _ = done
    for folder in ("models", "runs", "checks", "analysis"):
        shutil.copytree(out / folder, tmp_path / folder)
    normal, robust = (tmp_path / "models" / f"{TINY.of(m).name}.elbowroom" for m in MAIN[:2])
    shutil.copy(robust, normal)
    with pytest.raises(InputError, match="another network"):
        compute(bench(tmp_path, say=lambda _: None), MAIN[:1])


def test_a_run_that_was_removed_is_made_and_proved_anew(done: tuple[Path, list[str]], tmp_path: Path) -> None:
    out, _ = done
    shutil.copytree(out, tmp_path / "o")
    name, said = TINY.of(MAIN[0]).name, []
    shutil.rmtree(tmp_path / "o" / "runs" / name / "lagrangian")
    compute(bench(tmp_path / "o", say=said.append), MAIN[:1])
    assert len(said) == 1 and f"{name}: lagrangian: " in said[0]


def test_what_the_check_does_not_prove_is_told(done: tuple[Path, list[str]], tmp_path: Path) -> None:
    out, _ = done
    shutil.copytree(out, tmp_path / "o")
    name = TINY.of(MAIN[0]).name
    report = tmp_path / "o" / "checks" / name / "adaptive.json"
    found = json.loads(report.read_text())
    held = held_of(out, name, "adaptive")
    number = int(held["index"][held["proved"]][0])
    report.write_text(json.dumps({**found, "failures": [number]}))
    assert held_of(tmp_path / "o", name, "adaptive")["proved"].sum() == held["proved"].sum() - 1


def test_stopped_while_training_leaves_no_half_model(tmp_path: Path) -> None:
    said = []
    with pytest.raises(Stopped):
        compute(bench(tmp_path, stop=lambda: True, say=said.append), MODELS)
    asked = []
    with pytest.raises(Stopped):
        compute(bench(tmp_path, stop=lambda: len(asked) > 3 or bool(asked.append(1)), say=said.append), MODELS)
    assert not list(tmp_path.rglob("*.elbowroom")) and not said


def test_sizes_are_not_mixed(done: tuple[Path, list[str]]) -> None:
    out, _ = done
    with pytest.raises(InputError, match="size tiny"):
        compute(dataclasses.replace(bench(out), size=QUICK), MODELS)
    longer = dataclasses.replace(TINY, recipe=dataclasses.replace(TINY.recipe, epochs=9))
    with pytest.raises(InputError, match="trained in another way"):
        compute(dataclasses.replace(bench(out), size=longer), MODELS)


def test_names_are_distinct() -> None:
    for size in SIZES.values():
        names = [size.of(m).name for m in (*MAIN, *BINARY)]
        assert len(set(names)) == len(names) == 16


# --- read back


def test_findings(done: tuple[Path, list[str]]) -> None:
    out, _ = done
    found = read(out, TINY, MAIN)
    assert [f.model.robust for f in found] == [False, True] and len(pairs(found)) == 1
    f = found[0]
    held = f.held["asymmetric"]
    good = held["status"] == STATUSES.index("certified")
    s = f.summary("asymmetric")
    assert (s.inputs, s.certified, s.proved) == (TINY.inputs, good.sum(), good.sum())
    # Cut to the domain, the uniform region is smaller than its radius says.
    assert (
        s.uniform == pytest.approx((held["geomean"] / held["ratio"])[good].mean())
        and s.uniform < held["uniform"][good].mean()
    )
    assert f.summary("sequential").uniform == pytest.approx(
        f.held["sequential"]["uniform"][f.held["sequential"]["geomean"] > 0].mean(), rel=1e-5
    )
    a, b = f.on_common("lagrangian", "sequential")
    assert a.certified == b.certified <= TINY.lagrangian and b.nonuniform >= a.nonuniform
    assert Summary.of({**held, "status": np.ones_like(held["status"])}) is None
    # Common inputs are those with a certificate of every way: here the first has none of one.
    fewer = {**held, "status": held["status"].copy()}
    assert good[0]
    fewer["status"][0] = STATUSES.index("misclassified")
    doctored = dataclasses.replace(f, held={**f.held, "asymmetric": fewer})
    ways = ("adaptive", "asymmetric")
    assert [s.certified for s in doctored.on_common(*ways)] == [s.certified - 1 for s in f.on_common(*ways)]


def test_tables_and_figures(done: tuple[Path, list[str]]) -> None:
    pytest.importorskip("matplotlib")
    out, _ = done
    files = render(out, TINY)
    assert all(f.exists() and f.stat().st_size for f in files)
    assert {f.stem for f in files if f.suffix == ".csv"} == set(TABLES)
    assert {f.suffix for f in files if f.parent.name == "figures"} == {".png", ".svg"}
    assert {f.stem for f in files if f.suffix == ".svg"} == {
        "histogram-mnist-16", "histograms", "ranking", "bounding-maps-1v7", "bounding-maps-1v7-log"
    }  # fmt: skip
    with open(out / "tables" / "main.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    finding = read(out, TINY, MAIN)[1]
    assert float(rows[1]["ratio, paper"]) == 2.425 and rows[1]["trained against"] == "PGD, τ = 0.1"
    assert float(rows[1]["non-uniform"]) == finding.summary("sequential").nonuniform
    text = (out / "tables" / "main.md").read_text()
    assert f"| {finding.summary('sequential').nonuniform:.4f} |" in text and "1000 uniform radii" in text
    assert "Smaller networks than the paper's" in text


def test_claims_follow_the_numbers(done: tuple[Path, list[str]]) -> None:
    out, _ = done
    found, binary = read(out, TINY, MAIN), read(out, TINY, BINARY)
    normal, robust = (f.summary("sequential").ratio for f in found)
    text = claims(found, binary)
    assert "Non-uniform bounds are larger than uniform ones**: holds, on 2 of 2 models" in text
    verdict = "holds, on 1 of 1" if robust > normal else "does not hold, on 0 of 1"
    assert f"The ratio is larger for robust models**: {verdict} pairs" in text
    # The other way round, the claim turns over.
    swapped = [dataclasses.replace(f, model=dataclasses.replace(f.model, robust=not f.model.robust)) for f in found]
    verdict = "holds, on 1 of 1" if robust < normal else "does not hold, on 0 of 1"
    assert f"The ratio is larger for robust models**: {verdict} pairs" in claims(swapped, binary)


def test_pages_are_filled_in(done: tuple[Path, list[str]], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    out, _ = done
    page = tmp_path / "docs" / "results.md"
    page.parent.mkdir()
    page.write_text(
        "words ![](figures/histograms.png)\n<!-- main-tiny -->\nold\n<!-- end of main-tiny -->\nmore\n"
        "<!-- main -->\nkept\n<!-- end of main -->\n"
    )
    render(out, TINY)
    assert into_docs(out, TINY, page) == ["main-tiny"]
    text = page.read_text()
    assert "old" not in text and "kept" in text and "| MNIST | 16-16-16 |" in text and text.startswith("words ")
    assert not (page.parent / "figures").exists()  # those there are of the full size
    assert into_docs(out, TINY, page) == ["main-tiny"] and page.read_text() == text
    assert into_docs(out, FULL, page) == ["main"] and "kept" not in page.read_text()
    assert [path.name for path in (page.parent / "figures").iterdir()] == ["histograms.png"]  # that the page shows
    with pytest.raises(InputError, match="holds no results of size tiny"):
        render(tmp_path, TINY)
