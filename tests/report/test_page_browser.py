"""The page in a real browser: no error, nothing loaded from elsewhere, and everything that a person may do.

Needs playwright and a chromium that is installed (`chromium` on the path, or ELBOWROOM_CHROMIUM).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elbowroom.report.page.gather import report_of
from elbowroom.report.page.write import write_page
from report.pages import HOSTILE, OTHER, SMALL, hostile_run, image_run, plane_run

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("pages")
    plane = (plane_run(place / name, net, 40, part_rows=40) for name, net in (("old", SMALL), ("new", OTHER)))
    image = image_run(place / "normal"), image_run(place / "robust", seed=3, reach=False)
    runs = {"plane": plane, "image": image, "hostile": (hostile_run(place),)}
    for name, some in runs.items():
        write_page(report_of([run.folder for run in some]), place / f"{name}.html")
    return {name: place / f"{name}.html" for name in runs}


def counts(page: Any, text: str) -> None:
    """Waits for what the line above the table says."""
    playwright.expect(page.locator("#count")).to_contain_text(text)


def column(page: Any, number: int) -> list[str]:
    return page.locator(f"#rows tbody tr td:nth-child({number})").all_inner_texts()


def test_sort_filter_and_search(opened: Open) -> None:
    page = opened("plane")
    assert page.locator("#count").inner_text() == "40 inputs" and page.locator("#rows tbody tr").count() == 15
    heads = page.locator("#rows thead th")
    names = [text.strip(" ▲▼") for text in heads.all_inner_texts()]
    room = names.index("size") + 1
    heads.nth(room - 1).locator("button").click()
    values = [float(text) for text in column(page, room) if text != "–"]
    assert values == sorted(values) and heads.nth(room - 1).get_attribute("aria-sort") == "ascending"
    page.keyboard.press("Enter")  # the heading has kept the focus
    values = [float(text) for text in column(page, room) if text != "–"]
    assert values == sorted(values, reverse=True)
    page.locator("select[name=status]").select_option(label="misclassified")
    counts(page, "1 of 40")
    assert column(page, 1) == ["2"] and "the network decides" in page.locator("#rows tbody").inner_text()
    page.locator("button[type=reset]").click()
    counts(page, "40 inputs")
    page.locator("input[name=search]").fill("no finite")
    counts(page, "1 of 40")
    page.locator("input[name=search]").fill("37")  # whose count is the same: what is seen is the row itself
    playwright.expect(page.locator("#rows tbody tr td:nth-child(1)")).to_have_text(["37"])
    page.locator("button[type=reset]").click()
    counts(page, "40 inputs")
    least = max(float(text) for text in column(page, names.index("ratio") + 1) if text != "–")
    page.locator("input[name=ratio]").fill(str(least))
    counts(page, " of 40 inputs")
    ratios = [float(text) for text in column(page, names.index("ratio") + 1)]
    assert ratios and min(ratios) == least
    page.locator("input[name=ratio]").fill("1e9")
    counts(page, "0 of 40")
    assert page.locator("#rows tbody tr").count() == 0


def test_keyboard(opened: Open) -> None:
    page = opened("plane")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.name") == "search"
    page.locator("#rows tbody tr").first.focus()
    page.keyboard.press("ArrowDown")
    assert "Input 1" in page.locator("#detail h3").first.inner_text()
    page.keyboard.press("PageDown")
    assert page.locator("#place").inner_text() == "page 2 of 3"
    assert "Input 15" in page.locator("#detail h3").first.inner_text()
    page.keyboard.press("ArrowUp")
    assert page.locator("#place").inner_text() == "page 1 of 3"
    assert "Input 14" in page.locator("#detail h3").first.inner_text()
    assert page.evaluate("document.activeElement.tagName") == "TR"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "detail"


def test_runs_are_compared(opened: Open) -> None:
    page = opened("plane")
    assert page.locator("#detail .one > article").count() == 2  # both networks' regions of the same input
    page.locator("select[name=run]").select_option(label="new")
    assert "change" in page.locator("#rows thead").inner_text()
    page.locator("#compared button.link").first.click()
    number = page.locator("#compared button.link").first.inner_text()
    assert page.locator("#detail h3").first.inner_text() == f"Input {number}"
    page.locator("select[name=run]").select_option(label="old")
    assert "change" not in page.locator("#rows thead").inner_text()


def test_hover_reads_a_pixel(opened: Open) -> None:
    page = opened("image")
    canvas = page.locator("#detail canvas")
    assert canvas.count() == 6
    box = canvas.nth(1).bounding_box()
    canvas.nth(1).hover(position={"x": 0.9 * box["width"], "y": 0.1 * box["height"]})
    said = page.locator(".readout").first.inner_text()
    assert said.startswith("row 0, column 4. value ") and "certified from " in said
    assert page.locator(".readout").nth(1).inner_text().startswith("row 0, column 4. value ")  # in both runs
    canvas.nth(1).focus()
    page.keyboard.press("ArrowDown")
    assert page.locator(".readout").first.inner_text().startswith("row 1, column 4. ")
    pixel = "c => [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data].filter((_, k) => k % 4 === 0)"
    assert len(set(canvas.nth(0).evaluate(pixel))) > 5 and len(set(canvas.nth(1).evaluate(pixel))) > 5
    page.locator("#detail summary").first.click()
    assert page.locator("#detail .features tbody tr").first.is_visible()
    assert "A counterexample was found at" in page.locator("#detail").inner_text()


def test_dark_and_light(opened: Open) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    dark, light = opened("plane", color_scheme="dark"), opened("plane", color_scheme="light")
    assert dark.evaluate(ground) != light.evaluate(ground)
    shade = light.evaluate(ground)
    light.locator("#theme").click()
    assert light.evaluate(ground) == dark.evaluate(ground) and light.locator("#theme").inner_text() == "Light"
    light.emulate_media(media="print")
    assert light.evaluate(ground) == "rgb(255, 255, 255)" and not light.locator("#filters").is_visible()
    dark.locator("#theme").click()
    assert dark.evaluate(ground) == shade


# Texts with less than 4.5 times the light of their ground, or of which the ground has less.
_CONTRAST = """() => {
  const part = (c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const light = (colour) => {
    const [r, g, b] = colour.match(/[0-9.]+/g).map(Number);
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const ground = (e) => {
    while (e && /, 0\\)$/.test(getComputedStyle(e).backgroundColor)) e = e.parentElement;
    return e ? getComputedStyle(e).backgroundColor : "rgb(255, 255, 255)";
  };
  const low = [];
  for (const e of document.querySelectorAll("p, th, td, a, h1, h2, h3, h4, li, label, figcaption, button, code")) {
    if (!e.textContent.trim() || !e.offsetParent || e.disabled) continue;
    const pair = [light(getComputedStyle(e).color), light(ground(e))].sort((a, b) => b - a);
    const ratio = (pair[0] + 0.05) / (pair[1] + 0.05);
    if (ratio < 4.5) low.push(`${e.tagName} ${e.className} ${ratio.toFixed(2)} ${e.textContent.trim().slice(0, 30)}`);
  }
  return low;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(scheme: str, opened: Open) -> None:
    assert opened("image", color_scheme=scheme).evaluate(_CONTRAST) == []


def test_hostile_names_are_shown_as_they_are(opened: Open) -> None:
    page = opened("hostile")
    assert page.locator("img").count() == 0 and page.locator("script").count() == 2
    for row in range(7):
        page.locator("#rows tbody tr").nth(row).click()
    assert HOSTILE in page.locator("#rows tbody").inner_text()
    page.locator("#rows tbody tr").first.click()
    assert HOSTILE in page.locator("#detail").inner_text() and page.locator("img").count() == 0
    page.locator("select[name=label]").select_option(label=HOSTILE)


def test_a_narrow_screen_scrolls_one_way_only(opened: Open) -> None:
    page = opened("plane")
    page.set_viewport_size({"width": 400, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
