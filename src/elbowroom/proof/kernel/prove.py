"""`prove`: margins proved on a region, by the strict check. What `certify`, `verify` and `check` all rest on."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from elbowroom.claim.hints import Hints
from elbowroom.claim.stated import Stated, well_formed
from elbowroom.claim.tree import Leaf, Tree, Trees, leaves_of
from elbowroom.errors import InputError, UnsupportedError
from elbowroom.machine.arithmetic import refuse_other_arithmetic
from elbowroom.machine.torch_modes import CUDNN_OFF
from elbowroom.network.graph import Network
from elbowroom.proof.kernel import float32
from elbowroom.proof.kernel.leaves import trees_below
from elbowroom.proof.kernel.relaxed import RELAXED
from elbowroom.proof.kernel.rows import AFFINE
from elbowroom.proof.kernel.selfcheck import refuse_other_maps
from elbowroom.proof.kernel.walk import StrictBounds

DEPLOYED = (None, "float32")


def prove(
    net: Network,
    region: Stated,
    rows: Tensor,
    offset: Tensor,
    group: Tensor,
    hints: Hints | None = None,
    deployed: str | None = None,
    trees: Trees | None = None,
) -> Tensor:
    """Numbers below the specification's groups on the whole region, `b x g`; where all are positive it is proved.

    `rows`: `b x t x k` (or `1 x ...`), `offset`: `b x t`, `group`: `t`; taken as exact numbers.
    The claim is about the network in real arithmetic, its stored parameters taken as exact; with `deployed`
    "float32", about that network executed in float32. `trees`: of each input, by the number of their group, trees that
    cut its region into parts; a group is proved on the whole or part by part, whichever gives more.
    """
    refuse_uncovered(net, deployed)
    hints = hints or Hints()
    device = rows.device
    region, rows, offset = well_formed(region, rows, offset, group, net.n_inputs, net.n_outputs)
    refuse_other_arithmetic(device)
    leaves = leaves_of(trees or (), group, net, region)
    work = net.exact(device)
    noise = float32.Float32Noise(work) if deployed else None
    # Direct sums only: cuDNN may choose transforms (FFT, Winograd) whose rounding is another matter.
    with torch.no_grad(), CUDNN_OFF.hold():
        bounds = StrictBounds(work, region, hints.parallel, noise, hints.hidden)
        found = bounds.margins(rows, offset, hints.logits)
        out = found.new_full((len(found), int(group.max()) + 1), -torch.inf)
        out = out.scatter_reduce(1, group.expand_as(found), found, "amax")
        for (b, sharpened, cases, _), alike in _alike(leaves).items():
            root, place = bounds, b
            if sharpened or cases:
                own = region.take(torch.tensor([b], device=device))
                root = StrictBounds(work, own, hints.parallel, noise, hints.hidden, sharpened=sharpened, cases=cases)
                place = 0
            trees_ = [(tree, parts) for _, tree, parts in alike]
            below = trees_below(root, place, hints.hidden, trees_, rows[b % len(rows)], offset[b % len(offset)])
            for (number, _, _), of_leaves in zip(alike, below):
                least = of_leaves.min()
                # Of no region all parts are empty.
                out[b, number] = torch.maximum(out[b, number], torch.where(torch.isfinite(least), least, -torch.inf))
        # Of a region that is none (corners crossed, NaN) everything would be true; nothing is proved.
        good = region.sensible() if noise is None else region.sensible() & region.executable()
        return torch.where(good[:, None], out, -torch.inf)


def _alike(
    leaves: Sequence[tuple[int, int, Tree, list[Leaf]]],
) -> dict[tuple[int, int, int, bool], list[tuple[int, Tree, list[Leaf]]]]:
    """Trees that share bounds: by their input, `sharpened`, `cases` and `again`; of each its group, itself and its
    leaves."""
    found: dict[tuple[int, int, int, bool], list[tuple[int, Tree, list[Leaf]]]] = {}
    for b, number, tree, parts in leaves:
        found.setdefault((b, tree.sharpened, tree.cases, tree.again), []).append((number, tree, parts))
    return found


def refuse_uncovered(net: Network, deployed: str | None = None) -> None:
    """Raises `UnsupportedError`, naming every node, where nothing could be proved of the network, on any region."""
    if deployed not in DEPLOYED:
        raise InputError(f'deployed must be None or "float32", got {deployed!r}')
    if type(net) is not Network:
        raise UnsupportedError(f"the strict check does not cover {type(net).__name__}, only Network itself")
    reasons = _unfit(net)
    if reasons:
        raise UnsupportedError("the strict check does not cover " + "; ".join(reasons))
    refuse_other_maps(net)
    if deployed:
        float32.refuse_unfit(net)


def _unfit(net: Network) -> list[str]:
    """Reasons, node by node, why the analysis does not cover the network."""
    reasons = []
    for node in net.nodes[1:]:
        op, shapes = node.op, [net.nodes[j].shape for j in node.inputs]
        why: str | None = f"{op.name} is an operation that it does not know"
        if type(op) in AFFINE:
            why = AFFINE[type(op)].unfit(op)
        elif type(op) in RELAXED:
            why = RELAXED[type(op)].unfit(op, node.shape, shapes)
        if why is not None:
            reasons.append(f"{node.name}: {why}")
    return reasons
