"""python tests/device/on_stand_in.py [ARGUMENTS of pytest]: tests on a stand-in for a GPU, see `stand_in`."""

import sys
from pathlib import Path


def main() -> None:
    sys.path[0] = str(Path(__file__).parents[1])
    from device import hooks

    why = hooks.refusal()
    if why is not None:
        sys.exit(why)
    hooks.load()
    from device import stand_in

    stand_in.install()
    import pytest

    sys.exit(pytest.main([*sys.argv[1:], "-p", "no:xdist", "-p", "no:cacheprovider"]))


if __name__ == "__main__":
    main()
