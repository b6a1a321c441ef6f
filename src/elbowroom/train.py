"""Small fully-connected networks, trained normally or against projected gradient descent (PGD).

Everything random comes from a generator of its own: the same seed gives the same network, and torch's global
generator is left as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from elbowroom.data.embedded import Dataset
from elbowroom.errors import InputError

Model = Callable[[Tensor], Tensor]  # `b x *s` -> logits, `b x k`: a module or a `Network`


@dataclass(frozen=True)
class PGD:
    """The adversary to train against: within `tau` of the input in every feature, and within the domain.

    `steps` steps of `step` times `tau` along the sign of the gradient, from a random point of the ball or the input.
    """

    tau: float = 0.1
    steps: int = 20
    step: float = 0.25
    random_start: bool = True

    def __post_init__(self) -> None:
        if not (self.tau > 0 and self.steps >= 1 and self.step > 0):
            raise InputError(f"PGD needs tau > 0, at least one step and step > 0, got {self}")


@dataclass(frozen=True)
class Report:
    """How training went: the mean loss of each epoch, and the accuracies at the end."""

    losses: tuple[float, ...]
    train_accuracy: float
    test_accuracy: float

    def __repr__(self) -> str:
        return (
            f"Report({len(self.losses)} epochs, loss {self.losses[-1]:.4g}, accuracy {self.train_accuracy:.1%} on "
            f"training data, {self.test_accuracy:.1%} on test data)"
        )


def mlp(
    sizes: Sequence[int], activation: Callable[[], nn.Module] = nn.ReLU, generator: torch.Generator | None = None
) -> nn.Sequential:
    """A network of `sizes[0]` inputs, hidden layers of `sizes[1:-1]` neurons and `sizes[-1]` outputs.

    Weights and biases start uniform in +-1 / sqrt(inputs of the layer), which is torch's own default for such layers.
    """
    if len(sizes) < 2 or min(sizes) < 1:
        raise InputError(f"a network needs at least an input and an output size, all positive, got {tuple(sizes)}")
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(sizes):
        # Drawn here and not by nn.Linear, which would use (and move) the global generator.
        linear = nn.utils.skip_init(nn.Linear, n_in, n_out)
        with torch.no_grad():
            for tensor in (linear.weight, linear.bias):
                tensor.uniform_(-(n_in**-0.5), n_in**-0.5, generator=generator)
        layers += [linear, activation()]
    return nn.Sequential(*layers[:-1])


def train(
    widths: Sequence[int],
    data: Dataset,
    *,
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
    """A network with hidden layers of `widths` neurons, trained on `data` with Adam (betas 0.9, 0.99) on cross-entropy.

    The defaults are the paper's authors' recipe. `adversary`: replaces each batch by what the adversary makes of it.
    `decay_rate`: let the learning rate fall to zero along a cosine. `progress`: called with the number of epochs done.
    The network comes back on the CPU and in eval mode, ready for `elbowroom.load(module, input_shape=(f,))`.
    """
    if epochs < 1 or batch < 1 or not rate > 0 or not weight_decay >= 0:
        raise InputError("train needs at least one epoch, a positive batch and rate, and no negative weight decay")
    generator = torch.Generator().manual_seed(seed)
    model = mlp([data.n_features, *widths, data.n_classes], activation, generator).to(device)
    x_train, y_train = data.x_train.to(device), data.y_train.to(device)
    optimiser = torch.optim.Adam(model.parameters(), lr=rate, betas=(0.9, 0.99), weight_decay=weight_decay)
    per_epoch = -(-len(x_train) // batch)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs * per_epoch) if decay_rate else None
    small = batch * max(p.numel() for p in model.parameters()) < _WORTH_A_THREAD
    losses = []
    with one_thread() if small else nullcontext():
        for epoch in range(epochs):
            total = 0.0
            for index in torch.randperm(len(x_train), generator=generator).split(batch):
                x, y = x_train[index], y_train[index]
                if adversary is not None:
                    x = _perturb(model, x, y, adversary, data, generator)
                loss = cross_entropy(model(x), y)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                if schedule is not None:
                    schedule.step()
                total += float(loss.detach()) * len(index)
            losses.append(total / len(x_train))
            if progress is not None:
                progress(epoch + 1)
    model.cpu().eval()
    scores = [accuracy(model, x, y) for x, y in ((data.x_train, data.y_train), (data.x_test, data.y_test))]
    return model, Report(tuple(losses), *scores)


_WORTH_A_THREAD = 2**22  # multiplications in a layer below which threads cost more than they bring


@contextmanager
def one_thread() -> Iterator[None]:
    """Work on small matrices: torch's threads would mostly wait for one another, badly so on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def accuracy(model: Model, x: Tensor, y: Tensor) -> float:
    """The share of `x` (`b x *s`) that `model` gives its label `y` (`b`)."""
    with torch.no_grad():
        return float((model(x).argmax(1) == y).double().mean())


@dataclass(frozen=True, eq=False)
class Attack:
    """What an attack found.

    `found`: `b`, whether some point tried has another label. `points`: `b x *s`, the first such point, or the last one
    tried where there is none. `tried`: how many points were evaluated in all.
    """

    found: Tensor
    points: Tensor
    tried: int


def pgd_attack(
    model: Model,
    y: Tensor,
    lower: Tensor,
    upper: Tensor,
    *,
    steps: int = 20,
    step: float = 0.25,
    starts: int = 1,
    seed: int = 0,
) -> Attack:
    """Looks for points in the boxes `[lower, upper]` (`b x *s`) that `model` does not label `y` (`b`).

    Gradient ascent on the cross-entropy, `steps` steps of `step` half-widths along the sign, from `starts` random
    points of each box. Every point on the way counts as tried. Finding none proves nothing; finding one refutes a
    claim.
    """
    generator = torch.Generator().manual_seed(seed)
    found = torch.zeros(len(y), dtype=torch.bool)
    points, tried = lower.clone(), 0
    for _ in range(starts):
        share = torch.rand(lower.shape, generator=generator, dtype=lower.dtype)
        x = torch.minimum(lower + (upper - lower) * share, upper)
        for _ in range(steps + 1):  # the start counts too
            moved, logits = _ascend(model, x, y, lower, upper, step * (upper - lower) / 2)
            points = torch.where(found.reshape(-1, *[1] * (x.dim() - 1)), points, x)
            found |= logits.argmax(1) != y
            tried += len(x)
            x = moved
    return Attack(found, points, tried)


def _perturb(model: Model, x: Tensor, y: Tensor, by: PGD, data: Dataset, generator: torch.Generator) -> Tensor:
    """What the adversary makes of a batch."""
    lower, upper = (x - by.tau).clamp_min(data.low), (x + by.tau).clamp_max(data.high)
    if by.random_start:
        x = lower + (upper - lower) * torch.rand(x.shape, generator=generator).to(x.device)
    for _ in range(by.steps):
        x, _ = _ascend(model, x, y, lower, upper, by.step * by.tau)
    return x


def _ascend(
    model: Model, x: Tensor, y: Tensor, lower: Tensor, upper: Tensor, step: float | Tensor
) -> tuple[Tensor, Tensor]:
    """One step from `x` uphill in the cross-entropy, kept in the box; and the logits at `x`."""
    x = x.detach().requires_grad_()
    logits = model(x)
    (gradient,) = torch.autograd.grad(cross_entropy(logits, y, reduction="sum"), x)
    moved = torch.minimum(torch.maximum(x.detach() + step * gradient.sign(), lower), upper)
    return moved, logits.detach()
