"""The paper's on-the-fly gradient (appendix A, "Gradient Calculation"): bounds and derivatives in one sweep forward.

For the box `S_eps(x)` and parallel lines, the bounds of every layer are

    l = v + sum_j ( [M_j]_+ m1_j + [M_j]_- m2_j ),      u = v + sum_j ( [M_j]_- m1_j + [M_j]_+ m2_j ),

with one source j for the input (`M = I`, `m = -+eps`) and one per activation passed (`sigma(z) = D z + m`). In front of
a symbol, `g` stands for its derivative by eps. Every `g` follows from what the layer before left behind:

    past an affine operation W:   gM_j = W gM_j,   M_j = W M_j;
    past an activation:           gM_j = gD M_j + D gM_j,   M_j = D M_j,   and a new source with M = I, gM = 0, where
                                  gD = dD/dl gl + dD/du gu, and likewise for m1 and m2.

Nothing waits for the last layer, as back-propagation would. Two things differ from the paper's pseudo-code. It leaves
out the derivative of the input's m (`-+I`) and the `g` on its naive lines. And intercepts are here relative to the
network's own values v at x (see `relaxations`), so that phi is v, and `g phi` zero.

The price is `gM_j`, a tensor of third order, `b x chunk x n_j x n_i` for a chunk of input dimensions at a time. For
784-300-300-300-10 that is about 270 Gflop per input (540 where `W gD M` and `W D gM` are separate products, as the
paper writes them), against 0.7 for the same gradient in reverse mode (`linear`): this is meant for small networks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor

from elbowroom.arguments.inputs import batched
from elbowroom.arguments.tensors import Array
from elbowroom.errors import InputError, UnsupportedError
from elbowroom.network.graph import Network, Node
from elbowroom.network.operations import Operation, Shape
from elbowroom.search.bounds.maps import MAPS
from elbowroom.search.bounds.methods import Method, method_named
from elbowroom.search.bounds.planes import Relaxed
from elbowroom.search.bounds.relaxations import TABLE, row_of


class LayerGradient(NamedTuple):
    """One layer's bounds, `b x n_i`, and their derivatives by eps, `b x n_i x n_1`."""

    lower: Tensor
    upper: Tensor
    lower_gradient: Tensor
    upper_gradient: Tensor


@dataclass(frozen=True, eq=False)
class ForwardGradient:
    """The outputs' bounds (`b x k`) and their derivatives by eps (`b x k x n_1`).

    `layers`: the same for every layer that feeds an activation, and for the outputs, by the node's name.
    """

    lower: Tensor
    upper: Tensor
    lower_gradient: Tensor
    upper_gradient: Tensor
    layers: Mapping[str, LayerGradient]


def forward_gradient(
    net: Network, center: Tensor, eps: Array, method: str = "combined", chunk: int = 32
) -> ForwardGradient:
    """Bounds over the box `center -+ eps`, and their gradients by eps, in one sweep forward.

    `center`: `b x *input_shape`; `eps`: the same, or anything that broadcasts to it. `method`: "simple", "quadratic"
    or "combined". `chunk`: how many input dimensions are differentiated at a time; it bounds the memory, at
    `b * chunk * n_j * n_i` numbers per source j. Only for chains of affine operations and activations.

    >>> out = forward_gradient(net, x, 0.1)
    >>> out.lower_gradient[0, 3]             # how the lower bound of output 3 falls as each eps grows
    """
    chosen = method_named(method)
    if not chosen.parallel:
        raise InputError(f'the forward gradient is for "simple", "quadratic" and "combined" bounds, not {method!r}')
    if chunk < 1:
        raise InputError(f"chunk must be at least 1, got {chunk}")
    _refuse_unless_chain(net)
    center = torch.as_tensor(center)
    center = batched(net, center if center.is_floating_point() else center.to(net.dtype), "center").detach()
    eps = torch.as_tensor(eps, dtype=center.dtype, device=center.device).detach()
    try:
        eps = eps.expand_as(center)
    except RuntimeError:
        raise InputError(f"eps has shape {tuple(eps.shape)}, the inputs {tuple(center.shape)}") from None
    if not bool((eps >= 0).all() and torch.isfinite(eps).all() and torch.isfinite(center).all()):
        raise InputError("center and eps must be finite, and eps not negative")
    work = net.cast(center.dtype, center.device)
    # Chunks have nothing to do with each other. Each computes the values anew, at the price of one more dimension.
    with torch.no_grad():
        parts = [_sweep(work, center, eps, chosen, slice(c, c + chunk)) for c in range(0, net.n_inputs, chunk)]
    layers = {net.nodes[i].name: _joined([part[i] for part in parts]) for i in parts[0]}
    return ForwardGradient(*layers[net.nodes[-1].name], MappingProxyType(layers))


def _refuse_unless_chain(net: Network) -> None:
    wrong = [
        f"{node.name} ({node.op.name})"
        for i, node in enumerate(net.nodes)
        if i and not (node.inputs == (i - 1,) and _is_known(node))
    ]
    if wrong:
        raise UnsupportedError(
            "the forward gradient takes chains of affine operations and activations; not part of one: "
            + ", ".join(wrong)
        )


def _is_known(node: Node) -> bool:
    relaxed = TABLE.get(type(node.op))
    return type(node.op) in MAPS or (relaxed is not None and relaxed.univariate)


def _joined(parts: list[LayerGradient]) -> LayerGradient:
    """One layer's results, their chunks (`b x chunk x n_i`) put side by side."""
    lower, upper = (torch.cat([p[k] for p in parts], 1).transpose(1, 2) for k in (2, 3))
    return LayerGradient(parts[0].lower, parts[0].upper, lower, upper)


@dataclass(frozen=True, eq=False)
class _Dual:
    """A quantity, `b x n`, and its derivative by a chunk of eps, `b x chunk x n` (the paper's `g`)."""

    value: Tensor
    g: Tensor

    def __add__(self, other: _Dual) -> _Dual:
        return _Dual(self.value + other.value, self.g + other.g)

    def __sub__(self, other: _Dual) -> _Dual:
        return _Dual(self.value - other.value, self.g - other.g)

    def half(self) -> _Dual:
        return _Dual(self.value / 2, self.g / 2)

    def or_else(self, keep: Tensor, other: _Dual) -> _Dual:
        """This where `keep` is set, `other` elsewhere: the paper's products with indicator functions."""
        return _Dual(torch.where(keep, self.value, other.value), torch.where(keep[:, None], self.g, other.g))


class _Source(NamedTuple):
    """Something that varies freely, `m1 <= m <= m2` (`b x n_j`), and adds `M m` to the current layer.

    `M`: `b x n_j x n_i`, the transpose of the paper's, so that operations apply to its last axis as it stands.
    `gM`: `b x chunk x n_j x n_i`, or None for zero.
    """

    M: Tensor
    gM: Tensor | None
    m1: _Dual
    m2: _Dual

    def past_affine(self, linear: Callable[[Tensor], Tensor]) -> _Source:
        return self._replace(M=linear(self.M), gM=None if self.gM is None else linear(self.gM))

    def past_activation(self, D: _Dual) -> _Source:
        gM = D.g[:, :, None] * self.M[:, None]
        if self.gM is not None:
            gM.addcmul_(D.value[:, None, None], self.gM)
        return self._replace(M=self.M * D.value[:, None], gM=gM)

    def least(self) -> _Dual:
        """The smallest value of `M m`: `[M]_+ m1 + [M]_- m2`, `b x n_i`."""
        return self._extreme(self.m1, self.m2)

    def greatest(self) -> _Dual:
        """The largest value of `M m`: `[M]_+ m2 + [M]_- m1`, `b x n_i`."""
        return self._extreme(self.m2, self.m1)

    def _extreme(self, positive: _Dual, negative: _Dual) -> _Dual:
        m = torch.where(self.M > 0, positive.value[..., None], negative.value[..., None])  # b x n_j x n_i
        g = positive.g @ self.M.clamp_min(0) + negative.g @ self.M.clamp_max(0)
        if self.gM is not None:
            g = g + torch.einsum("bcji,bji->bci", self.gM, m)
        return _Dual((self.M * m).sum(1), g)


def _sweep(net: Network, center: Tensor, eps: Tensor, method: Method, dims: slice) -> dict[int, LayerGradient]:
    """Bounds and derivatives by the input dimensions `dims` (`b x chunk x n_i`) of the layers asked for."""
    b, n = len(center), net.n_inputs
    identity = torch.eye(n, dtype=center.dtype, device=center.device)
    v, radius = center.flatten(1), _Dual(eps.flatten(1), identity[dims].expand(b, -1, -1))
    nothing = _constant(torch.zeros_like(v), radius)
    lower, upper = _constant(v, radius) - radius, _constant(v, radius) + radius
    sources = [_Source(identity.expand(b, -1, -1), None, nothing - radius, radius)] if method.linear else []
    found: dict[int, LayerGradient] = {}
    wanted = {*net.preactivations, len(net.nodes) - 1}
    for i, node in enumerate(net.nodes):
        if i:
            shape, op, before = net.nodes[i - 1].shape, node.op, v
            v = op(v.reshape(-1, *shape)).flatten(1)
            affine = MAPS.get(type(op))
            if affine is not None:
                linear = _on_last_axis(affine.linear, op, shape)
                absolute = _on_last_axis(affine.absolute, op, shape)
                mid, radius = (lower + upper).half(), (upper - lower).half()
                mid = _Dual(op(mid.value.reshape(-1, *shape)).flatten(1), linear(mid.g))
                radius = _Dual(absolute(radius.value), absolute(radius.g))
                sources = [s.past_affine(linear) for s in sources]
                lower, upper = mid - radius, mid + radius
            else:
                row = row_of(node)
                if sources:
                    D, m1, m2 = _lines(row, op, lower, upper, before, shape)
                    fresh = torch.eye(node.size, dtype=v.dtype, device=v.device).expand(b, -1, -1)
                    sources = [*(s.past_activation(D) for s in sources), _Source(fresh, None, m1, m2)]
                lower, upper = _interval(row, op, lower, upper, shape)
            if sources and i in wanted:
                lower, upper = _meet(lower, upper, v, sources, method)
        if i in wanted:
            found[i] = LayerGradient(lower.value, upper.value, lower.g, upper.g)
    return found


def _meet(lower: _Dual, upper: _Dual, v: Tensor, sources: list[_Source], method: Method) -> tuple[_Dual, _Dual]:
    """The linear bounds, with `intervals` the better of them and the naive ones, end by end."""
    least, greatest = _constant(v, lower), _constant(v, upper)
    for source in sources:
        least, greatest = least + source.least(), greatest + source.greatest()
    if method.intervals:
        least = lower.or_else(lower.value > least.value, least)
        greatest = upper.or_else(upper.value <= greatest.value, greatest)
    # Bounds that meet in one point may cross by rounding.
    ordered = least.value <= greatest.value
    return least.or_else(ordered, greatest), greatest.or_else(ordered, least)


def _lines(
    row: Relaxed, op: Operation, lower: _Dual, upper: _Dual, z: Tensor, shape: Shape
) -> tuple[_Dual, _Dual, _Dual]:
    """D, m1 and m2 (relative to `z`), with their derivatives by the chain rule."""

    def lines(l: Tensor, u: Tensor) -> tuple[Tensor, ...]:
        found = row.planes(op, [l], [u], [z.reshape(-1, *shape)], parallel=True)
        return found.terms[0].lower_slope, found.lower, found.upper

    D, m1, m2 = _elementwise(lines, lower, upper, shape)
    return D, m1, m2


def _interval(row: Relaxed, op: Operation, lower: _Dual, upper: _Dual, shape: Shape) -> tuple[_Dual, _Dual]:
    """The naive bounds past an activation: `sigma(l)` and `sigma(u)` where it is monotone."""
    low, high = _elementwise(lambda l, u: row.interval(op, [l], [u]), lower, upper, shape)
    return low, high


def _elementwise(
    f: Callable[[Tensor, Tensor], tuple[Tensor, ...]], lower: _Dual, upper: _Dual, shape: Shape
) -> list[_Dual]:
    """`f(l, u)` with `g f = df/dl gl + df/du gu`. Entry k of a result depends on entry k of `l` and `u` alone,
    so the derivative of the sum of all entries holds every entry's own."""
    with torch.enable_grad():
        l, u = (t.value.reshape(-1, *shape).detach().requires_grad_() for t in (lower, upper))
        values = f(l, u)
        results = []
        for value in values:
            by_l, by_u = torch.autograd.grad(value.sum(), (l, u), retain_graph=True, materialize_grads=True)
            g = by_l.flatten(1)[:, None] * lower.g + by_u.flatten(1)[:, None] * upper.g
            results.append(_Dual(value.detach().flatten(1), g))
    return results


def _constant(t: Tensor, like: _Dual) -> _Dual:
    """`t`, which does not depend on eps."""
    return _Dual(t, t.new_zeros(*like.g.shape[:2], t.shape[1]))


def _on_last_axis(f: Callable[..., Tensor], op: Operation, shape: Shape) -> Callable[[Tensor], Tensor]:
    """The linear map `f(op, x)` on the last axis of a tensor, which holds inputs of `shape`."""
    return lambda t: f(op, t.reshape(-1, *shape)).reshape(*t.shape[:-1], -1)
