"""The figure of appendix B: simple, quadratic and combined bounds of small random networks, seen in the output plane.

The networks are the paper's (2-5-5-2 and 2-10-10-2, ReLU, random weights). How it drew the weights and the input is not
said; here weights are normal with variance 2 / (inputs of the layer), there are no biases, and the input is uniform
in [-0.3, 0.3]^2. The seed is one of the most typical of 400: each ratio of areas below is within 0.35 of an
interquartile range of its median. Medians, and shares of networks, over 200 seeds:

                         simple / combined   quadratic / combined   the latter > 1.01   quadratic > simple
    2-5-5-2,   eps 0.1         2.60                  1.20                  67 %                18 %
    2-10-10-2, eps 0.1         5.88                  1.03                  54 %                 1 %
    2-10-10-2, eps 0.2         3.19                  1.12                  84 %                 2 %

So the simple box suffers from wide layers and the quadratic one from large budgets, as the paper says. The combined box
lies inside the simple one, always. Inside the quadratic one it need not lie: in 1 to 4 % of the networks it has the
larger area, by up to 5 %: tighter bounds on a hidden layer also change slopes, at times to the outputs' disadvantage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from elbowroom.errors import InputError
from elbowroom.network.graph import Network
from elbowroom.network.operations import Linear, ReLU
from elbowroom.report.plot.drawing import save
from elbowroom.search.bounds.api import bounds

COLOURS = {"simple": "#d62728", "quadratic": "#2ca02c", "combined": "#1f4fd8"}
METHODS = tuple(COLOURS)
YELLOW = "#ffdd44"
SETTINGS = ((5, 0.1), (10, 0.1), (10, 0.2))  # hidden neurons per layer, eps
SEED = 270
_DEAD = 1e-12  # a smaller box than this: no neuron is active around the input, and there is nothing to compare


@dataclass(frozen=True, eq=False)
class Panel:
    """One network on one square: `boxes[method]` is `2 x 2` (lower and upper corner of the outputs).

    `outputs`: `side x side x 2`, the network on a grid over the input square, its boundary included.
    """

    width: int
    eps: float
    boxes: dict[str, Tensor]
    outputs: Tensor

    @property
    def title(self) -> str:
        return f"2-{self.width}-{self.width}-2, ε = {self.eps}"

    @property
    def areas(self) -> dict[str, float]:
        return {method: _area(box) for method, box in self.boxes.items()}


@dataclass(frozen=True)
class Shares:
    """How often, over many random networks of one setting, each thing the figure shows is so."""

    title: str
    simple_to_combined: float  # median ratio of areas
    quadratic_to_combined: float
    simple_larger: float  # share of networks whose simple box is over 1 % larger than the combined one
    quadratic_larger: float
    quadratic_over_simple: float
    combined_over_quadratic: float


@dataclass(frozen=True, eq=False)
class ToyBounds:
    """The panels drawn, the shares counted, the files written."""

    panels: tuple[Panel, ...]
    shares: tuple[Shares, ...]
    files: tuple[Path, ...]

    def table(self) -> str:
        """Areas of the boxes drawn, and how typical they are."""
        lines = [f"{'area of the box':<22}" + "".join(f"{m:>12}" for m in METHODS)]
        for panel in self.panels:
            lines.append(f"{panel.title:<22}" + "".join(f"{panel.areas[m]:>12.4g}" for m in METHODS))
        if self.shares:
            heads = ("simple/comb.", "quad./comb.", "simple>comb.", "quad.>comb.", "quad.>simple", "comb.>quad.")
            lines += ["", f"{'many seeds':<22}" + "".join(f"{h:>14}" for h in heads)]
        for s in self.shares:
            ratios = (s.simple_to_combined, s.quadratic_to_combined)
            parts = (s.simple_larger, s.quadratic_larger, s.quadratic_over_simple, s.combined_over_quadratic)
            lines.append(
                f"{s.title:<22}" + "".join(f"{r:>14.2f}" for r in ratios) + "".join(f"{p:>14.1%}" for p in parts)
            )
        return "\n".join(lines)


def toy_bounds(out: Path, seed: int = SEED, seeds: int = 200, side: int = 161) -> ToyBounds:
    """Draws the figure into `out` (PNG and SVG) and counts its message over `seeds` random networks.

    `side`: points per side of the grid over the input square.
    """
    panels = tuple(_panel(width, eps, seed, side) for width, eps in SETTINGS)
    if not all(panel.areas["combined"] > _DEAD for panel in panels):
        raise InputError(f"seed {seed} draws a network that is constant around its input; choose another")
    shares = tuple(_shares(width, eps, seeds) for width, eps in SETTINGS) if seeds else ()
    return ToyBounds(panels, shares, _draw(panels, Path(out)))


def _random_network(width: int, seed: int) -> tuple[Network, Tensor]:
    """The network 2-width-width-2 and the input of a seed, in float64."""
    generator = torch.Generator().manual_seed(seed)

    def linear(n_out: int, n_in: int) -> Linear:
        weight = torch.randn(n_out, n_in, generator=generator, dtype=torch.float64)
        return Linear(weight * (2 / n_in) ** 0.5, torch.zeros(n_out, dtype=torch.float64))

    layers = [linear(width, 2), ReLU(), linear(width, width), ReLU(), linear(2, width)]
    center = 0.3 * (2 * torch.rand(1, 2, generator=generator, dtype=torch.float64) - 1)
    return Network.chain((2,), layers), center


def _boxes(net: Network, center: Tensor, eps: float) -> dict[str, Tensor]:
    found = {}
    for method in METHODS:
        box = bounds(net, center - eps, center + eps, method=method)
        found[method] = torch.cat([box.lower, box.upper])
    return found


def _area(box: Tensor) -> float:
    return float((box[1] - box[0]).prod())


def _panel(width: int, eps: float, seed: int, side: int) -> Panel:
    net, center = _random_network(width, seed)
    steps = torch.linspace(-eps, eps, side, dtype=torch.float64)
    grid = torch.stack(torch.meshgrid(steps, steps, indexing="ij"), -1)
    outputs = net(center + grid.reshape(-1, 2)).reshape(side, side, 2)
    return Panel(width, eps, _boxes(net, center, eps), outputs)


def _shares(width: int, eps: float, seeds: int) -> Shares:
    areas = torch.tensor(
        [[_area(box) for box in _boxes(*_random_network(width, seed), eps).values()] for seed in range(seeds)],
        dtype=torch.float64,
    )
    simple, quadratic, combined = areas[areas[:, 2] > _DEAD].T

    def share(larger: Tensor, smaller: Tensor, by: float = 1.0 + 1e-9) -> float:
        return float((larger > by * smaller).double().mean())

    return Shares(
        f"2-{width}-{width}-2, ε = {eps}",
        float((simple / combined).median()),
        float((quadratic / combined).median()),
        share(simple, combined, 1.01),
        share(quadratic, combined, 1.01),
        share(quadratic, simple),
        share(combined, quadratic),
    )


# --- drawing


def _draw(panels: Sequence[Panel], out: Path) -> tuple[Path, ...]:
    def draw(figure: Any) -> None:
        from matplotlib.lines import Line2D
        from matplotlib.patches import Patch

        figure.get_layout_engine().set(w_pad=0.1, h_pad=0.08)
        for letter, panel, ax in zip("abc", panels, figure.subplots(1, len(panels))):
            _draw_panel(ax, panel)
            ax.set_title(f"({letter})  {panel.title}", loc="left", pad=8, fontsize=11)
        figure.suptitle("Bounds on the outputs of random ReLU networks, over a square of inputs", fontsize=13)
        handles: list[Any] = [Line2D([], [], color=COLOURS[m], lw=_WIDTHS[m], label=m) for m in METHODS]
        handles.append(Patch(facecolor=YELLOW, edgecolor="#d9b400", label="possible outputs (sampled)"))
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)

    return save([out / "toy-bounds.png", out / "toy-bounds.svg"], (12.6, 5.0), draw)


_WIDTHS = {"simple": 2.0, "quadratic": 3.4, "combined": 1.6}  # where boxes coincide, the inner line leaves a rim


def _draw_panel(ax: Any, panel: Panel) -> None:
    from matplotlib.collections import QuadMesh
    from matplotlib.patches import Rectangle

    cells = QuadMesh(panel.outputs.numpy(), facecolor=YELLOW, edgecolor=YELLOW, lw=0.5, rasterized=True)
    ax.add_collection(cells)
    for method in METHODS:
        (x, y), (w, h) = panel.boxes[method][0].tolist(), (panel.boxes[method][1] - panel.boxes[method][0]).tolist()
        ax.add_patch(Rectangle((x, y), w, h, fill=False, edgecolor=COLOURS[method], lw=_WIDTHS[method]))
    inner = torch.stack([panel.boxes["quadratic"], panel.boxes["combined"]])
    low, high = inner[:, 0].amin(0), inner[:, 1].amax(0)
    simple = panel.boxes["simple"]
    scale = ((simple[1] - simple[0]) / (high - low)).tolist()
    far = max(scale) > _SCOPE
    if not far:
        low, high = torch.minimum(low, simple[0]), torch.maximum(high, simple[1])
    margin = 0.1 * (high - low)
    ax.set_xlim(float(low[0] - margin[0]), float(high[0] + margin[0]))
    ax.set_ylim(float(low[1] - margin[1]), float(high[1] + margin[1] * (2.4 if far else 1)))  # room for the note
    if far:
        note = f"simple: out of scope,\n{scale[0]:.1f} × as wide, {scale[1]:.1f} × as high as the others"
        back = {"facecolor": "white", "edgecolor": "none", "pad": 2}
        top = {"transform": ax.transAxes, "ha": "center", "va": "top"}
        ax.text(0.5, 0.975, note, color=COLOURS["simple"], bbox=back, **top)
    ratios = {m: panel.areas[m] / panel.areas["combined"] for m in METHODS}
    ax.set_xlabel(f"output 1\narea / combined:  simple {ratios['simple']:.2f},  quadratic {ratios['quadratic']:.2f}")
    ax.set_ylabel("output 2")
    ax.grid(alpha=0.25, lw=0.6)
    ax.set_axisbelow(True)


_SCOPE = 2.2  # a simple box this many times as wide or high as the others would hide them
