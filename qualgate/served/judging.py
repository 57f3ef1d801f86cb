"""A judge's server is asked its questions, some at once; what it replies is handed back raw."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from qualgate.errors import IntegrityError
from qualgate.records import JUDGING, UNBOUND, ArmSpec, Judge, Judgement, Wire
from qualgate.served.charging import Charges
from qualgate.served.client import Client
from qualgate.served.declared import declared
from qualgate.served.faults import RequestRefused
from qualgate.served.ledger import Ledger
from qualgate.served.tape import session_of

NAME = "judge"  # in messages
MOST_KEPT = 20_001  # characters of a reply: one more than its form could have
BATCH = 64  # requests whose replies are kept together; an interruption loses no more

Asked = tuple[Judgement, Mapping[str, Any]]  # what is to be kept, without its reply; the body of the request


def look(judge: Judge, wire: Wire = UNBOUND) -> str:
    """What the judge's server says of itself. wire: of the run. UsageError where it does not serve it,
    InfrastructureError where it does not answer."""

    async def told() -> str:
        async with _client(judge, wire, "plan") as client:
            return await declared(client, as_arm(judge))

    return asyncio.run(told())


def ask(
    judge: Judge,
    batches: Mapping[int, Sequence[Asked]],
    keep: Callable[[Sequence[Judgement]], None],
    stop: Callable[[], bool],
    ledger: Ledger | None = None,
    wire: Wire = UNBOUND,
) -> bool:
    """Ask them batch by batch, keeping each one's replies, until `stop` says so; whether all were asked. batches: by
    their numbers, under which a run's wire records them, or tells them again. ledger: in which they are counted; None:
    they are not.

    A request that the server refuses is kept with why. IntegrityError where the server says by the end that it is
    another; InfrastructureError where it does not answer, however often it is asked, as BudgetSpent where what the run
    may spend does not reach: what came until then is kept.
    """
    charges = None if ledger is None else Charges(ledger, JUDGING, judge.served)
    return asyncio.run(_ask(judge, batches, keep, stop, lambda name: _client(judge, wire, name, charges)))


def _client(judge: Judge, wire: Wire, session: str, charges: Charges | None = None) -> Client:
    kept = session_of(wire, JUDGING, judge.model, judge.served, session)
    return Client(NAME, judge.served, judge.served.concurrency, session=kept, charges=charges)


async def _ask(
    judge: Judge,
    batches: Mapping[int, Sequence[Asked]],
    keep: Callable[[Sequence[Judgement]], None],
    stop: Callable[[], bool],
    opened: Callable[[str], Client],
) -> bool:
    first = ""
    for number, some in batches.items():
        if stop():
            return False
        async with opened(f"asked-{number:05d}") as client:
            before = await declared(client, as_arm(judge))
            came = await asyncio.gather(*(_reply(client, body) for _, body in some), return_exceptions=True)
            after = await declared(client, as_arm(judge))
        first = first or before
        if changed := [one for one in (before, after) if one != first]:
            raise IntegrityError(
                f"{NAME}: its server declared {first!r:.300}, and then {changed[0]!r:.300}: it changed"
            )
        keep(
            [
                replace(one, reply=said[0], error=said[1], served=first)
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
