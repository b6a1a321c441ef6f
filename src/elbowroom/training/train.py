"""Small fully-connected and convolutional networks, trained normally or against projected gradient descent (PGD).

Everything random comes from generators of its own: the same seed gives the same network (on the same kind of device),
and torch's global generators are left as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from elbowroom.data.embedded import Dataset
from elbowroom.errors import InputError
from elbowroom.search.attack import pgd
from elbowroom.training.steps import Replayed, own_stream

Model = Callable[[Tensor], Tensor]  # `b x *s` -> logits, `b x k`: a module or a `Network`


@dataclass(frozen=True)
class PGD:
    """The adversary to train against: within `tau` of the input in every feature, and (`clip`) within the domain.

    `steps` steps of `step` times `tau` along the sign of the gradient, from a random point of the ball or the input.
    `ramp`: epochs over which a training adversary's tau grows to its full size; hard data otherwise leave a network at
    the frequencies of the classes.
    """

    tau: float = 0.1
    steps: int = 20
    step: float = 0.25
    random_start: bool = True
    ramp: int = 0
    clip: bool = True

    def at(self, epoch: int) -> PGD:
        """The adversary of an epoch, counted from 0."""
        return self if epoch + 1 >= self.ramp else replace(self, tau=self.tau * (epoch + 1) / self.ramp)

    def around(self, x: Tensor, low: float, high: float) -> tuple[Tensor, Tensor]:
        """The corners, `b x *s` each, of the boxes in which it moves `x`, `b x *s`; [low, high]: the domain."""
        lower, upper = x - self.tau, x + self.tau
        return (lower.clamp_min(low), upper.clamp_max(high)) if self.clip else (lower, upper)

    def __post_init__(self) -> None:
        if not (self.tau > 0 and self.steps >= 1 and self.step > 0 and self.ramp >= 0):
            raise InputError(f"PGD needs tau > 0, at least one step, step > 0 and no negative ramp, got {self}")


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


class Arctan(nn.Module):
    """torch has the function, but no module of it."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.atan(x)


ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU, "leaky-relu": nn.LeakyReLU, "relu6": nn.ReLU6, "hardtanh": nn.Hardtanh, "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh, "arctan": Arctan, "elu": nn.ELU, "softplus": nn.Softplus, "silu": nn.SiLU, "gelu": nn.GELU,
}  # fmt: skip


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
        linear = nn.utils.skip_init(nn.Linear, n_in, n_out)
        _start(linear, n_in, generator)
        layers += [linear, activation()]
    return nn.Sequential(*layers[:-1])


def convnet(
    shape: Sequence[int],
    channels: Sequence[int],
    widths: Sequence[int],
    n_classes: int,
    activation: Callable[[], nn.Module] = nn.ReLU,
    generator: torch.Generator | None = None,
) -> nn.Sequential:
    """Convolutions of `channels`, each 4x4 with stride 2 (so that it halves the image's sides), then an `mlp`.

    `shape`: of an image, `c x h x w` or `h x w`; the network takes it flat, `b x f`.
    """
    if len(shape) not in (2, 3) or not channels or min(channels) < 1:
        raise InputError(
            f"convolutions need images and positive numbers of channels, got {tuple(shape)} and {channels}"
        )
    n_in, height, width = shape if len(shape) == 3 else (1, *shape)
    layers: list[nn.Module] = [nn.Unflatten(1, (n_in, height, width))]
    for n_out in channels:
        if min(height, width) < 2:
            raise InputError(
                f"images of shape {tuple(shape)} are too small for {len(channels)} convolutions of stride 2"
            )
        conv = nn.utils.skip_init(nn.Conv2d, n_in, n_out, 4, stride=2, padding=1)
        _start(conv, 16 * n_in, generator)
        layers += [conv, activation()]
        n_in, height, width = n_out, height // 2, width // 2
    return nn.Sequential(
        *layers, nn.Flatten(), *mlp([n_in * height * width, *widths, n_classes], activation, generator)
    )


def _start(layer: nn.Module, n_in: int, generator: torch.Generator | None) -> None:
    """Weights and biases, drawn here and not by torch, which would use (and move) the global generator."""
    with torch.no_grad():
        for tensor in (layer.weight, layer.bias):
            assert isinstance(tensor, Tensor)
            tensor.uniform_(-(n_in**-0.5), n_in**-0.5, generator=generator)


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
    """A network with hidden layers of `widths` neurons, trained on `data` with Adam (betas 0.9, 0.99) on cross-entropy.

    The defaults are the paper's authors' recipe. `channels`: convolutions in front, see `convnet`. `adversary`:
    replaces each batch by what the adversary makes of it. `decay_rate`: let the learning rate fall to zero along a
    cosine. `progress`: called with the number of epochs done. The network comes back on the CPU and in eval mode,
    ready for `elbowroom.load(module, input_shape=(f,))`.
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
    on_gpu = where.type == "cuda"
    # On a GPU the adversary's starts are drawn there: sending them would take longer than the step.
    noise = generator if where.type == "cpu" else torch.Generator(where).manual_seed(seed)
    x_train, y_train, x_test, y_test = (t.to(where) for t in (data.x_train, data.y_train, data.x_test, data.y_test))
    optimiser = torch.optim.Adam(
        model.parameters(), lr=torch.tensor(rate, device=where) if on_gpu else rate, betas=(0.9, 0.99),
        weight_decay=weight_decay, capturable=on_gpu, fused=on_gpu or None,
    )  # fmt: skip
    per_epoch = -(-len(x_train) // batch)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs * per_epoch) if decay_rate else None
    small = batch * max(p.numel() for p in model.parameters()) < _WORTH_A_THREAD
    replayed = Replayed(noise) if on_gpu else None
    losses = []
    with one_thread() if small else nullcontext(), own_stream(where):
        for epoch in range(epochs):
            by = None if adversary is None else adversary.at(epoch)

            def step(x: Tensor, y: Tensor, by: PGD | None = by) -> Tensor:
                if by is not None:
                    x = _perturb(model, x, y, by, data, noise)
                loss = cross_entropy(model(x), y)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                return loss.detach()

            total = torch.zeros((), dtype=torch.float64, device=where)  # stays there: asking for it would be waiting
            for index in torch.randperm(len(x_train), generator=generator).to(where).split(batch):
                x, y = x_train[index], y_train[index]
                loss = step(x, y) if replayed is None else replayed.take(step, x, y, by)
                if schedule is not None:
                    schedule.step()
                total += loss * len(index)
            losses.append(float(total) / len(x_train))
            if progress is not None:
                progress(epoch + 1)
    model.eval()
    scores = [accuracy(model, x, y) for x, y in ((x_train, y_train), (x_test, y_test))]
    return model.cpu(), Report(tuple(losses), *scores)


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
        right = sum(int((model(part).argmax(1) == labels).sum()) for part, labels in _parts(x, y))
    return right / len(x)


def accuracy_under(
    model: Model, x: Tensor, y: Tensor, by: PGD, low: float, high: float, *, starts: int = 1, seed: int = 0
) -> float:
    """The share of `x` (`b x *s`) still given its label when the adversary may move it, inputs lying in [low, high]."""
    found = 0
    for part, labels in _parts(x, y):
        lower, upper = by.around(part, low, high)
        attack = pgd_attack(model, labels, lower, upper, steps=by.steps, step=by.step, starts=starts, seed=seed)
        found += int(attack.found.sum())
    return 1 - found / len(x)


def _parts(x: Tensor, y: Tensor, size: int = 5000) -> Iterator[tuple[Tensor, Tensor]]:
    yield from zip(x.split(size), y.split(size))


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
    found = torch.zeros(len(y), dtype=torch.bool, device=lower.device)
    points, tried = lower.clone(), 0

    def seen(x: Tensor, logits: Tensor) -> None:
        nonlocal points, found, tried
        points = torch.where(found.reshape(-1, *[1] * (x.dim() - 1)), points, x)
        found = found | (logits.argmax(1) != y)
        tried += len(x)

    for _ in range(starts):
        share = torch.rand(lower.shape, generator=generator, dtype=lower.dtype).to(lower.device)
        x = torch.minimum(lower + (upper - lower) * share, upper)
        lengths = [step * (upper - lower) / 2] * (steps + 1)  # the start counts too
        pgd(_loss(model, y), x, lower, upper, lengths, seen)
    return Attack(found, points, tried)


def _perturb(model: Model, x: Tensor, y: Tensor, by: PGD, data: Dataset, generator: torch.Generator) -> Tensor:
    """What the adversary makes of a batch."""
    lower, upper = by.around(x, data.low, data.high)
    if by.random_start:
        x = lower + (upper - lower) * torch.rand(x.shape, generator=generator, device=x.device)
    return pgd(_loss(model, y), x, lower, upper, [by.step * by.tau] * by.steps)


def _loss(model: Model, y: Tensor) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """The cross-entropy to be raised, summed over the inputs; and the logits, `b x k`."""

    def value(x: Tensor) -> tuple[Tensor, Tensor]:
        logits = model(x)
        return cross_entropy(logits, y, reduction="sum"), logits.detach()

    return value
