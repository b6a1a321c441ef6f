"""Pictures of certificates by call and by command: what stands in them is what was certified."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import elbowroom as er
from certify.test_sets_of_levels import inputs as rows_of_a_table
from certify.test_sets_of_levels import network as network_of_a_table
from commands import good, refused
from elbowroom.errors import InputError
from elbowroom.network import operations as ops
from elbowroom.network.graph import About, Network
from elbowroom.report.plot import drawing
from elbowroom.report.plot.drawing import as_text, as_texts
from elbowroom.report.plot.pictures import KINDS
from report.pages import image_run, plane_run
from runs.small import labels_for, network, points

matplotlib = pytest.importorskip("matplotlib")
figures = pytest.importorskip("matplotlib.figure")
LONG = "a name that goes on and on " * 9
HOSTILE = "$x_1$ <script>\x1b[31m\u202e$\\frac$"
NET = Network(network().nodes, "max", About((HOSTILE, LONG), ("low", "$mid$", "high")))


def plane(count: int = 9, **told: Any) -> er.Certificates:
    """The third is labelled wrongly."""
    x = points(count)
    return er.certify(NET, x, labels_for(NET, x, wrong=(2,)), **{"domain": (-1.2, 1.2), **told})


CERTS: er.Certificates


@pytest.fixture(scope="module", autouse=True)
def certs() -> None:
    """Not where the file is read: every worker collects all files."""
    global CERTS
    CERTS = plane(reach=True)


def texts(ax: Any) -> list[str]:
    """All words of a picture, as they are drawn: nothing in them is a formula."""
    figure = ax.figure
    figure.canvas.draw()
    found = [t for t in figure.findobj(matplotlib.text.Text) if t.get_text()]
    shown = [t._preprocess_math(t.get_text()) for t in found]
    assert not any(math for _, math in shown)
    return [text for text, _ in shown]


def bars(ax: Any) -> list[tuple[float, float]]:
    """From where to where the blue bars go, from the lowest up."""
    blue = matplotlib.colors.to_rgba("#2b6cb0")
    found = [p for p in ax.patches if p.get_facecolor() == blue]
    return [(p.get_x(), p.get_x() + p.get_width()) for p in found]


def test_tolerances_are_the_certified_ranges() -> None:
    ax = CERTS.plot.tolerance(3)
    one = CERTS[3]
    order = one.room.argsort().tolist()
    expected = [((float(one.lower[k]) + 1.2) / 2.4, (float(one.upper[k]) + 1.2) / 2.4) for k in reversed(order)]
    assert bars(ax) == [pytest.approx(ends) for ends in expected]
    said = texts(ax)
    assert any("stays while every feature lies in its range (all at once)" in text for text in said)
    assert (
        as_text(HOSTILE).replace(r"\$", "$") in said
        and "\x1b" not in "".join(said)
        and not any(len(text) > 110 for text in said)
    )
    for k in range(2):
        ranges = [text.split(" to ") for text in said if " to " in text and text[0] in "-0123456789"]
        assert any(float(one.lower[k]) <= float(low) <= float(high) <= float(one.upper[k]) for low, high in ranges)
    assert "nearest counterexample found" in said and "the domain" in said
    assert len(bars(CERTS.plot.tolerance(3, max_features=1))) == 1
    assert any("1 more feature, with more room" in text for text in texts(CERTS.plot.tolerance(3, max_features=1)))


def test_one_input_without_a_range_to_compare_with() -> None:
    certs = er.certify(NET, points(1))
    ax = certs.plot.tolerance()
    ends = sorted(bars(ax))
    assert ends == sorted((-float(d), pytest.approx(float(u))) for d, u in zip(certs.down[0], certs.up[0]))
    assert any("distance from the input's value" in text for text in texts(ax))
    alone = er.certify(NET, points(2), region=er.Ellipsoid())
    assert any("while one feature moves in its range and the others stay" in t for t in texts(alone.plot.tolerance()))
    turned = er.certify(NET, points(2), region=er.Oblique(torch.eye(2)))
    assert "direction 0" in texts(turned.plot.tolerance())
    assert any("while every direction lies in its range" in text for text in texts(turned.plot.tolerance()))


def test_axes_of_a_domain_and_of_what_was_observed() -> None:
    said = texts(er.certify(NET, points(12), features={LONG: {"domain": [-100, 100]}}).plot.tolerance())
    assert "lowest of the domain, or observed" in said and "the domain, or the inputs' range" in said
    assert "lowest observed" not in said


def test_marks_of_frozen_and_capped_features() -> None:
    certs = plane(frozen=[HOSTILE], max_eps=1e-3)
    said = texts(certs.plot.tolerance(0))
    assert any(text.startswith("held at ") for text in said) and "certified, ends at its cap" in said
    assert any("1 held fixed" in text for text in texts(certs.plot.summary()))


def test_categories_are_sets_of_levels() -> None:
    net = network_of_a_table(1)
    certs = er.certify(net, rows_of_a_table(0, 12))
    row = next(k for k in range(12) if bool(certs.certified[k]) and int(certs.allowed[k].sum()) > 3)
    said = texts(certs.plot.tolerance(row))
    frame = certs[row].certificates.to_arrow().to_pylist()
    for each in frame:
        levels = each["levels"].split(" | ")
        if each["levels"]:
            assert (f"any of {', '.join(levels)}" if len(levels) > 1 else f"held at {levels[0]}") in said
    full = sum(len(each["levels"].split(" | ")) for each in frame if each["levels"])
    assert len(bars(certs.plot.tolerance(row))) == full + 2
    assert any("share of a category's levels" in text for text in texts(certs.plot.summary()))


@pytest.mark.parametrize("draw", ["tolerance", "map", "summary", "histogram", "similarity"])
def test_pictures_are_drawn_where_they_are_asked_for(draw: str) -> None:
    figure = figures.Figure()
    ax = figure.subplots()
    assert getattr(CERTS.plot, draw)(ax=ax) is ax
    own = getattr(CERTS.plot, draw)()
    assert own.figure is not figure and texts(own)
    assert "matplotlib.pyplot" not in sys.modules or matplotlib.pyplot.fignum_exists(own.figure.number)
    assert draw in repr(CERTS.plot) and draw in KINDS


def test_summary_has_a_dot_per_certified_input() -> None:
    ax = CERTS.plot.summary()
    dots = [c.get_offsets() for c in ax.collections if len(c.get_offsets()) == int(CERTS.certified.sum())]
    assert len(dots) == 2
    width = (CERTS.upper - CERTS.lower)[CERTS.certified] / 2.4 * 100
    medians = width.median(0).values
    for found, k in zip(dots, medians.argsort(descending=True).tolist()):
        assert sorted(found[:, 0].tolist()) == pytest.approx(width[:, k].sort().values.tolist())
    assert any("% of the domain" in text for text in texts(ax))
    assert any("own unit, log scale" in text for text in texts(er.certify(NET, points(1)).plot.summary()))


def test_maps_of_images_and_of_the_plane(tmp_path: Path) -> None:
    flat = network(0, (30, 8, 3))
    net = Network.chain((1, 6, 5), [ops.Reshape((-1,)), *(node.op for node in flat.nodes[1:])])
    frozen = torch.zeros(1, 6, 5, dtype=torch.bool)
    frozen[0, 0] = True
    certs = er.certify(net, torch.rand(2, 1, 6, 5), domain=(0, 1), frozen=frozen)
    ax = certs.plot.map(1)
    (picture,) = ax.images
    shown, width = np.ma.filled(picture.get_array(), np.nan), (certs.upper - certs.lower)[1, 0].numpy()
    assert np.isnan(shown[0]).all() and shown[1:] == pytest.approx(width[1:])
    said = texts(ax)
    assert "held fixed" in said and any("in the inputs' units" in text for text in said)
    assert any("class " in text and "stays" in text for text in said)
    assert any("in the blue box" in text for text in texts(CERTS.plot.map(3)))
    eight = er.certify(network(0, (64, 8, 3)), torch.rand(1, 64), domain=(0, 1))
    with pytest.raises(InputError, match="inputs of shape 64 are no image"):
        eight.plot.map()
    assert eight.plot.map(image_shape=(8, 8)).images[0].get_array().shape == (8, 8)
    colour = Network.chain((3, 4, 4), [ops.Reshape((-1,)), *(node.op for node in network(0, (48, 8, 3)).nodes[1:])])
    ax = er.certify(colour, torch.rand(1, 3, 4, 4), domain=(0, 1)).plot.map()
    assert any("least of the 3 channels" in text for text in texts(ax))


def test_similarity_and_histogram_say_what_they_compare() -> None:
    mean, least = er.analyse.cosine_similarity(CERTS)
    assert any(f"mean {mean:.3f}, least {least:.3f}" in text for text in texts(CERTS.plot.similarity()))
    said = texts(CERTS.plot.histogram())
    size = float(CERTS.geomean[CERTS.certified].mean())
    assert f"mean size of the regions: {size:.3g}" in said
    mixed = plane(domain=([-1.2, -60], [1.2, 60]))
    assert any("% of the domain" in text for text in texts(mixed.plot.histogram()))
    assert any("room as a share" in text for text in texts(mixed.plot.similarity()))


def test_what_cannot_be_drawn() -> None:
    with pytest.raises(InputError, match=r"input 2 has no certificate to draw \(misclassified: the network decides"):
        CERTS.plot.tolerance(2)
    with pytest.raises(InputError, match="nothing is certified"):
        CERTS[2:3].plot.summary()
    with pytest.raises(InputError, match="two certified inputs or more"):
        CERTS[:1].plot.similarity()
    with pytest.raises(InputError, match="max_features"):
        CERTS.plot.summary(max_features=0)
    with pytest.raises(IndexError):
        CERTS.plot.tolerance(9)


def test_what_a_notebook_sets_up_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first figure there loads pyplot, which makes the notebook show this one and all that follow."""
    made = drawing._figure

    def loading(size: tuple[float, float]) -> Any:
        matplotlib.rcParams["interactive"] = True
        return made(size)

    monkeypatch.setattr(drawing, "_figure", loading)
    with matplotlib.rc_context():
        CERTS.plot.histogram()
        assert matplotlib.rcParams["interactive"]


def test_names_in_pictures() -> None:
    assert as_text("a$b$c") == r"a\$b\$c" and as_text("x" * 99, 11) == "xxxxxx…xxxx"
    assert len(set(as_texts([LONG + "1", LONG + "1", "b"]))) == 3


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"pip install 'elbowroom\[plot\]'"):
        CERTS.plot.summary()


def test_pictures_of_runs_by_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    warnings.simplefilter("error")
    run, images = plane_run(tmp_path / "plane").folder, image_run(tmp_path / "images").folder
    assert "summary.png" in good("plot", str(run)).stdout and (tmp_path / "summary.png").stat().st_size > 5000
    assert "tolerance_3.png" in good("plot", str(run), "--index", "3").stdout
    good("plot", str(images), "--kind", "similarity", "--out", "similarity.pdf")
    assert (tmp_path / "similarity.pdf").read_bytes()[:4] == b"%PDF"
    files = [tmp_path / "deep" / name for name in ("map.svg", "again.svg")]
    for out in files:
        good("plot", str(images), "--kind", "map", "--index", "1", "--out", str(out))
    assert files[0].read_bytes() == files[1].read_bytes() and "</svg>" in files[0].read_text()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plane_run(tmp_path_factory.mktemp("pictures") / "run").folder


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--kind", "pie"], "--kind must be one of map, tolerance"),
        (["--kind", "map"], "a map is of one input: say by --index which"),
        (["--kind", "summary", "--index", "1"], "leave off --index"),
        (["--index", "2"], "input 2 has no certificate to draw (misclassified: the network decides"),
        (["--index", "999"], "has no certificate of input 999"),
        (["--out", "a.gif"], "ends in .png, .svg or .pdf"),
        (["--kind", "map", "--index", "1", "--image-shape", "3,3"], "--image-shape must be rows,columns"),
    ],
)
def test_commands_that_are_refused(flags: list[str], words: str, folder: Path) -> None:
    assert words in refused("plot", str(folder), *flags)
