"""Read models for reports and the dashboard: frozen, paged, counted in SQL."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection, Table, and_, case, func, select
from sqlalchemy.sql import ColumnElement

from qualgate.errors import IntegrityError, UsageError
from qualgate.records import ArmFootprint, ArmIdentity, ArmSpec, Evalset, Policy, Score, Verdict
from qualgate.store import plain, seal
from qualgate.store.database import Store
from qualgate.store.decisions import Decision, of_variant
from qualgate.store.rows import SCORE, check_arm, check_case, check_run
from qualgate.store.runs import verdict_digest
from qualgate.store.tables import arms, cases, decisions, evalsets, runs, scores, units, verdicts

Direction = Literal["lost", "gained"]  # right → wrong, wrong → right
PAGE = 50


# ------------------------------------------------------------------------------------------------------------ runs


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantLine:
    """One variant of one run in a list. `word` is None until there is a verdict."""

    run_id: str
    variant: str
    created_at: str  # of the run
    word: str | None
    reason: str
    action: str | None  # the newest decision on the newest verdict
    name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLine:
    run_id: str
    status: str
    created_at: str
    finished_at: str | None
    expected: int  # units
    done: int
    errors: int
    variants: tuple[VariantLine, ...]


def list_runs(store: Store, limit: int = PAGE, offset: int = 0) -> tuple[RunLine, ...]:
    """Newest first."""
    with store.read() as connection:
        found = connection.execute(
            select(runs.c.run_id, runs.c.status, runs.c.created_at, runs.c.finished_at)
            .order_by(runs.c.created_at.desc(), runs.c.run_id)
            .limit(limit)
            .offset(offset)
        ).all()
        ids = [row.run_id for row in found]
        counts = _unit_counts(connection, ids)
        lines = defaultdict(list)
        for line in _variant_lines(connection, arms.c.run_id.in_(ids)):
            lines[line.run_id].append(line)
    return tuple(
        RunLine(
            **row._mapping,
            expected=sum(number for (run_id, _, _), number in counts.items() if run_id == row.run_id),
            done=sum(n for (run_id, _, status), n in counts.items() if (run_id, status) == (row.run_id, "done")),
            errors=sum(n for (run_id, _, status), n in counts.items() if (run_id, status) == (row.run_id, "error")),
            variants=tuple(lines[row.run_id]),
        )
        for row in found
    )


def count_runs(store: Store) -> int:
    with store.read() as connection:
        return connection.execute(select(func.count()).select_from(runs)).scalar_one()


def latest_run(store: Store) -> str:
    """Id of the newest run. Raises UsageError when there is none."""
    with store.read() as connection:
        found = connection.execute(select(runs.c.run_id).order_by(runs.c.created_at.desc()).limit(1)).scalar()
    if found is None:
        raise UsageError(f"{store.url} holds no run yet. `qualgate run GATE_FILE` makes one.")
    return found


def latest_run_of(store: Store, arm_names: Sequence[str], evalset_names: Sequence[str]) -> str | None:
    """Id of the newest run that judged exactly these arms on exactly these sets, None when there is none.

    Two gate files may share a store: one's policy must never judge the other's run.
    """
    statement = (
        select(runs.c.run_id)
        .where(_named_exactly(arms, arm_names), _named_exactly(evalsets, evalset_names))
        .order_by(runs.c.created_at.desc())
        .limit(1)
    )
    with store.read() as connection:
        return connection.execute(statement).scalar()


def _named_exactly(table: Table, names: Sequence[str]) -> ColumnElement[bool]:
    """The run's rows of `table` have these names, no more and no fewer."""
    counted = select(func.count()).select_from(table).where(table.c.run_id == runs.c.run_id)
    wanted = set(names)
    every, fitting = counted.scalar_subquery(), counted.where(table.c.name.in_(wanted)).scalar_subquery()
    return and_(every == len(wanted), fitting == len(wanted))


def queue(store: Store, limit: int = PAGE, offset: int = 0) -> tuple[VariantLine, ...]:
    """Variants of complete runs whose newest verdict nobody has decided about, newest run first."""
    with store.read() as connection:
        return tuple(_variant_lines(connection, _WAITING, limit, offset))


def count_queue(store: Store) -> int:
    with store.read() as connection:
        return connection.execute(select(func.count()).select_from(_LINES.where(_WAITING).subquery())).scalar_one()


_newest_verdict = (
    select(func.max(verdicts.c.verdict_id).label("verdict_id"))
    .group_by(verdicts.c.run_id, verdicts.c.variant)
    .subquery("newest_verdict")
)
_current = (
    select(verdicts)
    .join(_newest_verdict, verdicts.c.verdict_id == _newest_verdict.c.verdict_id)
    .subquery("current_verdict")
)
_newest_decision = (
    select(func.max(decisions.c.decision_id).label("decision_id"))
    .group_by(decisions.c.run_id, decisions.c.variant, decisions.c.verdict_sha256)
    .subquery("newest_decision")
)
_made = (
    select(decisions)
    .join(_newest_decision, decisions.c.decision_id == _newest_decision.c.decision_id)
    .subquery("current_decision")
)
_LINES = (
    select(
        arms.c.run_id,
        arms.c.name.label("variant"),
        runs.c.created_at,
        _current.c.word,
        _current.c.body_json,
        _made.c.action,
        _made.c.name.label("person"),
    )
    .join(runs, runs.c.run_id == arms.c.run_id)
    .outerjoin(_current, and_(_current.c.run_id == arms.c.run_id, _current.c.variant == arms.c.name))
    .outerjoin(
        _made,
        and_(
            _made.c.run_id == arms.c.run_id,
            _made.c.variant == arms.c.name,
            _made.c.verdict_sha256 == _current.c.sha256,
        ),
    )
    .where(arms.c.position > 0)
)
_WAITING = and_(runs.c.status == "complete", _current.c.word.is_not(None), _made.c.action.is_(None))


def _variant_lines(
    connection: Connection, which: ColumnElement[bool], limit: int | None = None, offset: int | None = None
) -> Iterable[VariantLine]:
    rows = connection.execute(
        _LINES.where(which)
        .order_by(runs.c.created_at.desc(), arms.c.run_id, arms.c.position)
        .limit(limit)
        .offset(offset)
    )
    for row in rows:
        reasons = json.loads(row.body_json)["reasons"] if row.body_json else ()
        yield VariantLine(
            run_id=row.run_id,
            variant=row.variant,
            created_at=row.created_at,
            word=row.word,
            reason=reasons[0] if reasons else "",
            action=row.action,
            name=row.person,
        )


def _unit_counts(connection: Connection, run_ids: Sequence[str]) -> dict[tuple[str, str, str], int]:
    """Units by run, arm and status."""
    rows = connection.execute(
        select(units.c.run_id, units.c.arm, units.c.status, func.count())
        .where(units.c.run_id.in_(run_ids))
        .group_by(units.c.run_id, units.c.arm, units.c.status)
    )
    return {(run_id, arm, status): number for run_id, arm, status, number in rows}


# --------------------------------------------------------------------------------------------------------- one run


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmLine:
    spec: ArmSpec
    planned: ArmIdentity
    identity: ArmIdentity | None  # as loaded; None until a job of the arm finished
    footprint: ArmFootprint | None
    expected: int  # units
    done: int
    errors: int

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def weights(self) -> str:
        """How its weights are held: "bfloat16", "int4 g32", "quantized folder" (as its own files have them)."""
        if self.spec.quantize:
            return self.spec.quantize.label
        return "quantized folder" if self.footprint and self.footprint.quantized_bytes else self.spec.dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalsetLine:
    name: str
    version: str
    sha256: str
    content: str  # Evalset.content: what a file of today must have to be the same set
    description: str
    metrics: tuple[str, ...]
    cases: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredVerdict:
    """The newest verdict of a variant, and every decision people made on the variant, oldest first."""

    verdict: Verdict
    sha256: str
    created_at: str
    policy: Policy
    policy_sha256: str
    decisions: tuple[Decision, ...]

    @property
    def decision(self) -> Decision | None:
        """The newest decision about this very verdict; one about an earlier verdict does not count."""
        return next((made for made in reversed(self.decisions) if made.verdict_sha256 == self.sha256), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    run_id: str
    status: str
    created_at: str
    finished_at: str | None
    gate_file: str
    policy: Policy  # the run's own
    evalsets: tuple[EvalsetLine, ...]
    arms: tuple[ArmLine, ...]  # the baseline first
    verdicts: tuple[StoredVerdict, ...]  # in the variants' order; empty while the run is under way
    failures: tuple[str, ...]  # distinct messages of units the machinery could not run

    def verdict(self, variant: str) -> StoredVerdict | None:
        return next((found for found in self.verdicts if found.verdict.variant == variant), None)


def run_summary(store: Store, run_id: str) -> RunSummary:
    """Raises UsageError for an unknown run, IntegrityError for a policy, arm or verdict that was changed."""
    with store.read() as connection:
        run = connection.execute(select(runs).where(runs.c.run_id == run_id)).one_or_none()
        if run is None:
            raise UsageError(f"no run {run_id!r} in this store. The dashboard lists what there is.")
        check_run(run)
        counts = _unit_counts(connection, [run_id])
        sizes = connection.execute(
            select(units.c.evalset, func.count())
            .where(units.c.run_id == run_id, units.c.arm == "baseline", units.c.repeat == 0)
            .group_by(units.c.evalset)
        )
        cases_of: dict[str, int] = {row[0]: row[1] for row in sizes}
        sets = connection.execute(select(evalsets).where(evalsets.c.run_id == run_id).order_by(evalsets.c.position))
        lines = connection.execute(select(arms).where(arms.c.run_id == run_id).order_by(arms.c.position))
        newest = connection.execute(
            select(_current)
            .join(arms, and_(arms.c.run_id == _current.c.run_id, arms.c.name == _current.c.variant))
            .where(_current.c.run_id == run_id)
            .order_by(arms.c.position)
        ).all()
        failures = connection.execute(
            select(units.c.error).where(units.c.run_id == run_id, units.c.status == "error").distinct().limit(PAGE)
        ).scalars()
        return RunSummary(
            run_id=run.run_id,
            status=run.status,
            created_at=run.created_at,
            finished_at=run.finished_at,
            gate_file=run.gate_file,
            policy=plain.policy(run.policy_json),
            evalsets=tuple(
                EvalsetLine(
                    name=item.name,
                    version=item.version,
                    sha256=item.sha256,
                    content=item.content,
                    description=item.description,
                    metrics=item.metrics,
                    cases=cases_of.get(item.name, 0),
                )
                for item in map(_evalset, sets)
            ),
            arms=tuple(_arm_line(row, counts) for row in lines),
            verdicts=tuple(_stored_verdict(connection, row) for row in newest),
            failures=tuple(failures),
        )


def _evalset(row: Any) -> Evalset:
    return Evalset(
        name=row.name,
        version=row.version,
        sha256=row.sha256,
        metrics=tuple(json.loads(row.metrics_json)),
        lenient=tuple(json.loads(row.lenient_json)),
        normalizers=tuple(json.loads(row.normalizers_json)),
        description=row.description,
    )


def _arm_line(row: Any, counts: dict[tuple[str, str, str], int]) -> ArmLine:
    check_arm(row)
    planned = plain.identity(row.planned_json)
    assert planned is not None
    return ArmLine(
        spec=plain.arm_spec(row.spec_json),
        planned=planned,
        identity=plain.identity(row.observed_json),
        footprint=plain.footprint(row.footprint_json),
        expected=sum(number for (_, arm, _), number in counts.items() if arm == row.name),
        done=counts.get((row.run_id, row.name, "done"), 0),
        errors=counts.get((row.run_id, row.name, "error"), 0),
    )


def _stored_verdict(connection: Connection, row: Any) -> StoredVerdict:
    if row.sha256 != verdict_digest(row.run_id, row.policy_json, row.body_json):
        raise IntegrityError(
            f"the verdict on {row.variant!r} of run {row.run_id} is not what was written. "
            "Restore the store from a backup."
        )
    return StoredVerdict(
        verdict=plain.verdict(row.body_json),
        sha256=row.sha256,
        created_at=row.created_at,
        policy=plain.policy(row.policy_json),
        policy_sha256=row.policy_sha256,
        decisions=of_variant(connection, row.run_id, row.variant),
    )


# ----------------------------------------------------------------------------------------------------------- flips


@dataclass(frozen=True, slots=True, kw_only=True)
class FlipCount:
    """How one metric's answers moved in one set."""

    metric: str
    evalset: str
    pairs: int  # cases where both sides have a value
    lost: int
    gained: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """One case whose answer changed between right and wrong."""

    metric: str
    evalset: str
    case_id: str
    repeat: int
    direction: Direction
    baseline: str  # the texts
    variant: str
    reason: str  # the scorer's, about the side that is wrong
    first_divergence: int | None


_baseline, _variant = units.alias("baseline"), units.alias("variant")
_before, _after = scores.alias("before"), scores.alias("after")
_PAIRED = and_(
    _baseline.c.arm == "baseline",
    _baseline.c.run_id == _variant.c.run_id,
    _baseline.c.evalset == _variant.c.evalset,
    _baseline.c.case_id == _variant.c.case_id,
    _baseline.c.repeat == _variant.c.repeat,
    _baseline.c.case_hash == _variant.c.case_hash,
)
_SCORE_PAIRS = (
    _variant.join(_baseline, _PAIRED)
    .join(_after, _after.c.unit_id == _variant.c.unit_id)
    .join(_before, and_(_before.c.unit_id == _baseline.c.unit_id, _before.c.metric == _after.c.metric))
)
_LOST = and_(_before.c.value == 1, _after.c.value == 0)
_GAINED = and_(_before.c.value == 0, _after.c.value == 1)


def flip_counts(store: Store, run_id: str, variant: str) -> tuple[FlipCount, ...]:
    """For every metric and set that both arms have scores for."""
    statement = (
        select(
            _after.c.metric,
            _variant.c.evalset,
            func.count().label("pairs"),
            func.sum(case((_LOST, 1), else_=0)).label("lost"),
            func.sum(case((_GAINED, 1), else_=0)).label("gained"),
        )
        .select_from(_SCORE_PAIRS)
        .where(
            _variant.c.run_id == run_id,
            _variant.c.arm == variant,
            _before.c.value.is_not(None),
            _after.c.value.is_not(None),
        )
        .group_by(_after.c.metric, _variant.c.evalset)
        .order_by(_after.c.metric, _variant.c.evalset)
    )
    with store.read() as connection:
        return tuple(FlipCount(**row._mapping) for row in connection.execute(statement))


def flips(
    store: Store,
    run_id: str,
    variant: str,
    *,
    metric: str | None = None,
    evalset: str | None = None,
    direction: Direction | None = None,
    limit: int = PAGE,
    offset: int = 0,
) -> tuple[Flip, ...]:
    """Right → wrong first, then by metric, set and case."""
    where = [_variant.c.run_id == run_id, _variant.c.arm == variant]
    where.append({"lost": _LOST, "gained": _GAINED, None: _LOST | _GAINED}[direction])
    if metric is not None:
        where.append(_after.c.metric == metric)
    if evalset is not None:
        where.append(_variant.c.evalset == evalset)
    gained = case((_GAINED, 1), else_=0)
    statement = (
        select(
            _after.c.metric,
            _variant.c.evalset,
            _variant.c.case_id,
            _variant.c.repeat,
            case((_LOST, "lost"), else_="gained").label("direction"),
            _baseline.c.text.label("baseline"),
            _variant.c.text.label("variant"),
            case((_LOST, _after.c.reason), else_=_before.c.reason).label("reason"),
            _variant.c.first_divergence,
        )
        .select_from(_SCORE_PAIRS)
        .where(*where)
        .order_by(gained, _after.c.metric, _variant.c.evalset, _variant.c.case_id, _variant.c.repeat)
        .limit(limit)
        .offset(offset)
    )
    with store.read() as connection:
        return tuple(Flip(**row._mapping) for row in connection.execute(statement))


# -------------------------------------------------------------------------------------------------------- one case


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One arm's answer to one case with all that was measured."""

    status: str
    error: str
    text: str
    finish_reason: str | None
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    margins: tuple[float, ...]
    ttft: float | None
    e2e: float | None
    kl: tuple[float, ...]  # this and the next two: variants only
    top1_agreement: float | None
    first_divergence: int | None
    scores: tuple[Score, ...]

    @property
    def margin_at_divergence(self) -> float | None:
        """How sure the variant was of the first token in which it left the baseline."""
        at = self.first_divergence
        return self.margins[at] if at is not None and at < len(self.margins) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseDetail:
    evalset: str
    case_id: str
    repeat: int
    body: dict[str, Any]  # the case as it stands in the evalset
    baseline: Answer
    variant: Answer


def case_detail(store: Store, run_id: str, variant: str, evalset: str, case_id: str, repeat: int = 0) -> CaseDetail:
    """Both answers to one case. Raises UsageError when the run has no such case."""
    with store.read() as connection:
        found = {
            row.arm: row
            for row in connection.execute(
                select(units, cases.c.body_json)
                .join(cases, cases.c.case_hash == units.c.case_hash)
                .where(
                    units.c.run_id == run_id,
                    units.c.arm.in_(("baseline", variant)),
                    units.c.evalset == evalset,
                    units.c.case_id == case_id,
                    units.c.repeat == repeat,
                )
            )
        }
        if set(found) != {"baseline", variant}:
            raise UsageError(f"run {run_id!r} has no case {evalset}/{case_id} for {variant!r}.")
        check_case(found[variant])
        return CaseDetail(
            evalset=evalset,
            case_id=case_id,
            repeat=repeat,
            body=json.loads(found[variant].body_json),
            baseline=_answer(connection, found["baseline"]),
            variant=_answer(connection, found[variant]),
        )


def _answer(connection: Connection, row: Any) -> Answer:
    said = connection.execute(select(*SCORE).where(scores.c.unit_id == row.unit_id).order_by(scores.c.metric))
    return Answer(
        status=row.status,
        error=row.error,
        text=row.text or "",
        finish_reason=row.finish_reason,
        token_ids=seal.ints(row.token_ids),
        logprobs=seal.floats(row.logprobs),
        margins=seal.floats(row.margins),
        ttft=row.ttft,
        e2e=row.e2e,
        kl=seal.floats(row.kl),
        top1_agreement=row.top1_agreement,
        first_divergence=row.first_divergence,
        scores=tuple(Score(**score._mapping) for score in said),
    )


# ----------------------------------------------------------------------------------------------------------- drift


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionDrift:
    """KL in nats at one position of the baseline's answers, over the answers long enough to have it."""

    position: int
    mean: float
    answers: int


def drift_by_position(store: Store, run_id: str, variant: str, positions: int = 200) -> tuple[PositionDrift, ...]:
    """Mean KL at each of the first positions."""
    sums, counts = [0.0] * positions, [0] * positions
    with store.read() as connection:
        blobs = connection.execute(
            select(units.c.kl).where(units.c.run_id == run_id, units.c.arm == variant, units.c.status == "done")
        ).scalars()
        for blob in blobs:
            for position, value in enumerate(seal.floats(blob)[:positions]):
                sums[position] += value
                counts[position] += 1
    return tuple(
        PositionDrift(position=position, mean=total / count, answers=count)
        for position, (total, count) in enumerate(zip(sums, counts, strict=True))
        if count
    )


# ------------------------------------------------------------------------------------------------------- decisions


def list_decisions(store: Store, limit: int = PAGE, offset: int = 0) -> tuple[Decision, ...]:
    """Newest first."""
    columns = [decisions.c[name] for name in Decision.__dataclass_fields__]
    with store.read() as connection:
        rows = connection.execute(select(*columns).order_by(decisions.c.decision_id.desc()).limit(limit).offset(offset))
        return tuple(Decision(**row._mapping) for row in rows)
