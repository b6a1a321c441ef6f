"""Branch and bound: a region that the plain bounds do not prove, cut into parts that they do.

- `engine.prove`: for boxes (or other input sets) and a specification, which groups are proved, by which trees; where
  not, a counterexample or the leaves that are left.
- `scaling.largest_scalings`: how far given regions can be scaled about their inputs until that ends.
- `binding.binding`: the worst leaves of trees, and how their bounds change with the region, to improve its shape by.

Beneath: `roots` (bounds of hidden nodes per box), `leaves` (many leaves as tensors), `carry` (one row per leaf carried
back to the input, and its derivatives), `climb` (slopes and multipliers raised), `choose` (where to split), `halving`
and `derivative` (splits of the input), `forest` (trees as they grow, and as they are stored), `planting` (a tree as a
start elsewhere).
"""
