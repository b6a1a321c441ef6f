"""The strict proof: float64 bounds that count their own rounding. Reads networks and claims, nothing of the search."""
