"""Pictures of the HTML report and the dashboard. Each repeats a table beside it, and never relies on colour alone."""

from importlib.resources import files

from qualgate.report.plots.acceptance import CAPTION as ACCEPTANCE_CAPTION
from qualgate.report.plots.acceptance import acceptance
from qualgate.report.plots.drawing import SIGNS, Picture
from qualgate.report.plots.drift import CAPTION as DRIFT_CAPTION
from qualgate.report.plots.drift import drift
from qualgate.report.plots.flips import flips
from qualgate.report.plots.interactions import interactions
from qualgate.report.plots.intervals import margins
from qualgate.report.plots.nights import CAPTION as NIGHTS_CAPTION
from qualgate.report.plots.nights import nights

__all__ = [
    "ACCEPTANCE_CAPTION",
    "DRIFT_CAPTION",
    "NIGHTS_CAPTION",
    "SIGNS",
    "Picture",
    "acceptance",
    "drift",
    "flips",
    "interactions",
    "margins",
    "nights",
    "style",
]


def style() -> str:
    """Return the pictures' CSS, for light and dark backgrounds."""
    return (files(__name__) / "plots.css").read_text(encoding="utf-8")
