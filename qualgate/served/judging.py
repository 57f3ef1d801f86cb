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
BATCH = 64  # requests between which the server is asked what it is

Asked = tuple[Judgement, Mapping[str, Any]]  # what is to be kept, without its reply; the body of the request


def look(judge: Judge) -> str:
    """What the judge's server says of itself. UsageError where it does not serve it, InfrastructureError where it does
    not answer."""

    async def told() -> str:
        async with _client(judge) as client:
            return await declared(client, as_arm(judge))

    return asyncio.run(told())


def ask(
    judge: Judge,
    requests: Sequence[Asked],
    keep: Callable[[Sequence[Judgement]], None],
    stop: Callable[[], bool],
    ledger: Ledger | None = None,
) -> bool:
    """Ask them batch by batch, keeping each reply as it comes, until `stop` says so; whether all were asked. ledger: in
    which they are counted; None: they are not.

    A request that the server refuses is kept with why. IntegrityError where the server says by the end that it is
    another, which is kept too, for a reply that came in between may be the other's; InfrastructureError where it does
    not answer, however often it is asked, as BudgetSpent where what the run may spend does not reach.
    """
    charges = None if ledger is None else Charges(ledger, JUDGING, judge.served)
    return asyncio.run(_ask(judge, requests, keep, stop, charges))


def _client(judge: Judge, charges: Charges | None = None) -> Client:
    return Client(NAME, judge.served, judge.served.concurrency, charges=charges)


async def _ask(
    judge: Judge,
    requests: Sequence[Asked],
    keep: Callable[[Sequence[Judgement]], None],
    stop: Callable[[], bool],
    charges: Charges | None,
) -> bool:
    first = ""
    for begins in range(0, len(requests), BATCH):
        if stop():
            return False
        async with _client(judge, charges) as client:
            now = await declared(client, as_arm(judge))
            first = first or now
            _check_same(first, now, keep)
            batch = requests[begins : begins + BATCH]
            work = (_kept(client, replace(one, served=first), body, keep) for one, body in batch)
            came = await asyncio.gather(*work, return_exceptions=True)
            _check_same(first, await declared(client, as_arm(judge)), keep)
        if failed := [error for error in came if error is not None]:
            raise failed[0]
    return True


async def _kept(
    client: Client, one: Judgement, body: Mapping[str, Any], keep: Callable[[Sequence[Judgement]], None]
) -> None:
    reply, error = await _reply(client, body)
    keep([replace(one, reply=reply, error=error)])


def _check_same(first: str, now: str, keep: Callable[[Sequence[Judgement]], None]) -> None:
    """IntegrityError where the server is another now. A row says so from then on: replies are never removed."""
    if now == first:
        return
    changed = f"{NAME}: its server declared {first!r:.300}, and then {now!r:.300}: it changed"
    at = {"variant": "", "evalset": "", "case_id": "changed", "repeat": 0, "swapped": False}
    keep([Judgement(**at, asked="", reply=None, error=changed, served=now, label="")])
    raise IntegrityError(changed)


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
