"""What an auditor asks of a run: hashes, claims, domain, settings, versions, failures, and how to prove it again."""

from __future__ import annotations

import shlex
from typing import Any

from elbowroom.certificates.store import NETWORK, Run
from elbowroom.network.names import counted
from elbowroom.report.digits import at_least, at_most, near
from elbowroom.report.page.words import claim_in_words, room_in_percent
from elbowroom.runs.settings import OPTIONS
from elbowroom.runs.stored import stored_settings

_SHOWN = 12  # features in a list
_LONG = 200  # characters of a setting


def audit_of(run: Run, found: dict[str, Any]) -> dict[str, Any]:
    """By headings, as a JSON object; a list belongs to the sentence before it. `found`: what was gathered of a run."""
    return {
        "sections": {
            "Domain": _domain(run, found),
            "Stability": _stability(found),
            "Sensitivity": _sensitivity(found),
            "Relevance": _relevance(run, found),
            "Reachability": _reachability(found),
            "Arithmetic": _arithmetic(run, found),
        },
        "hashes": _hashes(run),
        "settings": _settings(run),
        "versions": {str(name): str(value) for name, value in sorted(run.packages.items())},
        "failures": [
            {"input": number, "status": status, "message": message}
            for number, status, message in zip(*(found["inputs"][k] for k in ("number", "status", "message")))
            if status != "certified"
        ],
        "commands": _commands(run),
        "stated": found["summary"]["stated"],
    }


def _domain(run: Run, found: dict[str, Any]) -> list[Any]:
    low, high = run.shared.get("lowest"), run.shared.get("highest")
    if "domain" not in run.claim["has"]:
        said = ["No domain is stated: inputs and regions may have any values."]
    elif low is None or high is None:
        said = ["Every input has a domain of its own, stated with its certificate."]
    else:
        said = _ranges(
            [f["feature"] for f in found["features"]], low.flatten().tolist(), high.flatten().tolist(), found
        )
    if found["summary"]["beyond_domain"]:
        said.append("Regions of this shape are not cut to the domain, and may stick out of it.")
    fixed = [f["feature"] for f in found["features"] if found["certified"] and f["fixed"] == found["certified"]]
    if fixed:
        said.append(f"Held fixed for every certified input: {_listed(fixed)}.")
    return [*said, f"Limits of extents, as the run states them: {found['summary']['cap']}."]


def _ranges(names: list[str], low: list[float], high: list[float], found: dict[str, Any]) -> list[Any]:
    units = [f["unit"] for f in found["features"]]
    if len(set(zip(low, high, units))) == 1:
        return [f"Every feature lies between {near(low[0], 0)} and {near(high[0], 0)}{_unit(units[0])}."]
    each = [f"{n}: {near(a, 0)} to {near(b, 0)}{_unit(u)}" for n, a, b, u in zip(names, low, high, units)]
    return ["Every feature lies in a range of its own:", each]


def _unit(unit: str) -> str:
    return f" {unit}" if unit else ""


def _stability(found: dict[str, Any]) -> list[str]:
    summary = found["summary"]
    said = [
        claim_in_words(found),
        f"Certified: {summary['status']['certified']:,} of {counted(summary['done'], 'input')}.",
    ]
    if summary["size"] is not None:
        said.append(
            f"Size of a region (geometric mean of its extents: {summary['extent']}), mean over the inputs: "
            f"{at_most(summary['size'], 4)}."
        )
    return said


def _sensitivity(found: dict[str, Any]) -> list[Any]:
    """The features with the least room."""
    moving = [f for f in found["features"] if f["extent"]]
    if not moving:
        return ["No feature has room: nothing is certified, or everything is held fixed."]
    by_share = found["by_share"]
    ranked = sorted((f for f in moving if not by_share or f["share"] is not None), key=lambda f: f[_key(by_share)])
    each = [f"{f['feature']}: {_room(f, by_share)}" for f in ranked[:_SHOWN]]
    what = f"as a share of {found['axis']}" if by_share else f"by {found['summary']['extent']}"
    return [f"Features with the least room, {what}, mean over the certified inputs:", each]


def _relevance(run: Run, found: dict[str, Any]) -> list[Any]:
    """The features that do not matter within regions, and how much the room of each counted."""
    weights = (stored_settings(run.plan) or {}).get("importance")
    said: list[Any] = []
    if isinstance(weights, dict):
        said.append("The room of features counted with weights: " + ", ".join(f"{k} {v:g}" for k, v in weights.items()))
    free = [f for f in found["features"] if f["whole"] and f["axis"] == "the domain"]
    ranked = sorted(free, key=lambda f: -f["whole"])[:_SHOWN]
    if not ranked:
        return [*said, "No feature may have every value of the domain in any certified region."]
    said.append("Features that may have every value of the domain while the others stay in their ranges, and for how "
                "many certified inputs:")  # fmt: skip
    return [*said, [f"{f['feature']}: {f['whole']:,}" for f in ranked]]


def _reachability(found: dict[str, Any]) -> list[str]:
    summary, said = found["summary"], []
    if found["within"] is not None:
        said.append("A certificate claims that outputs reached from its region lie between the ends stated with it.")
    elif found["decides"]:
        said.append("A certificate claims that no other decision can be reached from its region.")
    reach = summary["reach"]
    if reach is None:
        return [*said, "Counterexamples beyond the regions were not looked for (elbowroom certify --reach)."]
    median = "" if reach["median"] is None else f", in the median at {at_least(reach['median'], 4)} times the region"
    return [*said, f"Counterexamples were found beyond {reach['found']:,} regions, as these are scaled up{median}."]


def _arithmetic(run: Run, found: dict[str, Any]) -> list[str]:
    deployed = found["summary"]["deployed"]
    about = "the network as it is defined, in the arithmetic of the real numbers"
    also = f", and about the network as executed in {deployed}" if deployed else ""
    return [
        f"Certificates are about {about}{also}.",
        "Each is written after a proof in float64 of which every rounding is counted (docs/soundness.md derives it); "
        "elbowroom check repeats the proof, with --arithmetic arb in ball arithmetic.",
        f"Margins must exceed {run.claim['settings']['delta']:g}.",
    ]


def _hashes(run: Run) -> dict[str, str]:
    origin, data = run.network.about.origin, run.plan.data or {}
    named = {
        "network: what it computes": run.claim["network_hash"],
        "network: names and origin": run.claim["about"],
        "model file (sha256), as stated": None if origin is None else origin.sha256,
        "data, as stated": data.get("digest"),
        "inputs taken from it, as stated": data.get("selection"),
        "labels, as stated": data.get("labels"),
    }
    return {name: value for name, value in named.items() if value}


def _settings(run: Run) -> dict[str, str]:
    """What differs from the defaults, and all that says what is certified."""
    stored = stored_settings(run.plan)
    if stored is None:
        return {name: _short(value) for name, value in sorted(run.claim["settings"].items())}
    given = {
        n: v for n, v in stored.items() if v is not None and (v != OPTIONS[n].default or OPTIONS[n].kind == "claim")
    }
    return {name: _short(value) for name, value in given.items()}


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _LONG else f"{text[:_LONG]}... ({len(text):,} characters; whole in run.json)"


def _commands(run: Run) -> list[dict[str, str]]:
    folder, origin = shlex.quote(str(run.folder)), run.network.about.origin
    shown = [
        {"what": "prove every certificate again", "command": f"elbowroom check {folder}"},
        {"what": "the same by other code, in ball arithmetic", "command": f"elbowroom check {folder} --arithmetic arb"},
    ]
    if origin is not None and origin.sha256 is not None:
        model = shlex.quote(origin.model)
        shown.append(
            {"what": "and that it is about your model", "command": f"elbowroom check {folder} --model {model}"}
        )
    network = shlex.quote(str(run.folder / NETWORK))
    shown.append(
        {"what": "or about a network that you keep", "command": f"elbowroom check {folder} --network {network}"}
    )
    return shown


def _key(by_share: bool) -> str:
    return "share" if by_share else "extent"


def _room(feature: dict[str, Any], by_share: bool) -> str:
    return room_in_percent(feature["share"]) if by_share else f"{at_most(feature['extent'], 3)}{_unit(feature['unit'])}"


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
