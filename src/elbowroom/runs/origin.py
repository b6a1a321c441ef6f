"""Where a run says its network comes from, in words; and the same network read again from a model that a reader has.

What a run states of its origin is outside the network's hash: anyone can write it. Reading the model again with the
options that the run states, and comparing the two networks by their hashes, is what ties the run to the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elbowroom.certificates.store import NETWORK, Run
from elbowroom.errors import InputError
from elbowroom.network.file import network_hash
from elbowroom.network.graph import Network, Origin
from elbowroom.readers.load import load
from elbowroom.runs.settings import OPTIONS, READING, Settings

_OPTIONS = tuple(name for name, option in OPTIONS.items() if option.kind == READING)
_PLAIN = {"task": "classification"}  # which is not worth a word; what decides is, since a file may say otherwise
_SHOWN = 8  # numbers of an option that are printed
_DIGITS = 12  # of a SHA-256


def origin_lines(net: Network) -> list[str]:
    """What a network's file states of where it comes from: a line for the model, then one each for what was done to
    read it, and compared."""
    origin = net.about.origin
    return [
        "not given" if origin is None else described(origin),
        *net.about.notes,
        *(() if origin is None else origin.compared),
    ]


def described(origin: Origin) -> str:
    """The model, and how it was read, in a line."""
    file = "an object in memory" if origin.sha256 is None else f"sha256 {origin.sha256[:_DIGITS]}"
    return f"{origin.model} ({file}), {_with(origin.options)}"


def _with(options: Mapping[str, Any]) -> str:
    """How a model was read. The shape is the network's own, and goes without saying."""
    named = [name for name in _OPTIONS if name != "input_shape" and options.get(name) not in (None, _PLAIN.get(name))]
    return f"with {', '.join(f'{name} {_shown(options[name])}' for name in named)}" if named else "as it is"


def _shown(value: Any) -> str:
    """An option as a file may hold it, which can be anything."""
    flat, left = [], [value]
    while left:
        item = left.pop()
        if isinstance(item, list):
            left.extend(reversed(item))
        elif isinstance(item, dict):
            left.extend(f"{name}={_text(one)}" for name, one in reversed(item.items()))
        else:
            flat.append(item)
    if len(flat) > _SHOWN:
        return f"of {len(flat):,} numbers"
    return ",".join(
        f"{v:.6g}" if isinstance(v, float) else ascii(v)[:40] if isinstance(v, int) else _text(v) for v in flat
    )


def _text(value: Any) -> str:
    return ascii(value[:40])[1:-1] if isinstance(value, str) else "?"


def read_again(run: Run, model: Path, trust_pickle: bool) -> tuple[Network, list[str]]:
    """The network of `model`, read as the run states; what to say of both, a line each. An `InputError` where it is not
    the network that the run is about, or where the run gives other names than the model to the same things."""
    origin = run.network.about.origin
    options = _options({} if origin is None else origin.options, f"{run.folder / NETWORK}: origin")
    net = load(model, trust_pickle=trust_pickle, **options)
    found, how = network_hash(net), _with(options)
    if found != run.claim["network_hash"]:
        raise InputError(
            f"{model} is not the model that {run.folder} is about: read {how}, as the run states, its network has the "
            f"hash {found}; the run's has {run.claim['network_hash']}"
        )
    sha256 = net.about.origin.sha256 if net.about.origin else None
    return net, [f"network: that of {model}, read {how}; {_files(sha256, origin)}", *_names(run.network, net)]


def _options(stated: Mapping[str, Any], where: str) -> dict[str, Any]:
    """What `load` is told: as the run states, where it is something a reader can be told."""
    for name in stated:
        if name not in _OPTIONS:
            raise InputError(f"{where}: {name!r:.40} is not an option of a reader; they are {', '.join(_OPTIONS)}")
    try:
        told = Settings.of(stated, lambda name: f"{where}: {name}")
    except RecursionError:
        raise InputError(f"{where}: options nest too deep") from None
    return {name: getattr(told, name) for name in _OPTIONS if stated.get(name) is not None}


def _files(sha256: str | None, origin: Origin | None) -> str:
    if origin is None or origin.sha256 is None:
        return f"sha256 {str(sha256)[:_DIGITS]}, and the run states none"
    if origin.sha256 == sha256:
        return f"it is the file that the run states, sha256 {sha256[:_DIGITS]}"
    stated = f"{origin.model}, {origin.sha256[:_DIGITS]}"
    return f"sha256 {str(sha256)[:_DIGITS]}: another file than the run states ({stated}), but the same network"


def _names(ours: Network, model: Network) -> list[str]:
    """Whose names the run gives to features and classes: the model's own, or others; a line, or none."""
    said = []
    for what, stated, known in (
        ("features", ours.about.features, model.about.features),
        ("classes", ours.about.classes, model.about.classes),
    ):
        if stated is None:
            continue
        if stated == known:
            said.append(f"of {what}, the model's own")
        elif known is not None and set(stated) & set(known):
            at = next(k for k, (a, b) in enumerate(zip(stated, known)) if a != b)
            raise InputError(
                f"names of {what}: number {at} is {stated[at]!r} to the run, but {known[at]!r} to the model"
            )
        else:
            said.append(f"of {what}, as the run states them (the model has {'none' if known is None else 'others'})")
    table = ours.about.table
    if table is not None and any(column.kind for column in table.columns):
        said.append("kinds of features, and levels of those that the model takes as numbers, as the run declares them")
    return [f"names: {'; '.join(said)}"] if said else []
