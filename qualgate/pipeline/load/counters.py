"""Read a server's own counters of tokens written, whether or not anybody still reads them.

A server that notices a closed request stops writing its answer. Its counter shows this: with none of our requests
running it must stand still. Other users' requests move it too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from qualgate.served.client import Client
from qualgate.served.drafts_counted import samples

WRITTEN = (
    (("vllm:generation_tokens_total", ""),),
    # SGLang's generation_tokens_total moves only at an answer's end; the first counter here lacks the first tokens.
    (("sglang:realtime_tokens_total", 'mode="decode"'), ("sglang:time_to_first_token_seconds_count", "")),
    (("llamacpp:tokens_predicted_total", ""),),
)
"""Counters that sum to the tokens written, by engine: name, and the label of the samples that count."""
WRITING = (WRITTEN[0], WRITTEN[1], (("llamacpp:n_decode_total", ""),))
"""Counters that move while an answer is written, by engine. llama.cpp counts an answer's tokens at its end, and none of
a closed one, but counts each pass, which writes at least one token, as it is made."""
WATCHED = 2.0  # seconds to watch a counter while none of our requests run


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """Tokens that a server wrote in a stage, and (llama.cpp: passes) in the WATCHED seconds after its last request."""

    written: float
    afterwards: float


def tokens_written(page: str) -> float | None:
    """Sum the counters of a page in Prometheus' text format; None if no engine's first counter is on it."""
    return _counted(page, WRITTEN)


def _counted(page: str, engines: Sequence[Sequence[tuple[str, str]]]) -> float | None:
    """Sum the counters of the first engine that the page is from; None if it is from none of them.

    page: in Prometheus' text format. engines: for each, the name of every counter and a label that its samples carry.
    """
    page_samples = list(samples(page))
    for counters in engines:
        sums = [
            [value for name, labels, value in page_samples if name == counter and label in labels]
            for counter, label in counters
        ]
        if sums[0]:
            return float(sum(map(sum, sums)))
    return None


async def written_now(client: Client) -> float | None:
    """Return the tokens that a running server has written; None if it does not tell."""
    return tokens_written(await client.page("/metrics"))


async def counted_since(client: Client, before: float | None) -> Counted | None:
    """Return the tokens written since `before`, and those written with no request running; None if not both known."""
    page = await client.page("/metrics") if before is not None else ""
    written, earlier = tokens_written(page), _counted(page, WRITING)
    if before is None or written is None or earlier is None:
        return None
    await asyncio.sleep(WATCHED)
    later = _counted(await client.page("/metrics"), WRITING)
    return Counted(written=written - before, afterwards=later - earlier) if later is not None else None
