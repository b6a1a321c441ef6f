"""Are the paper's printed bounds those of a search that had not ended? Its program, run as its authors published it.

`elbowroom reproduce unconverged`: with the models of the main table; the table goes to tables/unconverged.md and .csv,
what it says of each printed row to tables/unconverged-rows.md.
The published program finds uniform bounds, too, by the augmented Lagrangian, of one extent that all features share. It
starts at 0.001, takes 400 steps (SGD at a rate of 0.001 unless told otherwise, of the mean loss of 10 inputs), rescales
gradients only if told to, the more the larger rho is, and shrinks at last what is not feasible. What it was told for
the printed tables is not published, so that several ways are tried; beside them, what bisection and the sequential
solver find under the same bounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elbowroom.certify.api import certify
from elbowroom.machine.meter import Meter
from elbowroom.paper.bench import Bench, network
from elbowroom.paper.compute import read_npz, write_npz
from elbowroom.paper.models import TAU, TITLES, Model
from elbowroom.paper.tables import Column, Table, number
from elbowroom.search.solvers.augmented_lagrangian import AugmentedLagrangian
from elbowroom.search.solvers.driver import Best
from elbowroom.search.solvers.problem import Problem

START = 1e-3  # of every extent
MEAN_OF = 10  # inputs whose mean loss is followed
PRINTED = "the paper"  # in the place of a search
_INPUTS = 10  # at most: of the test set, the first
_PAPER: dict[str, Any] = {"bounds": "combined", "margin": "logits", "delta": 1e-4}


@dataclass(frozen=True)
class Setting:
    """How the published program may have been told to go. `clip`: the norm that gradients of the mean loss have at most
    while rho is 1 (None: they are not rescaled)."""

    title: str
    optimiser: str
    rate: float
    clip: float | None = None


SETTINGS = (
    Setting("SGD 0.001, its defaults", "sgd", 1e-3),
    Setting("SGD 0.001, rescaled to 1", "sgd", 1e-3, 1.0),
    Setting("SGD 0.001, rescaled to 0.1", "sgd", 1e-3, 0.1),
    Setting("Adam 0.001", "adam", 1e-3),
    Setting("Adam 0.001, rescaled to 1", "adam", 1e-3, 1.0),
    Setting("Adam 0.01", "adam", 1e-2),
)


@dataclass(frozen=True)
class Published(AugmentedLagrangian):
    """The published program's search. `shared`: one extent for all features. What it finds of each input of a batch, a
    row of extents, `d` or 1, is put into `found`; nothing is offered, so that certificates are of the start."""

    shared: bool = False
    optimiser: str = "sgd"
    found: dict[int, Tensor] = field(default_factory=dict, repr=False, compare=False)

    def longest(self, rho: float) -> float:
        """Falls as rho grows."""
        return self.clip / math.sqrt(rho / self.rho)

    def run(self, problem: Problem, best: Best) -> Iterator[None]:
        """All of it; see `AugmentedLagrangian.run`."""
        theta = best.theta
        zeta = torch.full_like(theta[:, :1] if self.shared else theta, math.sqrt(START)).requires_grad_()
        kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[self.optimiser]
        # The gradient of a mean is a part of that of a sum, which Adam does not mind.
        rate = self.rate / MEAN_OF if self.optimiser == "sgd" else self.rate
        yield from self.descend(problem, zeta, kind([zeta], lr=rate))
        ends = torch.minimum(zeta.detach() ** 2, problem.region.caps)
        ends = torch.nan_to_num(self.shrink(problem, ends, torch.zeros_like(ends)))
        for k, row in zip(problem.index.tolist(), ends.cpu()):
            self.found[k] = row
        yield


def unconverged_table(bench: Bench, models: Sequence[Model]) -> Table:
    """Uniform and non-uniform bounds by each setting, beside those that are converged and those that were printed."""
    bench.claim()
    columns = (
        Column("data"), Column("hidden layers"), Column("trained against"), Column("search"),
        Column("uniform", number(4)), Column("/ bisection", number(3)), Column("non-uniform", number(4)),
        Column("/ sequential", number(3)), Column("ratio", number(3)), Column("ratio of arithmetic means", number(3)),
    )  # fmt: skip
    rows: list[list[Any]] = []
    for model in models:
        rows += _rows(bench, model)
    note = (
        f"The first {_inputs(bench)} test images, those that are certified; the paper's bounds. Uniform: the mean "
        f"radius; non-uniform: the mean over inputs of the geometric mean over features, and, for the last column, of "
        f"the arithmetic mean. Rescaled: gradients at rho = 1, less as rho grows. Extents end at 1000 uniform radii."
    )
    return Table("unconverged", columns, rows, note)


def _rows(bench: Bench, model: Model) -> list[list[Any]]:
    about = [TITLES[model.data], bench.size.of(model).architecture, f"PGD, τ = {TAU:g}" if model.robust else "nobody"]
    paper, rows = model.reported, []
    if paper is not None:
        rows.append([*about, PRINTED, paper.uniform, None, paper.nonuniform, None, paper.ratio, None])
    converged = _means(_found(bench, model, None))
    rows.append([*about, "bisection, sequential", converged[0], 1.0, converged[1], 1.0, *_ratios(converged)])
    for setting in SETTINGS:
        one = _means(_found(bench, model, setting))
        shares = one[0] / converged[0], one[1] / converged[1]
        rows.append([*about, setting.title, one[0], shares[0], one[1], shares[1], *_ratios(one)])
    return rows


def statements(made: Table) -> str:
    """Of a table of this kind, per printed row: how far the searches come from what it says. A list, Markdown."""
    lines = []
    for k, paper in enumerate(made.rows):
        if paper[3] != PRINTED:
            continue
        rows = [row for row in made.rows[k + 1 :] if row[:3] == paper[:3]]
        converged, tried = rows[0], rows[1:]
        nearest = min(tried, key=lambda row: _apart(row[4], paper[4]) + _apart(row[6], paper[6]))
        reached = [row[3] for row in tried if row[8] is not None and row[8] >= paper[8]]
        lines.append(
            f"- **{', '.join((paper[0], paper[1]))}, trained against {paper[2]}**: printed {paper[4]:.4f} and "
            f"{paper[6]:.4f}, a ratio of {paper[8]:.2f}; bisection and the sequential solver {converged[4]:.4f} and "
            f"{converged[6]:.4f}, {_two(converged[8])} (of arithmetic means {_two(converged[9])}). The searches' "
            f"uniform bounds are {_span(tried, 5)} of bisection's, their non-uniform ones {_span(tried, 7)} of the "
            f"sequential solver's, their ratios {_span(tried, 8)} (of arithmetic means {_span(tried, 9)}). "
            + (f"The printed ratio is reached by {'; '.join(reached)}. " if reached else "None has the printed ratio. ")
            + f"The nearest to both printed bounds: {nearest[3]} ({nearest[4]:.4f} and {nearest[6]:.4f})."
        )
    return "\n".join(lines)


def _two(value: float | None) -> str:
    return "none" if value is None else f"{value:.2f}"


def _apart(found: float, printed: float) -> float:
    return abs(math.log(found / printed)) if found > 0 else math.inf


def _span(rows: Sequence[Sequence[Any]], column: int) -> str:
    held = [row[column] for row in rows if row[column] is not None]
    return f"{min(held):.2f} to {max(held):.2f}" if held else "nothing"


def _inputs(bench: Bench) -> int:
    return min(bench.size.few, _INPUTS)


def _means(found: dict[str, np.ndarray]) -> tuple[float, float, float]:
    return tuple(float(found[name].mean()) for name in ("uniform", "geomean", "mean"))  # type: ignore[return-value]


def _ratios(means: tuple[float, float, float]) -> tuple[float | None, float | None]:
    uniform, geomean, mean = means
    return (geomean / uniform, mean / uniform) if uniform else (None, None)


def _found(bench: Bench, model: Model, setting: Setting | None) -> dict[str, np.ndarray]:
    """Per certified input: the uniform radius, and geometric and arithmetic mean of the extents; from its file, or
    computed. `setting`: None for bisection and the sequential solver."""
    slug = "converged" if setting is None else "".join(c if c.isalnum() else "-" for c in setting.title)
    path = bench.out / "unconverged" / f"{bench.size.of(model).name}-{slug}.npz"
    if path.exists():
        return read_npz(path)
    bench.go_on()
    net, (data, _) = network(bench, model), bench.data(model)
    count = _inputs(bench)
    x, y = data.x_test[:count].reshape(-1, *net.input_shape).to(bench.device), data.y_test[:count].to(bench.device)
    with Meter(None, title=path.stem):
        found = _converged(net, x, y) if setting is None else _by(setting, bench.size.steps, net, x, y)
    write_npz(path, found)
    return found


def _converged(net: Any, x: Tensor, y: Tensor) -> dict[str, np.ndarray]:
    certs = certify(net, x, y, progress=False, **_PAPER)
    good = certs.certified
    eps = certs.eps[good].flatten(1).double()
    uniform = (certs.geomean / certs.ratio)[good].double()
    return _arrays(uniform, eps)


def _by(setting: Setting, steps: int, net: Any, x: Tensor, y: Tensor) -> dict[str, np.ndarray]:
    extents = []
    for shared in (True, False):
        clip = math.inf if setting.clip is None else setting.clip * MEAN_OF  # of the sum's gradient
        way = Published(
            steps=steps, rho_every=max(1, steps // 5), rate=setting.rate, clip=clip, shared=shared,
            optimiser=setting.optimiser,
        )  # fmt: skip
        certify(net, x, y, solver=way, batch=len(x), progress=False, **_PAPER)
        extents.append(torch.stack([way.found[k] for k in sorted(way.found)]).double())
    return _arrays(extents[0][:, 0], extents[1])


def _arrays(uniform: Tensor, eps: Tensor) -> dict[str, np.ndarray]:
    tiny = torch.finfo(torch.float64).tiny
    geomean = eps.clamp_min(tiny).log().mean(1).exp()
    return {"uniform": uniform.cpu().numpy(), "geomean": geomean.cpu().numpy(), "mean": eps.mean(1).cpu().numpy()}


__all__ = ["SETTINGS", "Published", "Setting", "statements", "unconverged_table"]
