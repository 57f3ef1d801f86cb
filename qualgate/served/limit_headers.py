"""Read from response headers how long a server asks to wait: a pure function, which never raises."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

EPOCH = 1e9  # s since 1970: of 2001, and no wait
MOST = 1e15  # larger numbers count as this one
NUMBER = r"\d{1,400}(?:\.\d{1,99})?"
SECONDS = {"n": 1e-9, "u": 1e-6, "µ": 1e-6, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_UNIT = r"[nuµ]s|ms|milliseconds?|s(?:econds?|ecs?)?|m(?:inutes?|ins?)?|h(?:ours?|rs?)?|d(?:ays?)?"
_PART = rf"({NUMBER}) ?({_UNIT})(?![a-z])"
_DURATION = re.compile(f"(?:{_PART} ?)+")
_HTTP_DATE = re.compile(r"[A-Z][a-z]{2,8}[ ,].{6,12} \d\d:\d\d:\d\d (?:GMT|UTC|[+-]\d{4}|\d{4})", re.ASCII)
_ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d[T ][\d:.]+(?:Z|[+-]\d\d:\d\d)?", re.ASCII)
_BETWEEN = re.compile(r'(?<=GMT), *|(?<=[\dsmhZ"]), *(?=[\d"])')  # values of a header that came twice
_RESET = re.compile(r"rate-?limit.*reset")


def asked_wait(headers: Mapping[str, str], now: datetime, *, at_limit: bool = True) -> float | None:
    """Return the seconds that a server asks to wait, None if no header can be read.

    `Retry-After` and its forms in milliseconds count first; at a limit, else, the longest reset time of the quotas that
    are used up or have no known rest. A header that came twice asks for the longer wait.

    Args:
        headers: By lower-case name, the values of one name joined by commas.
        now: For a server without a `Date` of its own.
        at_limit: Whether the server refuses for a limit; the quotas' headers tell nothing otherwise.
    """
    now = _date(headers.get("date", "")) or now
    for name in ("retry-after-ms", "x-ms-retry-after-ms", "retry-after"):
        if (wait := _longest(name, headers.get(name, ""), now)) is not None:
            return wait
    if not at_limit:
        return None
    return max([*_quotas(headers.get("ratelimit", ""), now), *_resets(headers, now)], default=None)


def _resets(headers: Mapping[str, str], now: datetime) -> Iterator[float]:
    """Yield the waits of headers such as `x-ratelimit-reset-tokens` whose quota is not known to have a rest."""
    for name, text in headers.items():
        used_up = _RESET.search(name) and _used_up(headers.get(name.replace("reset", "remaining"), "0"))
        if used_up and (wait := _longest(name, text, now)) is not None:
            yield wait


def _quotas(text: str, now: datetime) -> Iterator[float]:
    """Yield the waits of the used-up quotas of a `RateLimit` header (draft-ietf-httpapi-ratelimit-headers): policies
    (`"default";r=0;t=30`), or one quota as in earlier drafts (`limit=100, remaining=0, reset=30`)."""
    for quota in text.split(",") if ";" in text else [text]:
        fields = dict(re.findall(r"([a-z]+) *= *([^;, ]+)", quota))
        until = fields.get("t", fields.get("reset", ""))
        if _used_up(fields.get("r", fields.get("remaining", "0"))) and (wait := _longest("", until, now)) is not None:
            yield wait


def _used_up(remaining: str) -> bool:
    """Return whether nothing of a quota is left; of a header that came twice, of one of its values."""
    return any(re.fullmatch(r"-\d+(\.\d+)?|0+(\.0*)?", part.strip(), re.ASCII) for part in remaining.split(","))


def _longest(name: str, text: str, now: datetime) -> float | None:
    """Return the longest of the waits in a header's value, None if none can be read. Plain numbers are milliseconds if
    the header's name ends so."""
    unit = SECONDS["ms"] if name.endswith("-ms") else 1.0
    waits = [_wait(part.strip().strip('"'), now, unit) for part in _BETWEEN.split(text.strip())]
    return max((wait for wait in waits if wait is not None), default=None)


def _wait(text: str, now: datetime, unit: float) -> float | None:
    """Read one wait in seconds; None for another text.

    It is a number (`7`, `0.5`) of so many seconds (`unit`), has units (`1m30s`, `6ms`, `30 seconds`), or is a time: a
    date, or seconds or milliseconds since 1970.
    """
    if re.fullmatch(NUMBER, text, re.ASCII):
        number = min(float(text), MOST)
        if number * unit < EPOCH:
            return number * unit
        return max(0.0, number / (1000 if number > EPOCH * 1000 else 1) - now.timestamp())
    lower = text.lower()
    if lower.replace("µ", "").isascii() and _DURATION.fullmatch(lower):
        parts = ((float(number), "ms" if word[:2] in ("ms", "mi") and word[:3] != "min" else word[0])
                 for number, word in re.findall(_PART, lower))  # fmt: skip
        return min(MOST, sum(number * SECONDS[name] for number, name in parts))
    until = _date(text)
    return None if until is None else max(0.0, (until - now).total_seconds())


def _date(text: str) -> datetime | None:
    """Read a date of HTTP or RFC 3339; None for another text."""
    is_iso = _ISO_DATE.fullmatch(text)
    if not is_iso and not _HTTP_DATE.fullmatch(text):
        return None
    try:
        moment = datetime.fromisoformat(text) if is_iso else parsedate_to_datetime(text)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError, TypeError, IndexError):
        return None
