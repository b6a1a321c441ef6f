"""Questions about a given box: answered by splitting it, every piece proved."""
