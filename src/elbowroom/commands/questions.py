"""What the commands that ask questions share: `alone`, `safe`, `accuracy`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elbowroom.runs.settings import OPTIONS, READING

if TYPE_CHECKING:
    from elbowroom.runs.asking import Question

# Settings of runs that questions have as well: how to read the model and the data, which inputs, what must stay.
MODEL = ("model", "data", *(name for name, option in OPTIONS.items() if option.kind == READING), "trust_pickle")
TABLE = ("class_names", "data_dir", "label_column", "feature_columns", "key")
INPUTS = ("limit", "offset", "indices", "classes")
WHAT = ("within", "domain", "effort", "device", "memory")
TEXTS = {
    "model": "The network: .onnx, .pt2, .elbowroom.",
    "data": "The inputs: a .csv, .parquet, .npy or .npz file, a named set, or a folder of images.",
    "effort": "What to spend: fast, medium (default), high, parts per box (500), or seconds per input (30s).",
    "domain": "Valid values: LOW,HIGH for all features, FEATURE=LOW,HIGH for one (repeat), or data: the data's.",
}

Labels = Annotated[
    bool, typer.Option("--labels", help="The data's labels must stay; default: what the network decides.")
]
Out = Annotated[
    Path | None, typer.Option(help="Folder for the certificates of what is proved.", show_default=False, metavar="RUN")
]


def question(given: dict[str, Any], names: tuple[str, ...], labels: bool) -> Question:
    """The question that flags ask; `names`: those of its arguments that not all questions have."""
    from elbowroom.runs.asking import question_of

    return question_of(given, ("domain", "effort", "device", "memory", *names), labels, lambda n: OPTIONS[n].flag)


def tell(asked: Question, found: dict[str, Any], json: bool, show: Callable[[dict[str, Any]], None]) -> None:
    """What was found, as JSON or as `show` does it; and what was done to the data, on stderr."""
    from elbowroom.report.plain import print_json

    for note in asked.notes:
        print(f"note: {note}", file=sys.stderr)
    (print_json if json else show)(found)
