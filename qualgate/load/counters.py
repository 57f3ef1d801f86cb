"""A server's own counters: tokens that it wrote, whether or not anybody still reads them.

A request that its user closed costs the server nothing more where it notices. It shows in the counter: once nothing of
ours is under way any more, it must stand still. What others ask meanwhile moves it too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from qualgate.served.client import Client
from qualgate.served.drafts_counted import samples

WRITTEN = (
    (("vllm:generation_tokens_total", ""),),
    # Its generation_tokens_total waits for an answer's end; of these the first knows no answer's first token.
    (("sglang:realtime_tokens_total", 'mode="decode"'), ("sglang:time_to_first_token_seconds_count", "")),
    (("llamacpp:tokens_predicted_total", ""),),
)
"""Of each engine the counters that together are the tokens it wrote: name, and the label by which a sample is one."""
WRITING = (WRITTEN[0], WRITTEN[1], (("llamacpp:n_decode_total", ""),))
"""Of each engine those that move while an answer is written. llama.cpp counts an answer's tokens at its end, and none
of one that was closed; its passes, each of which writes at least one token, it counts as they are made."""
WATCHED = 2.0  # s for which a counter is watched when nothing is under way


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """Tokens that a server wrote: in a stage, and in WATCHED seconds after the last of its requests was over (of
    llama.cpp the passes that it made)."""

    written: float
    afterwards: float


def tokens_written(page: str) -> float | None:
    """The counters' sum over their labels, of a page in Prometheus' text format; None where an engine's first is not
    there, for any of them."""
    return _counted(page, WRITTEN)


def _counted(page: str, engines: Sequence[Sequence[tuple[str, str]]]) -> float | None:
    found = list(samples(page))
    for counters in engines:
        sums = [
            [value for name, labels, value in found if name == counter and label in labels]
            for counter, label in counters
        ]
        if sums[0]:
            return float(sum(map(sum, sums)))
    return None


async def written_now(client: Client) -> float | None:
    """Of a running server; None where it does not tell."""
    return tokens_written(await client.page("/metrics"))


async def counted_since(client: Client, before: float | None) -> Counted | None:
    """When nothing is under way any more: what was written since, and whether that goes on. None where either is not
    told."""
    page = await client.page("/metrics") if before is not None else ""
    now, writing = tokens_written(page), _counted(page, WRITING)
    if before is None or now is None or writing is None:
        return None
    await asyncio.sleep(WATCHED)
    later = _counted(await client.page("/metrics"), WRITING)
    return Counted(written=now - before, afterwards=later - writing) if later is not None else None
