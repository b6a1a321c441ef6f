"""Certificates as VNN-LIB queries: what a certificate claims, in the form other verifiers read.

A VNN-LIB file describes inputs and *unsafe* outputs; the certificate says that no input of its box has one, so the
answer to every query written here is "unsat". That holds in exact arithmetic for the network with its stored
parameters; a verifier that computes in floating point may differ where a margin is as small as its own tolerance.
The box in the file lies within the certified one: a corner whose decimals would be too long is rounded inwards.
"""

from __future__ import annotations

import csv
import itertools
import math
import os
from collections.abc import Iterator, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from pathlib import Path

import torch
from torch import Tensor

from elbowroom.certificates.result import Certificates
from elbowroom.claim.categories import Categories
from elbowroom.claim.specification import Specification, label_stays
from elbowroom.errors import InputError
from elbowroom.network.file import network_hash
from elbowroom.network.graph import Network
from elbowroom.readers.onnx.write import rounded_constants, write_onnx

EXACT_DIGITS = 30  # a corner with no more digits than this is written in full: most float32 numbers, for one
INSIDE_DIGITS = 20  # of the others, within a thousandth of the last binary place: read in float64, it is the corner
TIMEOUT = 60  # seconds, for `instances.csv`
MOST_COMBINATIONS = 64  # of levels of categories, of one input: each is a query


def export(
    certs: Certificates,
    net: Network | None,
    out: str | os.PathLike[str],
    timeout: int = TIMEOUT,
    dtype: torch.dtype | None = None,
) -> list[Path]:
    """Writes one query per certified input into a folder; of sets of categories, one per combination of levels.

    Next to the queries stand the network, `network.onnx`, and the list of both, `instances.csv` (network, query,
    seconds to try), as in the verification competitions.

    Args:
        certs: The certificates, of boxes along the axes.
        net: The network, by default the one the certificates carry.
        out: The folder.
        timeout: The seconds to try.
        dtype: The type of the ONNX model, as in `to_onnx`; each query names the numbers that the model holds
            rounded, if there are any.

    Returns:
        The paths of the queries.

    Raises:
        InputError: The regions are not boxes or have too many combinations of levels, nothing is certified, the network
            is another one, or the folder cannot be written.
    """
    net = _network_of(certs, net)
    if certs.lower is None or certs.upper is None:
        raise InputError(
            f"a VNN-LIB query describes a box along the axes; these certificates are of the shape {certs.shape}, which "
            "has no such form"
        )
    chosen = certs.certified.nonzero().squeeze(1).tolist()
    if not chosen:
        raise InputError(f"none of the {len(certs)} inputs is certified: there is nothing to export")
    notes = [f"the ONNX model holds a rounded number: {text}" for text in rounded_constants(net, dtype)]
    digits = len(str(len(certs) - 1))
    boxes = {f"input_{i:0{digits}d}{name}": (i, *box) for i in chosen for name, *box in _boxes(certs, net, i)}
    paths = [Path(out) / f"{name}.vnnlib" for name in boxes]
    try:
        Path(out).mkdir(parents=True, exist_ok=True)
        write_onnx(net, Path(out) / "network.onnx", dtype)
        for path, (i, lower, upper) in zip(paths, boxes.values()):
            about = f"Input {i}" if certs.spec_rows is not None else f"Input {i}: label {int(certs.labels[i])} stays"
            write_query(path, lower, upper, _specification(certs, net, i), [about, *notes])
        with open(Path(out) / "instances.csv", "w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(("network.onnx", path.name, timeout) for path in paths)
    except OSError as error:
        raise InputError(f"cannot write into {out}: {error.strerror or error}") from None
    return paths


def _boxes(certs: Certificates, net: Network, i: int) -> Iterator[tuple[str, Tensor, Tensor]]:
    """The boxes that the region of input i is: one, or with sets of categories one per combination of levels; each with
    what is added to the query's name."""
    assert certs.lower is not None and certs.upper is not None
    categories = Categories.of(net.about.table)
    if certs.allowed is None or categories is None:
        yield "", certs.lower[i], certs.upper[i]
        return
    allowed = certs.allowed[i]
    codes = [one.codes[allowed[place]].unique(dim=0) for one, place in categories]
    count = math.prod(len(one) for one in codes)
    if count > MOST_COMBINATIONS:
        raise InputError(
            f"the region of input {i} has {count:,} combinations of levels, a query each, and at most "
            f"{MOST_COMBINATIONS} are written; hold some categories as they are (frozen), or check the run here"
        )
    for number, chosen in enumerate(itertools.product(*codes)):
        lower, upper = certs.lower[i].clone(), certs.upper[i].clone()
        for one, code in zip(categories.each, chosen):
            lower[one.entries] = upper[one.entries] = code
        yield f"_{number}" if count > 1 else "", lower, upper


def _network_of(certs: Certificates, net: Network | None) -> Network:
    net = certs.network if net is None else net
    if net is None:
        raise InputError("these certificates do not carry their network; give it as net")
    stated, found = certs.settings.get("network_hash"), network_hash(net)
    if stated != found:
        raise InputError(f"the certificates are about the network with hash {stated}; this one has the hash {found}")
    certs.must_fit(net)
    return net


def write_query(
    path: str | os.PathLike[str], lower: Tensor, upper: Tensor, spec: Specification, notes: Sequence[str] = ()
) -> Path:
    """Writes `query(lower, upper, spec, notes)` to a file.

    Args:
        path: The file.
        lower: The lower corner, of the input's shape, as float64.
        upper: The upper corner.
        spec: What holds, for this one input.
        notes: Comments.

    Returns:
        The file's path.
    """
    target = Path(path)
    target.write_text(query(lower, upper, spec, notes))
    return target


def query(lower: Tensor, upper: Tensor, spec: Specification, notes: Sequence[str] = ()) -> str:
    """The VNN-LIB text whose answer is "unsat" exactly if a specification holds on a box.

    Args:
        lower: The lower corner, of the input's shape, as float64.
        upper: The upper corner.
        spec: What holds, for this one input.
        notes: Comments.

    Returns:
        The text.

    Raises:
        InputError: The corners are not those of a box, or the specification is for several inputs.
    """
    low, high = (t.to(torch.float64).flatten().tolist() for t in (lower, upper))
    if len(low) != len(high) or not all(-torch.inf < a <= b < torch.inf for a, b in zip(low, high)):
        raise InputError("a query needs finite corners of one shape, lower <= upper")
    if spec.rows.shape[0] != 1:
        raise InputError(f"a query is about one input; the specification is for {spec.rows.shape[0]}")
    n_outputs = spec.rows.shape[2]
    lines = [*(f"; {' '.join(note.split())}" for note in notes), "; unsat: the certificate holds", ""]
    lines += [*_declarations("X", len(low)), "", *_declarations("Y", n_outputs), ""]
    for k, (a, b) in enumerate(zip(low, high)):
        bottom, top = decimals_between(a, b)
        lines += [f"(assert (>= X_{k} {bottom}))", f"(assert (<= X_{k} {top}))"]
    lines += ["", "; The unsafe outputs", *_unsafe(spec)]
    return "\n".join(lines) + "\n"


def _declarations(letter: str, count: int) -> list[str]:
    return [f"(declare-const {letter}_{k} Real)" for k in range(count)]


def _specification(certs: Certificates, net: Network, index: int) -> Specification:
    """What is certified of one input."""
    if certs.spec_rows is None or certs.spec_offset is None or certs.spec_group is None:
        return label_stays(certs.labels[index : index + 1], net.n_outputs, net.decision)
    spec = Specification(certs.spec_rows, certs.spec_offset, certs.spec_group)
    spec.check_fits(len(certs), net)
    return spec.part(torch.tensor([index]))


# ---------------------------------------------------------------------------------------------------------------
# Outputs


def _unsafe(spec: Specification) -> list[str]:
    """The negation of "in every group some row is positive": a group all of whose rows are at most zero."""
    groups: list[list[str]] = [[] for _ in range(spec.n_groups)]
    rows, offsets = spec.rows[0].double().tolist(), spec.offset[0].double().tolist()
    for row, offset, group in zip(rows, offsets, spec.group.tolist()):
        groups[group].append(_at_most_zero(row, offset))
    if len(groups) == 1:
        return [f"(assert {literal})" for literal in groups[0]]
    return ["(assert (or", *(f"    (and {' '.join(literals)})" for literals in groups), "))"]


def _at_most_zero(row: list[float], offset: float) -> str:
    """`row . Y + offset <= 0`, in the plainest form there is: few readers know products, some not even sums."""
    terms = [(c, f"Y_{j}") for j, c in enumerate(row) if c != 0]
    if not terms:
        raise InputError("a row of the specification is zero: it says nothing about the outputs")
    alone = len(terms) == 1 and (offset == 0 or abs(terms[0][0]) == 1)
    difference = len(terms) == 2 and offset == 0 and terms[0][0] == -terms[1][0]
    if not (alone or difference or all(abs(c) == 1 for c, _ in terms)):
        products = [f"(* {exact_decimals(c)} {y})" for c, y in terms]
        return f"(<= {_sum(products)} {exact_decimals(-offset)})"
    plus, minus = [y for c, y in terms if c > 0], [y for c, y in terms if c < 0]
    if not minus:
        return f"(<= {_sum(plus)} {exact_decimals(-offset)})"
    if not plus:
        return f"(>= {_sum(minus)} {exact_decimals(offset)})"
    return f"(<= {_sum(plus + [exact_decimals(offset)] * (offset != 0))} {_sum(minus)})"


def _sum(terms: list[str]) -> str:
    return terms[0] if len(terms) == 1 else f"(+ {' '.join(terms)})"


# ---------------------------------------------------------------------------------------------------------------
# Numbers. Every float64 is a finite decimal, if a long one; none is written with an exponent, which the language
# of these files does not have.


def exact_decimals(value: float) -> str:
    """All the decimals of a float64.

    Args:
        value: The number.

    Returns:
        Its decimals, without an exponent.
    """
    return _plain(Decimal(value))


def decimals_between(lower: float, upper: float) -> tuple[str, str]:
    """Decimals for the two ends of an interval, none outside it, each less than its last binary place away.

    Args:
        lower: The lower end.
        upper: The upper end; an interval of one point stays that point.

    Returns:
        The decimals of both.
    """
    if lower == upper:
        return exact_decimals(lower), exact_decimals(upper)
    return _rounded(lower, ROUND_CEILING), _rounded(upper, ROUND_FLOOR)


def _rounded(value: float, direction: str) -> str:
    exact = Decimal(value)
    if len(exact.as_tuple().digits) > EXACT_DIGITS:
        exact = Context(prec=INSIDE_DIGITS, rounding=direction).create_decimal(exact)
    return _plain(exact)


def _plain(value: Decimal) -> str:
    text = format(value, "f")
    whole, _, part = text.partition(".")
    part = part.rstrip("0")
    return "0.0" if value == 0 else f"{whole}.{part or '0'}"


__all__ = ["decimals_between", "exact_decimals", "export", "query", "write_query"]
