"""Pictures are written, the same ones each time, and wrong shapes are refused; maps as text say what they show."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import elbowroom as er
from elbowroom.errors import InputError
from elbowroom.report import plot
from elbowroom.report.plot.histograms import _quantile
from elbowroom.training.models import mlp

pytest.importorskip("matplotlib")
EPS = torch.rand(2, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.01
IMAGES = 2 * EPS.clamp_max(1) - 1


def is_png(path: Path) -> Any:
    return path.read_bytes()[:4] == b"\x89PNG" and path.stat().st_size > 5000


@pytest.mark.parametrize("scale", ["log", "paper"])
def test_bounding_maps(tmp_path: Path, scale: str) -> None:
    maps = {"normal": EPS, "robust": 3 * EPS}
    (file,) = plot.bounding_maps(tmp_path / "deep" / "maps.png", IMAGES, maps, titles=["a", "b"], scale=scale)
    assert is_png(file)
    (again,) = plot.bounding_maps(tmp_path / "again.png", IMAGES, maps, titles=["a", "b"], scale=scale)
    assert again.read_bytes() == file.read_bytes()


def test_bounding_maps_refuse(tmp_path: Path) -> None:
    for maps, options in (({"a": EPS[:1]}, {}), ({"a": EPS}, {"scale": "no"}), ({"a": 0 * EPS}, {})):
        with pytest.raises(InputError):
            plot.bounding_maps(tmp_path / "no.png", IMAGES, maps, **options)
    assert not list(tmp_path.iterdir())


def test_histogram(tmp_path: Path) -> None:
    lines = {"normal": 0.1, "robust": 0.3}
    eps = {"normal": EPS, "robust": torch.cat([3 * EPS.flatten(), torch.zeros(3)])}
    files = plot.histogram([tmp_path / "h.png", tmp_path / "h.svg"], eps, uniform=lines, geomean=lines, tau=0.1)
    assert is_png(files[0])
    assert "</svg>" in files[1].read_text()
    with pytest.raises(InputError):
        plot.histogram(tmp_path / "no.png", {"normal": torch.zeros(4)})


def test_regions_2d(tmp_path: Path) -> None:
    net = er.load(mlp([2, 8, 3], generator=torch.Generator().manual_seed(0)), input_shape=(2,))
    x = 2 * torch.rand(6, 2, generator=torch.Generator().manual_seed(1)) - 1
    pair = (er.certify(net, x, region=er.Uniform(), domain=(-1, 1)), er.certify(net, x, domain=(-1, 1)))
    files = [tmp_path / "r.png", tmp_path / "r.svg"]
    assert plot.regions_2d(files, net, {"one": pair, "two": pair}, title="boxes", side=60) == tuple(files)
    assert is_png(files[0])
    other = [tmp_path / "again" / f.name for f in files]
    plot.regions_2d(other, net, {"one": pair, "two": pair}, title="boxes", side=60)
    assert [f.read_bytes() for f in other] == [f.read_bytes() for f in files]
    balls = er.certify(net, x, region=er.Ellipsoid())
    with pytest.raises(InputError, match="boxes"):
        plot.regions_2d(tmp_path / "no.png", net, {"balls": (pair[0], balls)})


def test_text_map() -> None:
    values = torch.arange(10.0).reshape(2, 5)
    lines = plot.text_map(values).split("\n")
    assert lines == ["    ░░░░▒▒", "▒▒▓▓▓▓████", "[  ] below 1.8  [░░] to 3.6  [▒▒] to 5.4  [▓▓] to 7.2  [██] more"]


def test_text_map_scales() -> None:
    values = torch.tensor([[1.0, 20.0, 200.0, 2e3, 1e5]])
    assert plot.text_map(values, log=True).split("\n")[0] == "  ░░▒▒▓▓██"
    assert plot.text_map(values, low=0.0, high=10.0).split("\n")[0] == "  ████████"
    assert plot.text_map(torch.ones(1, 2)).split("\n")[0] == "████"  # all the same: no scale, and no error
    assert plot.text_map(values, unit="metres").endswith("(metres)")
    for bad in (torch.ones(3), torch.full((2, 2), torch.nan), torch.ones(0, 2)):
        with pytest.raises(InputError):
            plot.text_map(bad)
    with pytest.raises(InputError):
        plot.text_map(torch.zeros(1, 2), log=True)
    with pytest.raises(InputError):
        plot.text_map(values, low=2.0, high=1.0)


def test_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match="pip install"):
        plot.histogram(tmp_path / "no.png", {"normal": EPS})


def counted(eps: Any, uniform: float = 0.1, geomean: float = 0.2) -> Any:
    edges = np.geomspace(1e-3, 10, 61)
    return plot.Counted(edges, np.histogram(eps.flatten().numpy(), edges)[0], uniform, geomean)


def test_histograms_of_what_was_counted(tmp_path: Path) -> None:
    panels = {f"set {k}": {"normal": counted(EPS), "robust": counted(k * EPS)} for k in (2, 3, 4, 5)}
    files = plot.histograms([tmp_path / "h.png", tmp_path / "h.svg"], panels, tau=0.1, title="all")
    assert is_png(files[0]) and "</svg>" in files[1].read_text()
    for nothing in ({}, {"a": {"normal": counted(0 * EPS)}}):
        with pytest.raises(InputError):
            plot.histograms(tmp_path / "no.png", nothing)


def test_quantiles_of_what_was_counted() -> None:
    edges = np.array([1.0, 2.0, 3.0, 4.0])
    found = plot.Counted(edges, np.array([1, 998, 1]), 1.0, 1.0)
    assert _quantile(found, 0.0005) == 1 and _quantile(found, 0.01) == 2
    assert _quantile(found, 0.9) == 3 and _quantile(found, 0.9995) == 4


def test_score_maps(tmp_path: Path) -> None:
    files = plot.score_maps(
        [tmp_path / "s.png"], {"a": {"normal": EPS[0], "robust": EPS[1]}, "b": {"robust": 3 * EPS[0]}}, title="room"
    )
    assert is_png(files[0])
    for maps in ({}, {"a": {"normal": EPS}}, {"a": {"normal": 0 * EPS[0]}}):
        with pytest.raises(InputError):
            plot.score_maps(tmp_path / "no.png", maps)
