"""Turns of the requests to one server: some at once, no faster than its pace, and none during a pause that it demands,
which all of them wait out."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from math import inf
from typing import TypeVar

from qualgate.errors import InfrastructureError
from qualgate.served.faults import WireFault
from qualgate.served.retries import Pace, pause

Notify = Callable[[float, str], None]
Of = TypeVar("Of")
TOLD = 5.0  # s: shorter rests are not reported


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
                while wait := self._pace.wait(self._now(), paced=paced):
                    await self._wait(wait)
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
        """Pause all requests after a limit. InfrastructureError if that would last longer than patience.

        sent: when the request that met the limit was sent.
        """
        now = self._now()
        wait = pause(self._pace.refused(sent, now), fault.asked_wait, random.random(), inf) or 0.0
        added, words = self._pace.leave_alone(now, wait), self._shown(str(fault))
        if added is None:
            asks = f" It asks to wait for {fault.asked_wait:g} s." if fault.asked_wait else ""
            pace = f": {self._pace.per_minute:.3g}" if self._pace.per_minute else ""
            patience = f"`budget: {{patience: {_as_written(self._pace.patience)}}}`"
            raise InfrastructureError(
                f"{self._where}: no answer within {patience}. {words}.{asks} If it limits how much it is asked, say so "
                f"beside its `endpoint` (`requests_per_minute{pace}`), or wait longer; then run again: what was "
                "answered is kept."
            )
        if added >= TOLD:
            self._notify(0.0, f"{self._where}: asked again in {wait:.0f} s. {words}")

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
