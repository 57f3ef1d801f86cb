"""A whole night: alone, what is due is judged and kept, and whatever was not told yet is told."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from qualgate.config.nightly import Nightly
from qualgate.errors import Exit
from qualgate.pipeline.locks import sole_night
from qualgate.pipeline.nights import delivery, digest
from qualgate.pipeline.nights.digest import Told
from qualgate.pipeline.nights.items import again_at, next_due
from qualgate.pipeline.nights.night import Judge, Say, exit_of, run_nights
from qualgate.pipeline.nights.trends import trends
from qualgate.store import queries
from qualgate.store.database import Store, open_store
from qualgate.store.nights import Digest, Untold, add_digests, failures, undelivered, untold


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What a night came to."""

    exit: Exit
    told: tuple[Told, ...]  # empty where nothing was due
    said: dict[str, Any]  # the digest's plain form
    waiting: tuple[Digest, ...]  # digests that could not be delivered
    due_next: datetime | None  # when something is due, or what failed is tried again


def whole_night(
    nightly: Nightly,
    judge: Judge,
    now: datetime,
    *,
    every: bool = False,
    say: Say = lambda line: None,
    wait: Callable[[float], None] = time.sleep,
) -> Ended:
    """Judge what is due, and tell it. InfrastructureError where another night of the file is under way.

    judge: what runs a gate file. every: all of the file, due or not. say: told what begins. wait: between attempts to
    deliver a digest. Where a night was killed before it told, the next tells of both.
    """
    at = f"{now:%Y-%m-%d %H:%M} UTC"
    alone = f"nights of {nightly.name}"
    with sole_night(nightly.path, at), open_store(nightly.store_url) as store, store.sole(alone):
        run_nights(nightly, store, judge, now, every=every, say=say)
        code, fresh = exit_of(nightly, store), untold(store, nightly.name)
        told = tuple(_told(store, one) for one in fresh)
        said = tell(store, nightly, told, fresh[-1].night_id if fresh else 0, code, now)
        waiting, ahead = delivery.deliver(store, nightly, wait), next_due(store, nightly, now)
        return Ended(exit=code, told=told, said=said, waiting=waiting, due_next=ahead)


def tell(
    store: Store, nightly: Nightly, told: Sequence[Told], last_night: int, code: Exit, now: datetime
) -> dict[str, Any]:
    """Write a digest of these nights for each target that wants one, to be delivered: the owners of some gates alone
    are told of theirs, and nobody of a try that failed again where another follows. Returns the plain form of them all;
    where there is no night to tell of, nothing is written. last_night: the newest of them."""
    targets = delivery.targets_of(nightly)
    waiting = sum(one.target in targets for one in undelivered(store, nightly.name))
    bodies, news = {}, [night for night in told if not night.repeats]
    for name, one in targets.items() if news else ():
        gates = delivery.gates_of(nightly, name)
        theirs = [night for night in news if gates is None or night.night.gate in gates]
        word = code if gates is None else exit_of(nightly, store, gates)
        if theirs and digest.wanted(one.when, theirs, word, waiting):
            bodies[name] = digest.body(nightly.name, theirs, word, now, waiting)
    if told:
        add_digests(store, nightly.name, bodies, last_night)
    return digest.body(nightly.name, told, code, now, waiting)


def _told(store: Store, one: Untold) -> Told:
    night, run_id = one.night, one.night.run_id
    failed = failures(store, night) if night.exit == Exit.INFRASTRUCTURE else 0
    told = Told(night=night, before=one.before, failed=failed, again_at=again_at(store, night))
    if run_id is None:
        return told
    return replace(
        told,
        verdicts=queries.verdicts_at(store, run_id, one.night.finished_at),
        trends=trends(store, run_id),
        flaky=queries.flaky(store, run_id),
    )
