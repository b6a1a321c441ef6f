"""A model as onnxruntime runs it, in its own types, beside the network that was read from it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from elbowroom.errors import UnsupportedError
from elbowroom.readers.onnx.file import type_name
from elbowroom.readers.onnx.guard import CannotRunError, NotComparableError, Pair, distance, largest, mixes, rows_of
from elbowroom.readers.onnx.step import Place, Value
from elbowroom.readers.reading import first_line
from elbowroom.readers.rounding import LOSSES, Rounding

if TYPE_CHECKING:
    from onnx import ModelProto

# Makes a model of the nodes of a pair that gives the values named.
Extract = Callable[[Sequence[str]], "ModelProto"]


class Runtime:
    """Runs the model as people do: with onnxruntime's default graph optimisations, on one thread of the CPU.

    Those optimisations are part of what is deployed; where something differs, the nodes are looked at without them.
    `kind`: the coarsest type that the model computes in; `seen`: the largest difference so far, relative to the largest
    output; `infinite`: for how many inputs the model gave infinite numbers, or none, where the network gives finite
    ones.
    """

    def __init__(self, pair: Pair, extract: Extract, declared: int, kind: torch.dtype) -> None:
        try:
            import onnxruntime
        except ImportError:
            raise NotComparableError("it is not installed") from None
        self.pair, self.kind, self.version = pair, kind, str(onnxruntime.__version__)
        self.seen, self.infinite = 0.0, 0
        self._onnxruntime, self._extract = onnxruntime, extract
        self._type = type_name(declared)
        if self._type == "bfloat16":
            raise NotComparableError("its inputs cannot be given in bfloat16")
        self._session = self._start(list(dict.fromkeys([pair.logits, *pair.ends])))

    def _start(self, outputs: Sequence[str], optimise: bool = True) -> Any:
        options = self._onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4  # errors are raised, and nothing is printed
        if not optimise:
            options.graph_optimization_level = self._onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        try:
            data = self._extract(outputs).SerializeToString()
            return self._onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # it has many of its own, and protobuf has one for models over 2 GiB
            raise NotComparableError(f"it does not run this model: {_reason(error)}") from None

    def _run(self, session: Any, x: Tensor) -> dict[str, np.ndarray]:
        given = {self.pair.source: self.pair.fed(x).astype(self._type)}
        try:
            found = session.run(None, given)
        except Exception as error:
            raise (CannotRunError if len(x) > 1 else NotComparableError)(_reason(error)) from None
        return {o.name: np.asarray(y) for o, y in zip(session.get_outputs(), found)}

    def compare(self, x: Tensor, expected: Rounding) -> None:
        """Compares at `x`: `b x *shape`, all inputs in one batch; `expected`: what the network gives there."""
        found = self._run(self._session, x)
        for name, answer in self.pair.answers(expected.outputs).items():
            if not any(self._agrees(name, rows, answer, expected) for rows in rows_of(found[name], len(x))):
                raise self._difference(x, found[name], answer, expected)

    def _agrees(self, name: str, rows: np.ndarray, answer: np.ndarray, expected: Rounding) -> bool:
        if rows.shape != answer.shape:
            return False
        if answer.dtype.kind in "iu":  # a label, which may differ where the largest logits are as good as equal
            top = np.sort(expected.outputs, 1)
            undecided = top[:, -1] - top[:, -2] <= 2 * expected.allowed
            return bool(((rows == answer).all(1) | undecided | self._overflows(expected)).all())
        rows = rows.astype(np.float64)
        broken = ~np.isfinite(rows).all(1) & np.isfinite(answer).all(1) & self._overflows(expected)
        apart, limit = np.where(broken, 0.0, distance(answer, rows)), expected.allowed
        if name != self.pair.logits:
            limit = 2 * limit + LOSSES[self.kind] * (1 + largest(answer))
        if not (apart <= limit).all():
            return False
        if name == self.pair.logits:
            self.infinite += int(broken.sum())
            relative = apart / np.maximum(largest(answer), np.finfo(np.float32).tiny)
            self.seen = max(self.seen, float(relative.max(initial=0.0)))
        return True

    def _overflows(self, expected: Rounding) -> np.ndarray:
        """Where numbers are so large that their cubes may be infinite in the model's own type. `b`"""
        large: np.ndarray = expected.largest > torch.finfo(self.kind).max ** (1 / 3)
        return large

    def _difference(self, x: Tensor, found: np.ndarray, answer: np.ndarray, expected: Rounding) -> UnsupportedError:
        place = self._first_that_differs(x)
        if len(x) > 1:
            return mixes(self.pair, len(x), place)
        if found.size == answer.size and found.dtype.kind == "f":
            apart = float(distance(answer, found.reshape(1, -1).astype(np.float64))[0])
            reason = f"the outputs differ by {apart:.2g}, of which rounding explains {float(expected.allowed[0]):.2g}"
        else:
            reason = f"the outputs are {answer.reshape(-1)[:5]} and {found.reshape(-1)[:5]}"
        return UnsupportedError(
            f"{place or 'the model'} is read differently here and by onnxruntime {self.version}: {reason}. One of the "
            "two is wrong; please report this"
        )

    def _first_that_differs(self, x: Tensor) -> Place | None:
        """The first node whose values are far from what was read of them."""
        places = {name: Place.of(node) for node in self.pair.nodes for name in node.output if name}
        names = [n for n in places if isinstance(self.pair.values.get(n), Value) and not self.pair.values[n].cut]
        try:
            found = self._run(self._start(names, optimise=False), x)
        except (NotComparableError, CannotRunError):
            return None
        far, graph = 64 * LOSSES[self.kind], self.pair.run(x)
        for name in names:
            read = self.pair.read(name, graph)
            if read is None or found[name].dtype.kind not in "fiu":
                continue
            if read.shape != found[name].shape:
                return places[name]
            read, y = (v.reshape(len(x), -1).astype(np.float64) for v in (read, found[name]))
            if not (distance(read, y) <= far * np.maximum(largest(read), 1e-6)).all():
                return places[name]
        return None


def _reason(error: Exception) -> str:
    """onnxruntime's own words, without the places in its own code."""
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", first_line(error))
    text = re.sub(r"/\S+:\d+ .*\) (?:const )?(?=[A-Z])", "", text)
    failed = re.search(r"while running (\w+) node\. Name:'([^']*)' Status Message: (.*)", text)
    if failed is not None:
        operator, name, why = failed.groups()
        text = f"{Place(operator, name)} fails" + ("" if why.startswith("/") else f": {why}")
    return text[:200]


__all__ = ["Extract", "Runtime"]
