"""`certs.plot`: pictures of certificates, in the manner of other tools that explain models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elbowroom.certificates.result import Certificates
from elbowroom.errors import InputError
from elbowroom.report.page.details import image_of
from elbowroom.report.plot.drawing import Drawing
from elbowroom.report.plot.many import extents_histogram, similarity, summary
from elbowroom.report.plot.one_map import image_map, plane_map
from elbowroom.report.plot.tolerance import tolerance
from elbowroom.report.room import Scale, scale_of_certificates

KINDS = ("map", "tolerance", "summary", "histogram", "similarity")
OF_ONE = ("map", "tolerance")  # kinds that are about one input
_FEATURES = 20


class Pictures:
    """Pictures of certificates, drawn by matplotlib, with the names, units and classes of the data.

    Every method draws on the axes that it is given, or in a figure of its own, and returns the axes:
    `certs.plot.tolerance(3).figure.savefig("tolerance.png")`.

    Args:
        certs: The certificates.
    """

    def __init__(self, certs: Certificates) -> None:
        self._certs = certs

    def tolerance(self, i: int = 0, ax: Any = None, max_features: int = _FEATURES) -> Any:
        """One input: the certified range of each feature as a bar around its value, the least room on top; categories
        as sets of levels.

        Args:
            i: The row of the input.
            ax: Where to draw; by default in a new figure.
            max_features: How many features, those with the least room.

        Returns:
            The axes.

        Raises:
            InputError: The input has no certificate, or matplotlib is missing.
        """
        return self._drawing("tolerance", i, max_features).on(ax)

    def map(self, i: int = 0, ax: Any = None, image_shape: Sequence[int] | None = None) -> Any:
        """One input: of an image, how wide the certified range of each pixel is; of two features, the region over what
        the network decides.

        Args:
            i: The row of the input.
            ax: Where to draw the map; by default in a new figure, beside the image.
            image_shape: Rows and columns (or channels, rows and columns), where the network takes flat images.

        Returns:
            The axes.

        Raises:
            InputError: The input has no certificate, is no image, or matplotlib is missing.
        """
        return self._drawing("map", i, image_shape=image_shape).on(ax)

    def summary(self, ax: Any = None, max_features: int = _FEATURES) -> Any:
        """Many inputs: one row per feature, the least room on top, and on it a dot per certified input: where it lies
        says how much room the feature has there, its shade which value.

        Args:
            ax: Where to draw; by default in a new figure.
            max_features: How many features, those with the least room in the median.

        Returns:
            The axes.

        Raises:
            InputError: Nothing is certified, or matplotlib is missing.
        """
        return self._drawing("summary", None, max_features).on(ax)

    def histogram(self, ax: Any = None) -> Any:
        """Many inputs: how the room of all their features is distributed.

        Args:
            ax: Where to draw; by default in a new figure.

        Returns:
            The axes.

        Raises:
            InputError: Nothing is certified, or matplotlib is missing.
        """
        return self._drawing("histogram").on(ax)

    def similarity(self, ax: Any = None) -> Any:
        """Many inputs: how similar the regions of each two are, by the cosine between their extents.

        Args:
            ax: Where to draw; by default in a new figure.

        Returns:
            The axes.

        Raises:
            InputError: Fewer than two inputs are certified, or matplotlib is missing.
        """
        return self._drawing("similarity").on(ax)

    def __repr__(self) -> str:
        return f"pictures of {self._certs!r}: {', '.join(f'plot.{kind}(...)' for kind in KINDS)}"

    def _drawing(
        self, kind: str, i: int | None = None, most: int = _FEATURES, image_shape: Sequence[int] | None = None
    ) -> Drawing:
        certs = self._certs
        if certs.network is None:
            raise InputError("the certificates do not know their network, which says what the features are")
        scale = scale_of_certificates(certs, _image(certs, image_shape) is not None)
        return drawing_of(certs if i is None else certs[i].certificates, kind, scale, most, image_shape)


def _image(certs: Certificates, shape: Sequence[int] | None) -> dict[str, Any] | None:
    assert certs.network is not None
    return None if certs.basis is not None else image_of(certs.network, shape)


def drawing_of(
    certs: Certificates, kind: str, scale: Scale, most: int = _FEATURES, image_shape: Sequence[int] | None = None
) -> Drawing:
    """A picture of certificates; where it is about one input, `certs` are of that alone."""
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise InputError(f"max_features must be a positive whole number, got {most!r:.40}")
    assert certs.network is not None
    if kind in OF_ONE and certs.status[0] != "certified":
        why = f": {certs.message[0]}" if certs.message[0] else ""
        raise InputError(
            f"input {certs.number(0)} has no certificate to draw ({certs.status[0].replace('_', ' ')}{why})"
        )
    if not bool(certs.certified.any()):
        raise InputError("nothing is certified, so there is nothing to draw; repr(certs) says why")
    if kind == "tolerance":
        return tolerance(certs, scale, most)
    if kind == "summary":
        return summary(certs, scale, most)
    if kind == "histogram":
        return extents_histogram(certs, scale)
    if kind == "similarity":
        return similarity(certs, scale)
    image = _image(certs, image_shape)
    if image is not None:
        return image_map(certs, image, scale)
    if certs.network.n_inputs == 2 and certs.lower is not None:
        return plane_map(certs, scale)
    shape = "x".join(map(str, certs.network.input_shape))
    raise InputError(
        f"inputs of shape {shape} are no image and no box in the plane, of which there are maps; draw the tolerance, "
        "or say with image_shape which image they are"
    )


def default_name(kind: str, number: int | None) -> Path:
    """What a picture's file is called where nobody says."""
    return Path(f"{kind}.png" if number is None else f"{kind}_{number}.png")


__all__ = ["KINDS", "OF_ONE", "Pictures", "default_name", "drawing_of"]
