"""A network and the ONNX model of tables it was read from, as that stands in its file: columns in, labels out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from elbowroom.errors import InputError, UnsupportedError
from elbowroom.network.graph import Network, Source
from elbowroom.readers import compare
from elbowroom.readers.onnx.ends import Outputs, dims_of
from elbowroom.readers.onnx.file import FLOATS, type_name
from elbowroom.readers.onnx.tables import Plain
from elbowroom.readers.reading import first_line, left_off
from elbowroom.readers.rows import Rows, has_levels, tried
from elbowroom.readers.two_classes import two_classes

if TYPE_CHECKING:
    from onnx import ModelProto

_TOLERANCE = compare.OWN[torch.float32]
_STRING, _BOOL = 8, 9


def as_it_was(net: Network, plain: Plain, model: ModelProto, task: str | None) -> Network:
    """The network of a model of tables with its names, compared with the model itself and kept with it.

    `net`: read from the plain model; `model`: as it stands in the file.
    """
    classifier, table = plain.classifier, plain.table
    if classifier is not None:
        if task == "regression":
            raise InputError("the model ends in a linear classifier, and is for classification; leave task out")
        if classifier.single:
            net = two_classes(net, classifier.classes, logit=True)
        else:
            cut = "the sigmoid of each class" if classifier.post == "LOGISTIC" else net.about.cut
            notes = (*net.about.notes, *([left_off(cut)] if cut and cut != net.about.cut else []))
            net = _about(net, classes=classifier.classes, cut=cut, notes=notes)
    net = _about(
        net,
        notes=(*net.about.notes, *plain.notes),
        table=table,
        features=None if table is None else table.entries,
    )
    own = _Original(model, plain, Rows(plain.plan, table, None))
    count = 0
    for x, missing, _ in tried(own.rows, net.n_inputs):
        count += len(x)
        difference = own.differs(net, torch.from_numpy(own.whole(x)), missing)
        if difference is not None:
            raise UnsupportedError(difference)
    what = f"at {count} random rows{', every category' if has_levels(own.rows) else ''}"
    words = f"compared with the model as it stands in its file, by {own.runner}, {what}: labels and outputs agree"
    origin = net.about.origin
    assert origin is not None
    net = _about(net, origin=replace(origin, compared=(*origin.compared, words)))
    before = net.source

    def differs(x: Tensor) -> str | None:
        return own.differs(net, x) or (None if before is None else before.differs(x))

    return Network(net.nodes, net.decision, net.about, Source(differs))


def _about(net: Network, **changes: Any) -> Network:
    return Network(net.nodes, net.decision, replace(net.about, **changes), net.source)


@dataclass(eq=False)
class _Original:
    """The model in its file. `rows`: how its columns become inputs of the network."""

    model: ModelProto
    plain: Plain
    rows: Rows
    runner: str = ""
    _run: Any = None

    def differs(self, net: Network, x: Tensor, missing: np.ndarray | None = None) -> str | None:
        """Where network and model give something else at inputs `b x n`, in words."""
        x = x[x.isfinite().all(1)] if missing is None else x
        x = x.reshape(len(x), -1)
        if missing is None:
            x = x[torch.from_numpy((self.whole(x.numpy()) == x.numpy()).all(1))]  # the model takes no others
        if not len(x):
            return None
        fault = self.rows.fault(x.numpy())
        if fault is not None:
            return f"the model takes no such input: {fault}"
        found = self._outputs(x.numpy(), missing)
        # Numbers are given in float32, as the model has it.
        outputs, allowed = _with_rounding(net, x.reshape(-1, *net.input_shape))
        for name, values in found.items():
            if values.dtype.kind == "f":
                where = self._numbers(values, outputs, allowed)
            elif net.n_outputs > 1 and net.about.classes is not None:
                where = _labels(values, outputs, allowed, net.about.classes)
            else:
                continue
            if where is not None:
                return f"the network read from the model differs from the model itself: its output {name!r} {where}"
        return None

    def whole(self, x: np.ndarray) -> np.ndarray:
        """Inputs `b x n` with whole numbers in columns that the model has them in, and 0 or 1 for truth values."""
        kinds = {one.name: one.type.tensor_type.elem_type for one in self.model.graph.input}
        x, table = x.copy(), self.rows.table
        for k, number in enumerate(self.rows.plan.columns):
            kind, place = kinds[self.plain.columns[number][0]], slice(k, k + 1) if table is None else table.places[k]
            if self.rows.plan.coding(number) is None and kind not in FLOATS:
                x[:, place] = x[:, place] > 0 if kind == _BOOL else np.round(x[:, place])
        return x

    def _numbers(self, values: np.ndarray, outputs: Tensor, allowed: Tensor) -> str | None:
        values = values.reshape(len(outputs), -1).astype(np.float64)
        most = allowed.amax(1, keepdim=True).numpy()
        post = "" if self.plain.classifier is None else self.plain.classifier.post
        for candidate in _candidates(outputs, post):
            expected = candidate.numpy()
            if expected.shape == values.shape and (np.abs(expected - values) <= 2 * most + 1e-6).all():
                return None
        return f"gives {values[0][:4].tolist()} where the network gives {outputs[0][:4].tolist()}"

    def _outputs(self, x: np.ndarray, missing: np.ndarray | None) -> dict[str, np.ndarray]:
        """What the model gives, by name: the numbers that are read, and labels."""
        if self._run is None:
            self.runner, self._run = _runner(self.model)
        columns = self.rows.columns(x, missing)
        feeds = {}
        for one in self.model.graph.input:
            own = [k for k, (name, _) in enumerate(self.plain.columns) if name == one.name]
            if own:
                feeds[one.name] = _declared(np.stack([columns[k] for k in own], 1), one.type.tensor_type.elem_type)
        try:
            answers = self._in_batches(feeds, len(x))
        except Exception as error:  # both have many of their own
            raise _cannot_run(error) from None
        read = {o.name for o in Outputs(self.model.graph).read}
        found = {}
        for output, values in zip(self.model.graph.output, answers):
            if isinstance(values, list):  # of ZipMap
                values = np.array([list(row.values()) for row in values], dtype=np.float64)
            values = np.asarray(values)
            if output.name in read or values.dtype.kind != "f":
                found[output.name] = values
        return found

    def _in_batches(self, feeds: dict[str, np.ndarray], count: int) -> list[Any]:
        """What the model gives for all rows; one after the other, where it takes one alone."""
        fixed = {(dims_of(one) or [""])[0] for one in self.model.graph.input if one.name in feeds}
        if 1 not in fixed:
            return list(self._run(feeds))
        rows = [self._run({name: values[k : k + 1] for name, values in feeds.items()}) for k in range(count)]
        return [
            [row for part in same for row in part] if isinstance(same[0], list) else np.concatenate(same)
            for same in zip(*rows)
        ]


def _candidates(outputs: Tensor, post: str) -> list[Tensor]:
    """What a model's numbers may be, by what it does with those that decide."""
    if outputs.shape[1] == 1:
        return [outputs]
    single = outputs[:, 1:] if outputs.shape[1] == 2 else None
    if post == "SOFTMAX":
        return [outputs.softmax(1)]
    if post == "LOGISTIC":
        if single is not None and bool((outputs[:, 0] == 0).all()):
            return [torch.cat([(-single).sigmoid(), single.sigmoid()], 1), single.sigmoid()]
        each = outputs.sigmoid()
        return [each, each / each.sum(1, keepdim=True)]
    if post == "NONE" and single is not None and bool((outputs[:, 0] == 0).all()):
        return [torch.cat([-single, single], 1), single]
    return [outputs, outputs.softmax(1)]


def _labels(values: np.ndarray, outputs: Tensor, allowed: Tensor, classes: tuple[str, ...]) -> str | None:
    best = outputs.topk(2, 1).values
    plain = (best[:, 0] - best[:, 1] > 2 * allowed.amax(1)).numpy()
    decided = np.array(classes)[outputs.argmax(1).numpy()]
    found = values.reshape(len(outputs)).astype(str)
    for k in np.flatnonzero(plain & (found != decided))[:1]:
        return f"is the label {str(found[k])!r} where the network decides {str(decided[k])!r}"
    return None


def _declared(values: np.ndarray, kind: int) -> np.ndarray:
    """Columns in the type that the model takes."""
    if kind == _STRING:
        return values.astype(object)
    return values.astype(bool if kind == _BOOL else np.float64).astype(type_name(kind))


def _runner(model: ModelProto) -> tuple[str, Any]:
    """What runs the model as it is: onnxruntime where it is installed, else onnx's reference implementation."""
    try:
        try:
            import onnxruntime
        except ImportError:
            from onnx.reference import ReferenceEvaluator

            evaluator = ReferenceEvaluator(model)
            return "onnx's reference implementation", lambda feeds: evaluator.run(None, feeds)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4  # errors are raised, and nothing is printed
        data, where = model.SerializeToString(), ["CPUExecutionProvider"]
        session = onnxruntime.InferenceSession(data, options, providers=where)
    except Exception as error:  # whatever an operator that is lacking makes them raise
        raise _cannot_run(error) from None
    return f"onnxruntime {onnxruntime.__version__}", lambda feeds: session.run(None, feeds)


def _cannot_run(error: Exception) -> UnsupportedError:
    return UnsupportedError(f"the model cannot be run, to be compared with what was read: {first_line(error)[:200]}")


def _with_rounding(net: Network, x: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs at `x`, float64, and by how much those of a model in float32 may differ, `b x k` each."""
    cast = net.cast(torch.float64)
    values, sizes = cast.values(x), [x.abs()]
    for node, value in zip(cast.nodes[1:], values[1:]):
        sizes.append(compare.size(node.op, [sizes[j] for j in node.inputs], value))
    return values[-1], compare.allowed(values[-1], sizes[-1], _TOLERANCE)


__all__ = ["as_it_was"]
