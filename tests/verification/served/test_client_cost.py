"""The row `client` in small: every contender is answered, and open streams are all there at once."""

from __future__ import annotations

import asyncio

from tests.verification.served.client_cost import AT_ONCE, CONTENDERS, _costs, _streams, running


def test_every_contender_is_answered_and_counted():
    with running() as port:
        rounds = asyncio.run(_costs(port, turns=1, requests=AT_ONCE, alone=2))
    assert [one["client"] for one in rounds] == list(CONTENDERS)
    assert all(one["requests_a_core"] > 0 and one["p99_ms"] > 0 for one in rounds)


def test_streams_that_are_open_at_once_are_all_answered():
    with running() as port:
        found = asyncio.run(_streams(port, 50))
    assert (found["streams"], found["answered"]) == (50, 50)
    assert found["gib"] > 0
