"""The machine and torch as we find them: devices, how they fail, and the modes we work in."""
