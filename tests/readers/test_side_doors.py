"""Ways around the proof: each of these was once a false claim, or a crash."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import elbowroom as er
from elbowroom.network import operations as ops
from elbowroom.network.file import network_hash
from elbowroom.network.graph import Network
from torch_support import Calls


def test_a_specification_is_not_proved_of_logits_that_stand_for_probabilities(tmp_path: Path) -> None:
    net = er.load(nn.Sequential(nn.Linear(2, 3), nn.Softmax(-1)), input_shape=(2,))
    assert net.about.cut == "the softmax"
    x = torch.tensor([[1.0, 2.0]])
    sure = er.linear_specification([[1.0, 0.0, 0.0]], [-0.9])
    saved = er.load(er.save_network(net, tmp_path / "net.elbowroom"))
    for cut in (net, saved):
        for ask in (lambda n: er.certify(n, x, spec=sure), lambda n: er.verify(n, x, x, spec=sure)):
            with pytest.raises(er.InputError, match="was left off"):
                ask(cut)
        label = int(cut.decide(cut(x))[0])
        assert er.certify(cut, x, spec=er.label_in([label], 3)).status == ("certified",)


@pytest.mark.parametrize("mask", [-1e10, -1e30, torch.finfo(torch.float32).min])
def test_one_huge_output_excuses_no_other(mask: float) -> None:
    """Of a module that treats a batch of one in its own way, as the comparison must see."""

    def forward(m: nn.Module, x: Tensor) -> Tensor:
        y = m.layer(x)
        return (-y if x.shape[0] == 1 else y) + torch.tensor([0.0, 0.0, mask])

    with pytest.raises(er.UnsupportedError, match="depends on the size of its batch"):
        er.load(Calls(forward, layer=nn.Linear(2, 3)), input_shape=(2,))


def test_numbers_of_operations_are_rounded_by_one_rule() -> None:
    """0.1 as the end of a clamp, less 0.1 as a constant, is nothing."""
    net = er.load(Calls(lambda m, x: (x.clamp(0, 0.1) - 0.1) * 1e9 + x), input_shape=(2,))
    x = torch.full((1, 2), 0.5, dtype=torch.float64)
    assert float((net(x) - x).abs().max()) < 1e-6


def test_a_changed_network_is_never_proved_as_the_old_one() -> None:
    net = Network.chain((2,), [ops.LeakyReLU(0.5), ops.Linear(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))])
    x = torch.tensor([[-1.0, -0.6]])
    assert er.certify(net, x).labels.tolist() == [1]
    object.__setattr__(net.nodes[1].op, "slope", -0.5)
    fresh = Network(net.nodes)
    assert er.certify(net, x).labels.tolist() == fresh.decide(fresh(x)).tolist() == [0]
    net.nodes = (net.nodes[0], dataclasses.replace(net.nodes[1], op=ops.Tanh()), *net.nodes[2:])
    fresh = Network(net.nodes)
    certs = er.certify(net, x)
    assert certs.labels.tolist() == fresh.decide(fresh(x)).tolist() == [1]
    assert certs.settings["network_hash"] == network_hash(fresh)


def test_a_module_is_compared_as_it_is_called() -> None:
    with pytest.raises(er.UnsupportedError, match="computes something else"):
        er.load(Calls(lambda m, x: -x if torch.is_grad_enabled() else x + 1), input_shape=(2,))


def test_verify_compares_with_the_model_too() -> None:
    net = er.load(nn.Linear(2, 2), input_shape=(2,))
    assert net.source is not None
    asked: list[Tensor] = []
    net.source = dataclasses.replace(net.source, differs=lambda x: asked.append(x) or "they differ")
    with pytest.raises(er.UnsupportedError, match="they differ"):
        er.verify(net, torch.zeros(1, 2), torch.ones(1, 2))
    assert asked[0].tolist() == [[0.5, 0.5], [0.0, 0.0], [1.0, 1.0]]


def test_a_probability_is_not_taken_for_a_logit() -> None:
    module = Calls(lambda m, x: torch.sigmoid(m.layer(x)).clamp(1e-6, 1 - 1e-6), layer=nn.Linear(2, 1))
    with pytest.raises(er.InputError, match="as a probability does"):
        er.load(module, input_shape=(2,))


def test_ends_beyond_float32(tmp_path: Path) -> None:
    net = Network.chain((2,), [ops.Clip(0.0, 1e40), ops.Pad((1, 0), 1e39), ops.Slice(0, 1, 3)])
    assert er.certify(net, torch.tensor([[1.0, 2.0]])).status == ("certified",)


def test_a_frozen_feature_that_is_subnormal() -> None:
    net = Network.chain((2,), [ops.Linear(torch.eye(2))])
    x = torch.tensor([[5e-324, 1.0]], dtype=torch.float64)
    assert bool(er.check(er.certify(net, x, frozen=[True, False])))


@pytest.mark.parametrize(("shape", "own", "turned"), [((6, 6, 1), (1, 6, 6), False), ((1, 6, 6), (1, 6, 6), False)])
def test_an_axis_of_size_one_is_never_the_way_to_exchange_others(
    shape: tuple[int, ...], own: tuple[int, ...], turned: bool
) -> None:
    weight = torch.randn(3, 36, generator=torch.Generator().manual_seed(0))
    model = Network.chain(own, [ops.Reshape((36,)), ops.Linear(weight)])
    net = er.load(model, input_shape=shape, layout="NHWC")
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(4, *shape)))
    assert torch.allclose(net(x), model(x.reshape(4, *own)))


def test_sizes_that_leave_the_layout_open() -> None:
    model = Network.chain((4, 4, 4), [ops.Reshape((64,)), ops.Linear(torch.ones(2, 64))])
    with pytest.raises(er.InputError, match="not clear at which end"):
        er.load(model, input_shape=(4, 4, 4), layout="NHWC")


def test_a_function_with_the_name_of_an_operator(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    h, kind = onnx.helper, onnx.TensorProto.FLOAT
    function = h.make_function("", "Relu", ["a"], ["b"], [h.make_node("Neg", ["a"], ["b"])], [h.make_opsetid("", 17)])
    values = [h.make_tensor_value_info(name, kind, ["N", 2]) for name in ("x", "y")]
    graph = h.make_graph([h.make_node("Relu", ["x"], ["y"])], "g", values[:1], values[1:])
    model = h.make_model(graph, functions=[function], opset_imports=[h.make_opsetid("", 17)])
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(er.UnsupportedError, match="the name of a standard operator, 'Relu'"):
        er.load(tmp_path / "m.onnx")
