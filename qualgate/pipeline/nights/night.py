"""One night: items that are due are judged, or repeated where nothing changed, and kept."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from qualgate.config import GateFile
from qualgate.config.nightly import Nightly
from qualgate.errors import EXIT_ORDER, Exit, Interrupted, QualgateError, one_line
from qualgate.pipeline.arms import as_run
from qualgate.pipeline.nights.items import Item, due, items, last_of
from qualgate.pipeline.outcome import Outcome
from qualgate.pipeline.plan import make_plan
from qualgate.pipeline.stored import decide_again
from qualgate.store import plain, queries
from qualgate.store.database import Store, check_store, open_store
from qualgate.store.nights import Night, add_night, last_nights

Judge = Callable[[GateFile], Outcome]
Say = Callable[[str], None]
# Of several nights the first of these that occurs is the whole's: a gate file that cannot be judged approves nothing.
NIGHT_ORDER = (*EXIT_ORDER[:2], Exit.USAGE, *EXIT_ORDER[2:])


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What a night would do with one item."""

    item: Item
    last: Night | None
    does: Literal["wait", "repeat", "run", "refuse"]
    why: str
    exit: Exit = Exit.APPROVE  # what it is refused with


def run_nights(
    nightly: Nightly, store: Store, judge: Judge, now: datetime, *, every: bool = False, say: Say = lambda line: None
) -> None:
    """Judge what is due, one after the other, and keep what became of each. Raises Interrupted where that was asked:
    what is done stays, and the rest is due still. The caller holds the nightly file's lock.

    every: all of the file, due or not.
    """
    last = {} if every else last_of(store, nightly)
    for item in items(nightly):
        before, again = last.get((item.name, item.model), (None, None))
        item = due(item, nightly, before, now, again)
        if item.due_at is not None:
            add_night(store, _night(nightly.name, item, judge, store, item.due_at, say))


def planned(nightly: Nightly, now: datetime, *, every: bool = False) -> tuple[Planned, ...]:
    """What `run_nights` would do now; nothing is done. Where there is no store yet, none is made."""
    check_store(nightly.store_url)
    try:
        store = open_store(nightly.store_url, create=False)
    except QualgateError:  # none yet: `check_store` has said what else is wrong
        store = None
    last = last_of(store, nightly) if store else {}
    found = []
    for item in items(nightly):
        before, again = last.get((item.name, item.model), (None, None))
        item = due(item, nightly, None if every else before, now, again)
        if item.due_at is None:
            why = f"failed; tried again from {again:%H:%M} UTC" if again else "not due"
            found.append(Planned(item=item, last=before, does="wait", why=why))
        elif item.gate is None:
            found.append(_refused(item, before, item.error))
        else:
            found.append(_foretold(item, item.gate, store, before))
    if store:
        store.close()
    return tuple(found)


def _foretold(item: Item, gate: GateFile, store: Store | None, before: Night | None) -> Planned:
    try:
        run_id, why = _unchanged(item, gate, store) if store else (None, "its first night")
    except QualgateError as error:
        return _refused(item, before, error)
    return Planned(item=item, last=before, does="repeat" if run_id else "run", why=why)


def _refused(item: Item, before: Night | None, error: QualgateError | None) -> Planned:
    code = Exit.USAGE if error is None else error.exit
    return Planned(item=item, last=before, does="refuse", why=str(error), exit=code)


def exit_of_plan(planned: Sequence[Planned]) -> Exit:
    """Return what a plan exits with: 0 unless something would be refused."""
    return next((code for code in NIGHT_ORDER if any(one.exit is code for one in planned)), Exit.APPROVE)


def exit_of(nightly: Nightly, store: Store, gates: Collection[str] | None = None) -> Exit:
    """Of the newest night of everything that the file names, or of these gates of it: the first of 14, 13, 64, 10, 12,
    11, 0 that occurs. What is not due keeps its last word, and what has none yet decides nothing (12)."""
    last = {(one.gate, one.model): one for one in last_nights(store, nightly.name)}
    asked = [(item.name, item.model) for item in items(nightly) if gates is None or item.name in gates]
    codes = [last[key].exit if key in last else Exit.UNDECIDED for key in asked]
    return next(code for code in NIGHT_ORDER if code in codes)


def _night(nightly: str, item: Item, judge: Judge, store: Store, due_at: datetime, say: Say) -> Night:
    began = plain.now()
    night = Night(
        nightly=nightly, gate=item.name, model=item.model, due_at=due_at.isoformat(), began_at=began, finished_at=began,
        run_id=None, repeated=False, exit=Exit.INFRASTRUCTURE,
    )  # fmt: skip
    say(f"{night.name}: begins")
    try:
        if item.gate is None:
            assert item.error is not None
            raise item.error
        run_id, why = _unchanged(item, item.gate, store)
        outcome = decide_again(store.url, run_id, item.gate) if run_id else judge(item.gate)
    except Interrupted:
        raise
    except QualgateError as error:
        return replace(night, exit=int(error.exit), said=str(error), finished_at=plain.now())
    except Exception as error:  # one gate file's crash is not the others'
        return replace(night, said=one_line(error), finished_at=plain.now())
    said = why if run_id else "; ".join(outcome.failures)
    return replace(
        night, run_id=outcome.run_id, repeated=run_id is not None, exit=int(outcome.exit), said=said,
        finished_at=plain.now(),
    )  # fmt: skip


def _unchanged(item: Item, gate: GateFile, store: Store) -> tuple[str | None, str]:
    """The complete run whose verdict stands, because nothing that its answers rest on has changed; None where there is
    none, or it cannot be known. And why."""
    if item.again:
        return None, "`unchanged: run`"
    if any(arm.served is not None for arm in (gate.baseline, *gate.variants)):
        return None, "what a server is cannot be seen from here"
    plan = make_plan(as_run(gate, blame=False, four_arm=False))
    found = queries.newest_complete(store, plan.key)
    if found is None:
        return None, "something changed, or it was never judged"
    run_id, finished = found
    age = (datetime.now(UTC) - datetime.fromisoformat(finished)).total_seconds()
    if gate.policy.max_age is not None and age >= gate.policy.max_age:
        return None, "its run is older than `max_age`"
    return run_id, f"nothing changed since run {run_id}"
