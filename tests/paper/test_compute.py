"""The experiments on images, in the smallest size and on embedded digits: computed, gone on with, read back, drawn."""

import csv
import dataclasses
import json
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import elbowroom as er
from elbowroom.certificates.result import STATUSES
from elbowroom.errors import InputError
from elbowroom.paper import compute as module
from elbowroom.paper.compare import TABLES, claims
from elbowroom.paper.compute import WAYS, Bench, OutOfTimeError, compute, main, read_npz
from elbowroom.paper.findings import Summary, pairs, read
from elbowroom.paper.models import BINARY, FULL, MAIN, QUICK, SIZES, TINY
from elbowroom.paper.render import into_docs, render
from elbowroom.paper.render import main as render_main
from elbowroom.training.sets import training_data

pytest.importorskip("sklearn")
MODELS = (*MAIN[:2], *BINARY[:2])


def bench(out: Path, **options: Any) -> Bench:
    return Bench(out, TINY, lambda m: training_data("digits", None, m.classes), torch.device("cpu"), **options)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    out = tmp_path_factory.mktemp("compute")
    said = []
    assert compute(bench(out, say=said.append), MODELS)
    return out, said


def test_all_ways_are_certified_and_proved_again(done: tuple[Path, list[str]]) -> None:
    out, said = done
    for model in MODELS:
        name = TINY.of(model).name
        ways = list(WAYS) if model.classes is None else ["sequential"]
        assert sorted(p.stem for p in (out / "certified" / name).iterdir()) == sorted(ways)
        for way in ways:
            held = read_npz(out / "certified" / name / f"{way}.npz")
            wanted = TINY.maps if model.classes else TINY.every if way == "sequential" else TINY.inputs
            wanted = TINY.lagrangian if way == "lagrangian" else wanted
            assert {len(column) for column in held.values()} == {wanted}
            good = held["status"] == STATUSES.index("certified")
            assert good.any() and (held["proved"] == good).all()
            assert (held["ratio"][good] >= 1 - 1e-6).all() and (held["geomean"][~good] == 0).all()
            assert any(line.endswith("gradients") and f"{name}: {way}: " in line for line in said)


def test_what_is_stored_is_what_certify_finds(done: tuple[Path, list[str]]) -> None:
    out, _ = done
    model = TINY.of(MAIN[1])
    net = er.load(out / "models" / f"{model.name}.elbowroom")
    data, _ = training_data("digits")
    paper = {"bounds": "combined", "margin": "logits", "delta": 1e-4}
    certs = er.certify(net, data.x_test[:6].reshape(-1, 8, 8), data.y_test[:6], **paper)
    held = read_npz(out / "certified" / model.name / "sequential.npz")
    np.testing.assert_allclose(held["geomean"][:6], certs.geomean.numpy(), rtol=1e-6)
    regions = np.load(out / "regions" / f"{model.name}.npy")
    assert regions.shape == (TINY.every, 64)
    np.testing.assert_allclose(regions[:6], certs.eps.flatten(1).numpy(), rtol=1e-6)
    facts = json.loads((out / "analysis" / f"{model.name}.json").read_text())
    assert facts["inputs"] == TINY.every and facts["certified"] == int(regions.any(1).sum())
    first = facts["first"]
    assert first["inputs"] == TINY.inputs < TINY.every and first["least_cosine"] >= facts["least_cosine"]
    alone = regions[: TINY.inputs]
    mean, least = er.analyse.cosine_similarity(torch.from_numpy(alone[alone.any(1)]))
    assert first["mean_cosine"] == pytest.approx(mean) and first["least_cosine"] == pytest.approx(least)
    training = json.loads((out / "models" / f"{model.name}.json").read_text())
    assert training["adversary"]["tau"] == 0.1 and training["test_accuracy"] > training["attacked_accuracy"] > 0.3


def test_nothing_is_done_twice(done: tuple[Path, list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    out, _ = done
    for name in ("train", "certify", "cosine_similarity"):
        monkeypatch.setattr(module, name, lambda *_, **__: pytest.fail("done already"))
    assert compute(bench(out, say=pytest.fail), MODELS)


def test_goes_on_where_it_stopped(
    done: tuple[Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, _ = done
    name = TINY.of(MAIN[0]).name
    shutil.copytree(out / "models", tmp_path / "models")
    shutil.copy(out / "size.json", tmp_path)
    seen = []

    def clock(self: Any) -> None:
        seen.append(1)
        if len(seen) > 2:
            raise OutOfTimeError

    real = Bench.look_at_the_clock
    monkeypatch.setattr(Bench, "look_at_the_clock", clock)
    said = []
    assert not compute(bench(tmp_path, say=said.append), MAIN[:1])
    assert "goes on from here" in said[-1] and not (tmp_path / "certified" / name / "adaptive.npz").exists()
    monkeypatch.setattr(Bench, "look_at_the_clock", real)
    assert compute(bench(tmp_path, say=said.append), MAIN[:1])
    for way in WAYS:
        first, second = (read_npz(o / "certified" / name / f"{way}.npz") for o in (out, tmp_path))
        np.testing.assert_allclose(first["geomean"], second["geomean"], rtol=1e-6)
    assert np.array_equal(*(np.load(o / "regions" / f"{name}.npy") for o in (out, tmp_path)))


def test_results_that_were_sent_without_their_regions(
    done: tuple[Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, _ = done
    name = TINY.of(MAIN[0]).name
    shutil.copytree(out, tmp_path / "sent")
    shutil.rmtree(tmp_path / "sent" / "regions")
    assert compute(bench(tmp_path / "sent", say=pytest.fail), MAIN[:1])
    # More inputs than were done: all of them anew, since those of before are not there.
    more = dataclasses.replace(bench(tmp_path / "sent", say=lambda _: None), size=dataclasses.replace(TINY, every=11))
    assert compute(more, MAIN[:1], ["sequential"])
    assert np.load(tmp_path / "sent" / "regions" / f"{name}.npy").shape == (11, 64)
    facts = json.loads((tmp_path / "sent" / "analysis" / f"{name}.json").read_text())
    assert facts["inputs"] == 11


def test_time_over_while_training_leaves_no_half_model(tmp_path: Path) -> None:
    said = []
    assert not compute(bench(tmp_path, deadline=time.perf_counter() - 1, say=said.append), MODELS)
    assert not list(tmp_path.rglob("*.elbowroom")) and len(said) == 1


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


def test_command(shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--data-dir", str(tmp_path), "--out", str(tmp_path / "o"), "--size", "tiny", "--device", "cpu"]) == 2
    assert "was not found" in capsys.readouterr().err
    given = ["--data-dir", str(shared / "data"), "--out", str(tmp_path / "o"), "--size", "tiny", "--device", "cpu"]
    assert main([*given, "--models", "svhn-*", "--ways", "sequential", "--minutes", "1e-9"]) == 3
    with pytest.raises(SystemExit):
        main([*given, "--models", "svhn"])
    assert "no model matches; there are mnist-16-normal" in capsys.readouterr().err


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


def test_pages_are_filled_in(done: tuple[Path, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    out, _ = done
    page = tmp_path / "docs" / "results.md"
    page.parent.mkdir()
    page.write_text(
        "words ![](figures/histograms.png)\n<!-- main-tiny -->\nold\n<!-- end of main-tiny -->\nmore\n"
        "<!-- main -->\nkept\n<!-- end of main -->\n"
    )
    assert render_main([str(out), "--size", "tiny", "--docs", str(page)]) == 0
    assert "filled in main-tiny" in capsys.readouterr().out
    text = page.read_text()
    assert "old" not in text and "kept" in text and "| MNIST | 16-16-16 |" in text and text.startswith("words ")
    assert not (page.parent / "figures").exists()  # those there are of the full size
    assert into_docs(out, TINY, page) == ["main-tiny"] and page.read_text() == text
    assert into_docs(out, FULL, page) == ["main"] and "kept" not in page.read_text()
    assert [path.name for path in (page.parent / "figures").iterdir()] == ["histograms.png"]  # that the page shows
    assert render_main([str(tmp_path), "--size", "tiny"]) == 2
