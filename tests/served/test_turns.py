"""How a server that wants to be left alone is: by everybody, as it says, and for as long as patience lasts."""

from __future__ import annotations

import asyncio

import pytest

from qualgate.errors import InfrastructureError
from qualgate.records import Served
from qualgate.served.client import Client
from qualgate.served.faults import NotServed
from qualgate.served.replies import Models
from qualgate.served.retries import TRIES
from tests.served.scripted import MODELS, Scripted, as_json, scripted
from tests.served.test_client import WHOLE, asking, failing


def test_a_limit_is_waited_out_up_to_patience_and_the_message_names_the_key():
    limit = as_json({"error": {"message": "60 requests per minute"}}, 429)
    with scripted(*[limit] * 9, as_json(WHOLE)) as server:
        answer, waited = asking(server)
    assert answer.text == "yes"
    assert 60.0 < sum(waited) < 200.0
    with scripted(otherwise=lambda body: limit) as server:
        said = failing(server, InfrastructureError, patience=120.0)
    assert "`budget: {patience: 2m}`" in said
    assert "`requests_per_minute`" in said
    assert "60 requests per minute" in said
    assert len(server.asked) <= 14  # waits double up to 30 s, each half drawn: 12 of them are at least 105 s


def test_a_quota_that_is_used_up_for_a_minute_is_named_and_waited_for_no_longer():
    spent = as_json({"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}, 429)
    with scripted(spent, spent, as_json(WHOLE)) as server:
        answer, waited = asking(server)
    assert (answer.text, sum(waited) < 5) == ("yes", True)  # some use this code for limits by the minute
    with scripted(otherwise=lambda body: spent) as server:
        said = failing(server, InfrastructureError)
    assert len(server.asked) < 12
    assert "its quota is used up" in said
    assert "You exceeded your current quota" in said
    assert "requests_per_minute" not in said


@pytest.mark.parametrize(
    ("reply", "seconds"),
    [
        (as_json({}, 429, x_ratelimit_reset_requests="1m30s"), 90.0),
        (as_json({}, 429, x_ratelimit_reset_tokens="6ms", retry_after_ms="1500"), 1.5),
        (as_json({}, 503, Retry_After="0.75"), 0.75),
        (as_json({"error": {"message": "slow down", "code": 429}}), 0.5),
    ],
)
def test_what_a_server_asks_for_is_waited_in_whatever_form_it_says_it(reply, seconds):
    with scripted(reply, as_json(WHOLE)) as server:
        answer, waited = asking(server)
    assert answer.text == "yes"
    assert seconds / 2 - 0.1 <= sum(waited) <= seconds + 0.01


def test_a_pace_that_was_learnt_is_kept_by_those_that_come_after_the_limit():
    lines: list[str] = []
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    async def ask() -> None:
        served = Served(endpoint=server.address)
        async with Client("x", served, 4, sleep=sleep, notify=lambda s, line: lines.append(line)) as client:
            for _ in range(8):
                await client.ask("/completions", {"prompt": "p"})

    some = [as_json(WHOLE)] * 4
    with scripted(*some, as_json({}, 429, Retry_After="60"), *some) as server:
        asyncio.run(ask())
    assert waited[0] == pytest.approx(60.0, abs=1.0)
    assert len(waited) == 4
    assert all(7.5 < seconds <= 15.5 for seconds in waited[1:]), "four answers a minute were seen, less what passed"
    told = [line for line in lines if line]
    assert "asked again in 60 s" in told[0]
    assert "times a minute at most from here on" in told[1]


def test_a_status_that_the_gate_file_says_may_pass_does_and_ends_as_the_machinerys():
    with scripted(as_json({}, 418), as_json(WHOLE)) as server:
        assert asking(server, passing=(418,))[0].text == "yes"
    with scripted(*[as_json({}, 418)] * TRIES) as server:
        failing(server, InfrastructureError, passing=(418,))
    with scripted(as_json({}, 418)) as server:
        failing(server, NotServed)


def test_a_server_that_still_loads_is_waited_for_and_told_of():
    lines: list[str] = []

    async def look(server: Scripted, patience: float) -> Models | None:
        async def sleep(seconds: float) -> None:
            if len(lines) > 2:
                server.models = as_json(MODELS)

        served = Served(endpoint=server.address, patience=patience)
        told = lambda seconds, line: lines.append(line) if line else None  # noqa: E731
        async with Client("x", served, 1, tries=1, sleep=sleep, notify=told) as client:
            return await client.get("/models", Models)

    loading = as_json({"error": {"message": "Loading model"}}, 503)
    with scripted(models=loading) as server:
        assert asyncio.run(look(server, 600.0)) is not None
        assert "Loading model" in lines[0]
    lines.clear()
    with scripted(models=loading) as server, pytest.raises(InfrastructureError, match="Loading model"):
        asyncio.run(look(server, 5.0))


def test_a_request_that_alone_meets_limits_is_given_up_and_slows_no_other():
    """As one with more tokens than a minute may have: it is refused for ever, and told as a limit."""
    limit = as_json({"error": {"message": "Request too large: limit 30000, requested 30601"}}, 429)
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)
        await asyncio.sleep(0)

    async def ask() -> list[object]:
        async with Client("x", Served(endpoint=server.address), 4, sleep=sleep) as client:
            asked = [client.ask("/completions", {"prompt": f"p{at}"}) for at in range(60)]
            return await asyncio.gather(*asked, return_exceptions=True)

    with scripted(otherwise=lambda body: limit if body["prompt"] == "p7" else as_json(WHOLE)) as server:
        said = asyncio.run(ask())
    failed = [one for one in said if isinstance(one, Exception)]
    assert [str(one).count("this request that it does not take now") for one in failed] == [1]
    assert "Request too large" in str(failed[0])
    assert sum(body["prompt"] == "p7" for _, _, body in server.asked) < 16
    assert sum(waited) < 600.0
