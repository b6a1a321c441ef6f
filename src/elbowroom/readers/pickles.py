"""Reads pickled models. Unpickling runs whatever code the file asks for: only for files whose maker is trusted."""

from __future__ import annotations

import contextlib
import pickle
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from elbowroom.errors import ElbowroomError, InputError
from elbowroom.readers.load import is_sklearn
from elbowroom.readers.reading import first_line
from elbowroom.readers.torch.modules import NOT_SCRIPT


def unpickle(path: Path) -> Any:
    """The torch module or scikit-learn estimator in the file."""
    if _is_torchscript(path):
        raise InputError(f"{path} is TorchScript, which is not read; {NOT_SCRIPT}")
    try:
        model = _load(path)
    except (AttributeError, ImportError) as error:
        raise InputError(
            f"{path} needs code that is not here: {first_line(error)}. Import it first, or export the model to ONNX"
        ) from None
    except Exception as error:
        raise InputError(f"{path} cannot be unpickled: {type(error).__name__} {first_line(error)}") from None
    if isinstance(model, nn.Module) or is_sklearn(model):
        return model
    if isinstance(model, dict):
        raise InputError(
            f"{path} holds weights only, or a checkpoint, and no model: build the module, load the weights into it "
            "(load_state_dict), and give the module to load"
        )
    raise InputError(f"{path} holds a {type(model).__name__}, neither a torch module nor a scikit-learn model")


@contextlib.contextmanager
def held_by(path: Path) -> Iterator[None]:
    """While something is done with what a file held: of a damaged one that can be unpickled, whatever has lost its
    parts raises whatever it does."""
    try:
        yield
    except (ElbowroomError, MemoryError):
        raise
    except Exception as error:
        told = f"{type(error).__name__} {first_line(error)}"
        raise InputError(
            f"{path} holds a model that cannot be read ({told}); if the file is damaged, write it again, or export the "
            "model to ONNX"
        ) from error


def _load(path: Path) -> Any:
    if path.suffix.lower() in (".pt", ".pth"):
        return torch.load(path, map_location="cpu", weights_only=False)
    try:
        import joblib  # type: ignore[import-untyped]  # reads plain pickles as well; comes with scikit-learn
    except ImportError:
        with open(path, "rb") as file:
            return pickle.load(file)
    return joblib.load(path)


def _is_torchscript(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith("/constants.pkl") for name in archive.namelist())
    except Exception:  # whatever a damaged file makes it raise: it is then read as the pickle it is called
        return False


__all__ = ["held_by", "unpickle"]
