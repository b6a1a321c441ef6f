"""The machine and torch as we find them: devices, and the modes we work in."""
