"""Small ONNX models for the tests, and what onnxruntime makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from elbowroom.network.graph import Network
from elbowroom.readers.onnx.model import read_onnx

onnxruntime.set_default_logger_severity(4)

KINDS = {np.float32: TensorProto.FLOAT, np.float64: TensorProto.DOUBLE, np.float16: TensorProto.FLOAT16}


def numbers(*shape: int, seed: int = 0, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def node(kind: str, inputs: str, outputs: str = "y", domain: str = "", **attributes: Any) -> onnx.NodeProto:
    """A node; names are separated by spaces, "-" is an input left out."""
    names = ["" if n == "-" else n for n in inputs.split()]
    return helper.make_node(kind, names, outputs.split(), name=f"{kind}_{outputs}", domain=domain, **attributes)


def model(
    nodes: Sequence[onnx.NodeProto],
    shape: Sequence[int | str | None],
    constants: dict[str, Any] | None = None,
    opset: int = 17,
    outputs: Sequence[tuple[str, int, Any]] = (("y", TensorProto.FLOAT, None),),
    kind: int = TensorProto.FLOAT,
    inputs: Sequence[tuple[str, int, Any]] = (),
) -> onnx.ModelProto:
    """A model that takes `x` of the given shape (and further `inputs`) and gives `y`, or the given outputs."""
    infos = [("x", kind, shape), *inputs]
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info(*i) for i in infos],
        [helper.make_tensor_value_info(*o) for o in outputs],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in (constants or {}).items()],
    )
    domains = {n.domain for n in nodes} - {""}
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in sorted(domains))]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8 if opset < 20 else 10)


def session(m: onnx.ModelProto | Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    given = str(m) if isinstance(m, Path) else m.SerializeToString()
    return onnxruntime.InferenceSession(given, options, providers=["CPUExecutionProvider"])


TYPES = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(uint8)": np.uint8,
}


def runtime(s: onnxruntime.InferenceSession, x: np.ndarray, output: str | None = None) -> np.ndarray:
    """onnxruntime's outputs, one input at a time, flat."""
    given = s.get_inputs()[0]
    shape = [1 if not isinstance(n, int) else n for n in given.shape]
    rows = x.reshape(-1, *shape).astype(TYPES[given.type])
    names = None if output is None else [output]
    return np.stack([np.asarray(s.run(names, {given.name: row})[0]).reshape(-1) for row in rows]).astype(np.float64)


def read(m: onnx.ModelProto, folder: Path, task: str | None = None) -> Network:
    path = folder / "model.onnx"
    path.write_bytes(m.SerializeToString())
    return read_onnx(path, task)


def agree(m: onnx.ModelProto, folder: Path, spread: float = 2.0, tolerance: float = 4e-6) -> Network:
    """Reads the model and compares it with onnxruntime, to `tolerance` of the largest output."""
    net = read(m, folder)
    x = spread * numbers(7, *net.input_shape, seed=1)
    x[0] = 0
    expected = runtime(session(m), x)
    found = net(x).double().numpy()
    assert found.shape == expected.shape
    assert np.abs(expected).max() > 0
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * (1 + np.abs(expected).max()))
    return net


def kinds(net: Network) -> list[str]:
    """The network's operations, in order."""
    return [n.op.name for n in net.nodes[1:]]
