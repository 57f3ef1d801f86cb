"""A whole night under its lock: judge the items that are due, and deliver the digests."""

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
    """Result of a night."""

    exit: Exit
    nights: tuple[Told, ...]  # empty where nothing was due
    body: dict[str, Any]  # the plain form of the digest
    waiting: tuple[Digest, ...]  # digests that could not be delivered
    due_next: datetime | None  # when the next item is due or tried again


def whole_night(
    nightly: Nightly,
    judge: Judge,
    now: datetime,
    *,
    every: bool = False,
    say: Say = lambda line: None,
    wait: Callable[[float], None] = time.sleep,
) -> Ended:
    """Judge the items that are due and deliver digests. Raises InfrastructureError if another night is under way.

    judge: runs a gate file. every: all items, due or not. say: receives a line for each item that begins. wait: sleeps
    between attempts to deliver. If a night was killed before its digest, the next digest covers both.
    """
    started = f"{now:%Y-%m-%d %H:%M} UTC"
    alone = f"nights of {nightly.name}"
    with sole_night(nightly.path, started), open_store(nightly.store_url) as store, store.sole(alone):
        run_nights(nightly, store, judge, now, every=every, say=say)
        code, fresh = exit_of(nightly, store), untold(store, nightly.name)
        nights = tuple(_told(store, untold_night) for untold_night in fresh)
        body = tell(store, nightly, nights, fresh[-1].night_id if fresh else 0, code, now)
        waiting, ahead = delivery.deliver(store, nightly, wait), next_due(store, nightly, now)
        return Ended(exit=code, nights=nights, body=body, waiting=waiting, due_next=ahead)


def tell(
    store: Store, nightly: Nightly, nights: Sequence[Told], last_night: int, code: Exit, now: datetime
) -> dict[str, Any]:
    """Store a digest for each target that wants one, and return the plain form of all nights; without nights nothing is
    stored. Gate owners get their own gates only, and nobody gets a repeated failure with another try to come.
    last_night: id of the newest night."""
    targets = delivery.targets_of(nightly)
    waiting = sum(pending.target in targets for pending in undelivered(store, nightly.name))
    bodies, news = {}, [night for night in nights if not night.repeats]
    for name, target in targets.items() if news else ():
        gates = delivery.gates_of(nightly, name)
        target_nights = [night for night in news if gates is None or night.night.gate in gates]
        word = code if gates is None else exit_of(nightly, store, gates)
        if target_nights and digest.wanted(target.when, target_nights, word, waiting):
            bodies[name] = digest.body(nightly.name, target_nights, word, now, waiting)
    if nights:
        add_digests(store, nightly.name, bodies, last_night)
    return digest.body(nightly.name, nights, code, now, waiting)


def _told(store: Store, untold_night: Untold) -> Told:
    """Return a night with what its digest reports; a night without a run has no verdicts, trends and flaky cases."""
    night, run_id = untold_night.night, untold_night.night.run_id
    failed = failures(store, night) if night.exit == Exit.INFRASTRUCTURE else 0
    summary = Told(night=night, before=untold_night.before, failed=failed, again_at=again_at(store, night))
    if run_id is None:
        return summary
    return replace(
        summary,
        verdicts=queries.verdicts_at(store, run_id, untold_night.night.finished_at),
        trends=trends(store, run_id),
        flaky=queries.flaky(store, run_id),
    )
