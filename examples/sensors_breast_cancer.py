"""How far off may the measurements of a tumour be: one alone, those of a datasheet, and what is needed of each?

A perceptron of scikit-learn tells benign from malignant tumours by 30 measurements of cell nuclei (see
breast_cancer.py). Of the test patients: how far may each measurement of one of them move alone; if all measurements
are right to 2 % of their values, whose diagnosis is safe, and which measurement matters most; and how accurate must
each be, all at once, so that the diagnosis of most patients provably stays the true one.

    python examples/sensors_breast_cancer.py

The ten "error" columns are held fixed: they are computed, and not measured.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import elbowroom as er
from breast_cancer import inward
from elbowroom.errors import ElbowroomError
from sensor_picture import Row, draw

DATASHEET = "2%"


@dataclass(frozen=True)
class Answers:
    """What was found; `patient`: whose measurements are moved alone; `free`: those that are not computed."""

    patient: int
    alone: er.Alone
    safe: er.Safety
    needed: er.Accuracy
    names: np.ndarray
    free: np.ndarray
    lowest: np.ndarray
    highest: np.ndarray


def ask(patients: int | None, patient: int | None, share: float, effort: str) -> Answers:
    """Trains on three quarters of the patients, and asks about the others (or the first few of them)."""
    data = load_breast_cancer()
    train_x, test_x, train_y, test_y = train_test_split(
        data.data, data.target, test_size=0.25, stratify=data.target, random_state=0
    )
    model = make_pipeline(
        StandardScaler(), MLPClassifier(hidden_layer_sizes=(16, 16), alpha=1.0, max_iter=2000, random_state=0)
    )
    net = er.load(model.fit(train_x, train_y), features=data.feature_names, classes=data.target_names)
    x, labels = test_x[:patients], test_y[:patients]
    lowest, highest = data.data.min(0), data.data.max(0)
    computed = np.array([name.endswith("error") for name in data.feature_names])
    accuracy = dict.fromkeys(data.feature_names[~computed], DATASHEET)
    told = {"domain": (lowest, highest), "effort": effort}
    safe = er.safe_share(net, x, accuracy, labels=labels, **told)
    if patient is None:  # one whose diagnosis may change
        patient = safe.status.index("unsafe") if "unsafe" in safe.status else 0
    return Answers(
        patient=patient,
        safe=safe,
        alone=er.alone(net, x[patient], labels=labels[patient], frozen=computed, **told),
        needed=er.accuracy_needed(net, x, share, labels=labels, frozen=computed, **told),
        names=data.feature_names, free=~computed, lowest=lowest, highest=highest,
    )  # fmt: skip


def rounded_down(value: float) -> str:
    """Three digits, and not more than was proved."""
    text = f"{value:.3g}"
    return text if float(text) <= value else f"{value * (1 - 5e-3):.3g}"


def tell(found: Answers) -> None:
    safe, needed, one = found.safe, found.needed, found.alone
    print(
        f"Of {len(safe)} test patients, all measurements right to {DATASHEET} of their values at once, the diagnosis is"
    )
    for status, count in safe.counts.items():
        print(f"  {status}: {count}")
    first = [s for s in safe.sensors if s.exact["safe"] > safe.counts["safe"]][:3]
    for sensor in first:
        print(f"  were the {sensor.name} exact, {sensor.exact['safe'] - safe.counts['safe']} more would be safe")
    print(
        f"\nNeeded, all at once, and proved for {needed.proved} of {len(needed)} patients ({needed.needed} asked for):"
    )
    order = [k for k in np.argsort(needed.shares.numpy()) if found.free[k]]
    for k in order:
        value = float(one.x[0, k])
        low, high = inward(float(one.lower[0, k]), value), inward(float(one.upper[0, k]), value)
        print(
            f"  {found.names[k]:24s} to {rounded_down(float(needed.tolerance[k])):>8s}, "
            f"{rounded_down(100 * float(needed.shares[k]))} % of its range; "
            f"alone, patient {found.patient}: {low} to {high}"
        )


def main(arguments: list[str] | None = None) -> Answers:
    parser = argparse.ArgumentParser(description="How accurate a tumour's measurements must be, proved.")
    parser.add_argument("--patients", type=int, help="how many test patients; default, all 143")
    parser.add_argument("--patient", type=int, help="whose measurements are moved alone; default, one who is not safe")
    parser.add_argument("--share", type=float, default=0.9, help="of the patients, for which tolerances must hold")
    parser.add_argument("--effort", default="fast", help="fast, medium, high, parts per box, or seconds per input")
    parser.add_argument("--out", type=Path, default=Path("out/sensors_breast_cancer"), help="where to write")
    given = parser.parse_args(arguments)
    try:
        found = ask(given.patients, given.patient, given.share, given.effort)
    except (ElbowroomError, OSError, IndexError) as error:
        raise SystemExit(f"sensors_breast_cancer: {error}") from None
    tell(found)
    one, needed = found.alone, found.needed
    rows = [
        Row(
            str(found.names[k]), float(one.x[0, k]), float(found.highest[k] - found.lowest[k]), float(one.lower[0, k]),
            float(one.upper[0, k]), float(one.seen_lower[0, k]), float(one.seen_upper[0, k]),
            float(needed.tolerance[k]), float(found.safe.extents[found.patient, k]),
            f"{rounded_down(float(needed.tolerance[k]))}",
        )
        for k in np.argsort(needed.shares.numpy())
        if found.free[k]
    ]  # fmt: skip
    draw(
        given.out / "sensors.png", rows, "How accurate must the measurements of a tumour be?",
        f"needed: all at once, proved for {needed.proved} of {len(needed)} patients",
        f"alone: the diagnosis of patient {found.patient} stays, all else fixed", 1.0,
    )  # fmt: skip
    needed.certificates.save(given.out / "run")
    print(f"\nThe picture is {given.out / 'sensors.png'}; certificates in {given.out / 'run'}")
    return found


if __name__ == "__main__":
    main()
