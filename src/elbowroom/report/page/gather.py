"""Everything that a report says, as plain data: what the page shows and what the JSON file holds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elbowroom.certificates.store import Run
from elbowroom.errors import InputError
from elbowroom.report.diffs import worst
from elbowroom.report.page.audit import audit_of
from elbowroom.report.page.chosen import asked_for, chosen
from elbowroom.report.page.columns import gathered
from elbowroom.report.page.details import details_of, image_of, pixel_names
from elbowroom.report.page.pictures import feature_map, plane_of
from elbowroom.report.page.words import answer_of, claim_in_words, titles_of
from elbowroom.report.room import Scale, scale_of
from elbowroom.runs.diff import diff_of
from elbowroom.runs.stored import stored_settings
from elbowroom.runs.summary import summary_of
from elbowroom.version import __version__

FORMAT, VERSION = "elbowroom-report", 1
MOST_RUNS = 8
_CHANGED = 10  # inputs of a comparison that are shown feature by feature


def report_of(
    folders: Sequence[Path], inputs: str | None = None, image_shape: Sequence[int] | None = None
) -> dict[str, Any]:
    """One run or several, as a JSON object. Nothing is proved here: it is what their files state.

    `inputs`: those to show feature by feature in any case, such as "0-9,17"; `image_shape`: of inputs that are images,
    though the network does not say so.
    """
    if not 0 < len(folders) <= MOST_RUNS:
        raise InputError(f"a report is about 1 to {MOST_RUNS} runs, got {len(folders)}")
    asked = asked_for(inputs)
    runs = [Run.open(folder) for folder in folders]
    # In a basis, extents are those of directions, which have no place in an image.
    images = [None if "basis" in run.shared else image_of(run.network, image_shape) for run in runs]
    scales = [scale_of(run, image is not None) for run, image in zip(runs, images)]
    found = [_run(run, scale, image) for run, scale, image in zip(runs, scales, images)]
    for one, title in zip(found, titles_of([one["folder"] for one in found])):
        one["title"] = title
    comparisons = [_comparison(runs[0], run, k + 1) for k, run in enumerate(runs[1:])]
    changed = [row["input"] for one in comparisons if one["found"] for row in worst(one["found"], _CHANGED)]
    tables, each = [one["inputs"] for one in found], [run.network.n_inputs for run in runs]
    for run, scale, one, numbers in zip(runs, scales, found, chosen(tables, asked, changed, each)):
        one["details"] = details_of(run, numbers, scale)
        one["words"] = answer_of(one)
        one["claim"] = claim_in_words(one)
        one["audit"] = audit_of(run, one)
    return {
        "format": FORMAT,
        "version": VERSION,
        "elbowroom": __version__,
        "runs": found,
        "comparisons": comparisons,
    }


def _run(run: Run, scale: Scale, image: dict[str, Any] | None) -> dict[str, Any]:
    """What does not depend on other runs."""
    seen, net = gathered(run, scale), run.network
    features = seen.features()
    if image and not net.about.features:
        for feature, name in zip(features, pixel_names(image)):
            feature["feature"] = name
    settings, certs = stored_settings(run.plan) or {}, run.read()
    return {
        "folder": str(run.folder),
        "network": repr(net),
        "summary": summary_of(run),
        "decides": certs.spec_group is None,
        "categories": certs.allowed is not None,
        "within": settings.get("within"),
        "classes": list(net.about.classes) if net.about.classes else None,
        "effort": settings.get("effort"),
        "axis": scale.words,
        "by_share": seen.by_share,
        "certified": seen.certified,
        "features": features,
        "rooms": seen.histogram(),
        "similarity": seen.similarity(),
        "image": image,
        "map": feature_map(features, image) if image and seen.certified else None,
        "plane": plane_of(run, scale),
        "inputs": seen.table,
    }


def _comparison(old: Run, new: Run, number: int) -> dict[str, Any]:
    """The first run with another, by its number here; `refused`: why they cannot be compared."""
    try:
        return {"old": 0, "new": number, "found": diff_of(old, new), "refused": None}
    except InputError as error:
        return {"old": 0, "new": number, "found": None, "refused": str(error)}
