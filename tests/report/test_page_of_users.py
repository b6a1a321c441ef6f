"""The pages of what people have: the demo, a thousand images, measurements of patients, a table with categories."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

import elbowroom as er
from elbowroom.demo.examine import Settings
from elbowroom.demo.run import run_demo
from elbowroom.network.operations import Linear
from elbowroom.report.page.gather import report_of
from elbowroom.report.page.write import write_page
from elbowroom.training.adversary import PGD

pytest.importorskip("matplotlib")
pytest.importorskip("sklearn")
pandas = pytest.importorskip("pandas")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
pytestmark = pytest.mark.filterwarnings("ignore::elbowroom.errors.DataWarning")
SMALL = Settings(
    widths=(16,), epochs=6, rate=1e-2, adversary=PGD(0.3, steps=3, step=0.5), n_digits=20, starts=1, enlarged=(4.0,)
)  # fmt: skip
Open = Callable[..., Any]


def demo(place: Path) -> dict[str, Any]:
    run_demo(place / "demo", settings=SMALL, console=Console(file=io.StringIO()))
    return report_of([place / "demo" / name / "non-uniform" for name in ("normal", "robust")], image_shape=(8, 8))


def patients(place: Path) -> dict[str, Any]:
    from sklearn.datasets import load_breast_cancer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    data = load_breast_cancer(as_frame=True)
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(data.data, data.target)
    er.certify(model, data.data[:20], domain="observed", reach=True).save(place / "patients")
    return report_of([place / "patients"])


def customers(place: Path) -> dict[str, Any]:
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    draw = np.random.default_rng(0)
    frame = pandas.DataFrame({
        "age": draw.integers(18, 80, 60), "balance": draw.normal(2000, 900, 60).round(2),
        "job": draw.choice(["admin", "<b>technician</b>", "retired"], 60), "married": draw.choice(["yes", "no"], 60),
    })  # fmt: skip
    target = frame["age"] / 40 + frame["balance"] / 2000 + (frame["job"] == "admin") > 2.5
    columns = make_column_transformer((StandardScaler(), ["age", "balance"]), (OneHotEncoder(), ["job", "married"]))
    model = make_pipeline(columns, LogisticRegression()).fit(frame, target)
    er.certify(model, frame[:15]).save(place / "customers")
    return report_of([place / "customers"])


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("users")
    for make in (demo, patients, customers):
        write_page(make(place), place / f"{make.__name__}.html")
    return {make.__name__: place / f"{make.__name__}.html" for make in (demo, patients, customers)}


@pytest.mark.parametrize("name", ["demo", "patients", "customers"])
def test_a_page_is_read_sorted_and_searched(name: str, opened: Open) -> None:
    page = opened(name)
    count = page.locator("#count").inner_text()
    assert count == f"{20 if name != 'customers' else 15} inputs"
    heads = page.locator("#rows thead th")
    size = [text.strip(" ▲▼") for text in heads.all_inner_texts()].index("size")
    heads.nth(size).locator("button").click()
    assert heads.nth(size).get_attribute("aria-sort") == "ascending"
    page.locator("input[name=search]").fill("no such input")
    playwright.expect(page.locator("#count")).to_contain_text("0 of")
    page.locator("button[type=reset]").click()
    playwright.expect(page.locator("#count")).to_have_text(count)
    assert page.locator("#detail").inner_text().strip()


def test_tables_name_their_features(opened: Open) -> None:
    said = opened("patients").locator("#detail").inner_text()
    assert "mean radius" in said and "worst concavity" in said
    said = opened("customers").locator("#detail").inner_text()
    assert "balance" in said and "job" in said and ("any of" in said or "as it is" in said)
    assert opened("customers").locator("#detail b", has_text="technician").count() == 0  # a name, not bold print


def test_a_thousand_images(browser: Any, tmp_path: Path) -> None:
    """As many and as large as MNIST's; the network is small, since it is the page that is looked at."""
    draw = torch.Generator().manual_seed(0)
    net = er.Network.chain((784,), [Linear(torch.randn(10, 784, generator=draw))])
    x = torch.rand(20, 784, generator=draw).double()
    few = er.certify(net, x, solver=er.Sequential(gradients=0), bounds="fast")
    certs = dataclasses.replace(few[[k % 20 for k in range(1000)]], index=torch.arange(1000))
    assert len(certs) == 1000 and int(certs.certified.sum()) > 900
    certs.save(tmp_path / "run")
    write_page(report_of([tmp_path / "run"], image_shape=(28, 28)), tmp_path / "page.html")
    wrong: list[str] = []
    page = browser.new_page()
    page.on("console", lambda message: wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto((tmp_path / "page.html").as_uri())
    playwright.expect(page.locator("#count")).to_have_text("1,000 inputs")
    page.locator("input[name=search]").fill("999")
    playwright.expect(page.locator("#count")).to_contain_text("1 of 1,000")
    assert page.locator("#detail canvas").count() >= 2 and wrong == []
    page.close()
