"""`elbowroom train`: a named set of images, a network trained on it, and the one file it is saved in."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from elbowroom.commands.flags import takes
from elbowroom.errors import InputError

_ATTACK = 0.05  # of the pixels' range: how far the attack that is reported moves them, where training knows of none


@takes("data_dir", "device", data_dir="Folder of the sets; digits needs none.")
def train(
    data: Annotated[str, typer.Argument(help="digits, mnist, fashion-mnist or svhn.", show_default=False)],
    out: Annotated[Path, typer.Option(help="The network's file; ends in .elbowroom.", show_default=False)],
    *,
    given: dict[str, Any],
    classes: Annotated[
        str | None, typer.Option(help="Only these, by name or number: 1,7.", show_default=False, metavar="A,B,...")
    ] = None,
    widths: Annotated[str, typer.Option(help="Neurons of each hidden layer.", metavar="N,N,...")] = "100,100,100",
    channels: Annotated[
        str | None,
        typer.Option(help="Convolutions (4x4, stride 2) in front.", show_default=False, metavar="N,N,..."),
    ] = None,
    activation: Annotated[
        str, typer.Option(help="relu, leaky-relu, relu6, hardtanh, sigmoid, tanh, arctan, elu, softplus, silu or gelu.")
    ] = "relu",
    epochs: Annotated[int, typer.Option(min=1)] = 100,
    batch: Annotated[int, typer.Option(min=1)] = 100,
    rate: Annotated[float, typer.Option(help="Learning rate of Adam.")] = 1e-4,
    decay_rate: Annotated[bool, typer.Option("--decay-rate", help="Let the rate fall to zero along a cosine.")] = False,
    weight_decay: Annotated[float, typer.Option(min=0.0)] = 1e-4,
    tau: Annotated[
        float | None,
        typer.Option(
            help="Train against PGD that moves each pixel by up to this, in the units of --pixels.", show_default=False
        ),
    ] = None,
    steps: Annotated[int, typer.Option(help="Of PGD.", min=1)] = 20,
    step: Annotated[float, typer.Option(help="Of PGD, as a share of tau.")] = 0.25,
    random_start: Annotated[bool, typer.Option(help="PGD starts from a random point.")] = True,
    ramp: Annotated[int, typer.Option(help="Epochs over which tau grows to its full size.", min=0)] = 0,
    clip: Annotated[bool, typer.Option(help="PGD keeps pixels in their range.")] = True,
    pixels: Annotated[
        str, typer.Option(help="Range the saved network takes; -1,1 is the paper's.", metavar="LOW,HIGH")
    ] = "0,1",
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1)] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
) -> None:
    """Train a network, normally or against PGD, and save it in one file; the defaults are the paper's authors'."""
    from elbowroom.machine.device import usable_device
    from elbowroom.machine.meter import Meter
    from elbowroom.network.file import SUFFIX, save_network
    from elbowroom.training.adversary import PGD, accuracy_under
    from elbowroom.training.models import ACTIVATIONS
    from elbowroom.training.sets import as_network, training_data
    from elbowroom.training.train import train as fit

    if out.suffix != SUFFIX:
        raise InputError(f"the network is saved as one file with the ending {SUFFIX}; {out} has another")
    if out.exists():
        raise InputError(f"{out} is there already; give another name, or remove it first")
    if activation not in ACTIVATIONS:
        raise InputError(f"unknown activation {activation!r}; choose one of {', '.join(ACTIVATIONS)}")
    low, high = _range(pixels)
    half = (high - low) / 2
    hidden, maps = _numbers(widths, "widths"), _numbers(channels or "", "channels")
    adversary = None if tau is None else PGD(tau / half, steps, step, random_start, ramp, clip)
    where = usable_device(given.get("device"))
    images, names = training_data(data, given.get("data_dir"), None if classes is None else classes.split(","))

    def say(text: str) -> None:
        if not quiet:
            print(text, flush=True)

    layers = "-".join(str(n) for n in (*(f"conv {c}" for c in maps), *hidden, len(names)))
    against = "" if tau is None else f", against PGD of {steps} steps with tau {tau:g}"
    sizes = f"{len(images.x_train):,} images to train on, {len(images.x_test):,} to test"
    say(f"{images.name}: {sizes}; {layers}, {activation}")
    say(f"{epochs} epochs in batches of {batch}, rate {rate:g}, weight decay {weight_decay:g}{against}; on {where}")
    started = time.perf_counter()
    with Meter(epochs, "epoch", quiet=quiet) as meter:
        model, report = fit(
            hidden, images, channels=maps, activation=ACTIVATIONS[activation], epochs=epochs, rate=rate,
            weight_decay=weight_decay, batch=batch, adversary=adversary, decay_rate=decay_rate, seed=seed, device=where,
            progress=meter.advance,
        )  # fmt: skip
    say(f"trained in {time.perf_counter() - started:.1f} s; the last epoch's mean loss was {report.losses[-1]:.4g}")
    by = adversary or PGD(2 * _ATTACK, steps, step)
    tested = images.x_test.to(where), images.y_test.to(where)
    right = accuracy_under(model.to(where), *tested, by, images.low, images.high)
    net = as_network(model.cpu(), images, names, low, high)
    out.parent.mkdir(parents=True, exist_ok=True)
    save_network(net, out)
    say(f"accuracy: {report.train_accuracy:.2%} on training images, {report.test_accuracy:.2%} on test images")
    say(f"accuracy under PGD ({by.steps} steps, pixels moved by up to {by.tau * half:g}): {right:.2%} on test images")
    say(f"saved as {out}; it takes pixels in [{low:g}, {high:g}]")


def _numbers(text: str, name: str) -> tuple[int, ...]:
    try:
        found = tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        found = (0,)
    if any(n < 1 for n in found):
        raise InputError(f"{name} must be positive whole numbers such as 100,100, got {text!r}")
    return found


def _range(text: str) -> tuple[float, float]:
    try:
        low, high = (float(part) for part in text.split(","))
        if not -1e6 < low < high < 1e6:
            raise ValueError
    except ValueError:
        raise InputError(f"pixels must be a lowest and a highest value such as 0,1 or -1,1, got {text!r}") from None
    return low, high
