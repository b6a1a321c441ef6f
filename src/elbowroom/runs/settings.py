# ruff: noqa: RUF009 - `option` makes a field, and no value that settings would share
"""Every setting of a run over a data set: from flags, from a TOML file, or from the run itself.

A setting is declared once, as a field of `Settings`: its values, its default, what help says of it, and what kind of
setting it is. The flag of `elbowroom certify`, the key in a TOML file and what a run stores all follow from that. A
value is checked the same way wherever it comes from. Settings about single features are tables from feature to
value, "*" standing for all others; features are known by name or number until `elbowroom.runs.problem` has looked up
their numbers.

Nothing heavy is imported here: help is made of these declarations.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elbowroom.claim.hints import PROOF_BYTES
from elbowroom.errors import InputError
from elbowroom.runs import values
from elbowroom.search.bounds.methods import MARGINS, METHODS
from elbowroom.search.regions.registry import BALL, OBJECTIVES, REGIONS
from elbowroom.search.solvers.registry import SOLVERS

ENGINES = ("local", "ray")

# The panels of `elbowroom certify --help`.
MODEL, DATA, WHAT, HOW = "Model", "Data", "What to certify", "How to look for it"
MACHINE, OUTPUT = "Machine", "Output"

# What kind of setting one is. CLAIM: says what is certified or how it is looked for, so that a run has the same one
# from start to end; READING: how the model's file is read; MOMENT: of this machine, or of trust, and never stored;
# PLAIN: none of these.
CLAIM, READING, MOMENT, PLAIN = "claim", "reading", "moment", "plain"


@dataclass(frozen=True)
class Option:
    """One setting. `text`: for help, where {choices} and {default} stand for its choices and its default; `panel`: of
    help, None for an argument without a flag; `many`: whether its flag may be repeated."""

    name: str
    parse: Callable[[Any], Any]
    text: str
    default: Any
    panel: str | None
    kind: str
    flag: str
    metavar: str | None
    many: bool

    @property
    def choices(self) -> tuple[str, ...]:
        """The values it may have, where they are a few words."""
        return getattr(self.parse, "choices", ())

    @property
    def switch(self) -> bool:
        """Whether it is on or off, so that its flag takes no value."""
        return self.parse is values.yes_or_no

    @property
    def help(self) -> str:
        names = [f"{name} (default)" if name == self.default else name for name in self.choices]
        listed = " or ".join([*([", ".join(names[:-1])] if names[1:] else []), *names[-1:]])
        return self.text.format(choices=listed, default=self.default)


def option(
    parse: Callable[[Any], Any],
    text: str,
    default: Any = None,
    *,
    panel: str | None = None,
    kind: str = PLAIN,
    flag: str | None = None,
    metavar: str | None = None,
    many: bool = False,
) -> Any:
    """Declares a setting, see `Option`; its flag is spelled as its name is, unless `flag` is given. Where the value
    is one of a few words, these are what help shows for it (`metavar`) by default."""
    if metavar is None and hasattr(parse, "choices"):
        metavar = "|".join(parse.choices)
    told = {
        "parse": parse, "text": text, "panel": panel, "kind": kind, "flag": flag, "metavar": metavar, "many": many
    }  # fmt: skip
    return dataclasses.field(default=default, metadata=told)


@dataclass(frozen=True)
class Settings:
    """The settings of a run.

    In order: what to read, how to read the model, how to read the data and which inputs to take, what to certify and
    how to look for it, and how to use the machine.
    """

    model: str | None = option(values.text, "The network: .onnx, .pt2, .elbowroom. With --resume: the run's own.")
    data: str | None = option(
        values.text,
        "The inputs: digits, mnist:test, fashion-mnist:test, svhn:test, cifar10:test, a .npy, .npz, .csv or .parquet "
        "file, or a folder of images. With --resume: the run's own.",
    )

    input_shape: list[int] | None = option(
        values.shape, "Of one input, such as 1,28,28; default: the data's.", panel=MODEL, kind=READING, metavar="SHAPE"
    )
    scale: float | None = option(
        values.finite, "The model takes (scale * x - mean) / std; such as 1/255.",
        panel=MODEL, kind=READING, metavar="NUMBER",
    )  # fmt: skip
    mean: Any = option(
        values.numbers, "One number, or one per channel: 0.49,0.48,0.45.", panel=MODEL, kind=READING, metavar="M"
    )
    std: Any = option(values.numbers, "One number, or one per channel.", panel=MODEL, kind=READING, metavar="S")
    layout: str | None = option(
        values.one_of("NCHW", "NHWC"),
        "NHWC where the model takes channels last and the data have them first, or the reverse; NCHW where nothing is "
        "to be transposed; default: by their sizes, where these leave no doubt.",
        panel=MODEL, kind=READING,
    )  # fmt: skip
    decision: str | None = option(
        values.one_of("max", "min"), "{choices}: which output decides; default: max, or what the file says.",
        panel=MODEL, kind=READING,
    )  # fmt: skip
    task: str | None = option(
        values.one_of("classification", "regression"),
        "{choices}; default: classification, or regression with --within.",
        panel=MODEL, kind=READING, metavar="TASK",
    )  # fmt: skip
    threshold: float | None = option(
        values.probability,
        "Of two classes: decide the second one where its probability is at least this; default: 0.5, or the model's.",
        panel=MODEL, kind=READING, metavar="P",
    )  # fmt: skip
    units: dict[str, str] | None = option(
        values.units, "Of a feature, for tables and pictures: age=years (repeat).",
        panel=MODEL, kind=READING, flag="--unit", metavar="FEATURE=UNIT", many=True,
    )  # fmt: skip
    class_names: list[str] | None = option(
        values.class_names,
        "What the data's labels call the model's outputs, in the order of these: cat,dog or 1..10; default: the "
        "model's own names, or 0, 1, 2, ...",
        panel=MODEL, metavar="A,B,...",
    )  # fmt: skip
    trust_pickle: bool = option(
        values.yes_or_no, "Read also models whose files run code: only from people you trust.", False,
        panel=MODEL, kind=MOMENT,
    )  # fmt: skip

    data_dir: str | None = option(
        values.text,
        "Folder of the named sets; default: ELBOWROOM_DATA, else data or datasets, here or at home.",
        panel=DATA,
        metavar="DIR",
    )
    label_column: str | None = option(
        values.text_or_none, "Of a table: the column with the labels; '' for none.", panel=DATA, metavar="NAME"
    )
    feature_columns: list[str] | None = option(
        values.columns,
        "Of a table: the columns to use, matched by name with the features that the model names; where it names none, "
        "in this order.",
        panel=DATA, metavar="A,B,...",
    )  # fmt: skip
    key: str | None = option(
        values.text, "Of an .npz: the arrays with the inputs and the labels, such as x,y.", panel=DATA, metavar="X,Y"
    )
    limit: int | None = option(values.count(1), "At most so many inputs.", panel=DATA, metavar="N")
    offset: int = option(values.count(0), "Leave out so many at the start.", 0, panel=DATA, metavar="N")
    indices: Any = option(values.numbers_or_text, "Only these inputs, such as 0-9,17.", panel=DATA, metavar="LIST")
    classes: Any = option(
        values.numbers_or_text, "Only inputs of these classes, by number or name.", panel=DATA, metavar="LIST"
    )
    shuffle: bool = option(values.yes_or_no, "In random order; with --limit: a random sample.", False, panel=DATA)
    seed: int = option(values.count(0), "Of --shuffle; default: {default}.", 0, panel=DATA, metavar="N")

    predicted: bool = option(
        values.yes_or_no, "What the network decides is to stay, also where the data have labels.", False,
        panel=WHAT, kind=CLAIM,
    )  # fmt: skip
    within: Any = option(
        values.positive_numbers,
        "Regression: the outputs that the model gives stay within this of their values; one number, or one each.",
        panel=WHAT, kind=CLAIM, metavar="TOL",
    )  # fmt: skip
    region: str = option(
        values.Shape((*REGIONS, f"{BALL}P"), BALL), "{choices} (a ball of the norm P, from 1 to inf). oblique: "
        "boxes along directions that are found from the data.", "box",
        panel=WHAT, kind=CLAIM, metavar="SHAPE",
    )  # fmt: skip
    domain: Any = option(
        values.domain,
        "Valid values: LOW,HIGH for all features, FEATURE=LOW,HIGH for one (repeat the flag); data: what the data set "
        "states; observed: the range in which all its inputs lie.",
        panel=WHAT, kind=CLAIM, metavar="RANGE", many=True,
    )  # fmt: skip
    max_eps: dict[str, float] | None = option(
        values.by_feature(values.not_negative),
        "Largest extent: a number, or FEATURE=NUMBER (repeat); default: the domain, else of a table the width of each "
        "feature's range in it, else 1000 uniform radii.",
        panel=WHAT, kind=CLAIM, metavar="LIMIT", many=True,
    )  # fmt: skip
    frozen: list[str] | None = option(
        values.names, "Features that must not move, by name or number: age, or 0-9,17 (repeat).",
        panel=WHAT, kind=CLAIM, metavar="LIST", many=True,
    )  # fmt: skip
    importance: dict[str, float] | None = option(
        values.by_feature(values.positive), "How much the room of a feature counts; default: 1 (repeat).",
        panel=WHAT, kind=CLAIM, metavar="FEATURE=WEIGHT", many=True,
    )  # fmt: skip
    room_scale: dict[str, float] | None = option(
        values.by_feature(values.not_negative),
        "What the room of a feature is a share of (repeat); default: the width of its domain, of a table else that of "
        "its range in it.",
        panel=WHAT, kind=CLAIM, metavar="FEATURE=WIDTH", many=True,
    )  # fmt: skip
    deployed: str | None = option(
        values.one_of("float32"), "{choices}: certify also the network as executed in float32.", panel=WHAT, kind=CLAIM
    )

    bounds: str = option(values.one_of(*METHODS), "{choices}.", "adaptive", panel=HOW, kind=CLAIM, metavar="METHOD")
    margin: str = option(values.one_of(*MARGINS), "{choices}.", "direct", panel=HOW, kind=CLAIM, metavar="NAME")
    solver: str = option(values.one_of(*SOLVERS), "{choices}.", "sequential", panel=HOW, kind=CLAIM, metavar="NAME")
    solver_options: dict[str, float] | None = option(
        values.options, "Of the solver, such as gradients=8 (repeat).",
        panel=HOW, kind=CLAIM, flag="--solver-option", metavar="NAME=NUMBER", many=True,
    )  # fmt: skip
    delta: float = option(
        values.not_negative, "By how much margins must exceed zero; default: {default:g}.", 0.0,
        panel=HOW, kind=CLAIM, metavar="NUMBER",
    )  # fmt: skip
    precision: str = option(
        values.one_of("float32", "float64"), "{choices}: of the search; float64 where float32 is too coarse.",
        "float32", panel=HOW, kind=CLAIM, metavar="NAME",
    )  # fmt: skip
    objective: str = option(
        values.one_of(*OBJECTIVES), "{choices}: what is to be as large as possible; smallest: the least width of a "
        "box, then its volume; free: how many features may take any value of their domain, the others fixed.",
        "volume", panel=WHAT, kind=CLAIM, metavar="NAME",
    )  # fmt: skip
    reach: bool = option(
        values.yes_or_no, "Look for counterexamples as well: how much larger each region could be at most.", False,
        panel=HOW, kind=CLAIM,
    )  # fmt: skip

    effort: str = option(
        values.effort, "What to spend on larger regions: fast, medium, high, leaves per tree (500), or seconds per "
        "input (30s); above fast, regions are cut into parts that are proved one by one.", "fast",
        panel=HOW, kind=CLAIM, metavar="NAME",
    )  # fmt: skip
    proof_bytes: int = option(
        values.count(1), "The most bytes that such a proof may add to an input; default: {default:,}.", PROOF_BYTES,
        panel=HOW, kind=CLAIM, metavar="BYTES",
    )  # fmt: skip

    device: str | None = option(
        values.text, "cpu, cuda, cuda:1, ...; default: a GPU if there is one.",
        panel=MACHINE, kind=MOMENT, metavar="NAME",
    )  # fmt: skip
    memory: int | str | None = option(
        values.size, "What a worker may take, such as 4GiB; default: half of what is free, shared by the workers.",
        panel=MACHINE, kind=MOMENT, metavar="SIZE",
    )  # fmt: skip
    batch: int | None = option(
        values.count(1), "Inputs at a time; default: what fits.", panel=MACHINE, kind=MOMENT, metavar="N"
    )
    part_rows: int | None = option(
        values.count(1), "Inputs per file; default: what takes some 20 seconds.", panel=OUTPUT, metavar="N"
    )
    engine: str = option(
        values.one_of(*ENGINES), "{choices}: a cluster of machines or GPUs.", "local",
        panel=MACHINE, kind=MOMENT,
    )  # fmt: skip
    workers: int | None = option(
        values.count(1), "Processes; default: by the work there is (local), what the cluster has room for (ray).",
        panel=MACHINE, kind=MOMENT, metavar="N",
    )  # fmt: skip
    threads: int | None = option(
        values.count(1), "Of each worker on this machine; default: by the work, or its share of the cores.",
        panel=MACHINE, kind=MOMENT, metavar="N",
    )  # fmt: skip
    address: str | None = option(
        values.text, "Of the Ray cluster; default: RAY_ADDRESS, or one of this machine's own.",
        panel=MACHINE, kind=MOMENT, metavar="ADDRESS",
    )  # fmt: skip

    @staticmethod
    def of(given: Mapping[str, Any], where: Callable[[str], str] = lambda name: name) -> Settings:
        """Settings from values by name; an `InputError` names the one that cannot be used (as `where` calls it)."""
        found = {}
        for name, value in given.items():
            if name not in OPTIONS:
                raise InputError(f"{where(name)} is not a setting{values.nearest(name, OPTIONS)}")
            if value is None:
                continue
            try:
                found[name] = OPTIONS[name].parse(value)
            except values.Wrong as wrong:
                raise InputError(f"{where(name)} must be {wrong}, got {_shown(value)}") from None
        return Settings(**found)

    def settled(self) -> Settings:
        """The same with the task that follows from what is to be certified: a tolerance is about the outputs as the
        model gives them, where a classifier's reader leaves off what does not change the decision."""
        if self.within is None and self.task == "regression":
            raise InputError("in a regression outputs stay, not labels: say how closely with `within=TOL`")
        if self.within is not None and self.task == "classification":
            raise InputError(
                "`within` is about outputs as the model gives them, so that the task is regression; leave out "
                "`task='classification'`, or `within`"
            )
        return self if self.within is None else dataclasses.replace(self, task="regression")

    def plain(self) -> dict[str, Any]:
        """By name, as JSON holds them."""
        return dataclasses.asdict(self)

    def stored(self) -> dict[str, Any]:
        """Those that a run keeps. What is a matter of this machine or of trust never comes from a file."""
        return {name: value for name, value in self.plain().items() if OPTIONS[name].kind != MOMENT}

    def claim(self) -> dict[str, Any]:
        """Those that say what is certified, and how it is looked for: a run has the same ones from start to end."""
        return self.of_kind(CLAIM)

    def reading(self) -> dict[str, Any]:
        """Those that say how the model's file is read."""
        return self.of_kind(READING)

    def of_kind(self, kind: str) -> dict[str, Any]:
        return {name: value for name, value in self.plain().items() if OPTIONS[name].kind == kind}


def _declared(field: dataclasses.Field[Any]) -> Option:
    told = dict(field.metadata)
    flag = told.pop("flag") or f"--{field.name.replace('_', '-')}"
    return Option(name=field.name, default=field.default, flag=flag, **told)


OPTIONS = {field.name: _declared(field) for field in dataclasses.fields(Settings)}
FLAGS = {name: option.flag for name, option in OPTIONS.items() if option.panel is not None}


def read_config(path: str | Path) -> dict[str, Any]:
    """The values in a TOML file, by name; names may be written with hyphens, as flags are."""
    try:
        with open(path, "rb") as file:
            found = tomllib.load(file)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not a TOML file: {error}") from None
    content: dict[str, Any] = {}
    called = {flag.removeprefix("--").replace("-", "_"): name for name, flag in FLAGS.items()}
    for key, value in found.items():
        name = key.replace("-", "_")
        name = called.get(name, name)
        if name in content:
            raise InputError(f"{path}: {key} is given twice")
        content[name] = value
    return content


def _shown(value: Any) -> str:
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return repr(value)[:80]
