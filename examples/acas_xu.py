"""How much room does an encounter of two aircraft have before the collision avoidance system's advice could change?

    python examples/acas_xu.py --model ACASXU_run2a_1_1_batch_2000.onnx --property prop_3.vnnlib --out out/acas_xu

ACAS Xu advises a pilot by five numbers about another aircraft, the intruder. The networks and the properties (VNN-LIB
files) come from public verification benchmarks. This program answers the property, then takes encounters from the
property's box and certifies, in feet, degrees and feet per second, how far each of the five may be off, all of them at
once, before the network's advice could be another one.
"""

import argparse
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import elbowroom as er
from elbowroom.errors import ElbowroomError, InputError
from elbowroom.vnnlib import Case, answer, load_for, read_query

ADVICE = ("clear of conflict", "weak left", "weak right", "strong left", "strong right")
BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#777777"  # told apart by everyone


@dataclass(frozen=True)
class Quantity:
    """One of the five inputs. The network takes `(value - mean) / scale`; `low`, `high`: the valid range.

    `less`, `more`: what a smaller and a larger value mean; `show`: from its unit to the one that is printed.
    """

    name: str
    title: str
    mean: float
    scale: float
    low: float
    high: float
    less: str
    more: str
    unit: str
    show: float = 1.0


DEGREES = 180 / math.pi
TURN = 2 * math.pi
# Angles are counter-clockwise, seen from above: positive is to the left of one's own heading.
QUANTITIES = (
    Quantity("rho", "distance", 19791.091, 60261.0, 0.0, 60760.0, "nearer", "farther", "ft"),
    Quantity("theta", "bearing", 0.0, TURN, -math.pi, math.pi, "to the right", "to the left", "degrees", DEGREES),
    Quantity("psi", "heading", 0.0, TURN, -math.pi, math.pi, "to the right", "to the left", "degrees", DEGREES),
    Quantity("v_own", "own speed", 650.0, 1100.0, 100.0, 1200.0, "slower", "faster", "ft/s"),
    Quantity("v_int", "its speed", 600.0, 1200.0, 0.0, 1200.0, "slower", "faster", "ft/s"),
)
SENTENCES = (
    "the intruder may be {}",
    "its bearing may shift {}",
    "its heading may turn {}",
    "the own aircraft may be {}",
    "the intruder may be {}",
)


def column(name: str) -> torch.Tensor:
    return torch.tensor([getattr(q, name) for q in QUANTITIES], dtype=torch.float64)


def load(model: Path) -> er.Network:
    """The network in physical units; the smallest of its five scores is its advice."""
    return er.load(
        model, input_shape=(5,), mean=column("mean"), std=column("scale"), decision="min",
        features=[q.name for q in QUANTITIES], classes=ADVICE,
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------------------------
# The property's box

_STATED = r"Unscaled Input (\d): \((-?\d+\.?\d*), (-?\d+\.?\d*)\)"


def physical_box(case: Case, text: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The property's box in physical units, as its comments state it; an error unless the numbers asserted are these.

    The files say `; Unscaled Input 0: (1500, 1800)` above two assertions about X_0.
    """
    stated = {int(k): (float(a), float(b)) for k, a, b in re.findall(_STATED, text)}
    for k, q in enumerate(QUANTITIES):
        for value, side in zip(stated.get(k, ()), (case.low[k], case.high[k])):
            if abs((value - q.mean) / q.scale - float(side.value)) > 1e-8:
                raise InputError(
                    f"{q.name} = {value} is not {float(side.value)} by the scaling (x - {q.mean}) / {q.scale}"
                )
    if sorted(stated) != list(range(len(QUANTITIES))):
        raise InputError("the property does not state its inputs in physical units, as ACAS Xu's do")
    low, high = (torch.tensor([stated[k][i] for k in range(5)], dtype=torch.float64) for i in (0, 1))
    return torch.maximum(low, column("low")), torch.minimum(high, column("high"))


def encounters(low: torch.Tensor, high: torch.Tensor, count: int, seed: int) -> torch.Tensor:
    """The middle of the box, and `count - 1` random points of it."""
    if count < 1:
        raise InputError(f"points must be at least 1, got {count}")
    random = torch.rand(count, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    random[0] = 0.5
    return low + random * (high - low)


# ---------------------------------------------------------------------------------------------------------------
# In words


def inwards(value: float) -> str:
    """Two digits, rounded towards zero: no more room is stated than was proved."""
    if value <= 0:
        return "0"
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    kept = math.floor(value / unit * (1 + 1e-12)) * unit
    return f"{kept:,.0f}" if kept >= 10 else f"{kept:.{max(0, -math.floor(math.log10(kept)) + 1)}f}"


def room_in_words(q: Quantity, less: float, more: float) -> str:
    """`17 ft nearer or 17 ft farther`; extents in the quantity's own unit."""
    sides = ((less, q.less), (more, q.more))
    shown = [f"{inwards(room * q.show)} {q.unit} {word}" for room, word in sides if is_some(q, room)]
    return " or ".join(shown) + ", but hardly the other way" * (len(shown) == 1) if shown else "hardly any other"


def is_some(q: Quantity, room: float) -> bool:
    """Whether an extent is worth a word: more than a hundred-thousandth of the range."""
    return room > 1e-5 * (q.high - q.low)


def encounter_in_words(x: torch.Tensor) -> str:
    rho, theta, psi, own, intruder = x.tolist()
    side = "left" if theta >= 0 else "right"
    turned = "left" if psi >= 0 else "right"
    return (
        f"an intruder {rho:,.0f} ft away, {abs(theta) * DEGREES:.1f} degrees to the {side}, its heading "
        f"{abs(psi) * DEGREES:.1f} degrees to the {turned} of one's own; speeds {own:,.0f} and {intruder:,.0f} ft/s"
    )


def tell(certs: er.Certificates, i: int) -> list[str]:
    """What one certificate says, a sentence per quantity."""
    if certs.status[i] != "certified":
        return [f"  no region: {certs.message[i]}"]
    less, more = extents(certs, i)
    return [
        f"  {sentence.format(room_in_words(q, a, b))}" for q, sentence, a, b in zip(QUANTITIES, SENTENCES, less, more)
    ]


def extents(certs: er.Certificates, i: int) -> tuple[list[float], list[float]]:
    """How far each quantity may fall and rise."""
    assert certs.lower is not None and certs.upper is not None
    return (certs.x[i] - certs.lower[i]).tolist(), (certs.upper[i] - certs.x[i]).tolist()


# ---------------------------------------------------------------------------------------------------------------
# In a picture


def draw(path: Path, regions: dict[str, er.Certificates], i: int, advice: str) -> None:
    """Seen from above, the certified positions close up, and all five quantities beside each other."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.5, 4.4), layout="constrained")
    above, close, bars = figure.subplots(1, 3, width_ratios=(1, 1, 1.5))
    colours = dict(zip(regions, (BLUE, ORANGE, GREY)))
    first = next(iter(regions))
    _draw_encounter(above, regions[first].x[i], regions[first], colours[first], i, advice)
    _draw_positions(close, regions[first].x[i], regions, colours, i)
    _draw_bars(bars, regions, colours, i)
    figure.savefig(path, dpi=100)


def place(rho: Any, theta: Any) -> tuple[Any, Any]:
    """Distance and bearing as feet to the right and ahead."""
    rho, theta = torch.as_tensor(rho), torch.as_tensor(theta)
    return -rho * theta.sin(), rho * theta.cos()


def outline(certs: er.Certificates, i: int) -> tuple[Any, Any]:
    """The border of the certified positions, closed: a sector of a ring."""
    assert certs.lower is not None and certs.upper is not None
    (near, right), (far, left) = certs.lower[i, :2].tolist(), certs.upper[i, :2].tolist()
    sweep = torch.linspace(right, left, 100, dtype=torch.float64)
    rho = torch.cat([torch.full_like(sweep, far), torch.full_like(sweep, near), sweep.new_tensor([far])])
    return place(rho, torch.cat([sweep, sweep.flip(0), sweep[:1]]))


def _draw_encounter(axes: Any, x: torch.Tensor, certs: er.Certificates, colour: str, i: int, advice: str) -> None:
    assert certs.lower is not None and certs.upper is not None
    rho, theta, psi, own, intruder = x.tolist()
    at_x, at_y = (float(v) for v in place(rho, theta))
    reach = rho / 3
    low, high = float(certs.lower[i, 2]), float(certs.upper[i, 2])
    fan_x, fan_y = place(1.2 * reach, torch.linspace(low, high, 50, dtype=torch.float64))
    fan = [at_x, *(at_x + fan_x).tolist()], [at_y, *(at_y + fan_y).tolist()]
    axes.fill(*outline(certs, i), color=colour, alpha=0.5, lw=1.5, label="certified positions and headings")
    axes.fill(*fan, color=colour, alpha=0.35, lw=1.5)
    for px, py, angle, speed, name in ((0.0, 0.0, 0.0, own, "own"), (at_x, at_y, psi, intruder, "intruder")):
        dx, dy = (float(v) for v in place(reach * max(speed / 1200, 0.15), angle))
        axes.annotate("", (px + dx, py + dy), (px, py), arrowprops={"arrowstyle": "-|>", "color": "black", "lw": 1.6})
        axes.plot([px], [py], "o", color="black", ms=5)
        text = f"{name}\n{speed:,.0f} ft/s"
        axes.annotate(text, (px, py), (14, 0), textcoords="offset points", va="center", fontsize=9)
    axes.set_title(f"From above. Advice: {advice}", fontsize=10)
    axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.25, 0.15)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), fontsize=8, frameon=False)
    _label_feet(axes)


def _draw_positions(
    axes: Any, x: torch.Tensor, regions: dict[str, er.Certificates], colours: dict[str, str], i: int
) -> None:
    for name, certs in regions.items():
        axes.fill(*outline(certs, i), facecolor=colours[name], alpha=0.2, edgecolor="none")
        axes.plot(*outline(certs, i), color=colours[name], lw=1.5)
    axes.plot(*([float(v)] for v in place(x[0], x[1])), "o", color="black", ms=4)
    axes.set_title("Certified positions, close up (scales differ)", fontsize=10)
    _label_feet(axes)


def _label_feet(axes: Any) -> None:
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    axes.set_xlabel("to the right, ft")
    axes.set_ylabel("ahead, ft")
    for axis, most in ((axes.xaxis, 4), (axes.yaxis, 7)):
        axis.set_major_locator(MaxNLocator(most))
        axis.set_major_formatter(
            StrMethodFormatter("{x:,.4g}" if max(map(abs, axis.get_view_interval())) < 1000 else "{x:,.0f}")
        )
    axes.grid(alpha=0.25)


def _draw_bars(axes: Any, regions: dict[str, er.Certificates], colours: dict[str, str], i: int) -> None:
    """Extents as shares of each quantity's range, on a scale that shows small and large ones."""
    height, widest = 0.8 / len(regions), 1.0
    for r, (name, certs) in enumerate(regions.items()):
        for k, (q, less, more) in enumerate(zip(QUANTITIES, *extents(certs, i))):
            at = k + (r - (len(regions) - 1) / 2) * height
            sides = [-100 * less / (q.high - q.low), 100 * more / (q.high - q.low)]
            widest = max(widest, -sides[0], sides[1])
            axes.barh([at, at], sides, 0.85 * height, color=colours[name], label=name if k == 0 else None)
            for side, room, where, shift in zip(sides, (less, more), ("right", "left"), (-4, 4)):
                text = inwards(room * q.show) if is_some(q, room) else "0"
                spot = {"xytext": (shift, 0), "textcoords": "offset points", "ha": where, "va": "center"}
                axes.annotate(text, (side, at), **spot, fontsize=7.5)
    axes.set_xscale("symlog", linthresh=0.01)
    axes.set_xlim(-8 * widest, 8 * widest)
    ticks = [t for t in (0.01, 0.1, 1, 10, 100) if t <= 3 * widest]
    axes.set_xticks(
        [*(-t for t in reversed(ticks)), 0, *ticks],
        [*(f"{t:g}" for t in reversed(ticks)), "0", *(f"{t:g}" for t in ticks)],
    )
    axes.set_yticks(range(5), [f"{q.title}\n({q.unit})" for q in QUANTITIES])
    axes.invert_yaxis()
    axes.axvline(0, color="black", lw=0.8)
    axes.set_xlabel("room to fall (left) and to rise (right), % of the range")
    axes.set_title("Room of each quantity, all of them at once", fontsize=10)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3, fontsize=8, frameon=False)
    axes.grid(axis="x", alpha=0.25)


# ---------------------------------------------------------------------------------------------------------------


def run(model: Path, prop: Path, out: Path, points: int, seed: int) -> None:
    query, net = read_query(prop), load(model)
    low, high = physical_box(query.cases[0], prop.read_text(encoding="utf-8"))
    x = encounters(low, high, points, seed)
    out.mkdir(parents=True, exist_ok=True)

    found = answer(load_for(query, model), query)
    print(f"{prop.name} {found.verdict} ({found.boxes:,} boxes): {found.cases[-1].why}")
    frame: dict[str, Any] = {"domain": (column("low"), column("high"))}
    regions = {
        "the same both ways": er.certify(net, x, **frame),
        "each side by itself": er.certify(net, x, region=er.Box(asymmetric=True), **frame),
        "one share of every range": er.certify(net, x, region=er.Uniform(column("scale")), **frame),
    }
    first = next(iter(regions.values()))
    for i in range(points):
        advice = ADVICE[int(first.labels[i])]
        print(f"\nEncounter {i}: {encounter_in_words(x[i])}.")
        print(f"The advice is {advice!r}, and provably stays so whatever the five are at once, within")
        for name, certs in regions.items():
            print(f"{name} (mean width {relative_width(certs, i)}):", *tell(certs, i), sep="\n")
        if all(certs.status[i] == "certified" for certs in regions.values()):
            draw(out / f"encounter_{i}.png", regions, i, advice)
    first.save(out / "run")
    print(f"\nPictures in {out}; certificates of the first kind in {out / 'run'}: elbowroom check {out / 'run'}")


def relative_width(certs: er.Certificates, i: int) -> str:
    """The geometric mean of the five widths, each as a share of its range."""
    if certs.status[i] != "certified":
        return "0"
    assert certs.lower is not None and certs.upper is not None
    shares = (certs.upper[i] - certs.lower[i]) / (column("high") - column("low"))
    return f"{100 * float(shares.log().mean().exp()):.2g} % of the range"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="one of the ACAS Xu networks, as ONNX")
    parser.add_argument("--property", type=Path, required=True, help="a property of it, as VNN-LIB")
    parser.add_argument("--out", type=Path, default=Path("out/acas_xu"), help="folder for pictures and certificates")
    parser.add_argument("--points", type=int, default=3, help="encounters: the middle of the box, then random ones")
    parser.add_argument("--seed", type=int, default=1, help="of the random ones")
    given = parser.parse_args()
    try:
        run(given.model, given.property, given.out, given.points, given.seed)
    except (ElbowroomError, OSError) as error:
        raise SystemExit(f"acas_xu: {error}") from None


if __name__ == "__main__":
    main()
