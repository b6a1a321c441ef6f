"""Which steps are recorded, which replayed. CUDA is stood in for: benchmarks/training.py has the real one."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from elbowroom.training.steps import Replayed, own_stream


class Graph:
    """A recording of nothing, which counts."""

    made: ClassVar[list] = []

    def __init__(self) -> None:
        self.replays, self.generators = 0, []
        Graph.made.append(self)

    def register_generator_state(self, generator: Any) -> None:
        self.generators.append(generator)

    def replay(self) -> None:
        self.replays += 1


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    Graph.made.clear()

    @contextmanager
    def graph(made: Any, stream: Any) -> Iterator[Any]:
        yield

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", graph)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: None)


def test_recorded_once_per_kind_and_shape(cuda: Any) -> None:
    seen = []

    def step(x: Tensor, y: Any) -> Any:
        seen.append(x)
        return x.sum()

    generator = torch.Generator()
    replayed = Replayed(generator)
    batches = [torch.full((n, 2), float(k)) for k, n in enumerate((4, 4, 4, 4, 3, 4, 3, 4))]
    for x in batches:
        replayed.take(step, x, torch.zeros(len(x)), "same")
    # Three to warm up, then one recording for each of the two shapes; all other steps are replayed.
    assert len(seen) == 3 + 2 and [g.replays for g in Graph.made] == [3, 2]
    assert all(g.generators == [generator] for g in Graph.made)
    # A replay works on the recording's own memory, which now holds the newest batch of its shape.
    assert torch.equal(seen[3], batches[7]) and torch.equal(seen[4], batches[6])
    assert seen[3] is not batches[3]
    # Another kind of step is recorded anew, and nothing of the old kind is replayed again.
    replayed.take(step, batches[0], torch.zeros(4), "other")
    assert len(seen) == 6 and [g.replays for g in Graph.made] == [3, 2, 1]
    replayed.take(step, batches[0], torch.zeros(4), "same")
    assert len(seen) == 7 and Graph.made[3].replays == 1


def test_no_stream_on_the_cpu() -> None:
    with own_stream(torch.device("cpu")):
        assert torch.ones(2).sum() == 2
