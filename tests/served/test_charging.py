"""What requests take of a budget: by the server's own counts, where these can be."""

from __future__ import annotations

import asyncio

import pytest

from qualgate.errors import InfrastructureError
from qualgate.records import Budget, Price, Prompt, Served, Spent, UnitKey
from qualgate.served.charging import Charges, Meter, answer_most, batch_most, prompt_most
from qualgate.served.client import Client
from qualgate.served.faults import BudgetSpent, NotServed
from qualgate.served.ledger import Ledger
from qualgate.served.replies import Completed
from tests.served.scripted import Reply, as_json, as_stream, scripted, text_piece

BODY = {"model": "m", "prompt": [5] * 30, "max_tokens": 20, "temperature": 0.0}
TEXT = {"model": "m", "messages": [{"role": "user", "content": "x" * 1280}], "max_tokens": 20, "stream": False}
READ = prompt_most(TEXT)


@pytest.mark.parametrize(
    ("body", "usage", "text", "took"),
    [
        (BODY, (30, 7), "seven words", (30, 7, 0)),
        (BODY, None, "seven words", (30, 20, 20)),  # not told: the prompt is known, the answer is at most its limit
        (BODY, (0, 0), "", (30, 0, 0)),  # fewer than were sent
        (BODY, (45, 7), "", (45, 7, 0)),  # more than were sent: it will charge them
        (BODY, (30, 900), "", (30, 900, 0)),
        (TEXT, (300, 4), "four", (300, 4, 0)),
        (TEXT, (9, 4), "four", (READ, 4, READ)),  # 1,280 characters are more than 9 tokens
        (TEXT, (300, 0), "four", (300, 20, 20)),
        (TEXT, None, "four", (READ, 20, READ + 20)),
    ],
)  # fmt: skip
def test_a_count_that_can_be_is_taken_and_else_the_most(body, usage, text, took):
    told = None if usage is None else {"prompt_tokens": usage[0], "completion_tokens": usage[1]}
    meter = Meter()
    meter.take(Completed.model_validate({"choices": [{"text": text, "finish_reason": "stop"}], "usage": told}))
    assert meter.took(body) == took


def test_tokens_that_are_told_one_by_one_are_counted_here():
    meter = Meter()
    for number in range(3):
        meter.take(Completed.model_validate({"choices": [{"text": "a", "token_ids": [number, 9]}]}))
    assert meter.took(BODY) == (30, 20, 20)
    meter.take(Completed.model_validate({"choices": [], "usage": {"completion_tokens": 6}}))
    assert meter.took(BODY) == (30, 6, 0)
    meter.take(Completed.model_validate({"choices": [], "usage": {"completion_tokens": 2}}))
    assert meter.took(BODY) == (30, 20, 20)


@pytest.mark.parametrize("text", ["plain words", "Größe 東京 🜁", "\ud83d half", '"quoted"\n\t', ""])
def test_a_prompt_has_no_more_tokens_than_the_bytes_that_stand_for_it(text):
    assert prompt_most({"prompt": text}) >= len(text.encode("utf-8", "replace"))
    assert prompt_most({"messages": [{"role": "user", "content": text}]}) >= len(text.encode("utf-8", "replace"))
    assert answer_most({"max_tokens": 5}) == 5


def test_a_batch_takes_its_tokens_or_what_its_messages_come_to():
    def prompt(**of):
        return Prompt(key=UnitKey("a", "s", "c"), case_hash="h", max_new_tokens=9, **of)

    asked = prompt(token_ids=(), asked='{"prompt": "\\u6771\\u4eac"}')
    assert batch_most((prompt(token_ids=(1, 2, 3)), asked)) == (3 + prompt_most({"prompt": "東京"}), 18)


def asked(tmp_path, server, bodies, budget=None, at_once=8):
    """What came of each, and what was spent."""
    ledger, served = (
        Ledger(tmp_path / "spent", budget or Budget()),
        Served(endpoint=server.address, price=Price(answer=1e6)),
    )

    async def ask():
        async def wait(seconds):
            await asyncio.sleep(0)

        charges = Charges(ledger, "x", served)
        async with Client("x", served, at_once, tries=2, sleep=wait, charges=charges) as client:
            calls = (client.ask("/completions", body) for body in bodies)
            return await asyncio.gather(*calls, return_exceptions=True)

    return asyncio.run(ask()), ledger.spent().get("x", Spent())


def counted(body) -> Reply:
    usage = {"prompt_tokens": 30, "completion_tokens": 3}
    return as_json({"choices": [{"index": 0, "text": "ok", "finish_reason": "stop"}], "usage": usage})


def test_many_at_once_spend_all_they_may_and_no_more(tmp_path):
    with scripted(otherwise=counted) as server:
        came, spent = asked(tmp_path, server, [BODY] * 40, Budget(max_tokens=500))
    refused = [one for one in came if isinstance(one, BudgetSpent)]
    assert spent == Spent(requests=len(server.asked), prompt=30 * len(server.asked), answer=3 * len(server.asked),
                          cost=3.0 * len(server.asked))  # fmt: skip
    assert len(server.asked) == 14  # 14 x 33 = 462 are spent, and the next may take 50
    assert len(refused) == 26


@pytest.mark.parametrize(
    ("replies", "spent"),
    [
        ([Reply(status=503), "counted"], Spent(requests=2, prompt=30, answer=3, cost=3.0)),
        ([Reply(status=400)], Spent(requests=1, cost=0.0)),  # refused: nothing was said
        # Half a stream, and no answer that can be read: what they took nobody knows.
        ([as_stream(text_piece("ha"), done=False), "counted"],
         Spent(requests=2, prompt=60, answer=23, estimated=50, cost=23.0)),
        ([as_json({"choices": [], "usage": {"prompt_tokens": -30}}), "counted"],
         Spent(requests=2, prompt=60, answer=23, estimated=50, cost=23.0)),
        ([as_json({"error": "out of memory"}), "counted"],
         Spent(requests=2, prompt=60, answer=23, estimated=50, cost=23.0)),
    ],
)  # fmt: skip
def test_what_failed_takes_nothing_where_nothing_was_said_and_else_the_most(replies, spent, tmp_path):
    script = [counted(BODY) if reply == "counted" else reply for reply in replies]
    with scripted(*script) as server:
        [came], found = asked(tmp_path, server, [BODY])
    assert isinstance(came, NotServed) == (len(replies) == 1)
    assert found == spent


def test_a_server_that_is_not_there_takes_nothing(tmp_path):
    with scripted() as server:
        pass
    [came], spent = asked(tmp_path, server, [BODY])
    assert isinstance(came, InfrastructureError)
    assert spent.tokens == 0
