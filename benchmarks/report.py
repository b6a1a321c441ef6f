"""The page of a large run: how long it takes to write, how large it is, and how long a browser takes to use it.

    python benchmarks/report.py [--inputs 10000] [--runs 1] [--out DIR]

Images of 28 x 28 random pixels and a random network; some are certified, with counterexamples beyond their regions,
and their certificates repeated as often as needed: a page does not ask where its rows come from. The browser's part
needs playwright and a chromium on the path.
"""

import argparse
import dataclasses
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

import elbowroom as er
from elbowroom.certificates.schema import joined
from elbowroom.network import operations as ops
from elbowroom.network.graph import Network
from elbowroom.report.page.gather import report_of
from elbowroom.report.page.write import write_page

CERTIFIED = 50
SHAPE = (1, 28, 28)


def network(rng: np.random.Generator) -> Network:
    layers: list[ops.Operation] = [ops.Reshape((784,))]
    for n, m in ((784, 30), (30, 10)):
        weight = torch.from_numpy(rng.normal(size=(m, n)) / n**0.5).float()
        layers += [ops.Linear(weight, torch.zeros(m)), ops.ReLU()]
    return Network.chain(SHAPE, layers[:-1])


def saved(folder: Path, inputs: int, seed: int) -> Path:
    net = network(np.random.default_rng(seed))
    x = torch.from_numpy(np.random.default_rng(0).random((CERTIFIED, *SHAPE)).round(2))
    certs = er.certify(net, x, domain=(0, 1), reach=True)
    many = joined([certs] * -(-inputs // CERTIFIED)).rows(0, inputs)
    return dataclasses.replace(many, index=torch.arange(inputs)).save(folder)


def browsed(path: Path) -> None:
    """Opens the page and uses its table; seconds of the clock."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    try:
        from playwright.sync_api import expect, sync_playwright
    except ImportError:
        program = None
    if program is None:
        print("no playwright or no chromium: the browser's part is left out")
        return
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page()

        def clock(what: str, act: object) -> None:
            began = time.perf_counter()
            act()  # type: ignore[operator]
            print(f"  {what}: {time.perf_counter() - began:.2f} s")

        clock("open", lambda: (page.goto(path.as_uri()), expect(page.locator("#count")).to_contain_text("inputs")))
        first = page.locator("#rows tbody tr td").first
        before = first.inner_text()
        clock("sort by room", lambda: (page.click("button[data-key=size]"), expect(first).not_to_have_text(before)))
        search = page.locator("input[name=search]")
        clock("search", lambda: (search.fill("77"), expect(page.locator("#count")).to_contain_text("1 of")))
        clock("next input", lambda: (search.fill(""), page.locator("#rows tbody tr").nth(1).click()))
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        folder = given.out or Path(place)
        runs = [saved(folder / f"run-{k}", given.inputs, k) for k in range(given.runs)]
        began, cpu = time.perf_counter(), time.process_time()
        report = report_of(runs)
        path = folder / "report.html"
        write_page(report, path)
        shown = len(report["runs"][0]["details"])
        print(f"{given.runs} x {given.inputs:,} inputs of 784 features, {shown:,} of them shown feature by feature")
        print(f"  write: {time.perf_counter() - began:.1f} s ({time.process_time() - cpu:.1f} s of CPU)")
        print(f"  size: {path.stat().st_size / 1e6:.1f} MB")
        browsed(path)


if __name__ == "__main__":
    main()
