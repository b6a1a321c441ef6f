"""How the largest region is found. Solvers see margins and a region's geometry, never a network."""
