"""Pictures of what a decision depends on: pixels that may take any value, that are needed, and that are not decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elbowroom.certificates.result import Certificates
from elbowroom.errors import InputError
from elbowroom.report.plot.drawing import Files, save
from elbowroom.runs.one_input import FREE, FROZEN, NEEDS, OPEN, states_of

# How pixels are marked: by form, so that nobody needs colours. Those that are free have none.
_MARKS: dict[str, dict[str, Any]] = {
    NEEDS: {"marker": "s", "s": 17, "color": "black", "linewidths": 0},
    OPEN: {"marker": "o", "s": 6, "facecolors": "white", "edgecolors": "black", "linewidths": 0.6},
    FROZEN: {"marker": "_", "s": 12, "color": "black", "linewidths": 0.8},
}


def free_maps(
    path: Files, certs: Certificates, rows: Sequence[int], shape: tuple[int, int], titles: Sequence[str] | None = None
) -> tuple[Path, ...]:
    """One column per input of `objective="free"`: the image, and below it which of its pixels are what.

    `rows`: which of the certificates, all of them certified. `shape`: height and width of an image, of all features.
    `titles`: what stands above each image. "Free" is read off the proved corners; "needed" is as the search states it.
    """
    height, width = shape
    states = {row: states_of(certs, row) for row in rows}
    for row, found in states.items():
        if found is None:
            raise InputError('there is nothing to draw: these certificates are not of objective="free"')
        if certs.status[row] != "certified":
            raise InputError(f"row {row} has no certificate: {certs.message[row] or certs.status[row]}")
        if len(found) != height * width:
            raise InputError(f"{len(found)} features are no image of {height} x {width}")
    present = {state for found in states.values() for state in found or ()}

    def draw(figure: Any) -> None:
        axes = figure.subplots(2, len(rows), squeeze=False)
        for column, (row, found) in enumerate(states.items()):
            image = certs.x[row].reshape(shape).numpy()
            counts, marked = Counter(found), axes[1, column]
            axes[0, column].imshow(image, cmap="gray_r")
            axes[0, column].set_title(titles[column] if titles else f"input {certs.number(row)}", fontsize=11)
            # The image itself, so pale that marks can be told apart on it.
            marked.imshow(image, cmap="gray_r", alpha=0.25)
            for state, how in _MARKS.items():
                places = [divmod(k, width) for k, each in enumerate(found or ()) if each == state]
                if places:
                    marked.scatter([x for _, x in places], [y for y, _ in places], **how)
            marked.set_xlabel(", ".join(f"{counts[s]} {s}" for s in (FREE, NEEDS, OPEN, FROZEN) if counts[s]))
            for ax in axes[:, column]:
                ax.set_xticks([])
                ax.set_yticks([])
        shown = [axes[1, 0].scatter([], [], **how, label=s) for s, how in _MARKS.items() if s in present]
        shown.append(axes[1, 0].scatter([], [], marker=" ", label=f"no mark: {FREE}, any value of its domain"))
        figure.legend(handles=shown, loc="outside lower center", ncols=len(shown), frameon=False, fontsize=10)

    return save(path, (max(5.5, 3.0 * len(rows)), 6.6), draw)


__all__ = ["free_maps"]
