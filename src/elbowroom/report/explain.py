"""One certificate in sentences: what is certified, and no more."""

from __future__ import annotations

from typing import Any

from elbowroom.certificates.frame import CAPPED, IMPUTED, STUCK
from elbowroom.certificates.result import Certificates
from elbowroom.errors import InputError
from elbowroom.network.levels import listed
from elbowroom.network.names import counted, printable
from elbowroom.report.digits import around, at_least, at_most, moved, near, where_open
from elbowroom.runs.one_input import FREE, NEEDS, OPEN, input_of
from elbowroom.runs.summary import HALF_WIDTH

_DIGITS = 4
_WITHOUT = {
    "misclassified": "what should stay does not hold at the input itself",
    "not_certified": "no region was proved around it, which is no proof that there is none",
    "nonfinite": "numbers are not finite",
    "error": "it could not be taken or tried",
}


class Sentences(str):
    """Lines that a notebook shows as they are."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def explained(certs: Certificates, most: int) -> Sentences:
    """What the certificate of the one input in `certs` says; `most`: how many features are named."""
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise InputError(f"max_features must be a positive whole number, got {most!r:.40}")
    found = one_of(certs)
    lines = _claim(found) if found["features"] else _why_not(found)
    if found["features"]:
        _say_of_what(certs, found["features"])
        lines += _ranges(found, most) if "state" not in found["features"][0] else _states(found, most)
        lines += _beyond(found)
        lines.append("Nothing is said about inputs outside. er.check(certs) proves what is certified again.")
    return Sentences("\n".join(printable(line) for line in lines))


def one_of(certs: Certificates) -> dict[str, Any]:
    """Everything about the one input of `certs`, see `elbowroom.runs.one_input.input_of`."""
    if certs.network is None:
        raise InputError(
            "the certificates do not know their network, which says what the features are; certify sets it"
        )
    return input_of(certs, 0, certs.number(0), None)


def what_stays(found: dict[str, Any]) -> str:
    """What is certified, as a clause."""
    executed = f", also as executed in {found['deployed']}" if found["deployed"] else ""
    if found["label"] is None:
        count = found["conditions"] or 0
        return f"{counted(count, 'condition')} of the specification hold{'s' * (count == 1)} of the outputs{executed}"
    return f"the network decides {called(found)}{executed}"


def called(found: dict[str, Any]) -> str:
    """The class of an input."""
    return f"“{found['class']}”" if found["class"] is not None else f"class {found['label']}"


def along_what(found: dict[str, Any]) -> str:
    """What moves in a region: a "feature", or a "direction" of its basis."""
    return "direction" if found["region"].startswith("Oblique") else "feature"


def _claim(found: dict[str, Any]) -> list[str]:
    if "state" in found["features"][0]:
        free = sum(f["state"] == FREE for f in found["features"])
        return [
            f"Input {found['input']}: certified. {_capital(what_stays(found))} whatever values of their domain "
            f"{counted(free, 'feature')} take{'s' * (free == 1)}, all at once, while the others stay as they are."
        ]
    along = along_what(found)
    if found["extent"] == HALF_WIDTH and "lower" in found["features"][0]:
        where = f"as long as every {along} stays in its range, all of them at once"
    else:
        where = (
            f"anywhere in a region of the shape {found['region']} around the input; a {along} that moves alone, while "
            "all others stay as they are, may move so far"
        )
    return [f"Input {found['input']}: certified. {_capital(what_stays(found))}, {where}:"]


def _why_not(found: dict[str, Any]) -> list[str]:
    about = "" if found["label"] is None else f" It was asked whether {called(found)} stays."
    why = f": {found['message']}" if found["message"] else f": {_WITHOUT[found['status']]}"
    return [f"Input {found['input']}: no certificate ({found['status'].replace('_', ' ')}){why}.{about}"]


def _ranges(found: dict[str, Any], most: int) -> list[str]:
    moving = [f for f in found["features"] if f["extent"] > 0 or len(f.get("levels", ())) > 1]
    stuck = [f["feature"] for f in found["features"] if STUCK in f["note"]]
    fixed = [f["feature"] for f in found["features"] if f not in moving and f["feature"] not in stuck]
    # Sets of levels have no room to be sorted by: they come after the ranges, and are named in any case.
    sets = [f for f in moving if "levels" in f]
    ranges = [f for f in moving if "levels" not in f]
    lines = [f"  {f['feature']}: {_range(f)}" for f in ranges[:most]]
    if len(ranges) > most:
        lines.append(f"  ... and {counted(len(ranges) - most, 'more feature')} with more room")
    lines += [f"  {f['feature']}: any of {listed(f['levels'], ', ')} (here: {f['value']})" for f in sets]
    if stuck:
        names = ", ".join(stuck[:most]) + (f" and {len(stuck) - most:,} more" if len(stuck) > most else "")
        lines.append(f"  as {'it is' if len(stuck) == 1 else 'they are'}, since no further value was proved: {names}")
    if fixed:
        names = ", ".join(fixed[:most]) + (f" and {len(fixed) - most:,} more" if len(fixed) > most else "")
        lines.append(f"  as {'it is' if len(fixed) == 1 else 'they are'}: {names}")
    return lines


def _say_of_what(certs: Certificates, features: list[dict[str, Any]]) -> None:
    """Adds to features what their share is `of`: the domain, where it is that wide, else what was told to be the scale,
    or the range of the data."""
    width = None
    if certs.lowest is not None and certs.highest is not None:
        width = (certs.highest - certs.lowest)[0].flatten()
    for f in features:
        k = f["number"]
        whole = width is not None and certs.scale is not None and bool(width[k] == certs.scale.flatten()[k])
        f["of"] = "domain" if whole else "scale"


def _range(f: dict[str, Any]) -> str:
    """The range of a feature that may move, rounded inwards."""
    unit = f" {f['unit']}" if f["unit"] else ""
    if "lower" not in f:
        text = f"{at_most(f['extent'], _DIGITS)}{unit} up or down from {near(f['value'], f['extent'])}"
    else:
        low, value, high = around(f["lower"], f["value"], f["upper"], f["decimals"], _DIGITS)
        down, up = moved(f, "down", _DIGITS), moved(f, "up", _DIGITS)
        text = f"{low} to {high}{unit} (here {value}: down by {down}, up by {up})"
    if f["share"] is not None:
        text += f", {at_most(100 * f['share'], 3)} % of its {f['of']}"
    if CAPPED in f["note"]:
        text += "; it ends at a limit that was set"
    if IMPUTED in f["note"]:
        text += "; the value was missing, this is what the model takes for it"
    seen = [f"at {at_most(f['seen_lower'])}"] if f.get("seen_lower") is not None else []
    seen += [f"at {at_least(f['seen_upper'])}"] if f.get("seen_upper") is not None else []
    if seen:
        text += f"; counterexample seen {' and '.join(seen)}"
    ends = (f[side] for side in ("open_below", "open_above") if f.get(side))
    open_ = [where_open(low, high, f["upper"] - f["lower"]) for low, high in ends]
    if open_:
        text += f"; nothing proved nor found {' and '.join(open_)}"
    return text


def _states(found: dict[str, Any], most: int) -> list[str]:
    words = {
        FREE: "may take any value of its domain",
        NEEDS: "needed (a counterexample was found that changes nothing but this one and the free ones)",
        OPEN: "not decided whether needed",
    }
    lines = []
    for state, text in words.items():
        names = [f["feature"] for f in found["features"] if f["state"] == state]
        if names:
            more = f" and {len(names) - most:,} more" if len(names) > most else ""
            lines.append(f"  {text}: {', '.join(names[:most])}{more}")
    return lines


def _beyond(found: dict[str, Any]) -> list[str]:
    """What is known of the other side."""
    if not found["counterexample"]:
        return ["Whether the region could be larger was not looked into (reach=True does)."]
    reach = found["counterexample"]["reach"]
    what = "the decision is another one" if found["conditions"] is None else "the specification does not hold"
    if reach is None:
        return ["No counterexample was found, however far the region was scaled up: that proves nothing."]
    between = any(f["decimals"] is not None for f in found["features"])  # counterexamples are of any numbers
    return [
        f"Scaled up {at_least(reach, _DIGITS)} times about the input, the region holds an input where {what}"
        f"{'; it may lie between the values that features can have' * between}."
    ]


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


__all__ = ["Sentences", "along_what", "called", "explained", "one_of", "what_stays"]
