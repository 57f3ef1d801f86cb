"""One run: its arms, sets and verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, and_, func, select

from qualgate.errors import Exit, IntegrityError
from qualgate.records import ArmFootprint, ArmIdentity, ArmSpec, Evalset, Policy, Spent, Verdict
from qualgate.records.served import invariant_mode
from qualgate.store import plain, prunings, votes
from qualgate.store.database import Store
from qualgate.store.decisions import Decision, chain
from qualgate.store.evidence import evidence, no_such_run
from qualgate.store.queries.newest import CURRENT_VERDICT, check_verdicts_placed
from qualgate.store.queries.pages import PAGE
from qualgate.store.rescored_sets import as_rescored
from qualgate.store.rows import check_arm, check_run, check_verdict
from qualgate.store.scorings import newest_sets, stored_scorings
from qualgate.store.tables import arms, evalsets, runs, units, verdicts
from qualgate.store.typed import read
from qualgate.text.numbers import counted

CASES_NAMED = 5  # most corrected references that a scoring's line names


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmLine:
    """An arm of a run: as planned, as loaded, and its progress."""

    spec: ArmSpec
    planned: ArmIdentity
    identity: ArmIdentity | None  # as loaded; None until a job of the arm finished
    footprint: ArmFootprint | None
    expected: int  # units
    done: int
    errors: int
    kernels: tuple[str, ...]  # kernels that multiplied its packed weights; several cannot be compared

    @property
    def name(self) -> str:
        """ "baseline", or the variant's name in the gate file."""
        return self.spec.name

    @property
    def sizes(self) -> ArmFootprint | None:
        """Measured sizes of its weights; None without any, as for a served arm."""
        return self.footprint if self.spec.served is None else None

    @property
    def declared(self) -> str:
        """Its server's own description (model, root, engine), or the command that started it; "" for our own engine."""
        identity = self.identity or self.planned
        if not identity.served:
            return ""
        engine = self.footprint.generation.engine if self.footprint else ""
        return identity.served if engine in ("", *identity.served.split("; ")) else f"{identity.served}; {engine}"

    @property
    def invariant_mode(self) -> str:
        """The mode that its command requests of a started server, see `records.served`; "" for other arms."""
        started = self.spec.served is not None and self.spec.served.command
        return invariant_mode((self.identity or self.planned).served) if started else ""

    @property
    def weights(self) -> str:
        """Format of its weights: "bfloat16", "int4 g32", "quantized folder" (as its own files have them)."""
        if not self.spec.quantize and self.footprint and self.footprint.quantized_bytes:
            return f"quantized folder{self.spec.beside}"
        return self.spec.weights_label


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalsetLine:
    """An evalset as the newest scoring read it; without corrections, as it was when the run began."""

    name: str
    version: str
    sha256: str
    content: str  # `Evalset.content`, by which a current file is compared
    description: str
    metrics: tuple[str, ...]
    cases: int
    repeats: int = 1  # answers of each arm to a case

    @property
    def size(self) -> str:
        """Size for people: "400 cases, 4 answers to each"."""
        return counted(self.cases, "case") + (f", {self.repeats:,} answers to each" if self.repeats > 1 else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredVerdict:
    """The newest verdict of a variant, and every decision on the variant, oldest first."""

    verdict: Verdict
    sha256: str
    created_at: str
    policy: Policy
    policy_sha256: str
    decisions: tuple[Decision, ...]
    stale: str = ""  # why it is of the past: people's votes changed; the first of its reasons then

    @property
    def decision(self) -> Decision | None:
        """The newest decision about this verdict, if it is in force; those about earlier verdicts do not count."""
        newest = next((one for one in reversed(self.decisions) if one.verdict_sha256 == self.sha256), None)
        return newest if newest is not None and newest.stands(plain.now()) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringLine:
    """One later scoring of the run's answers."""

    number: int  # from 1; the newest decides
    created_at: str
    scorers: Mapping[str, str]  # metric → scorer and version
    corrected: tuple[str, ...]  # "set/case" with another reference than the recorded one

    @property
    def text(self) -> str:
        """Line for people: date, scorers, and corrected references."""
        scorers = ", ".join(f"{name} ({scorer})" for name, scorer in sorted(self.scorers.items()))
        few = ", ".join(self.corrected[:CASES_NAMED]) + (", …" if len(self.corrected) > CASES_NAMED else "")
        corrected = f"; {counted(len(self.corrected), 'corrected reference')}: {few}" if self.corrected else ""
        return f"scored again on {self.created_at[:10]} by {scorers}{corrected}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """Everything about a run except its answers."""

    run_id: str
    status: str
    created_at: str
    finished_at: str | None
    gate_file: str
    policy: Policy  # the run's own
    evalsets: tuple[EvalsetLine, ...]
    arms: tuple[ArmLine, ...]  # the baseline first
    verdicts: tuple[StoredVerdict, ...]  # in the variants' order; empty while the run is under way
    failures: tuple[str, ...]  # distinct messages of units that could not be run
    pruned: str = ""  # "pruned on DATE" for a pruned run; "" for any other
    judging: Spent | None = None  # spending on its judge; None: no judge, or not counted
    gate_name: str = ""  # of the gate file; "" in runs of older stores
    scorings: tuple[ScoringLine, ...] = ()  # oldest first; `evalsets` are as the newest read them

    def verdict(self, variant: str) -> StoredVerdict | None:
        """Return the newest verdict on this variant; None if there is none yet."""
        return next((stored for stored in self.verdicts if stored.verdict.variant == variant), None)


def run_summary(store: Store, run_id: str) -> RunSummary:
    """Summarize a run. Raises UsageError for an unknown run, IntegrityError for a changed policy, arm or verdict."""
    with store.read() as connection:
        run = connection.execute(select(runs).where(runs.c.run_id == run_id)).one_or_none()
        if run is None:
            raise no_such_run(connection, run_id)
        check_run(run)
        groups = connection.execute(  # in one walk along an index
            select(units.c.arm, units.c.status, units.c.kernel, func.count())
            .where(units.c.run_id == run_id)
            .group_by(units.c.arm, units.c.status, units.c.kernel)
        ).all()
        counts = Counter[tuple[str, str]]()
        for arm, status, _, number in groups:
            counts[arm, status] += number
        sizes = connection.execute(
            select(units.c.evalset, func.count(units.c.case_id.distinct()), func.max(units.c.repeat) + 1)
            .where(units.c.run_id == run_id, units.c.arm == "baseline")
            .group_by(units.c.evalset)
        )
        size_of: dict[str, tuple[int, int]] = {row[0]: (row[1], row[2]) for row in sizes}
        sets = connection.execute(select(evalsets).where(evalsets.c.run_id == run_id).order_by(evalsets.c.position))
        new = newest_sets(connection, run_id)
        rescored = [as_rescored(plain.evalset(row), new) for row in sets]
        lines = connection.execute(select(arms).where(arms.c.run_id == run_id).order_by(arms.c.position))
        newest = connection.execute(
            select(CURRENT_VERDICT)
            .join(arms, and_(arms.c.run_id == CURRENT_VERDICT.c.run_id, arms.c.name == CURRENT_VERDICT.c.variant))
            .where(CURRENT_VERDICT.c.run_id == run_id)
            .order_by(arms.c.position)
        ).all()
        kernels = sorted({(arm, kernel) for arm, _, kernel, _ in groups if kernel})
        failures = connection.execute(
            select(units.c.error)
            .where(units.c.run_id == run_id, units.c.status == "error")
            .distinct()
            .order_by(units.c.error)
            .limit(PAGE if any(status == "error" for _, status in counts) else 0)
        ).scalars()
        check_verdicts_placed(connection)
        decisions, pruning = chain(connection), prunings.pruned(connection, run_id)
        return RunSummary(
            run_id=run.run_id,
            status=run.status,
            created_at=run.created_at,
            finished_at=run.finished_at,
            gate_file=run.gate_file,
            policy=plain.policy(run.policy_json),
            evalsets=tuple(_evalset_line(item, *size_of.get(item.name, (0, 1))) for item in rescored),
            scorings=_scorings(connection, run_id),
            arms=tuple(_arm_line(row, counts, kernels) for row in lines),
            verdicts=tuple(_with_votes(connection, _stored_verdict(row, decisions), run_id) for row in newest),
            failures=tuple(failures),
            pruned=str(pruning or ""),
            judging=plain.spent(run.judging_json),
            gate_name=run.gate_name or "",
        )


def unstored(verdicts: Sequence[Verdict], policy: Policy) -> tuple[StoredVerdict, ...]:
    """Return verdicts that are in no store and have no decisions."""
    return tuple(
        StoredVerdict(verdict=verdict, sha256="", created_at="", policy=policy, policy_sha256="", decisions=())
        for verdict in verdicts
    )


def verdicts_at(store: Store, run_id: str, time: str) -> tuple[Verdict, ...]:
    """Return the newest verdicts on the run's variants at this time (UTC text). Several gate files may judge one run by
    their own rules. Raises IntegrityError for a changed verdict."""
    placed = and_(arms.c.run_id == verdicts.c.run_id, arms.c.name == verdicts.c.variant)
    statement = select(verdicts).join(arms, placed).where(verdicts.c.run_id == run_id, verdicts.c.created_at <= time)
    with store.read() as connection:
        check_verdicts_placed(connection)
        decisions, newest = chain(connection), {}
        for row in connection.execute(statement.order_by(arms.c.position, verdicts.c.verdict_id.desc())):
            newest.setdefault(row.variant, row)
        return tuple(_stored_verdict(row, decisions).verdict for row in newest.values())


def checked_run(store: Store, run_id: str) -> RunSummary:
    """Return the summary for display, after reading the whole run: if it was changed or pruned, every verdict is
    invalid, with the reason."""
    run = run_summary(store, run_id)
    if run.pruned:
        return as_pruned(run)
    faults = evidence(store, run_id).integrity
    return as_damaged(run, faults) if faults else run


def as_damaged(run: RunSummary, faults: Sequence[str]) -> RunSummary:
    """Return the run with all verdicts invalid for these reasons."""
    reasons = (*faults, "Nothing can rest on it: restore the store from a backup, or run again in another store.")
    return _invalid(run, Exit.INTEGRITY, lambda stored: reasons)


def as_pruned(run: RunSummary) -> RunSummary:
    """Return a pruned run with all verdicts invalid; the reasons quote the earlier verdicts."""

    def reasons(stored: StoredVerdict) -> tuple[str, ...]:
        decided = f", and {stored.decision.by} decided {stored.decision.action!r}" if stored.decision else ""
        earlier = (
            f"The verdict of {stored.created_at[:10]} was {stored.verdict.word!r}{decided}: {stored.verdict.reasons[0]}"
        )
        return f"{run.pruned}: its answers and scores are gone, and nothing is decided by it any more", earlier

    return _invalid(run, Exit.INFRASTRUCTURE, reasons)


def _invalid(run: RunSummary, exit: Exit, reasons: Callable[[StoredVerdict], tuple[str, ...]]) -> RunSummary:
    """Return the run with each verdict invalid. reasons: the new reasons, given the stored verdict."""
    words = (
        Verdict(variant=stored.verdict.variant, word="invalid", exit=exit, reasons=reasons(stored))
        for stored in run.verdicts
    )
    return replace(
        run,
        verdicts=tuple(replace(stored, verdict=invalid) for stored, invalid in zip(run.verdicts, words, strict=True)),
    )


def _scorings(connection: Connection, run_id: str) -> tuple[ScoringLine, ...]:
    """Return a line for each later scoring of the run, the oldest first."""
    return tuple(
        ScoringLine(
            number=number,
            created_at=at,
            scorers=dict(scoring.scorers),
            corrected=tuple(f"{name}/{case}" for name, item in sorted(scoring.sets.items()) for case in item.corrected),
        )
        for number, (at, scoring) in enumerate(stored_scorings(connection, run_id), 1)
    )


def _evalset_line(item: Evalset, cases: int, repeats: int) -> EvalsetLine:
    """Return an evalset's line. item: as the newest scoring read it; cases, repeats: what the baseline was asked."""
    return EvalsetLine(
        name=item.name,
        version=item.version,
        sha256=item.sha256,
        content=item.content,
        description=item.description,
        metrics=item.metrics,
        cases=cases,
        repeats=repeats,
    )


def _arm_line(row: Any, counts: Mapping[tuple[str, str], int], kernels: list[tuple[str, str]]) -> ArmLine:
    """Return an arm's line from its row. counts: (arm, status) → units; kernels: (arm, kernel) of all arms.
    Raises IntegrityError for a changed arm."""
    check_arm(row)
    return ArmLine(
        spec=plain.arm_spec(row.spec_json),
        planned=read(ArmIdentity, row.planned_json),
        identity=plain.identity(row.observed_json),
        footprint=plain.footprint(row.footprint_json),
        expected=sum(number for (arm, _), number in counts.items() if arm == row.name),
        done=counts.get((row.name, "done"), 0),
        errors=counts.get((row.name, "error"), 0),
        kernels=tuple(kernel for arm, kernel in kernels if arm == row.name),
    )


def _stored_verdict(row: Any, decisions: Sequence[Decision]) -> StoredVerdict:
    """Return a verdict with the decisions on its variant. Raises IntegrityError for a changed verdict."""
    return StoredVerdict(
        verdict=check_verdict(row),
        sha256=row.sha256,
        created_at=row.created_at,
        policy=plain.policy(row.policy_json),
        policy_sha256=row.policy_sha256,
        decisions=tuple(
            decision for decision in decisions if (decision.run_id, decision.variant) == (row.run_id, row.variant)
        ),
    )


def _with_votes(connection: Connection, stored: StoredVerdict, run_id: str) -> StoredVerdict:
    """Return the verdict with a reason before the others if people's votes changed since."""
    try:
        stale = votes.changed(connection, run_id, stored.verdict, stored.policy)
    except IntegrityError as error:
        stale = str(error)
    if not stale:
        return stored
    return replace(stored, stale=stale, verdict=replace(stored.verdict, reasons=(stale, *stored.verdict.reasons)))
