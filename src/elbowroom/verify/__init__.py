"""Questions about a given box: answered by cutting it into parts, every one proved."""
