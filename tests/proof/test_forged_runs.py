"""Runs changed by a forger who recomputes every hash and checksum: what is printed of them is refused, found to be
unproved, stated by the run alone, or true of the network, which is looked up at corners and samples."""

import contextlib
import io
import itertools
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import event, given
from hypothesis import strategies as st
from torch import Tensor

import elbowroom as er
from elbowroom.certificates.result import Certificates
from elbowroom.certificates.store import Run
from elbowroom.claim.specification import Specification
from elbowroom.data.dataset import Dataset, Rows
from elbowroom.network import operations as ops
from elbowroom.network.graph import About, Network, Origin
from elbowroom.report import checks as check_show
from elbowroom.report import runs as run_show
from elbowroom.report.digits import at_least, at_most
from elbowroom.report.plain import print_json
from elbowroom.runs.check import Outcome, check_run
from elbowroom.runs.one_input import one_input
from elbowroom.runs.runner import run_dataset
from elbowroom.runs.settings import Settings
from elbowroom.runs.status import status_of
from elbowroom.runs.summary import summary_of
from forgery import edit_archive, edit_graph, edit_run, reseal, write_table
from support import cases, mlp

N, B = 3, 3
BASIS = torch.linalg.qr(torch.tensor(np.random.default_rng(1).normal(size=(N, N)))).Q
ORIGIN = Origin("model.onnx", "ab" * 32, {"mean": 0.5, "input_shape": [N]}, ("compared with the model at 96 inputs",))
ABOUT = About(("age", "income", "height"), ("low", "middle", "high"), ("the softmax was left off",), ORIGIN)
X = np.random.default_rng(0).uniform(-1, 1, size=(B, N))


def network(decision: str = "max") -> Network:
    net = mlp(np.random.default_rng(3), [N, 6, 3], ops.ReLU(), decision=decision).cast(torch.float32)
    return Network(net.nodes, decision, ABOUT)


def saved(folder: Path, net: Network | None = None, **given: Any) -> Path:
    net = net or network()
    return er.certify(net, X, **given).save(folder)


def dataset_run(folder: Path, **given: int | list[int] | str) -> Path:
    net = network()
    labels = net.decide(net(torch.from_numpy(X))).numpy()
    labels[1] = (labels[1] + 1) % 3
    names = {"features": ABOUT.features, "classes": ABOUT.classes, "ids": lambda k: f"row {k}"}
    data = Dataset("points.npy", (N,), B, "0" * 64, Rows(X), labels, **names)
    return run_dataset(net, data, folder, Settings.of({"device": "cpu", "part_rows": 2, **given})).run.folder


GOOD = {
    "box": lambda folder: saved(folder),
    "asymmetric, by the smallest": lambda folder: saved(folder, network("min"), region=er.Box(asymmetric=True)),
    "cut and frozen": lambda folder: saved(folder, domain=(-1.5, 1.5), frozen=[True, False, False]),
    "ellipsoid": lambda folder: saved(folder, region=er.Ellipsoid()),
    "l1": lambda folder: saved(folder, region=er.L1()),
    "ball": lambda folder: saved(folder, region=er.Ball(3)),
    "oblique": lambda folder: saved(folder, region=er.Oblique(BASIS, er.Box(asymmetric=True))),
    "oblique l1": lambda folder: saved(folder, region=er.Oblique(BASIS, er.L1())),
    "a set of labels": lambda folder: saved(folder, spec=er.label_in([0, 2], 3)),
    "outputs": lambda folder: saved(folder, spec=er.outputs_within(network()(torch.from_numpy(X)), 0.5)),
    "deployed": lambda folder: saved(folder, deployed="float32"),
    "reach": lambda folder: saved(folder, reach=True, domain=(-3, 3)),
    "reach of ellipsoids": lambda folder: saved(folder, reach=True, region=er.Ellipsoid()),
    "reach of oblique boxes": lambda folder: saved(folder, reach=True, region=er.Oblique(BASIS)),
    "reach of outputs": lambda folder: saved(
        folder, reach=True, spec=er.outputs_within(network()(torch.from_numpy(X)), 0.5)
    ),
    "data set": lambda folder: dataset_run(folder, domain=[-2, 2]),
    "data set, ellipsoid": lambda folder: dataset_run(folder, region="ellipsoid", max_eps=2),
}  # fmt: skip


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("good")
    for name, make in GOOD.items():
        make(place / name)
    return place


# --- what a forger does


def numbers() -> Any:
    return st.sampled_from(
        [0.0, -0.0, 1.0, -1.0, 1e-300, 5e-324, 1e300, -1e300, math.nan, math.inf, -math.inf, 0.1, 7.0, 1e-9]
    )


def values() -> st.SearchStrategy[Any]:
    """Of anything that JSON holds."""
    plain = st.sampled_from(
        [
            None, True, False, 0, 1, 2, 3, -1, 10**30, 0.5, 1.0, 2.0, "", "inf", "Box", "Uniform", "Box(asymmetric)",
            "L1", "Ellipsoid", "Oblique(Box)", "Oblique(L1)", "max", "min", "float32", "certified", "labels", "outputs",
            "adaptive", "combined", "logits", "\x1b[2J", "[red]", "é", [], {}, [0], [1, 2], ["a", "b", "c"], {"*": 1.0},
            "Ball(3)", "Ball(1.5)", {"*": [0.0, 1.0]}, {"0": [None, 1.0]}, "0" * 64,
        ]
    )  # fmt: skip
    return st.one_of(plain, st.integers(-3, 9), st.floats(allow_nan=False, allow_infinity=False, width=32))


def in_json(draw: st.DrawFn, found: dict[str, Any]) -> None:
    """Changes one thing anywhere in a JSON object."""
    while True:
        key = draw(st.sampled_from(sorted(found)))
        if isinstance(found[key], dict) and found[key] and draw(st.booleans()):
            found = found[key]
            continue
        if draw(st.integers(0, 9)) == 0:
            del found[key]
        else:
            found[key] = draw(values())
        return


def in_claim(draw: st.DrawFn, run: Path) -> None:
    edit_run(run, lambda r: in_json(draw, r["claim"]))


def in_settings(draw: st.DrawFn, run: Path) -> None:
    edit_run(run, lambda r: in_json(draw, r["claim"]["settings"]))


def in_plan(draw: st.DrawFn, run: Any) -> None:
    edit_run(run, lambda r: in_json(draw, r["plan"]))


SHAPES = [
    ("inf", "Box"), ("inf", "Box(asymmetric)"), (2, "Ellipsoid"), (1, "L1"), (1.5, "Ball(1.5)"), (3.0, "Ball(3)"),
    (1e9, "Ball(1000000000)"),
]  # fmt: skip


def another_shape(draw: st.DrawFn, run: Path) -> None:
    """The same numbers said to be of another norm, under a name that fits it; a basis stays."""
    p, name = draw(st.sampled_from(SHAPES))

    def change(r: dict[str, Any]) -> None:
        rotated = "basis" in r["claim"]["shared"]
        r["claim"]["settings"].update(p=p, region=f"Oblique({name})" if rotated else name)

    edit_run(run, change)


def without_corners(draw: st.DrawFn, run: Any) -> None:
    """A box stated by centre and extents alone."""
    edit_run(run, lambda r: r["claim"].update(has=[part for part in r["claim"]["has"] if part != "boxes"]))
    rewrite(run, lambda t: t.drop_columns([n for n in ("lower", "upper") if n in t.column_names]))


def with_corners(draw: st.DrawFn, run: Path) -> None:
    """Whatever it was, said to be a box from `center - eps` to `center + eps`."""

    def change(r: dict[str, Any]) -> None:
        r["claim"].update(has=sorted({*r["claim"]["has"], "boxes"}))
        r["claim"]["settings"].update(p="inf", region="Box")

    def corners(table: Any) -> Any:
        center, eps = (np.array(table.column(n).to_pylist()) for n in ("center", "eps"))
        for name, corner in (("upper", center + eps), ("lower", center - eps)):
            if name in table.column_names:
                table = table.drop_columns([name])
            field = table.schema.field("center").with_name(name)
            at = table.column_names.index("center") + 1
            table = table.add_column(at, field, pa.array(corner.tolist(), type=field.type))
        return table

    edit_run(run, change)
    rewrite(run, corners)


def rewrite(run: Path, change: Callable[..., Any]) -> None:
    for path in run.glob("parts/*.parquet"):
        write_table(change(pq.read_table(path)), path)


def in_columns(draw: st.DrawFn, run: Any) -> None:
    """One number or text of a row, or a whole column."""
    path = draw(st.sampled_from(sorted(run.glob("parts/*.parquet"))))
    table = pq.read_table(path)
    name = draw(st.sampled_from(table.column_names[:-1]))
    column = table.column(name).to_pylist()
    rows = [draw(st.integers(0, len(column) - 1))] if draw(st.booleans()) else range(len(column))
    if isinstance(column[0], str):
        pool = ["certified", "misclassified", "error"] if name == "status" else ["", "all is well", "\x1b[2J"]
        new = draw(st.sampled_from(pool))
        for k in rows:
            column[k] = new
    else:
        change = draw(changes())
        for k in rows:
            if isinstance(column[k], list):
                at = [draw(st.integers(0, len(column[k]) - 1))] if draw(st.booleans()) else range(len(column[k]))
                column[k] = [change(v) if j in at else v for j, v in enumerate(column[k])]
            else:
                column[k] = change(column[k])
    replace_column(path, table, name, column)


def changes() -> Any:
    """Of one number: as little as can be, or anything."""
    scale = st.sampled_from([0.0, -1.0, 0.5, 0.999, 1 + 1e-12, 1.001, 2.0, 100.0])
    return st.one_of(
        st.just(
            lambda v: not v if isinstance(v, bool) else math.nextafter(v, math.inf) if isinstance(v, float) else v + 1
        ),
        numbers().map(lambda new: lambda v: new if isinstance(v, float) else v),
        scale.map(lambda f: lambda v: f * v if isinstance(v, float) else v),
        st.integers(-2, 4).map(lambda new: lambda v: new if type(v) is int else v),
    )


def replace_column(path: Path, table: Any, name: str, column: Any) -> None:
    at, field = table.column_names.index(name), table.schema.field(name)
    try:
        new = pa.array(column, type=field.type)
    except (pa.ArrowException, TypeError, OverflowError):
        return
    write_table(table.set_column(at, field, new), path)


def another_column(draw: st.DrawFn, run: Any) -> None:
    """The numbers of one column in place of another's."""
    path = draw(st.sampled_from(sorted(run.glob("parts/*.parquet"))))
    table = pq.read_table(path)
    wide = [n for n in ("x", "center", "eps", "lower", "upper") if n in table.column_names]
    kind = draw(st.sampled_from([wide, ["uniform", "geomean", "ratio", "log_volume", "seconds"]]))
    first, second = draw(st.sampled_from(kind)), draw(st.sampled_from(kind))
    replace_column(path, table, first, table.column(second).to_pylist())


def another_name(draw: st.DrawFn, run: Any) -> None:
    """The shape called by another name, and no more."""
    names = ["Box", "Uniform", "Box(asymmetric)", "Ellipsoid", "L1", "Ball(1.5)", "Ball(2)", "Ball(3)"]
    name = draw(st.sampled_from([*names, *(f"Oblique({n})" for n in names)]))
    edit_run(run, lambda r: r["claim"]["settings"].update(region=name))


def regions_grown(draw: st.DrawFn, run: Path) -> None:
    """All regions by a factor, with every size that follows from it: a false claim, or a smaller true one."""
    factor = draw(st.sampled_from([0.2, 0.9, 1.0, 1.02, 1.1, 1.5, 2.0, 5.0]))

    def grow(rows: dict[str, np.ndarray]) -> None:
        x, eps = rows["x"], rows["eps"] * factor
        if "lower" in rows:
            lower, upper = (x + factor * (rows[n] - x) for n in ("lower", "upper"))
            eps = np.nextafter(upper / 2 - lower / 2, 0)
            rows.update(lower=lower, upper=upper, center=lower / 2 + upper / 2)
        rows["eps"] = np.maximum(eps, 0)

    with_rows(run, grow)


def extents_grown(draw: st.DrawFn, run: Any) -> None:
    """The extents alone, with sizes that follow from them, while corners stay."""
    factor = draw(st.sampled_from([0.5, 0.999, 1 + 1e-9, 1.001, 2.0]))
    with_rows(run, lambda rows: rows.update(eps=rows["eps"] * factor))


def inputs_moved(draw: st.DrawFn, run: Any) -> None:
    """Inputs elsewhere in, or beside, their regions."""
    share, k = draw(st.sampled_from([-1.1, -0.9, -0.5, 0.5, 0.99, 1.01])), draw(st.integers(0, N - 1))

    def move(rows: Any) -> None:
        rows["x"] = rows["x"].copy()
        rows["x"][:, k] += share * rows["eps"][:, k]

    with_rows(run, move)


def with_rows(run: Path, change: Callable[..., Any]) -> None:
    """Changes arrays of the rows by column, and states the sizes that follow."""
    p = json.loads((run / "run.json").read_text())["claim"]["settings"].get("p")

    def of(table: Any) -> Any:
        names = [n for n in ("x", "eps", "center", "lower", "upper") if n in table.column_names]
        rows = {n: np.array(table.column(n).to_pylist()) for n in names}
        change(rows)
        eps = rows["eps"]
        n = (eps > 0).sum(1)
        good = (np.array(table.column("status").to_pylist()) == "certified") & (n > 0)
        log = np.log(np.where(eps > 0, eps, 1)).sum(1) / np.maximum(n, 1)
        unit = {2: [k / 2 * math.log(math.pi) - math.lgamma(k / 2 + 1) for k in n]}
        unit[1] = [k * math.log(2) - math.lgamma(k + 1) for k in n]
        volume = n * log + np.array(unit.get(p, n * math.log(2)))
        rows.update(geomean=np.where(good, np.exp(log), 0), log_volume=np.where(good, volume, -np.inf))
        for name, values in rows.items():
            at, field = table.column_names.index(name), table.schema.field(name)
            table = table.set_column(at, field, pa.array(values.tolist(), type=field.type))
        return table

    rewrite(run, of)


def in_names(draw: st.DrawFn, run: Path) -> None:
    """Names, notes, the origin, the decision."""

    def change(graph: dict[str, Any]) -> None:
        what = draw(st.sampled_from(["features", "classes", "notes", "origin", "decision"]))
        if what == "decision":
            graph[what] = "min" if graph[what] == "max" else "max"
        elif what == "origin" and graph[what] is not None:
            in_json(draw, graph[what])
        elif isinstance(graph[what], list) and graph[what] and draw(st.booleans()):
            graph[what] = graph[what][1:] + graph[what][:1]
        else:
            graph[what] = draw(st.one_of(values(), st.just(["x", "y", "z"])))

    edit_graph(run / "network.elbowroom", change)


def in_graph(draw: st.DrawFn, run: Any) -> None:
    edit_graph(run / "network.elbowroom", lambda graph: in_json(draw, draw(st.sampled_from(graph["nodes"]))))


def in_arrays(draw: st.DrawFn, run: Any) -> None:
    """A parameter of the network, the basis, or the specification that is shared."""
    archives = [path for path in (run / "network.elbowroom", run / "shared.npz") if path.exists()]
    path = draw(st.sampled_from(archives))

    def change(entries: Any) -> None:
        name = draw(st.sampled_from([n for n in sorted(entries) if n.endswith(".npy")]))
        head = 10 + int.from_bytes(entries[name][8:10], "little")
        kind = "<f8" if b"<f8" in entries[name][:head] else "<f4"
        array = np.frombuffer(entries[name][head:], kind).copy()
        with np.errstate(all="ignore"):
            if draw(st.booleans()):
                array *= draw(st.sampled_from([-1.0, 0.0, 1.001, 2.0, 1e30, math.nan]))
            else:
                array[draw(st.integers(0, len(array) - 1))] = draw(numbers())
        entries[name] = entries[name][:head] + array.tobytes()

    edit_archive(path, change)


def less(draw: st.DrawFn, run: Any) -> None:
    """A part that is not there."""
    draw(st.sampled_from(sorted(run.glob("parts/*.parquet")))).unlink()


FORGERIES = (
    in_claim, in_settings, in_plan, another_shape, another_name, without_corners, with_corners, in_columns, in_columns,
    in_columns, another_column, regions_grown, extents_grown, inputs_moved, in_names, in_graph, in_arrays, less,
)  # fmt: skip


def forge(draw: st.DrawFn, run: Path) -> None:
    change = draw(st.sampled_from(FORGERIES))
    if any(run.glob("parts/*.parquet")):
        # What an earlier change left may be no claim any more, and offer nothing to the next.
        with contextlib.suppress(KeyError, TypeError, AttributeError):
            change(draw, run)


# --- what is then said


def page(show: Callable[..., Any], *given: dict[str, Any] | Outcome | int) -> str:
    """What is printed: whatever a file holds, something that can be."""
    with contextlib.redirect_stdout(io.StringIO()) as text:
        show(*given)
    assert all(c.isprintable() or c == "\n" for c in text.getvalue())
    return text.getvalue()


def plain(value: dict[str, Any]) -> dict[str, Any]:
    """As a program gets it from --json."""
    with contextlib.redirect_stdout(io.StringIO()) as text:
        print_json(value)
    return json.loads(text.getvalue())


def pages_of(run: Path) -> Any:
    """Everything that `status`, `show` and `show --index` print: the summary with its page, and inputs with theirs."""
    opened = Run.open(run)
    page(run_show.show_status, plain(status_of(opened)))
    summary = summary_of(opened)
    found = plain(summary), page(run_show.show_summary, summary), []
    for k in range(B):
        with contextlib.suppress(er.InputError):
            one = one_input(opened, k)
            found[2].append((plain(one), page(run_show.show_input, one, 20)))
    return found


def verdict(run: Path) -> str:
    """ "refused", "failed", or what is left after everything printed has been looked up."""
    try:
        outcome = check_run(Run.open(run))
    except er.InputError:
        outcome = None
    try:
        summary, text, ones = pages_of(run)
    except er.InputError as error:
        # What a plan says of settings means nothing to the check, which neither uses nor shows it.
        assert outcome is None or str(error).startswith("run.json: plan: ")
        return "refused"
    if outcome is None:
        return "refused"
    checked, found = page(check_show.show, outcome), plain(check_show.as_json(outcome, 0))
    if outcome.verdict == "failed":
        assert "not proved: " in checked and not found["passed"]
        return "failed"
    assert found["passed"] == (outcome.verdict == "passed") == (bool(found["margins"]) and not found["missing"])
    margins = {m["input"]: m["smallest"] for m in found["margins"]}
    certs = er.Certificates.load(run)
    sizes = [look_up(certs, one, words, margins[one["input"]]) for one, words in ones if one["status"] == "certified"]
    numbers = [certs.number(k) for k in range(len(certs))]
    if sorted(one["input"] for one, _ in ones) == sorted(numbers):  # a forger may give inputs any numbers
        assert summary["status"]["certified"] == len(sizes) == found["counts"]["proved"]
        assert not sizes or summary["size"] == pytest.approx(np.mean(sizes), rel=1e-6)
    words = {"Box": "half-widths", "Ellipsoid": "semi-axes", "L1": "reaches along the axes"}
    shape = inner(summary["region"])
    assert f"region {summary['region']}" in text and words.get(shape, words["L1"]) in text
    assert "stated by the run, and not proved:" in text
    if found["passed"]:
        assert f"all proved: {len(margins)} of {len(margins)} certificates" in checked or len(set(numbers)) < len(
            numbers
        )
        assert f"smallest margin proved: {at_most(min(margins.values()), 3)}" in checked
    return "true" if found["passed"] else "incomplete"


def inner(region: str) -> str:
    """What a rotated shape is of."""
    return region.removeprefix("Oblique(").removesuffix(")") if region.startswith("Oblique(") else region


def look_up(certs: Certificates, one: dict[str, float | list[Any] | str | None], page: str, margin: float) -> float:
    """Whether a page about an input is true of the network; returns the size of its region."""
    net = certs.network
    features = sorted(one["features"], key=lambda f: f["number"])
    value, extent = (torch.tensor([f[n] for f in features], dtype=torch.float64) for n in ("value", "extent"))
    shape, rotated = inner(one["region"]), one["region"].startswith("Oblique")
    head = {"Box": "half-width", "Ellipsoid": "semi-axis"}.get(shape, "reach alone")
    assert head in page and not any(other in page for other in {"half-width", "semi-axis", "reach alone"} - {head})
    if shape == "Box":
        lower, upper = (torch.tensor([f[n] for f in features], dtype=torch.float64) for n in ("lower", "upper"))
        torch.testing.assert_close((upper - lower) / 2, extent, rtol=1e-9, atol=1e-12)
        lower, upper = printed_ends(page, lower, upper, features)
        points = lower + shares() * (upper - lower)
        if certs.lowest is not None and certs.lower is not None:
            row = next(k for k in range(len(certs)) if certs.number(k) == one["input"])
            lowest, highest = (t[0 if len(t) == 1 else row] for t in (certs.lowest, certs.highest))
            assert (lowest <= lower).all() and (upper <= highest).all()
    else:
        points = value + directions(shape) * extent
    if rotated:
        points = points @ certs.basis.T
    points = torch.cat([points, certs.x[[certs.number(k) == one["input"] for k in range(len(certs))]][:1]])
    # As executed: what rounding to float32 might move out of the region, a little inside it.
    executed = [] if one["deployed"] is None else [(points[-1] + 0.999 * (points - points[-1])).float()]
    for inputs in [points, *executed]:
        outputs = net(inputs).double()
        assert (margins_at(certs, one, outputs) >= margin - 1e-9).all() and margin > 0
        if one["label"] is not None:
            assert (net.decide(outputs) == one["label"]).all() and f"label that stays: {one['label']}" in page
        else:
            assert "label" not in page and f"what holds: {one['conditions']}" in page
    if one["counterexample"] is not None and one["counterexample"]["reach"] is not None:
        point = torch.tensor([one["counterexample"]["point"]], dtype=torch.float64)
        assert (margins_at(certs, one, net(point).double()) <= 1e-9).all()
        assert f" at {at_least(one['counterexample']['reach'], 4)} times this region" in page
        if certs.lower is not None:
            scale = one["counterexample"]["reach"] * (1 + 1e-9)
            row = [certs.number(k) == one["input"] for k in range(len(certs))].index(True)
            moved, x = point[0] - certs.x[row], certs.x[row]
            assert (moved <= scale * (certs.upper[row] - x) + 1e-12).all()
            assert (moved >= scale * (certs.lower[row] - x) - 1e-12).all()
    geomean = float(extent[extent > 0].log().mean().exp()) if bool((extent > 0).any()) else 0.0
    assert one["geomean"] == pytest.approx(geomean, rel=1e-8) and f" {one['geomean']:.6g}, " in page
    assert "stated by the run, and not proved: names, ratio, margin" in page.splitlines()[-1]
    return geomean


def printed_ends(page: str, lower: Tensor, upper: Tensor, features: list[dict[str, Any]]) -> tuple[Tensor, Tensor]:
    """The ends in the table, which lie within those stored (a point is printed to the nearest)."""
    lines = [line.split() for line in page.splitlines()]
    at = next(k for k, line in enumerate(lines) if line[:1] == ["feature"] and "from" in line)
    shared = any(f["share"] is not None for f in features)

    def room(k: int) -> tuple[bool, bool, float]:
        share, width = features[k]["share"], features[k]["extent"]
        return width == 0, share is None, width if share is None else share

    ordered = sorted(range(len(features)), key=room)
    for k, line in zip(ordered, lines[at + 1 :]):
        line = line[: line.index("%") - 1] if "%" in line else line[:-1] if shared and line[-1] == "-" else line
        cells = [c for c in line if c == "-" or (c[-1].isdigit() and c[0] in "-0123456789")]
        cells = cells[:-2] if "seen" in lines[at] else cells  # what was seen below and above comes last
        if lower[k] < upper[k]:
            assert lower[k] <= float(cells[-4]) <= float(cells[-3]) <= upper[k], (line, lower[k], upper[k])
            assert float(cells[-2]) <= features[k]["down"] and float(cells[-1]) <= features[k]["up"]
            lower[k], upper[k] = float(cells[-4]), float(cells[-3])
    return lower, upper


def shares() -> Tensor:
    """Corners, and points between."""
    corners = torch.tensor(list(itertools.product((0.0, 1.0), repeat=N)), dtype=torch.float64)
    return torch.cat([corners, torch.rand(200, N, dtype=torch.float64, generator=torch.Generator().manual_seed(0))])


def directions(shape: str) -> Tensor:
    """Points of the unit ball's surface, the ends of its axes among them."""
    ends = torch.cat([torch.eye(N), -torch.eye(N)]).double()
    some = torch.randn(200, N, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    p = float({"Ellipsoid": 2, "L1": 1}.get(shape) or shape.removeprefix("Ball(").removesuffix(")"))
    return torch.cat([ends, some / torch.linalg.vector_norm(some, ord=p, dim=1, keepdim=True)]) * (1 - 1e-12)


def margins_at(certs: Certificates, one: dict[str, float | list[Any] | str | None], outputs: Tensor) -> Tensor:
    """The smallest margin of what is claimed, at given outputs."""
    if certs.spec_rows is None:
        sign = 1 if certs.network.decision == "max" else -1
        others = [j for j in range(outputs.shape[1]) if j != one["label"]]
        return (sign * (outputs[:, [one["label"]]] - outputs[:, others])).amin(1)
    row = next(k for k in range(len(certs)) if certs.number(k) == one["input"])
    k = 0 if len(certs.spec_rows) == 1 else row
    spec = Specification(certs.spec_rows[k : k + 1], certs.spec_offset[k : k + 1], certs.spec_group)
    return spec.margins(outputs).amin(1)


# --- the tests


@pytest.mark.parametrize("name", list(GOOD))
def test_good_runs_are_true(good: Path, name: str) -> None:
    """The oracle would be worth nothing if it refused what is right."""
    assert verdict(good / name) == "true"


@pytest.mark.parametrize("name", list(GOOD))
def test_grown_regions_are_false(good: Path, tmp_path: Path, name: str) -> None:
    """Nor if it never saw a false one."""
    run = Path(shutil.copytree(good / name, tmp_path / "run"))
    regions_grown(lambda strategy: 5.0, run)
    reseal(run)
    assert verdict(run) == "failed"


@cases(2.4)
@given(data=st.data())
def test_forged_runs_say_nothing_false(
    good: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(list(GOOD)), label="run")
    run = Path(shutil.copytree(good / name, tmp_path_factory.mktemp("forged") / "run"))
    try:
        for _ in range(data.draw(st.sampled_from([1, 1, 1, 2, 3]))):
            forge(data.draw, run)
        reseal(run)
        event(verdict(run))
    finally:
        shutil.rmtree(run.parent)
