"""Regions over kinds of features, held against every combination of levels and values.

    python benchmarks/kinds.py [--networks 350] [--seed 0]

Random networks take random columns: numbers, whole numbers, numbers of one decimal, yes or no, ordered levels, codes of
categories, groups of one-hot columns (also with a dropped level, or zeros for values that are none of the levels), and
columns as a pipeline's encoders make them. Four inputs of each are certified, with a shape, an effort, frozen features
and weights that are drawn. Then

- every combination of levels that a region has and of values between its ends, with all corners and random points of
  the other numbers, must have the decision that was certified (a violation else);
- ends of whole numbers must be whole, sets of ordered levels without gaps, and what is frozen as it is;
- `er.check` must prove the region again;
- and no region that says that its sets are `maximal` may be proved with one level more.
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

import elbowroom as er
from elbowroom.claim.categories import Categories
from elbowroom.network import operations as ops
from elbowroom.network.decimals import is_multiple
from elbowroom.network.graph import About, Graph
from elbowroom.network.table import Column, Table

_MOST = 3000  # combinations of levels and values that a column may add to


def columns(draw: np.random.Generator) -> tuple[Table, dict[str, Any], list[list[Any]]]:
    """Columns as the model has them, what is declared of them, and per column the entries that inputs may have."""
    found: list[Column] = []
    told: dict[str, Any] = {}
    values: list[list[Any]] = []
    kinds = [
        "number",
        "whole",
        "tenths",
        "yes",
        "ordered",
        "codes",
        "group",
        "dropped",
        "unknown",
        "pipeline",
        "ordinal",
    ]
    combinations = 1
    for k in range(draw.integers(3, 7)):
        kind, name, size = str(draw.choice(kinds)), f"c{k}", int(draw.integers(2, 5))
        count = {"number": 1, "whole": 7, "tenths": 11, "yes": 2, "ordered": size, "codes": size}.get(kind, size + 1)
        if combinations * count > _MOST:
            kind, count = "number", 1
        combinations *= count
        levels = [f"l{j}" for j in range(size)]
        eye = [tuple(float(i == j) for i in range(size)) for j in range(size)]
        zeros = (0.0,) * size
        if kind in ("number", "whole", "tenths"):
            found.append(Column(name))
            if kind == "whole":
                told[name] = {"kind": "whole number", "domain": [-3, 3]}
            elif kind == "tenths":
                told[name] = {"decimals": 1, "domain": [0, 1]}
            drawn = {"number": draw.normal(size=8), "whole": np.arange(-3, 4), "tenths": np.arange(11) / 10}[kind]
            values.append([(float(v),) for v in drawn])
        elif kind in ("yes", "ordered", "codes"):
            codes = [0, 1] if kind == "yes" else draw.permutation(6)[:size].tolist()
            found.append(Column(name))
            names = {"yes": "yes/no", "ordered": "ordered levels", "codes": "category"}
            told[name] = {"kind": names[kind]} | ({} if kind == "yes" else {"levels": levels, "codes": codes})
            values.append([(float(code),) for code in codes])
        elif kind in ("group", "dropped", "unknown"):
            parts = [f"{name}_{level}" for level in levels]
            found += map(Column, parts)
            told[name] = {"columns": parts} | {
                "group": {},
                "dropped": {"dropped": "none"},
                "unknown": {"unknown": True},
            }[kind]
            values.append([*eye, *([] if kind == "group" else [zeros])])
        else:
            own = eye if kind == "pipeline" else [(float(j),) for j in range(size)]
            other = zeros if kind == "pipeline" else (-1.0,)
            found.append(Column(name, tuple(levels), tuple(own), unknown=other))
            values.append([*own, other])
    return Table(tuple(found)), told, values


def network(table: Table, draw: np.random.Generator) -> er.Network:
    hidden, outputs = int(draw.integers(4, 11)), int(draw.integers(2, 4))
    graph, at = Graph((table.width,)), 0
    sizes = [table.width, *([hidden] * int(draw.integers(0, 3))), outputs]
    for k, (before, after) in enumerate(itertools.pairwise(sizes)):
        weight = torch.from_numpy(draw.normal(size=(after, before))) * float(draw.choice([0.3, 1.0]))
        at = graph.add(ops.Linear(weight, torch.from_numpy(draw.normal(size=after))), at)
        if k < len(sizes) - 2:
            at = graph.add(ops.ReLU() if draw.random() < 0.8 else ops.Tanh(), at)
    return graph.network(at, about=About(features=table.entries, table=table))


def options(table: Table, draw: np.random.Generator) -> dict[str, Any]:
    """What else `certify` is told."""
    found: dict[str, Any] = {"max_eps": 5.0}
    shapes = [er.Box(), er.Box(asymmetric=True), er.Uniform()]
    found["region"] = shapes[int(draw.choice(3, p=[0.5, 0.4, 0.1]))]
    if draw.random() < 0.2:
        found["effort"] = 20
    if draw.random() < 0.3:
        found["importance"] = {str(draw.choice(table.names)): float(draw.choice([0.1, 10.0]))}
    if draw.random() < 0.3 and len(table.columns) > 1:
        found["frozen"] = [str(draw.choice(table.names))]
    return found


def points(certs: er.Certificates, row: int, draw: np.random.Generator) -> Tensor:
    """Every combination of levels and values of a region, at corners and random points of other numbers."""
    net = certs.network
    assert net is not None and net.about.table is not None and certs.lower is not None and certs.upper is not None
    table, categories = net.about.table, Categories.of(net.about.table)
    sets = iter([] if categories is None else [one.codes[certs.allowed[row, place]] for one, place in categories])
    lower, upper = certs.lower[row].numpy(), certs.upper[row].numpy()
    choices: list[list[Any]] = []
    for column, place in zip(table.columns, table.places):
        low, high = lower[place.start], upper[place.start]
        if column.levels is not None:
            choices.append([tuple(code) for code in next(sets).tolist()])
        elif column.decimals is not None:
            scale = 10**column.decimals
            first, last = round(low * scale), round(high * scale)
            choices.append([(j / scale,) for j in range(first, last + 1)])
            assert (choices[-1][0][0], choices[-1][-1][0]) == (low, high)
        else:
            choices.append([(low,), (high,), *((v,) for v in draw.uniform(low, high, 2))] if low < high else [(low,)])
    return torch.tensor([sum(own, ()) for own in itertools.product(*choices)], dtype=torch.float64)


def well_formed(certs: er.Certificates, row: int, frozen: list[str]) -> bool:
    """Whether whole numbers end at whole ones, ordered levels have no gaps, and what is frozen is as it is."""
    net = certs.network
    assert net is not None and net.about.table is not None and certs.lower is not None and certs.upper is not None
    table, categories = net.about.table, Categories.of(net.about.table)
    good = True
    for column, place in zip(table.columns, table.places):
        ends = np.stack([t[row, place].numpy() for t in (certs.lower, certs.upper, certs.x)])
        if column.decimals is not None:
            good &= bool(is_multiple(ends, column.decimals).all())
        if column.name in frozen and column.levels is None:
            good &= bool((ends == ends[2]).all())
    named = [column for column in table.columns if column.levels is not None]
    for column, (_, place) in zip(named, categories or ()):
        chosen = certs.allowed[row, place].nonzero().squeeze(1).tolist()
        if column.ordered:
            good &= chosen == list(range(chosen[0], chosen[-1] + 1))
        if column.name in frozen:
            own = categories.sets_of(certs.x[row : row + 1])[0, place]
            good &= bool((certs.allowed[row, place] == own).all())
    return good


def further(certs: er.Certificates, row: int, frozen: list[str]) -> list[er.Certificates]:
    """The certificate with one level more, for each that may be added."""
    net = certs.network
    assert net is not None and net.about.table is not None
    categories = Categories.of(net.about.table)
    if categories is None or certs.allowed is None:
        return []
    names = [column.name for column in net.about.table.columns if column.levels is not None]
    one, found = certs.rows(row, row + 1), []
    open_ = ~one.allowed & categories.beside(one.allowed)
    for name, (_, place) in zip(names, categories):
        for level in range(place.start, place.stop) if name not in frozen else ():
            if bool(open_[0, level]):
                more = one.allowed.clone()
                more[0, level] = True
                lower, upper = categories.hull(more, one.lower, one.upper)
                found.append(replace(one, allowed=more, lower=lower, upper=upper))
    return found


def one_network(seed: int) -> Counter[str]:
    """Certificates of one network, and what is wrong about them."""
    draw = np.random.default_rng(seed)
    table, told, values = columns(draw)
    net = network(table, draw)
    x = torch.tensor([sum((own[draw.integers(len(own))] for own in values), ()) for _ in range(4)], dtype=torch.float64)
    found: Counter[str] = Counter(networks=1)
    declared = er.load(net, features=told) if told else net
    assert declared.about.table is not None
    given = options(declared.about.table, draw)
    try:
        certs = er.certify(declared, x, **given)
    except er.InputError as error:
        assert "every feature is frozen" in str(error), error
        return found
    frozen, report = given.get("frozen", []), er.check(certs, declared)
    for row in certs.certified.nonzero().squeeze(1).tolist():
        found["certificates"] += 1
        at = points(certs, row, draw)
        found["points"] += len(at)
        found["violations"] += not bool((net.decide(net(at)) == certs.labels[row]).all())
        found["not proved again"] += not bool(report.passed[row])
        found["not as declared"] += not well_formed(certs, row, frozen)
        found["with values to count"] += certs.stuck is not None
        found["no further value proved"] += certs.stuck is not None and bool(certs.stuck[row].any())
        if certs.maximal is not None and bool(certs.maximal[row]):
            found["said to be maximal"] += 1
            larger = further(certs, row, frozen)
            found["further levels tried"] += len(larger)
            found["further levels proved"] += sum(bool(er.check(one).passed.any()) for one in larger)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=int, default=350)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    total: Counter[str] = Counter()
    for seed in range(given.seed, given.seed + given.networks):
        found = one_network(seed)
        for name in ("violations", "not proved again", "not as declared", "further levels proved"):
            if found[name]:
                print(f"network {seed}: {name}", flush=True)
        total += found + Counter()
        total.update(dict.fromkeys(found, 0))
    for name, count in total.items():
        print(f"{name}: {count:,}")


if __name__ == "__main__":
    main()
