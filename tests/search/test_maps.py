"""The search's linear maps against the forward pass: every type of operation, over whatever fields it can have."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from elbowroom.errors import InputError, UnsupportedError
from elbowroom.network import operations as ops
from elbowroom.network.file import OPERATIONS
from elbowroom.network.graph import Network
from elbowroom.network.operations import Operation, Shape
from elbowroom.search.bounds.api import bounds
from elbowroom.search.bounds.coefficients import Geometry, Patch, Places, own_windows, whole
from elbowroom.search.bounds.maps import MAPS
from elbowroom.search.bounds.relaxations import TABLE
from operation_cases import SHAPES, fitting
from support import cases

# Operations without a row, and why.
LACKS: dict[type[Operation], str] = {ops.Input: "the region itself"}
KINDS = sorted(MAPS, key=lambda kind: kind.__name__)


def test_every_operation_has_one_row_or_an_excuse() -> None:
    assert not set(MAPS) & set(TABLE)
    known = {*MAPS, *TABLE}
    assert set(OPERATIONS.values()) - known - set(LACKS) == set(), "neither a row nor an excuse"
    assert set(LACKS) & known == set() and set(LACKS) <= set(OPERATIONS.values()), "a stale excuse"
    assert all(issubclass(kind, ops.Affine) for kind in MAPS) and not any(issubclass(k, ops.Affine) for k in TABLE)


def matrices(op: Operation, shapes: list[Shape]) -> list[Tensor]:
    """The linear part by the forward pass alone, one `outputs x inputs` matrix per input."""
    found = []
    zeros = [torch.zeros(1, *s, dtype=torch.float64) for s in shapes]
    for k, shape in enumerate(shapes):
        n = math.prod(shape)
        units = [z.expand(n, *z.shape[1:]) for z in zeros]
        units[k] = torch.eye(n, dtype=torch.float64).reshape(n, *shape)
        found.append((op(*units) - op(*zeros)).reshape(n, -1).T)
    return found


@st.composite
def inputs_of(draw: st.DrawFn, kind: type[Operation], shape: Shape) -> list[Shape]:
    """Shapes of inputs; sums may broadcast, and what is joined may have several lengths."""
    if kind not in (ops.Add, ops.Concat):
        return [shape]
    found = [shape]
    for _ in range(draw(st.integers(0, 2))):
        if kind is ops.Add:
            other = tuple(n if draw(st.booleans()) else 1 for n in shape)[draw(st.integers(0, len(shape) - 1)) :]
        else:
            other = (draw(st.integers(1, 3)), *shape[1:]) if draw(st.booleans()) else shape
        found.append(other)
    return found


@pytest.mark.parametrize("options", [{}, {"groups": 2}, {"dilation": (2, 1)}, {"padding": (3, 0)}, {"stride": (1, 2)}])
@pytest.mark.parametrize("channels", [4, 18])
def test_transposed_convolutions(options: dict[str, Any], channels: int) -> None:
    """Of few channels and of many, which take other ways; in any mode of the caller."""
    draw = torch.Generator().manual_seed(0)
    groups = options.get("groups", 1)
    weight = torch.randn(channels, 4 // groups, 3, 2, generator=draw, dtype=torch.float64)
    told = {"stride": (1, 1), "padding": (1, 0), "dilation": (1, 1), **options}
    op = ops.Conv(weight, None, **told)
    x = torch.randn(3, 4, 7, 6, generator=draw, dtype=torch.float64, requires_grad=True)
    a = torch.randn(3, *op.output_shape((4, 7, 6)), generator=draw, dtype=torch.float64)
    (right,) = torch.autograd.grad(op(x), x, a)
    for _ in range(2):
        with torch.inference_mode():
            (found,) = MAPS[ops.Conv].adjoint(op, a, [(4, 7, 6)])
        torch.testing.assert_close(found, right, rtol=1e-12, atol=1e-12)
    tracked = a.clone().requires_grad_()
    (found,) = MAPS[ops.Conv].adjoint(op, tracked, [(4, 7, 6)])
    torch.testing.assert_close(
        torch.autograd.grad(found, tracked, x.detach())[0], op(x.detach()), rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_maps_are_those_of_the_forward_pass(kind: type[Operation]) -> None:
    built = 0

    @cases(12)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        nonlocal built
        shape = data.draw(st.sampled_from(SHAPES))
        shapes = data.draw(inputs_of(kind, shape))
        fields = data.draw(fitting(kind, shape))
        if kind is ops.Add:
            fields["signs"] = tuple(data.draw(st.sampled_from([1.0, -1.0, 0.5, -2.0])) for _ in shapes)
        try:
            op = kind(**fields)
            op.refuse_values()
            out = op.output_shape(*shapes)
        except InputError:
            return
        built += 1
        same_map(op.map_tensors(lambda t: t.double()), shapes, out, data)

    check()
    assert built >= 5


def same_map(op: Operation, shapes: list[Shape], out: Shape, data: st.DataObject) -> None:
    row, n = MAPS[type(op)], math.prod(out)
    wanted = matrices(op, shapes)
    back = row.adjoint(op, torch.eye(n, dtype=torch.float64).reshape(n, *out), shapes)
    assert [tuple(b.shape) for b in back] == [(n, *s) for s in shapes]
    generator = torch.Generator().manual_seed(1)
    xs = [torch.randn(2, *s, dtype=torch.float64, generator=generator) for s in shapes]
    linear = sum((m @ x.flatten(1).T for m, x in zip(wanted, xs)), torch.zeros(n, 2, dtype=torch.float64))
    absolute = sum((m.abs() @ x.flatten(1).abs().T for m, x in zip(wanted, xs)), torch.zeros_like(linear))
    for matrix, found in zip(wanted, back):
        torch.testing.assert_close(found.reshape(n, -1), matrix, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(row.linear(op, *xs), linear.T.reshape(2, *out), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(
        row.absolute(op, *(x.abs() for x in xs)), absolute.T.reshape(2, *out), rtol=1e-9, atol=1e-9
    )
    if row.elementwise:
        assert all(bool(((m != 0).sum(1) <= 1).all()) for m in wanted)
        assert row.broadcasts or all(bool(((m != 0).sum(0) <= 1).all()) for m in wanted)
    if row.matrix(op) is not None and len(out) == 1:
        torch.testing.assert_close(row.matrix(op), wanted[0], rtol=1e-12, atol=1e-12)
    same_over_windows(op, shapes, out, data, generator)


def same_over_windows(
    op: Operation, shapes: list[Shape], out: Shape, data: st.DataObject, generator: torch.Generator
) -> None:
    """Over windows, which may stick out of the node: the same coefficients, and none elsewhere; the same numbers."""
    row, dims = MAPS[type(op)], len(out) - 1
    if not 1 <= dims <= 3:
        return
    shift, size = (tuple(data.draw(st.integers(lo, hi)) for _ in range(dims)) for lo, hi in ((-2, 1), (1, 3)))
    at = Geometry((1,) * dims, shift, size)
    below = row.reach(op, at, out, shapes)
    if below is None:
        return
    place = Places(torch.stack([torch.randint(0, n, (2, 3), generator=generator) for n in out[1:]], -1))
    a = torch.randn(2, 3, *size, out[0], dtype=torch.float64, generator=generator)
    patch = Patch(a, place, at, clean=False)
    rows = whole(patch, out)
    wanted = row.adjoint(op, rows.flatten(0, 1), shapes)
    for found, full, shape in zip(row.adjoint_at(op, patch, out, shapes), wanted, shapes, strict=True):
        spread = whole(Patch(found, place, below, clean=False), shape)
        torch.testing.assert_close(spread, full.reshape(2, 3, *shape), rtol=1e-12, atol=1e-12)
    xs = [torch.randn(2, 3, *s, dtype=torch.float64, generator=generator) for s in shapes]
    pushed = row.linear(op, *(x.flatten(0, 1) for x in xs)).reshape(2, 3, *out)
    under = row.linear_at(op, [own_windows(x, place, below) for x in xs], patch, out)
    inside = own_windows(torch.ones_like(pushed), place, at)
    torch.testing.assert_close(under * inside, own_windows(pushed, place, at), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("length", range(5, 12))
@pytest.mark.parametrize("stride", [1, 2, 3, 5])
@pytest.mark.parametrize("dilation", [1, 2])
def test_pixels_that_no_stride_reaches(length: int, stride: int, dilation: int) -> None:
    weight = torch.randn(2, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for padding in (0, 1, 3):
        op = ops.Conv(weight, None, (stride,), (padding,), (dilation,))
        out = op.output_shape((3, length))
        unit = torch.eye(math.prod(out), dtype=torch.float64).reshape(-1, *out)
        (found,) = MAPS[ops.Conv].adjoint(op, unit, [(3, length)])
        torch.testing.assert_close(found.flatten(1), matrices(op, [(3, length)])[0])


class Doubled(ops.Linear):
    def __call__(self, *xs: Tensor) -> Tensor:
        return 2 * super().__call__(*xs)


class Negative(ops.ReLU):
    def __call__(self, *xs: Tensor) -> Tensor:
        return -super().__call__(*xs)


class Smallest(ops.MaxPool):
    def __call__(self, *xs: Tensor) -> Tensor:
        return -super().__call__(-xs[0])


@pytest.mark.parametrize("method", ["simple", "adaptive"])
@pytest.mark.parametrize(
    ("op", "shape"), [(Doubled(torch.eye(2)), (2,)), (Negative(), (2,)), (Smallest((2,), (1,)), (1, 3))]
)
def test_a_subclass_is_unknown_never_taken_for_its_parent(op: Operation, shape: Shape, method: str) -> None:
    net = Network.chain(shape, [op, ops.Reshape((-1,)), ops.Linear(torch.eye(2))])
    x = torch.zeros(1, *shape)
    with pytest.raises(UnsupportedError, match=f"{net.nodes[1].name}.*{type(op).__name__}"):
        bounds(net, x - 1, x + 1, method)
