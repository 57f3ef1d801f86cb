"""Which failures are tried again, and when: pure functions, so that a test needs no clock."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

TRIES = 6  # of one request, the first among them
FIRST, MOST = 0.5, 30.0  # s waited after the first failure, doubled after each other one up to the most
MOST_ASKED = 120.0  # s that a server may ask us to wait; one that asks for more is not waited for
RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504, 529})  # statuses that may pass


def pause(failures: int, asked: float | None, drawn: float, tries: int = TRIES) -> float | None:
    """Seconds to wait after so many failures of a request; None: it is not tried again.

    asked: what the server's Retry-After says, which is waited at the least. drawn: 0..1, so that requests that failed
    together do not come back together.
    """
    if failures >= tries or (asked is not None and asked > MOST_ASKED):
        return None
    longest = min(MOST, FIRST * 2 ** (failures - 1))
    return max(asked or 0.0, longest * (0.5 + 0.5 * drawn))


class Pace:
    """At most so many requests a minute: each waits until its time has come. 0: as many as there are.

    The first waits for one as well: another process's, or another batch's, may just have been sent.
    """

    def __init__(self, per_minute: float) -> None:
        self._apart = 60.0 / per_minute if per_minute else 0.0
        self._next: float | None = None

    def wait(self, now: float) -> float:
        """Seconds that a request is to wait which would be sent `now` (s, of a clock that only goes forward)."""
        if not self._apart:
            return 0.0
        at = max(now, self._next if self._next is not None else now + self._apart)
        self._next = at + self._apart
        return at - now


def retry_after(header: str | None, now: datetime) -> float | None:
    """Seconds that a Retry-After header asks for, as a number or as a date; None where it says neither."""
    if header is None:
        return None
    if header.strip().isascii() and header.strip().isdigit():
        return float(header.strip()[:9])
    try:
        until = parsedate_to_datetime(header)
    except (ValueError, OverflowError):
        return None
    until = until if until.tzinfo else until.replace(tzinfo=UTC)
    return max(0.0, (until - now).total_seconds())
