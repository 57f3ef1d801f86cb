"""Send requests in a closed or an open loop. The clock is the event loop's, so tests can replace it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import count

from qualgate.pipeline.load.sent import Sent
from qualgate.served.retries import pause

Ask = Callable[[int, float], Awaitable[Sent]]  # the request's number in its stage, and when it is due


async def closed_loop(ask: Ask, at_once: int, seconds: float) -> tuple[float, list[Sent]]:
    """Run `at_once` users for `seconds`, each sending its next request once answered; then await the last answers.

    Returns the start time and the requests. After a failure a user pauses as a retry does, or a server that refuses
    would be asked as fast as it can refuse.
    """
    clock, numbers, sent = asyncio.get_running_loop().time, count(), list[Sent]()
    start = clock()

    async def user() -> None:
        """Send requests one after another until the time is up; the pause after a failure ends with it."""
        failures = 0
        while (now := clock()) - start < seconds:
            sent.append(request := await ask(next(numbers), now))
            failures = failures + 1 if request.how == "failed" else 0
            # One try more than there were failures: a user never gives up.
            wait = pause(failures, None, 1.0, failures + 1) if failures else None
            if wait is not None:
                await asyncio.sleep(max(0.0, min(wait, start + seconds - clock())))

    async def begin(group: asyncio.TaskGroup) -> None:
        for _ in range(at_once):
            group.create_task(user())

    await _all(begin)
    return start, sent


async def open_loop(ask: Ask, arrivals: Sequence[float]) -> tuple[float, list[Sent]]:
    """Send requests at their arrival times (seconds from the start), answered or not; then await all answers."""
    clock, sent = asyncio.get_running_loop().time, list[Sent]()
    start = clock()

    async def send(number: int, due: float) -> None:
        sent.append(await ask(number, due))

    async def begin(group: asyncio.TaskGroup) -> None:
        for number, arrival in enumerate(arrivals):
            if (wait := start + arrival - clock()) > 0:
                await asyncio.sleep(wait)
            group.create_task(send(number, start + arrival))

    await _all(begin)
    return start, sent


async def _all(begin: Callable[[asyncio.TaskGroup], Awaitable[None]]) -> None:
    """Await every task that `begin` starts; the first error cancels the others and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            await begin(group)
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
