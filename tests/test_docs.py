"""README and docs: every block of code runs, every link leads somewhere, and the site is built strictly."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import commands
import elbowroom as er
from documentation import GIVEN, NEEDED, NOT_CALLED, NOT_RUN, PAGES, ROOT, Block, blocks, name_of
from elbowroom.runs.settings import Settings, read_config

for _needed in ("sklearn", "matplotlib", "pandas", "onnx", "skl2onnx", "jinja2", "flint", "joblib"):
    pytest.importorskip(_needed)

WITH_CODE = [page for page in PAGES if any(block.language not in ("", "text") for block in blocks(page))]


# --- code


@pytest.mark.parametrize("page", WITH_CODE, ids=name_of)
def test_code_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    torch.manual_seed(0)
    if name_of(page) in NEEDED:
        NEEDED[name_of(page)](tmp_path)
    names: dict[str, Any] = {"__name__": "page"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec("import torch\nimport elbowroom as er\n" + GIVEN.get(name_of(page), ""), names)
        for block in blocks(page):
            if block.title in NOT_RUN:
                continue
            try:
                run_block(block, names)
            except BaseException as error:
                raise AssertionError(f"{name_of(page)}, the block at line {block.line}: {error!r}") from error


def run_block(block: Block, names: dict[str, Any]) -> None:
    if block.language == "python":
        exec(compile(block.text, f"<block at line {block.line}>", "exec"), names)
    elif block.language == "shell":
        for command in block.commands():
            call(command)
    elif block.language == "yaml":
        for command in re.findall(r"^\s*- run: (.*)$", block.text, re.MULTILINE):
            call(command)
    elif block.language == "toml":
        Path("settings.toml").write_text(block.text)
        told = read_config(Path("settings.toml"))
        Settings.of({name: value for name, value in told.items() if name != "out"})
    else:
        assert block.language in ("", "text"), f"{block.language} is not run by any rule"


def call(command: str) -> None:
    program, *arguments = shlex.split(command, comments=True)
    if program in NOT_CALLED:
        return
    if program == "elbowroom":
        done = commands.run(*arguments)
        assert done.exit_code == 0, f"{command}: {done.output[-2000:]}"
        return
    assert program in ("python", "rm", "mv"), f"{program} is not run by any rule"
    first = [sys.executable] if program == "python" else [program]
    place = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([*first, *arguments], check=True, capture_output=True, env=place, timeout=120)


@pytest.mark.parametrize("script", sorted((ROOT / "docs" / "gallery").glob("*.py")), ids=name_of)
def test_the_gallery_shows_its_notebooks_as_they_are(script: Path) -> None:
    """Pages are made of scripts by `make gallery`, and run above."""
    cells = re.split(r"^# %%(.*)\n", script.read_text(), flags=re.MULTILINE)[1:]
    page = script.with_suffix(".md")
    code = [text.strip() for kind, text in zip(cells[::2], cells[1::2]) if not kind]
    assert code == [block.text.strip() for block in blocks(page) if block.language == "python"], "make gallery"
    for kind, text in zip(cells[::2], cells[1::2]):
        assert not kind or re.sub(r"^# ?", "", text.strip(), flags=re.MULTILINE) in page.read_text(), "make gallery"


def test_what_is_not_run_says_why() -> None:
    titles = {block.title for page in PAGES for block in blocks(page)} - {""}
    assert titles == set(NOT_RUN), "a title without a reason, or a reason that is needed no longer"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_what_looks_like_a_command_is_one(page: Path) -> None:
    """Text is not run: it may show a command with what it printed below, and no commands alone."""
    for block in blocks(page):
        if block.language in ("", "text"):
            lines = block.text.splitlines()
            looks = [line for line in lines if re.match(r"(elbowroom|pip|make|python) ", line)]
            assert len(looks) < max(len(lines), 1), f"line {block.line}: say shell, so that it is run"


# --- links


# Links that are not followed, since tests need no network: how they begin, and what they are for.
WEB = {"https://github.com/liuchen11/CertifyNonuniformBounds/": "the program of the paper's authors, as a source"}


def slug(heading: str) -> str:
    """What a heading is called in links, by the rule of mkdocs, which is that of forges for plain headings."""
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
    text = re.sub(r"[^\w\s-]", "", text).strip().lower()
    return re.sub(r"[-\s]+", "-", text)


def without_code(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    return {slug(found) for found in re.findall(r"^#+ (.*)$", without_code(page), re.MULTILINE)}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for shown, link in re.findall(r"\[([^]]*)\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", without_code(page))):
        if re.match(r"[a-z]+:", link):
            assert link.startswith(tuple(WEB)), f"{link}: say in WEB what it is for; [{shown}]"
            continue
        place, _, anchor = link.partition("#")
        target = page.parent / place if place else page
        assert target.is_file(), f"[{shown}]({link}): there is no such file"
        assert not anchor or anchor in anchors(target), f"[{shown}]({link}): there is no such heading"


def test_every_page_can_be_reached_from_the_site() -> None:
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    named = set(re.findall(r"[\w/]+\.md", nav))
    held = {page.relative_to(ROOT / "docs").as_posix() for page in PAGES if page.is_relative_to(ROOT / "docs")}
    assert held | {"contributing.md", "changelog.md"} == named


def test_every_public_name_is_in_the_reference() -> None:
    text = (ROOT / "docs" / "reference" / "python.md").read_text()
    listed = re.findall(r"^::: ([\w.]+)$", text, re.MULTILINE)
    public = [f"{getattr(er, name).__module__}.{name}" for name in er.__all__ if name not in ("analyse", "__version__")]
    assert [name for name in public if name not in listed] == []


# --- the site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings")
    place = tmp_path_factory.mktemp("site")
    code = "import sys; from mkdocs.__main__ import cli; sys.argv[0] = 'mkdocs'; cli()"
    command = [sys.executable, "-c", code, "build", "--strict", "--quiet", "-f", str(ROOT / "mkdocs.yml"), "-d", place]
    told = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=told, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return place


def test_the_site_asks_for_nothing_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        for tag in re.findall(r"<(?:script|link|img|iframe|source)\b[^>]*>", page.read_text()):
            assert not re.search(r'(?:src|href)="(?:https?:)?//', tag), f"{page.name}: {tag}"


def test_the_site_has_the_commands_and_the_docstrings(site: Path) -> None:
    commands_page = (site / "reference" / "commands.html").read_text()
    assert "elbowroom certify" in commands_page and "--domain" in commands_page and "<!-- commands" not in commands_page
    python = (site / "reference" / "python.html").read_text()
    assert "One certificate per input, in the order of" in python
    for name in ("certificates.result.Certificates.explain", "report.plot.pictures.Pictures.tolerance"):
        assert f'id="elbowroom.{name}"' in python  # what is inherited, too


def test_tables_of_the_site_show_code_as_it_is(site: Path) -> None:
    """Forges want a backslash before | in code."""
    assert "|A|" in (site / "soundness.html").read_text()
    for page in site.rglob("*.html"):
        assert not re.findall(r"<td[^>]*>.*?\\\|.*?</td>", page.read_text()), page.name


# --- what the package index and others see


def script(path: str) -> ModuleType:
    made = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert made is not None and made.loader is not None
    module = importlib.util.module_from_spec(made)
    made.loader.exec_module(module)
    return module


def test_links_of_the_package_index() -> None:
    for_the_index = script("setup.py").for_the_index
    readme = (ROOT / "README.md").read_text()
    plain = for_the_index(readme, None)
    assert "](" not in plain and "docs/figures" not in plain and "Quick starts: PyTorch, scikit-learn, ONNX" in plain
    linked = for_the_index(readme, "https://forge.example/elbowroom/")
    assert "](https://forge.example/elbowroom/blob/HEAD/docs/index.md)" in linked
    assert "](https://forge.example/elbowroom/raw/HEAD/docs/figures/overview.png)" in linked
    kept = "[a](https://b.example/c) [d](#e)"
    assert for_the_index(kept, None) == kept


def test_the_citation_is_of_this_version() -> None:
    assert f"\nversion: {er.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert "The Elbowroom maintainers" in (ROOT / "LICENSE").read_text()
    assert f"elbowroom-{er.__version__}-py3" in (ROOT / "README.md").read_text()


def test_the_environment_uses_a_torch_that_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = script("tools/environment.py")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (asked,) = (one for one in project["dependencies"] if one.startswith("torch"))
    assert asked == "torch>=" + ".".join(map(str, environment.needed()))
    for version, good in (("2.6.0", True), ("2.13.0+cpu", True), ("2.5.1+cu121", False), ("1.13.1", False)):
        monkeypatch.setattr(environment.importlib.metadata, "version", lambda name, version=version: version)
        assert environment.torch_here() == (version if good else None)
    pins = "numpy==2\ntorch==2.13.0\ntorchmetrics==1\n"
    assert environment.constraints(pins, "2.7.1+cu126") == "numpy==2\ntorch==2.7.1+cu126\ntorchmetrics==1\n"
    assert environment.constraints(pins, None) == pins
