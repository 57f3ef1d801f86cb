"""The row `client`: what our client costs beside bare ones, against a server that does nothing.

Requests a core are requests by seconds of this process's own processor time, so that what else runs on the machine has
no say in it. Contenders take turns.
"""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from statistics import median
from typing import Any

import httpx2

from qualgate.records import Served
from qualgate.served.client import Client
from qualgate.stats.order_statistics import interpolated
from tests.verification.goals import SERVED
from tests.verification.served import no_op

AT_ONCE = 32
BODY = {"model": "m", "prompt": "Say yes.", "max_tokens": 4, "temperature": 0.0}
RATE, SHARE, ADDED, STREAMS, GIB = 3_000, 0.8, 2.0, 10_000, 2.0

Ask = Callable[[], Awaitable[Any]]


def measure(quick: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rounds and the row. quick: a few hundred requests and streams."""
    turns, requests, alone, streams = (2, 300, 100, 200) if quick else (7, 3_000, 600, STREAMS)
    with running() as port:
        rounds = asyncio.run(_costs(port, turns, requests, alone))
        opened = asyncio.run(_streams(port, streams))
    rates = {name: median(one["requests_a_core"] for one in rounds if one["client"] == name) for name in CONTENDERS}
    p99 = {name: median(one["p99_ms"] for one in rounds if one["client"] == name) for name in CONTENDERS}
    added = p99[OURS] - p99[BARE]
    told = {"requests a core": {name: round(rate) for name, rate in rates.items()},
            "of the best bare": round(rates[OURS] / rates[BARE], 3), "added p99 ms": round(added, 2),
            "streams": opened["streams"], "GiB": round(opened["gib"], 3)}  # fmt: skip
    quickly = rates[OURS] >= RATE or rates[OURS] >= SHARE * rates[BARE]
    met = quickly and added <= ADDED and opened["gib"] <= GIB and opened["answered"] == opened["streams"]
    few = f"{requests} requests and {streams} streams" if quick else None
    return [*rounds, opened], [SERVED.row("client", told, met=met, few=few, by_chance=True)]


@contextmanager
def running() -> Iterator[int]:
    """The port of a server that does nothing."""
    child = subprocess.Popen([sys.executable, no_op.__file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdin is not None
    try:
        yield int(child.stdout.readline())
    finally:
        child.stdin.close()
        child.wait(timeout=PATIENT)


OURS = "qualgate"
PATIENT = 3600.0  # s that nothing takes, however busy the machine is


async def _qualgate(port: int, stack: AsyncExitStack) -> Ask:
    served = Served(endpoint=f"http://127.0.0.1:{port}/v1", stream=False)
    client = await stack.enter_async_context(Client("x", served, AT_ONCE))
    return lambda: client.ask("/completions", BODY)


async def _aiohttp(port: int, stack: AsyncExitStack) -> Ask:
    import aiohttp

    connector = aiohttp.TCPConnector(limit=AT_ONCE)
    session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))

    async def ask() -> Any:
        async with session.post(f"http://127.0.0.1:{port}/v1/completions", json=BODY) as reply:
            return (await reply.json())["choices"][0]["text"]

    return ask


BARE = "aiohttp"  # the fastest that was tried
CONTENDERS: dict[str, Callable[[int, AsyncExitStack], Awaitable[Ask]]] = {
    OURS: _qualgate, BARE: _aiohttp,
}  # fmt: skip


async def _costs(port: int, turns: int, requests: int, alone: int) -> list[dict[str, Any]]:
    """In turns: so many requests, AT_ONCE at a time, by processor time, and so many one by one, by the wall."""
    rounds: list[dict[str, Any]] = []
    async with AsyncExitStack() as stack:
        asking = {name: await made(port, stack) for name, made in CONTENDERS.items()}
        for turn in range(turns + 1):
            for name, ask in asking.items():
                began = time.process_time()
                await asyncio.gather(*(_in_a_row(ask, requests // AT_ONCE) for _ in range(AT_ONCE)))
                spent = time.process_time() - began
                waits = await _in_a_row(ask, alone)
                one = {"client": name, "turn": turn, "requests_a_core": requests // AT_ONCE * AT_ONCE / spent,
                       "p99_ms": 1000 * (interpolated(waits, 0.99) or 0.0)}  # fmt: skip
                rounds += [one] if turn else []  # the first is to warm up
    return rounds


async def _in_a_row(ask: Ask, count: int) -> list[float]:
    waits = []
    for _ in range(count):
        began = time.perf_counter()
        await ask()
        waits.append(time.perf_counter() - began)
    return waits


async def _streams(port: int, count: int) -> dict[str, Any]:
    """So many answers open at once; each has said something, and is then ended."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(count, (hard if hard > 0 else 2**20) - 200)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, count + 200)), hard))
    served = Served(endpoint=f"http://127.0.0.1:{port}/v1")
    begun, all_begun, answered = 0, asyncio.Event(), 0

    async def one(client: Client) -> None:
        nonlocal begun, answered
        said = ""
        async for piece in client.pieces("/completions", {**BODY, "stream": True}):
            begun += not said
            said += "".join(choice.text or "" for choice in piece.choices or ())
            if begun == count:
                all_begun.set()
        answered += said == "yes"

    async with Client("x", served, count) as client:
        tasks = [asyncio.create_task(one(client)) for _ in range(count)]
        await asyncio.wait_for(all_begun.wait(), PATIENT)
        gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        async with httpx2.AsyncClient(trust_env=False, verify=False) as other:
            await other.get(f"http://127.0.0.1:{port}/end", timeout=PATIENT)
        await asyncio.gather(*tasks)
    return {"streams": count, "answered": answered, "gib": gib}
