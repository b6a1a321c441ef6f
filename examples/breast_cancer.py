"""How far may each measurement of a tumour be off before a network's diagnosis could change?

A perceptron of scikit-learn tells benign from malignant tumours by 30 measurements of cell nuclei (569 patients, data
that come with scikit-learn). They have different units: a radius of 14, an area of 650, a smoothness of 0.1. Around
each test patient this finds a box, as large as it can, in which the diagnosis provably stays the same, with a tolerance
of its own for every measurement, all of them at once, and in the data's own units.

    python examples/breast_cancer.py

The ten "error" columns are held fixed: they are standard errors over the nuclei of one image, computed and not
measured. The question is how far the measured sizes and shapes, their means and their worst values, may be off.
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from pathlib import Path

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import elbowroom as er

WIDTH = 80


@dataclass(frozen=True)
class Study:
    """What was found. `free`: the measurements that may change; `lowest`, `highest`: of each, among all patients."""

    accuracy: float
    certificates: er.Certificates
    proof: er.CheckReport
    names: np.ndarray
    classes: np.ndarray
    free: np.ndarray
    lowest: np.ndarray
    highest: np.ndarray

    def box(self, row: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of one patient's free measurements: the values, and how far they may fall and rise."""
        certs = self.certificates
        assert certs.lower is not None and certs.upper is not None
        value, lower, upper = (t[row].numpy()[self.free] for t in (certs.x, certs.lower, certs.upper))
        return value, lower, upper

    def shares(self, row: int) -> np.ndarray:
        """The room of each free measurement, as a share of the range in which it was ever observed."""
        _, lower, upper = self.box(row)
        return (upper - lower) / (self.highest - self.lowest)[self.free]


def study(patients: int | None = None, asymmetric: bool = False) -> Study:
    """Trains on three quarters of the patients, and certifies the others (or the first few of them)."""
    data = load_breast_cancer()
    split = train_test_split(data.data, data.target, test_size=0.25, stratify=data.target, random_state=0)
    train_x, test_x, train_y, test_y = split
    model = make_pipeline(
        StandardScaler(), MLPClassifier(hidden_layer_sizes=(16, 16), alpha=1.0, max_iter=2000, random_state=0)
    )
    model.fit(train_x, train_y)
    net = er.load(model, features=data.feature_names, classes=data.target_names)
    computed = [name for name in data.feature_names if name.endswith("error")]
    lowest, highest = data.data.min(0), data.data.max(0)
    certs = er.certify(
        net,
        test_x[:patients],
        labels=test_y[:patients],  # the true diagnosis: a wrong one has no certificate
        region=er.Box(asymmetric=asymmetric),
        domain=(lowest, highest),  # nothing is claimed where no tumour was ever seen
        frozen=computed,
    )
    return Study(
        accuracy=float(model.score(test_x, test_y)),
        certificates=certs,
        proof=er.check(certs, net),
        names=data.feature_names,
        classes=data.target_names,
        free=~np.isin(data.feature_names, computed),
        lowest=lowest,
        highest=highest,
    )


def middle_patient(found: Study) -> int:
    """The certified patient with the region of middling size."""
    rows = found.certificates.certified.nonzero().flatten().tolist()
    return sorted(rows, key=lambda row: float(found.certificates.log_volume[row]))[len(rows) // 2]


def inward(end: float, value: float, digits: int = 4) -> str:
    """The end of a range around `value`, to four digits or more, rounded so that the range printed is no larger."""
    exact, middle = Decimal(repr(float(end))), Decimal(repr(float(value)))
    unit = Decimal(1).scaleb(max(exact, middle, key=abs).adjusted() + 1 - digits)
    rounded = exact.quantize(unit, ROUND_CEILING if end < value else ROUND_FLOOR)
    if end != value and (rounded < middle) != (end < value):  # it would leave nothing of a narrow range
        return inward(end, value, digits + 1)
    return f"{rounded.normalize():f}" if rounded else "0"


def tell(found: Study, row: int, say: Console) -> None:
    """The numbers, for people."""
    certs, n = found.certificates, len(found.certificates)
    counts = Counter(certs.status)
    say.print(f"Test accuracy {found.accuracy:.1%} on a quarter of the 569 patients.")
    say.print(
        f"Of {n} test patients {counts['certified']} are certified, {counts['misclassified']} are diagnosed wrongly, "
        f"{counts['not_certified']} could not be certified."
    )
    say.print(f"Proved again by the independent checker: {found.proof.counts['proved']} of {counts['certified']}.\n")
    value, lower, upper = found.box(row)
    shares, names = found.shares(row), found.names[found.free]
    low, high = found.lowest[found.free], found.highest[found.free]
    label = found.classes[int(certs.labels[row])]
    table = Table(
        title=f"Test patient {row}: {label}, wherever the measurements lie in these ranges",
        caption="Share: of the range observed among all 569 patients. * to within 1 % of its end",
        box=box.SIMPLE_HEAD,
        title_justify="left",
        caption_justify="left",
    )
    for name in ("measurement", "value", "may fall to", "may rise to", "share"):
        table.add_column(name, justify="left" if name == "measurement" else "right", no_wrap=True)
    for k in np.argsort(shares):
        ends = [
            inward(end[k], value[k]) + ("*" if abs(end[k] - limit[k]) <= 0.01 * (high[k] - low[k]) else " ")
            for end, limit in ((lower, low), (upper, high))
        ]
        table.add_row(names[k], f"{value[k]:.4g}", *ends, f"{shares[k]:.0%}")
    say.print(table)
    least = np.argmin(shares)
    say.print(
        f"\nThe least room is left to the {names[least]}: {inward(lower[least], value[least])} to "
        f"{inward(upper[least], value[least])}, {shares[least]:.0%} of the range it was observed in. All ranges hold "
        f"at once, while the {int((~found.free).sum())} standard errors stay as they are."
    )
    firsts = Counter(names[np.argmin(found.shares(r))] for r in certs.certified.nonzero().flatten().tolist())
    most, times = firsts.most_common(1)[0]
    say.print(f"The {most} is the narrowest for most patients, {times} of the {counts['certified']} certified.")


def draw(found: Study, row: int, path: Path) -> None:
    """The ranges as bars on the observed ranges, with the patient's values as dots."""
    axes = found.certificates.plot.tolerance(row, max_features=int(found.free.sum()))
    path.parent.mkdir(parents=True, exist_ok=True)
    axes.figure.savefig(path, dpi=150, facecolor="white")


def main(arguments: list[str] | None = None, console: Console | None = None) -> Study:
    parser = argparse.ArgumentParser(description="Tolerances of a tumour's measurements, proved.")
    parser.add_argument("--patients", type=int, help="how many test patients to certify; default, all 143")
    parser.add_argument("--patient", type=int, help="the test patient to show; default, one with a middling region")
    parser.add_argument("--asymmetric", action="store_true", help="larger boxes, with sides of their own up and down")
    parser.add_argument("--out", type=Path, default=Path("out/breast_cancer"), help="where to write")
    asked = parser.parse_args(arguments)
    say = Console(width=WIDTH, highlight=False) if console is None else console
    found = study(asked.patients, asked.asymmetric)
    row = middle_patient(found) if asked.patient is None else asked.patient
    if not 0 <= row < len(found.certificates) or found.certificates.status[row] != "certified":
        parser.error(f"patient {row} is not among the certified test patients")
    tell(found, row, say)
    draw(found, row, asked.out / "patient.png")
    found.certificates.save(asked.out / "certificates")
    say.print(f"\nWritten: {asked.out / 'patient.png'}, and every certificate in {asked.out / 'certificates'}")
    return found


if __name__ == "__main__":
    main()
