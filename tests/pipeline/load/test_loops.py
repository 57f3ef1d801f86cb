"""Closed and open loops, on a clock that jumps."""

from __future__ import annotations

import asyncio

import pytest

from qualgate.errors import UsageError
from qualgate.pipeline.load.loops import Ask, closed_loop, open_loop
from qualgate.pipeline.load.sent import How, Sent
from tests.pipeline.load.virtual import run


def answering(seconds: float = 1.0, how: How = "answered", under_way: list[int] | None = None) -> Ask:
    """What takes so long; under_way: how many there were whenever one began."""
    now = [0]

    async def ask(number: int, due: float) -> Sent:
        began = asyncio.get_running_loop().time()
        now[0] += 1
        if under_way is not None:
            under_way.append(now[0])
        await asyncio.sleep(seconds)
        now[0] -= 1
        ended = asyncio.get_running_loop().time()
        return Sent(prompt=number, due=due, began=began, ended=ended, how=how)

    return ask


def test_so_many_are_under_way_at_once_and_the_next_follows_at_once():
    under_way: list[int] = []
    start, sent = run(closed_loop(answering(2.0, under_way=under_way), 3, 10.0))
    assert max(under_way) == 3
    assert sorted(one.due - start for one in sent) == [0.0] * 3 + [2.0] * 3 + [4.0] * 3 + [6.0] * 3 + [8.0] * 3
    assert {one.prompt for one in sent} == set(range(15))


def test_who_has_asked_before_the_end_is_waited_for():
    start, sent = run(closed_loop(answering(7.0), 1, 10.0))
    assert [one.ended - start for one in sent] == [7.0, 14.0]


def test_a_server_that_fails_at_once_is_not_asked_as_fast_as_it_fails():
    _, sent = run(closed_loop(answering(0.0, "failed"), 1, 60.0))
    assert len(sent) == 7  # after 0.5, 1, 2, 4, 8, 16 and 30 s more


def test_requests_come_when_they_come_whoever_is_still_waiting():
    under_way: list[int] = []
    start, sent = run(open_loop(answering(100.0, under_way=under_way), [0.5, 1.0, 1.0, 3.0]))
    assert [one.due - start for one in sent] == [0.5, 1.0, 1.0, 3.0]
    assert [one.began for one in sent] == [one.due for one in sent]
    assert under_way == [1, 2, 3, 4]


@pytest.mark.parametrize("loop", [lambda ask: closed_loop(ask, 4, 100.0), lambda ask: open_loop(ask, [0.0, 50.0])])
def test_what_the_user_must_mend_ends_the_others_and_is_told_as_it_is(loop):
    async def ask(number: int, due: float) -> Sent:
        if number:
            await asyncio.sleep(1e9)
        raise UsageError("the key is wrong")

    with pytest.raises(UsageError, match="the key is wrong"):
        run(loop(ask))
