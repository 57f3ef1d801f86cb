"""Write a run, from its first row to its verdicts.

Work is done at least once, and its effect is recorded exactly once: one transaction per job, insert if absent, and a
repetition with other results is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection, bindparam, func, insert, select, update

from qualgate.errors import IntegrityError
from qualgate.records import (
    JUDGING,
    UNTOLD,
    ArmFootprint,
    ArmIdentity,
    ArmSpec,
    JobFailure,
    JobResult,
    Plan,
    Policy,
    Score,
    Spent,
    UnitKey,
    Verdict,
)
from qualgate.records.identity import content_hash
from qualgate.store import plain, signatures, tables
from qualgate.store.answered import Answered, answered_rows, answered_units, planned_units, put_answered, take_back
from qualgate.store.database import Store
from qualgate.store.evidence import evidence, grown, no_such_run
from qualgate.store.planned import PlannedRows, planned_rows, put_cases, put_planned
from qualgate.store.postgresql import lasting
from qualgate.store.prunings import refuse_pruned
from qualgate.store.rows import (
    KEY,
    AnyRow,
    arm_digest,
    check_arm,
    check_run,
    run_digest,
    unit_name,
    verdict_digest,
)
from qualgate.store.stoppings import stopped_variants
from qualgate.store.tables import arms, units, verdicts

__all__ = [
    "RunRecord",
    "add_facts",
    "add_verdicts",
    "begin",
    "evidence",
    "finish",
    "grown",
    "note_spent",
    "policy",
    "record",
    "record_failure",
]


ENDED = ("done", "settled")  # a unit's terminal states, see `stoppings.py`


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """A running run: its finished units and stopped variants."""

    run_id: str
    done: frozenset[UnitKey]
    resumed: bool
    stopped: frozenset[str] = frozenset()  # variants whose verdict is settled


# ------------------------------------------------------------------------------------------------------- beginning


@lasting
def begin(store: Store, plan: Plan) -> RunRecord:
    """Resume the unfinished run of this plan, or write a new one with its closed list of units.

    A run that finished complete is never continued. One whose jobs failed is: its failed units run again.
    """
    with store.read() as connection:
        unfinished = _unfinished(connection, plan)
    begun = _resume_unfinished(store, plan) if unfinished else _begin_new(store, plan, planned_rows(plan))
    return begun or begin(store, plan)  # another process began or ended the run meanwhile


def _begin_new(store: Store, plan: Plan, new: PlannedRows) -> RunRecord | None:
    """Begin a new run; None if the plan has an unfinished run by now. In a database other plans' runs can begin
    meanwhile."""
    put_cases(store, new, plan.key)
    with store.write(plan.key) as connection:
        if _unfinished(connection, plan):
            return None
        run_id = put_planned(connection, new)
        return RunRecord(run_id=run_id, done=frozenset(), resumed=False)


def _resume_unfinished(store: Store, plan: Plan) -> RunRecord | None:
    """Resume the plan's unfinished run; None if there is none any more."""
    with store.write() as connection:
        if (run_id := _unfinished(connection, plan)) is None:
            return None
        done, stopped = _resume(connection, run_id, plan), stopped_variants(connection, run_id)
        return RunRecord(run_id=run_id, done=done, resumed=True, stopped=stopped)


def _unfinished(connection: Connection, plan: Plan) -> str | None:
    """Return the newest run of this plan that is not complete; None if there is none."""
    return connection.execute(
        select(tables.runs.c.run_id)
        .where(tables.runs.c.plan_key == plan.key, tables.runs.c.status != "complete")
        .order_by(tables.runs.c.created_at.desc())
    ).scalar()


def _resume(connection: Connection, run_id: str, plan: Plan) -> frozenset[UnitKey]:
    """Mark the run as running, with the plan's current policy and arms, and return its finished units. Raises
    IntegrityError if the run does not list the plan's units."""
    # The plan's key leaves out the policy and the models' paths, so they may have changed.
    run = {
        **_run(connection, run_id)._mapping,
        "status": "running",
        "finished_at": None,
        "gate_file": plan.gate_file,
        "gate_name": plan.gate_name or None,
        "policy_json": plain.policy_to_json(plan.policy),
    }
    run["sha256"] = run_digest(run)
    connection.execute(update(tables.runs).where(tables.runs.c.run_id == run_id).values(run))
    for arm in plan.arms:
        _update_arm(connection, run_id, arm.name, spec_json=plain.to_json(arm))
    rows = connection.execute(select(*KEY, units.c.status).where(units.c.run_id == run_id)).all()
    if {UnitKey(*row[:4]) for row in rows} != set(plan.expected):
        raise IntegrityError(
            f"run {run_id} has this plan's key but not its list of units; the store was changed. "
            "Restore it from a backup, or give another store."
        )
    return frozenset(UnitKey(*row[:4]) for row in rows if row.status == "done")


# ------------------------------------------------------------------------------------------------------- recording


@lasting
def record(
    store: Store,
    run_id: str,
    result: JobResult,
    scored: dict[UnitKey, tuple[Score, ...]],
    spent: Spent | None = None,
) -> None:
    """Record completions of one job with their scores, all or none. spent: the arm's spending so far.

    Recording the same answers again changes nothing; the first measurements stay. Raises IntegrityError for a unit
    that was not planned, for another answer to the same unit, for weights that are not the planned ones, and for drafts
    that contradict themselves.
    """
    with store.read() as connection:  # outside the write transaction: planned units never change
        planned = planned_units(connection, run_id, result.arm, [completion.key for completion in result.completions])
    for completion in result.completions:
        if (unit := planned.get(completion.key)) is None or unit.case_hash != completion.case_hash:
            raise IntegrityError(f"{unit_name(completion.key)} is not in the plan of run {run_id}; nothing was stored.")
    answered = answered_rows(run_id, result, scored, planned, counted=bool(result.draft_steps))  # likewise outside
    with store.write(run_id) as connection:
        spec = _record_arm(connection, run_id, result.arm, result.identity, result.footprint)
        if spec.speculation and not result.draft_steps:
            answered = answered_rows(run_id, result, scored, planned, counted=True)
        new = _unanswered(connection, answered)
        put_answered(connection, new)
        if (new or not answered) and (result.overflow or result.generation != UNTOLD):  # or the last part of a job
            _add_generation(connection, run_id, result, spent, served=spec.served is not None)


def _unanswered(connection: Connection, answers: Sequence[Answered]) -> list[Answered]:
    """Return the answers that the store does not have yet. Raises IntegrityError if it has another answer."""
    done, new = answered_units(connection, [answer.unit for answer in answers]), []
    for answer in answers:
        if answer.unit.unit_id not in done:
            new.append(answer)
        elif done[answer.unit.unit_id] != answer.row["answer_sha256"]:
            raise IntegrityError(
                f"{unit_name(UnitKey(*answer.unit[:4]))} was run twice with different answers or scores. Something "
                "changed during the run (weights, thread count, scorers); begin a new run in another store."
            )
    return new


@lasting
def record_failure(store: Store, run_id: str, failure: JobFailure) -> None:
    """Mark the job's units as errors, to be tried again when the run is resumed. Done units stay done unless their
    answers are void, and `settled` units stay settled."""
    with store.write() as connection:
        planned = planned_units(connection, run_id, failure.arm, failure.keys)
        for key in failure.keys:
            if key not in planned:
                raise IntegrityError(f"{unit_name(key)} is not in the plan of run {run_id}; nothing was stored.")
        if failure.void:
            take_back(connection, planned.values())
        ended = ("settled",) if failure.void else ENDED
        failed = [{"id": unit.unit_id} for unit in planned.values() if unit.status not in ended]
        if failed:
            connection.execute(
                update(units)
                .where(units.c.unit_id == bindparam("id"))
                .values(status="error", error=plain.storable(failure.error), attempts=units.c.attempts + 1),
                failed,
            )


def _record_arm(
    connection: Connection, run_id: str, name: str, identity: ArmIdentity, footprint: ArmFootprint
) -> ArmSpec:
    """Record the loaded arm and return its specification. Raises IntegrityError if it is not the planned arm."""
    arm = connection.execute(select(arms).where(arms.c.run_id == run_id, arms.c.name == name)).one_or_none()
    if arm is None:
        raise IntegrityError(f"run {run_id} has no arm {name!r}; nothing was stored.")
    for when, text in (("planned", arm.planned_json), ("loaded earlier in this run", arm.observed_json)):
        earlier = plain.identity(text)
        if earlier is not None and earlier != identity:
            fields = [
                field for field in identity.__dataclass_fields__ if getattr(identity, field) != getattr(earlier, field)
            ]
            raise IntegrityError(
                f"arm {name!r}: {', '.join(fields)} differ from what was {when}. The model changed during the run; "
                "run again with files that stay as they are."
            )
    if arm.observed_json is None:
        before = plain.footprint(arm.footprint_json)  # of probes alone
        footprint = replace(footprint, spent=before.spent) if before else footprint
        observed, measured = plain.to_json(identity), plain.to_json(footprint)
        _update_arm(connection, run_id, name, observed_json=observed, footprint_json=measured)
    return plain.arm_spec(arm.spec_json)


def _add_generation(
    connection: Connection, run_id: str, result: JobResult, spent: Spent | None, *, served: bool
) -> None:
    """Add the job's generation counters and dtype overflows to the arm's. spent: the arm's spending so far, None: not
    counted. Each overflowing module keeps its smallest position in any job. Raises IntegrityError if another server
    or version answers now: the identity of a server that the run starts holds its command alone."""
    row = connection.execute(select(arms).where(arms.c.run_id == run_id, arms.c.name == result.arm)).one()
    size = plain.footprint(row.footprint_json)
    assert size is not None, "the arm was seen"
    before, now = size.generation.engine, result.generation.engine
    if served and before and before != now:
        raise IntegrityError(
            f"arm {result.arm!r}: {now!r:.200} answers now, but {before!r:.200} answered earlier in this run. Serve "
            "the earlier one again, or begin a new run in another store."
        )
    places: dict[str, int] = {}
    counts: Counter[str] = Counter()
    for position, module, count in (*size.overflow, *result.overflow):
        places[module] = min(position, places.get(module, position))
        counts[module] += count
    overflow = tuple(sorted((places[module], module, count) for module, count in counts.items()))
    size = replace(size, overflow=overflow, generation=size.generation + result.generation, spent=spent or size.spent)
    _update_arm(connection, run_id, result.arm, footprint_json=plain.to_json(size))


@lasting
def add_facts(store: Store, run_id: str, arm: str, facts: dict[str, float]) -> None:
    """Store facts measured of an arm apart from its answers, after its first job; known facts stay."""
    with store.write() as connection:
        row = connection.execute(select(arms).where(arms.c.run_id == run_id, arms.c.name == arm)).one()
        size = plain.footprint(row.footprint_json)
        if size is None:
            raise IntegrityError(f"no job of arm {arm!r} in run {run_id} has finished; nothing was stored.")
        _update_arm(connection, run_id, arm, footprint_json=plain.to_json(replace(size, facts=facts | size.facts)))


@lasting
def note_spent(store: Store, run_id: str, spent: Mapping[str, Spent]) -> None:
    """Store the spending of each arm and of the judge so far, replacing earlier values."""
    with store.write() as connection:
        for name, amount in spent.items():
            if name == JUDGING:
                judging = update(tables.runs).where(tables.runs.c.run_id == run_id)
                connection.execute(judging.values(judging_json=plain.to_json(amount)))
                continue
            row = connection.execute(select(arms).where(arms.c.run_id == run_id, arms.c.name == name)).one()
            size = plain.footprint(row.footprint_json) or ArmFootprint(
                bytes_on_disk=0, bytes_in_memory=0, quantized_bytes=0, effective_bits=0.0
            )
            _update_arm(connection, run_id, name, footprint_json=plain.to_json(replace(size, spent=amount)))


def _update_arm(connection: Connection, run_id: str, name: str, **values: str) -> None:
    """Change columns of an arm's row and seal it anew."""
    is_arm = (arms.c.run_id == run_id, arms.c.name == name)
    row = connection.execute(select(arms).where(*is_arm)).one()
    check_arm(row)  # a new seal would hide an earlier change
    digest = arm_digest({**row._mapping, **values})
    connection.execute(update(arms).where(*is_arm).values(**values, sha256=digest))


# ------------------------------------------------------------------------------------------------------- finishing


@lasting
def finish(store: Store, run_id: str, decided: Iterable[Verdict], complete: bool, policy: Policy | None = None) -> None:
    """Close the run with its verdicts. complete: every job ran; a run with an unfinished unit is never complete.
    policy: the deciding policy; None: the run's own."""
    with store.write() as connection:
        undone = connection.execute(
            select(func.count()).where(units.c.run_id == run_id, units.c.status.not_in(ENDED))
        ).scalar_one()
        status = "complete" if complete and not undone else "incomplete"
        connection.execute(
            update(tables.runs).where(tables.runs.c.run_id == run_id).values(status=status, finished_at=plain.now())
        )
        policy_json = _run(connection, run_id).policy_json if policy is None else plain.policy_to_json(policy)
        _add_verdicts(connection, run_id, decided, policy_json)


@lasting
def add_verdicts(store: Store, run_id: str, decided: Iterable[Verdict], policy: Policy) -> None:
    """Store later verdicts on a run, perhaps by another policy. The newest verdict counts."""
    with store.write() as connection:
        _run(connection, run_id)
        refuse_pruned(connection, run_id)  # it may have been pruned since its evidence was read
        _add_verdicts(connection, run_id, decided, plain.policy_to_json(policy))


def policy(store: Store, run_id: str) -> Policy:
    """Return the policy that the run was made with."""
    with store.read() as connection:
        return plain.policy(_run(connection, run_id).policy_json)


def _run(connection: Connection, run_id: str) -> AnyRow:
    """Return the run's row. Raises UsageError for an unknown run, IntegrityError for a changed one."""
    row = connection.execute(select(tables.runs).where(tables.runs.c.run_id == run_id)).one_or_none()
    if row is None:
        raise no_such_run(connection, run_id)
    check_run(row)
    return row


def _add_verdicts(connection: Connection, run_id: str, decided: Iterable[Verdict], policy_json: str) -> None:
    """Append the verdicts, except those equal to the newest one on their variant."""
    to_sign = signatures.ToSign(connection, run_id)
    for verdict in decided:
        body = plain.to_json(verdict)
        digest = verdict_digest(run_id, policy_json, body)
        newest = connection.execute(
            select(verdicts)
            .where(verdicts.c.run_id == run_id, verdicts.c.variant == verdict.variant)
            .order_by(verdicts.c.verdict_id.desc())
            .limit(1)
        ).one_or_none()
        is_same = newest is not None and newest.sha256 == digest  # a person's decision about it still stands
        if is_same and not to_sign.is_due(newest):
            continue
        row = {
            "run_id": run_id,
            "variant": verdict.variant,
            "word": verdict.word,
            "created_at": plain.now(),
            "policy_json": policy_json,
            "policy_sha256": content_hash(policy_json),
            "body_json": body,
            "sha256": digest,
        }
        connection.execute(insert(verdicts), row | {"signature": to_sign.signature(row)})
