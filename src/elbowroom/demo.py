"""The whole story on embedded data: two small networks, trained on the spot, and the room each leaves its pixels."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text
from torch import Tensor, nn

from elbowroom.analyse import cosine_similarity
from elbowroom.certificates.result import Certificates
from elbowroom.certify.api import certify
from elbowroom.data.embedded import Dataset, digits
from elbowroom.errors import InputError
from elbowroom.network.graph import Network
from elbowroom.readers.load import load
from elbowroom.report import plot
from elbowroom.report.progress import Meter
from elbowroom.search.regions.box import Uniform
from elbowroom.training.train import PGD, Attack, Report, one_thread, pgd_attack, train


@dataclass(frozen=True)
class Settings:
    """Of the demo: both networks are trained alike, but for the adversary.

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


@dataclass(frozen=True, eq=False)
class Demo:
    """What the demo found, and the files it wrote."""

    normal: Examined
    robust: Examined
    files: tuple[Path, ...]
    seconds: float


def run_demo(
    out: Path = Path("out/demo"),
    *,
    seed: int = 0,
    settings: Settings | None = None,
    console: Console | None = None,
) -> Demo:
    """Trains, certifies, compares, attacks, and explains; writes pictures, certificates and weights into `out`.

    `seed`: of the training. The data and their split are always the same.
    """
    started = time.perf_counter()
    use = Settings() if settings is None else settings
    say = Console() if console is None else console
    target = Path(out)
    # What could stop the demo at its end is asked for at its beginning.
    plot.need_matplotlib()
    data = digits()
    with _writing(target):
        target.mkdir(parents=True, exist_ok=True)
    _introduce(say, data, use)
    with one_thread():
        normal = _examine("normal", None, data, use, seed, say)
        robust = _examine("robust", use.adversary, data, use, seed, say)
        say.print()
        _main_table(say, normal, robust, use, data)
        _cosine_table(say, normal, robust)
        index = _example(normal, robust)
        _one_digit(say, normal, robust, data, index)
        _attack_table(say, normal, robust, use)
        with Meter(None, title="drawing pictures"), _writing(target):
            files = _write(target, normal, robust, data, index, use)
    seconds = time.perf_counter() - started
    _conclude(say, target, files, seconds)
    return Demo(normal, robust, tuple(files), seconds)


# --- the work


def _examine(name: str, adversary: PGD | None, data: Dataset, use: Settings, seed: int, say: Console) -> Examined:
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
        uniform = certify(net, x, y, region=Uniform(), max_eps=most)
        regions = certify(net, x, y, max_eps=most)
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


def _example(normal: Examined, robust: Examined) -> int:
    """The digit shown: the first 7 both networks have a region for (failing that, any digit)."""
    both = normal.regions.certified & robust.regions.certified
    sevens = (both & (normal.regions.labels == 7)).nonzero().flatten()
    any_digit = both.nonzero().flatten()
    if not len(any_digit):
        raise InputError("no digit is certified for both networks; train them for more epochs")
    return int(sevens[0] if len(sevens) else any_digit[0])


def _write(out: Path, normal: Examined, robust: Examined, data: Dataset, index: int, use: Settings) -> dict[Path, str]:
    """Writes everything; says of each file or folder what it is."""
    models = (normal, robust)
    good = [m.regions.certified for m in models]
    rows = _one_per_class(good[0] & good[1], normal.regions.labels, index)
    images = normal.regions.x[rows].reshape(-1, *data.shape)
    maps = {f"{m.name} network": m.regions.eps[rows].reshape(-1, *data.shape) for m in models}
    titles = [f"digit {int(normal.regions.labels[k])}" for k in rows]
    plot.bounding_maps(out / "bounding-maps.png", images, maps, titles=titles)
    counts = f"{int(good[0].sum())} normal, {int(good[1].sum())} robust"
    plot.histogram(
        out / "histogram.png",
        {m.name: m.regions.eps[g] for m, g in zip(models, good)},
        uniform={m.name: m.mean_uniform for m in models},
        geomean={m.name: m.mean_regions for m in models},
        tau=use.adversary.tau,
        title=f"The room of every pixel of every certified digit ({counts})",
        unit=f"pixels in [{data.low:g}, {data.high:g}], ε at most {data.high - data.low:g}",
    )
    files = {
        out / "bounding-maps.png": f"{len(rows)} digits and the room of their pixels, for both networks",
        out / "histogram.png": "how the room of all pixels is distributed, for both networks",
    }
    for m in models:
        folder = out / m.name
        m.uniform.save(folder / "uniform")
        m.regions.save(folder / "non-uniform")
        torch.save(m.model.state_dict(), folder / "weights.pt")
        files[folder / "uniform"] = "certificates, one ε (er.Certificates.load)"
        files[folder / "non-uniform"] = "certificates, an ε for every pixel"
        files[folder / "weights.pt"] = "the network's weights (a torch state_dict)"
    return files


def _one_per_class(usable: Tensor, labels: Tensor, first: int, most: int = 4) -> list[int]:
    """The digit shown and a few more, each of another class."""
    rows = [first]
    for k in usable.nonzero().flatten().tolist():
        if len(rows) < most and int(labels[k]) not in {int(labels[r]) for r in rows}:
            rows.append(k)
    return rows


# --- the words


def _introduce(say: Console, data: Dataset, use: Settings) -> None:
    n = min(use.n_digits, len(data.x_test))
    layers = "-".join(map(str, (data.n_features, *use.widths, data.n_classes)))
    by = use.adversary
    text = (
        "How much room does each input feature have before a network's decision could change?\n\n"
        f"Data: {len(data.x_train)} handwritten digits of 8x8 pixels to train on, {n} others to certify. A pixel runs "
        f"from {data.low:g} (blank) to {data.high:g} (full ink): ε below is on a scale where the whole range is "
        f"{data.high - data.low:g}.\n"
        f"Networks: two of {layers} neurons (ReLU), alike but for one thing. The normal one learns from the digits as "
        "they are; the robust one from each digit after an adversary has moved every pixel by up to "
        f"τ = {by.tau:g} to mislead it ({by.steps} steps of projected gradient descent, PGD)."
    )
    say.print(Panel(text, title="elbowroom demo", box=box.ROUNDED, padding=(1, 2)))


def _main_table(say: Console, normal: Examined, robust: Examined, use: Settings, data: Dataset) -> None:
    _heading(say, "1  How large is the region in which the label provably stays?")
    heads = ("PGD\nτ", "accuracy", "when\nattacked", "uniform\nε", "non-uni-\nform ε", "ratio", "certified")
    table = _table("network", *heads)
    for m in (normal, robust):
        against = "-" if m.adversary is None else f"{m.adversary.tau:g}"
        certified = f"{int(m.regions.certified.sum())}/{len(m.regions)}"
        shares = (f"{m.report.test_accuracy:.1%}", f"{m.under_attack:.1%}")
        sizes = (f"{m.mean_uniform:.4f}", f"{m.mean_regions:.4f}", f"{m.ratio:.2f}")
        table.add_row(m.name, against, *shares, *sizes, certified)
    say.print(table)
    n, most, tau = data.n_features, data.high - data.low, use.adversary.tau
    capped = " and ".join(
        f"{float(m.regions.capped[m.regions.certified].double().mean()):.1%} ({m.name})" for m in (normal, robust)
    )
    _explain(
        say,
        ("PGD τ", "how far the adversary could move each pixel during training."),
        ("accuracy", f"share of the {len(data.x_test)} test digits the network gets right."),
        ("when attacked", f"share of those tried still right after PGD has moved every pixel by up to {tau:g}."),
        (
            "uniform ε",
            "all pixels may move by this much either way, all at once, and the label provably stays. One ε per digit; "
            "shown is the mean over the certified digits.",
        ),
        (
            "non-uniform ε",
            "every pixel has an ε of its own, chosen so that the box they span is as large as possible. Per digit the "
            f"geometric mean of its {n} ε, so that boxes of equal volume count alike; shown is the mean over the "
            f"certified digits. ε stops at {most:g}, a pixel's whole range; that stopped {capped} of the pixels.",
        ),
        ("ratio", f"non-uniform over uniform. The volume of the box grows by about this to the power {n}."),
        ("certified", "digits with a proved region, of all tried. " + " ".join(_without(m) for m in (normal, robust))),
    )
    if robust.ratio > normal.ratio:
        say.print(
            "The robust network gains more when each pixel has its own ε: it ignores many pixels, and those may move "
            "far without taking room from the others.\n"
        )


def _without(m: Examined) -> str:
    """Why some digits have no region, in words."""
    counts = {s: m.regions.status.count(s) for s in dict.fromkeys(m.regions.status) if s != "certified"}
    parts = ", ".join(f"{n} {s.replace('_', ' ')}" for s, n in counts.items())
    return f"The {m.name} network's others: {parts}." if parts else f"The {m.name} network has one for every digit."


def _cosine_table(say: Console, normal: Examined, robust: Examined) -> None:
    _heading(say, "2  Is it always the same pixels that have room?")
    table = _table("network", "mean cosine", "smallest cosine", "pairs of digits")
    for m in (normal, robust):
        n = int(m.regions.certified.sum())
        table.add_row(m.name, f"{m.cosines[0]:.4f}", f"{m.cosines[1]:.4f}", f"{n * (n - 1) // 2:,}")
    say.print(table)
    meaning = (
        "compares the ε of two digits as directions: 1 means the same pixels have room, in the same proportions, "
        "whatever their size; numbers drawn at random have about 0.75."
    )
    _explain(say, ("cosine", meaning))
    if robust.cosines[0] > normal.cosines[0]:
        say.print("The robust network's regions look more alike: which pixels matter depends less on the digit.\n")


def _one_digit(say: Console, normal: Examined, robust: Examined, data: Dataset, index: int) -> None:
    label = int(normal.regions.labels[index])
    _heading(say, f"3  One digit, a {label}: where its room is")
    maps = [m.regions.eps[index].reshape(data.shape) for m in (normal, robust)]
    # One scale for both maps; its ends leave out a few extreme pixels, which get the first or the last shade.
    both = torch.cat([e.flatten() for e in maps])
    low, high = float(both.quantile(0.02)), float(both.quantile(0.98))
    ink = plot.text_map(data.x_test[index].reshape(data.shape), low=data.low, high=data.high).split("\n")
    room = [plot.text_map(e, low=low, high=high, log=True).split("\n") for e in maps]
    columns = [ink[:-1], *(r[:-1] for r in room)]
    titles = ("the digit", "normal: room", "robust: room")
    width = 2 * data.shape[1]
    lines = ["   ".join(t.center(width + 2) for t in titles), "   ".join("┌" + "─" * width + "┐" for _ in columns)]
    lines += ["   ".join("│" + part + "│" for part in row) for row in zip(*columns)]
    lines += ["   ".join("└" + "─" * width + "┘" for _ in columns)]
    say.print(Padding(Text("\n".join(lines)), (0, 0, 1, 2)))
    say.print(Text(f"Room, ε:  {room[0][-1]}\n"))
    table = _table("network", "uniform ε", "smallest ε", "geometric mean", "largest ε")
    for m, eps in zip((normal, robust), maps):
        sizes = (m.uniform.geomean[index], eps.min(), m.regions.geomean[index], eps.max())
        table.add_row(m.name, *(f"{float(s):.3f}" for s in sizes))
    say.print(table)
    meaning = (
        "fuller means more: ink on the left, room on the other two. A pixel with little room is one the network looks "
        f"at closely. Where there is much, the pixel may change much and the label provably stays {label}, even with "
        "all other pixels changing at the same time, each within its own room."
    )
    numbers = (
        f"this digit's uniform ε; then the smallest, the geometric mean and the largest of its {len(both) // 2} own ε."
    )
    _explain(say, ("the maps", meaning), ("the numbers", numbers))


def _attack_table(say: Console, normal: Examined, robust: Examined, use: Settings) -> None:
    _heading(say, "4  And if someone attacks? Digits whose label PGD could change")
    heads = ["region as\ncertified" if s == 1 else f"{s:g} times\nas wide" for s in normal.attacks]
    table = _table("network", *heads, "points tried\nper column")
    for m in (normal, robust):
        found = [f"{int(a.found.sum())} of {len(a.found)}" for a in m.attacks.values()]
        table.add_row(m.name, *found, f"{m.attacks[1.0].tried:,}")
    say.print(table)
    changed = sum(int(m.attacks[1.0].found.sum()) for m in (normal, robust))
    tried = sum(m.attacks[1.0].tried for m in (normal, robust))
    if changed:
        say.print(f"[bold red]The attack changed the label in {changed} certified regions: please report this bug.[/]")
    else:
        say.print(f"[bold]{tried:,} points inside the certified regions were tried; none changes the label.[/]")
    say.print(
        f"PGD ran from {use.starts} random points of every region. That it finds nothing there proves nothing (the "
        "bounds do), so it also ran in wider regions, where nothing is promised: the changes it finds show that it "
        "works, and how much larger the regions could be at most.\n"
    )


def _conclude(say: Console, out: Path, files: Mapping[Path, str], seconds: float) -> None:
    _heading(say, "What is proved, and what is not")
    _explain(
        say,
        (
            "proved",
            "for each certified digit, every image in its box gets the digit's own label from the network, its stored "
            "weights taken as exact numbers and its sums as exact. The proof bounds the outputs over the whole box at "
            "once, in float64 with its own rounding counted, on the very corners that are stored.",
        ),
        (
            "not claimed",
            "that the network as run in float32, which rounds every sum, does the same: that is a claim of its own, "
            'certify(..., deployed="float32").',
        ),
        (
            "not proved",
            "accuracies and attacks are measurements. Outside its box nothing is said of a digit. As in the paper, "
            "boxes are not cut to the pixels' range of values.",
        ),
        ("averages", "are over certified digits only; a digit without a region counts in none of them."),
        (
            "chosen",
            "the training settings were picked among some forty, on these test digits, so that the contrast between "
            "the networks shows. Ratio and mean cosine were always larger for the robust one, with τ = 0.1 only "
            "slightly; the smallest cosine was not always.",
        ),
    )
    _heading(say, f"Written to {out}")
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    for file, what in files.items():
        table.add_row(str(file.relative_to(out)) + ("/" if file.is_dir() else ""), what)
    say.print(Padding(table, (0, 0, 0, 2)))
    say.print(
        f"\nProve them again, with code that shares nothing with the search: elbowroom check {out}/robust/non-uniform"
    )
    say.print(f"Done in {seconds:.0f} s.")


# --- how it is printed


def _heading(say: Console, text: str) -> None:
    say.print(Rule(Text(text, style="bold"), align="left"))


def _table(first: str, *others: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")
    return table


def _explain(say: Console, *meanings: tuple[str, str]) -> None:
    """Each term and what it means, the meanings aligned."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for term, meaning in meanings:
        table.add_row(term, meaning)
    say.print(Padding(table, (0, 0, 1, 2)))


@contextmanager
def _writing(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot write into {target}: {error.strerror or error}") from None
