"""What `make dist` asks of a wheel: that it holds every file of the package, and that its command runs.

python tests/check_wheel.py dist/elbowroom-0.1.0-py3-none-any.whl
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

KINDS = (".py", ".typed", ".html", ".css", ".js")
SOURCE = Path(__file__).parents[1] / "src"


def check(wheel: Path) -> None:
    files = {p.relative_to(SOURCE).as_posix() for p in (SOURCE / "elbowroom").rglob("*") if p.suffix in KINDS}
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
        if held != files:
            sys.exit(f"{wheel}: lacks {sorted(files - held)}, and holds besides {sorted(held - files)}")
        archive.extractall(folder)
        # Not the sources beside it, which an editable installation would find.
        command = [sys.executable, "-c", "import elbowroom; print(elbowroom.__file__)"]
        environment = {**os.environ, "PYTHONPATH": folder}
        found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd=folder)
        if not found.stdout.startswith(folder):
            sys.exit(f"{wheel}: what was imported is {found.stdout.strip()}")
        command = [sys.executable, "-m", "elbowroom", "--version"]
        said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd=folder)
    version = wheel.name.split("-")[1]
    if version not in said.stdout:
        sys.exit(f"{wheel}: --version says {said.stdout.strip()!r}")
    print(f"{wheel}: {len(files)} files, {said.stdout.strip()}")


if __name__ == "__main__":
    check(Path(sys.argv[1]))
