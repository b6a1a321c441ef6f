"""The slow third opinion: the same claim proved in balls of 128 bits (Arb, through python-flint).

Own code from end to end: forward intervals and backward rows, one input after the other, every affine operation as a
dense matrix of its exact coefficients, which are read off the forward pass itself: one-hot inputs, of which every sum
has one term. Nothing is rounded that is not enclosed, so there are no error terms to get wrong. For graphs of affine
operations with ReLU, sigmoid, tanh, arctan and max-pooling.

`prove` is where it begins; `balls` has the arithmetic, `affine` and `curves` the operations, `region` what is stated,
`bounds` the walk over the network.
"""

from __future__ import annotations

from elbowroom.proof.arb.affine import AFFINE
from elbowroom.proof.arb.curves import CURVES, LACKS
from elbowroom.proof.arb.prove import prove_arb

__all__ = ["AFFINE", "CURVES", "LACKS", "prove_arb"]
