"""One request under load, of a server that answers as a test scripts it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from qualgate.pipeline.load.asking import LONGEST, ask
from qualgate.pipeline.load.counters import Counted, counted_since, tokens_written, written_now
from qualgate.pipeline.load.sent import Sent
from qualgate.records import Served
from qualgate.served.client import Client
from qualgate.served.faults import NotServed, RequestRefused
from qualgate.served.replies import Completed
from tests.pipeline.load import virtual
from tests.served.scripted import Reply, Scripted, as_json, as_stream, scripted, text_piece

USAGE = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 5}}
STREAM = {"stream": True}


def asked(server: Scripted, body: dict[str, Any] = STREAM, **how: Any) -> tuple[Sent, list[float]]:
    """What became of it, and how long was waited between attempts."""
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    async def once() -> Sent:
        async with Client("x", Served(endpoint=server.address), 4) as client:
            return await ask(client, "/completions", body, prompt=7, due=0.0, sleep=sleep, **how)

    return asyncio.run(once()), waited


def test_every_piece_has_its_time_and_empty_events_count_for_others_alone():
    pieces = text_piece(""), text_piece("a"), text_piece("b"), text_piece("", "stop"), USAGE
    with scripted(as_stream(*pieces)) as server:
        sent, _ = asked(server)
    assert (sent.how, sent.prompt, sent.tokens, sent.prompt_tokens) == ("answered", 7, 5, 3)
    assert (len(sent.pieces), len(sent.events)) == (2, 4)
    times = [sent.began, *sent.events, sent.ended]
    assert times == sorted(times)
    assert set(sent.pieces) <= set(sent.events)


@pytest.mark.parametrize(
    ("reply", "cause"),
    [
        (as_json({}, 503), "status 503"),
        (as_json({}, 429), "status 429"),
        (as_stream(text_piece("a"), done=False), "no whole answer"),
        (as_stream(text_piece("a")), "no whole answer"),  # its end was not said
        (as_json({"error": "overloaded"}), "an error under 200"),
        (Reply(body=b"<html>", kind="text/html"), "no whole answer"),
        (Reply(body=b"data: {", promised=500, kind="text/event-stream"), "connection"),
    ],
)
def test_what_fails_is_counted_by_its_cause_and_is_no_answer(reply, cause):
    with scripted(reply) as server:
        sent, waited = asked(server)
    assert (sent.how, sent.failures, sent.tokens, waited) == ("failed", (cause,), None, [])


def test_a_stream_without_an_end_is_left():
    """Its pieces come steadily, so no wait between two of them is long."""

    class Endless:
        async def pieces(self, path: str, body: Any) -> AsyncIterator[Completed]:
            while True:
                await asyncio.sleep(60)
                yield Completed()

    client: Any = Endless()
    sent = virtual.run(ask(client, "/completions", STREAM, prompt=7, due=0.0, tries=2))
    assert (sent.how, sent.failures) == ("failed", ("timeout", "timeout"))
    assert 2 * LONGEST <= sent.ended < 2 * LONGEST + 60


def test_a_server_that_is_not_there_is_a_failure_of_its_connection():
    with scripted() as server:
        gone = server
    sent, _ = asked(gone)
    assert (sent.how, sent.failures) == ("failed", ("connection",))


def test_a_request_is_sent_again_as_often_as_asked_and_its_times_go_on():
    fine = as_stream(text_piece("a", "stop"))
    with scripted(as_json({}, 503, Retry_After="9"), as_json({}, 500), fine) as server:
        sent, waited = asked(server, tries=3)
    assert (sent.how, sent.failures) == ("answered", ("status 503", "status 500"))
    assert waited[0] == 9.0
    assert len(waited) == 2
    with scripted(as_json({}, 503), as_json({}, 500)) as server:
        sent, _ = asked(server, tries=2)
    assert (sent.how, sent.failures) == ("failed", ("status 503", "status 500"))


def test_a_request_that_is_closed_early_ends_with_its_first_piece():
    with scripted(as_stream(text_piece(""), text_piece("a"), text_piece("b", "stop"), USAGE)) as server:
        sent, _ = asked(server, closes=True)
    assert (sent.how, len(sent.pieces), sent.tokens, sent.failures) == ("closed", 1, None, ())


@pytest.mark.parametrize(("status", "kind"), [(401, NotServed), (400, RequestRefused)])
def test_what_the_user_must_mend_is_not_counted_but_told(status, kind):
    with scripted(as_json({"why": "no"}, status)) as server, pytest.raises(kind):
        asked(server)


PAGE = """\
# HELP vllm:generation_tokens_total Number of generation tokens processed.
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="a b"} 120.0
vllm:generation_tokens_total{engine="1",model_name="a b"} 3e1
vllm:generation_tokens_created{engine="0"} 1.7e+09
vllm:num_requests_running{engine="0"} 2.0
"""


OF_SGLANG = """\
sglang:realtime_tokens_total{mode="prefill_compute",model_name="m"} 5000.0
sglang:realtime_tokens_total{mode="decode",model_name="m",tp_rank="0"} 40.0
sglang:realtime_tokens_total{mode="decode",model_name="m",tp_rank="1"} 2.0
sglang:time_to_first_token_seconds_count{model_name="m"} 3.0
sglang:generation_tokens_total{model_name="m"} 7.0
"""


@pytest.mark.parametrize(
    ("page", "tokens"),
    [
        (PAGE, 150.0),
        (OF_SGLANG, 45.0),
        ("llamacpp:tokens_predicted_total 17", 17.0),
        ("sglang:generation_tokens_total{model_name=\"m\"} 4 1700000000000\n", None),  # of answers that ended
        ("vllm:generation_tokens_total{model_name=\"m\"} 4 1700000000000\n", 4.0),
        ("vllm:generation_tokens_total NaN", None),
        ("vllm:generation_tokens_total 1e999", None),
        ("vllm:generation_tokens_total 1.2.3", None),
        ("<html>vllm:generation_tokens_total 4</html>", None),
        ("", None),
    ],
)  # fmt: skip
def test_tokens_that_a_server_wrote_are_read_where_it_tells_them(page, tokens):
    assert tokens_written(page) == tokens


PASSES = "llamacpp:tokens_predicted_total {}\nllamacpp:n_decode_total {}"
STEPS = "vllm:generation_tokens_total {}"


@pytest.mark.parametrize(
    ("first", "then", "later", "counted"),
    [
        (STEPS.format(0), STEPS.format(9), STEPS.format(12), Counted(written=9.0, afterwards=3.0)),
        (STEPS.format(0), STEPS.format(9), "", None),
        (PASSES.format(0, 5), PASSES.format(9, 20), PASSES.format(9, 27), Counted(written=9.0, afterwards=7.0)),
        (PASSES.format(0, 5), PASSES.format(9, 20), PASSES.format(9, 20), Counted(written=9.0, afterwards=0.0)),
        ("llamacpp:tokens_predicted_total 0", "llamacpp:tokens_predicted_total 9", PASSES.format(9, 20), None),
    ],
)
def test_what_is_written_when_nobody_reads_any_more_shows(monkeypatch, first, then, later, counted):
    """The scripted server's `version` stands for every page that is not the list of models."""

    def page(text: str) -> Reply:
        return Reply(body=text.encode())

    async def look(server: Scripted) -> Counted | None:
        async with Client("x", Served(endpoint=server.address), 1) as client:
            before = await written_now(client)
            server.version = page(then)

            async def sleep(seconds: float) -> None:
                server.version = page(later)

            monkeypatch.setattr("qualgate.pipeline.load.counters.asyncio.sleep", sleep)
            return await counted_since(client, before)

    with scripted(version=page(first)) as server:
        assert asyncio.run(look(server)) == counted
