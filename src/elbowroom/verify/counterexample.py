"""Counterexamples: looked for by descent, and believed only when the strict check proves them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from elbowroom.claim.query import Case, box_query
from elbowroom.claim.specification import Specification
from elbowroom.claim.stated import Stated
from elbowroom.network.graph import Network
from elbowroom.proof.kernel.prove import prove
from elbowroom.search.attack import pgd

FIRST_STEP, LAST_STEP = 0.3, 0.001  # of the descent, as shares of the box's width


@dataclass(frozen=True, eq=False)
class Counterexample:
    """An input of the box whose outputs are unsafe, by a proof in real arithmetic.

    Attributes:
        x: The input, `*input_shape`, float64.
        outputs: What the network computes there in float64, `k`.
        clause: Which clause of the case holds.
        margin: Each literal of it holds with at least this much to spare.
        float32: Whether the network evaluated in float32, at the input rounded to float32, shows it too.
    """

    x: Tensor
    outputs: Tensor
    clause: int
    margin: float
    float32: bool


def starting_points(lower: Tensor, upper: Tensor, count: int) -> Tensor:
    """Points of a box, `count x *s`: the midpoint, then corners and points inside in turn; the same ones every time."""
    generator = torch.Generator().manual_seed(0)
    share = torch.rand(count, *lower.shape, generator=generator, dtype=lower.dtype).to(lower.device)
    share[1::2] = share[1::2].round()
    share[0] = 0.5
    return lower + share * (upper - lower)


def descend(
    net: Network,
    spec: Specification,
    lower: Tensor,
    upper: Tensor,
    start: Tensor,
    group: Tensor,
    steps: int,
    deadline: float = torch.inf,
) -> tuple[Tensor, Tensor]:
    """Moves each point downhill in the margin of its group, inside its box: the lowest seen, and their margins.

    `lower`, `upper`, `start`: `m x *input_shape`, of the network's type; `group`: `m`; `spec`: of each point, or one of
    all. Steps are along the signs of the gradient, `steps` of them or as many as there is time for until `deadline`
    (monotonic), one at least.
    """
    best, least = start.clone(), start.new_full((len(start),), torch.inf)

    def value(x: Tensor) -> tuple[Tensor, Tensor]:
        margin = spec.margins(net.values(x)[-1]).gather(1, group[:, None]).squeeze(1)
        return -margin.sum(), margin.detach()

    def seen(x: Tensor, margin: Tensor) -> None:
        nonlocal best, least
        better = margin < least
        best[better], least[better] = x[better], margin[better]

    def lengths() -> Iterator[Tensor]:
        for k, share in enumerate(torch.logspace(0, 1, steps + 1, base=LAST_STEP / FIRST_STEP).tolist()):
            if k > 1 and time.monotonic() > deadline:
                return
            yield FIRST_STEP * share * (upper - lower)

    with torch.enable_grad():
        pgd(value, start, lower, upper, lengths(), seen)
    return best, least


def confirm(net: Network, case: Case, x: Tensor, clause: int) -> Counterexample | None:
    """The counterexample at `x` (`n`), moved into the case's box, if the strict check proves it to be one."""
    low, high = case.around(x)
    spec = case.violation(clause, net.n_outputs)
    margins = prove(net, Stated(low[None], high[None]), spec.rows, spec.offset, spec.group)
    if not bool((margins > 0).all()):
        return None
    point = low.reshape(1, *net.input_shape)
    net.must_agree(point)
    with torch.no_grad():
        outputs = net(point)[0]
        rough = net.cast(torch.float32).values(point.float())[-1]
    seen = spec.margins(rough.double()) >= 0
    return Counterexample(point[0], outputs, clause, float(margins.min()), bool(seen.all()))


def confirming(
    net: Network, lower: Tensor, upper: Tensor, spec: Specification
) -> Callable[[int, Tensor, int], Counterexample | None]:
    """From the number of a box, a point of it (`n`) and a group of the specification to the counterexample there, if it
    is proved to be one. `lower`, `upper`: corners, `b x *input_shape`; `spec`: theirs."""
    cases: dict[int, Case] = {}

    def confirmed(k: int, x: Tensor, group: int) -> Counterexample | None:
        if k not in cases:
            one = spec.part(torch.tensor([k], device=lower.device)).cast(torch.float64, "cpu")
            cases[k] = box_query(lower[k], upper[k], one).cases[0]
        return confirm(net, cases[k], x, group)

    return confirmed
