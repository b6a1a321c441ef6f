"""`prove_arb`: a specification proved in balls, input by input."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from elbowroom.claim.hints import Hints
from elbowroom.claim.stated import Stated, well_formed
from elbowroom.claim.tree import Trees, leaves_of
from elbowroom.errors import UnsupportedError
from elbowroom.machine.arithmetic import refuse_other_arithmetic
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network
from elbowroom.proof.arb.affine import AFFINE, layer_of
from elbowroom.proof.arb.balls import BITS, flint, float_below, precision
from elbowroom.proof.arb.bounds import Bounds
from elbowroom.proof.arb.curves import CURVES, LACKS
from elbowroom.proof.arb.leaves import tree_below
from elbowroom.proof.arb.region import Region


def prove_arb(
    net: Network,
    region: Stated,
    rows: Tensor,
    offset: Tensor,
    group: Tensor,
    hints: Hints | None = None,
    trees: Trees | None = None,
) -> Tensor:
    """As `prove`: numbers below the specification's groups on the whole region, `b x g`; minus infinity: not proved.
    `trees`: of each input, which are tried as well."""
    flint()
    refuse_other_arithmetic(torch.device("cpu"))  # weights are read through the forward pass, which must keep them
    missing = [f"{n.name}: {n.op.name}{_why(type(n.op))}" for n in net.nodes[1:] if not _covered(n.op)]
    missing += [] if type(net) is Network else [type(net).__name__]
    if missing:
        raise UnsupportedError("the proof in ball arithmetic does not cover " + "; ".join(missing))
    region, rows, offset = well_formed(region.to("cpu"), rows.cpu(), offset.cpu(), group, net.n_inputs, net.n_outputs)
    leaves = leaves_of(trees or (), group, net, region)
    sensible = region.sensible().tolist()
    batch, groups = len(sensible), int(group.max()) + 1
    rows, offset = (t.expand(batch, *t.shape[1:]) for t in (rows, offset))
    out = torch.full((batch, groups), -torch.inf, dtype=torch.float64)
    with precision(BITS):
        layers = [layer_of(net, node) for node in net.nodes]
        for b in range(batch):
            if not sensible[b]:
                continue
            work = Bounds(net, layers, Region(region, b), hints or Hints())
            for t, value in enumerate(work.margins(rows[b].tolist(), offset[b].tolist())):
                g = int(group[t])
                out[b, g] = max(float(out[b, g]), float_below(value))
            roots = {(0, 0): work}
            for number, tree, parts in ((g, tree, parts) for k, g, tree, parts in leaves if k == b):
                how = tree.sharpened, tree.cases
                if how not in roots:
                    roots[how] = Bounds(net, layers, work.region, work.hints, None, *how)
                least = min(tree_below(roots[how], tree, parts, rows[b].tolist(), offset[b].tolist()))
                if least < math.inf:  # of no region all parts are empty
                    out[b, number] = max(float(out[b, number]), least)
    return out


def _covered(op: ops.Operation) -> bool:
    return type(op) in AFFINE or type(op) in CURVES or type(op) is ops.MaxPool


def _why(kind: type) -> str:
    return f" ({LACKS[kind]})" if kind in LACKS else ""
