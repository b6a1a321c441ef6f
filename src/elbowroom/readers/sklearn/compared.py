"""The network and the model itself, compared at random rows when it is read, and at the user's inputs later."""

from __future__ import annotations

import copy
import itertools
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elbowroom.errors import UnsupportedError
from elbowroom.network.graph import Network, Origin, Source
from elbowroom.readers import compare
from elbowroom.readers.rows import Rows, has_levels, tried
from elbowroom.readers.sklearn.heads import CHANCE, EACH, SIGMOID, SOFTMAX, Head

_BATCHES = compare.SIZES
_TOLERANCE = compare.EXACT.result  # relative to the outputs, above what rounding may cost


def compared(net: Network, model: Any, head: Head, rows: Rows) -> Network:
    """The network, compared with a copy of the model that nobody else can change, and kept with it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of classes on their way out
            own = _Model(copy.deepcopy(model), head, rows)
    except Exception as error:  # whatever a part of somebody's model raises
        raise UnsupportedError(f"{type(model).__name__} cannot be copied, to be compared with: {error}") from None
    count = 0
    for x, missing, batches in tried(rows, net.n_inputs):
        count += len(x)
        difference = own.differs(net, torch.from_numpy(x), missing, batches)
        if difference is not None:
            raise UnsupportedError(difference)
    values = "its outputs" if head.classes is None else "its scores, probabilities and labels, as far as it has them,"
    categories = "" if not has_levels(rows) else ", every category"
    words = (
        f"compared with the model itself, {values} in float64, at {count} random inputs of scale "
        f"{', '.join(f'{scale:g}' for scale in compare.SCALES)} in raw units and around the scalers' centre"
        f"{categories}, in batches of {', '.join(map(str, _BATCHES))}; they agree to {_TOLERANCE:g}"
    )
    about = replace(net.about, origin=Origin(type(model).__name__, compared=(words,)))
    return Network(net.nodes, net.decision, about, Source(lambda x: own.differs(net, x)))


# --- what


@dataclass(frozen=True, eq=False)
class _Model:
    """A fitted model of scikit-learn: `head`: what it ends in; `rows`: how it takes inputs of the network."""

    model: Any
    head: Head
    rows: Rows

    def differs(self, net: Network, x: Tensor, missing: np.ndarray | None = None, batches: bool = True) -> str | None:
        """Where the network and the model give something else at inputs `b x n`, in words."""
        if missing is None:
            x = x[x.isfinite().all(1)]
        if not len(x):
            return None
        fault = self.rows.fault(x.numpy())
        if fault is not None:
            return f"{type(self.model).__name__} takes no such input: {fault}"
        outputs, allowed = _with_rounding(net, x)
        for rows in _batches(len(x)) if batches else [slice(None)]:
            gone = None if missing is None else missing[rows]
            where = self._differs(x[rows].numpy(), gone, outputs[rows], allowed[rows])
            if where is not None:
                return (
                    f"the network read from {type(self.model).__name__} differs from the model itself: {where}, in a "
                    f"batch of {len(x[rows])}; does it compute something of its own?"
                )
        return None

    def _differs(self, x: np.ndarray, missing: np.ndarray | None, outputs: Tensor, allowed: Tensor) -> str | None:
        inputs = self.rows.raw(x, missing)
        if self.head.classes is None:
            expected = _float64(self._call("predict", inputs)).reshape(outputs.shape)
            return _first("predict gives", expected, outputs, allowed)
        value = outputs[:, 1:] + self.head.threshold if self.head.binary else outputs
        most = allowed[:, 1:] if self.head.binary else allowed
        if self.head.scores:
            expected = _float64(self._call("decision_function", inputs)).reshape(value.shape)
            where = _first("decision_function gives", expected, value, most)
            if where is not None:
                return where
        if self.head.link is not None:
            where = _chances(self.head.link, _float64(self._call("predict_proba", inputs)), value, most)
            if where is not None:
                return where
        labels = np.asarray(self._call("predict", inputs))
        best = outputs.topk(2, 1).values
        plain = (best[:, 0] - best[:, 1] > 2 * allowed.amax(1)).numpy()
        if self.head.ties:
            plain &= (-best.sigmoid().diff(dim=1)[:, 0] > _TOLERANCE).numpy()
        decided = np.asarray(self.head.classes)[outputs.argmax(1).numpy()]
        for k in np.flatnonzero(plain & (labels != decided))[:1]:
            return f"predict gives {labels[k]!r}, the network {decided[k]!r}"
        return None

    def _call(self, method: str, inputs: Any) -> Any:
        """What the model itself gives; what it says of names, convergence or unknown categories is not for here."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return getattr(self.model, method)(inputs)
            except Exception as error:  # whatever a part of somebody's model raises
                raise UnsupportedError(
                    f"{type(self.model).__name__} cannot be compared with what was read from it: its {method} says "
                    f"{str(error)[:200]!r}"
                ) from None


def _chances(link: str, chances: Tensor, value: Tensor, allowed: Tensor) -> str | None:
    """Where probabilities, `b x k`, are not those that follow from the numbers that decide."""
    most = 2 * allowed.amax(1, keepdim=True).expand_as(chances) + _TOLERANCE
    if link == CHANCE:
        return _first("predict_proba gives", chances, torch.cat([1 - value, value], 1), most)
    if link == EACH:
        each = value.sigmoid()
        total = each.sum(1, keepdim=True)
        plain = total[:, 0] > 1e-6  # the quotient of two tiny numbers says little
        return _first("predict_proba gives", chances[plain], (each / total)[plain], most[plain] / total[plain])
    assert link in (SIGMOID, SOFTMAX)
    found = (torch.cat([torch.zeros_like(value), value], 1) if link == SIGMOID else value).log_softmax(1)
    where = _first("predict_proba gives", chances, found.exp(), most)
    if where is not None:
        return where
    # A small chance tells the logits apart where a large one is 1 in any case. Of two, the first is 1 minus the
    # second, and tells nothing.
    telling = (chances > 1e-290) & (chances < 0.5)
    if chances.shape[1] == 2:
        telling[:, 0] = False
    logs = torch.where(telling, chances, 1.0).log()
    most = most + _TOLERANCE * (1 + logs.abs())
    return _first("predict_proba gives, as logarithms,", logs, torch.where(telling, found, 0.0), most)


def _batches(count: int) -> list[slice]:
    """All rows, in batches of each size that there is."""
    ends = list(itertools.accumulate(itertools.chain([0], itertools.islice(itertools.cycle(_BATCHES), count))))
    found = [slice(a, min(b, count)) for a, b in itertools.pairwise(ends) if a < count]
    return found + [slice(0, n) for n in _BATCHES if n <= count and n not in {s.stop - s.start for s in found}]


def _float64(values: Any) -> Tensor:
    return torch.from_numpy(np.array(values, np.float64, order="C"))


def _first(what: str, expected: Tensor, found: Tensor, allowed: Tensor) -> str | None:
    """The worst place where two values are farther apart than allowed, in words."""
    numbers, same = expected.isfinite() & found.isfinite(), expected.isfinite() == found.isfinite()
    excess = torch.where(numbers, (expected - found).abs() - allowed, torch.where(same, -1.0, torch.inf))
    if not excess.numel() or float(excess.max()) <= 0:
        return None
    row, column = divmod(int(excess.argmax()), excess.shape[1])
    return f"its {what} {float(expected[row, column]):.17g} where the network gives {float(found[row, column]):.17g}"


def _with_rounding(net: Network, x: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs at `x`, float64, and by how much another way of computing them may differ, `b x k` each."""
    cast = net.cast(torch.float64)
    values, sizes = cast.values(x), [x.abs()]
    for node, value in zip(cast.nodes[1:], values[1:]):
        sizes.append(compare.size(node.op, [sizes[j] for j in node.inputs], value))
    outputs = values[-1]
    return outputs, _TOLERANCE * outputs.abs().clamp(min=1) + compare.EXACT.on_the_way * sizes[-1]


__all__ = ["compared"]
