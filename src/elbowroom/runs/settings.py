"""Every setting of a run over a data set: from flags, from a TOML file, or from the run itself.

A value is checked the same way wherever it comes from. Settings that speak of single features are tables from feature
to value, "*" standing for all others; features are known by name or number until `elbowroom.runs.problem` has looked up
their numbers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elbowroom.errors import InputError
from elbowroom.runs import values

REGIONS = ("uniform", "box", "box-asymmetric", "ellipsoid", "l1")
BOUNDS = ("adaptive", "combined", "quadratic", "simple", "fast")
MARGINS = ("direct", "logits")
SOLVERS = ("sequential", "augmented-lagrangian")
ENGINES = ("local", "ray")


@dataclass(frozen=True)
class Settings:
    """The settings of a run; what each means is said in `elbowroom certify --help`.

    In order: what to read, how to read the model, how to read the data and which inputs to take, what to certify and
    how to look for it, and how to use the machine.
    """

    model: str | None = None
    data: str | None = None

    input_shape: list[int] | None = None
    mean: Any = None
    std: Any = None
    scale: float | None = None
    layout: str | None = None
    decision: str | None = None
    task: str | None = None
    class_names: list[str] | None = None
    trust_pickle: bool = False

    data_dir: str | None = None
    label_column: str | None = None
    feature_columns: list[str] | None = None
    key: str | None = None
    limit: int | None = None
    offset: int = 0
    indices: Any = None
    classes: Any = None
    shuffle: bool = False
    seed: int = 0

    predicted: bool = False
    within: Any = None
    region: str = "box"
    domain: Any = None
    max_eps: dict[str, float] | None = None
    frozen: list[str] | None = None
    importance: dict[str, float] | None = None
    bounds: str = "adaptive"
    margin: str = "direct"
    solver: str = "sequential"
    solver_options: dict[str, float] | None = None
    delta: float = 0.0
    precision: str = "float32"
    deployed: str | None = None

    device: str | None = None
    memory: int | str | None = None
    batch: int | None = None
    part_rows: int | None = None
    engine: str = "local"
    workers: int | None = None
    address: str | None = None

    @staticmethod
    def of(given: Mapping[str, Any], where: Callable[[str], str] = lambda name: name) -> Settings:
        """Settings from values by name; an `InputError` names the one that cannot be used (as `where` calls it)."""
        found = {}
        for name, value in given.items():
            if name not in _VALUES:
                raise InputError(f"{where(name)} is no setting{values.nearest(name, _VALUES)}")
            if value is None:
                continue
            try:
                found[name] = _VALUES[name](value)
            except values.Wrong as wrong:
                raise InputError(f"{where(name)} must be {wrong}, got {_shown(value)}") from None
        return Settings(**found)

    def settled(self) -> Settings:
        """The same with the task that follows from what is to be certified: a tolerance is about the outputs as the
        model gives them, where a classifier's reader leaves off what does not change the decision."""
        if self.within is None and self.task == "regression":
            raise InputError("of a regression outputs stay, not labels: say how closely with --within TOL (within)")
        if self.within is not None and self.task == "classification":
            raise InputError(
                "--within (within) is about outputs as the model gives them, so that the task is regression; leave "
                "out --task classification, or --within"
            )
        return self if self.within is None else dataclasses.replace(self, task="regression")

    def plain(self) -> dict[str, Any]:
        """By name, as JSON holds them."""
        return dataclasses.asdict(self)

    def stored(self) -> dict[str, Any]:
        """Those that a run keeps. What is a matter of this machine or of trust never comes from a file."""
        return {name: value for name, value in self.plain().items() if name not in _OF_THE_MOMENT}

    def claim(self) -> dict[str, Any]:
        """Those that say what is certified, and how it is looked for: a run has the same ones from start to end."""
        return {name: value for name, value in self.plain().items() if name in _CLAIM}


_VALUES: dict[str, Callable[[Any], Any]] = {
    "model": values.text,
    "data": values.text,
    "input_shape": values.shape,
    "mean": values.numbers,
    "std": values.numbers,
    "scale": values.finite,
    "layout": values.one_of("NCHW", "NHWC"),
    "decision": values.one_of("max", "min"),
    "task": values.one_of("classification", "regression"),
    "class_names": values.class_names,
    "trust_pickle": values.yes_or_no,
    "data_dir": values.text,
    "label_column": values.text_or_none,
    "feature_columns": values.columns,
    "key": values.text,
    "limit": values.count(1),
    "offset": values.count(0),
    "indices": values.numbers_or_text,
    "classes": values.numbers_or_text,
    "shuffle": values.yes_or_no,
    "seed": values.count(0),
    "predicted": values.yes_or_no,
    "within": values.positive_numbers,
    "region": values.one_of(*REGIONS),
    "domain": values.domain,
    "max_eps": values.by_feature(values.not_negative),
    "frozen": values.names,
    "importance": values.by_feature(values.positive),
    "bounds": values.one_of(*BOUNDS),
    "margin": values.one_of(*MARGINS),
    "solver": values.one_of(*SOLVERS),
    "solver_options": values.options,
    "delta": values.not_negative,
    "precision": values.one_of("float32", "float64"),
    "deployed": values.one_of("float32"),
    "device": values.text,
    "memory": values.size,
    "batch": values.count(1),
    "part_rows": values.count(1),
    "engine": values.one_of(*ENGINES),
    "workers": values.count(1),
    "address": values.text,
}
_CLAIM = (
    "predicted", "within", "region", "domain", "max_eps", "frozen", "importance", "bounds", "margin", "solver",
    "solver_options", "delta", "precision", "deployed",
)  # fmt: skip
_OF_THE_MOMENT = ("trust_pickle", "device", "memory", "batch", "engine", "workers", "address")


def read_config(path: str | Path) -> dict[str, Any]:
    """The values in a TOML file, by name; names may be written with hyphens, as flags are."""
    import tomllib

    try:
        with open(path, "rb") as file:
            found = tomllib.load(file)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is no TOML file: {error}") from None
    content: dict[str, Any] = {}
    for key, value in found.items():
        name = key.replace("-", "_")
        if name in content:
            raise InputError(f"{path}: {key} is given twice")
        content[name] = value
    return content


def _shown(value: Any) -> str:
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return repr(value)[:80]
