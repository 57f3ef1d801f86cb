"""Find earlier judgements of a run's lists of answers: of several looks at one list the first decides."""

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

SAME = ("weights", "tokenizer", "template", "sampling")  # equal for arms that give the same answers

Arm = tuple[str, ...]
Sizes = tuple[int, int]  # answers of a list then and now
Runs = Sequence[str] | Select[tuple[str]]  # run ids, or a query of them


def judged_before(store: Store, run_id: str) -> dict[str, int]:
    """Return variant → answers of the largest list that another run judged it on before, if this run is another look.

    It is another look if its list of an evalset's answers contains the earlier list or is contained in it, or if the
    lists are equal and the test differs. Other cases are another list. A run that repeats the first look counts as that
    look. Looks are ordered by their verdicts, not by the start of their runs.
    """
    with store.read() as connection:
        policies = {}
        for run in connection.execute(select(runs)):
            check_run(run)  # a damaged row does not tell which cases the run asked
            policies[run.run_id] = run.policy_json
        ours, own = _arms(connection, [run_id]).get(run_id, {}), _judged(connection, [run_id]).get(run_id, {})
        sets, base = _sets(connection, [run_id]).get(run_id, {}), next(iter(ours), "")
        others = select(runs.c.run_id).where(runs.c.run_id != run_id, ~IS_TRIAL)
        others = others.where(runs.c.run_id.in_(select(evalsets.c.run_id).where(evalsets.c.name.in_(sets))))
        theirs, lists, judged = _arms(connection, others), _sets(connection, others), _judged(connection, others)
        several, test = _several(connection, run_id), plain.policy(policies[run_id]).test
        answers: dict[str, int] = {}
        first_again: set[str] = set()  # variants of which this run repeats the first look
        known: dict[tuple[str, ...], Sizes] = {}
        for other in sorted(judged, key=lambda run: min(judged[run].values())):
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
                list_key = (
                    name,
                    lists[other][name],
                    *([other] if several else []),
                )  # without repeats equal content means equal lists
                if list_key not in known:
                    known[list_key] = _sizes(connection, name, (other, next(iter(named))), (run_id, base))
                sizes.append(known[list_key])
            retested = plain.policy(policies[other]).test != test
            if before := max((then for then, now in sizes if then and (then != now or retested)), default=0):
                answers |= {name: max(before, answers.get(name, 0)) for name in looked}
            elif sizes and all(then for then, _ in sizes) and lists[other].keys() == sets.keys():
                first_again |= {*looked} - answers.keys()
        return answers


def _several(connection: Connection, run_id: str) -> bool:
    return bool(
        connection.execute(select(func.coalesce(func.max(units.c.repeat), 0)).where(units.c.run_id == run_id)).scalar()
    )


def _judged(connection: Connection, ids: Runs) -> dict[str, dict[str, int]]:
    """Return run → variant → number of its first valid verdict."""
    by_run: dict[str, dict[str, int]] = {}
    for row in connection.execute(select(verdicts).where(verdicts.c.run_id.in_(ids)).order_by(verdicts.c.verdict_id)):
        if check_verdict(row).word != "invalid":
            by_run.setdefault(row.run_id, {}).setdefault(row.variant, row.verdict_id)
    return by_run


def _arms(connection: Connection, ids: Runs) -> dict[str, dict[str, Arm]]:
    """Return run → arm, the baseline first → its identity. Raises IntegrityError for a changed arm, since its earlier
    judgements could not be found."""
    by_run: dict[str, dict[str, Arm]] = {}
    for row in connection.execute(select(arms).where(arms.c.run_id.in_(ids)).order_by(arms.c.position)):
        check_arm(row)
        planned = read(ArmIdentity, row.planned_json)
        by_run.setdefault(row.run_id, {})[row.name] = tuple(getattr(planned, name) for name in SAME)
    return by_run


def _sets(connection: Connection, ids: Runs) -> dict[str, dict[str, str]]:
    by_run: dict[str, dict[str, str]] = {}
    statement = select(evalsets.c.run_id, evalsets.c.name, evalsets.c.sha256).where(evalsets.c.run_id.in_(ids))
    for row in connection.execute(statement):
        by_run.setdefault(row.run_id, {})[row.name] = row.sha256
    return by_run


def _sizes(connection: Connection, evalset: str, then: tuple[str, str], now: tuple[str, str]) -> Sizes:
    """Return the sizes of two lists if one contains the other, else (0, 0). then, now: run and arm."""
    earlier, later = (
        {(row.case_id, row.repeat, row.case_hash) for row in connection.execute(
            select(units.c.case_id, units.c.repeat, units.c.case_hash).where(*_of(evalset, *side)))}
        for side in (then, now)
    )  # fmt: skip
    nested = earlier and later and (earlier <= later or later <= earlier)
    return (len(earlier), len(later)) if nested else (0, 0)


def _of(evalset: str, run_id: str, arm: str) -> tuple:
    return units.c.run_id == run_id, units.c.arm == arm, units.c.evalset == evalset
