"""Format a metric's value by its unit."""

from __future__ import annotations

from qualgate.records.metrics import METRICS
from qualgate.text.numbers import ms_text, size_text


def value_text(metric: str, value: float | None) -> str:
    """Format a metric's value: a rate in %, a time in ms, a size in MiB or GiB, decibels, else four digits."""
    if value is None:
        return "–"
    match METRICS[metric].unit if metric in METRICS else "":
        case "rate":
            return f"{100 * value:.1f} %"
        case "seconds":
            return ms_text(value)
        case "bytes":
            return size_text(round(value))
        case "dB":
            return f"{value:.1f} dB"
    return f"{value:.4g}"
