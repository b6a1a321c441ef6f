"""The version, below everything that states it."""

__version__ = "0.1.0"
