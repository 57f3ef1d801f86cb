"""Which failures are tried again, and when: pure functions, so that a test needs no clock."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import inf

from qualgate.records.served import PATIENCE

TRIES = 6  # of one request, the first among them
FORM_TRIES = 3  # where what comes back cannot be read: it seldom can when it is asked again
FIRST, MOST = 0.5, 30.0  # s waited after the first failure, doubled after each other one up to the most
# Statuses that may pass; from 520 on those of Cloudflare and other gateways.
RETRIED = frozenset({408, 409, 425, 429, 499, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529, 530})
LIMIT = 429  # the status of a limit on how much is asked
WINDOW = 60.0  # s: limits are by the minute
ALONE = 2 * WINDOW  # s that one request waits for limits which others do not meet
FASTER = 0.8  # of the time between two requests, after a window without a limit
EPOCH = 1e9  # s since 1970: of 2001, and no wait
MOMENT = 1e-6  # s that nobody waits for
NUMBER = r"\d{1,400}(?:\.\d{1,99})?"
UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def pause(failures: int, asked: float | None, drawn: float, tries: float = TRIES) -> float | None:
    """Seconds to wait after so many failures of a request; None: it is not tried again.

    asked: what the server asks for, which is waited at the least. drawn: 0..1, so that requests that failed together
    do not come back together. tries: inf where somebody else says when it is enough.
    """
    if failures >= tries or (tries < inf and (asked or 0.0) > PATIENCE):
        return None
    longest = min(MOST, FIRST * 2 ** (min(failures, 99) - 1))
    return max(asked or 0.0, longest * (0.5 + 0.5 * drawn))


class Pace:
    """When a server may be asked next: so many times a minute at most (0: as often as it takes), not while it wants to
    be left alone, and behind a limit no more often than it answered until then. Times are of a clock that only goes
    forward. patience: s that it is left alone in a row, with no answer between.

    The first request waits for one as well: another process's, or another batch's, may just have been sent.
    """

    def __init__(self, per_minute: float, patience: float = PATIENCE) -> None:
        self._least = self._apart = 60.0 / per_minute if per_minute else 0.0
        self.patience = patience
        self._next: float | None = None
        self._until = self._refused = -inf
        self._alone = 0.0  # s that it was left alone since it last answered
        self._answers, self._began = 0, None  # since it last took requests again
        self._faster: float | None = None
        self.rounds = 0  # how often in a row it was left alone

    @property
    def per_minute(self) -> float:
        """Requests that are sent in a minute at most; 0: without a limit."""
        return 60.0 / self._apart if self._apart else 0.0

    def wait(self, now: float, *, paced: bool = True) -> float:
        """Seconds until a request may be sent; 0: it is sent now, and the next has its turn behind it."""
        if self._until - now > MOMENT:
            return self._until - now
        apart = self._least if self.rounds else self._apart  # behind a limit its own waits are enough
        if not (paced and apart):
            return 0.0
        self._next = now + apart if self._next is None else min(self._next, now + apart)
        if self._next - now > MOMENT:
            return self._next - now
        self._next = now + apart
        return 0.0

    def refused(self, sent: float, now: float) -> int:
        """A request that was sent then met a limit: how often in a row the server is left alone by now. What was sent
        before the last limit was met tells of no other."""
        if sent >= self._refused:
            self.rounds, self._refused = self.rounds + 1, now
        return self.rounds

    def leave_alone(self, now: float, seconds: float) -> float | None:
        """Seconds beyond those that it is left alone already; None where that is beyond patience."""
        more = max(0.0, now + seconds - max(now, self._until))
        if self._alone + more > self.patience:
            return None
        self._alone += more
        self._until = max(self._until, now + seconds)
        return more

    def answered(self, sent: float, now: float) -> bool:
        """A request that was sent then was answered; whether its pace is slower for it. Behind a limit the pace is that
        of the answers since the limit before, over all the time until it took this request."""
        slower, self._alone = False, 0.0
        if self.rounds and sent >= self._refused:
            if self._answers and self._began is not None:
                seen = (sent - self._began) / self._answers
                slower, self._apart = seen > self._apart, max(seen, self._apart)
                self._next = sent + self._apart
            self.rounds, self._answers, self._began, self._faster = 0, 0, sent, now
        elif self._faster is not None and now - self._faster > WINDOW:
            self._apart, self._faster = max(self._least, self._apart * FASTER), now
        self._answers += 1
        self._began = sent if self._began is None else self._began
        return slower


class Limits:
    """Of one request: the limits that it met. Where others are answered between two of them it is told from a limit on
    all: it waits alone, and is given up after a time that limits pass in."""

    def __init__(self, patience: float) -> None:
        self._patience, self._answered, self._waited = patience, -1, 0.0
        self.times = 0  # limits since others were answered between two of them

    @property
    def alone(self) -> bool:
        """Whether it meets limits that others do not."""
        return self.times > 0

    def met(self, answered: int, asked: float | None, drawn: float) -> float | None:
        """Seconds that it waits alone: 0 where all do. None: it is given up. answered: requests until now; the others:
        see `pause`."""
        if self.times or 0 <= self._answered < answered:
            self.times += 1
        self._answered = answered
        if not self.times:
            return 0.0
        wait = pause(self.times, asked, drawn, inf) or 0.0
        over = self.times >= TRIES and self._waited >= min(self._patience, ALONE)
        if over or self._waited + wait > self._patience:
            return None
        self._waited += wait
        return wait


def asked_wait(headers: Mapping[str, str], now: datetime, status: int = LIMIT) -> float | None:
    """Seconds that a server asks to be left alone: by `retry-after-ms` or `Retry-After`, and at a limit by when what it
    counts is free again, of what is used up or whose rest it does not tell. None where it says nothing that can be
    read. headers: by their names in small letters. now: where it tells no time of its own."""
    now = _date(headers.get("date", "")) or now
    milliseconds = _wait(headers.get("retry-after-ms", ""), now)
    if milliseconds is not None:
        return milliseconds / 1000
    if (seconds := _wait(headers.get("retry-after", ""), now)) is not None:
        return seconds
    if status != LIMIT:
        return None
    spent = [
        _wait(text, now)
        for name, text in headers.items()
        if re.search(r"rate-?limit.*reset", name) and _used_up(headers.get(name.replace("reset", "remaining"), "0"))
    ]
    return max((one for one in spent if one is not None), default=None)


def _used_up(remaining: str) -> bool:
    return re.fullmatch(r"-\d+(\.\d+)?|0+(\.0*)?", remaining.strip(), re.ASCII) is not None


def _wait(text: str, now: datetime) -> float | None:
    """Of seconds (`7`, `0.5`), parts with units (`1m30s`, `6ms`), a date, or seconds or milliseconds since 1970."""
    text = text.strip()
    if re.fullmatch(NUMBER, text, re.ASCII):
        number = min(float(text), 1e15)
        if number < EPOCH:
            return number
        return max(0.0, number / (1000 if number > EPOCH * 1000 else 1) - now.timestamp())
    if re.fullmatch(f"(?:{NUMBER} ?(?:ms|[smhd]) ?)+", text, re.ASCII):
        return sum(float(number) * UNITS[unit] for number, unit in re.findall(rf"({NUMBER}) ?(ms|[smhd])", text))
    until = _date(text)
    return None if until is None else max(0.0, (until - now).total_seconds())


def _date(text: str) -> datetime | None:
    """As HTTP writes it, or RFC 3339; None where it is neither."""
    for read in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            found = read(text)
            return found if found.tzinfo else found.replace(tzinfo=UTC)
        except (ValueError, OverflowError, TypeError, IndexError):
            pass
    return None
