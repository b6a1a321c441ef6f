"""A run for people: where it stands, what it found, and the room of one input's features.

Nothing is proved here. What is shown of regions and labels comes from the fields that `elbowroom check` proves again,
and sizes from what it compares with them; all else is the run's own statement, and the last lines say so.
"""

from __future__ import annotations

import math
import time
from typing import Any

from elbowroom.certificates.frame import IMPUTED, STUCK
from elbowroom.machine.meter import in_words
from elbowroom.network.names import counted, printable
from elbowroom.report.digits import around, at_least, at_most, extent_text, moved, near, where_open
from elbowroom.report.flags import as_flags
from elbowroom.runs.one_input import CLOSE, FREE, NEEDS, OPEN
from elbowroom.runs.settings import FLAGS
from elbowroom.runs.summary import HALF_WIDTH, QUANTILES, REACH, SEMI_AXIS

_BAR = 40  # characters of the longest bar of a histogram
_EXTENTS = {HALF_WIDTH: "half-widths", SEMI_AXIS: "semi-axes", REACH: "reaches along the axes"}
_FEW = 10  # ratios that need no histogram


def show_status(status: dict[str, Any]) -> None:
    """Prints where a run stands, and how to resume it."""
    share = status["done"] / status["inputs"] if status["inputs"] else 1.0
    print(f"run: {status['run']}")
    print(f"network: {status['network']}")
    _show_origin(status["origin"], "origin (as the run states it): ")
    if status["data"]:
        print(f"data: {printable(status['data'])}")
    print(
        f"done: {status['done']:,} of {counted(status['inputs'], 'input')} ({share:.0%}), "
        f"{status['parts_done']:,} of {counted(status['parts'], 'part')}"
    )
    if status["complete"]:
        print("complete")
    elif status["writer"]:
        print(f"running: {status['writer']}{_at_work(status)}")
    else:
        print(f"not running; resume with: {status['resume'] or 'run_dataset(..., resume=True), as it was begun'}")


def _at_work(status: dict[str, Any]) -> str:
    """Since when; and since when on the parts in progress, of which nothing else is to be seen until they are done."""
    since, last = status["running_seconds"], status["seconds_since_last_part"]
    if since is None:
        return ""
    begun = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time.time() - since))
    each = "input" if status["inputs"] == status["parts"] else "part"
    if last is None or last > since:
        return f", since {begun}: at work on its first {each}, {in_words(since)} so far"
    return f", since {begun} ({in_words(since)}): at work, its last {each} was done {in_words(last)} ago"


def show_summary(summary: dict[str, Any]) -> None:
    """Prints the row of the paper's table, how the ratios are distributed, and what failed."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False)
    for note in summary["notes"]:
        print(printable(as_flags(note, FLAGS)))
    if not summary["complete"]:
        print(f"incomplete: {summary['done']:,} of {counted(summary['inputs'], 'input')} so far")
    table = Table(box=None, header_style="bold", pad_edge=False)
    for head in ("accuracy", "uniform size", "size", "ratio of sizes", "certified"):
        table.add_column(head, justify="right")
    certified = f"{summary['status']['certified']:,} of {summary['done']:,}"
    accuracy = "-" if summary["accuracy"] is None else f"{summary['accuracy']:.2%}"
    table.add_row(accuracy, *(_size(summary[k]) for k in ("uniform_size", "size", "ratio_of_sizes")), certified)
    console.print(table)
    extents, region = _EXTENTS[summary["extent"]], summary["region"]
    searched = "" if region == summary["searched_as"] else f" (searched for as {summary['searched_as']})"
    executed = f", for the network as executed in {summary['deployed']}" if summary["deployed"] else ""
    print(f"region {region}{searched}{executed}; sizes: geometric mean of an input's {extents}, then mean of inputs")
    if summary["objective"] != "volume":
        print(f"objective: {printable(summary['objective'])[:80]}")
    left_out = summary["done"] - summary["tried"]
    if summary["accuracy"] is not None and left_out:
        tried = counted(summary["tried"], "input")
        print(f"accuracy: of the {tried} that could be tried; {left_out:,} could not (see below)")
    if summary["explained"]:
        count = summary["explained"]
        print(
            f"explanations: in the median {count['free']:g} features may take any value of their domain; of the others "
            f"{count['needed']:g} are needed (a counterexample was found), {count['undecided']:g} not decided"
        )
    else:
        print("uniform size: that of the region with one radius for all features; ratio of sizes: size / uniform size")
    capped = summary["capped_share"]
    print(f"cap on eps: {summary['cap']}" + ("" if capped is None else f"; {capped:.1%} of the extents are at it"))
    if summary["beyond_domain"]:
        print("regions of this shape may stick out of the domain; they are certified whole")
    if summary["reach"]:
        _show_reach(summary["reach"], summary["status"]["certified"])
    _show_ratios(summary)
    _show_failures(summary)
    each = summary["seconds"] / max(1, summary["done"])
    print(f"computing time: {in_words(summary['seconds'])}, {each:.2g} s per input")
    print("\nelbowroom check proves the certificates again: regions, what stays, and their sizes")
    print(
        "stated by the run, and not proved: accuracy, uniform sizes, ratios, caps, messages, names, times, and its "
        "origin:"
    )
    _show_origin(summary["origin"], "  ")


def _show_origin(lines: list[str], before: str) -> None:
    print(f"{before}{printable(lines[0])}")
    for line in lines[1:]:
        print(f"  {printable(line)}")


def _show_reach(reach: dict[str, Any], certified: int) -> None:
    median = "" if reach["median"] is None else f"; in the median at {at_least(reach['median'], 4)} times the region"
    print(f"counterexamples: found beyond {reach['found']:,} of {certified:,} regions, as they are scaled up{median}")


def _show_ratios(summary: dict[str, Any]) -> None:
    ratios, histogram = summary["ratios"], summary["histogram"]
    if not ratios:
        return
    named = {0.0: "least", 0.5: "median", 1.0: "most"}
    shown = [f"{named.get(q, f'{q:.0%}')} {ratios[f'{q:.0%}']:.3f}" for q in QUANTILES]
    print("\nratio (of an input's size to its uniform size): " + ", ".join(shown))
    edges, counts = histogram["edges"], histogram["counts"]
    if sum(counts) < _FEW:
        return
    most, width = max(counts), len(f"{max(counts):,}")
    for low, high, count in zip(edges, edges[1:], counts):
        bar = "#" * math.ceil(_BAR * count / most)
        print(f"  {low:8.3f} to {high:8.3f} {count:{width},} {bar}".rstrip())


def _show_failures(summary: dict[str, Any]) -> None:
    failed = {s: n for s, n in summary["status"].items() if s != "certified" and n}
    if failed:
        print("\nwithout a certificate:")
    for status, count in failed.items():
        print(f"  {status}: {count:,}")
        for example in summary["examples"].get(status, ()):
            print(f"    input {example['input']}: {printable(example['message'])}")


# --- one input


def show_input(found: dict[str, Any], most: int) -> None:
    """Prints one input, and the `most` features that have the least room."""
    name = f" ({printable(found['name'])})" if found["name"] else ""
    print(f"input {found['input']}{name}: {found['status']}")
    if found["message"]:
        print(printable(found["message"]))
    executed = f", for the network as executed in {found['deployed']}" if found["deployed"] else ""
    if found["label"] is not None:
        called = f" ({printable(found['class'])})" if found["class"] else ""
        print(
            f"label that stays: {found['label']}{called}{executed}"
            if found["features"]
            else f"label: {found['label']}{called}"
        )
    if not found["features"]:
        return
    if found["conditions"] is not None:
        each = counted(found["conditions"], "condition")
        print(f"what holds: {each} on the outputs, as the run's specification has them{executed}")
    print(_size_of(found))
    if found["search"]:
        print(f"the search ended {printable(found['search'])}")
    if found["counterexample"]:
        print(_limit(found))
    shown = found["features"][:most]
    _show_features(found, shown)
    if len(shown) < len(found["features"]):
        left = len(found["features"]) - len(shown)
        print(f"... and {counted(left, 'more feature')} with more room (--features)")
    unproved = ["names", "ratio", "margin"] if "state" not in shown[0] else ["names", "margin", "which are needed"]
    if found["counterexample"] and found["counterexample"]["reach"] is None:
        unproved.append("that no counterexample was found")
    if any(f["share"] is not None for f in shown):
        unproved.append("what room is a share of")
    if any(STUCK in f["note"] for f in shown):
        unproved.append("marks of no further value")
    if any(IMPUTED in f["note"] for f in shown):
        unproved.append("which values were missing")
    if "seen_lower" in shown[0]:
        unproved.append("what was seen beyond single features")
    print(
        f"elbowroom check proves this again; stated by the run, and not proved: {', '.join(unproved)} and marks of caps"
    )


def _size_of(found: dict[str, Any]) -> str:
    states = [f["state"] for f in found["features"] if "state" in f]
    if states:
        count = {state: states.count(state) for state in (FREE, NEEDS, OPEN)}
        return (
            f"{count[FREE]:,} of {len(states):,} features may take any value of their domain, all at once, while the "
            f"others stay; {count[NEEDS]:,} of those are needed (a counterexample was found), {count[OPEN]:,} not "
            f"decided; margin {found['margin']:.3g}"
        )
    return (
        f"region {found['region']}; geometric mean of the {_EXTENTS[found['extent']]} {found['geomean']:.6g}, "
        f"{found['ratio']:.3f} times the uniform size; margin {found['margin']:.3g}"
    )


def _limit(found: dict[str, Any]) -> str:
    """How much larger the region could be at most."""
    reach = found["counterexample"]["reach"]
    if reach is None:
        return "no counterexample found, however far the region was scaled up"
    what = "the decision changes" if found["conditions"] is None else "the specification fails"
    return f"{what} at {at_least(reach, 4)} times this region (at most: a counterexample was found)"


def _show_features(found: dict[str, Any], shown: list[dict[str, Any]]) -> None:
    """The table of features, and what its numbers mean."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("feature", overflow="fold")
    extent = "reach alone" if found["extent"] == REACH else found["extent"]
    heads = ("value", "from", "to", "down", "up") if "lower" in shown[0] else ("value", extent)
    faces = any(f.get("seen_lower") is not None or f.get("seen_upper") is not None for f in found["features"])
    heads = (*heads, *(("seen below", "seen above") if faces else ()))
    shares = any(f["share"] is not None for f in found["features"])
    heads = (*heads, *(("room",) if shares else ()))
    units = any(f["unit"] for f in found["features"])
    for head in heads:
        table.add_column(head, justify="right")
    for _ in range(1 + units):
        table.add_column("", overflow="fold")
    for f in shown:
        cells = _held(f, "lower" in f) if isinstance(f["value"], str) else _moving(f)
        cells = (*cells, *(_seen(f) if faces else ()), *((_share(f["share"]),) if shares else ()))
        table.add_row(
            printable(f["feature"]), *cells, *((printable(f["unit"]),) if units else ()), f.get("state", f["note"])
        )
    Console(highlight=False, markup=False).print(table)
    if found["region"].startswith("Oblique"):
        print("direction k: column k of the run's basis (Certificates.basis), of which numbers here are multiples")
    if shares:
        print("room: how much of its domain, or of its range in the data, a feature may move in; least first")
    if "lower" in shown[0]:
        print(
            "from, to: between which ends it may move, all features at once; down, up: how far that is from its value"
        )
    if found["extent"] != HALF_WIDTH:
        print(f"{extent}: how far it may move while all others stay where they are; together they may move less")
    if faces:
        print("seen below, above: the nearest value with a counterexample, all others staying between from and to")
    _say_open(shown)


def _say_open(shown: list[dict[str, Any]]) -> None:
    """The ends of ranges that may or may not be farther out."""
    ends = [
        (f["feature"], *f[side], f["upper"] - f["lower"])
        for f in shown for side in ("open_below", "open_above") if f.get(side)
    ]  # fmt: skip
    if not ends:
        return
    print(f"open, wider than {100 * CLOSE:.0f} % of the range: nothing proved nor found, all others staying in theirs,")
    for name, low, high, width in ends:
        print(f"  {printable(name)}: {where_open(low, high, width)}")


def _moving(feature: dict[str, Any]) -> tuple[str, ...]:
    decimals = feature["decimals"]
    if "lower" not in feature:
        return near(feature["value"], feature["extent"], decimals), extent_text(feature)
    low, value, high = around(feature["lower"], feature["value"], feature["upper"], decimals)
    return value, low, high, moved(feature, "down"), moved(feature, "up")


def _held(feature: dict[str, Any], ends: bool) -> tuple[str, ...]:
    """Of a category."""
    return printable(feature["value"]), *(("-",) * (4 if ends else 1))


def _share(share: float | None) -> str:
    """In per cent, rounded down: there is at least so much room."""
    return "-" if share is None else f"{at_most(100 * share, 3)} %"


def _seen(feature: dict[str, Any]) -> tuple[str, str]:
    """The nearest values beyond a feature's range at which a counterexample was found, rounded away from it."""
    below, above = feature["seen_lower"], feature["seen_upper"]
    return "-" if below is None else at_most(below), "-" if above is None else at_least(above)


def _size(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
