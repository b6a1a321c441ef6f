"""Runs: certificates of many inputs, on disk."""
