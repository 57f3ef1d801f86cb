"""Read a run's evidence, checked against its digests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import Connection, Select, select

from qualgate.errors import IntegrityError, UsageError
from qualgate.records import UNTOLD, ArmEvidence, Attempt, RunEvidence, ScoredAgain, Stopped, UnitEvidence, UnitKey
from qualgate.records.identity import question_hash
from qualgate.records.metrics import reference_keys
from qualgate.records.served import who_answered
from qualgate.store import draft_steps, plain, prunings, scorings, seal, stoppings
from qualgate.store.bulk import uncollected
from qualgate.store.database import Store
from qualgate.store.postgresql import lasting
from qualgate.store.rescored_sets import RescoredSet, corrected, scored_again
from qualgate.store.rows import (
    ARRAYS,
    EVALSET,
    KEY,
    MEASURED,
    AnyRow,
    check_arm,
    check_case,
    check_run,
    expected_digest,
    unit_digest,
    unit_name,
)
from qualgate.store.tables import arms, cases, evalsets, runs, units
from qualgate.text.escaping import says_something

RUNS_NAMED = 5
STATUSES = ("pending", "done", "error", "settled")  # of a unit
MOST_ATTEMPTS = 10_000  # a unit is tried again when its run is resumed, by hand


@dataclass(frozen=True, slots=True)
class CaseFacts:
    """Facts of a stored case that judging needs."""

    question: str = ""
    limit: int | None = None  # `max_new_tokens`
    task: str | None = None
    references: tuple[str, ...] | None = None  # keys of `metrics.READERS`; None: not known


UNKNOWN = CaseFacts()  # for a case with a broken body, which `check_case` reports
PARSED = ("tool_call.", "json.valid")  # metrics that are 0 if an answer cannot be parsed


@lasting
def evidence(store: Store, run_id: str, scoring: int | None = None, *, answers: bool = False) -> RunEvidence:
    """Return everything that a verdict may rest on, with each digest recomputed from the columns it covers.

    scoring: number of the scoring, 0 for the run's own; the newest by default.
    answers: include each answer's tokens, margins and text hash, which only some policies need.
    """
    with uncollected():
        return _read(store, run_id, scoring, answers)


def no_such_run(connection: Connection, run_id: str) -> UsageError | IntegrityError:
    """Return the error for a missing run: it lists the newest runs, or reports that the run's own row is lost."""
    if connection.execute(select(arms.c.run_id).where(arms.c.run_id == run_id)).first():
        return IntegrityError(f"run {run_id} has arms, but no row of its own. Restore the store from a backup.")
    rows = connection.execute(select(runs.c.run_id).order_by(runs.c.created_at.desc()).limit(RUNS_NAMED + 1))
    newest = [row.run_id for row in rows]
    ellipsis = ", …" if len(newest) > RUNS_NAMED else ""
    runs_text = f"Its runs, newest first: {', '.join(newest[:RUNS_NAMED])}{ellipsis}" if newest else "It holds none yet"
    return UsageError(f"no run {run_id!r:.80} in this store. {runs_text}.")


def check_evidence(store: Store, run_id: str, scoring: int | None = None) -> None:
    """Raise IntegrityError, naming the first fault, if a run's stored evidence is not what was recorded.

    scoring: number of the scoring to check; None: the newest.
    """
    if faults := evidence(store, run_id, scoring).integrity:
        raise IntegrityError(
            f"run {run_id}: {faults[0]}. Restore the store from a backup; until then, trust nothing in it."
        )


def _read(store: Store, run_id: str, scoring: int | None, answers: bool) -> RunEvidence:
    """Read a run's evidence in one snapshot. answers: with tokens, margins and text hash. Faults of single rows go into
    `integrity`; an unknown or pruned run, and one without arms or evalsets of its answers, raises an error."""
    with store.read() as connection:
        run = connection.execute(select(runs).where(runs.c.run_id == run_id)).one_or_none()
        if run is None:
            raise no_such_run(connection, run_id)
        prunings.refuse_pruned(connection, run_id)
        sets = connection.execute(
            select(*(evalsets.c[name] for name in EVALSET))
            .where(evalsets.c.run_id == run_id)
            .order_by(evalsets.c.position)
        ).all()
        arm_rows = connection.execute(select(arms).where(arms.c.run_id == run_id).order_by(arms.c.position)).all()
        names = {row.name for row in arm_rows}, {row.name for row in sets}
        if not arm_rows or connection.execute(_foreign_units(run_id, *names)).first():
            raise IntegrityError(
                f"run {run_id}: the store lacks arms or evalsets of its answers. Restore it from a backup; until then, "
                "trust nothing in it."
            )
        recorded = scorings.scores_by_unit(connection, run_id, 0)
        number = scorings.newest_scoring(connection, run_id) if scoring is None else scoring
        scored = scorings.scores_by_unit(connection, run_id, number) if number else recorded
        drafts = draft_steps.steps_by_unit(connection, run_id)
        unit_rows = connection.execute(_EVIDENCE.where(units.c.run_id == run_id)).all()
        hashes = select(units.c.case_hash).where(units.c.run_id == run_id)
        bodies = connection.execute(select(cases).where(cases.c.case_hash.in_(hashes))).all()
        fault = scorings.fault(connection, run_id, number, scored)
        later = None if fault or not number else _LaterScoring.read(connection, run_id, number)
        run_faults = list(_faults(check_run, [run]))
        stopped, stop_faults = ({}, []) if run_faults else stoppings.read(connection, run)
    decides_nothing = "" if run_faults else plain.policy(run.policy_json).decides_nothing
    integrity = [*run_faults, *stop_faults, *_faults(check_arm, arm_rows), *_faults(check_case, bodies)]
    integrity += [fault] if fault else []
    facts_of = {row.case_hash: _case_facts(row) for row in bodies}
    if lost := {row.case_hash for row in unit_rows} - set(facts_of):
        integrity.append(f"case {min(lost)[:12]}, which was asked, is not in the store")
    if run.expected_sha256 != expected_digest(sets, [(*row[:4], row.case_hash, row.cluster) for row in unit_rows]):
        integrity.append("the list of expected units or evalsets is not the one written before generation")
    by_arm, broken = _units(run_id, unit_rows, recorded, scored, drafts, answers=answers)
    if run.status == "complete":
        broken += _unended(unit_rows, [row.name for row in arm_rows], stopped)
    case_facts = {(row.evalset, row.case_id): facts_of.get(row.case_hash, UNKNOWN) for row in unit_rows}
    arm_evidence = tuple(_arm(row, by_arm[row.name], stopped.get(row.name)) for row in arm_rows)
    as_recorded = RunEvidence(
        run_id=run_id,
        expected=tuple(UnitKey(*row[:4]) for row in unit_rows),
        metrics={row.name: plain.names(row.metrics_json) for row in sets},
        made_at=_start_time(run_id),
        baseline=arm_evidence[0],
        variants=arm_evidence[1:],
        integrity=(*integrity, *broken),
        clusters={(row.evalset, row.case_id): row.cluster for row in unit_rows if row.cluster is not None},
        questions={case: facts.question for case, facts in case_facts.items()},
        max_new_tokens={case: facts.limit for case, facts in case_facts.items() if facts.limit is not None},
        tasks={case: facts.task for case, facts in case_facts.items() if facts.task is not None},
        references={case: facts.references for case, facts in case_facts.items() if facts.references is not None},
        decides_nothing=decides_nothing,
    )
    return later.applied(as_recorded, unit_rows, bodies, recorded, scored) if later else as_recorded


def as_scored_again(
    evidence: RunEvidence,
    sets: Mapping[str, RescoredSet],
    references: Mapping[tuple[str, str], tuple[str, ...]],
    how: ScoredAgain | None,
) -> RunEvidence:
    """Return the evidence with a scoring's metrics and references. references: keys of `metrics.READERS` by case."""
    return replace(
        evidence,
        metrics=evidence.metrics | {name: item.metrics for name, item in sets.items()},
        references={**evidence.references, **references},
        scored_again=how,
    )


@dataclass(frozen=True, slots=True)
class _LaterScoring:
    """A later scoring: its time, and the evalsets as it read them."""

    made_at: str
    sets: Mapping[str, RescoredSet]

    @classmethod
    def read(cls, connection: Connection, run_id: str, number: int) -> _LaterScoring:
        at, scoring = scorings.stored_scorings(connection, run_id)[number - 1]
        return cls(at, scoring.sets)

    def applied(
        self,
        evidence: RunEvidence,
        rows: Iterable[AnyRow],
        bodies: Iterable[AnyRow],
        recorded: scorings.ScoresByUnit,
        scored: scorings.ScoresByUnit,
    ) -> RunEvidence:
        """Return the evidence with what this scoring changed. rows: the run's units; bodies: its stored cases;
        recorded, scored: the run's own scores and this scoring's, by unit."""
        by_hash = {row.case_hash: row for row in bodies}
        hashes = {(row.evalset, row.case_id): row.case_hash for row in rows} if self.sets else {}
        references = {}
        for case in ((name, case_id) for name, item in self.sets.items() for case_id in item.cases):
            with suppress(IntegrityError, KeyError):  # a broken or lost case is named elsewhere
                body = corrected(check_case(by_hash[hashes[case]]), case[0], self.sets)
                references[case] = reference_keys(body)
        before, after = (_metrics_by_set(rows, scores) for scores in (recorded, scored))
        return as_scored_again(evidence, self.sets, references, scored_again(self.made_at, before, after, self.sets))


def _metrics_by_set(rows: Iterable[AnyRow], scores: scorings.ScoresByUnit) -> dict[str, set[str]]:
    metrics: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        metrics[row.evalset].update(score[0] for score in scores.get(row.unit_id, ()))
    return metrics


def _foreign_units(run_id: str, arm_names: Collection[str], set_names: Collection[str]) -> Select[tuple[int]]:
    """Return the query of the run's units whose arm or evalset the run does not list."""
    foreign = units.c.arm.not_in(arm_names) | units.c.evalset.not_in(set_names)
    return select(units.c.unit_id).where(units.c.run_id == run_id, foreign)


@lasting
def grown(store: Store, before: RunEvidence, keys: Collection[UnitKey]) -> RunEvidence:
    """Return evidence of a running run with these units read again, each digest recomputed. before: the evidence as
    read earlier; keys: units stored since. For the many looks of a run: the list, the cases and all other answers are
    kept as read before. Scores are the run's own, since an incomplete run has no others."""
    names = {arm.name for arm in (before.baseline, *before.variants)}
    with uncollected(), store.read() as connection:
        of_run = arms.c.run_id == before.run_id
        arm_rows = connection.execute(select(arms).where(of_run).order_by(arms.c.position)).all()
        chosen = (
            units.c.run_id == before.run_id,
            units.c.arm.in_(names & {key.arm for key in keys}),
            units.c.evalset.in_({key.evalset for key in keys}),
            units.c.case_id.in_({key.case_id for key in keys}),
        )
        rows = [row for row in connection.execute(_EVIDENCE.where(*chosen)).all() if UnitKey(*row[:4]) in keys]
        ids = [row.unit_id for row in rows]
        scores = scorings.scores_by_unit(connection, before.run_id, 0, ids)
        drafts = draft_steps.steps_by_unit(connection, before.run_id, ids)
    new, broken = _units(before.run_id, rows, scores, scores, drafts, answers=False)
    order = {key: number for number, key in enumerate(before.expected)}

    def with_new(arm: ArmEvidence, row: AnyRow) -> ArmEvidence:
        unchanged = (unit for unit in arm.units if unit.key not in keys)
        ordered = sorted((*unchanged, *new[arm.name]), key=lambda unit: order[unit.key])
        return _arm(row, ordered, arm.stopped)

    return replace(
        before,
        baseline=with_new(before.baseline, arm_rows[0]),
        variants=tuple(with_new(arm, row) for arm, row in zip(before.variants, arm_rows[1:], strict=True)),
        integrity=(*before.integrity, *_faults(check_arm, arm_rows), *broken),
    )


def _units(
    run_id: str,
    rows: Iterable[AnyRow],
    recorded: scorings.ScoresByUnit,
    scored: scorings.ScoresByUnit,
    drafts: draft_steps.Steps,
    *,
    answers: bool,
) -> tuple[dict[str, list[UnitEvidence]], list[str]]:
    """Return arm → its units' evidence, in order, and a line for each unit that is not what was recorded."""
    by_arm: dict[str, list[UnitEvidence]] = defaultdict(list)
    broken = []
    for row in rows:
        if row.status not in STATUSES or row.attempts not in range(MOST_ATTEMPTS) or row.error is None:
            broken.append(f"{unit_name(UnitKey(*row[:4]))}: what became of it is not what was recorded")
            continue
        if row.status in ("pending", "settled"):  # no answer; the arm's record tells whether that is excused
            continue
        key = UnitKey(*row[:4])
        steps = drafts.get(row.unit_id, ())
        if row.status == "done" and not _intact(run_id, row, recorded.get(row.unit_id, ()), steps):
            broken.append(f"{unit_name(key)}: the stored answer or its scores are not what was recorded")
            continue
        unit = _unit_evidence(key, row, scored.get(row.unit_id, ()), answers)
        by_arm[key.arm].append(replace(unit, draft_steps=draft_steps.as_records(key, steps)) if steps else unit)
    emptied = f"its {len(broken):,} answers are not what was recorded: none has a score"
    return by_arm, [emptied] if broken and not recorded else broken


def _unended(rows: Iterable[AnyRow], names: Sequence[str], stopped: Mapping[str, Stopped]) -> Iterator[str]:
    """Yield a line for each unit of a complete run that did not end, or is `settled` without a settled verdict. names:
    all arms, the baseline's first."""
    settled = {*stopped, *(names[:1] if stopped.keys() >= {*names[1:]} else ())}
    for row in rows:
        if row.status in ("pending", "error") or (row.status == "settled" and row.arm not in settled):
            yield f"{unit_name(UnitKey(*row[:4]))}: is {row.status} in a run that is complete"


def _arm(row: AnyRow, arm_units: Iterable[UnitEvidence], stopped: Stopped | None) -> ArmEvidence:
    """Return one arm's evidence from its row, its units and its early stop; None: not stopped. Without a footprint
    (no job has finished) the measured fields are empty."""
    size, spec = plain.footprint(row.footprint_json), plain.arm_spec(row.spec_json)
    return ArmEvidence(
        name=row.name,
        identity=plain.identity(row.observed_json),
        units=tuple(arm_units),
        stopped=stopped,
        facts=size.facts if size else {},
        unmeasured=size.unmeasured if size else {},
        overflow=size.overflow if size else (),
        generation=size.generation if size else UNTOLD,
        speculation=spec.speculation,
        to_draft=spec.served is not None and spec.served.drafts,
        asked_for=spec.model if spec.served else "",
        address=urlsplit(spec.served.endpoint).netloc if spec.served and not spec.served.command else "",
        answered_by=spec.served.answered_by if spec.served else (),
        answered_probes=who_answered(size.probes if size else ()),
        another_model=spec.another_model,
        config_differences=spec.config_differences,
    )


def _case_facts(case: AnyRow) -> CaseFacts:
    """Return the facts of a stored case; UNKNOWN for a changed one, which `check_case` reports."""
    try:
        body = check_case(case)
    except IntegrityError:
        return UNKNOWN
    return CaseFacts(question_hash(body), body.get("max_new_tokens"), body.get("task"), reference_keys(body))


def _start_time(run_id: str) -> str:
    """Return the run's start from its id, which is sealed, unlike the columns of times; "" if it has none."""
    try:
        return datetime.strptime(run_id[:15], "%Y%m%d-%H%M%S").replace(tzinfo=UTC).isoformat()
    except ValueError:
        return ""


def _faults(check: Callable[[AnyRow], object], rows: Iterable[AnyRow]) -> Iterator[str]:
    """Yield the message of each row that fails `check`."""
    for row in rows:
        try:
            check(row)
        except IntegrityError as error:
            yield str(error)


_EVIDENCE = select(
    *KEY,
    units.c.unit_id,
    units.c.cluster,
    units.c.status,
    units.c.attempts,
    units.c.error,
    units.c.case_hash,  # the digest covers the key and the columns from here on, in this order
    units.c.finish_reason,
    *(units.c[name] for name in MEASURED),
    units.c.text,
    units.c.token_ids,
    *(units.c[name] for name in ARRAYS),
    units.c.sha256,
).order_by(units.c.unit_id)
_HEAD, _TEXT = map(list(_EVIDENCE.selected_columns).index, (units.c.case_hash, units.c.text))


def _intact(run_id: str, row: AnyRow, scores: Sequence[Sequence[Any]], steps: Sequence[tuple[Any, ...]]) -> bool:
    """Whether a unit's row, scores and steps are what was written into this run."""
    arrays = {name: row._mapping[name] for name in ARRAYS}
    if row.text is None or row.token_ids is None:
        return False
    plain_columns = (*row[:4], *row[_HEAD:_TEXT])
    drafts = draft_steps.digest(steps)
    return row.sha256 == unit_digest(
        run_id, plain_columns, drafts, scores, row.text.encode("utf-8"), row.token_ids, arrays
    )


def _unit_evidence(key: UnitKey, row: AnyRow, scores: Sequence[Sequence[Any]], answers: bool) -> UnitEvidence:
    """Return one ended unit's evidence. scores: rows of the SCORE columns; answers: include tokens, margins and the
    text's hash."""
    if row.status == "error":
        return UnitEvidence(key=key, case_hash=row.case_hash, status="error", cluster=row.cluster, error=row.error)
    values: dict[str, float | None] = {score[0]: score[1] for score in scores}
    # An answer that began as the baseline's was not decoded token by token, so its times do not count.
    timed = not row.baseline_proposed
    values["latency.ttft"] = row.ttft if timed else None
    values["latency.e2e"] = row.e2e if timed else None
    has_gaps = timed and row.answer_tokens > 1
    kl, top1_differs = seal.kl(row.kl, row.top1_agreement)
    values["latency.max_gap"] = row.max_gap if has_gaps else None
    values["latency.tpot"] = (row.e2e - row.ttft) / (row.answer_tokens - 1) if has_gaps else None
    return UnitEvidence(
        key=key,
        case_hash=row.case_hash,
        status="done",
        values=values,
        scorers={score[0]: score[6] for score in scores},
        unsaid={score[0]: score[3] for score in scores if score[1] is None and score[3]},
        kernel=row.kernel or "",
        truncated=row.finish_reason == "length",
        unanswered="" if row.thought_tokens or says_something(row.text) else "empty",
        finish_reason=row.finish_reason,
        prompt_tokens=row.prompt_tokens,
        token_ids=row.token_ids,
        raw=row.text if nothing_read(values) else "",
        tokens=row.answer_tokens,
        cluster=row.cluster,
        kl=kl,
        kl_eta=row.kl_eta or 0.0,
        kl_upper=None if row.kl_upper is None else seal.floats(row.kl_upper),
        top1_differs=top1_differs,
        top1_agreement=row.top1_agreement,
        first_divergence=row.first_divergence,
        finished=row.finish_reason in ("eos", "stop"),
        attempts=_attempts(row, timed),
        answer=(row.token_ids or None) if answers else None,  # some servers return no tokens
        margins=row.margins if answers else None,
        job=row.job,
        draft_proposed=row.draft_proposed,
        draft_accepted=row.draft_accepted,
        reply=row.reply or "",
        began=row.began,
        masked=row.constraint_masked,
        thought=row.thought_tokens,
        text_sha256=sha256(row.text.encode("utf-8")).hexdigest() if answers or not row.token_ids else "",
    )


def nothing_read(values: Mapping[str, float | None]) -> bool:
    """Whether a scorer could not parse an answer, which may then be read otherwise: its text is evidence."""
    return any(value == 0 and name.startswith(PARSED) for name, value in values.items())


# An attempt lost to infrastructure has no known cost; a shared constant, since most units have no such attempt.
_LOST = Attempt(outcome="failed", cause="infrastructure")


def _attempts(row: AnyRow, timed: bool) -> tuple[Attempt, ...]:
    """Return every attempt at a unit. timed: False for an answer that began as the baseline's, of unknown time."""
    final = Attempt(
        outcome="done",
        prompt_tokens=row.prompt_tokens,
        output_tokens=row.answer_tokens,
        seconds=row.e2e if timed else None,
    )
    return (*(_LOST,) * (row.attempts - 1), final)


def case_bodies(store: Store, hashes: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return case hash → the case's JSON object; a case that does not match its hash is left out."""
    ordered, bodies = sorted(hashes), {}
    with store.read() as connection:
        for start in range(0, len(ordered), 500):
            chosen = select(cases).where(cases.c.case_hash.in_(ordered[start : start + 500]))
            for row in connection.execute(chosen):
                with suppress(IntegrityError):
                    bodies[row.case_hash] = check_case(row)
    return bodies
