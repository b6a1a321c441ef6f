"""Operations are whole or refused: over fields that make sense and fields that do not, whatever is built means one
thing to the forward pass, to its linear algebra, to its file and to the proof; everything else is an `InputError`."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import event, given
from torch import Tensor

import elbowroom as er
from elbowroom.claim.stated import Stated
from elbowroom.errors import InputError, UnsupportedError
from elbowroom.network import operations as ops
from elbowroom.network.file import OPERATIONS, load_network, network_hash, save_network
from elbowroom.network.graph import Graph, Network, Node
from elbowroom.network.operations.fields import FIELDS
from elbowroom.proof.kernel.prove import refuse_uncovered
from elbowroom.proof.kernel.relaxed import windows
from elbowroom.proof.kernel.rows import AFFINE
from elbowroom.proof.kernel.walk import StrictBounds
from operation_cases import KINDS, PLAUSIBLE, SHAPES, fitting
from support import cases


def test_every_field_has_a_declared_type() -> None:
    declared = {str(f.type) for kind in OPERATIONS.values() for f in dataclasses.fields(kind)}
    assert declared <= set(FIELDS) and declared - {"Shape"} <= set(PLAUSIBLE)


@cases(16)
@given(st.data())
def test_operations_are_whole_or_refused(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(KINDS))
    shape = data.draw(st.sampled_from(SHAPES))
    fields = data.draw(fitting(kind, shape))
    inputs = data.draw(st.sampled_from([1, 1, 1, 2, 3])) if kind in (ops.Add, ops.Concat) else 1
    try:
        op = kind(**fields)
        graph = Graph(shape)
        net = graph.network(graph.add(op, *[0] * inputs))
    except InputError:
        event(f"{kind.__name__} refused")
        return
    event(f"{kind.__name__} built")
    x = torch.randn(3, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    wide = net.cast(torch.float64)
    values = wide.values(x)
    # One meaning: the declared shape, whatever the batch, and inputs that do not meet.
    for node, value in zip(wide.nodes, values):
        assert tuple(value.shape) == (3, *node.shape)
    assert torch.allclose(torch.cat([wide.values(row[None])[-1] for row in x]), values[-1])
    assert wide.values(x[:0])[-1].shape == (0, net.n_outputs)
    op = wide.nodes[1].op
    if isinstance(op, ops.Affine):
        _same_linear_map(op, [shape] * inputs, wide.nodes[1].shape)
    if isinstance(op, ops.MaxPool):
        _same_maxima(op, x)
    path = save_network(net, tmp_path_factory.mktemp("net") / "net.elbowroom")
    again = load_network(path)
    assert network_hash(again) == network_hash(net)
    assert torch.equal(again.cast(torch.float64).values(x)[-1], values[-1])
    _proved_intervals(net, x)


def _same_linear_map(op: ops.Affine, given: list[ops.Shape], out: ops.Shape) -> None:
    generator = torch.Generator().manual_seed(2)
    xs = [torch.randn(1, *s, dtype=torch.float64, generator=generator) for s in given]
    a = torch.randn(1, *out, dtype=torch.float64, generator=generator)
    zero = [torch.zeros_like(x) for x in xs]
    moved, row = op(*xs) - op(*zero), AFFINE[type(op)]
    back = row.back(op, a, given)
    products = sum((b * x).sum() for b, x in zip(back, xs))
    assert torch.allclose((a * moved).sum(), products, atol=1e-9)
    assert bool((row.sizes(op, *(x.abs() for x in xs)) + 1e-9 >= moved.abs()).all())


def _same_maxima(op: ops.MaxPool, x: Tensor) -> None:
    seen = windows(op, op.output_shape(tuple(x.shape[1:])), tuple(x.shape[1:]))
    flat = torch.cat([x.flatten(2), x.new_full((*x.shape[:2], 1), -torch.inf)], -1)
    assert torch.equal(flat[:, :, seen].amax(-1), op(x).flatten(2))


def _proved_intervals(net: Network, x: Tensor) -> None:
    """The strict check's intervals hold all values at corners and points of a box."""
    low, high = x.amin(0), x.amax(0)
    area = Stated(low.flatten()[None], high.flatten()[None])
    try:
        refuse_uncovered(net)
    except UnsupportedError as error:
        assert "padding alone" in str(error) or "variance plus eps" in str(error)
        return
    bounds = StrictBounds(net.cast(torch.float64), area, parallel=False)
    n = net.n_inputs
    corners = itertools.islice(itertools.product((False, True), repeat=n), 64)
    points = [torch.where(torch.tensor(c), high.flatten(), low.flatten()) for c in corners]
    points += list(low.flatten() + torch.rand(64, n, dtype=torch.float64) * (high - low).flatten())
    found = net.cast(torch.float64).values(torch.stack(points).reshape(-1, *net.input_shape))
    for i, value in enumerate(found):
        slack = 1e-12 * (1 + value.abs().amax())
        assert bool((bounds.lower[i] - slack <= value).all()) and bool((value <= bounds.upper[i] + slack).all())


# --- a network owns its numbers


class Smallest(ops.MaxPool):
    def __call__(self, *xs: Tensor) -> Tensor:
        return -super().__call__(-xs[0])


class Negative(ops.ReLU):
    def __call__(self, *xs: Tensor) -> Tensor:
        return -super().__call__(*xs)


class Doubled(ops.Linear):
    def __call__(self, *xs: Tensor) -> Tensor:
        return 2 * super().__call__(*xs)


SUBCLASSES: dict[str, tuple[ops.Operation, ops.Shape]] = {
    "max-pooling": (Smallest((2,), (2,)), (1, 2)),
    "activation": (Negative(), (2,)),
    "affine": (Doubled(torch.eye(2)), (2,)),
}


@pytest.mark.parametrize("name", list(SUBCLASSES))
@pytest.mark.parametrize("arithmetic", ["float64", "float32", "arb"])
def test_a_subclass_is_unknown_never_taken_for_its_parent(name: str, arithmetic: str) -> None:
    op, shape = SUBCLASSES[name]
    head = torch.tensor([[1.0] * 2, [0.0] * 2])[:, : math.prod(op.output_shape(shape))]
    net = Network.chain(shape, [op, ops.Reshape((-1,)), ops.Linear(head, torch.tensor([0.0, 0.5]))])
    x = torch.tensor([1.0, 0.0], dtype=torch.float64).reshape(1, *shape)
    with pytest.raises(er.UnsupportedError, match=type(op).__name__):
        if arithmetic == "arb":
            pytest.importorskip("flint")
            from elbowroom.proof.arb import prove_arb

            point, rows = x.flatten(1), torch.tensor([[[1.0, -1.0]]], dtype=torch.float64)
            prove_arb(net, Stated(point, point), rows, torch.zeros(1, 1), torch.zeros(1, dtype=torch.int64))
        else:
            er.verify(net, x, x, labels=0, deployed="float32" if arithmetic == "float32" else None)


@pytest.mark.parametrize("deployed", [None, "float32"])
def test_parameters_are_copied_in(deployed: str | None) -> None:
    weight = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    net = Network.chain((2,), [ops.Linear(weight)])
    x = torch.tensor([[1.0, 0.0]])
    before = network_hash(net)
    assert er.certify(net, x, deployed=deployed).labels.tolist() == [0]
    weight.neg_()
    certs = er.certify(net, x, precision="float64", deployed=deployed)
    assert network_hash(net) == before == certs.settings["network_hash"]
    assert certs.labels.tolist() == [0] == net.decide(net(x)).tolist() and bool(er.check(certs))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_casts_cannot_go_stale(dtype: torch.dtype) -> None:
    """Whoever reaches into a network and changes a number gets hash, forward pass and proof of the new one."""
    net = Network.chain(
        (2,), [ops.Linear(torch.eye(2, dtype=dtype)), ops.ReLU(), ops.Linear(torch.eye(2, dtype=dtype))]
    )
    x = torch.tensor([[1.0, 0.5]])
    old = er.certify(net, x)
    net.nodes[1].op.weight.data.copy_(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
    for precision in ("float32", "float64"):
        certs = er.certify(net, x, precision=precision)
        assert certs.labels.tolist() == [1] == net.decide(net(x)).tolist()
        assert certs.settings["network_hash"] == network_hash(net) != old.settings["network_hash"]
        assert bool(er.check(certs))
    assert bool(er.verify(net, x, x, labels=1)) and not bool(er.verify(net, x, x, labels=0))
    with pytest.raises(InputError, match="hash"):
        er.check(old)


def test_a_network_shares_nothing_with_its_maker(tmp_path: Any) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(2, 2))
    loaded = er.load(module, input_shape=(2,))
    parameter = torch.nn.Parameter(torch.eye(2))
    built = Network.chain((2,), [ops.Linear(parameter, torch.zeros(4)[::2])])
    wrapped = Network(built.nodes, "min")
    with torch.inference_mode():
        thought = Network.chain((2,), [ops.Linear(torch.eye(2))])
    for net in (loaded, built, wrapped, thought):
        for tensor in (t for node in net.nodes for t in node.op.tensors().values()):
            assert type(tensor) is Tensor and not tensor.requires_grad and not tensor.is_inference()
            assert tensor.is_contiguous() and tensor.device.type == "cpu"
    storages = [t.data_ptr() for net in (loaded, built, wrapped) for n in net.nodes for t in n.op.tensors().values()]
    theirs = [t.data_ptr() for t in (*module.parameters(), parameter)]
    assert len({*storages, *theirs}) == len(storages) + len(theirs)


def test_networks_are_validated_however_they_are_built() -> None:
    good = Network.chain((3,), [ops.Linear(torch.ones(2, 3))])
    start, node = good.nodes
    bent = ops.MaxPool((2,), (2,))
    object.__setattr__(bent, "stride", ())
    for nodes, words in (
        ((node,), "first node"),
        ((start, dataclasses.replace(node, shape=(3,))), "shape is given as"),
        ((start, dataclasses.replace(node, inputs=(1,))), "earlier nodes"),
        ((start, dataclasses.replace(node, inputs=(0, 0))), "does not fit"),
        ((start, Node(ops.Linear(torch.full((2, 3), math.nan)), (0,), (2,), "bad")), "NaN"),
        ((Node(ops.Input((1, 4)), (), (1, 4), "in"), Node(bent, (0,), (1, 2), "bent")), "stride"),
    ):
        with pytest.raises(InputError, match=words):
            Network(nodes)
