"""Pages in a real browser, with nothing wrong in them.

Needs playwright and a chromium that is installed (`chromium` on the path, or ELBOWROOM_CHROMIUM).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

BROWSER = os.environ.get("ELBOWROOM_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if BROWSER is None:
        pytest.skip("no chromium on the path: apt-get install chromium")
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install playwright"
    )
    options = ["--no-sandbox"] if os.geteuid() == 0 else []  # chromium's sandbox refuses root
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=BROWSER, args=options)
        yield opened
        opened.close()


@pytest.fixture
def opened(browser: Any, pages: dict[str, Path]) -> Iterator[Open]:
    """Opens a page by name; at the end, nothing may have gone wrong in it, or been asked for elsewhere."""
    wrong: list[str] = []
    contexts = []

    def open_page(name: str, **options: Any) -> Any:
        context = browser.new_context(viewport={"width": 1200, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: wrong.append(f"dialog {dialog.message}") or dialog.dismiss())
        address = pages[name].as_uri()
        known = (address, "data:")
        page.on("request", lambda r: wrong.append(f"request {r.url[:80]}") if not r.url.startswith(known) else None)
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []
