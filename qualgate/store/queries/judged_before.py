"""Find earlier judgements of a run's lists of answers: of several looks at one list the first decides."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from sqlalchemy import Connection, Select, func, select

from qualgate.records import ArmIdentity
from qualgate.store import plain
from qualgate.store.database import Store
from qualgate.store.queries.deciding import DECIDES
from qualgate.store.rows import check_arm, check_run, check_verdict
from qualgate.store.tables import arms, evalsets, runs, units, verdicts
from qualgate.store.typed import read

SAME = ("weights", "tokenizer", "template", "sampling")  # equal for arms that give the same answers

Arm = tuple[str, ...]
Sizes = tuple[int, int]  # answers of a list in the earlier and the later run
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
        run_arms = _arms(connection, [run_id]).get(run_id, {})
        own_looks = _first_verdicts(connection, [run_id]).get(run_id, {})
        sets, baseline = _sets(connection, [run_id]).get(run_id, {}), next(iter(run_arms), "")
        other_runs = select(runs.c.run_id).where(runs.c.run_id != run_id, DECIDES)
        other_runs = other_runs.where(runs.c.run_id.in_(select(evalsets.c.run_id).where(evalsets.c.name.in_(sets))))
        arms_of_runs, sets_of_runs = _arms(connection, other_runs), _sets(connection, other_runs)
        looks_of_runs = _first_verdicts(connection, other_runs)
        has_repeats, test = _has_repeats(connection, run_id), plain.policy(policies[run_id]).test
        answers: dict[str, int] = {}
        repeats_first: set[str] = set()  # variants of which this run repeats the first look
        sizes_by_list: dict[tuple[str, ...], Sizes] = {}
        for other_run in sorted(looks_of_runs, key=lambda run: min(looks_of_runs[run].values())):
            other_arms = arms_of_runs.get(other_run, {})
            earlier_looks = {
                other_arms[name]: number for name, number in looks_of_runs[other_run].items() if name in other_arms
            }
            looked = [
                name for name, arm in run_arms.items()
                if name not in {baseline, *repeats_first} and earlier_looks.get(arm, inf) < own_looks.get(name, inf)
            ]  # fmt: skip
            if not looked or next(iter(other_arms.values())) != run_arms[baseline]:
                continue
            sizes = []
            for name in sets_of_runs.get(other_run, {}).keys() & sets.keys():
                # Without repeats equal content means equal lists.
                list_key = (name, sets_of_runs[other_run][name], *([other_run] if has_repeats else []))
                if list_key not in sizes_by_list:
                    sizes_by_list[list_key] = _list_sizes(
                        connection, name, (other_run, next(iter(other_arms))), (run_id, baseline)
                    )
                sizes.append(sizes_by_list[list_key])
            has_other_test = plain.policy(policies[other_run]).test != test
            other_looks = [earlier for earlier, later in sizes if earlier and (earlier != later or has_other_test)]
            if other_looks:
                largest = max(other_looks)
                answers |= {name: max(largest, answers.get(name, 0)) for name in looked}
            elif sizes and all(earlier for earlier, _ in sizes) and sets_of_runs[other_run].keys() == sets.keys():
                repeats_first |= {*looked} - answers.keys()
        return answers


def _has_repeats(connection: Connection, run_id: str) -> bool:
    """Whether the run asked any case more than once."""
    return bool(
        connection.execute(select(func.coalesce(func.max(units.c.repeat), 0)).where(units.c.run_id == run_id)).scalar()
    )


def _first_verdicts(connection: Connection, ids: Runs) -> dict[str, dict[str, int]]:
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
    """Return run → evalset → hash of its content."""
    by_run: dict[str, dict[str, str]] = {}
    statement = select(evalsets.c.run_id, evalsets.c.name, evalsets.c.sha256).where(evalsets.c.run_id.in_(ids))
    for row in connection.execute(statement):
        by_run.setdefault(row.run_id, {})[row.name] = row.sha256
    return by_run


def _list_sizes(
    connection: Connection, evalset: str, earlier_arm: tuple[str, str], later_arm: tuple[str, str]
) -> Sizes:
    """Return the sizes of two lists if one contains the other, else (0, 0). earlier_arm, later_arm: run and arm."""
    earlier, later = (
        {(row.case_id, row.repeat, row.case_hash) for row in connection.execute(
            select(units.c.case_id, units.c.repeat, units.c.case_hash).where(*_of(evalset, *side)))}
        for side in (earlier_arm, later_arm)
    )  # fmt: skip
    nested = earlier and later and (earlier <= later or later <= earlier)
    return (len(earlier), len(later)) if nested else (0, 0)


def _of(evalset: str, run_id: str, arm: str) -> tuple:
    return units.c.run_id == run_id, units.c.arm == arm, units.c.evalset == evalset
