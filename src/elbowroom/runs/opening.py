"""From settings to a network and data: the model and the data that they name, or those of a run that is resumed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from elbowroom.arguments.kinds import declared
from elbowroom.certificates.store import HEADER, NETWORK, Run
from elbowroom.data.dataset import Dataset
from elbowroom.data.sources import TABLES, open_data
from elbowroom.errors import InputError, ShapeError
from elbowroom.network.file import load_network
from elbowroom.network.graph import Network
from elbowroom.network.table import Table
from elbowroom.readers.load import feature_names_of, load
from elbowroom.runs.matching import by_place, columns_of
from elbowroom.runs.settings import Settings
from elbowroom.runs.stored import stored_settings


def settings_for(
    given: Mapping[str, Any], out: Path, resume: bool, where: Callable[[str], str] = lambda name: name
) -> tuple[Settings, bool]:
    """The settings, from values by name (see `Settings.of`), and whether the run in `out` keeps its own network.

    `resume`: what was not given is as it was when the run was begun, where model or data were not.
    """
    settings, own_network, begun = Settings.of(given, where), False, (out / HEADER).exists()
    if resume and (settings.model is None or settings.data is None) and begun:
        # Except for the machine and for trust, which no file gives.
        stored = Settings.of(stored_settings(Run.open(out).plan) or {})
        settings = dataclasses.replace(stored, **{name: getattr(settings, name) for name in given})
        own_network = "model" not in given
        before, now = stored.reading(), settings.reading()
        changed = [name for name in now if name in given and now[name] != before[name]]
        if own_network and changed:
            raise InputError(
                f"{', '.join(where(name) for name in changed)}: the run in {out} keeps its own network, which "
                "was read otherwise; choose another folder for a run of the model read so"
            )
    return settings, own_network


def opened(settings: Settings, run: Path | None = None) -> tuple[Network, Dataset]:
    """The network, as the settings say to read it or the very one of a run that is resumed (`run`: its folder), and the
    data."""
    if run is not None:
        net = load_network(run / NETWORK)
        return net, _data(settings, net.about.table or net.about.features)
    assert settings.data is not None
    if Path(settings.data).suffix.lower() in TABLES:
        first = _without_data(settings)
        if first is not None and first.about.table is not None:  # which says what values of the data mean
            return first, _data(settings, first.about.table)
    data = _data(settings, feature_names_of(settings.model, settings.trust_pickle))
    plain = dataclasses.replace(settings, features=None)
    net = _network(plain, data, units=None)  # of columns that may have no names yet
    if net.about.table is not None and data.features is not None:
        # A torch module with embeddings, whose columns have no names but those of the data.
        net = _network(plain, data, features=data.features)
        assert net.about.table is not None
        again = _data(dataclasses.replace(settings, input_shape=None), net.about.table)
        notes = () if settings.feature_columns is not None else (by_place(data.name),)
        data = dataclasses.replace(again, notes=(*again.notes, *notes))
    elif settings.units is not None:
        net = _network(plain, data)
    return (net, data) if settings.features is None else _declared(net, data, settings)


def _declared(net: Network, data: Dataset, settings: Settings) -> tuple[Network, Dataset]:
    """A network that may have no names but the data's, with what features are declared to be, and the data read so."""
    named, first = columns_of(net, data, settings)
    net = declared(named, settings.features)
    assert settings.data is not None
    if Path(settings.data).suffix.lower() not in TABLES:
        return net, data
    again = _data(dataclasses.replace(settings, input_shape=None), net.about.table)
    told = tuple(note for note in first.notes if note not in again.notes)
    return net, dataclasses.replace(again, notes=(*again.notes, *told))


def _without_data(settings: Settings) -> Network | None:
    """The network of a model that knows itself what it takes; None where data have to say so, as for a torch module,
    which does not name its columns."""
    if Path(str(settings.model)).suffix.lower() in (".pt2", ".pt", ".pth"):
        return None
    try:
        return load(settings.model, **settings.reading(), trust_pickle=settings.trust_pickle)
    except InputError:  # also of what is wrong with the model, which is said when it is read again
        return None


def _data(settings: Settings, features: Sequence[str] | Table | None) -> Dataset:
    """`features`: those of the model, which are looked for in a table, by name."""
    assert settings.data is not None
    is_table = Path(settings.data).suffix.lower() in TABLES
    return open_data(
        settings.data, settings.data_dir, label_column=settings.label_column,
        feature_columns=settings.feature_columns, input_shape=settings.input_shape, key=settings.key,
        features=features if is_table else None,
    )  # fmt: skip


def _network(settings: Settings, data: Dataset, **told: Any) -> Network:
    """As the settings say, and `told` otherwise, for inputs of the data's shape."""
    try:
        return load(
            settings.model, **{**settings.reading(), "input_shape": data.shape, **told},
            trust_pickle=settings.trust_pickle,
        )  # fmt: skip
    except ShapeError as error:  # of a shape that nobody may have given: it is the data's
        raise InputError(f"{data.name} does not fit {settings.model}: {error}") from None
