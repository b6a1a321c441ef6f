"""Makes .venv for the Makefile: with the torch of the Python that runs this, if that has one, else with a new one.

    python3 tools/environment.py

Writes .venv/constraints.txt, which pip is then held to: constraints.txt, with the version of that torch.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACE = ROOT / ".venv"


def needed() -> tuple[int, ...]:
    """The least version of torch that pyproject.toml asks for."""
    found = re.search(r'"torch>=([\d.]+)"', (ROOT / "pyproject.toml").read_text())
    assert found is not None
    return numbers(found[1])


def numbers(version: str) -> tuple[int, ...]:
    """Those of a version, without what stands behind them: 2.13.0+cpu is (2, 13, 0)."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(n) for n in found[0].split(".")) if found else ()


def torch_here() -> str | None:
    """The version of the torch that this Python has, if it will do."""
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return None
    return version if numbers(version) >= needed() else None


def constraints(text: str, version: str | None) -> str:
    """The lines of constraints.txt, with torch as it is here."""
    return text if version is None else re.sub(r"(?m)^torch==.*$", f"torch=={version}", text)


def lend(place: Path) -> Path:
    """Lets the environment see the packages of this Python, behind its own. (The flag of venv for that shows those of
    the system, and where this Python is an environment itself, torch is not among these.)"""
    seen = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    own = Path(sysconfig.get_path("purelib", vars={"base": str(place), "platbase": str(place)}))
    lent = own / "outer.pth"
    lent.write_text("\n".join(seen) + "\n")
    return lent


def main() -> None:
    version = torch_here()
    venv.create(PLACE, with_pip=True, symlinks=os.name == "posix")
    python = str(PLACE / "bin" / "python")
    if version is not None and not has_torch(python):
        lent = lend(PLACE)
        if not has_torch(python):  # not even so: it is there, and broken
            lent.unlink()
            version = None
    (PLACE / "constraints.txt").write_text(constraints((ROOT / "constraints.txt").read_text(), version))
    if version is not None:
        print(f"torch {version}, which {sys.executable} has, is used")
        return
    if not has_torch(python):
        least = ".".join(map(str, needed()))
        print(
            f"{sys.executable} has no torch {least} or newer, so pip gets one now. With the libraries of a GPU, as on "
            "most Linux machines, that is a download of gigabytes: Ctrl-C, and install a CPU's build of it first, "
            "if that is all you need (README.md, Install)",
            flush=True,
        )
    told = ["--quiet", "--disable-pip-version-check", "-c", str(PLACE / "constraints.txt")]
    sys.exit(subprocess.run([python, "-m", "pip", "install", *told, "torch"]).returncode)


def has_torch(python: str) -> bool:
    return subprocess.run([python, "-c", "import torch"], capture_output=True).returncode == 0


if __name__ == "__main__":
    main()
