"""Draws the pictures of README.md and docs/explained.md, each from a run that it makes: python docs/pictures.py

Needs the extra `demo` (scikit-learn, matplotlib); under a minute on one core.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import numpy as np
import torch
from matplotlib import pyplot
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch, Rectangle
from sklearn.datasets import load_digits, load_wine
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

import elbowroom as er
from elbowroom.report.digits import at_least, at_most

OWN, ONE, INK = "#1f4fd8", "#b8860b", "#333333"
PASTELS = ListedColormap(["#f7d6d0", "#d3e4f3", "#d8efd3"])
PLANE = ["alcohol", "proline"]  # per cent, and mg per litre
CHOSEN = 78  # a wine near the border of its class
NEAR = (11.8, 13.4)  # per cent of alcohol: where that wine is


def perceptron(width: int, alpha: float) -> Any:
    model = MLPClassifier((width, width), alpha=alpha, max_iter=3000, random_state=1)
    return make_pipeline(StandardScaler(), model)


def of_two() -> tuple[er.Network, Any]:
    """A network that tells three wines apart by two measurements, and these of all 178."""
    wine = load_wine(as_frame=True)
    frame = wine.data[PLANE]
    return er.load(perceptron(40, 0.01).fit(frame, wine.target)), frame


def decisions(ax: Any, net: er.Network, frame: Any, margin: float = 0.04) -> None:
    """What the network decides, everywhere in the range of the data."""
    (left, bottom), (right, top) = frame.min(), frame.max()
    wide, high = margin * (right - left), margin * (top - bottom)
    xs, ys = np.linspace(left - wide, right + wide, 500), np.linspace(bottom - high, top + high, 500)
    grid = torch.from_numpy(np.stack(np.meshgrid(xs, ys), -1).reshape(-1, 2))
    ax.pcolormesh(xs, ys, net.decide(net(grid)).reshape(500, 500).numpy(), cmap=PASTELS, vmin=0, vmax=2)
    ax.set_xlabel("alcohol (%)")
    ax.set_ylabel("proline (mg/l)")


def box(ax: Any, certs: er.Certificates, row: int, color: str, **style: Any) -> None:
    assert certs.lower is not None and certs.upper is not None
    low, high = certs.lower[row].numpy(), certs.upper[row].numpy()
    ax.add_patch(Rectangle(tuple(low), *(high - low), fill=False, edgecolor=color, linewidth=2, **style))


def point(ax: Any, certs: er.Certificates, row: int) -> None:
    ax.plot(*certs.x[row].numpy(), "o", color=INK, markersize=5)


def plane(ax: Any, net: er.Network, frame: Any) -> None:
    """Some wines with their boxes."""
    decisions(ax, net, frame)
    certs = er.certify(net, frame.iloc[::13], domain=(frame.min(), frame.max()))
    for row in certs.certified.nonzero().flatten().tolist():
        box(ax, certs, row, OWN)
        point(ax, certs, row)
    ax.set_title("two features:\nno decision changes inside a box", fontsize=10)


def digit(ax: Any, beside: Any) -> None:
    """A digit, and the room of its pixels."""
    digits = load_digits()
    torch.manual_seed(0)
    x, y = torch.from_numpy(digits.data / 16).float(), torch.from_numpy(digits.target)
    model = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10))
    optimiser = torch.optim.Adam(model.parameters(), 0.01, weight_decay=1e-3)
    for _ in range(200):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x + 0.2 * torch.randn_like(x)), y).backward()
        optimiser.step()
    certs = er.certify(er.load(model, input_shape=(64,)), x[:1], domain=(0, 1))
    assert certs.status[0] == "certified" and certs.lower is not None and certs.upper is not None
    ax.imshow(x[0].reshape(8, 8), cmap="gray_r", vmin=0, vmax=1)
    ax.set_title("an image", fontsize=10)
    shown = beside.imshow((certs.upper - certs.lower)[0].reshape(8, 8), cmap="viridis", vmin=0)
    beside.set_title("the room of its pixels,\nall at once", fontsize=10)
    pyplot.colorbar(shown, ax=beside, shrink=0.8)
    for each in (ax, beside):
        each.set_xticks([])
        each.set_yticks([])


def bars(ax: Any, features: int = 7) -> None:
    """A wine with 13 measurements: those with the least room."""
    wine = load_wine(as_frame=True)
    net = er.load(perceptron(16, 1.0).fit(wine.data, wine.target))
    certs = er.certify(net, wine.data[CHOSEN : CHOSEN + 1], domain=(wine.data.min(), wine.data.max()))
    assert certs.status[0] == "certified"
    rows = certs.to_frame().sort_values("room", ascending=False).tail(features)
    span = wine.data.max() - wine.data.min()
    for k, row in enumerate(rows.itertuples()):
        start, width = wine.data.min()[row.feature], span[row.feature]
        ax.barh(k, 1, color="#e4e7eb", height=0.5)
        ax.barh(k, (row.high - row.low) / width, left=(row.low - start) / width, color=OWN, height=0.5)
        ax.plot((float(row.value) - start) / width, k, "o", color="#d9772b", markersize=5)
        ax.text(1.02, k, f"{at_least(row.low, 4)} to {at_most(row.high, 4)}", va="center", fontsize=9)
    ax.set_yticks(range(len(rows)), [name.replace("_", " ")[:17] for name in rows["feature"]], fontsize=9)
    ax.set_xticks([0, 1], ["least", "most"], fontsize=9)
    ax.set_xlim(0, 1.75)
    ax.set_title("a table: the least room first", fontsize=10)
    for side in ("top", "right", "left", "bottom"):
        ax.spines[side].set_visible(False)


def overview(folder: Path) -> None:
    """README.md's picture."""
    figure = pyplot.figure(figsize=(10.4, 3.3), layout="constrained")
    axes = figure.subplots(1, 4, width_ratios=[3, 1.9, 2.4, 3.6])
    plane(axes[0], *of_two())
    digit(axes[1], axes[2])
    bars(axes[3])
    save(figure, folder / "overview.png")


def idea(folder: Path) -> None:
    """One radius for all features, one share of each range, and extents of their own."""
    net, frame = of_two()
    ends = frame.min(), frame.max()
    span = (frame.max() - frame.min()).to_numpy()
    shapes = {
        "one radius for both": er.Uniform(scale=torch.ones(2)),
        "one share of both ranges": er.Uniform(scale=torch.from_numpy(span)),
        "extents of their own": er.Box(),
    }
    figure = pyplot.figure(figsize=(11, 3.8), layout="constrained")
    for ax, (title, shape) in zip(figure.subplots(1, 3), shapes.items()):
        decisions(ax, net, frame)
        certs = er.certify(net, frame[CHOSEN : CHOSEN + 1], domain=ends, region=shape)
        assert certs.status[0] == "certified" and certs.lower is not None and certs.upper is not None
        box(ax, certs, 0, OWN if isinstance(shape, er.Box) else ONE)
        point(ax, certs, 0)
        wide, high = (certs.upper - certs.lower)[0].tolist()
        ax.set_title(
            f"{title}: a width of\n{at_most(wide, 2)} % of alcohol, {at_most(high, 3)} mg/l of proline", fontsize=10
        )
    save(figure, folder / "explained-idea.png")


def method(folder: Path) -> None:
    """How a box comes about: from the uniform one, step by step."""
    net, frame = of_two()
    figure = pyplot.figure(figsize=(5.2, 4.2), layout="constrained")
    ax = figure.subplots()
    decisions(ax, net, frame)
    ways: dict[str, dict[str, Any]] = {
        "start: one share": {"solver": er.Sequential(gradients=0)},
        "default": {},
        'effort="high": in parts': {"effort": "high"},
    }
    shades = (ONE, OWN, "#0b1f5c")
    for (name, told), shade in zip(ways.items(), shades):
        certs = er.certify(net, frame[CHOSEN : CHOSEN + 1], domain=(frame.min(), frame.max()), **told)
        box(ax, certs, 0, shade, label=name)
    point(ax, certs, 0)
    ax.set_xlim(*NEAR)
    ax.legend(fontsize=8, loc="upper right")
    save(figure, folder / "explained-method.png")


def proved(folder: Path) -> None:
    """The certified box, and the nearest counterexamples found."""
    net, frame = of_two()
    certs = er.certify(net, frame[CHOSEN : CHOSEN + 1], domain=(frame.min(), frame.max()), reach=True)
    assert certs.seen is not None and certs.reach is not None
    assert certs.lower is not None and certs.upper is not None
    figure = pyplot.figure(figsize=(5.2, 4.2), layout="constrained")
    ax = figure.subplots()
    decisions(ax, net, frame)
    low, high = certs.lower[0], certs.upper[0]
    ax.add_patch(Rectangle(tuple(low.tolist()), *(high - low).tolist(), facecolor=OWN, alpha=0.25))
    box(ax, certs, 0, OWN)
    point(ax, certs, 0)
    ax.plot(*certs.seen[0].numpy(), "x", color="#c0392b", markersize=9, markeredgewidth=2)
    reach = float(certs.reach[0])
    x = certs.x[0]
    domain = torch.tensor(frame.min().to_numpy()), torch.tensor(frame.max().to_numpy())
    wide = torch.maximum(x + reach * (low - x), domain[0]), torch.minimum(x + reach * (high - x), domain[1])
    ax.add_patch(Rectangle(tuple(wide[0].tolist()), *(wide[1] - wide[0]).tolist(), fill=False, edgecolor="#c0392b",
                           linestyle="--"))  # fmt: skip
    ax.set_xlim(*NEAR)
    ax.legend(handles=[
        Patch(facecolor=OWN, alpha=0.25, edgecolor=OWN, label="proved: the decision stays"),
        Patch(fill=False, edgecolor="#c0392b", linestyle="--", label="scaled until a counterexample (x) was found"),
        Patch(facecolor=PASTELS(1), label="decided alike, but not claimed"),
    ], fontsize=8, loc="upper right")  # fmt: skip
    save(figure, folder / "explained-proved.png")


def save(figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=120, metadata={"Software": None})
    pyplot.close(figure)
    print(path)


def main() -> None:
    parser = argparse.ArgumentParser(description="Draws the pictures of README.md and docs/explained.md.")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "figures", help="folder of the pictures")
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    for draw in (overview, idea, method, proved):
        draw(folder)


if __name__ == "__main__":
    main()
