"""Writing a run and reading back its evidence.

Work is done at least once, its effect is recorded exactly once: one transaction a job, insert if absent, a repetition
that says something else is refused.
"""

from __future__ import annotations

import json
import secrets
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Row, bindparam, func, insert, select, tuple_, update

from qualgate.errors import IntegrityError, UsageError
from qualgate.identity import content_hash
from qualgate.records import (
    ArmEvidence,
    ArmFootprint,
    ArmIdentity,
    Case,
    Completion,
    Drift,
    JobFailure,
    JobResult,
    Plan,
    Policy,
    RunEvidence,
    Score,
    UnitEvidence,
    UnitKey,
    Verdict,
)
from qualgate.store import plain, seal, tables
from qualgate.store.database import Store
from qualgate.store.tables import arms, cases, evalsets, scores, units, verdicts

AnyRow = Row[*tuple[Any, ...]]
KEY = (units.c.arm, units.c.evalset, units.c.case_id, units.c.repeat)
SCORE = (  # ordered as the digest takes them
    scores.c.metric,
    scores.c.value,
    scores.c.verdict,
    scores.c.error_type,
    scores.c.extracted,
    scores.c.reason,
    scores.c.scorer,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    run_id: str
    done: frozenset[UnitKey]
    resumed: bool


def now() -> str:
    """UTC, as the store writes it."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


# ------------------------------------------------------------------------------------------------------- beginning


def begin(store: Store, plan: Plan) -> RunRecord:
    """Resume the unfinished run of this plan, or write a new one with its closed list of units.

    A run that finished complete is never continued. One whose jobs failed is: its failed units run again.
    """
    with store.write() as connection:
        found = connection.execute(
            select(tables.runs.c.run_id)
            .where(tables.runs.c.plan_key == plan.key, tables.runs.c.status != "complete")
            .order_by(tables.runs.c.created_at.desc())
        ).scalar()
        if found is None:
            return RunRecord(run_id=_begin_new(connection, plan), done=frozenset(), resumed=False)
        return RunRecord(run_id=found, done=_resume(connection, found, plan), resumed=True)


def _begin_new(connection: Connection, plan: Plan) -> str:
    run_id = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
    known = {(item.name, case.id): case for item in plan.evalsets for case in item.cases}
    sets = [
        {
            "run_id": run_id,
            "position": position,
            "name": item.name,
            "version": item.version,
            "sha256": item.sha256,
            "metrics_json": plain.to_json(item.metrics),
            "lenient_json": plain.to_json(item.lenient),
            "normalizers_json": plain.to_json(item.normalizers),
            "description": item.description,
        }
        for position, item in enumerate(plan.evalsets)
    ]
    expected = [
        {
            "run_id": run_id,
            "arm": prompt.key.arm,
            "evalset": prompt.key.evalset,
            "case_id": prompt.key.case_id,
            "repeat": prompt.key.repeat,
            "case_hash": prompt.case_hash,
            "cluster": known[prompt.key.evalset, prompt.key.case_id].cluster,
            "status": "pending",
            "attempts": 0,
            "error": "",
        }
        for job in plan.jobs
        for prompt in job.prompts
    ]
    connection.execute(
        insert(tables.runs),
        {
            "run_id": run_id,
            "plan_key": plan.key,
            "status": "running",
            "created_at": now(),
            "gate_file": plan.gate_file,
            "policy_json": plain.to_json(plan.policy),
            "expected_sha256": _expected_digest(
                [(item["name"], item["sha256"], item["metrics_json"]) for item in sets],
                [tuple(unit[name] for name in EXPECTED) for unit in expected],
            ),
        },
    )
    connection.execute(insert(evalsets), sets)
    connection.execute(
        insert(arms),
        [
            {
                "run_id": run_id,
                "position": position,
                "name": arm.name,
                "spec_json": plain.to_json(arm),
                "planned_json": plain.to_json(plan.identities[arm.name]),
            }
            for position, arm in enumerate(plan.arms)
        ],
    )
    _add_cases(connection, known.values())
    connection.execute(insert(units), expected)
    return run_id


EXPECTED = ("arm", "evalset", "case_id", "repeat", "case_hash", "cluster")


def _expected_digest(sets: Iterable[Sequence[Any]], expected: Iterable[Sequence[Any]]) -> str:
    """Over what was promised before generation: nothing can later be dropped from the list or added to it."""
    ordered = sorted(map(tuple, expected), key=lambda unit: unit[:4])
    return content_hash([sorted(map(list, sets)), [list(unit) for unit in ordered]])


def _add_cases(connection: Connection, new: Iterable[Case]) -> None:
    """Cases are kept once, by content, however many runs use them."""
    bodies = {case.hash: plain.to_json(case.body) for case in new}
    known: set[str] = set()
    hashes = list(bodies)
    for start in range(0, len(hashes), 500):  # databases bound the number of parameters
        found = select(cases.c.case_hash).where(cases.c.case_hash.in_(hashes[start : start + 500]))
        known.update(connection.execute(found).scalars())
    fresh = [{"case_hash": name, "body_json": body} for name, body in bodies.items() if name not in known]
    if fresh:
        connection.execute(insert(cases), fresh)


def _resume(connection: Connection, run_id: str, plan: Plan) -> frozenset[UnitKey]:
    # The policy and the models' paths are not in the key: they may have changed since the run was begun.
    connection.execute(
        update(tables.runs)
        .where(tables.runs.c.run_id == run_id)
        .values(
            status="running",
            finished_at=None,
            gate_file=plan.gate_file,
            policy_json=plain.to_json(plan.policy),
        )
    )
    for arm in plan.arms:
        connection.execute(
            update(arms).where(arms.c.run_id == run_id, arms.c.name == arm.name).values(spec_json=plain.to_json(arm))
        )
    rows = connection.execute(select(*KEY, units.c.status).where(units.c.run_id == run_id)).all()
    if {UnitKey(*row[:4]) for row in rows} != set(plan.expected):
        raise IntegrityError(
            f"run {run_id} has this plan's key but not its list of units; the store was changed. "
            "Restore it from a backup, or give another --store."
        )
    return frozenset(UnitKey(*row[:4]) for row in rows if row.status == "done")


# ------------------------------------------------------------------------------------------------------- recording


def record(store: Store, run_id: str, result: JobResult, scored: dict[UnitKey, tuple[Score, ...]]) -> None:
    """Record one job's completions with their scores, all or none.

    Recording the same answers again changes nothing; the first measurements stay. Raises IntegrityError for a unit
    that was not planned, for another answer to the same unit, and for weights that are not the planned ones.
    """
    drifts = {drift.key: drift for drift in result.drifts}
    with store.write() as connection:
        _see_arm(connection, run_id, result.arm, result.identity, result.footprint)
        planned = _units(connection, run_id, result.arm, [completion.key for completion in result.completions])
        new, new_scores = [], []
        for completion in result.completions:
            unit = planned.get(completion.key)
            if unit is None or unit.case_hash != completion.case_hash:
                raise IntegrityError(f"{_name(completion.key)} is not in the plan of run {run_id}; nothing was stored.")
            said = _score_rows(completion.key, scored.get(completion.key, ()))
            row = _unit_row(completion, drifts.get(completion.key), said)
            if unit.status == "done":
                if unit.answer_sha256 != row["answer_sha256"]:
                    raise IntegrityError(
                        f"{_name(completion.key)} was run twice with different answers or scores. Something changed "
                        "during the run (weights, thread count, scorers); begin a new run in another store."
                    )
                continue
            new.append({"id": unit.unit_id, **row})
            new_scores += [{"unit_id": unit.unit_id, **_named(score)} for score in said]
        if new:
            columns = {name: bindparam(name) for name in new[0] if name != "id"}
            statement = update(units).where(units.c.unit_id == bindparam("id"))
            connection.execute(statement.values(**columns, status="done", error="", attempts=units.c.attempts + 1), new)
        if new_scores:
            connection.execute(insert(scores), new_scores)


def record_failure(store: Store, run_id: str, failure: JobFailure) -> None:
    """Mark the job's units as errors. They are tried again when the run is resumed; done units stay done."""
    with store.write() as connection:
        planned = _units(connection, run_id, failure.arm, failure.keys)
        for key in failure.keys:
            if key not in planned:
                raise IntegrityError(f"{_name(key)} is not in the plan of run {run_id}; nothing was stored.")
        failed = [{"id": unit.unit_id} for unit in planned.values() if unit.status != "done"]
        if failed:
            connection.execute(
                update(units)
                .where(units.c.unit_id == bindparam("id"))
                .values(status="error", error=plain.storable(failure.error), attempts=units.c.attempts + 1),
                failed,
            )


def _see_arm(connection: Connection, run_id: str, name: str, identity: ArmIdentity, footprint: ArmFootprint) -> None:
    here = (arms.c.run_id == run_id, arms.c.name == name)
    arm = connection.execute(select(arms.c.planned_json, arms.c.observed_json).where(*here)).one_or_none()
    if arm is None:
        raise IntegrityError(f"run {run_id} has no arm {name!r}; nothing was stored.")
    for when, text in (("planned", arm.planned_json), ("loaded earlier in this run", arm.observed_json)):
        other = plain.identity(text)
        if other is not None and other != identity:
            fields = [
                field for field in identity.__dataclass_fields__ if getattr(identity, field) != getattr(other, field)
            ]
            raise IntegrityError(
                f"arm {name!r}: {', '.join(fields)} differ from what was {when}. The model changed during the run; "
                "run again with files that stay as they are."
            )
    if arm.observed_json is None:
        values = {"observed_json": plain.to_json(identity), "footprint_json": plain.to_json(footprint)}
        connection.execute(update(arms).where(*here).values(**values))


def _units(connection: Connection, run_id: str, arm: str, keys: Iterable[UnitKey]) -> dict[UnitKey, AnyRow]:
    wanted = [(key.evalset, key.case_id, key.repeat) for key in keys if key.arm == arm]
    found: dict[UnitKey, AnyRow] = {}
    for start in range(0, len(wanted), 200):
        rows = connection.execute(
            select(*KEY, units.c.unit_id, units.c.case_hash, units.c.status, units.c.answer_sha256).where(
                units.c.run_id == run_id,
                units.c.arm == arm,
                tuple_(units.c.evalset, units.c.case_id, units.c.repeat).in_(wanted[start : start + 200]),
            )
        )
        found.update((UnitKey(*row[:4]), row) for row in rows)
    return found


def _unit_row(completion: Completion, drift: Drift | None, said: Sequence[Sequence[Any]]) -> dict[str, Any]:
    row: dict[str, Any] = {
        "text": plain.storable(completion.text),
        "finish_reason": completion.finish_reason,
        "prompt_tokens": completion.prompt_tokens,
        "answer_tokens": len(completion.token_ids),
        "ttft": float(completion.ttft),
        "e2e": float(completion.e2e),
        "draft_proposed": completion.draft_proposed,
        "draft_accepted": completion.draft_accepted,
        "top1_agreement": None if drift is None else float(drift.top1_agreement),
        "first_divergence": None if drift is None else drift.first_divergence,
        "length_ratio": None if drift is None or drift.length_ratio is None else float(drift.length_ratio),
        "token_ids": seal.pack_ints(completion.token_ids),
        "logprobs": seal.pack_floats(completion.logprobs),
        "margins": seal.pack_floats(completion.margins),
        "kl": seal.pack_floats(drift.kl if drift is not None else ()),
    }
    key = completion.key
    head = (key.arm, key.evalset, key.case_id, key.repeat, completion.case_hash, completion.finish_reason)
    text = row["text"].encode("utf-8")
    row["answer_sha256"] = seal.digest((*head, *said), text, row["token_ids"])
    row["sha256"] = seal.digest(
        (*head, *(row[name] for name in MEASURED), *said), text, row["token_ids"], *(row[name] for name in ARRAYS)
    )
    return row


MEASURED = (
    "prompt_tokens",
    "answer_tokens",
    "ttft",
    "e2e",
    "draft_proposed",
    "draft_accepted",
    "top1_agreement",
    "first_divergence",
    "length_ratio",
)
ARRAYS = ("logprobs", "margins", "kl")


def _score_rows(key: UnitKey, given: Iterable[Score]) -> list[tuple[Any, ...]]:
    """The columns of SCORE, ordered by metric."""
    rows = []
    for score in sorted(given, key=lambda score: score.metric):
        value = None if score.value is None else float(score.value)
        if value is not None and value - value != 0:  # a database may keep NaN as NULL, and then it would say nothing
            raise IntegrityError(f"{_name(key)}: {score.metric} is {value}, not a number; nothing was stored.")
        extracted = None if score.extracted is None else plain.storable(score.extracted)
        rows.append(
            (
                score.metric,
                value,
                score.verdict,
                score.error_type,
                extracted,
                plain.storable(score.reason),
                score.scorer,
            )
        )
    return rows


def _named(score: Sequence[Any]) -> dict[str, Any]:
    return {column.name: value for column, value in zip(SCORE, score, strict=True)}


def _name(key: UnitKey) -> str:
    repeat = f" repeat {key.repeat}" if key.repeat else ""
    return f"{key.arm}: {key.evalset}/{key.case_id}{repeat}"


# ------------------------------------------------------------------------------------------------------- finishing


def finish(store: Store, run_id: str, decided: Iterable[Verdict], complete: bool) -> None:
    """Close the run with its verdicts. `complete`: every job ran; a run with a unit left undone is never complete."""
    with store.write() as connection:
        undone = connection.execute(
            select(func.count()).where(units.c.run_id == run_id, units.c.status != "done")
        ).scalar_one()
        status = "complete" if complete and not undone else "incomplete"
        connection.execute(
            update(tables.runs).where(tables.runs.c.run_id == run_id).values(status=status, finished_at=now())
        )
        _add_verdicts(connection, run_id, decided, _policy_json(connection, run_id))


def add_verdicts(store: Store, run_id: str, decided: Iterable[Verdict], policy: Policy) -> None:
    """A later decision about stored evidence, perhaps by another policy. The newest verdict counts."""
    with store.write() as connection:
        _policy_json(connection, run_id)
        _add_verdicts(connection, run_id, decided, plain.to_json(policy))


def policy(store: Store, run_id: str) -> Policy:
    """The policy the run was made with."""
    with store.read() as connection:
        return plain.policy(_policy_json(connection, run_id))


def _policy_json(connection: Connection, run_id: str) -> str:
    found = connection.execute(select(tables.runs.c.policy_json).where(tables.runs.c.run_id == run_id)).scalar()
    if found is None:
        raise UsageError(f"no run {run_id!r} in this store. The dashboard and `qualgate report` list what there is.")
    return found


def _add_verdicts(connection: Connection, run_id: str, decided: Iterable[Verdict], policy_json: str) -> None:
    for verdict in decided:
        body = plain.to_json(verdict)
        digest = verdict_digest(run_id, policy_json, body)
        newest = connection.execute(
            select(verdicts.c.sha256)
            .where(verdicts.c.run_id == run_id, verdicts.c.variant == verdict.variant)
            .order_by(verdicts.c.verdict_id.desc())
            .limit(1)
        ).scalar()
        if newest == digest:  # deciding again says the same: a person's decision about it still stands
            continue
        connection.execute(
            insert(verdicts),
            {
                "run_id": run_id,
                "variant": verdict.variant,
                "word": verdict.word,
                "created_at": now(),
                "policy_json": policy_json,
                "policy_sha256": content_hash(policy_json),
                "body_json": body,
                "sha256": digest,
            },
        )


def verdict_digest(run_id: str, policy_json: str, body_json: str) -> str:
    return content_hash([run_id, policy_json, body_json])


# --------------------------------------------------------------------------------------------------------- reading


def evidence(store: Store, run_id: str) -> RunEvidence:
    """Everything a verdict may rest on, each digest recomputed from the columns it covers.

    Plain column selects: 14,000 units with their scores are read and checked in well under a second.
    """
    with store.read() as connection:
        promised = connection.execute(
            select(tables.runs.c.expected_sha256).where(tables.runs.c.run_id == run_id)
        ).scalar()
        if promised is None:
            _policy_json(connection, run_id)
        sets = connection.execute(
            select(evalsets.c.name, evalsets.c.sha256, evalsets.c.metrics_json)
            .where(evalsets.c.run_id == run_id)
            .order_by(evalsets.c.position)
        ).all()
        arm_rows = connection.execute(
            select(arms.c.name, arms.c.observed_json).where(arms.c.run_id == run_id).order_by(arms.c.position)
        ).all()
        scored = _scores_by_unit(connection, run_id)
        found = connection.execute(_EVIDENCE.where(units.c.run_id == run_id)).all()
    integrity = []
    if promised != _expected_digest(sets, [(*row[:4], row.case_hash, row.cluster) for row in found]):
        integrity.append("the list of expected units or evalsets is not the one written before generation")
    by_arm: dict[str, list[UnitEvidence]] = defaultdict(list)
    for row in found:
        if row.status == "pending":
            continue
        said = scored.get(row.unit_id, ())
        key = UnitKey(*row[:4])
        if row.status == "done" and not _intact(row, said):
            integrity.append(f"{_name(key)}: the stored answer or its scores are not what was recorded")
            continue
        by_arm[key.arm].append(_unit_evidence(key, row, said))
    seen = tuple(
        ArmEvidence(name=name, identity=plain.identity(observed), units=tuple(by_arm[name]))
        for name, observed in arm_rows
    )
    return RunEvidence(
        run_id=run_id,
        expected=tuple(UnitKey(*row[:4]) for row in found),
        metrics={row.name: tuple(json.loads(row.metrics_json)) for row in sets},
        baseline=seen[0],
        variants=seen[1:],
        integrity=tuple(integrity),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCompletion:
    """One arm's answer to one case, as a report quotes it."""

    key: UnitKey
    text: str
    finish_reason: str
    scores: tuple[Score, ...]


def completions(store: Store, run_id: str, arm: str) -> tuple[StoredCompletion, ...]:
    """One arm's answers, ordered by unit."""
    with store.read() as connection:
        scored = _scores_by_unit(connection, run_id, arm)
        rows = connection.execute(
            select(*KEY, units.c.unit_id, units.c.text, units.c.finish_reason)
            .where(units.c.run_id == run_id, units.c.arm == arm, units.c.status == "done")
            .order_by(*KEY)
        ).all()
    return tuple(
        StoredCompletion(
            key=UnitKey(*row[:4]),
            text=row.text,
            finish_reason=row.finish_reason,
            scores=tuple(Score(**_named(score)) for score in scored.get(row.unit_id, ())),
        )
        for row in rows
    )


_EVIDENCE = select(
    *KEY,
    units.c.unit_id,
    units.c.cluster,
    units.c.status,
    units.c.error,
    units.c.case_hash,  # from here on, after the key: what the digest covers, in its order
    units.c.finish_reason,
    *(units.c[name] for name in MEASURED),
    units.c.text,
    units.c.token_ids,
    *(units.c[name] for name in ARRAYS),
    units.c.sha256,
).order_by(units.c.unit_id)
_HEAD = list(_EVIDENCE.selected_columns).index(units.c.case_hash)


def _scores_by_unit(connection: Connection, run_id: str, arm: str | None = None) -> dict[int, list[tuple[Any, ...]]]:
    statement = select(scores.c.unit_id, *SCORE).join_from(scores, units).where(units.c.run_id == run_id)
    if arm is not None:
        statement = statement.where(units.c.arm == arm)
    by_unit: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for row in connection.execute(statement.order_by(scores.c.unit_id, scores.c.metric)):
        by_unit[row[0]].append(tuple(row[1:]))
    return by_unit


def _intact(row: AnyRow, said: Sequence[Sequence[Any]]) -> bool:
    *head, text, token_ids, logprobs, margins, kl = row[_HEAD:-1]
    if None in (text, token_ids, logprobs, margins, kl):
        return False
    return row.sha256 == seal.digest((*row[:4], *head, *said), text.encode("utf-8"), token_ids, logprobs, margins, kl)


def _unit_evidence(key: UnitKey, row: AnyRow, said: Sequence[Sequence[Any]]) -> UnitEvidence:
    if row.status == "error":
        return UnitEvidence(key=key, case_hash=row.case_hash, status="error", cluster=row.cluster, error=row.error)
    values: dict[str, float | None] = {score[0]: score[1] for score in said}
    values["latency.ttft"] = row.ttft
    values["latency.e2e"] = row.e2e
    values["latency.tpot"] = (row.e2e - row.ttft) / (row.answer_tokens - 1) if row.answer_tokens > 1 else None
    return UnitEvidence(
        key=key,
        case_hash=row.case_hash,
        status="done",
        values=values,
        scorers={score[0]: score[6] for score in said},
        truncated=row.finish_reason == "length",
        tokens=row.answer_tokens,
        cluster=row.cluster,
        kl=seal.floats(row.kl),
        top1_agreement=row.top1_agreement,
        first_divergence=row.first_divergence,
    )
