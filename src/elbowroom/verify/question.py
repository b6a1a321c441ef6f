"""Questions about a model: the network that a query speaks of."""

from __future__ import annotations

from typing import Any

from elbowroom.claim.query import Query
from elbowroom.network.graph import Network
from elbowroom.readers.load import load


def load_for(query: Query, model: Any, trust_pickle: bool = False) -> Network:
    """The model as the query means it: its own inputs, and its own outputs.

    A softmax at the end may be left off where the query only compares outputs, and only there.
    """
    return load(model, task=None if query.only_compares else "regression", trust_pickle=trust_pickle)
