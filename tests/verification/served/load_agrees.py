"""The row `metrics.agree`: what `qualgate load` tells of recorded streams, as vLLM's and GuideLLM's benchmarks do.

Streams of our own server are recorded chunk by chunk with their times. Then the client that measures load is given the
same bytes at the same times, by a clock that jumps, and what it makes of them is held against both programs' formulas,
written anew from what they do with a chunk: vLLM 0.32's `benchmarks/serve.py`, GuideLLM 0.8.1's `request_stats.py`.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import numpy as np

from qualgate.pipeline.load.asking import ask
from qualgate.pipeline.load.definitions import DEFINITIONS
from qualgate.pipeline.load.measures import PERCENTILES, measured
from qualgate.pipeline.load.sent import Sent, Stage
from qualgate.records import Served
from qualgate.refmodel import PATH
from qualgate.served.client import Client
from qualgate.served.network import Question
from tests.pipeline.load import virtual
from tests.served.server.serving import serving
from tests.verification.goals import SERVED

REQUESTS, REQUESTS_QUICK, USERS = 120, 8, 4
NEAR = 0.02
ASKED = ("Sort: beli, tate, dota", "What is 12 + 31?", "Name the city: Ana lives in Lovi.", "Say it twice: nome nome")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One stream. began: s since the first. chunks: bytes with the s since it began at which they came; ended
    likewise."""

    path: str
    body: Mapping[str, Any]
    began: float
    chunks: tuple[tuple[float, bytes], ...]
    ended: float

    def events(self) -> list[tuple[float, dict[str, Any]]]:
        """What was said, each with the time of the chunk that completed it."""
        found, rest = [], b""
        for at, chunk in self.chunks:
            *lines, rest = (rest + chunk).split(b"\n")
            found += [(at, line.removeprefix(b"data: ")) for line in lines if line.startswith(b"data: ")]
        return [(at, json.loads(line)) for at, line in found if line != b"[DONE]"]

    @property
    def done(self) -> float:
        """When it said so: GuideLLM, as qualgate, reads no further."""
        return next((at for at, chunk in self.chunks if b"[DONE]" in chunk), self.ended)


def measure(quick: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A round for each definition, and the row. quick: 8 streams."""
    trace = recorded(REQUESTS_QUICK if quick else REQUESTS)
    rounds = []
    for name, formulas in (("vllm", by_vllm), ("guidellm", by_guidellm)):
        ours, theirs = told(trace, name), formulas(trace)
        far = {number: abs(ours[number] / theirs[number] - 1) for number in theirs}
        rounds.append(
            {"as": name, "streams": len(trace), "ours": ours, "theirs": theirs, "furthest": max(far.values())}
        )
    furthest = {one["as"]: round(one["furthest"], 6) for one in rounds}
    met = max(furthest.values()) <= NEAR
    few = f"{len(trace)} streams" if quick else None
    about = {"streams": len(trace), "numbers of each": len(rounds[0]["theirs"]), "furthest apart": furthest}
    return rounds, [SERVED.row("metrics.agree", about, met=met, few=few)]


def recorded(requests: int) -> list[Recorded]:
    """Streams of the reference model, chats and completions in turn, of some users who ask anew once answered."""
    with tempfile.TemporaryDirectory() as cache, serving(PATH, "m", Path(cache)) as (address, _):
        return asyncio.run(_recorded(address, requests))


async def _recorded(address: str, requests: int) -> list[Recorded]:
    start, left, found = time.perf_counter(), iter(range(requests)), list[Recorded]()

    async def user(client: httpx2.AsyncClient) -> None:
        for number in left:
            text = ASKED[number // 2 % len(ASKED)]
            chat = {"messages": [{"role": "user", "content": text}]}
            path, what = ("/chat/completions", chat) if number % 2 else ("/completions", {"prompt": text})
            body = {"model": "m", "max_tokens": 4 + 3 * (number % 9), "stream": True, "temperature": 1.0,
                    "stream_options": {"include_usage": True}, **what}  # fmt: skip
            began, chunks = time.perf_counter(), list[tuple[float, bytes]]()
            async with client.stream("POST", address + path, json=body) as response:
                async for chunk in response.aiter_raw():
                    chunks.append((time.perf_counter() - began, chunk))
            ended = time.perf_counter() - began
            found.append(Recorded(path=path, body=body, began=began - start, chunks=tuple(chunks), ended=ended))

    async with httpx2.AsyncClient(trust_env=False, verify=False, timeout=3600) as client:
        await asyncio.gather(*(user(client) for _ in range(USERS)))
    return sorted(found, key=lambda one: one.began)


class _Again:
    """One stream's bytes, at their times."""

    status, lay_there = 200, False

    def __init__(self, of: Recorded) -> None:
        self._of, self.headers = of, {"content-type": "text/event-stream"}

    async def send(self, _: Question) -> _Again:
        """See `Network`."""
        self._began = asyncio.get_running_loop().time()
        return self

    async def close(self) -> None:
        """See `Network`."""

    async def aclose(self) -> None:
        """See `Response`."""

    async def parts(self) -> AsyncIterator[bytes]:
        """See `Response`."""
        clock = asyncio.get_running_loop().time
        for at, chunk in (*self._of.chunks, (self._of.ended, b"")):
            await asyncio.sleep(self._began + at - clock())
            yield chunk


class _Client(Client):
    """That measures load, before a recording."""

    def __init__(self, of: Recorded) -> None:
        super().__init__("recorded", Served(endpoint="http://recorded/v1"), 1)
        self._network: Any = _Again(of)


def told(trace: Sequence[Recorded], by: str) -> dict[str, float]:
    """What `qualgate load --as` tells of it."""

    async def one(of: Recorded) -> Sent:
        await asyncio.sleep(of.began)
        async with _Client(of) as client:
            return await ask(client, of.path, of.body, prompt=0, due=of.began)

    async def every() -> tuple[Sent, ...]:
        return tuple(await asyncio.gather(*map(one, trace)))

    sent = virtual.run(every())
    start, end = min(one.began for one in sent), max(one.ended for one in sent)
    stage = Stage(start=start, opens=start, closes=end + 1e-9, end=end, sent=sent)
    found = measured([stage], DEFINITIONS[by], None)
    assert found.answered == len(trace), found.failed
    assert found.tokens is not None
    times = {f"{name} p{100 * one.p:g}": one.pooled.value for name, every in found.times for one in every}
    return {**times, "requests/s": found.throughput, "tokens/s": found.tokens}


def by_vllm(trace: Sequence[Recorded]) -> dict[str, float]:
    """As its completions' request function and `calculate_metrics` do."""
    ttfts, tpots, gaps, latencies, tokens = [], [], [], [], 0
    for one in trace:
        events = one.events()
        times = [at for at, event in events if event.get("choices")]
        count = next(event["usage"]["completion_tokens"] for _, event in events if not event.get("choices"))
        ttfts.append(times[0])
        latencies.append(times[-1])
        gaps += list(np.diff(times))
        tokens += count
        if count > 1:
            tpots.append((times[-1] - times[0]) / (count - 1))
    lasted = max(one.began + one.ended for one in trace) - min(one.began for one in trace)
    every = {"ttft": ttfts, "tpot": tpots, "gap": gaps, "e2e": latencies}
    return {
        **{f"{name} p{100 * p:g}": float(np.percentile(some, 100 * p)) for name, some in every.items()
           for p in PERCENTILES},
        "requests/s": len(trace) / lasted,
        "tokens/s": tokens / lasted,
    }  # fmt: skip


def by_guidellm(trace: Sequence[Recorded]) -> dict[str, float]:
    """As `GenerativeRequestStats` and `DistributionSummary` do: values with weights; a rate's mean over the time."""
    every: dict[str, list[tuple[float, float]]] = {"ttft": [], "tpot": [], "gap": [], "e2e": []}
    tokens = 0
    for one in trace:
        events = one.events()
        says = [at for at, event in events if any(map(_says, event.get("choices") or ()))]
        count = next(event["usage"]["completion_tokens"] for _, event in events if event.get("usage"))
        tokens += count
        every["ttft"].append((says[0], 1))
        every["e2e"].append((one.done, 1))
        every["tpot"].append((says[-1] / count, count))
        if count > 1:
            every["gap"].append(((says[-1] - says[0]) / (count - 1), count - 1))
    lasted = max(one.began + one.done for one in trace) - min(one.began for one in trace)
    return {
        **{f"{name} p{100 * p:g}": _weighed(some, p) for name, some in every.items() for p in PERCENTILES},
        "requests/s": len(trace) / lasted,
        "tokens/s": tokens / lasted,
    }


def _says(choice: Mapping[str, Any]) -> bool:
    return bool(choice.get("text") or (choice.get("delta") or {}).get("content"))


def _weighed(values: Sequence[tuple[float, float]], p: float) -> float:
    """The first value at which the weights before and its own come to the share p."""
    numbers, weights = np.array(sorted(values)).T
    return float(numbers[np.searchsorted(np.cumsum(weights) / weights.sum(), p - 1e-12)])
