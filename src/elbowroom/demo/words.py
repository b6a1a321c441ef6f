"""What the demo says: tables, a digit drawn in text, what is proved and what is not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from elbowroom.data.embedded import Dataset
from elbowroom.demo.examine import Examined, Settings
from elbowroom.report import plot


def introduce(say: Console, data: Dataset, use: Settings) -> None:
    n = min(use.n_digits, len(data.x_test))
    layers = "-".join(map(str, (data.n_features, *use.widths, data.n_classes)))
    by = use.adversary
    text = (
        "How much room does each input feature have before a network's decision could change?\n\n"
        f"Data: {len(data.x_train)} handwritten digits of 8x8 pixels to train on, {n} others to certify. A pixel runs "
        f"from {data.low:g} (blank) to {data.high:g} (full ink): ε below is on a scale where the whole range is "
        f"{data.high - data.low:g}.\n"
        f"Networks: two of {layers} neurons (ReLU), alike except for one thing. The normal one learns from the digits "
        "as they are; the robust one from each digit after an adversary has moved every pixel by up to "
        f"τ = {by.tau:g} to mislead it ({by.steps} steps of projected gradient descent, PGD)."
    )
    say.print(Panel(text, title="elbowroom demo", box=box.ROUNDED, padding=(1, 2)))


def main_table(say: Console, normal: Examined, robust: Examined, use: Settings, data: Dataset) -> None:
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


def cosine_table(say: Console, normal: Examined, robust: Examined) -> None:
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


def one_digit(say: Console, normal: Examined, robust: Examined, data: Dataset, index: int) -> None:
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


def attack_table(say: Console, normal: Examined, robust: Examined, use: Settings) -> None:
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


def conclude(say: Console, out: Path, files: Mapping[Path, str], seconds: float) -> None:
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
