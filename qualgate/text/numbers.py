"""Format numbers for people, the same in every report and on every page."""

from __future__ import annotations


def counted(count: int, singular: str, plural: str = "") -> str:
    """`1 case`, `2,800 cases`. plural: unless it is `singular` with an s, as in ("case is", "cases are")."""
    return f"{count:,} {singular if count == 1 else plural or f'{singular}s'}"


def score_text(value: float | None) -> str:
    """Format one answer's score: `right`, `wrong`, a share, or – if unknown."""
    return "–" if value is None else {0.0: "wrong", 1.0: "right"}.get(value, f"{value:.2f}")


def stop_texts(stop_reasons: dict[str, int]) -> list[str]:
    """ "980 eos", "20 eos → length"."""
    return [f"{count:,} {how}" for how, count in stop_reasons.items()]


def ms_text(seconds: float | None) -> str:
    """Seconds as milliseconds."""
    return "–" if seconds is None else f"{1000 * seconds:.1f} ms"


def size_text(size: int) -> str:
    """Bytes as MiB or GiB."""
    return f"{size / 2**20:.2f} MiB" if size < 2**30 else f"{size / 2**30:.2f} GiB"


def version_text(version: str) -> str:
    """`v1.2.0`; a version that is a word stays as it is."""
    return f"v{version}" if version[:1].isdigit() else version


def time_text(seconds: float) -> str:
    """Seconds as s, min or h with two or three digits."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def money_text(amount: float | None) -> str:
    """An amount without its currency."""
    if amount is None:
        return "unknown"
    return f"{amount:,.2f}" if amount >= 1 else f"{amount:.3g}"


def unit_text(value: float | None, unit: str) -> str:
    """Format a value by its unit: a rate in %, a time in ms, a size in MiB or GiB, decibels, else four digits."""
    if value is None:
        return "–"
    match unit:
        case "rate":
            return f"{100 * value:.1f} %"
        case "seconds":
            return ms_text(value)
        case "bytes":
            return size_text(round(value))
        case "dB":
            return f"{value:.1f} dB"
    return f"{value:.4g}"
