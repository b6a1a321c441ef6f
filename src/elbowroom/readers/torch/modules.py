"""Reads a `torch.nn.Module` by tracing it with `torch.export`, and compares what was read with the module itself.

The trace sees functional calls, skips and shared modules alike. Parameters are taken exactly as stored: batch
norm is not folded, and whatever the model computes from constants alone is evaluated with torch once.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import io
import itertools
import logging
import warnings
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from elbowroom.errors import InputError, UnsupportedError
from elbowroom.machine.torch_modes import DEFAULT_DTYPE
from elbowroom.network.graph import About, Network, Origin, Source
from elbowroom.network.operations import Shape
from elbowroom.readers.reading import first_line
from elbowroom.readers.torch.guard import TorchGuard
from elbowroom.readers.torch.trace import Translation

NOT_SCRIPT = "give the torch.nn.Module it was made from, or save that with torch.export.save or as ONNX"


def read_module(module: nn.Module, shape: Shape, task: str | None = None) -> Network:
    """The module as a network that takes inputs of shape `shape`, read in eval mode on a copy.

    Python numbers in its code become constants rounded to the type they are used in, as torch does; in a module of
    half precision they stay as they are, and the network is the module in float64. A softmax over the classes at the
    end is left off, unless `task` is "regression"; the network's notes say so. What was read is compared with the
    module (`guard.py`), which is kept in memory as `network.source`. Raises one `UnsupportedError` that names every
    operation without a bound here, or the first that differs, and `InputError` where `shape` does not fit.
    """
    copied = _copy(module)
    return trace(copied, shape, dtype_of(copied), task, "the module")


def trace(
    module: nn.Module, shape: Shape, dtype: torch.dtype, task: str | None, what: str, batch: int | None = None
) -> Network:
    """The network of a module in eval mode that may be kept; `batch`: the only batch size that it is for, if any."""
    x = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    with _quiet(), torch.no_grad():
        _run(module, x)
        read = Translation(_export(module, x), shape, task)
        guard = TorchGuard(read.graph.network(read.output), module, read, _call, what, dtype, batch)
        notes = read.notes if guard.too_much is None else (*read.notes, *guard.compare())
        cut = None if read.softmax is None else "the softmax"
        about = About(notes=notes, origin=Origin("", compared=guard.compare()), cut=cut)
    return Network(guard.net.nodes, about=about, source=Source(guard.differs))


def dtype_of(module: nn.Module) -> torch.dtype:
    """The type of the module's first floating-point parameter or buffer (float32 where there is none)."""
    tensors = itertools.chain(module.parameters(), module.buffers())
    return next((t.dtype for t in tensors if t.is_floating_point()), torch.float32)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps torch.export's warnings, logs and printed graphs, which are about its own workings, to itself."""
    before = logging.root.manager.disable
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(before)


def _copy(module: nn.Module) -> nn.Module:
    module = getattr(module, "_orig_mod", module)  # what torch.compile wraps
    if isinstance(module, torch.jit.ScriptModule):
        raise UnsupportedError(f"{type(module).__name__} is TorchScript, which torch.export cannot trace; {NOT_SCRIPT}")
    if isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel):
        module = module.module
    with contextlib.suppress(ValueError, TypeError):
        parameters = inspect.signature(module.forward).parameters.values()
        n = sum(p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters)
        if n > 1:
            raise UnsupportedError(
                f"{type(module).__name__}.forward takes {n} inputs; wrap it in a module that takes one tensor"
            )
    if any(nn.parameter.is_lazy(t) for t in itertools.chain(module.parameters(), module.buffers())):
        raise InputError(f"{type(module).__name__} has lazy parameters without values; run it once first")
    try:
        return copy.deepcopy(module).cpu().eval()
    except Exception as error:
        raise UnsupportedError(
            f"{type(module).__name__} cannot be copied to the CPU; torch says: {first_line(error)}"
        ) from None


def _call(module: nn.Module, x: Tensor) -> object:
    with DEFAULT_DTYPE.released():  # of the tensors it makes itself
        return module(x.clone())


def _run(module: nn.Module, x: Tensor) -> None:
    """Its own output must be one floating-point tensor."""
    try:
        y = _call(module, x)
    except Exception as error:
        raise InputError(
            f"{type(module).__name__} does not run on a batch of {len(x)} inputs of shape {tuple(x.shape[1:])}; "
            f"check input_shape (without the batch axis). torch says: {first_line(error)}"
        ) from None
    if not isinstance(y, Tensor):
        raise UnsupportedError(
            f"{type(module).__name__} returns a {type(y).__name__}; wrap it so that it returns one tensor"
        )
    if not y.is_floating_point():
        raise UnsupportedError(
            f"{type(module).__name__} returns {y.dtype} values; return the floating-point logits instead"
        )


def _export(module: nn.Module, x: Tensor) -> torch.export.ExportedProgram:
    try:
        batch = ({0: torch.export.Dim("batch")},)
        with DEFAULT_DTYPE.released():
            program: torch.export.ExportedProgram = torch.export.export(
                module, (x,), dynamic_shapes=batch, strict=False
            )
        program = program.run_decompositions({})
    except Exception as error:
        raise UnsupportedError(
            f"torch.export cannot trace {type(module).__name__}. Usual causes: an `if` or a loop that depends "
            f"on the input's values, numpy code, a fixed batch size. torch says: {first_line(error)}"
        ) from None
    if program.graph_signature.buffers_to_mutate:
        names = ", ".join(program.graph_signature.buffers_to_mutate.values())
        raise UnsupportedError(
            f"{type(module).__name__} changes its buffers when it runs ({names}), so it is not a fixed "
            "function; remove the update from eval mode"
        )
    return program


__all__ = ["NOT_SCRIPT", "dtype_of", "read_module", "trace"]
