"""`run_verify`: what the command `elbowroom verify` does, from a model and a question to an exit code."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elbowroom.arguments.axes import keeps_axes
from elbowroom.claim.query import box_query
from elbowroom.claim.specification import label_stays
from elbowroom.errors import InputError
from elbowroom.network.graph import Network
from elbowroom.readers.load import load
from elbowroom.report.answers import as_json, show
from elbowroom.verify.answer import BOXES, SECONDS, answer
from elbowroom.verify.question import load_for
from elbowroom.vnnlib.read import read_query

EXIT_CODES = {"holds": 0, "violated": 1, "unknown": 3}  # 2 is for errors


def run_verify(
    model: str | os.PathLike[str],
    vnnlib: str | os.PathLike[str] | None = None,
    lower: str | None = None,
    upper: str | None = None,
    label: int | None = None,
    boxes: int = BOXES,
    seconds: float = SECONDS,
    json: bool = False,
    **load_options: Any,
) -> int:
    """Answers a VNN-LIB query, or whether the decision is the same on a whole box; prints it and returns the exit code.

    0: holds; 1: violated; 3: unknown. Errors are raised. `lower`, `upper`: a number for all features, numbers with
    commas between them, or the path of a `.npy` file. `label`: the decision to prove on the box; default, the one at
    its midpoint. `json`: print JSON. `load_options`: what `load` takes; a query is about the model's own inputs and
    outputs, so only `trust_pickle` goes with it.
    """
    if vnnlib is not None:
        given = [name for name, value in {"lower": lower, "upper": upper, "label": label}.items() if value is not None]
        given += [name for name, v in load_options.items() if v is not None and name != "trust_pickle"]
        if given:
            raise InputError(
                f"a VNN-LIB query states its own box, of the model's own inputs: leave off {', '.join(given)}"
            )
        question = read_query(vnnlib)
        net = load_for(question, model, bool(load_options.get("trust_pickle")))
    else:
        if lower is None or upper is None:
            raise InputError("say what to verify: a VNN-LIB file, or a box by lower and upper")
        net = load(model, **load_options)
        low, high = _corner(net, lower, "lower"), _corner(net, upper, "upper")
        if label is None:
            with torch.no_grad():
                label = int(net.decide(net(low[None] / 2 + high[None] / 2)))
        question = box_query(low, high, label_stays(torch.tensor([label]), net.n_outputs, net.decision))
        net.must_agree(torch.stack([low / 2 + high / 2, low, high]))
    found = answer(net, question, boxes, seconds)
    if json:
        from json import dumps

        print(dumps(as_json(found), indent=1))
    else:
        show(found, net, label)
    return EXIT_CODES[found.verdict]


def _corner(net: Network, text: str, name: str) -> Tensor:
    """A corner as a user types it, of the network's input shape."""
    try:
        if Path(text).suffix == ".npy":
            values = np.load(text, allow_pickle=False).astype(np.float64)
        else:
            values = np.array([float(part) for part in text.split(",")])
    except OSError as error:
        raise InputError(f"cannot read {text}: {error.strerror or error}") from None
    except (ValueError, EOFError):
        raise InputError(
            f"{name} must be a number, numbers with commas between them or a .npy file, got {text[:60]!r}"
        ) from None
    if values.size not in (1, net.n_inputs):
        raise InputError(f"{name} has {values.size} numbers; the network takes {net.n_inputs}")
    if values.size > 1 and not keeps_axes(values.shape, net.input_shape):
        shape = ",".join(map(str, values.shape))
        raise InputError(
            f"{name} has the shape {values.shape}; as {net.input_shape}, which the network takes, its values would be "
            f"mixed up: --input-shape {shape} reads the model for inputs of that layout"
        )
    return torch.from_numpy(np.broadcast_to(values.reshape(-1), net.n_inputs).copy()).reshape(net.input_shape)
