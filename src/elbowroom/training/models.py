"""Small fully-connected and convolutional networks, before training.

Their first weights come from a generator that is handed in; torch's global one is left as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from elbowroom.errors import InputError


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
    """A fully-connected network.

    Weights and biases start uniform in +-1 / sqrt(inputs of the layer), which is torch's own default for such layers.

    Args:
        sizes: Its inputs, the neurons of each hidden layer, and its outputs.
        activation: Makes the module between layers.
        generator: Of the first weights; torch's global one by default.

    Returns:
        The network.

    Raises:
        InputError: There are fewer than two sizes, or one is not positive.
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
    """Convolutions, each 4x4 with stride 2 (so that it halves the image's sides), then an `mlp`.

    Args:
        shape: Of an image, `c x h x w` or `h x w`; the network takes it flat, `b x f`.
        channels: Of each convolution.
        widths: Neurons of each hidden layer behind them.
        n_classes: How many outputs there are.
        activation: Makes the module between layers.
        generator: Of the first weights; torch's global one by default.

    Returns:
        The network.

    Raises:
        InputError: The images are too small for so many convolutions, or a number is not positive.
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
