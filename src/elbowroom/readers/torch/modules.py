"""Reads a `torch.nn.Module` by tracing it with `torch.export`, and compares what was read with the module itself.

The trace sees functional calls, skips and shared modules alike. Parameters are taken exactly as stored: batch
norm is not folded, and whatever the model computes from constants alone is evaluated with torch once.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import io
import itertools
import logging
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

from elbowroom.errors import InputError, UnsupportedError
from elbowroom.machine.torch_modes import DEFAULT_DTYPE
from elbowroom.network.graph import About, Network, Origin, Source
from elbowroom.network.operations import Shape
from elbowroom.readers.reading import first_line
from elbowroom.readers.torch.guard import TorchGuard
from elbowroom.readers.torch.in_place import out_of_place
from elbowroom.readers.torch.takes import Takes, ways_to_take
from elbowroom.readers.torch.trace import Translation, is_read

_MOST_INPUTS = 10  # each of real or of whole numbers, which is tried
_MOST_EXPORTS = 16
NOT_SCRIPT = "give the torch.nn.Module it was made from, or save that with torch.export.save or as ONNX"


def read_module(
    module: nn.Module, shape: Shape | Sequence[Shape], task: str | None = None, names: Sequence[str] | None = None
) -> Network:
    """The module as a network that takes inputs of shape `shape`, read in eval mode on a copy.

    Of a module that takes several tensors, a shape for each. Where columns of them are codes that embeddings look up,
    or there are several, the network takes rows of a table (`entries.py`); `names`: of its columns, where it is one.

    Python numbers in its code become constants rounded to the type they are used in, as torch does; in a module of
    half precision they stay as they are, and the network is the module in float64. A softmax over the classes at the
    end is left off, unless `task` is "regression"; the network's notes say so. What was read is compared with the
    module (`guard.py`), which is kept in memory as `network.source`. Raises one `UnsupportedError` that names every
    operation without a bound here, or the first that differs, and `InputError` where `shape` does not fit.
    """
    shapes: list[Shape] = [tuple(s) for s in shape if isinstance(s, Sequence)]
    if not shapes:
        shapes = [tuple(n for n in shape if isinstance(n, int))]
    if len(shapes) > _MOST_INPUTS:
        raise UnsupportedError(f"{len(shapes)} inputs are too many, at most {_MOST_INPUTS} are read; join some of them")
    _refuse_max_norm(module)
    copied = _copy(module, len(shapes))
    dtype = dtype_of(copied)
    return trace(copied, ways_to_take(_parameters(copied, len(shapes)), shapes, dtype), dtype, task, "the module",
                 names=names)  # fmt: skip


def trace(
    module: nn.Module, ways: Iterable[Takes], dtype: torch.dtype, task: str | None, what: str,
    batch: int | None = None, names: Sequence[str] | None = None,
) -> Network:  # fmt: skip
    """The network of a module in eval mode that may be kept. `ways`: how it may take inputs; the first in which it runs
    is taken. `dtype`: of its real numbers; `batch`: the only batch size that it is for, if any; `names`: of columns."""
    with _quiet(), torch.no_grad():
        takes, program, fault = _traced(module, ways, dtype)
        if names is not None and len(names) != takes.count:
            names = None  # which is said where names are given
        read = Translation(program, takes, dtype, task, names)
        entries = read.entries
        if fault is not None and (entries is None or not entries.levels):
            raise fault
        if entries is not None:
            _must_be_rows(takes)
        guard = TorchGuard(read.graph.network(read.output), module, read, _call, what, dtype, batch)
        notes = read.notes if guard.too_much is None else (*read.notes, *guard.compare())
        cut = None if read.softmax is None else "the softmax"
        table = None if entries is None else entries.table
        features = None if table is None else table.entries
        compared = Origin("", compared=guard.compare())
        about = About(features=features, notes=notes, origin=compared, cut=cut, table=table)
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


def _copy(module: nn.Module, count: int) -> nn.Module:
    """`count`: of the inputs that it is to be given."""
    module = getattr(module, "_orig_mod", module)  # what torch.compile wraps
    if isinstance(module, torch.jit.ScriptModule):
        raise UnsupportedError(f"{type(module).__name__} is TorchScript, which torch.export cannot trace; {NOT_SCRIPT}")
    if isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel):
        module = module.module
    with contextlib.suppress(ValueError, TypeError):
        parameters = inspect.signature(module.forward).parameters.values()
        needed = [p for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        if len(needed) > count:
            told = ", ".join(p.name for p in needed)
            raise UnsupportedError(
                f"{type(module).__name__}.forward takes {len(needed)} inputs ({told}); give the shape of each, such as "
                f"input_shape=({', '.join(['(3,)'] * len(needed))}), or wrap it in a module that takes one tensor"
            )
    if any(nn.parameter.is_lazy(t) for t in itertools.chain(module.parameters(), module.buffers())):
        raise InputError(f"{type(module).__name__} has lazy parameters without values; run it once first")
    try:
        return copy.deepcopy(module).cpu().eval()
    except Exception as error:
        raise UnsupportedError(
            f"{type(module).__name__} cannot be copied to the CPU; torch says: {first_line(error)}"
        ) from None


def _parameters(module: nn.Module, count: int) -> list[str]:
    """What the first inputs of its forward are called."""
    names: list[str] = []
    with contextlib.suppress(ValueError, TypeError):
        parameters = inspect.signature(module.forward).parameters.values()
        names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)][:count]
    return [*names, *(f"input{k}" for k in range(len(names), count))]


def _free_batch(module: nn.Module, count: int) -> tuple[Any, ...]:
    """For torch.export: the first axis of all inputs has the same size, whichever."""
    first = {0: torch.export.Dim("batch")}
    kinds = [p.kind for p in inspect.signature(module.forward).parameters.values()]
    named = kinds.index(inspect.Parameter.VAR_POSITIONAL) if inspect.Parameter.VAR_POSITIONAL in kinds else count
    rest = (first,) * (count - named)
    return (*(first,) * min(named, count), *((rest,) if rest else ()))


def _refuse_max_norm(module: nn.Module) -> None:
    for path, part in module.named_modules():
        if isinstance(part, nn.Embedding | nn.EmbeddingBag) and part.max_norm is not None:
            raise UnsupportedError(
                f"the {type(part).__name__} {path!r} has max_norm={part.max_norm:g}, so that it changes its weights as "
                "it looks them up, and the module is not a fixed function; scale the weights once and set max_norm to "
                "None"
            )


def _must_be_rows(takes: Takes) -> None:
    for name, shape in zip(takes.names, takes.shapes):
        if len(shape) > 1:
            raise UnsupportedError(
                f"the input {name!r} has the shape {shape}: of modules with embeddings or with several inputs, each of "
                f"them must be a row of columns, such as ({math.prod(shape)},)"
            )


def _call(module: nn.Module, *given: Tensor) -> object:
    with DEFAULT_DTYPE.released():  # of the tensors it makes itself
        return module(*(x.clone() for x in given))


def _traced(
    module: nn.Module, ways: Iterable[Takes], dtype: torch.dtype
) -> tuple[Takes, torch.export.ExportedProgram, InputError | None]:
    """How the module takes inputs, and its program; and what was wrong where it runs in none of these ways on zeros,
    which are the first codes unless it counts them otherwise."""
    fault: InputError | None = None
    kept = list(ways)
    for takes in kept:
        random = torch.Generator().manual_seed(0)
        examples = (torch.randn(2, takes.count, generator=random), torch.zeros(2, takes.count))
        for columns in examples if takes.is_plain else examples[1:]:
            given = takes.split(columns, dtype)
            try:
                _run(module, given)
            except InputError as error:
                fault = fault or error
            else:
                return takes, _export(module, given), None
    assert fault is not None
    for takes in kept[:_MOST_EXPORTS]:
        with contextlib.suppress(UnsupportedError):
            return takes, _export(module, takes.split(torch.zeros(2, takes.count), dtype)), fault
    raise fault


def _run(module: nn.Module, given: tuple[Tensor, ...]) -> None:
    """Its own output must be one floating-point tensor."""
    try:
        y = _call(module, *given)
    except Exception as error:
        shapes = " and ".join(str(tuple(x.shape[1:])) for x in given)
        raise InputError(
            f"{type(module).__name__} does not run on a batch of {len(given[0])} inputs of shape {shapes}; "
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


class _Wrapped(nn.Module):
    """A module as a part of another one, so that its own parts may be called whatever they are."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *given: Tensor) -> object:
        return self.model(*given)


def _clashes(module: nn.Module) -> bool:
    """Whether a part of the module has a name that torch.export's graphs need for something of theirs, "code" say."""
    return not _names_of_graphs().isdisjoint([*module._modules, *module._parameters, *module._buffers])


@functools.cache
def _names_of_graphs() -> frozenset[str]:
    return frozenset(dir(fx.GraphModule(nn.Module(), fx.Graph())))


def _export(module: nn.Module, given: tuple[Tensor, ...]) -> torch.export.ExportedProgram:
    try:
        traced = _Wrapped(module) if _clashes(module) else module
        batch = _free_batch(traced, len(given))
        with DEFAULT_DTYPE.released():
            program: torch.export.ExportedProgram = torch.export.export(
                traced, given, dynamic_shapes=batch, strict=False
            )
        renamed = out_of_place(program.graph)
        if all(is_read(node) or node in renamed for node in program.graph.nodes):
            for node, plain in renamed.items():
                node.target = plain
        else:
            program = program.run_decompositions({})  # which takes longer than all else
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
