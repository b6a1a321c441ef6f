"""The independent proof. Imports the network's data structure and nothing from bounds/, solvers/ or regions/."""
