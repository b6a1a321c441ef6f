"""Two runs compared, for people."""

from __future__ import annotations

from typing import Any

from elbowroom.network.levels import listed
from elbowroom.network.names import counted, printable
from elbowroom.report.digits import at_most
from elbowroom.report.flags import as_flags
from elbowroom.runs.settings import FLAGS

_ROWS, _FEATURES = 10, 5


def show_diff(found: dict[str, Any], answers: list[dict[str, Any]], flags: dict[str, str]) -> None:
    """Prints what became of the regions, whose shrank most, and which limits are exceeded."""
    print(f"old: {printable(found['old'])}")
    print(f"new: {printable(found['new'])}")
    for line in sentences(found):
        print(printable(line))
    _show_rows(worst(found, _ROWS))
    features = [f for f in found["features"] if f["shrink"] > 0][:_FEATURES]
    if features:
        print("\nfeatures whose extents shrank most (geometric mean over the inputs certified by both):")
        for each in features:
            print(f"  {printable(each['feature'])}: {percent(each['shrink'])}")
    for answer in answers:
        print(_verdict(answer, flags))
    print("\nelbowroom check proves the certificates of each run again; what is compared is what their files state")


def sentences(found: dict[str, Any]) -> list[str]:
    """What became of the runs' inputs, in sentences."""
    said = [
        f"{counted(found['inputs'], 'input')} in both; certified in both: {found['both']:,}, in the old one only: "
        f"{found['lost']:,}, in the new one only: {found['gained']:,}"
    ]
    for count, where in ((found["only_old"], "old"), (found["only_new"], "new")):
        if count:
            said.append(f"not compared: {counted(count, 'input')} of the {where} run only")
    said += [f"incomplete: {folder}" for folder in found["unfinished"]]
    if found["both"]:
        said.append(
            f"size of the regions certified in both: smaller for {found['shrunk']:,}, larger for {found['grown']:,}"
        )
    if found["shrinks"]:
        middle = found["shrinks"]["50%"]
        said.append(f"in the median it {'shrank' if middle >= 0 else 'grew'} by {percent(abs(middle))}")
    if found["mean_shrink"] is not None:
        mean = found["mean_shrink"]
        said.append(
            f"mean size of the regions certified in the old run, nothing where it is lost: "
            f"{percent(abs(mean))} {'less' if mean >= 0 else 'more'}"
        )
    if found["levels_lost"] or found["levels_gained"]:
        said.append(
            "categories, of those certified in both: regions lost levels for "
            f"{found['levels_lost']:,}, gained some for {found['levels_gained']:,} (sizes do not count them)"
        )
    if found["changed"] is not None:
        said.append(f"decisions that changed: {found['changed']:,} of {found['decided']:,}")
    return [*said, *(f"note: {as_flags(note, FLAGS)}" for note in found["notes"])]


def worst(found: dict[str, Any], most: int) -> list[dict[str, Any]]:
    """The inputs that lost most, or levels of a category, or whose decision changed: at most so many. Those first that
    lost a larger share, and of these those that were larger."""
    rows = [row for row in found["rows"] if row["changed"] or (row["shrink"] or 0) > 0 or row["levels_lost"]]
    return sorted(rows, key=lambda row: (-(row["shrink"] or 0), -(row["old"] or 0), row["input"]))[:most]


def percent(share: float) -> str:
    """A share in percent, in three digits."""
    return f"{100 * share:.3g} %" if abs(share) < 10 else f"{100 * share:,.0f} %"


def change(row: dict[str, Any]) -> str:
    """What became of an input's region, in words."""
    if row["shrink"] is None:
        return "no certificate before"
    if row["new"] is None:
        return "lost"
    lost = "; ".join(f"{each['feature']} without {listed(each['levels'], ', ')}" for each in row["levels_lost"])
    size = f"{percent(abs(row['shrink']))} {'less' if row['shrink'] >= 0 else 'more'}"
    return f"{size}; {lost}" if lost else size


def decided(row: dict[str, Any], between: str) -> str:
    """What was decided, and what is now where that is something else; "nothing" where outputs are not finite."""
    if not row["changed"]:
        return "" if row["new_decision"] is None else row["new_decision"]
    return between.join("nothing" if row[name] is None else row[name] for name in ("old_decision", "new_decision"))


def _show_rows(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    if not rows:
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("input", overflow="fold")
    for head in ("old size", "new size"):
        table.add_column(head, justify="right")
    table.add_column("change", justify="right", overflow="fold")
    table.add_column("decision", overflow="fold")
    for row in rows:
        name = f"{row['input']} ({printable(row['name'])})" if row["name"] else str(row["input"])
        sizes = ["-" if row[k] is None else at_most(row[k], 4) for k in ("old", "new")]
        table.add_row(name, *sizes, printable(change(row)), printable(decided(row, ", then ")))
    print()
    Console(highlight=False, markup=False).print(table)


def _verdict(answer: dict[str, Any], flags: dict[str, str]) -> str:
    flag = f"{flags.get(answer['name'], answer['name'])} {answer['limit']}"
    if answer["exceeded"] is None:
        return f"nothing to compare for {flag}"
    value = f"{100 * answer['found']:.6g} %" if answer["of"] is None else f"{answer['found']:,} of {answer['of']:,}"
    return f"{'EXCEEDED' if answer['exceeded'] else 'within'} {flag}: {answer['words']} {value}"
