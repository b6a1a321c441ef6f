"""How much room features have as a share of something: the one place that says of what.

A share makes features of different units comparable: of the domain, where it has two finite ends; else of the values
that the run's inputs have.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from elbowroom.certificates.result import Certificates
from elbowroom.certificates.store import Run
from elbowroom.network.graph import Network

_ALIKE = 1.001  # how much wider one axis may be than another that it is like
DOMAIN, OBSERVED, NOTHING = "the domain", "the range of the inputs", "nothing"


@dataclass(frozen=True, eq=False)
class Scale:
    """From where to where each feature's axis goes, `n` each; NaN where nothing says so. `of`: what that is, `n`
    texts."""

    low: Tensor
    high: Tensor
    of: tuple[str, ...]

    @property
    def words(self) -> str:
        """Of what shares are, all in all."""
        kinds = [kind for kind in (DOMAIN, OBSERVED) if kind in self.of]
        return " or, where that has no end, of ".join(kinds) if kinds else NOTHING


def scale_of(run: Run, alike: bool) -> Scale:
    """The axes of a run's features. Reads the parts only where the domain does not say it all. `alike`: whether
    features are of one kind, as pixels are, so that what one of them has any other may have."""
    rotated, inputs = "basis" in run.shared, (run.read(k).x for k in run.finished())
    ends = (None, None) if rotated else (run.shared.get("lowest"), run.shared.get("highest"))
    return _scale(run.network.n_inputs, ends, () if rotated else inputs, alike)


def scale_of_certificates(certs: Certificates, alike: bool) -> Scale:
    """The same of certificates in memory, which know their network."""
    assert certs.network is not None
    rotated, ends = certs.basis is not None, (certs.lowest, certs.highest)
    if rotated or any(end is None or not bool((end == end[:1]).all()) for end in ends):
        ends = (None, None)
    return _scale(certs.network.n_inputs, ends, () if rotated else (certs.x,), alike)


def _scale(n: int, ends: tuple[Tensor | None, Tensor | None], inputs: Iterable[Tensor], alike: bool) -> Scale:
    """`ends`: the domain's, `1 x *s` or `b x *s` alike, where there is one; `inputs`: some at a time, looked at only
    where the domain has no end."""
    low, high = torch.full((n,), -torch.inf).double(), torch.full((n,), torch.inf).double()
    if ends[0] is not None and ends[1] is not None:
        low, high = (end.double().reshape(-1, n)[0] for end in (ends[0], ends[1]))
    finite = low.isfinite() & high.isfinite() & (low < high)
    if bool(finite.all()):
        return Scale(low, high, (DOMAIN,) * n)
    least, most = _observed(n, inputs)
    if alike:
        least, most = least.amin().expand(n), most.amax().expand(n)
    seen = ~finite & (least < most) & least.isfinite() & most.isfinite()
    nan = torch.full((n,), torch.nan).double()
    of = tuple(DOMAIN if f else OBSERVED if s else NOTHING for f, s in zip(finite.tolist(), seen.tolist()))
    return Scale(
        torch.where(finite, low, torch.where(seen, least, nan)),
        torch.where(finite, high, torch.where(seen, most, nan)),
        of,
    )


def _observed(n: int, inputs: Iterable[Tensor]) -> tuple[Tensor, Tensor]:
    """The smallest and the largest finite value of each feature, `n` each; infinite where there is none."""
    least = torch.full((n,), torch.inf).double()
    most = -least
    for each in inputs:
        x = each.flatten(1).double()
        if len(x):
            least = torch.minimum(least, torch.where(x.isfinite(), x, torch.inf).amin(0))
            most = torch.maximum(most, torch.where(x.isfinite(), x, -torch.inf).amax(0))
    return least, most


def of_mixed_units(scale: Scale, net: Network) -> bool:
    """Whether features that are numbers have axes of different widths, so that only shares of them can be compared; not
    where one has no axis."""
    width = scale.high - scale.low
    if net.about.table is not None:
        width = width[torch.from_numpy(net.about.table.moves)]
    return bool((width > 0).all()) and len(width) > 0 and bool(width.max() > _ALIKE * width.min())


def shares(certs: Certificates, scale: Scale) -> Tensor:
    """How much of its axis each feature may have, `b x n`, whatever the others do within their ranges (boxes) or while
    the others stay (other shapes); NaN without an axis, 0 for what is held fixed."""
    if certs.lower is not None and certs.upper is not None:
        widths = (certs.upper - certs.lower).flatten(1)
    else:
        widths = 2 * certs.eps.flatten(1)
    return widths / (scale.high - scale.low)
