"""Decide which failures are retried, and when, in pure functions, so that tests need no clock."""

from __future__ import annotations

from math import inf

from qualgate.records.served import PATIENCE

TRIES = 6  # of one request, the first among them
FORM_TRIES = 3  # where what comes back cannot be read: it seldom can when it is asked again
FIRST, MOST = 0.5, 30.0  # s waited after the first failure, doubled after each other one up to the most
# Statuses that may pass; from 520 on those of Cloudflare and other gateways.
RETRIED = frozenset({408, 409, 425, 429, 499, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529, 530})
LIMIT = 429  # the status of a limit on how much is asked
USED_UP = ("insufficient_quota", "billing_hard_limit_reached", "billing_not_active")  # codes of limits that stay
WINDOW = 60.0  # s: limits are by the minute
ALONE = 2 * WINDOW  # s that one request waits for limits which others do not meet
FASTER = 0.8  # of the time between two requests, after a window without a limit
MOMENT = 1e-6  # s too short to wait for


def pause(failures: int, requested: float | None, drawn: float, tries: float = TRIES) -> float | None:
    """Return the seconds to wait after so many failures of a request; None: no retry.

    requested: seconds that the server asks for, the least wait. drawn: 0..1, a random number that keeps requests that
    failed together apart. tries: inf if the caller limits them.
    """
    if failures >= tries or (tries < inf and (requested or 0.0) > PATIENCE):
        return None
    longest = min(MOST, FIRST * 2 ** (min(failures, 99) - 1))
    return max(requested or 0.0, longest * (0.5 + 0.5 * drawn))


class Pace:
    """The pace of requests to a server: at most so many a minute (0: unlimited), none during a pause that it demands,
    and after a limit no more than it had answered until then. Times are of a monotonic clock. patience: s of pauses in
    a row, with no answer between.

    The first request waits for one as well: another process's, or another batch's, may just have been sent.
    """

    def __init__(self, per_minute: float, patience: float = PATIENCE) -> None:
        self._least = self._apart = 60.0 / per_minute if per_minute else 0.0
        self.patience = patience
        self._next: float | None = None
        self._until = self._refused = -inf
        self._alone = 0.0  # s that it was left alone since it last answered
        self._answers = 0  # since it last took requests again, at `_began`
        self._began: float | None = None
        self._faster: float | None = None
        self.rounds = 0  # how often in a row it was left alone
        self.ended = ""  # why no more requests are sent, once a limit lasts longer than patience

    @property
    def per_minute(self) -> float:
        """The most requests that are sent in a minute; 0: unlimited."""
        return 60.0 / self._apart if self._apart else 0.0

    def wait(self, now: float, *, paced: bool = True) -> float:
        """Return the seconds until a request may be sent; 0: it is sent now, and the next one waits its turn."""
        if self._until - now > MOMENT:
            return self._until - now
        interval = self._least if self.rounds else self._apart  # behind a limit its own waits are enough
        if not (paced and interval):
            return 0.0
        self._next = now + interval if self._next is None else min(self._next, now + interval)
        if self._next - now > MOMENT:
            return self._next - now
        self._next = now + interval
        return 0.0

    @property
    def waited(self) -> float:
        """Seconds that the server was left alone since its last answer."""
        return self._alone

    def refused(self, sent: float, now: float) -> int:
        """Record that a request met a limit; return the number of pauses in a row. A request sent before the last limit
        was met is no evidence of another."""
        if sent >= self._refused:
            self.rounds, self._refused = self.rounds + 1, now
        return self.rounds

    def leave_alone(self, now: float, seconds: float) -> float | None:
        """Extend the pause; return the seconds added, or None if that is beyond patience."""
        added = max(0.0, now + seconds - max(now, self._until))
        if self._alone + added > self.patience:
            return None
        self._alone += added
        self._until = max(self._until, now + seconds)
        return added

    def answered(self, sent: float, now: float) -> bool:
        """Record an answered request; return whether the pace is slower now.

        sent: when it was sent. After a limit the pace is that of the answers since the limit before, over all the time
        until this request.
        """
        slower, self._alone = False, 0.0
        if self.rounds and sent >= self._refused:
            if self._answers and self._began is not None:
                interval = (sent - self._began) / self._answers
                slower, self._apart = interval > self._apart, max(interval, self._apart)
                self._next = sent + self._apart
            self.rounds, self._answers, self._began, self._faster = 0, 0, sent, now
        elif self._faster is not None and now - self._faster > WINDOW:
            self._apart, self._faster = max(self._least, self._apart * FASTER), now
        self._answers += 1
        self._began = sent if self._began is None else self._began
        return slower


class Limits:
    """The limits that one request met. If others are answered between two of them, the limit is on this request alone:
    it waits by itself, and is given up after a time in which limits pass."""

    def __init__(self, patience: float) -> None:
        self._patience, self._answered, self._waited = patience, -1, 0.0
        self.times = 0  # limits since others were answered between two of them

    @property
    def alone(self) -> bool:
        """Whether the request meets limits that others do not."""
        return self.times > 0

    def met(self, answered: int, requested: float | None, drawn: float) -> float | None:
        """Record a limit that one request met; return the seconds that it waits alone.

        Returns 0 if all requests wait, None if it is given up. answered: requests answered until now; if others were
        answered between, the limit is this request's alone. requested, drawn: see `pause`.
        """
        if self.times or 0 <= self._answered < answered:
            self.times += 1
        self._answered = answered
        if not self.times:
            return 0.0
        wait = pause(self.times, requested, drawn, inf) or 0.0
        exhausted = self.times >= TRIES and self._waited >= min(self._patience, ALONE)
        if exhausted or self._waited + wait > self._patience:
            return None
        self._waited += wait
        return wait
