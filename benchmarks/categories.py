"""Tables with categories: how large regions are, what their sets of levels hold, and what codes bring beside columns.

    python benchmarks/categories.py [--rows 2000] [--inputs 40] [--effort fast]

Two tables are made here (seed 0): one like a census (age, hours, children, schooling, gains; job with rare levels,
marital status, sex, citizen or not; income above a threshold) and one like a bank's calls (age, balance, calls; job,
contact, loan yes or no, month; accepted or not), both with missing values. All numbers are whole, but for gains, which
have two decimals. A logistic regression and a perceptron of (32, 16) are fitted to each, behind imputers, scalers and
one-hot encoders that ignore unknown levels; some rows that they were not fitted to have levels that were never seen. A
torch module with an embedding of 3 numbers for each category and hidden layers of (32, 16) is trained on the same
tables with their categories as codes, 0 for what is missing or was never seen. All are certified from the frame, and
as a run from a CSV file, which must give the same regions.

Per model: accuracy; the share of rows certified; the mean room of numbers, as a share of their range; how many levels
sets have in the mean, of how many; in how many regions a whole number has no further value; how many of the
certificates hold at every combination of levels (up to 5,000 of them, drawn where there are more) with numbers drawn
among their values and at corners, decided by the model itself; how many were proved again, from the frame and from the
file; and what is left of the numbers' extents where codes may be any mixture of levels, as independent columns
would have it, found by bisection with the proof (0: nothing is).
"""

from __future__ import annotations

import argparse
import copy
import itertools
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import elbowroom as er
from elbowroom.claim.categories import Categories
from elbowroom.claim.specification import label_stays
from elbowroom.claim.stated import Stated
from elbowroom.data.sources import open_data
from elbowroom.network.table import Table
from elbowroom.proof.kernel.prove import prove
from elbowroom.runs.runner import run_dataset
from elbowroom.runs.settings import Settings

_MOST = 5000
KINDS: dict[str, dict[str, Any]] = {
    "census": {
        **dict.fromkeys(("age", "schooling", "hours", "children"), "whole number"), "citizen": "yes/no",
        "gains": {"decimals": 2, "unit": "EUR"},
    },
    "bank": {**dict.fromkeys(("age", "balance", "calls"), "whole number"), "loan": "yes/no"},
}  # fmt: skip


def census(rows: int, draw: np.random.Generator) -> tuple[Any, np.ndarray]:
    import pandas as pd

    jobs = ["clerical", "craft", "manager", "sales", "service", "transport", "armed forces", "private house"]
    chances = [0.2, 0.2, 0.18, 0.17, 0.14, 0.09, 0.01, 0.01]
    frame = pd.DataFrame(
        {
            "age": draw.integers(17, 80, rows),
            "schooling": draw.integers(5, 17, rows),
            "hours": draw.normal(40, 11, rows).clip(5, 90).round(),
            "children": draw.poisson(1.2, rows),
            "gains": np.where(draw.random(rows) < 0.1, draw.exponential(6000, rows), 0.0).round(2),
            "job": draw.choice(jobs, rows, p=chances),
            "married": draw.choice(["married", "never", "divorced", "widowed"], rows, p=[0.48, 0.32, 0.15, 0.05]),
            "sex": draw.choice(["female", "male"], rows),
            "citizen": draw.random(rows) < 0.9,
        }
    )
    score = (
        0.04 * (frame["age"] - 38) + 0.35 * (frame["schooling"] - 10) + 0.03 * (frame["hours"] - 40)
        + frame["gains"] / 4000 + 1.2 * (frame["married"] == "married") + 0.7 * frame["job"].isin(["manager", "sales"])
        - 0.2 * frame["children"] + 0.4 * frame["citizen"]
    )  # fmt: skip
    return _with_gaps(frame, draw, ["job", "hours"]), (score + draw.logistic(0, 0.7, rows) > 1.5).to_numpy()


def bank(rows: int, draw: np.random.Generator) -> tuple[Any, np.ndarray]:
    import pandas as pd

    months = ["jan", "mar", "may", "jul", "sep", "nov"]
    frame = pd.DataFrame(
        {
            "age": draw.integers(18, 90, rows),
            "balance": draw.normal(1400, 2500, rows).round(),
            "calls": draw.integers(1, 12, rows),
            "job": draw.choice(["admin", "blue-collar", "retired", "student", "technician", "housemaid"], rows),
            "contact": draw.choice(["cellular", "telephone"], rows, p=[0.7, 0.3]),
            "loan": draw.choice([True, False], rows, p=[0.3, 0.7]),
            "month": draw.choice(months, rows),
        }
    )
    score = (
        frame["balance"] / 2500 - 0.3 * frame["calls"] + 1.1 * frame["job"].isin(["retired", "student"])
        + 0.8 * (frame["contact"] == "cellular") - 0.9 * frame["loan"] + 1.2 * frame["month"].isin(["mar", "sep"])
    )  # fmt: skip
    return _with_gaps(frame, draw, ["job", "balance"]), (score + draw.logistic(0, 0.6, rows) > 0.3).to_numpy()


def _with_gaps(frame: Any, draw: np.random.Generator, columns: list[str]) -> Any:
    for name in columns:
        frame[name] = frame[name].astype(object)
        frame.loc[draw.random(len(frame)) < 0.02, name] = np.nan
    return frame


def pipeline(frame: Any, perceptron: bool) -> Any:
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    texts = [name for name in frame if any(isinstance(v, str | bool | np.bool_) for v in frame[name])]
    numbers = [name for name in frame if name not in texts]
    columns = ColumnTransformer(
        [
            ("numbers", make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), numbers),
            (
                "categories",
                make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore")),
                texts,
            ),
        ]
    )
    head = MLPClassifier((32, 16), max_iter=400, random_state=0) if perceptron else LogisticRegression(max_iter=1000)
    return make_pipeline(columns, head)


class Embeddings(nn.Module):
    """`sizes`: of each column, how many codes it has, None for numbers, which are standardised by `mean` and `std`."""

    def __init__(self, sizes: list[int | None], mean: np.ndarray, std: np.ndarray) -> None:
        super().__init__()
        self.codes = [k for k, size in enumerate(sizes) if size is not None]
        self.numbers = [k for k, size in enumerate(sizes) if size is None]
        self.embed = nn.ModuleList(nn.Embedding(size, 3) for size in sizes if size is not None)
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32))
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32))
        width = 3 * len(self.codes) + len(self.numbers)
        self.head = nn.Sequential(
            nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 2)
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        rows = [embed(x[:, k].long()) for k, embed in zip(self.codes, self.embed)]
        return self.head(torch.cat([(x[:, self.numbers] - self.mean) / self.std, *rows], 1))


class Coded:
    """A module with embeddings, fitted to a frame: categories become codes in the order of their texts, from 1 on; 0 is
    what is missing or was never seen. Missing numbers become the median, a whole one."""

    def __init__(self, frame: Any, labels: np.ndarray) -> None:
        self.levels: dict[str, list[str]] = {}
        self.median: dict[str, float] = {}
        for name in frame:
            if any(isinstance(v, str | bool | np.bool_) for v in frame[name]):
                self.levels[name] = sorted({str(v) for v in frame[name].dropna()})
            else:
                self.median[name] = float(frame[name].astype(float).median().round())
        coded = self.coded(frame)
        sizes = [len(self.levels[name]) + 1 if name in self.levels else None for name in frame]
        numbers = coded[list(self.median)].to_numpy()
        torch.manual_seed(0)
        self.module = Embeddings(sizes, numbers.mean(0), numbers.std(0))
        x, y = torch.tensor(coded.to_numpy(), dtype=torch.float32), torch.tensor(labels.astype(np.int64))
        adam = torch.optim.AdamW(self.module.parameters(), lr=5e-3, weight_decay=0.1)
        for _ in range(60):
            for rows in torch.randperm(len(x)).split(64):
                adam.zero_grad()
                nn.functional.cross_entropy(self.module(x[rows]), y[rows]).backward()
                adam.step()
        self.module.eval()
        self.exact = copy.deepcopy(self.module).double()

    def coded(self, frame: Any) -> Any:
        import pandas as pd

        found = {}
        for name in frame:
            if name in self.levels:
                known = {level: k + 1 for k, level in enumerate(self.levels[name])}
                found[name] = [known.get(str(v), 0) for v in frame[name]]
            else:
                found[name] = frame[name].astype(float).fillna(self.median[name]).to_numpy()
        return pd.DataFrame(found)

    def predict(self, coded: Any) -> np.ndarray:
        """In float64: the module in real arithmetic, as near as torch goes."""
        with torch.no_grad():
            return self.exact(torch.tensor(coded.to_numpy(dtype=np.float64))).argmax(1).numpy().astype(bool)


def attacked(model: Any, certs: er.Certificates, row: int, draw: np.random.Generator) -> bool:
    """Whether the model itself decides the same at every combination of levels, with numbers drawn and at corners."""
    import pandas as pd

    net = certs.network
    assert net is not None and isinstance(net.about.table, Table)
    assert certs.lower is not None and certs.upper is not None
    table, categories = net.about.table, Categories.of(net.about.table)
    choices: list[list[Any]] = []
    ends = certs.lower[row].numpy(), certs.upper[row].numpy()
    sets = iter([] if categories is None else [certs.allowed[row, place].tolist() for _, place in categories])
    for column in table.columns:
        if column.levels is not None:
            chosen = next(sets)
            levels = [level for level, own in zip(column.levels, chosen) if own]
            choices.append([*levels, *(["never seen"] if column.unknown is not None and chosen[-1] else [])])
    every = list(itertools.islice(itertools.product(*choices), 4 * _MOST))
    if len(every) > _MOST:
        every = [every[k] for k in draw.choice(len(every), _MOST, replace=False)]
    rows: dict[str, Any] = {}
    drawn = list(zip(*every))
    for column, place in zip(table.columns, table.places):
        if column.levels is None:
            low, high = (end[place.start] for end in ends)
            share = draw.random(len(every))
            drawn_here = low + np.where(draw.random(len(every)) < 0.5, share.round(), share) * (high - low)
            near = drawn_here if column.decimals is None else drawn_here.round(column.decimals)
            rows[column.name] = np.clip(near, low, high)
        else:
            rows[column.name] = list(drawn.pop(0))
    frame = pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in rows.items()})
    for column in table.columns:
        if column.levels is None:
            frame[column.name] = frame[column.name].astype(float)
    decided = model.predict(frame)
    names = np.array([str(name) for name in decided])
    label = (net.about.classes or ())[int(certs.labels[row])]
    return bool((names == label).all())


def mixed(net: er.Network, certs: er.Certificates, row: int) -> float:
    """How much of the extents of numbers is left where the entries of codes move freely of each other."""
    assert certs.lower is not None and certs.upper is not None
    spec = label_stays(certs.labels[row : row + 1], net.n_outputs, net.decision).cast(torch.float64, "cpu")
    x, moves = certs.x[row : row + 1], torch.from_numpy(net.about.table.moves)

    def proved(factor: float) -> bool:
        ends = [
            torch.where(moves, x + factor * (end[row : row + 1] - x), end[row : row + 1])
            for end in (certs.lower, certs.upper)
        ]
        return bool((prove(net, Stated(*ends), spec.rows, spec.offset, spec.group) > 0).all())

    if proved(1.0) or not proved(0.0):
        return float(proved(1.0))
    low, high = 0.0, 1.0
    for _ in range(8):
        middle = (low + high) / 2
        low, high = (middle, high) if proved(middle) else (low, middle)
    return low


def from_file(net: er.Network, some: Any, effort: str) -> er.Certificates:
    """Certificates of a run over a CSV file of these rows."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        some.to_csv(path, index=False)
        data, settings = open_data(str(path), features=net.about.table), Settings(predicted=True, effort=effort)
        run_dataset(net, data, Path(folder) / "run", settings)
        return er.Certificates.load(Path(folder) / "run")


def same(a: er.Certificates, b: er.Certificates) -> bool:
    """Whether both have the same regions."""
    pairs = ((a.lower, b.lower), (a.upper, b.upper), (a.allowed, b.allowed))
    return a.status == b.status and all(x is not None and y is not None and torch.equal(x, y) for x, y in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--inputs", type=int, default=40)
    parser.add_argument("--effort", default="fast")
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for make in (census, bank):
        draw = np.random.default_rng(0)
        frame, labels = make(given.rows, draw)
        half = given.rows // 2
        some = frame[half : half + given.inputs].reset_index(drop=True)
        some.loc[::10, "job"] = "never seen"
        for perceptron in (False, True):
            model = pipeline(frame, perceptron).fit(frame[:half], labels[:half])
            net = er.load(model, features=KINDS[make.__name__])
            right = model.score(frame[half:], labels[half:])
            name = f"{make.__name__}, {type(model[-1]).__name__}: accuracy {right:.3f}"
            report(name, model, net, some, given.effort, draw)
        coded = Coded(frame[:half], labels[:half])
        net = er.load(coded.module, (len(frame.columns),), features=list(frame), classes=["False", "True"])
        numbers = {name: kind for name, kind in KINDS[make.__name__].items() if kind != "yes/no"}
        net = er.load(net, features=numbers)
        right = float((coded.predict(coded.coded(frame[half:])) == labels[half:]).mean())
        name = f"{make.__name__}, embeddings: accuracy {right:.3f}"
        report(name, coded, net, coded.coded(some), given.effort, draw)


def report(name: str, model: Any, net: er.Network, rows: Any, effort: str, draw: np.random.Generator) -> None:
    """Prints what is found for these rows."""
    certs, filed = er.certify(net, rows, effort=effort), from_file(net, rows, effort)
    good = certs.certified.nonzero().squeeze(1).tolist()
    passed = er.check(certs, net).passed
    assert certs.allowed is not None and certs.room is not None and certs.stuck is not None
    moves = torch.from_numpy(net.about.table.moves)
    left = [mixed(net, certs, k) for k in good]
    held = sum(attacked(model, certs, k, draw) for k in good)
    print(
        f"{name}; {len(good)} of {len(certs)} certified; "
        f"room of numbers {float(certs.room[good][:, moves].nanmean()):.3f}; "
        f"levels {float(certs.allowed[good].sum(1).double().mean()):.1f} of {certs.allowed.shape[1]}; "
        f"a whole number is fixed in {int(certs.stuck[good].any(1).sum())}; "
        f"{held} of {len(good)} hold at all combinations; {int(passed.sum())} proved again; from a file "
        f"{'the same' if same(certs, filed) else 'OTHERS'}, {int(er.check(filed, net).passed.sum())} proved; "
        f"with columns for codes {np.mean(left):.3f} of the extents ({sum(v == 0 for v in left)} with none)",
        flush=True,
    )


if __name__ == "__main__":
    main()
