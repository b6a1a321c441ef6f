"""What computes a part, wherever it runs: a network, settings, and a part's inputs in; certificates out.

A part's result depends on its own inputs and on nothing else. Whatever is wrong with an input becomes its row; what is
wrong with everything (an operation without a bound, a device that fails, a full memory) ends the run.
"""

from __future__ import annotations

import contextlib
import gc
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elbowroom.certificates.result import Certificates
from elbowroom.certificates.schema import joined
from elbowroom.certify.api import certify, uncertified
from elbowroom.claim.specification import Specification, outputs_within
from elbowroom.errors import DataWarning, ElbowroomError, InputError, UnsupportedError
from elbowroom.machine.failures import is_device_failure, is_out_of_memory
from elbowroom.network.graph import Network
from elbowroom.runs.problem import arguments
from elbowroom.runs.settings import Settings
from elbowroom.verify.box import verify


@dataclass(frozen=True, eq=False)
class Part:
    """Inputs that are certified together: `index`, their numbers in the data set, `b`; `x`: `b x *input_shape`,
    float64; `labels`: `b`, or None where the network's own decision is to stay. `faults`: why some rows, by
    number in the part, could not be read; `troubles`: why some hold values that are not finite; `imputed`: which
    entries are what the model takes for missing values, as `x`, or None where none is."""

    number: int
    index: np.ndarray
    x: np.ndarray
    labels: np.ndarray | None
    faults: dict[int, str]
    troubles: dict[int, str]
    imputed: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.index)


class Worker:
    """Holds a network and computes parts. `settings` are resolved, see `elbowroom.runs.problem`; `basis`: directions
    that were found for the run, `n x n`."""

    def __init__(self, net: Network, settings: Settings, basis: Tensor | None = None) -> None:
        self.net = Network(net.nodes, net.decision, net.about)  # without its model: a run compares once, not each part
        self.settings = settings
        self._arguments = arguments(settings, net, basis)
        if isinstance(self._arguments["region"].basis, str):
            raise InputError("a worker needs the directions that were found for its run (see runs/directions.py)")

    def sample(self) -> Certificates:
        """Certificates of two inputs: nothing is searched, but every setting is looked at.

        It says what all certificates of the run will claim.
        """
        net = self.net
        if net.n_outputs < 2 and self.settings.within is None:
            raise InputError("the network has one output, so there is no label to stay; give a tolerance: `within=TOL`")
        found = self._without(torch.zeros(2, *net.input_shape, dtype=torch.float64), None, "")
        # At a point the strict check costs little, and tells whether it can treat this network at all: of what the
        # network decides there, for which nobody need look for counterexamples.
        point = torch.zeros(1, *net.input_shape, dtype=torch.float64)
        spec = self._specification(point)
        with _quietly():
            verify(
                net, point, point, spec=spec, method=self.settings.bounds, margin=self.settings.margin,
                deployed=self.settings.deployed,
            )  # fmt: skip
        return replace(found, index=torch.zeros(2, dtype=torch.int64))

    def compute(self, part: Part) -> Certificates:
        """The certificates of a part, in its order."""
        x = torch.from_numpy(part.x)
        labels = None if part.labels is None else torch.from_numpy(part.labels)
        failures: list[str] = []
        certs = self._certify(x, labels, failures)
        if len(failures) == len(part) > 1:
            raise ElbowroomError(f"not one input of part {part.number} could be certified: {failures[0]}")
        status, message = list(certs.status), list(certs.message)
        for k, why in part.troubles.items():
            message[k] = why
        for k, why in part.faults.items():
            status[k], message[k] = "error", why
        if certs.imputed is not None and part.imputed is not None:
            certs = replace(certs, imputed=torch.from_numpy(part.imputed))
        return replace(
            certs, status=tuple(status), message=tuple(message), index=torch.from_numpy(part.index.astype(np.int64))
        )

    def _certify(self, x: Tensor, labels: Tensor | None, failures: list[str]) -> Certificates:
        """Certifies, by halves where that fails, until the input that is the cause stands alone.

        `failures` gets the reasons that need not be the input's fault.
        """
        try:
            return self._ask(x, labels)
        except UnsupportedError:
            raise
        except Exception as error:
            reason, no_memory = _in_words(error), is_out_of_memory(error)
            if not no_memory and is_device_failure(error):
                raise ElbowroomError(f"the device failed: {reason}") from error
            if len(x) == 1:
                if no_memory or not isinstance(error, InputError):
                    failures.append(reason)
                return self._without(x, labels, reason)
        # Beyond the handler, since the exception keeps alive what the attempt had in memory.
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        half = len(x) // 2
        return joined(
            [
                self._certify(x[rows], None if labels is None else labels[rows], failures)
                for rows in (slice(half), slice(half, None))
            ]
        )

    def _ask(self, x: Tensor, labels: Tensor | None) -> Certificates:
        spec = self._specification(x)
        with _quietly():
            return certify(self.net, x, None if spec else labels, spec=spec, progress=False, **self._arguments)

    def _specification(self, x: Tensor) -> Specification | None:
        return None if self.settings.within is None else self._within(self.net(x))

    def _within(self, outputs: Tensor) -> Specification | None:
        within: Any = self.settings.within
        return None if within is None else outputs_within(outputs, torch.tensor(within, dtype=torch.float64))

    def _without(self, x: Tensor, labels: Tensor | None, reason: str) -> Certificates:
        """The rows of inputs that are not certified, for this reason."""
        of_nothing = self._within(torch.zeros(1, self.net.n_outputs, dtype=torch.float64))
        group = None if of_nothing is None else of_nothing.group
        return uncertified(self.net, x, labels, group, reason, **self._arguments)


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Without warnings about the data: a run says once what it has to say about all its inputs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        yield


def _in_words(error: Exception) -> str:
    first = (str(error).strip().splitlines() or [""])[0][:500]
    return first if isinstance(error, ElbowroomError) else f"{type(error).__name__}: {first}"
