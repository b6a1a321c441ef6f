"""Branch and bound: a region that the plain bounds do not prove, cut into parts that they do.

- `engine.prove`: for boxes (or other input sets) and a specification, which groups are proved, by which trees; where
  not, a counterexample or the leaves that are left.
- `scaling.largest_scalings`: how far given regions can be scaled about their inputs until that ends.
- `derivative.by_set`: how the bounds of leaves that are left change with the region, for those who improve its shape.

Beneath: `roots` (bounds of hidden nodes per box), `leaves` (many leaves as tensors), `carry` (one row per leaf carried
back to the input, and its derivatives), `climb` (slopes and multipliers raised), `choose` (where to split), `forest`
(trees as they grow, and as they are stored), `halving` (splits of the input), `planting` (a tree as a start elsewhere).
"""
