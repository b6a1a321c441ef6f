"""Are the sensors of an aircraft good enough for its collision avoidance system, and how good must they be?

    python examples/sensors_acas_xu.py --model ACASXU_run2a_1_1_batch_2000.onnx --property prop_3.vnnlib

ACAS Xu advises a pilot by five numbers about another aircraft (see acas_xu.py). Of encounters from a property's box:
how far may each number be off alone; given the accuracies of a made-up datasheet, is the advice safe, and which sensor
matters most; and how accurate must each be, all at once, for most of the encounters. In feet, degrees and feet per
second, and proved.
"""

import argparse
from pathlib import Path

import elbowroom as er
from acas_xu import ADVICE, DEGREES, QUANTITIES, column, encounter_in_words, encounters, inwards, load, physical_box
from elbowroom.errors import ElbowroomError
from elbowroom.vnnlib import read_query
from sensor_picture import Row, draw

# Of no real aircraft: a radar's distance to 1 %, angles to one and three degrees, speeds to 5 and 15 ft/s.
DATASHEET = {"rho": "1%", "theta": 1 / DEGREES, "psi": 3 / DEGREES, "v_own": 5, "v_int": 15}


def run(model: Path, prop: Path, out: Path, points: int, share: float, effort: str, seed: int) -> None:
    net, query = load(model), read_query(prop)
    x = encounters(*physical_box(query.cases[0], prop.read_text(encoding="utf-8")), points, seed)
    domain = (column("low"), column("high"))

    one = er.alone(net, x[:1], domain=domain)
    advice = ADVICE[int(one.labels[0])]
    print(f"An encounter: {encounter_in_words(x[0])}.")
    print(f"The advice is {advice!r}. While all else stays exactly as it is, it provably stays for")
    for k, q in enumerate(QUANTITIES):
        less, more = float(x[0, k] - one.lower[0, k]), float(one.upper[0, k] - x[0, k])
        print(f"  {q.title}: {inwards(less * q.show)} {q.unit} {q.less}, {inwards(more * q.show)} {q.unit} {q.more}")

    safe = er.safe_share(net, x, DATASHEET, domain=domain, effort=effort)
    counts = safe.counts
    print(f"\nWith the datasheet's accuracies, all at once, the advice of {points} encounters is")
    print(f"  proved safe for {counts['safe']}, proved unsafe for {counts['unsafe']}, unknown for {counts['unknown']}.")
    titles = {q.name: q.title for q in QUANTITIES}
    for sensor in safe.sensors:
        print(
            f"  {titles[sensor.name]}: {sensor.exact['safe']} would be safe if it were exact; "
            f"unsafe by it alone: {sensor.only['unsafe']}"
        )

    needed = er.accuracy_needed(net, x, share, domain=domain, effort=effort)
    print(f"\nNeeded, all at once, and proved for {needed.proved} of {points} encounters ({needed.needed} asked for):")
    for k, q in enumerate(QUANTITIES):
        print(f"  {q.title}: to {inwards(float(needed.tolerance[k]) * q.show)} {q.unit}")

    rows = [
        Row(
            q.title, float(x[0, k]), q.high - q.low, float(one.lower[0, k]), float(one.upper[0, k]),
            float(one.seen_lower[0, k]), float(one.seen_upper[0, k]), float(needed.tolerance[k]),
            float(safe.extents[0, k]), f"{inwards(float(needed.tolerance[k]) * q.show)} {q.unit}",
        )
        for k, q in enumerate(QUANTITIES)
    ]  # fmt: skip
    draw(
        out / "sensors.png", rows, f"How accurate must the sensors of ACAS Xu be? (advice of the encounter: {advice})",
        f"needed: all at once, proved for {needed.proved} of {points} encounters",
        "alone: the encounter's advice stays, all else fixed", 0.1,
    )  # fmt: skip
    needed.certificates.save(out / "run")
    print(f"\nThe picture is {out / 'sensors.png'}; certificates in {out / 'run'}: elbowroom check {out / 'run'}")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="one of the ACAS Xu networks, as ONNX")
    parser.add_argument("--property", type=Path, required=True, help="a property of it, as VNN-LIB")
    parser.add_argument("--out", type=Path, default=Path("out/sensors_acas_xu"), help="folder for what is found")
    parser.add_argument("--points", type=int, default=20, help="encounters: the middle of the box, then random ones")
    parser.add_argument("--share", type=float, default=0.8, help="of the encounters, for which tolerances must hold")
    parser.add_argument("--effort", default="medium", help="fast, medium, high, parts per box, or seconds per input")
    parser.add_argument("--seed", type=int, default=1, help="of the random ones")
    given = parser.parse_args(arguments)
    try:
        run(given.model, given.property, given.out, given.points, given.share, given.effort, given.seed)
    except (ElbowroomError, OSError) as error:
        raise SystemExit(f"sensors_acas_xu: {error}") from None


if __name__ == "__main__":
    main()
