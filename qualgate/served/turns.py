"""Turns of the requests to one server: some at once, no faster than its pace, and none during a pause that it demands,
which all of them wait out."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from math import inf
from typing import TypeVar

from qualgate.served.faults import LimitLasts, WireFault
from qualgate.served.retries import WINDOW, Pace, pause
from qualgate.text.numbers import time_text

Notify = Callable[[float, str], None]
Of = TypeVar("Of")
TOLD = 5.0  # s: shorter rests are not reported
DATED = 366 * 86400.0  # s: of longer waits no date is given


class Turns:
    """Turns at one server. where: the server, for messages; shown: makes foreign text fit for them. at_once: the most
    requests under way. notify: see `Client`."""

    def __init__(
        self,
        where: str,
        pace: Pace,
        at_once: int,
        sleep: Callable[[float], Awaitable[None]],
        notify: Notify,
        shown: Callable[[str], str],
    ) -> None:
        self._where, self._pace, self._sleep, self._notify, self._shown = where, pace, sleep, notify, shown
        self.free, self._door = asyncio.Semaphore(at_once), asyncio.Lock()
        self.answered = 0  # requests
        self._ahead = 0.0  # s by which this clock is ahead, if tests did not really wait
        self._untold = 0.0  # s waited and not yet reported

    async def take(self, once: Callable[[], Awaitable[Of]], *, paced: bool, alone: bool = False) -> Of:
        """Run `once` when its turn comes. After a limit one request goes alone, until it is answered. alone: the
        request meets limits of its own, for which the others do not wait."""
        async with self.free:
            async with self._door:
                while not self._pace.ended and (wait := self._pace.wait(self._now(), paced=paced)):
                    await self._wait(wait)
                if self._pace.ended:
                    raise LimitLasts(self._pace.ended)
                if self._pace.rounds:
                    return await self._timed(once, alone=alone)
            return await self._timed(once, alone=alone)

    async def rest(self, seconds: float, words: str) -> None:
        """Let one request wait alone."""
        if seconds >= TOLD:
            self._notify(0.0, f"{self._where}: one request is sent again in {seconds:.0f} s. {self._shown(words)}")
        await self._wait(seconds)

    async def _timed(self, once: Callable[[], Awaitable[Of]], *, alone: bool) -> Of:
        """Send a request; record its answer in the pace.

        alone: a limit that it meets pauses only itself, not all requests.
        """
        sent = self._now()
        try:
            outcome = await once()
        except WireFault as fault:
            if fault.limit and not alone:
                self._leave_alone(sent, fault)
            raise
        self.answered += 1
        if self._pace.answered(sent, self._now()):
            self._notify(0.0, f"{self._where}: asked {self._pace.per_minute:.3g} times a minute at most from here on")
        return outcome

    def _leave_alone(self, sent: float, fault: WireFault) -> None:
        """Pause all requests after a limit. LimitLasts if that would last longer than patience, for all later requests
        as well; a single demand for such a wait may be a mistake, so the server is asked once more.

        sent: when the request that met the limit was sent.
        """
        now, asked, drawn = self._now(), fault.asked_wait, random.random()
        if asked == inf and self._pace.waited < WINDOW:  # some servers use this code for limits by the minute
            asked = None
        rounds = self._pace.refused(sent, now)
        added = self._pace.leave_alone(now, wait := pause(rounds, asked, drawn, inf) or 0.0)
        if added is None and rounds == 1:
            added = self._pace.leave_alone(now, wait := pause(rounds, None, drawn, inf) or 0.0)
        words = self._shown(str(fault))
        if added is None:
            self._pace.ended = f"{self._where}: {self._too_long(asked or 0.0, words)}"
            raise LimitLasts(self._pace.ended)
        if added >= TOLD:
            self._notify(0.0, f"{self._where}: asked again in {wait:.0f} s. {words}")

    def _too_long(self, asked: float, words: str) -> str:
        """Return the message on a limit that lasts longer than patience. asked: s that the server asks to wait."""
        patience = f"`budget: {{patience: {_as_written(self._pace.patience)}}}`"
        if asked == inf:
            return (
                f"its quota is used up, and no wait changes that, so it is asked no more in this run. {words}. Raise "
                "the quota, then run again: what was answered is kept."
            )
        if asked > self._pace.patience:
            date = datetime.now(UTC) + timedelta(seconds=min(asked, DATED))
            wait, until = time_text(asked), f"after {date:%Y-%m-%d %H:%M} UTC"
            wait, until = (wait, until) if asked < DATED else ("more than a year", "once it takes requests")
            return (
                f"it asks to wait for {wait}, longer than {patience}, so it is asked no more in this run. "
                f"{words}. Run again {until}: what was answered is kept."
            )
        pace = f": {self._pace.per_minute:.3g}" if self._pace.per_minute else ""
        asks = f" It asks to wait for {time_text(asked)}." if asked else ""
        return (
            f"no answer within {patience}, so it is asked no more in this run. {words}.{asks} If it limits how much it "
            f"is asked, say so beside its `endpoint` (`requests_per_minute{pace}`), or wait longer; then run again: "
            "what was answered is kept."
        )

    def _now(self) -> float:
        return time.monotonic() + self._ahead

    async def _wait(self, seconds: float) -> None:
        """Sleep. The wait is reported before it begins; short waits are added up and reported together."""
        until, self._untold = self._now() + seconds, self._untold + seconds
        if self._untold >= 1.0:
            self._notify(self._untold, "")
            self._untold = 0.0
        await self._sleep(seconds)
        self._ahead += max(0.0, until - self._now())


def _as_written(seconds: float) -> str:
    return f"{seconds / 60:g}m" if seconds % 60 == 0 else f"{seconds:g}s"
