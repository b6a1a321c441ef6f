"""What the strict check costs, in time and size; and how large the regions of other bounds and shapes are.

    python benchmarks/check.py [--shared DIR]

On the authors' networks and images (see benchmarks/solvers.py), one thread. `loss`: by how much the largest region
along the certified one's shape shrinks when its verdict is the strict check instead of the same bounds in plain
float64.
"""

import argparse
import os
import time
from pathlib import Path

import torch

import elbowroom as er
from elbowroom.claim.hints import Hints
from elbowroom.claim.stated import Stated
from elbowroom.proof.kernel.prove import prove
from elbowroom.search.bounds.propagate import margins_of
from solvers import reference


def largest_factor(certs: er.Certificates, margins) -> torch.Tensor:
    """Per input, the factor by which the certified box can be scaled before a margin is no longer positive."""
    low, high = torch.full_like(certs.geomean, 0.99), torch.full_like(certs.geomean, 1.01)
    for _ in range(50):
        factor = (low + high) / 2
        box = certs.x - factor[:, None] * (certs.x - certs.lower), certs.x + factor[:, None] * (certs.upper - certs.x)
        good = (margins(*box) > 0).all(1)
        low, high = torch.where(good, factor, low), torch.where(good, high, factor)
    return low


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shared", type=Path, default=Path(os.environ.get("ELBOWROOM_SHARED", "../shared")))
    place = parser.parse_args().shared
    torch.set_num_threads(1)
    print("network         CPU s per image: search  check  share     loss of geomean   deployed float32: geomean")
    for name in ("m100", "m100pgd"):
        net, x, y, _ = reference(place, name)
        er.certify(net, x[:2], y[:2])
        start = time.process_time()
        certs = er.certify(net, x, y)
        search = (time.process_time() - start) / len(x)
        start = time.process_time()
        report = er.check(certs)
        check = (time.process_time() - start) / len(x)
        assert bool(report)
        spec = er.label_stays(y, 10).cast(torch.float64, "cpu")
        work, bound = net.cast(torch.float64), margins_of("adaptive", "direct")

        def plain(lower, upper, work=work, bound=bound, spec=spec):
            with torch.no_grad():
                return bound(work, er.InputSet.box(lower, upper), spec)

        def strict(lower, upper, net=net, spec=spec):
            return prove(net, Stated(lower, upper), spec.rows, spec.offset, spec.group, Hints())

        loss = 1 - largest_factor(certs, strict) / largest_factor(certs, plain)
        paper = er.certify(net, x, y, bounds="combined", margin="logits")
        cut = ((certs.upper.clamp_max(1) - certs.lower.clamp_min(-1)) / 2).log().mean(1).exp().mean()
        inside = er.certify(net, x, y, domain=(-1, 1)).geomean.mean()
        asymmetric = er.certify(net, x, y, domain=(-1, 1), region=er.Box(asymmetric=True)).geomean.mean()
        deployed = er.certify(net, x, y, deployed="float32")
        kept = float((deployed.geomean / certs.geomean).mean())
        print(
            f"{name:15} {search:23.4f}  {check:.4f}  {check / search:5.2f}   largest {float(loss.max()):.1e}"
            f"          {kept:.4f} of the real one, {int(deployed.certified.sum())} of {len(x)} certified"
        )
        print(
            f"  geomean: default bounds {certs.geomean.mean() / paper.geomean.mean():.3f} of the paper's; asymmetric "
            f"in the domain {asymmetric / cut:.3f} of the cut symmetric box, {asymmetric / inside:.3f} of the "
            "symmetric one found with the domain"
        )


if __name__ == "__main__":
    main()
