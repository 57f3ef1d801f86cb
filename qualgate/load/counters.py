"""What a server counts by itself: tokens that it wrote, whether or not anybody still reads them.

A request that its user closed costs the server nothing more where it notices. It shows in the counter: once nothing of
ours is under way any more, it must stand still. What others ask meanwhile moves it too.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from qualgate.served.client import Client
from qualgate.served.drafts_counted import samples

WRITTEN = ("vllm:generation_tokens_total", "sglang:generation_tokens_total", "llamacpp:tokens_predicted_total")
WATCHED = 2.0  # s for which a counter is watched when nothing is under way


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """Tokens that a server wrote: in a stage, and in WATCHED seconds after the last of its requests was over."""

    written: float
    afterwards: float


def tokens_written(page: str) -> float | None:
    """The counter's sum over its labels, of a page in Prometheus' text format; None where none of those is there."""
    sums: dict[str, float] = {}
    for name, _, value in samples(page):
        if name in WRITTEN:
            sums[name] = sums.get(name, 0.0) + value
    return next(iter(sums.values()), None)


async def written_now(client: Client) -> float | None:
    """Of a running server; None where it does not tell."""
    return tokens_written(await client.page("/metrics"))


async def counted_since(client: Client, before: float | None) -> Counted | None:
    """When nothing is under way any more: what was written since, and whether that goes on."""
    now = await written_now(client) if before is not None else None
    if before is None or now is None:
        return None
    await asyncio.sleep(WATCHED)
    later = await written_now(client)
    return Counted(written=now - before, afterwards=later - now) if later is not None else None
