"""Modules of PyTorch, and programs exported from it."""
