"""Pictures of regions. matplotlib is imported when a picture is drawn, and draws straight into files."""

from __future__ import annotations

from elbowroom.report.plot.drawing import need_matplotlib
from elbowroom.report.plot.histograms import Counted, histogram, histograms
from elbowroom.report.plot.maps import bounding_maps, score_maps
from elbowroom.report.plot.plane import regions_2d
from elbowroom.report.plot.text import text_map

__all__ = [
    "Counted", "bounding_maps", "histogram", "histograms", "need_matplotlib", "regions_2d", "score_maps", "text_map",
]  # fmt: skip
