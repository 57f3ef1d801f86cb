"""Lists that were judged, when they held less or more, or by another test: the first of several looks decides."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from sqlalchemy import Connection, Select, func, select

from qualgate.records import ArmIdentity
from qualgate.store import plain
from qualgate.store.database import Store
from qualgate.store.queries.trials import IS_TRIAL
from qualgate.store.rows import check_arm, check_run, check_verdict
from qualgate.store.tables import arms, evalsets, runs, units, verdicts
from qualgate.store.typed import read

SAME = ("weights", "tokenizer", "template", "sampling")  # of two arms that give the same answers to the same cases

Arm = tuple[str, ...]
Sizes = tuple[int, int]  # answers of a list then and now
Runs = Sequence[str] | Select[tuple[str]]  # which: their ids, or what asks for them


def judged_before(store: Store, run_id: str) -> dict[str, int]:
    """Variant → answers of the largest list that another run of this store judged it on before, where this run is
    another look: it has every answer of an evalset's cases as they were and more, or some of them and no others, or the
    same and another test. Other cases are another list. A run that repeats the first look is that look, whatever came
    between. Looks come in the order of their verdicts: a run may begin before another one and be judged after it.
    """
    with store.read() as connection:
        policies = {}
        for run in connection.execute(select(runs)):
            check_run(run)  # what it asked is not known where its row is damaged
            policies[run.run_id] = run.policy_json
        ours, own = _arms(connection, [run_id]).get(run_id, {}), _judged(connection, [run_id]).get(run_id, {})
        sets, base = _sets(connection, [run_id]).get(run_id, {}), next(iter(ours), "")
        others = select(runs.c.run_id).where(runs.c.run_id != run_id, ~IS_TRIAL)
        others = others.where(runs.c.run_id.in_(select(evalsets.c.run_id).where(evalsets.c.name.in_(sets))))
        theirs, lists, judged = _arms(connection, others), _sets(connection, others), _judged(connection, others)
        several, test = _several(connection, run_id), plain.policy(policies[run_id]).test
        found: dict[str, int] = {}
        first_again: set[str] = set()  # variants of which this run repeats the first look
        known: dict[tuple[str, ...], Sizes] = {}
        for other in sorted(judged, key=lambda one: min(judged[one].values())):
            named = theirs.get(other, {})
            looked_at = {named[name]: place for name, place in judged[other].items() if name in named}
            looked = [
                name for name, arm in ours.items()
                if name not in {base, *first_again} and looked_at.get(arm, inf) < own.get(name, inf)
            ]  # fmt: skip
            if not looked or next(iter(named.values())) != ours[base]:
                continue
            sizes = []
            for name in lists.get(other, {}).keys() & sets.keys():
                asked = (name, lists[other][name], *([other] if several else []))  # of one content any repeats
                if asked not in known:
                    known[asked] = _sizes(connection, name, (other, next(iter(named))), (run_id, base))
                sizes.append(known[asked])
            retested = plain.policy(policies[other]).test != test
            if before := max((then for then, now in sizes if then and (then != now or retested)), default=0):
                found |= {name: max(before, found.get(name, 0)) for name in looked}
            elif sizes and all(then for then, _ in sizes) and lists[other].keys() == sets.keys():
                first_again |= {*looked} - found.keys()
        return found


def _several(connection: Connection, run_id: str) -> bool:
    """Whether it has more than one answer to a case."""
    return bool(
        connection.execute(select(func.coalesce(func.max(units.c.repeat), 0)).where(units.c.run_id == run_id)).scalar()
    )


def _judged(connection: Connection, ids: Runs) -> dict[str, dict[str, int]]:
    """Run → its variants of which a test was asked → the place of the first verdict among all."""
    found: dict[str, dict[str, int]] = {}
    for row in connection.execute(select(verdicts).where(verdicts.c.run_id.in_(ids)).order_by(verdicts.c.verdict_id)):
        if check_verdict(row).word != "invalid":
            found.setdefault(row.run_id, {}).setdefault(row.variant, row.verdict_id)
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


def _sizes(connection: Connection, evalset: str, then: tuple[str, str], now: tuple[str, str]) -> Sizes:
    """Answers of two lists of which one holds all of the other; (0, 0) of lists that do not. then, now: run and arm."""
    earlier, later = (
        {(row.case_id, row.repeat, row.case_hash) for row in connection.execute(
            select(units.c.case_id, units.c.repeat, units.c.case_hash).where(*_of(evalset, *one)))}
        for one in (then, now)
    )  # fmt: skip
    nested = earlier and later and (earlier <= later or later <= earlier)
    return (len(earlier), len(later)) if nested else (0, 0)


def _of(evalset: str, run_id: str, arm: str) -> tuple:
    return units.c.run_id == run_id, units.c.arm == arm, units.c.evalset == evalset
