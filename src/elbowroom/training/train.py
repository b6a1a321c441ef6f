"""Training of small networks, normally or against projected gradient descent (PGD).

Everything random comes from generators of its own: the same seed gives the same network (on the same kind of device),
and torch's global generators are left as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from elbowroom.data.embedded import Dataset
from elbowroom.errors import InputError
from elbowroom.machine.threads import using_threads
from elbowroom.training.adversary import PGD, accuracy, perturb
from elbowroom.training.models import convnet, mlp
from elbowroom.training.steps import Replayed, Step, own_stream

_WORTH_A_THREAD = 2**22  # multiplications in a layer below which threads cost more than they bring


@dataclass(frozen=True)
class Report:
    """How training went.

    Attributes:
        losses: The mean loss of each epoch.
        train_accuracy: At the end, on the training data.
        test_accuracy: At the end, on the test data.
    """

    losses: tuple[float, ...]
    train_accuracy: float
    test_accuracy: float

    def __repr__(self) -> str:
        return (
            f"Report({len(self.losses)} epochs, loss {self.losses[-1]:.4g}, accuracy {self.train_accuracy:.1%} on "
            f"training data, {self.test_accuracy:.1%} on test data)"
        )


def train(
    widths: Sequence[int],
    data: Dataset,
    *,
    channels: Sequence[int] = (),
    activation: Callable[[], nn.Module] = nn.ReLU,
    epochs: int = 100,
    rate: float = 1e-4,
    weight_decay: float = 1e-4,
    batch: int = 100,
    adversary: PGD | None = None,
    decay_rate: bool = False,
    seed: int = 0,
    device: str | torch.device = "cpu",
    progress: Callable[[int], None] | None = None,
) -> tuple[nn.Sequential, Report]:
    """Trains a network on `data` with Adam (betas 0.9, 0.99) on cross-entropy.

    The defaults are the paper's authors' recipe.

    Args:
        widths: Neurons of each hidden layer.
        data: What to train on, and to test on in the end.
        channels: Convolutions in front, see `convnet`.
        activation: Makes the module between layers.
        epochs: How often to go through the training data.
        rate: Adam's learning rate.
        weight_decay: Adam's weight decay.
        batch: How many inputs a step sees.
        adversary: Replaces each batch by what the adversary makes of it.
        decay_rate: Let the learning rate fall to zero along a cosine.
        seed: Of the first weights, the order of the data and the adversary's starts.
        device: Where to train.
        progress: Called with the number of epochs done.

    Returns:
        The network, on the CPU and in eval mode, ready for `elbowroom.load(module, input_shape=(f,))`; and how its
        training went.

    Raises:
        InputError: A number is out of range, or the sizes do not make a network.
    """
    if epochs < 1 or batch < 1 or not rate > 0 or not weight_decay >= 0:
        raise InputError("train needs at least one epoch, a positive batch and rate, and no negative weight decay")
    generator = torch.Generator().manual_seed(seed)
    if channels:
        model = convnet(data.shape, channels, widths, data.n_classes, activation, generator)
    else:
        model = mlp([data.n_features, *widths, data.n_classes], activation, generator)
    where = torch.device(device)
    model = model.to(where)
    optimiser = _adam(model, rate, weight_decay, where)
    steps = epochs * -(-len(data.x_train) // batch)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps) if decay_rate else None
    # On a GPU the adversary's starts are drawn there: sending them would take longer than the step.
    noise = generator if where.type == "cpu" else torch.Generator(where).manual_seed(seed)
    loop = _Loop(model, optimiser, schedule, data.to(where), batch, generator, noise)
    small = batch * max(p.numel() for p in model.parameters()) < _WORTH_A_THREAD
    losses = []
    with using_threads(1) if small else nullcontext(), own_stream(where):
        for epoch in range(epochs):
            losses.append(loop.epoch(None if adversary is None else adversary.at(epoch)))
            if progress is not None:
                progress(epoch + 1)
    model.eval()
    there = loop.data
    scores = [accuracy(model, *each) for each in ((there.x_train, there.y_train), (there.x_test, there.y_test))]
    return model.cpu(), Report(tuple(losses), *scores)


def _adam(model: nn.Module, rate: float, weight_decay: float, where: torch.device) -> torch.optim.Optimizer:
    """On a GPU one whose steps can be recorded: its rate, which a schedule may change, is a tensor there."""
    on_gpu = where.type == "cuda"
    return torch.optim.Adam(
        model.parameters(), lr=torch.tensor(rate, device=where) if on_gpu else rate, betas=(0.9, 0.99),
        weight_decay=weight_decay, capturable=on_gpu, fused=on_gpu or None,
    )  # fmt: skip


class _Loop:
    """A network under training, and all that moves with it.

    `generator`: of the order of the data. `noise`: of the adversary's starts, on the network's device.
    """

    def __init__(
        self,
        model: nn.Module,
        optimiser: torch.optim.Optimizer,
        schedule: torch.optim.lr_scheduler.LRScheduler | None,
        data: Dataset,
        batch: int,
        generator: torch.Generator,
        noise: torch.Generator,
    ) -> None:
        self.model, self.optimiser, self.schedule = model, optimiser, schedule
        self.data, self.batch, self.generator, self.noise = data, batch, generator, noise
        self.replayed = Replayed(noise) if data.x_train.is_cuda else None

    def epoch(self, by: PGD | None) -> float:
        """Goes once through the training data, against the adversary `by`; the mean loss."""
        x_train, y_train = self.data.x_train, self.data.y_train
        step = self._step(by)
        total = torch.zeros((), dtype=torch.float64, device=x_train.device)  # asking for it after each step would wait
        order = torch.randperm(len(x_train), generator=self.generator).to(x_train.device)
        for index in order.split(self.batch):
            x, y = x_train[index], y_train[index]
            loss = step(x, y) if self.replayed is None else self.replayed.take(step, x, y, by)
            if self.schedule is not None:
                self.schedule.step()
            total += loss * len(index)
        return float(total) / len(x_train)

    def _step(self, by: PGD | None) -> Step:
        def step(x: Tensor, y: Tensor) -> Tensor:
            if by is not None:
                x = perturb(self.model, x, y, by, self.data, self.noise)
            loss = cross_entropy(self.model(x), y)
            self.optimiser.zero_grad()
            loss.backward()
            self.optimiser.step()
            return loss.detach()

        return step
