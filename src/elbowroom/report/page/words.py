"""The answer first, in sentences; numbers in them are rounded to the side on which they stay true."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

from elbowroom.network.names import counted
from elbowroom.report.digits import at_least, at_most
from elbowroom.runs.summary import HALF_WIDTH

# Of inputs without a certificate: what there is to say of one, and of several.
_WITHOUT = {
    "misclassified": ("is decided wrongly", "are decided wrongly"),
    "not_certified": ("is decided as it should be, but no region was proved",
                      "are decided as they should be, but no regions were proved"),
    "nonfinite": ("has no finite numbers", "have no finite numbers"),
    "error": ("could not be read or tried", "could not be read or tried"),
}  # fmt: skip


def titles_of(folders: Sequence[str]) -> list[str]:
    """A short name per run: what tells the folders apart."""
    paths = [PurePath(folder).parts or (folder,) for folder in folders]
    if len(set(paths)) != len(paths):
        return [f"{parts[-1]} ({k + 1})" for k, parts in enumerate(paths)]
    if len(paths) == 1:
        return ["/".join(paths[0][-2:])]
    start = next(k for k in range(max(map(len, paths)) + 1) if len({parts[: k + 1] for parts in paths}) > 1)
    rest = [parts[start:] for parts in paths]
    while all(len(parts) > 1 for parts in rest) and len({parts[-1] for parts in rest}) == 1:
        rest = [parts[:-1] for parts in rest]
    return ["/".join(parts) or "." for parts in rest]


def claim_in_words(run: dict[str, Any]) -> str:
    """What a certificate of this run says."""
    summary = run["summary"]
    what = "what the run's specification asks of the outputs provably holds"
    if run["decides"]:
        what = "the network's decision provably stays the same"
    elif run["within"] is not None:
        what = f"the outputs provably stay between ends that are stated with each input (asked for: {run['within']})"
    among = ", and every category among its levels" if run["categories"] else ""
    where = f"as long as every feature stays in its own range{among}, all of them at once"
    if summary["region"] != "Box":
        where = f"anywhere in a region around the input (of the shape {summary['region']})"
    executed = f", also as executed in {summary['deployed']}" if summary["deployed"] else ""
    return f"A certified input has a region: {where}, {what}{executed}."


def answer_of(run: dict[str, Any]) -> list[str]:
    """What a run found, in sentences; how many inputs are certified comes first."""
    summary = run["summary"]
    counts, done = summary["status"], summary["done"]
    said = [f"{counts['certified']:,} of {counted(done, 'input')} {_is(counts['certified'])} certified."]
    if not summary["complete"]:
        said.append(f"The run is incomplete: {done:,} of {counted(summary['inputs'], 'input')} done.")
    for status, count in counts.items():
        if status != "certified" and count:
            said.append(f"{count:,} {_WITHOUT[status][count > 1]}.")
    if not counts["certified"]:
        return said
    said += _width(run)
    if summary["ratios"]:
        said.append(
            f"In the median, ranges are {summary['ratios']['50%']:.2f} times as wide as with one radius for all "
            "features (as the run states it)."
        )
    said += _narrowest(run)
    reach = summary["reach"]
    if reach and reach["median"] is not None:
        said.append(
            f"How much larger could regions be? Beyond {reach['found']:,} of them a counterexample was found, in the "
            f"median at {at_least(reach['median'], 3)} times the region."
        )
    elif reach:
        said.append(f"Counterexamples were looked for, and found beyond {reach['found']:,} regions.")
    return said


def _width(run: dict[str, Any]) -> list[str]:
    """How wide ranges are, of which a share says more than a number in mixed units."""
    summary = run["summary"]
    if summary["extent"] != HALF_WIDTH:
        return []
    known = [f["share"] for f in run["features"] if f["extent"] and f["share"] is not None]
    if run["by_share"] and len(known) == sum(1 for f in run["features"] if f["extent"]):
        mean = room_in_percent(sum(known) / len(known))
        return [f"On average, a feature's certified range covers {mean} of {run['axis']}."]
    return [
        f"Half the width of a feature's certified range is {at_most(summary['size'], 3)} on average (geometric "
        "mean over the features of an input, then mean over the inputs)."
    ]


def room_in_percent(share: float) -> str:
    """A share of an axis, rounded down."""
    return f"{at_most(100 * share, 3)} %"


def _narrowest(run: dict[str, Any]) -> list[str]:
    ranked = sorted((f for f in run["features"] if f["least"]), key=lambda f: -f["least"])
    if not ranked or len(run["features"]) < 2:
        return []
    first = ranked[0]
    of = f"{first['least']:,} of {run['summary']['status']['certified']:,}"
    share = f" (as a share of {run['axis']})" if run["by_share"] else ""
    return [f"The least room{share} is most often left to “{first['feature']}”: for {of} certified inputs."]


def _is(count: int) -> str:
    return "is" if count == 1 else "are"
