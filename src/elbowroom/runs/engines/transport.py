"""What travels between the process that writes a run and its workers: plain data, and a network as its file's bytes."""

from __future__ import annotations

import tempfile
import traceback
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elbowroom.certificates.result import Certificates
from elbowroom.errors import ElbowroomError
from elbowroom.network.file import load_network, save_network
from elbowroom.network.graph import Network
from elbowroom.runs.engines.worker import Part, Worker


def network_bytes(net: Network) -> bytes:
    """The network's file, see `elbowroom.network.file`."""
    with tempfile.TemporaryDirectory() as folder:
        return save_network(net, Path(folder) / "network").read_bytes()


def network_of(content: bytes) -> Network:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network"
        path.write_bytes(content)
        return load_network(path)


def basis_of(content: Any) -> Tensor | None:
    """Directions that were found for a run, `n x n`, from an array; None where there are none. Copied, since what was
    received may lie in memory that is read-only and shared."""
    return None if content is None else torch.from_numpy(np.array(content))


def packed(certs: Certificates) -> dict[str, Any]:
    """Certificates by field, tensors as arrays, without the network, which the other side has."""
    found = {field.name: getattr(certs, field.name) for field in fields(certs) if field.name != "network"}
    return {name: _array(value) for name, value in found.items()}


def unpacked(content: Mapping[str, Any], net: Network) -> Certificates:
    return Certificates(network=net, **{name: _tensor(value) for name, value in content.items()})


def _array(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_array, value))
    return value.numpy() if isinstance(value, Tensor) else value


def _tensor(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_tensor, value))
    # Copied, since what was received may lie in memory that is read-only and shared.
    return torch.from_numpy(np.array(value)) if isinstance(value, np.ndarray) else value


def answer(worker: Worker, part: Mapping[str, Any]) -> tuple[str, Any]:
    """What a worker says about a part (the fields of a `Part`): its kind, see `pool`, and its content."""
    own: dict[str, Any] = {
        name: np.array(value) if isinstance(value, np.ndarray) else value for name, value in part.items()
    }
    try:
        return "done", packed(worker.compute(Part(**own)))
    except ElbowroomError as error:
        return "failed", str(error)
    except Exception:
        return "broken", traceback.format_exc()
