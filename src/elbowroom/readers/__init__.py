"""Models of others, read into a `Network` and compared with what was read."""
