"""Ask a judge's server its questions, several at once, and keep the raw replies."""

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
    """Return the declaration of the judge's server. UsageError if it does not serve the model, InfrastructureError if
    it does not answer."""

    async def declare() -> str:
        async with _client(judge) as client:
            return await declared(client, as_arm(judge))

    return asyncio.run(declare())


def ask(
    judge: Judge,
    requests: Sequence[Asked],
    keep: Callable[[Sequence[Judgement]], None],
    stop: Callable[[], bool],
    ledger: Ledger | None = None,
) -> bool:
    """Send requests batch by batch, keeping each reply as it comes, until `stop()`; return whether all were sent.
    ledger: counts them; None: they are not counted.

    A refused request is kept with the reason. IntegrityError if the server's declaration changed by the end, which is
    kept too, since replies in between may be another server's; InfrastructureError if it does not answer in all tries,
    or as BudgetSpent if the budget does not suffice.
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
    """Send the requests in batches; return False if `stop()` ended that.

    The server must make the same declaration before and after each batch. keep: stores each judgement as it comes. A
    batch ends before its first failure is raised.
    """
    first = ""
    for begins in range(0, len(requests), BATCH):
        if stop():
            return False
        async with _client(judge, charges) as client:
            declaration = await declared(client, as_arm(judge))
            first = first or declaration
            _check_same(first, declaration, keep)
            batch = requests[begins : begins + BATCH]
            work = (_kept(client, replace(judgement, served=first), body, keep) for judgement, body in batch)
            outcomes = await asyncio.gather(*work, return_exceptions=True)
            _check_same(first, await declared(client, as_arm(judge)), keep)
        if failed := [error for error in outcomes if error is not None]:
            raise failed[0]
    return True


async def _kept(
    client: Client, judgement: Judgement, body: Mapping[str, Any], keep: Callable[[Sequence[Judgement]], None]
) -> None:
    reply, error = await _reply(client, body)
    keep([replace(judgement, reply=reply, error=error)])


def _check_same(first: str, now: str, keep: Callable[[Sequence[Judgement]], None]) -> None:
    """Raise IntegrityError if the server declares `now` something else than `first`.

    A row without a case records it, since replies are never removed.
    """
    if now == first:
        return
    changed = f"{NAME}: its server declared {first!r:.300}, and then {now!r:.300}: it changed"
    no_case = {"variant": "", "evalset": "", "case_id": "changed", "repeat": 0, "swapped": False}
    keep([Judgement(**no_case, asked="", reply=None, error=changed, served=now, label="")])
    raise IntegrityError(changed)


async def _reply(client: Client, body: Mapping[str, Any]) -> tuple[str | None, str]:
    """Return the judge's reply and "", or None and why there is none."""
    try:
        completed = await client.whole("/chat/completions", body)
    except RequestRefused as refused:
        return None, str(refused)
    message = completed.choices[0].message if completed.choices else None
    if message is None or message.content is None:
        return None, "its server sent no text"
    return message.content[:MOST_KEPT], ""


def as_arm(judge: Judge) -> ArmSpec:
    """Return the judge as an arm without a job."""
    return ArmSpec(name=NAME, model=judge.model, served=judge.served)
