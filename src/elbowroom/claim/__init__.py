"""Plain data that search, proof, files and VNN-LIB all use: where an input may be, and what must hold there."""
