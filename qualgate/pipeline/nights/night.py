"""The main path of a night: what is due is judged or repeated, kept, and told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from qualgate.config import GateFile
from qualgate.config.nightly import Nightly
from qualgate.errors import EXIT_ORDER, Exit, Interrupted, QualgateError, one_line
from qualgate.pipeline.arms import as_run
from qualgate.pipeline.locks import sole_night
from qualgate.pipeline.nights.items import Item, due, items
from qualgate.pipeline.nights.trends import ArmTrend, trends
from qualgate.pipeline.outcome import Outcome
from qualgate.pipeline.plan import make_plan
from qualgate.pipeline.stored import decide_again
from qualgate.records import Verdict
from qualgate.store import plain, queries
from qualgate.store.database import Store, check_store, open_store
from qualgate.store.nights import Night, add_night, last_nights

Judge = Callable[[GateFile], Outcome]
Say = Callable[[str], None]
# Of several nights the first of these that occurs is the whole's: a gate file that cannot be judged approves nothing.
NIGHT_ORDER = (*EXIT_ORDER[:2], Exit.USAGE, *EXIT_ORDER[2:])


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A night with all that is told of it."""

    night: Night
    before: int | None  # the exit code of the night before; None: there was none
    verdicts: tuple[Verdict, ...] = ()
    trends: tuple[ArmTrend, ...] = ()
    flaky: tuple[queries.Flaky, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether its verdict is another than the night before's. The first is."""
        return self.night.exit != self.before


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What a night would do with one item."""

    item: Item
    last: Night | None
    does: Literal["wait", "repeat", "run", "refuse"]
    why: str


def run_nights(nightly: Nightly, judge: Judge, now: datetime, *, every: bool = False, say: Say = lambda line: None) -> (
    tuple[Told, ...]
):  # fmt: skip
    """Judge what is due, one after the other, and keep what became of each. Raises Interrupted where that was asked:
    what is done stays, and the rest is due still.

    every: all of the file, due or not. InfrastructureError where another night of the file is under way.
    """
    with sole_night(nightly.path, f"{now:%Y-%m-%d %H:%M} UTC"), open_store(nightly.store_url) as store:
        told = []
        last = {(one.gate, one.model): one for one in last_nights(store)}
        for item in items(nightly):
            before = last.get((item.name, item.model))
            item = due(item, nightly, None if every else before, now)
            if item.due_at is None:
                continue
            night, verdicts = _night(item, judge, store, item.due_at, say)
            add_night(store, night)
            told.append(_told(store, night, before, verdicts))
        return tuple(told)


def planned(nightly: Nightly, now: datetime, *, every: bool = False) -> tuple[Planned, ...]:
    """What `run_nights` would do now; nothing is done. Where there is no store yet, none is made."""
    check_store(nightly.store_url)
    try:
        store = open_store(nightly.store_url, create=False)
    except QualgateError:  # none yet: `check_store` has said what else is wrong
        store = None
    last = {(one.gate, one.model): one for one in last_nights(store)} if store else {}
    found = []
    for item in items(nightly):
        before = last.get((item.name, item.model))
        item = due(item, nightly, None if every else before, now)
        if item.due_at is None:
            found.append(Planned(item=item, last=before, does="wait", why="not due"))
        elif item.gate is None:
            found.append(Planned(item=item, last=before, does="refuse", why=str(item.error)))
        else:
            found.append(_foretold(item, item.gate, store, before))
    if store:
        store.close()
    return tuple(found)


def _foretold(item: Item, gate: GateFile, store: Store | None, before: Night | None) -> Planned:
    try:
        run_id, why = _unchanged(item, gate, store) if store else (None, "its first night")
    except QualgateError as error:
        return Planned(item=item, last=before, does="refuse", why=str(error))
    return Planned(item=item, last=before, does="repeat" if run_id else "run", why=why)


def exit_of(nightly: Nightly, store_url: str) -> Exit:
    """Of the newest night of everything that the file names: the first of 14, 13, 64, 10, 12, 11, 0 that occurs. What
    is not due keeps its last word, and what has none yet decides nothing (12)."""
    with open_store(store_url, create=False) as store:
        last = {(one.gate, one.model): one for one in last_nights(store)}
    codes = [last[key].exit if (key := (item.name, item.model)) in last else Exit.UNDECIDED for item in items(nightly)]
    return next(code for code in NIGHT_ORDER if code in codes)


def _night(item: Item, judge: Judge, store: Store, due_at: datetime, say: Say) -> tuple[Night, tuple[Verdict, ...]]:
    began = plain.now()
    night = Night(
        gate=item.name, model=item.model, due_at=due_at.isoformat(), began_at=began, finished_at=began, run_id=None,
        repeated=False, exit=Exit.INFRASTRUCTURE,
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
        return replace(night, exit=int(error.exit), said=str(error), finished_at=plain.now()), ()
    except Exception as error:  # one gate file's crash is not the others'
        return replace(night, said=one_line(error), finished_at=plain.now()), ()
    said = why if run_id else "; ".join(outcome.failures)
    night = replace(
        night, run_id=outcome.run_id, repeated=run_id is not None, exit=int(outcome.exit), said=said,
        finished_at=plain.now(),
    )  # fmt: skip
    return night, outcome.verdicts


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


def _told(store: Store, night: Night, before: Night | None, verdicts: Sequence[Verdict]) -> Told:
    if night.run_id is None or not verdicts:
        return Told(night=night, before=before.exit if before else None)
    return Told(
        night=night,
        before=before.exit if before else None,
        verdicts=tuple(verdicts),
        trends=trends(store, night.run_id),
        flaky=queries.flaky(store, night.run_id),
    )
