"""One self-contained page about one run or several: gathered as plain data (`gather`), then written (`write`)."""
