"""Has torch find a device of CUDA's where there is none, see `stand_in`. Here nothing imports torch."""

import ctypes
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

_TORCH = Path(sysconfig.get_paths()["purelib"]) / "torch"


def refusal() -> str | None:
    """Why that cannot be done here."""
    if not sys.platform.startswith("linux"):
        return "the stand-in for a GPU is for Linux"
    if shutil.which("c++") is None:
        return "the stand-in for a GPU needs a compiler of C++"
    if not (_TORCH / "include" / "ATen").is_dir():
        return f"the stand-in for a GPU needs torch in {_TORCH}"
    return "this torch has CUDA of its own" if (_TORCH / "lib" / "libtorch_cuda.so").exists() else None


def load() -> None:
    """To be called before torch is imported, which looks for devices once."""
    assert "torch" not in sys.modules, "torch has looked for devices already"
    lib, source = _TORCH / "lib", Path(__file__).with_name("cuda.cpp")
    options = ["-std=c++20", "-shared", "-fPIC", f"-I{_TORCH / 'include'}", f"-L{lib}", f"-Wl,-rpath,{lib}"]
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / "cuda.so"
        subprocess.run(["c++", *options, str(source), "-o", str(built), "-lc10", "-ltorch_cpu"], check=True)
        ctypes.CDLL(str(built), ctypes.RTLD_GLOBAL)
