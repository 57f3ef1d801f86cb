"""Send one request to a served arm under load, time it piece by piece, and retry or close it as configured."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from qualgate.pipeline.load.sent import How, Sent
from qualgate.served.answer import Answer, Gathering
from qualgate.served.client import Client
from qualgate.served.faults import WireFault
from qualgate.served.retries import pause

LONGEST = 1_800.0  # seconds that one attempt may take


async def ask(
    client: Client,
    path: str,
    body: Mapping[str, Any],
    *,
    prompt: int,
    due: float,
    tries: int = 1,
    closes: bool = False,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Sent:
    """Send a request and return its times. Raises NotServed and RequestRefused as `Client.ask`; else counts failures.

    prompt: index in the list. tries: attempts, with the first. closes: close it after the first piece. sleep: waits
    before a retry.
    """
    clock = asyncio.get_running_loop().time
    began, failures = clock(), list[str]()
    while True:
        heard = _Heard()
        try:
            whole = await _within(LONGEST, _hear(client, path, body, heard, closes))
        except WireFault as fault:
            failures.append(fault.cause)
            wait = pause(len(failures), fault.asked_wait, random.random(), tries)
            if wait is not None:
                await sleep(wait)
                continue
            return _sent(prompt, due, began, clock(), "failed", heard, None, failures)
        return _sent(prompt, due, began, clock(), "answered" if whole else "closed", heard, whole, failures)


async def _within(seconds: float, hearing: Awaitable[Answer | None]) -> Answer | None:
    """Await an answer for at most `seconds`, then raise WireFault: an endless stream would hide all other results."""
    try:
        async with asyncio.timeout(seconds):
            return await hearing
    except TimeoutError:
        raise WireFault(f"no whole answer within {seconds:g} s", cause="timeout") from None


@dataclass(slots=True)
class _Heard:
    """Arrival times of the pieces with content, and of every event with a choice."""

    pieces: tuple[float, ...] = ()
    events: tuple[float, ...] = ()


async def _hear(client: Client, path: str, body: Mapping[str, Any], heard: _Heard, closes: bool) -> Answer | None:
    """Receive one attempt's answer; None if it was closed after its first piece, as `closes` asks.

    heard: gets the arrival times, also if the attempt fails.
    """
    clock, gathering, events = asyncio.get_running_loop().time, Gathering(), list[float]()
    try:
        async with aclosing(client.pieces(path, body)) as pieces:
            async for piece in pieces:
                gathering.take(piece, moment := clock())
                if piece.choices:
                    events.append(moment)
                if closes and gathering.times:
                    return None
        return gathering.answer(clock())
    finally:
        heard.pieces, heard.events = gathering.times, tuple(events)


def _sent(
    prompt: int, due: float, began: float, ended: float, how: How, heard: _Heard, whole: Answer | None,
    failures: list[str],
) -> Sent:  # fmt: skip
    """Return the record of a request. whole: its answer, with the server's token counts; None if it has none."""
    return Sent(
        prompt=prompt,
        due=due,
        began=began,
        ended=ended,
        how=how,
        pieces=heard.pieces,
        events=heard.events,
        tokens=whole.completion_tokens if whole else None,
        prompt_tokens=whole.prompt_tokens if whole else None,
        failures=tuple(failures),
    )
