"""Shapes around an input."""
