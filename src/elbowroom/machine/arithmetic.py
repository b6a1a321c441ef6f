"""Whether this process computes as IEEE 754 says: what every proof asks first."""

from __future__ import annotations

import torch

from elbowroom.errors import ElbowroomError

_U = 2.0**-53  # unit roundoff of float64


def refuse_other_arithmetic(device: torch.device) -> None:
    """Proofs need subnormal numbers and rounding to nearest; a processor set up otherwise is refused.

    The setting belongs to each thread: the probe is long enough to be shared out among all of them.
    """
    count = max(1 << 16, torch.get_num_threads() << 15)
    tiny = torch.full((count,), torch.finfo(torch.float64).tiny, dtype=torch.float64, device=device)
    halved = tiny * 0.5  # zero where results are flushed
    if bool((halved + halved != tiny).any()):  # zero where operands are
        raise ElbowroomError(
            "this process flushes subnormal numbers to zero (torch.set_flush_denormal), under which nothing is proved"
        )
    one = torch.ones(count, dtype=torch.float64, device=device)
    if bool(((one + 0.75 * _U != 1) | (one - 0.25 * _U != 1) | (one + 1.25 * _U == 1)).any()):
        raise ElbowroomError("this process does not round to nearest, under which nothing is proved")
