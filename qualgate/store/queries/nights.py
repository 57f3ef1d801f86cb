"""The nights of a gate file side by side: each arm's scores since the run that was approved, and flaky cases."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sqlalchemy import Connection, and_, func, select

from qualgate.identity import content_hash
from qualgate.metrics import METRICS
from qualgate.store.database import Store
from qualgate.store.queries.newest import CURRENT_DECISION, CURRENT_VERDICT
from qualgate.store.queries.superseded import nights_until
from qualgate.store.scorings import newest_scoring, newest_sets
from qualgate.store.tables import runs, scores, units

STEPS = 10  # of a score between 0 and 1; those that are 0 or 1 alone have one
Unit = tuple[str, str, int, str]  # evalset, case, repeat, hash of the case and of its corrected reference


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """One metric of one arm, night by night. Night 0 is the run that the others are held against."""

    arm: str
    metric: str
    run_ids: tuple[str, ...]
    began: tuple[str, ...]  # when each run did, UTC text
    means: tuple[float, ...]  # of the score over all answers
    values: tuple[tuple[int, ...], ...]  # [nights, clusters] steps that a cluster's answers reached together
    weight: int  # steps of a mean of 1
    approved_by: str  # a person's name; "the gate"; "" where nobody approved, and night 0 is only the first
    other_cases: bool  # earlier nights asked other cases, or scored otherwise, and are left out


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaky:
    """A case whose answers differ between nights on which nothing else did."""

    arm: str
    evalset: str
    case_id: str
    changed: int  # times that an answer was another than on the night before
    pairs: int  # how many times it could have been


def watched(store: Store, run_id: str) -> tuple[Watched, ...]:
    """Of every arm and quality metric of this run, the nights up to it since the last approved run."""
    with store.read() as connection:
        nights = nights_until(connection, run_id)
        began = {row.run_id: row.created_at for row in connection.execute(select(runs.c.run_id, runs.c.created_at))}
        said = {night: _scores(connection, night) for night in nights[-1:]}
        found = []
        for arm, metric in sorted(said[run_id]) if nights else ():
            first, by = approved(connection, nights, arm)
            since = nights[nights.index(first) :]
            for night in since:
                if night not in said:
                    said[night] = _scores(connection, night)
            alike = _alike([said[night].get((arm, metric), {}) for night in since])
            kept = since[len(since) - alike :]
            values, weight, means = _side_by_side([said[night][arm, metric] for night in kept])
            found.append(
                Watched(
                    arm=arm,
                    metric=metric,
                    run_ids=tuple(kept),
                    began=tuple(began[night] for night in kept),
                    means=means,
                    values=values,
                    weight=weight,
                    approved_by=by if kept[0] == first else "",
                    other_cases=len(kept) < len(since),
                )
            )
        return tuple(found)


def approved(connection: Connection, nights: Sequence[str], arm: str) -> tuple[str, str]:
    """The run that an arm's nights are held against, and who approved it: the newest that a person did, else the first
    that the gate did, else the first. Not the newest of the gate's: what falls a little every night would pass."""
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
    """(arm, metric) → unit → score, cluster, scorer. What nobody could score is 0."""
    found: dict[tuple[str, str], dict[Unit, tuple[float, str, str]]] = defaultdict(dict)
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
            asked = content_hash([row.case_hash, reference]) if reference else row.case_hash
            unit = row.evalset, row.case_id, row.repeat, asked
            value = min(max(row.value if row.value is not None else 0.0, 0.0), 1.0)
            found[row.arm, row.metric][unit] = value, row.cluster or row.case_id, row.scorer
    return found


def _alike(nights: Sequence[dict[Unit, tuple[float, str, str]]]) -> int:
    """How many of the newest nights asked the same cases and scored them alike."""
    asked = [{unit: said[1:] for unit, said in night.items()} for night in nights]
    return next((back for back, one in enumerate(reversed(asked)) if one != asked[-1]), len(asked))


def _side_by_side(
    nights: Sequence[dict[Unit, tuple[float, str, str]]],
) -> tuple[tuple[tuple[int, ...], ...], int, tuple[float, ...]]:
    """Values in steps, [nights, clusters]; how many steps a mean of 1 is made of; means."""
    steps = 1 if all(said[0] in (0.0, 1.0) for night in nights for said in night.values()) else STEPS
    clusters = {unit: (unit[0], said[1]) for unit, said in nights[0].items()}
    order = {cluster: place for place, cluster in enumerate(sorted(set(clusters.values())))}
    values = []
    for night in nights:
        reached = [0] * len(order)
        for unit, (value, _, _) in night.items():
            reached[order[clusters[unit]]] += round(value * steps)
        values.append(tuple(reached))
    means = tuple(sum(said[0] for said in night.values()) / len(night) for night in nights)
    return tuple(values), steps * len(clusters), means


_then, _now = units.alias("then"), units.alias("now")


def flaky(store: Store, run_id: str, most: int = 30) -> tuple[Flaky, ...]:
    """Cases whose answers changed between neighbouring nights of one run key, of the newest `most` nights: the oftenest
    first."""
    with store.read() as connection:
        nights = nights_until(connection, run_id)[-most:]
        of_nights = select(runs.c.run_id, runs.c.plan_key).where(runs.c.run_id.in_(nights))
        keys = {row.run_id: row.plan_key for row in connection.execute(of_nights)}
        pairs = [(then, now) for then, now in pairwise(nights) if keys[then] == keys[now]]
        changed = Counter(one for pair in pairs for one in set(_changed(connection, *pair)))
    ordered = sorted(changed.items(), key=lambda one: (-one[1], one[0]))
    return tuple(
        Flaky(arm=arm, evalset=evalset, case_id=case_id, changed=count, pairs=len(pairs))
        for (arm, evalset, case_id), count in ordered
    )


def _changed(connection: Connection, then: str, now: str) -> Iterator[tuple[str, str, str]]:
    same = and_(*(_then.c[name] == _now.c[name] for name in ("arm", "evalset", "case_id", "repeat", "case_hash")))
    rows = connection.execute(
        select(_now.c.arm, _now.c.evalset, _now.c.case_id)
        .select_from(_now.join(_then, same))
        .where(_then.c.run_id == then, _now.c.run_id == now, _now.c.arm.not_like("%@%"),
               _then.c.text.is_distinct_from(_now.c.text))
    )  # fmt: skip
    for row in rows:
        yield row.arm, row.evalset, row.case_id
