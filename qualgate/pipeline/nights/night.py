"""One night: judge the items that are due, or repeat them if nothing changed, and store the results."""

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
# The exit code of several nights is the first of these that occurs: a gate file that cannot be judged approves nothing.
NIGHT_ORDER = (*EXIT_ORDER[:2], Exit.USAGE, *EXIT_ORDER[2:])


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What a night would do with one item."""

    item: Item
    last: Night | None
    does: Literal["wait", "repeat", "run", "refuse"]
    why: str
    exit: Exit = Exit.APPROVE  # exit code of a refusal


def run_nights(
    nightly: Nightly, store: Store, judge: Judge, now: datetime, *, every: bool = False, say: Say = lambda line: None
) -> None:
    """Judge the items that are due, one after the other, and store each result. Raises Interrupted if requested: stored
    results stay, and the rest remains due. The caller holds the nightly file's lock.

    every: all items, due or not.
    """
    newest = {} if every else last_of(store, nightly)
    for item in items(nightly):
        before, retry_at = newest.get((item.name, item.model), (None, None))
        item = due(item, nightly, before, now, retry_at)
        if item.due_at is not None:
            add_night(store, _night(nightly.name, item, judge, store, item.due_at, say))


def planned(nightly: Nightly, now: datetime, *, every: bool = False) -> tuple[Planned, ...]:
    """Return what `run_nights` would do now, without doing it or making a store."""
    check_store(nightly.store_url)
    try:
        store = open_store(nightly.store_url, create=False)
    except QualgateError:  # no store yet: `check_store` has raised for other faults
        store = None
    newest = last_of(store, nightly) if store else {}
    plans = []
    for item in items(nightly):
        before, retry_at = newest.get((item.name, item.model), (None, None))
        item = due(item, nightly, None if every else before, now, retry_at)
        if item.due_at is None:
            why = f"failed; tried again from {retry_at:%H:%M} UTC" if retry_at else "not due"
            plans.append(Planned(item=item, last=before, does="wait", why=why))
        elif item.gate is None:
            plans.append(_refused(item, before, item.error))
        else:
            plans.append(_plan_item(item, item.gate, store, before))
    if store:
        store.close()
    return tuple(plans)


def _plan_item(item: Item, gate: GateFile, store: Store | None, before: Night | None) -> Planned:
    """Return what a night would do with a due item: repeat its run if nothing changed, else run it; refuse it if that
    cannot be planned."""
    try:
        run_id, why = _unchanged(item, gate, store) if store else (None, "its first night")
    except QualgateError as error:
        return _refused(item, before, error)
    return Planned(item=item, last=before, does="repeat" if run_id else "run", why=why)


def _refused(item: Item, before: Night | None, error: QualgateError | None) -> Planned:
    """Return the plan of an item that cannot be judged. before: its newest night; error: the reason."""
    code = Exit.USAGE if error is None else error.exit
    return Planned(item=item, last=before, does="refuse", why=str(error), exit=code)


def exit_of_plan(planned: Sequence[Planned]) -> Exit:
    """Return the exit code of a plan: 0 unless something would be refused."""
    return next((code for code in NIGHT_ORDER if any(plan.exit is code for plan in planned)), Exit.APPROVE)


def exit_of(nightly: Nightly, store: Store, gates: Collection[str] | None = None) -> Exit:
    """Return the exit code of the newest nights of all items, or of these gates: the first of 14, 13, 64, 10, 12, 11, 0
    that occurs. An item that is not due keeps its last code; one without a night counts as 12."""
    newest = {(night.gate, night.model): night for night in last_nights(store, nightly.name)}
    keys = [(item.name, item.model) for item in items(nightly) if gates is None or item.name in gates]
    codes = [newest[key].exit if key in newest else Exit.UNDECIDED for key in keys]
    return next(code for code in NIGHT_ORDER if code in codes)


def _night(nightly: str, item: Item, judge: Judge, store: Store, due_at: datetime, say: Say) -> Night:
    """Judge one item and return its night. An unchanged item is decided again from its last run; `judge` runs any
    other. An error becomes the night's exit code and text, so that the next items are judged all the same; only
    Interrupted is raised."""
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
    note = why if run_id else "; ".join(outcome.failures)
    return replace(
        night, run_id=outcome.run_id, repeated=run_id is not None, exit=int(outcome.exit), said=note,
        finished_at=plain.now(),
    )  # fmt: skip


def _unchanged(item: Item, gate: GateFile, store: Store) -> tuple[str | None, str]:
    """Return (run, reason): the complete run that is still valid because no input of its answers changed; None if there
    is none, or if that cannot be known."""
    if item.again:
        return None, "`unchanged: run`"
    if any(arm.served is not None for arm in (gate.baseline, *gate.variants)):
        return None, "what a server is cannot be seen from here"
    plan = make_plan(as_run(gate))
    newest = queries.newest_complete(store, plan.key)
    if newest is None:
        return None, "something changed, or it was never judged"
    run_id, finished = newest
    age = (datetime.now(UTC) - datetime.fromisoformat(finished)).total_seconds()
    if gate.policy.max_age is not None and age >= gate.policy.max_age:
        return None, "its run is older than `max_age`"
    return run_id, f"nothing changed since run {run_id}"
