"""Random ONNX models, over operators, attributes, opsets, batch sizes: each is refused, or is what onnxruntime runs."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from hypothesis import given

from elbowroom.errors import ElbowroomError
from elbowroom.network.graph import Network
from onnx_cases import IMAGES, Case, cases_of_onnx
from onnx_support import read, session
from support import cases, rounding

SCALES = (1.0, 50.0, 0.01)
MISREAD = ("read differently", "may be damaged", "cannot be compared with the model")
seen: Counter[str] = Counter()  # what became of the models


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


def optimised(m: onnx.ModelProto) -> list[onnxruntime.InferenceSession]:
    """The model as people run it, unless it is refused then."""
    try:
        return [onnxruntime.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"])]
    except Exception:
        return []


def run(s: onnxruntime.InferenceSession, x: np.ndarray) -> np.ndarray | None:
    try:
        return np.asarray(s.run(None, {"x": x})[0])
    except Exception:
        return None


def near(found: np.ndarray, expected: np.ndarray, allowed: np.ndarray) -> bool:
    """Rows that agree; where both are not finite they agree as well."""
    if found.shape != expected.shape:
        return False
    both = ~np.isfinite(found) & ~np.isfinite(expected)
    with np.errstate(all="ignore"):
        return bool((both | (np.abs(found - expected) <= allowed)).all())


def independent(y: np.ndarray, alone: np.ndarray, allowed: np.ndarray) -> bool:
    """Whether an output holds, along some axis, what each input gets alone: `b x n`."""
    count = len(alone)
    views = [np.moveaxis(y, d, 0).reshape(count, -1) for d in range(y.ndim) if y.shape[d] == count]
    return any(near(v.astype(np.float64), alone, allowed) for v in views)


def ended(case: Case, outputs: np.ndarray) -> np.ndarray:
    """What the model makes of the logits at its end, `b x n`."""
    shifted = outputs - outputs.max(1, keepdims=True)
    total = np.log(np.exp(shifted).sum(1, keepdims=True))
    return {"Softmax": np.exp(shifted - total), "LogSoftmax": shifted - total}.get(case.end, outputs)


def expected(case: Case, net: Network, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What the network gives for each input, `b x n`, and how far rounding may be off it, `b x 1`."""
    rows = torch.from_numpy(x.astype(np.float64)).reshape(-1, *net.input_shape)
    values = net.cast(torch.float64).values(rows)
    kind = torch.float64 if case.dtype == np.float64 else torch.float32
    loose = rounding(net, values, values, kind)[-1].amax(1, keepdim=True).numpy()
    y = ended(case, values[-1].numpy())
    size = np.abs(y).max(1, keepdims=True)
    approximate = {np.float64: 1e-9, np.float32: 4e-6, np.float16: 4e-3}[case.dtype]  # functions in onnxruntime
    return y, 4 * loose * (2.0**13 if case.dtype == np.float16 else 1) + approximate * (size + 0.1)


def examine(case: Case, folder: Path) -> str:
    """Reads a model and compares; returns what became of it."""
    m = case.proto(case.at)
    plain = session(m)
    sessions = [plain, *optimised(m)]
    free, rng = case.input[0] == "n", np.random.default_rng(0)
    count = 1 if free or len(case.input) < 2 else int(case.input[0])  # the batch size it is made for
    shape = [count, *case.input[1:]] if count > 1 else [3, *case.input[1 if free else 0 :]]
    scales = np.resize(SCALES, shape[0]).reshape(-1, *[1] * (len(shape) - 1))
    x = (rng.standard_normal(shape) * scales).astype(case.dtype)
    try:
        net = read(m, folder)
    except ElbowroomError as error:
        assert not any(text in str(error) for text in MISREAD), error
        if "depends on the other inputs" in str(error):
            assert not separate(plain, x) or case.end, error  # an end may take out what the logits have in common
            return "refused: inputs of a batch depend on each other"
        return f"refused: {type(error).__name__}"
    assert net.about.origin is not None and any(s.startswith("compared") for s in net.about.origin.compared)
    y, allowed = expected(case, net, x)
    for s in sessions:
        if count > 1:
            found = run(s, x)
            assert (found is not None and independent(found, y, allowed)) or case.end == "ArgMax", (found, y)
            continue
        for i in range(3):
            found = run(s, x[i : i + 1] if free else x[i])
            if case.end == "ArgMax":
                assert found is not None and found.size == 1
                assert y[i, int(found.reshape(()))] >= y[i].max() - 2 * allowed[i]
            else:
                assert found is not None and near(found.reshape(1, -1), y[i : i + 1], allowed[i : i + 1]), (found, y[i])
    if free:
        assert separate(plain, x), "the inputs of a batch depend on each other"
        cannot = [b for b in (2, 3) if run(plain, x[:b]) is None]
        assert bool(cannot) == any("cannot be run with" in note for note in net.about.notes), net.about.notes
        return "read, for one input at a time" if cannot else "read, free batch"
    return "read, fixed batch"


def separate(s: onnxruntime.InferenceSession, x: np.ndarray) -> bool:
    """Whether onnxruntime gives each input of a batch what it gets alone; inputs that it cannot run have no say."""
    alone = [run(s, row[None]) for row in x]
    for b in (2, 3):
        y = run(s, x[:b])
        if y is not None:
            each = np.stack([a.reshape(-1) for a in alone[:b] if a is not None]).astype(np.float64)
            if not independent(y, each, 1e-4 * (np.abs(each).max(1, keepdims=True) + 1e-6)):
                return False
    return True


@cases(2.4)
@given(case=cases_of_onnx())
def test_random_models(case: Case, folder: Path) -> None:
    seen[examine(case, folder)] += 1


@cases(0.4)
@given(case=cases_of_onnx(sorted(IMAGES, key=lambda f: f.__name__), most=1))
def test_random_windows(case: Case, folder: Path) -> None:
    seen[examine(case, folder)] += 1


@cases(0.4)
@given(case=cases_of_onnx())
def test_random_models_without_onnxruntime(case: Case, folder: Path) -> None:
    """The reference implementation alone finds the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "onnxruntime", None)
        m = case.proto(case.at)
        try:
            net = read(m, folder)
        except ElbowroomError as error:
            assert not any(text in str(error) for text in MISREAD), error
            return
        assert net.about.origin is not None
        assert "not compared with onnxruntime: it is not installed" in net.about.origin.compared
    if case.input[0] == "n":
        shape = [3, *case.input[1:]]
        assert separate(session(m), np.random.default_rng(0).standard_normal(shape).astype(case.dtype))
