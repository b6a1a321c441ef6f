"""Training on a GPU: do replayed steps give the weights of launched ones, and how much faster are they?

    PYTHONPATH=src python benchmarks/training.py --data-dir DIR

DIR holds MNIST/raw. Convolutions may differ in the last digits: their library does not add up in a fixed order.
Needs torch and numpy only.
"""

import argparse
import time
from pathlib import Path

import torch

import elbowroom.training.train as training
from elbowroom.data.embedded import Dataset
from elbowroom.training.adversary import PGD
from elbowroom.training.sets import training_data
from elbowroom.training.train import train


class Launched:
    """In the place of `Replayed`: every kernel of every step is launched."""

    def __init__(self, generator: torch.Generator) -> None:
        pass

    def take(self, step, x, y, kind):
        return step(x, y)


def timed(data: Dataset, widths, batch: int, adversary, epochs: int, replayed: bool = True, **options):
    """Seconds, the report, and the network."""
    kept = training.Replayed
    training.Replayed = kept if replayed else Launched
    try:
        torch.cuda.synchronize()
        start = time.perf_counter()
        network, report = train(
            widths, data, epochs=epochs, batch=batch, adversary=adversary, device="cuda", rate=1e-3, **options
        )
        torch.cuda.synchronize()
        return time.perf_counter() - start, report, network
    finally:
        training.Replayed = kept


def first(data: Dataset, n: int) -> Dataset:
    return Dataset(
        data.name, data.x_train[:n], data.y_train[:n], data.x_test[:2000], data.y_test[:2000], data.low, data.high,
        data.shape,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=Path, required=True)
    given = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("there is no GPU here")
    mnist = training_data("mnist", given.data_dir)[0]
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    few = PGD(0.1, steps=5)
    print("the same weights? (4 epochs, the last batch of each smaller)")
    for name, adversary, options in (
        ("normal", None, {}),
        ("normal, falling rate", None, {"decay_rate": True}),
        ("PGD", few, {}),
        ("PGD, no random start", PGD(0.1, steps=5, random_start=False), {}),
        ("PGD, growing tau", PGD(0.1, steps=5, ramp=3), {}),
        ("PGD, convolutions", few, {"channels": (4, 8)}),
    ):
        made = [timed(first(mnist, 10_300), (100, 100), 500, adversary, 4, r, **options) for r in (True, False)]
        with torch.no_grad():
            away = max(float((p - q).abs().max()) for p, q in zip(made[0][2].parameters(), made[1][2].parameters()))
        losses = ", ".join(f"{report.losses[-1]:.5f}" for _, report, _ in made)
        print(f"  {name:22} largest difference {away:.1e}; last losses {losses}", flush=True)
    print("ms per step against PGD of 20 steps        replayed  launched  ratio")
    for width in (100, 300, 500, 1024):
        for batch in (100, 1000):
            data = first(mnist, 20_000)
            steps = len(data.x_train) // batch
            fast, slow = (  # without what comes before and after the steps
                (
                    timed(data, (width,) * 3, batch, PGD(0.1), 3, r)[0]
                    - timed(data, (width,) * 3, batch, PGD(0.1), 1, r)[0]
                )
                / (2 * steps)
                for r in (True, False)
            )
            name = f"784-{width}-{width}-{width}-10, batch {batch}"
            print(f"  {name:39} {1e3 * fast:8.2f}  {1e3 * slow:8.2f}  {slow / fast:5.1f}", flush=True)


if __name__ == "__main__":
    main()
