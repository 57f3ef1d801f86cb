"""A judge's server is asked its questions, some at once; what it replies is handed back raw."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from qualgate.errors import IntegrityError
from qualgate.records import JUDGING, ArmSpec, Judge, Judgement
from qualgate.served.charging import Charges
from qualgate.served.client import Client
from qualgate.served.declared import declared
from qualgate.served.faults import RequestRefused
from qualgate.served.ledger import Ledger

NAME = "judge"  # in messages
MOST_KEPT = 20_001  # characters of a reply: one more than its form could have
AT_ONCE_KEPT = 64  # replies that are kept together; an interruption loses no more

Asked = tuple[Judgement, Mapping[str, Any]]  # what is to be kept, without its reply; the body of the request


def look(judge: Judge) -> str:
    """What the judge's server says of itself. UsageError where it does not serve it, InfrastructureError where it does
    not answer."""

    async def told() -> str:
        async with Client(NAME, judge.served, judge.served.concurrency) as client:
            return await declared(client, as_arm(judge))

    return asyncio.run(told())


def ask(
    judge: Judge,
    questions: Sequence[Asked],
    keep: Callable[[Sequence[Judgement]], None],
    stop: Callable[[], bool],
    ledger: Ledger | None = None,
) -> bool:
    """Ask them in turn, keeping every few replies, until `stop` says so; whether all were asked. ledger: in which they
    are counted; None: they are not.

    A request that the server refuses is kept with why. IntegrityError where the server says by the end that it is
    another; InfrastructureError where it does not answer, however often it is asked, as BudgetSpent where what the run
    may spend does not reach: what came until then is kept.
    """
    charges = None if ledger is None else Charges(ledger, JUDGING, judge.served)
    client = Client(NAME, judge.served, judge.served.concurrency, charges=charges)
    return asyncio.run(_ask(judge, questions, keep, stop, client))


async def _ask(
    judge: Judge,
    questions: Sequence[Asked],
    keep: Callable[[Sequence[Judgement]], None],
    stop: Callable[[], bool],
    opened: Client,
) -> bool:
    async with opened as client:
        before = await declared(client, as_arm(judge))
        for start in range(0, len(questions), AT_ONCE_KEPT):
            if stop():
                return False
            some = questions[start : start + AT_ONCE_KEPT]
            came = await asyncio.gather(*(_reply(client, body) for _, body in some), return_exceptions=True)
            if (after := await declared(client, as_arm(judge))) != before:
                raise IntegrityError(
                    f"{NAME}: its server declared {before!r:.300}, and then {after!r:.300}: it changed"
                )
            keep(
                [
                    replace(one, reply=said[0], error=said[1], served=before)
                    for (one, _), said in zip(some, came, strict=True)
                    if not isinstance(said, BaseException)
                ]
            )
            if failed := [said for said in came if isinstance(said, BaseException)]:
                raise failed[0]
    return True


async def _reply(client: Client, body: Mapping[str, Any]) -> tuple[str | None, str]:
    """The reply, or why there is none."""
    try:
        came = await client.whole("/chat/completions", body)
    except RequestRefused as refused:
        return None, str(refused)
    message = came.choices[0].message if came.choices else None
    if message is None or message.content is None:
        return None, "its server sent no text"
    return message.content[:MOST_KEPT], ""


def as_arm(judge: Judge) -> ArmSpec:
    """The judge as an arm that nothing is generated for."""
    return ArmSpec(name=NAME, model=judge.model, served=judge.served)
