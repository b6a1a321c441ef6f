"""How much the tests generate: ELBOWROOM_CASES=full asks for all cases, the default for about a tenth.

Cases are derandomised: the same ones on every run. No deadline, since machines differ.
"""

import os

import torch
from hypothesis import HealthCheck, settings

SLOW_IS_FINE = (HealthCheck.too_slow, HealthCheck.data_too_large)

settings.register_profile(
    "default", max_examples=25, derandomize=True, deadline=None, suppress_health_check=SLOW_IS_FINE
)
settings.register_profile("full", settings.get_profile("default"), max_examples=250)
settings.load_profile("full" if os.environ.get("ELBOWROOM_CASES") == "full" else "default")

torch.set_num_threads(1)  # the cases are small, and test runners use a process per core
