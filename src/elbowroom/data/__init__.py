"""Datasets: those that need no download, and what a dataset is here."""
