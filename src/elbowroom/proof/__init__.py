"""The independent proof: `kernel` in float64, `arb` in balls, `recheck` of certificates. Knows no search."""
