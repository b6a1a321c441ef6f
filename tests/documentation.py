"""Shared by the tests of the documentation: its pages, the blocks of code in them, and what these need to run.

A block is run by its language: `python` (all of a page share their names), `shell` (our commands, and a few others),
`toml` (settings), `yaml` (the commands of its steps). `text` and blocks without a language are shown, not run. A block
that cannot be run has a title that says why, as in ```` ```shell title="needs a cluster" ````; NOT_RUN lists these.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

import elbowroom as er
from elbowroom.readers.onnx.write import write_onnx

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]

# The titles of blocks that are not run, and why.
NOT_RUN = {
    "needs a cluster": "of several machines; tests/runs/engines has one of two nodes on this machine",
    "needs the data sets, and hours of a GPU": "tests/paper has small ones",
    "needs MNIST": "its 70,000 images are not part of the repository",
    "needs the files of ACAS Xu": "tests/test_example_acas_xu.py runs the example where they are",
    "starts processes": "tests/runs/engines does",
    "takes minutes": "a benchmark",
}
# Programs that blocks call and tests do not, and why.
NOT_CALLED = {"make": "would set up an environment", "pip": "would install"}


@dataclass(frozen=True)
class Block:
    """A block of code. `line`: where it begins in its page; `title`: why it is not run, or nothing."""

    language: str
    title: str
    line: int
    text: str

    def commands(self) -> list[str]:
        """The lines of a shell block, those that end in a backslash joined with the next one."""
        return [line for line in self.text.replace("\\\n", " ").splitlines() if line.strip()]


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    found = re.finditer(r'^```(\w*)(?: title="([^"]*)")?\n(.*?)^```$', text, re.MULTILINE | re.DOTALL)
    every = [Block(m[1], m[2] or "", text[: m.start()].count("\n") + 1, m[3]) for m in found]
    assert len(every) * 2 == len(re.findall(r"^\s*```", text, re.MULTILINE)), f"{page.name}: a fence is not understood"
    return every


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


# ---------------------------------------------------------------------------------------------------------------
# What pages take for granted: files by the names that they use


def small(n_inputs: int, n_outputs: int = 3, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(n_inputs, 6), nn.ReLU(), nn.Linear(6, n_outputs))


def table(folder: Path, name: str, rows: int = 20, features: str = "abcd") -> None:
    """`model.onnx`, and a table that it takes, with the labels that it gives."""
    net = er.load(small(len(features), 2 if len(features) < 3 else 3), input_shape=(len(features),))
    write_onnx(net, folder / "model.onnx")
    x = torch.rand(rows, len(features), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    lines = [",".join([*features, "label"])]
    for row, label in zip(x.tolist(), net.decide(net(x)).tolist()):
        lines.append(",".join([*map(repr, row), str(label)]))
    (folder / name).write_text("\n".join(lines) + "\n")


def runs(folder: Path, names: tuple[str, ...], n_inputs: int = 4) -> None:
    """Runs of one network about the same inputs."""
    net = er.load(small(n_inputs), input_shape=(n_inputs,))
    certs = er.certify(net, torch.rand(4, n_inputs, generator=torch.Generator().manual_seed(0)), domain=(0, 1))
    for name in names:
        certs.save(folder / name)


def pixels(folder: Path) -> None:
    """A run of 34 small images."""
    net = er.load(nn.Sequential(nn.Flatten(), *small(16)), input_shape=(1, 4, 4))
    er.certify(net, torch.rand(34, 1, 4, 4, generator=torch.Generator().manual_seed(0)), domain=(0, 1)).save(
        folder / "run"
    )


def images(folder: Path) -> None:
    """`model.onnx`, and 20 images under the name of MNIST's, with the labels that it gives."""
    net = er.load(nn.Sequential(nn.Flatten(), *small(784, 10)), input_shape=(1, 28, 28))
    write_onnx(net, folder / "model.onnx")
    pixels = np.random.default_rng(0).integers(0, 256, (20, 28, 28)).astype(np.uint8)
    labels = net.decide(net(torch.from_numpy(pixels / 255).unsqueeze(1)))
    place = folder / "DATA" / "MNIST" / "raw"
    place.mkdir(parents=True)
    for name, array in (("images-idx3", pixels), ("labels-idx1", labels.numpy().astype(np.uint8))):
        head = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
        (place / f"t10k-{name}-ubyte").write_bytes(head + array.tobytes())


def aircraft(folder: Path) -> None:
    """A network and a property under the names of ACAS Xu's."""
    write_onnx(er.load(small(5, 5), input_shape=(5,)), folder / "ACASXU_run2a_1_1_batch_2000.onnx")
    names = [*(f"X_{k}" for k in range(5)), *(f"Y_{k}" for k in range(5))]
    lines = [f"(declare-const {name} Real)" for name in names]
    lines += [f"(assert (>= X_{k} -0.1))\n(assert (<= X_{k} 0.1))" for k in range(5)]
    lines += [f"(assert (<= Y_0 Y_{k}))" for k in range(1, 5)]
    (folder / "prop_3.vnnlib").write_text("\n".join(lines) + "\n")


def people(folder: Path) -> None:
    """`model.joblib` and `data.csv`: a pipeline of a table with a category."""
    import joblib  # type: ignore[import-untyped]
    import pandas
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    rng = np.random.default_rng(0)
    frame = pandas.DataFrame({"age": rng.integers(18, 80, 40), "job": rng.choice(["clerk", "admin"], 40)})
    steps = make_column_transformer((StandardScaler(), ["age"]), (OneHotEncoder(), ["job"]))
    model = make_pipeline(steps, LogisticRegression()).fit(frame, frame["age"] > 50)
    joblib.dump(model, folder / "model.joblib")
    frame.to_csv(folder / "data.csv", index=False)


def report_page(folder: Path) -> None:
    runs(folder, ("run", "normal", "robust", "old", "new"))
    runs(folder, ("out/demo/normal/non-uniform", "out/demo/robust/non-uniform"), 64)
    table(folder, "tests.csv", 6)
    from commands import good

    good(
        "certify", folder / "model.onnx", folder / "tests.csv", "--domain", "0,1", "--out", folder / "runs" / "released"
    )


NEEDED: dict[str, Callable[[Path], None]] = {
    "docs/acas_xu.md": aircraft,
    "docs/larger.md": lambda folder: table(folder, "data.csv", 1, "ab"),
    "docs/pictures.md": pixels,
    "docs/report.md": report_page,
    "docs/running.md": images,
    "docs/tables.md": people,
}
# Names that the Python of a page takes for granted, as code.
GIVEN = {
    "docs/bounds.md": """
from torch import nn
net = er.load(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), input_shape=(4,))
x = torch.rand(3, 4)
""",
    "docs/larger.md": """
from torch import nn
net = er.load(nn.Sequential(nn.Linear(2, 1), nn.ReLU(), nn.Linear(1, 2)), input_shape=(2,))
x = torch.rand(1, 2)
""",
    "docs/pictures.md": "from matplotlib.figure import Figure; ax = Figure().subplots()",
    "docs/tables.md": """
import joblib, pandas
pipeline, frame = joblib.load("model.joblib"), pandas.read_csv("data.csv")
frame = frame.assign(balance=12.5, job_admin=1, job_clerk=0, risk=0, loan=1, sex=1.0)[:12]

from torch import nn
class One(nn.Module):
    def __init__(self):
        super().__init__()
        self.job, self.last = nn.Embedding(4, 2), nn.Linear(4, 2)
    def forward(self, x):
        return self.last(torch.cat([x[:, :2], self.job(x[:, 2].long())], 1))
class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.last = nn.Embedding(4, 2), nn.Linear(7, 2)
    def forward(self, codes, numbers):
        return self.last(torch.cat([self.embed(codes.long()).flatten(1), numbers], 1))
names = ["age", "balance", "job_admin", "job_clerk", "risk", "loan", "sex"]
net = er.load(nn.Linear(7, 2), input_shape=(7,), features=names)
module, other = One(), Two()
x = torch.tensor([[1.0, 3.0], [0.0, 2.0]]), torch.rand(2, 3)
""",
}
