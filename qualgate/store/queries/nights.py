"""Nights of a gate file: each arm's scores since the approved run, and flaky cases."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sqlalchemy import Connection, and_, func, select

from qualgate.records.identity import content_hash
from qualgate.records.metrics import METRICS
from qualgate.store.database import Store
from qualgate.store.queries.newest import CURRENT_DECISION, CURRENT_VERDICT
from qualgate.store.queries.superseded import nights_until
from qualgate.store.scorings import newest_scoring, newest_sets
from qualgate.store.tables import runs, scores, units

STEPS = 10  # steps of a score between 0 and 1; scores of 0 or 1 alone have one
Unit = tuple[str, str, int, str]  # evalset, case, repeat, hash of the case and of its corrected reference


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """One metric of one arm, night by night. Night 0 is the run that the others are compared with."""

    arm: str
    metric: str
    run_ids: tuple[str, ...]
    began: tuple[str, ...]  # start of each run, UTC text
    means: tuple[float, ...]  # mean score over all answers
    values: tuple[tuple[int, ...], ...]  # [nights, clusters] sum of a cluster's scores in steps
    weight: int  # steps of a mean of 1
    approved_by: str  # a person's name; "the gate"; "" if nobody approved and night 0 is just the first
    other_cases: bool  # whether earlier nights with other cases or scorers are left out


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaky:
    """A case whose answers differ between nights although nothing else changed."""

    arm: str
    evalset: str
    case_id: str
    changed: int  # changes from one night to the next
    pairs: int  # compared pairs of nights


def watched(store: Store, run_id: str) -> tuple[Watched, ...]:
    """Return the nights from the last approved run to this run, for every arm and quality metric."""
    with store.read() as connection:
        nights = nights_until(connection, run_id)
        began = {row.run_id: row.created_at for row in connection.execute(select(runs.c.run_id, runs.c.created_at))}
        scored = {night: _scores(connection, night) for night in nights[-1:]}
        series = []
        for arm, metric in sorted(scored[run_id]) if nights else ():
            start, approver = approved(connection, nights, arm)
            since = nights[nights.index(start) :]
            for night in since:
                if night not in scored:
                    scored[night] = _scores(connection, night)
            comparable_count = _count_comparable([scored[night].get((arm, metric), {}) for night in since])
            comparable = since[len(since) - comparable_count :]
            values, weight, means = _values_in_steps([scored[night][arm, metric] for night in comparable])
            series.append(
                Watched(
                    arm=arm,
                    metric=metric,
                    run_ids=tuple(comparable),
                    began=tuple(began[night] for night in comparable),
                    means=means,
                    values=values,
                    weight=weight,
                    approved_by=approver if comparable[0] == start else "",
                    other_cases=len(comparable) < len(since),
                )
            )
        return tuple(series)


def approved(connection: Connection, nights: Sequence[str], arm: str) -> tuple[str, str]:
    """Return the run that an arm's nights are compared with, and who approved it: the newest that a person approved,
    else the first that the gate approved, else the first. With the gate's newest, slow falls would go unnoticed."""
    of_arm = () if arm == "baseline" else (CURRENT_VERDICT.c.variant == arm,)
    rows = connection.execute(
        select(
            CURRENT_VERDICT.c.run_id,
            CURRENT_VERDICT.c.word,
            func.coalesce(CURRENT_DECISION.c.action, "").label("action"),
            func.coalesce(CURRENT_DECISION.c.name, "").label("name"),
        )
        .outerjoin(
            CURRENT_DECISION,
            and_(
                CURRENT_DECISION.c.run_id == CURRENT_VERDICT.c.run_id,
                CURRENT_DECISION.c.variant == CURRENT_VERDICT.c.variant,
                CURRENT_DECISION.c.verdict_sha256 == CURRENT_VERDICT.c.sha256,
            ),
        )
        .where(CURRENT_VERDICT.c.run_id.in_(nights), *of_arm)
    ).all()
    people = {row.run_id: row.name for row in rows if row.action == "approve"}
    gate = {row.run_id for row in rows if row.word == "approve" and row.action != "block"}
    for night in reversed(nights):
        if night in people:
            return night, people[night]
    return next(((night, "the gate") for night in nights if night in gate), (nights[0], ""))


def _scores(connection: Connection, run_id: str) -> dict[tuple[str, str], dict[Unit, tuple[float, str, str]]]:
    """Return (arm, metric) → unit → (score, cluster, scorer). An answer without a score counts 0."""
    by_metric: dict[tuple[str, str], dict[Unit, tuple[float, str, str]]] = defaultdict(dict)
    rows = connection.execute(
        select(units.c.arm, units.c.evalset, units.c.case_id, units.c.repeat, units.c.case_hash, units.c.cluster,
               scores.c.metric, scores.c.value, scores.c.scorer)
        .join(scores, scores.c.unit_id == units.c.unit_id)
        .where(units.c.run_id == run_id, units.c.status == "done", units.c.arm.not_like("%@%"),
               scores.c.scoring == newest_scoring(connection, run_id))
    )  # fmt: skip
    sets = newest_sets(connection, run_id)
    for row in rows:
        if row.metric in METRICS and METRICS[row.metric].kind == "quality":
            reference = sets[row.evalset].references(row.case_id) if row.evalset in sets else None
            case_key = content_hash([row.case_hash, reference]) if reference else row.case_hash
            unit = row.evalset, row.case_id, row.repeat, case_key
            value = min(max(row.value if row.value is not None else 0.0, 0.0), 1.0)
            by_metric[row.arm, row.metric][unit] = value, row.cluster or row.case_id, row.scorer
    return by_metric


def _count_comparable(nights: Sequence[dict[Unit, tuple[float, str, str]]]) -> int:
    """Return how many of the newest nights asked the same cases with the same scorers."""
    questions = [{unit: score[1:] for unit, score in night.items()} for night in nights]
    return next((back for back, night in enumerate(reversed(questions)) if night != questions[-1]), len(questions))


def _values_in_steps(
    nights: Sequence[dict[Unit, tuple[float, str, str]]],
) -> tuple[tuple[tuple[int, ...], ...], int, tuple[float, ...]]:
    """Return values in steps, [nights, clusters]; the steps of a mean of 1; and means. Scores of 0 and 1 alone need
    one step."""
    steps = 1 if all(score[0] in (0.0, 1.0) for night in nights for score in night.values()) else STEPS
    clusters = {unit: (unit[0], score[1]) for unit, score in nights[0].items()}
    order = {cluster: index for index, cluster in enumerate(sorted(set(clusters.values())))}
    values = []
    for night in nights:
        reached = [0] * len(order)
        for unit, (value, _, _) in night.items():
            reached[order[clusters[unit]]] += round(value * steps)
        values.append(tuple(reached))
    means = tuple(sum(score[0] for score in night.values()) / len(night) for night in nights)
    return tuple(values), steps * len(clusters), means


_then, _now = units.alias("then"), units.alias("now")


def flaky(store: Store, run_id: str, most: int = 30) -> tuple[Flaky, ...]:
    """Return cases whose answers changed between neighbouring nights of one run key, among the newest `most` nights,
    the most frequent first."""
    with store.read() as connection:
        nights = nights_until(connection, run_id)[-most:]
        of_nights = select(runs.c.run_id, runs.c.plan_key).where(runs.c.run_id.in_(nights))
        keys = {row.run_id: row.plan_key for row in connection.execute(of_nights)}
        pairs = [(earlier, later) for earlier, later in pairwise(nights) if keys[earlier] == keys[later]]
        changed = Counter(case for pair in pairs for case in set(_changed_cases(connection, *pair)))
    ordered = sorted(changed.items(), key=lambda entry: (-entry[1], entry[0]))
    return tuple(
        Flaky(arm=arm, evalset=evalset, case_id=case_id, changed=count, pairs=len(pairs))
        for (arm, evalset, case_id), count in ordered
    )


def _changed_cases(connection: Connection, earlier: str, later: str) -> Iterator[tuple[str, str, str]]:
    """Yield (arm, evalset, case) of each answer whose text differs between two nights; a case comes once for each
    repeat. Witness and A/A arms are left out."""
    same_unit = and_(*(_then.c[name] == _now.c[name] for name in ("arm", "evalset", "case_id", "repeat", "case_hash")))
    rows = connection.execute(
        select(_now.c.arm, _now.c.evalset, _now.c.case_id)
        .select_from(_now.join(_then, same_unit))
        .where(_then.c.run_id == earlier, _now.c.run_id == later, _now.c.arm.not_like("%@%"),
               _then.c.text.is_distinct_from(_now.c.text))
    )  # fmt: skip
    for row in rows:
        yield row.arm, row.evalset, row.case_id
