"""The third opinion: agrees with the float64 check, loses nothing against it, and is never above an exact margin."""

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from flint import arb, ctx
from torch import Tensor

from elbowroom.certify.api import certify
from elbowroom.claim.hints import Hints
from elbowroom.claim.specification import label_stays
from elbowroom.claim.stated import Stated
from elbowroom.errors import InputError, UnsupportedError
from elbowroom.network import operations as ops
from elbowroom.network.graph import Graph, Network
from elbowroom.proof.arb import prove_arb
from elbowroom.proof.kernel.prove import prove
from proof.exact import values
from support import FULL, Builder, mlp, random_region

F64 = torch.float64
HINTS = (Hints(), Hints(parallel=True), Hints(parallel=True, logits=True))
BLOCKS = ("linear", "conv", "batch norm", "average pool", "max pool", "mean", "slice", "transpose", "pad", "scale",
          "divide", "shift", "flatten", "residual", "dense", "twice", "broadcast", "difference")  # fmt: skip


class Covered(Builder):
    """Random graphs of the operations that the proof in balls covers."""

    def _any_activation(self) -> str:
        return str(self.rng.choice(["relu", "relu", "sigmoid", "tanh", "arctan"]))


def random_network(rng: np.random.Generator) -> Network:
    shapes = [(3,), (6,), (2, 6), (1, 5, 5), (2, 4, 5)]
    builder = Covered(rng, shapes[rng.integers(len(shapes))], str(rng.choice(["plain", "plain", "sparse", "uneven"])))
    for kind in rng.choice(BLOCKS, rng.integers(2, 6)):
        builder.block(str(kind))
        builder.activation(builder._any_activation())
    return builder.network(3)


def area_of(rng: np.random.Generator, net: Network, kind: str, scale: float) -> Stated:
    inputs = random_region(rng, net.input_shape, kind, batch=2, scale=scale).inputs
    center, radius = inputs.center.flatten(1), inputs.radius.flatten(1)
    if inputs.basis is None and inputs.p == math.inf:
        return Stated(center - radius, center + radius)
    return Stated(center=center, radius=radius, p=inputs.p, basis=inputs.basis)


def problem(rng: np.random.Generator, net: Network) -> tuple[Tensor, Tensor, Tensor]:
    rows = torch.from_numpy(rng.standard_normal((2, 4, net.n_outputs)))
    return rows, torch.from_numpy(rng.standard_normal((2, 4))), torch.tensor([0, 1, 1, 2])


@pytest.mark.parametrize("kind", ["box", "ball", "cross", "oblique box", "oblique ball", "oblique cross"])
def test_agrees_with_the_float64_check(kind: str) -> None:
    rng = np.random.default_rng(len(kind))
    decided = proved = 0
    for trial in range(60 if FULL else 10):
        net = random_network(rng)
        area = area_of(rng, net, kind, float(rng.choice([0.0, 1e-4, 0.02, 0.2])))
        task = problem(rng, net)
        hints = HINTS[trial % 3]
        quick, slow = prove(net, area, *task, hints), prove_arb(net, area, *task, hints)
        size = 1 + torch.maximum(quick.abs(), slow.abs())
        assert float(((quick - slow) / size).max()) < 1e-9, (trial, net, quick, slow)
        # In images the float64 check leaves rows out that only make later intervals a little narrower.
        images = any(len(node.shape) > 1 for node in net.nodes)
        assert float(((slow - quick) / size).max()) < (1e-3 if images else 1e-9), (trial, net, quick, slow)
        clear = (quick.abs() / size) > 1e-9
        assert torch.equal((quick > 0)[clear], (slow > 0)[clear])
        decided, proved = decided + int(clear.sum()), proved + int((slow > 0).sum())
    assert 0.1 * decided < proved < 0.9 * decided


@pytest.mark.parametrize("activation", [ops.ReLU(), ops.Sigmoid(), ops.Tanh(), ops.Arctan()], ids=lambda a: a.name)
def test_certificates_of_small_networks_hold(activation: ops.Activation) -> None:
    rng = np.random.default_rng(7)
    net = mlp(rng, [8, 16, 16, 4], activation)
    x = torch.from_numpy(rng.standard_normal((4, 8)))
    for bounds, margin in (("adaptive", "direct"), ("combined", "logits")):
        certs = certify(net, x, bounds=bounds, margin=margin, delta=0.0)
        ok = torch.tensor([s == "certified" for s in certs.status])
        assert int(ok.sum()) >= 3
        spec = label_stays(certs.labels[ok], 4, net.decision).cast(F64, "cpu")
        found = prove_arb(
            net, Stated(certs.lower[ok], certs.upper[ok]), spec.rows, spec.offset, spec.group, Hints.of(bounds, margin)
        )
        assert (found > 0).all()
        assert torch.allclose(found, certs.margins[ok], rtol=1e-9, atol=1e-12)
        wider = Stated(certs.lower[ok] - 10, certs.upper[ok] + 10)
        assert (prove_arb(net, wider, spec.rows, spec.offset, spec.group).amin(1) < 0).all()


def test_never_above_an_exact_margin() -> None:
    rng = np.random.default_rng(3)
    before, ctx.prec = ctx.prec, 600
    try:
        for _ in range(100 if FULL else 15):
            net = random_network(rng)
            area = area_of(rng, net, "box", float(rng.choice([0.0, 1e-6, 0.1])))
            rows, offset, _ = problem(rng, net)
            found = prove_arb(net, area, rows, offset, torch.arange(4))
            for b in range(2):
                for x in (area.lower[b], area.upper[b], area.lower[b] / 2 + area.upper[b] / 2):
                    z = values(net, x, arb)[-1]
                    for t in range(4):
                        margin = sum((arb(c) * v for c, v in zip(rows[b, t].tolist(), z)), arb(float(offset[b, t])))
                        assert not arb(float(found[b, t])) > margin
    finally:
        ctx.prec = before


def test_cancellation_beyond_float64_is_no_obstacle() -> None:
    """1e20 + x - 1e20: float64 cannot tell, 128 bits can."""
    w = torch.tensor([[1e20, 1.0, -1e20]], dtype=F64)
    net = Network.chain((1,), [ops.Linear(torch.ones(3, 1, dtype=F64)), ops.ReLU(), ops.Linear(w)])
    one = torch.ones(1, 1, dtype=F64)
    task = (torch.ones(1, 1, 1, dtype=F64), torch.zeros(1, 1, dtype=F64), torch.tensor([0]))
    before = ctx.prec
    assert float(prove(net, Stated(one, one), *task)) < 0
    assert abs(float(prove_arb(net, Stated(one, one), *task)) - 1) < 1e-9
    assert ctx.prec == before


def test_flushing_subnormals_to_zero_is_refused() -> None:
    """Weights are read off the forward pass, which would lose them."""
    code = (
        "import torch, elbowroom as er\n"
        "from elbowroom.claim.stated import Stated\n"
        "from elbowroom.network import operations as ops\n"
        "from elbowroom.proof.arb import prove_arb\n"
        "w = torch.tensor([[2e-310]], dtype=torch.float64)\n"
        "net = er.Network.chain((1,), [ops.Linear(w)])\n"
        "assert torch.set_flush_denormal(True)\n"
        "one = torch.ones(1, 1, dtype=torch.float64)\n"
        "try:\n"
        "    prove_arb(net, Stated(one, one), one[None], 0 * one, torch.tensor([0]))\n"
        "except er.ElbowroomError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert "flushes subnormal numbers" in done.stdout, done.stderr


def test_what_it_does_not_cover_is_named() -> None:
    g = Graph((2,))
    net = g.network(g.add(ops.SiLU(), g.add(ops.GELU(), g.input)))
    one = torch.ones(1, 2, dtype=F64)
    task = (torch.ones(1, 1, 2, dtype=F64), torch.zeros(1, 1, dtype=F64), torch.tensor([0]))
    with pytest.raises(UnsupportedError, match=r"gelu_1: GELU \(.*; silu_2: SiLU \("):
        prove_arb(net, Stated(one, one), *task)
    net = Network.chain((2,), [ops.ReLU()])
    for p in (0.5, math.nan, -1.0):
        with pytest.raises(InputError, match="a norm p from 1 to infinity"):
            prove_arb(net, Stated(center=one, radius=one, p=p), *task)
    assert float(prove_arb(net, Stated(one, one - 1), *task)) == -math.inf
    assert float(prove_arb(net, Stated(one, one * math.inf), -task[0], *task[1:])) == -math.inf
    assert float(prove_arb(net, Stated(one, one), task[0] * math.nan, *task[1:])) == -math.inf
