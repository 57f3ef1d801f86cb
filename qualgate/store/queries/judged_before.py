"""Lists that were judged when they held less: a fixed test is of one look, and a longer list asked again is another."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, Select, func, select

from qualgate.records import ArmIdentity
from qualgate.store.database import Store
from qualgate.store.queries.trials import IS_TRIAL
from qualgate.store.rows import check_arm, check_run, check_verdict
from qualgate.store.tables import arms, evalsets, runs, units, verdicts
from qualgate.store.typed import read

SAME = ("weights", "tokenizer", "template", "sampling")  # of two arms that give the same answers to the same cases

Arm = tuple[str, ...]
Runs = Sequence[str] | Select[tuple[str]]  # which: their ids, or what asks for them


def judged_before(store: Store, run_id: str) -> dict[str, int]:
    """Variant → answers of the largest list it was judged on by an earlier run of this store, of which this run's has
    every answer of an evalset's cases as they were, and more. The same list again is no new look, and other cases are
    another list.
    """
    with store.read() as connection:
        for run in connection.execute(select(runs)):
            check_run(run)  # one whose time was damaged would be passed over
        made, ours = _made(connection, run_id), _arms(connection, [run_id]).get(run_id, {})
        sets, base = _sets(connection, [run_id]).get(run_id, {}), next(iter(ours), "")
        earlier = select(runs.c.run_id).where(runs.c.created_at < made, ~IS_TRIAL)
        earlier = earlier.where(runs.c.run_id.in_(select(evalsets.c.run_id).where(evalsets.c.name.in_(sets))))
        theirs, lists, judged = _arms(connection, earlier), _sets(connection, earlier), _judged(connection, earlier)
        several = _several(connection, run_id)
        found: dict[str, int] = {}
        known: dict[tuple[str, ...], int] = {}  # evalset, its content → answers where it grew into this run's, else 0
        for other, named in theirs.items():
            first = next(iter(named))
            looked_at = {named[name] for name in judged.get(other, ()) if name in named}
            looked = [name for name, arm in ours.items() if name != base and arm in looked_at]
            for name, content in lists.get(other, {}).items() if looked and named[first] == ours[base] else ():
                if name in sets and (several or content != sets[name]):
                    asked = (name, content, *([other] if several else []))  # of one content any number of repeats
                    if asked not in known:
                        known[asked] = _grew(connection, name, (other, first), (run_id, base))
                    if before := known[asked]:
                        found |= {variant: max(before, found.get(variant, 0)) for variant in looked}
        return found


def _made(connection: Connection, run_id: str) -> str:
    return connection.execute(select(runs.c.created_at).where(runs.c.run_id == run_id)).scalar_one()


def _several(connection: Connection, run_id: str) -> bool:
    """Whether it has more than one answer to a case."""
    return bool(
        connection.execute(select(func.coalesce(func.max(units.c.repeat), 0)).where(units.c.run_id == run_id)).scalar()
    )


def _judged(connection: Connection, ids: Runs) -> dict[str, set[str]]:
    """Run → its variants of which a test was asked."""
    found: dict[str, set[str]] = {}
    for row in connection.execute(select(verdicts).where(verdicts.c.run_id.in_(ids))):
        if check_verdict(row).word != "invalid":
            found.setdefault(row.run_id, set()).add(row.variant)
    return found


def _arms(connection: Connection, ids: Runs) -> dict[str, dict[str, Arm]]:
    """Run → its arms, the baseline first → what they are. IntegrityError where one is not what was recorded: without it
    nobody knows what was judged before."""
    found: dict[str, dict[str, Arm]] = {}
    for row in connection.execute(select(arms).where(arms.c.run_id.in_(ids)).order_by(arms.c.position)):
        check_arm(row)
        planned = read(ArmIdentity, row.planned_json)
        found.setdefault(row.run_id, {})[row.name] = tuple(getattr(planned, name) for name in SAME)
    return found


def _sets(connection: Connection, ids: Runs) -> dict[str, dict[str, str]]:
    """Run → its evalsets → the hash of their content."""
    found: dict[str, dict[str, str]] = {}
    asked = select(evalsets.c.run_id, evalsets.c.name, evalsets.c.sha256).where(evalsets.c.run_id.in_(ids))
    for row in connection.execute(asked):
        found.setdefault(row.run_id, {})[row.name] = row.sha256
    return found


def _grew(connection: Connection, evalset: str, before: tuple[str, str], now: tuple[str, str]) -> int:
    """Answers of the list before, where this one has them all and more. before, now: run and arm."""
    counted = select(func.count()).select_from(units)
    sizes = [connection.execute(counted.where(*_of(evalset, *one))).scalar_one() for one in (before, now)]
    if not 0 < sizes[0] < sizes[1]:
        return 0
    shorter, longer = (
        {(row.case_id, row.repeat, row.case_hash) for row in connection.execute(
            select(units.c.case_id, units.c.repeat, units.c.case_hash).where(*_of(evalset, *one)))}
        for one in (before, now)
    )  # fmt: skip
    return sizes[0] if shorter < longer else 0


def _of(evalset: str, run_id: str, arm: str) -> tuple:
    return units.c.run_id == run_id, units.c.arm == arm, units.c.evalset == evalset
