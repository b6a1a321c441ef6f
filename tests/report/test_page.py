"""What a report gathers and writes: its numbers, its words, and that hostile names stay names."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import math
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import elbowroom as er
from commands import good, refused
from elbowroom.certificates.store import Run
from elbowroom.errors import InputError
from elbowroom.network import operations as ops
from elbowroom.network.graph import About, Network
from elbowroom.network.table import Column, Table
from elbowroom.report.page import chosen as choosing
from elbowroom.report.page.chosen import asked_for, chosen
from elbowroom.report.page.details import image_of, outputs_that_stay, pixel_names
from elbowroom.report.page.gather import report_of
from elbowroom.report.page.pictures import png, shades
from elbowroom.report.page.views import histogram
from elbowroom.report.page.words import titles_of
from elbowroom.report.page.write import embedded, page_of, write_json
from elbowroom.report.room import DOMAIN, NOTHING, OBSERVED, scale_of, shares
from elbowroom.runs.one_input import one_input
from forgery import edit_run
from report.pages import HOSTILE, OTHER, SMALL, hostile_run, image_run, plane_run, run_of
from runs.small import network, points


class Elements(HTMLParser):
    """The elements of a page with their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.scripts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attributes)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, text: str) -> None:
        if self.lasttag == "script":
            self.scripts[-1] += text
        else:
            self.text += text

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]

    @property
    def data(self) -> dict[str, Any]:
        return json.loads(self.scripts[0])


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    place = tmp_path_factory.mktemp("plane")
    return plane_run(place / "old"), plane_run(place / "new", OTHER)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return image_run(tmp_path_factory.mktemp("images") / "run")


# --- numbers


def test_the_rows_are_those_of_the_certificates(plane: tuple[Run, Run]) -> None:
    certs = er.Certificates.load(plane[0].folder)
    (run,) = report_of([plane[0].folder])["runs"]
    table = run["inputs"]
    assert table["number"] == list(range(17)) and table["status"] == list(certs.status)
    assert table["message"] == list(certs.message) and table["label"] == certs.labels.tolist()
    assert table["status"].count("misclassified") == 1 and table["status"][4] == "nonfinite"
    for k, sure in enumerate(certs.certified.tolist()):
        assert table["size"][k] == (float(certs.geomean[k]) if sure else None)
        widths = ((certs.upper - certs.lower)[k] / 4).tolist()
        assert table["share"][k] == (pytest.approx(min(widths)) if sure else None)
        assert table["least"][k] == (widths.index(min(widths)) if sure else None)
    good = certs.certified
    for k, feature in enumerate(run["features"]):
        assert feature["share"] == pytest.approx(float((certs.upper - certs.lower)[good, k].mean() / 4))
        assert feature["least"] == table["least"].count(k) and feature["fixed"] == 0
        whole = (certs.lower[good, k] <= -2) & (certs.upper[good, k] >= 2)
        assert feature["whole"] == int(whole.sum())
    assert run["similarity"] == pytest.approx(er.analyse.cosine_similarity(certs)[0])
    assert sum(run["rooms"]["counts"]) == 2 * int(good.sum())
    assert [f["input"] for f in run["audit"]["failures"]] == np.flatnonzero(~good.numpy()).tolist()


def test_details_are_what_show_says(plane: tuple[Run, Run]) -> None:
    (run,) = report_of([plane[0].folder])["runs"]
    assert sorted(one["input"] for one in run["details"]) == list(range(17))  # all of a small run
    for one in run["details"]:
        stated = one_input(plane[0], one["input"])
        for feature in stated["features"]:
            feature["share"] = pytest.approx((feature["upper"] - feature["lower"]) / 4)
        assert str({k: one[k] for k in stated if k != "features"}) == str(
            {k: stated[k] for k in stated if k != "features"}
        )
        assert stated["features"] == one["features"]


def test_the_page_states_no_more_than_the_certificates(plane: tuple[Run, Run], images: Run) -> None:
    """Ranges are rounded inwards, sizes and shares down, what was seen outwards, reaches up."""
    for opened in (plane[0], images):
        certs = er.Certificates.load(opened.folder)
        one = Elements(page_of(report_of([opened.folder]))).data["runs"][0]
        lower, upper, x = (t.flatten(1) for t in (certs.lower, certs.upper, certs.x))
        seen = [] if certs.reach is None else [certs.seen_lower.flatten(1), certs.seen_upper.flatten(1)]
        for k, sure in enumerate(certs.certified.tolist()):
            detail = one["details"][str(k)]
            assert bool(detail["flags"]) == sure
            if not sure:
                assert one["table"]["size"][k] is None
                continue
            assert one["table"]["size"][k] <= float(certs.geomean[k])
            if certs.reach is not None and math.isfinite(float(certs.reach[k])):
                assert one["table"]["reach"][k] >= float(certs.reach[k])
            for i, (a, b) in enumerate(zip(detail["lower"], detail["upper"])):
                assert float(lower[k, i]) <= float(a) <= float(b) <= float(upper[k, i])
                assert abs(float(detail["x"][i]) - float(x[k, i])) <= 0.01 * float(certs.eps.flatten(1)[k, i])
                share = float((upper - lower)[k, i]) / (one["high"][i] - one["low"][i])
                assert share * 0.99 <= detail["share"][i] <= share
                for real, name, sign in zip(seen, ("below", "above"), (-1, 1)):
                    text, end = detail.get(name, [None] * 99)[i], float(real[k, i])
                    assert (text is None) == (not math.isfinite(end)) and (
                        text is None or sign * float(text) >= sign * end
                    )


def test_shares_are_of_the_domain_or_of_what_was_observed(tmp_path: Path) -> None:
    x = points(9)
    given = {"0": [-2, 2]}
    half = run_of(SMALL, tmp_path / "half", x, domain=given)
    scale = scale_of(half, alike=False)
    assert scale.of == (DOMAIN, OBSERVED) and scale.low.tolist() == [-2, x[:, 1].min()]
    assert "where that has no end" in scale.words
    none = run_of(SMALL, tmp_path / "none", x)
    alike = scale_of(none, alike=True)
    assert alike.low.tolist() == [x.min()] * 2 and alike.high.tolist() == [x.max()] * 2
    x[:, 1] = 0.25
    flat = run_of(SMALL, tmp_path / "flat", x)
    scale = scale_of(flat, alike=False)
    assert scale.of == (OBSERVED, NOTHING) and math.isnan(float(scale.high[1]))
    assert not bool(shares(flat.read(0), scale)[:, 1].isfinite().any())
    (run,) = report_of([flat.folder])["runs"]
    assert set(run["inputs"]["least"]) == {0} and run["features"][1]["share"] is None


def test_frozen_features_are_held_fixed(tmp_path: Path) -> None:
    run = plane_run(tmp_path / "run", frozen=["0"])
    (found,) = report_of([run.folder])["runs"]
    assert found["features"][0]["fixed"] == found["certified"] and set(found["inputs"]["least"]) <= {1, None}
    assert any(
        "Held fixed for every certified input: feature 0" in line for line in found["audit"]["sections"]["Domain"]
    )
    data = Elements(page_of(report_of([run.folder]))).data
    assert data["runs"][0]["details"]["0"]["flags"][0] == "f"


@pytest.mark.parametrize("region", ["ellipsoid", "l1", "uniform", "box-asymmetric"])
def test_other_shapes(region: str, tmp_path: Path) -> None:
    run = plane_run(tmp_path / "run", count=6, region=region)
    report = report_of([run.folder])
    (found,) = report["runs"]
    boxes = region in ("uniform", "box-asymmetric")
    assert ("all of them at once" in found["claim"]) == boxes
    assert found["plane"] is not None and page_of(report)
    detail = Elements(page_of(report)).data["runs"][0]["details"]["0"]
    assert ("lower" in detail) == boxes
    assert boxes or all(f["whole"] == 0 for f in found["features"])


def test_a_basis_has_directions_and_no_shares(tmp_path: Path) -> None:
    basis = torch.linalg.qr(torch.randn(2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))[0]
    er.certify(SMALL, points(4), region=er.Oblique(basis), domain=(-2, 2)).save(tmp_path / "run")
    report = report_of([tmp_path / "run"])
    (run,) = report["runs"]
    assert (
        not run["by_share"] and run["features"][0]["feature"] == "direction 0" and run["features"][0]["share"] is None
    )
    assert "Oblique(Box)" in run["claim"] and page_of(report)


def test_a_regression_shows_between_which_ends_outputs_stay(tmp_path: Path) -> None:
    run = plane_run(tmp_path / "run", within=[0.5, 0.25, 1])
    certs = er.Certificates.load(run.folder)
    report = report_of([run.folder])
    (found,) = report["runs"]
    assert not found["decides"] and "stay between ends" in found["claim"] and found["plane"]
    y = SMALL(certs.x[0:1])[0]
    for ends, value, most in zip(outputs_that_stay(certs, 0), y.tolist(), (0.5, 0.25, 1)):
        assert ends["above"] == pytest.approx(value - most) and ends["below"] == pytest.approx(value + most)
    outputs = Elements(page_of(report)).data["runs"][0]["details"]["0"]["outputs"]
    for text, ends in zip(outputs, outputs_that_stay(certs, 0)):
        assert float(text["above"]) <= ends["above"] and float(text["below"]) >= ends["below"]
    assert outputs_that_stay(certs, 4) is None  # no numbers, no certificate


def test_other_specifications_have_no_such_ends() -> None:
    net = network()
    certs = er.certify(
        net,
        points(2),
        spec=er.Specification(
            torch.tensor([[[1.0, -2.0, 0.5]]]).double(), torch.full((1, 1), 90.0).double(), torch.zeros(1).long()
        ),
    )
    assert certs.status[0] == "certified" and outputs_that_stay(certs, 0) is None
    assert outputs_that_stay(er.certify(net, points(2)), 0) is None


def test_categories_that_are_held_are_shown_as_their_level(tmp_path: Path) -> None:
    columns = (
        Column("age", unit="years"),
        Column("colour", ("red", None, "<b>"), ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))),
    )
    table = Table(columns)
    net = network(0, (4, 6, 3))
    net = Network(net.nodes, net.decision, About(features=table.entries, table=table))
    x = np.zeros((3, 4))
    x[:, 0], x[0, 1], x[1, 3], x[2, 1:3] = (0.1, 0.2, 0.3), 1, 1, 1
    run = run_of(net, tmp_path / "run", x, frozen=["1-3"], data={"features": table.entries})
    report = report_of([run.folder])
    details = {one["input"]: one for one in report["runs"][0]["details"]}
    entries = [1, 2, 3]
    assert details[0]["categories"] == [{"column": "colour", "entries": entries, "level": "red", "levels": ["red"]}]
    assert details[1]["categories"][0]["levels"] == ["<b>"]
    assert details[2]["status"] == "error" and details[2]["categories"] == []  # the numbers there are no level's code
    features = report["runs"][0]["features"]
    assert features[0]["unit"] == "years" and [f["feature"] for f in features] == ["age"]
    loose = run_of(net, tmp_path / "loose", x, data={"features": table.entries})
    certs, found = er.Certificates.load(loose.folder), report_of([loose.folder])["runs"][0]
    assert certs.allowed is not None and "among its levels" in found["claim"]
    for one in found["details"]:
        own = [name for name, allowed in zip(("red", "missing", "<b>"), certs.allowed[one["input"]]) if allowed]
        assert [c["levels"] for c in one["categories"]] == ([own] if one["status"] == "certified" else [])


# --- images


def test_what_is_an_image() -> None:
    def shape(*sizes: int) -> Network:
        return Network.chain(sizes, [ops.Reshape((-1,))])

    assert image_of(shape(1, 6, 5), None) == {"height": 6, "width": 5, "channels": 1, "last": False}
    assert image_of(shape(6, 5, 3), None) == {"height": 6, "width": 5, "channels": 3, "last": True}
    assert image_of(shape(3, 6, 5), None)["channels"] == 3 and image_of(shape(6, 5), None)["height"] == 6
    assert image_of(shape(64), None) is None and image_of(shape(64), (8, 8))["width"] == 8
    assert image_of(shape(2, 3), None) is None and image_of(shape(9, 6, 5), None) is None
    with pytest.raises(InputError, match="image_shape must be rows,columns"):
        image_of(shape(64), (8, 9))
    names = pixel_names({"height": 2, "width": 2, "channels": 3, "last": True})
    assert names[1] == "channel 1, row 0, column 0" and len(names) == 12
    assert pixel_names({"height": 2, "width": 2, "channels": 3, "last": False})[4] == "channel 1, row 0, column 0"


def test_a_picture_is_a_png() -> None:
    pillow = pytest.importorskip("PIL.Image")
    index = np.arange(12).reshape(3, 4)
    source = png(index, shades(12))
    opened = pillow.open(io.BytesIO(base64.b64decode(source.partition(",")[2])))
    assert opened.size == (4, 3) and opened.mode == "P"
    colours = np.asarray(opened.convert("RGB"))
    assert "#{:02x}{:02x}{:02x}".format(*colours[2, 3]) == shades(12)[11]
    grey = [int(c[1:3], 16) * 0.3 + int(c[3:5], 16) * 0.59 + int(c[5:], 16) * 0.11 for c in shades()]
    assert grey == sorted(grey, reverse=True)  # readable without colour


def test_image_runs_have_maps_and_names(images: Run) -> None:
    (run,) = report_of([images.folder])["runs"]
    assert run["image"]["height"] == 6 and run["map"]["src"].startswith("data:image/png;base64,")
    assert run["features"][7]["feature"] == "row 1, column 2"
    assert run["summary"]["reach"]["found"] > 0 and any("counterexample was found" in line for line in run["words"])


# --- which inputs


def test_inputs_that_are_asked_for() -> None:
    assert asked_for("0-2, 7,1") == [0, 1, 2, 7] and asked_for(None) == []
    for text in ("a", "1-", "3-1", "1,,2", "-1", "0-999999999999"):
        with pytest.raises(InputError, match="inputs"):
            asked_for(text)


def test_of_a_large_run_the_telling_ones_are_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    table: dict[str, Any] = {
        "number": [10 * k for k in range(100)],
        "size": [None if k == 50 else float((7 * k) % 100) for k in range(100)],
        "status": ["error" if k == 50 else "certified" for k in range(100)],
        "label": [k % 3 for k in range(100)],
    }
    monkeypatch.setattr(choosing, "MOST_CELLS", 40 * 5)
    (found,) = chosen([table], [990, 0], [330], [5])
    assert found[:3] == [990, 0, 330] and len(found) == 40
    ranked = sorted((size, number) for size, number in zip(table["size"], table["number"]) if size is not None)
    assert {number for _, number in ranked[:8]} | {number for _, number in ranked[-8:]} | {500} <= set(found)
    (few,) = chosen([table], [990, 0, 10], [], [10_000])
    assert few == [990, 0, 10]
    with pytest.raises(InputError, match="no run here has a certificate of input 5"):
        chosen([table], [5], [], [5])


def test_titles() -> None:
    assert titles_of(["/a/b/normal/run", "/a/b/robust/run"]) == ["normal", "robust"]
    assert titles_of(["/a/b"]) == ["a/b"] and titles_of(["run"]) == ["run"]
    assert titles_of(["x", "y/z"]) == ["x", "y/z"]
    assert len(set(titles_of(["a/b", "a/b"]))) == 2 and len(set(titles_of(["a", "a/b"]))) == 2


def test_histograms() -> None:
    found = histogram({"edges": [0.0, 1.0, math.inf], "counts": [1, 3]}, "things")
    assert found["bars"][1]["title"] == "1 to inf: 3" and found["bars"][0]["height"] == pytest.approx(40)
    assert histogram(None, "x") is None and histogram({"edges": [0, 1], "counts": [0]}, "x") is None


# --- runs beside each other


def test_two_runs_are_compared(plane: tuple[Run, Run], tmp_path: Path) -> None:
    report = report_of([each.folder for each in plane])
    (one,) = report["comparisons"]
    assert one["found"]["inputs"] == 17 and one["refused"] is None
    page = Elements(page_of(report))
    assert "From old to new" in page.text and len(page.data["pairs"][0]["shrink"]) == 17
    frozen = plane_run(tmp_path / "frozen", frozen=["0"])
    mixed = report_of([plane[0].folder, frozen.folder])
    assert "may move in one of the runs only" in mixed["comparisons"][0]["refused"]
    text = Elements(page_of(mixed)).text
    assert "These runs are not compared: input 0: " in text
    with pytest.raises(InputError, match="1 to 8 runs"):
        report_of([])


# --- the page


def test_the_page_needs_nothing_else(plane: tuple[Run, Run], images: Run) -> None:
    text = page_of(report_of([plane[0].folder, images.folder]))
    page = Elements(text)
    assert page.named("link") == [{"rel": "icon", "href": "data:,"}]
    for tag, attributes in page.found:
        for name in ("src", "href", "action"):
            assert (attributes.get(name) or "#").startswith(("#", "data:")), (tag, attributes)
        assert not any(name.startswith("on") or name == "style" for name in attributes)
        assert tag not in ("iframe", "object", "embed", "base")
    assert not re.search(r"\b(?:https?:|//[a-z])", text.replace("http://www.w3.org/2000/svg", ""))
    policy = next(a["content"] for a in page.named("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert page.named("img") and all(a["alt"] for a in page.named("img"))
    assert all(a.get("aria-label") or a.get("aria-hidden") or a.get("preserveaspectratio") for a in page.named("svg"))
    ids = [a["id"] for _, a in page.found if "id" in a]
    assert len(ids) == len(set(ids))
    assert "conform" not in text.lower()
    assert all(
        head in page.text for head in ("Domain", "Stability", "Sensitivity", "Relevance", "Reachability", "Arithmetic")
    )
    assert str(plane[0].claim["network_hash"]) in text and f"elbowroom check {plane[0].folder}" in page.text


def test_hostile_names_stay_names(tmp_path: Path) -> None:
    run = hostile_run(tmp_path)
    report = report_of([run.folder, run.folder])
    text = page_of(report)
    page = Elements(text)
    assert len(page.scripts) == 2 and len(page.named("img")) == 0 and "<!--" not in text
    assert all(not name.startswith("on") for _, attributes in page.found for name in attributes)
    assert "alert(1)" in page.text and "{{7*7}}" in page.text  # shown, as text
    one = page.data["runs"][0]
    assert one["names"][0] == f"{HOSTILE}0" and one["classes"][0] == HOSTILE
    assert one["table"]["name"][3] == f"{HOSTILE}3"
    assert any(message.startswith(HOSTILE) for message in one["table"]["messages"])
    unseen = [c for c in text if not c.isprintable() and c != "\n"]
    assert not unseen, unseen[:3]
    write_json(report, tmp_path / "report.json")
    held = json.loads((tmp_path / "report.json").read_text())
    assert held["runs"][0]["features"][0]["feature"] == f"{HOSTILE}0" and held["runs"][0]["summary"]["data"] == HOSTILE


def test_json_inside_a_page_cannot_end_it() -> None:
    value = {HOSTILE: [HOSTILE, math.nan, 1.5, None, "\ud800"]}
    text = embedded(value)
    assert not set("<>&") & set(text) and json.loads(text) == {HOSTILE: [HOSTILE, None, 1.5, None, "\ud800"]}


def test_runs_with_little_in_them(tmp_path: Path) -> None:
    """Nothing certified; one input; one feature; parts that are missing; no part at all."""
    x = points(3)
    wrong = run_of(SMALL, tmp_path / "wrong", x, (torch.as_tensor(SMALL.decide(SMALL(x))).numpy() + 1) % 3)
    (found,) = report_of([wrong.folder])["runs"]
    assert found["certified"] == 0 and found["rooms"] is None and "nothing is certified" in str(found["audit"])
    assert "3 misclassified" in page_of(report_of([wrong.folder]))
    single = run_of(network(0, (1, 4, 2)), tmp_path / "single", points(1, n=1))
    assert "is certified" in report_of([single.folder])["runs"][0]["words"][0] and page_of(report_of([single.folder]))
    part = plane_run(tmp_path / "part")
    (part.folder / "parts" / "part-00001.parquet").unlink()
    report = report_of([part.folder])
    assert "incomplete: 12 of 17" in report["runs"][0]["words"][1] and page_of(report)
    for file in (part.folder / "parts").glob("*.parquet"):
        file.unlink()
    assert page_of(report_of([part.folder]))


def test_versions_are_those_that_the_run_states(plane: tuple[Run, Run], tmp_path: Path) -> None:
    (run,) = report_of([plane[0].folder])["runs"]
    assert set(run["audit"]["versions"]) == {"elbowroom", "numpy", "pyarrow", "python", "torch"}
    copy = Path(shutil.copytree(plane[0].folder, tmp_path / "run"))
    for odd in (["torch"], {"torch": 2}, "torch"):
        edit_run(copy, lambda head, odd=odd: head.update(packages=odd))
        with pytest.raises(InputError, match="packages cannot be"):
            Run.open(copy)


def test_numbers_that_a_script_would_mix_up_are_refused(tmp_path: Path) -> None:
    certs = er.certify(SMALL, points(2))
    for numbers in ([4, 4], [0, 2**60]):
        dataclasses.replace(certs, index=torch.tensor(numbers)).save(tmp_path / "run")
        with pytest.raises(InputError, match="too large, or stands twice"):
            report_of([tmp_path / "run"])


# --- the command


def test_the_command(plane: tuple[Run, Run], tmp_path: Path) -> None:
    old, new = (str(each.folder) for each in plane)
    out, data = tmp_path / "page.html", tmp_path / "page.json"
    said = good("report", old, new, "--out", out, "--json", data, "--inputs", "3,5").output
    assert "2 runs" in said and out.read_text().startswith("<!doctype html>")
    held = json.loads(data.read_text())
    assert held["format"] == "elbowroom-report" and [one["input"] for one in held["runs"][0]["details"]][:2] == [3, 5]
    assert "holds no run" in refused("report", tmp_path, "--out", out)
    assert "--inputs" in refused("report", old, "--out", out, "--inputs", "x")
    assert "--image-shape must be" in refused("report", old, "--out", out, "--image-shape", "8,x")
    assert "--image-shape must be rows,columns" in refused("report", old, "--out", out, "--image-shape", "8,8")
    assert "cannot write" in refused("report", old, "--out", tmp_path / "none" / "page.html")
