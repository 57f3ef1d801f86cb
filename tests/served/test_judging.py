"""A judge's server is asked: each reply is kept as it comes, and a server that changes is never forgotten."""

from __future__ import annotations

from typing import Any

from qualgate.errors import InfrastructureError, IntegrityError
from qualgate.records import Judge, Judgement, Served
from qualgate.served.judging import ask
from tests.served.scripted import MODELS, Reply, Scripted, as_json, scripted


def replied(body: dict[str, Any]) -> Reply:
    return as_json({"choices": [{"message": {"content": body["messages"][0]["content"]}}]})


def kept(server: Scripted, count: int = 4) -> tuple[list[list[Judgement]], Exception | None]:
    """What is kept together, of so many requests, and what was raised."""
    found: list[list[Judgement]] = []
    asked = [
        (
            Judgement(
                variant="v", evalset="s", case_id=f"c{number}", repeat=0, swapped=False,
                asked="f", reply=None, error="", served="",
            ),
            {"model": "m", "messages": [{"role": "user", "content": f"c{number}"}]},
        )
        for number in range(count)
    ]  # fmt: skip
    judge = Judge(model="m", served=Served(endpoint=server.address), rubric="r")
    try:
        ask(judge, asked, lambda some: found.append(list(some)), lambda: False)
    except (InfrastructureError, IntegrityError) as error:
        return found, error
    return found, None


def test_each_reply_is_kept_when_it_comes():
    with scripted(otherwise=replied) as server:
        found, error = kept(server)
    assert (error, [len(some) for some in found]) == (None, [1, 1, 1, 1])
    assert {one.reply for [one] in found} == {one.case_id for [one] in found} == {f"c{n}" for n in range(4)}


def test_one_that_does_not_come_loses_no_other():
    def all_but_one(body):
        is_first = body["messages"][0]["content"] == "c0"
        return as_json({}, 503, Retry_After="9999") if is_first else replied(body)

    with scripted(otherwise=all_but_one) as server:
        found, error = kept(server)
    assert isinstance(error, InfrastructureError)
    assert sorted(reply.case_id for [reply] in found) == ["c1", "c2", "c3"]


def test_a_judge_that_changed_meanwhile_leaves_a_row_that_says_so():
    with scripted() as server:

        def change(body: dict[str, Any]) -> Reply:
            server.models = as_json({"data": [{**MODELS["data"][0], "root": "./other"}]})
            return replied(body)

        server.otherwise = change
        found, error = kept(server)
    assert isinstance(error, IntegrityError)
    assert len({one.served for [one] in found}) == 2, "whoever reads them finds two servers"
