"""`elbowroom train`: a named set of images, a network trained on it, and the one file it is saved in."""

from __future__ import annotations

import time
from pathlib import Path

from elbowroom.errors import InputError
from elbowroom.machine.device import usable_device
from elbowroom.network.file import SUFFIX, save_network
from elbowroom.report.progress import training
from elbowroom.training.sets import as_network, training_data
from elbowroom.training.train import ACTIVATIONS, PGD, accuracy_under, train

_ATTACK = 0.05  # of the pixels' range: how far the attack that is reported moves them, where training knows of none


def train_command(
    name: str,
    out: Path,
    *,
    data_dir: Path | None = None,
    classes: str | None = None,
    widths: str = "100,100,100",
    channels: str | None = None,
    activation: str = "relu",
    epochs: int = 100,
    rate: float = 1e-4,
    weight_decay: float = 1e-4,
    batch: int = 100,
    decay_rate: bool = False,
    tau: float | None = None,
    steps: int = 20,
    step: float = 0.25,
    random_start: bool = True,
    ramp: int = 0,
    clip: bool = True,
    pixels: str = "0,1",
    seed: int = 0,
    device: str | None = None,
    quiet: bool = False,
) -> Path:
    """Trains a network and saves it as `out`; says how it goes, and its accuracy as it is and under attack.

    `tau`: train against PGD that moves every pixel by up to this, in the units of `pixels`; `step`: of one of its
    `steps`, as a share of tau; `ramp`: epochs over which tau grows to its full size; `clip`: whether PGD keeps pixels
    in their range. `pixels`: "low,high", the range the saved network takes.
    """
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
    where = usable_device(device)
    data, names = training_data(name, data_dir, None if classes is None else classes.split(","))

    def say(text: str) -> None:
        if not quiet:
            print(text, flush=True)

    layers = "-".join(str(n) for n in (*(f"conv {c}" for c in maps), *hidden, len(names)))
    against = "" if tau is None else f", against PGD of {steps} steps with tau {tau:g}"
    say(f"{data.name}: {len(data.x_train):,} images to train on, {len(data.x_test):,} to test; {layers}, {activation}")
    say(f"{epochs} epochs in batches of {batch}, rate {rate:g}, weight decay {weight_decay:g}{against}; on {where}")
    started = time.perf_counter()
    with training(epochs, quiet) as progress:
        model, report = train(
            hidden, data, channels=maps, activation=ACTIVATIONS[activation], epochs=epochs, rate=rate,
            weight_decay=weight_decay, batch=batch, adversary=adversary, decay_rate=decay_rate, seed=seed, device=where,
            progress=progress,
        )  # fmt: skip
    say(f"trained in {time.perf_counter() - started:.1f} s; the last epoch's mean loss was {report.losses[-1]:.4g}")
    by = adversary or PGD(2 * _ATTACK, steps, step)
    right = accuracy_under(model.to(where), data.x_test.to(where), data.y_test.to(where), by, data.low, data.high)
    net = as_network(model.cpu(), data, names, low, high)
    out.parent.mkdir(parents=True, exist_ok=True)
    save_network(net, out)
    say(f"accuracy: {report.train_accuracy:.2%} on training images, {report.test_accuracy:.2%} on test images")
    say(f"accuracy under PGD ({by.steps} steps, pixels moved by up to {by.tau * half:g}): {right:.2%} on test images")
    say(f"saved as {out}; it takes pixels in [{low:g}, {high:g}]")
    return out


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
