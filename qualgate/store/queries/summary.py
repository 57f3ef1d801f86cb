"""One run: its arms, sets and verdicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, and_, func, select

from qualgate.errors import Exit
from qualgate.formatting import counted
from qualgate.records import ArmFootprint, ArmIdentity, ArmSpec, Evalset, Policy, Spent, Verdict
from qualgate.records.served import invariant_mode
from qualgate.store import plain, prunings
from qualgate.store.database import Store
from qualgate.store.decisions import Decision, chain
from qualgate.store.evidence import evidence, no_such_run
from qualgate.store.queries.newest import CURRENT_VERDICT, check_verdicts_placed
from qualgate.store.queries.pages import PAGE
from qualgate.store.queries.progress import unit_counts
from qualgate.store.rescored_sets import as_rescored, sets_of_scoring
from qualgate.store.rows import check_arm, check_run, check_verdict
from qualgate.store.scorings import newest_sets
from qualgate.store.tables import arms, evalsets, runs, scorings, units, verdicts
from qualgate.store.typed import read

CASES_NAMED = 5  # of a scoring's corrected references


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmLine:
    """An arm of a run: as planned, as loaded, and how far it is."""

    spec: ArmSpec
    planned: ArmIdentity
    identity: ArmIdentity | None  # as loaded; None until a job of the arm finished
    footprint: ArmFootprint | None
    expected: int  # units
    done: int
    errors: int
    kernels: tuple[str, ...]  # what multiplied its packed weights; more than one cannot be compared

    @property
    def name(self) -> str:
        """ "baseline", or the variant's in the gate file."""
        return self.spec.name

    @property
    def sizes(self) -> ArmFootprint | None:
        """What was measured of its weights; None where nothing was, as of a served arm."""
        return self.footprint if self.spec.served is None else None

    @property
    def declared(self) -> str:
        """What its server says of itself: model, root, engine; or the command that it was started by. "" of ours."""
        identity = self.identity or self.planned
        if not identity.served:
            return ""
        engine = self.footprint.generation.engine if self.footprint else ""
        return identity.served if engine in ("", *identity.served.split("; ")) else f"{identity.served}; {engine}"

    @property
    def invariant_mode(self) -> str:
        """The mode that its command asks of the server that is started, see `records.served`; "" of others, whose own
        words are no command."""
        started = self.spec.served is not None and self.spec.served.command
        return invariant_mode((self.identity or self.planned).served) if started else ""

    @property
    def weights(self) -> str:
        """How its weights are held: "bfloat16", "int4 g32", "quantized folder" (as its own files have them)."""
        if not self.spec.quantize and self.footprint and self.footprint.quantized_bytes:
            return f"quantized folder{self.spec.beside}"
        return self.spec.weights_label


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalsetLine:
    """An evalset as the newest scoring read it: as it was when the run began, where nobody corrected it since."""

    name: str
    version: str
    sha256: str
    content: str  # Evalset.content: what a file of today must have to be the same set
    description: str
    metrics: tuple[str, ...]
    cases: int
    repeats: int = 1  # answers of each arm to a case

    @property
    def size(self) -> str:
        """For people: "400 cases, 4 answers to each"."""
        return counted(self.cases, "case") + (f", {self.repeats:,} answers to each" if self.repeats > 1 else "")


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
class ScoringLine:
    """One later scoring of the run's answers."""

    number: int  # from 1; the newest decides
    created_at: str
    scorers: dict[str, str]  # metric → scorer and version
    corrected: tuple[str, ...]  # "set/case" whose reference is not the recorded one

    @property
    def text(self) -> str:
        """For people: when, by which scorers, and which references are not the recorded ones."""
        scorers = ", ".join(f"{name} ({scorer})" for name, scorer in sorted(self.scorers.items()))
        few = ", ".join(self.corrected[:CASES_NAMED]) + (", …" if len(self.corrected) > CASES_NAMED else "")
        corrected = f"; {counted(len(self.corrected), 'corrected reference')}: {few}" if self.corrected else ""
        return f"scored again on {self.created_at[:10]} by {scorers}{corrected}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """All of a run but its answers."""

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
    pruned: str = ""  # "pruned on DATE" of a run whose answers and scores were taken out; "" of any other
    judging: Spent | None = None  # what asking its judge came to; None: nobody was asked, or nobody counted
    gate_name: str = ""  # of the gate file; "" where the store is older than that was kept
    scorings: tuple[ScoringLine, ...] = ()  # oldest first; `evalsets` are as the newest read them

    def verdict(self, variant: str) -> StoredVerdict | None:
        """The newest on this variant; None where there is none yet."""
        return next((found for found in self.verdicts if found.verdict.variant == variant), None)


def run_summary(store: Store, run_id: str) -> RunSummary:
    """Raises UsageError for an unknown run, IntegrityError for a policy, arm or verdict that was changed."""
    with store.read() as connection:
        run = connection.execute(select(runs).where(runs.c.run_id == run_id)).one_or_none()
        if run is None:
            raise no_such_run(connection, run_id)
        check_run(run)
        counts = unit_counts(connection, [run_id])
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
        named = connection.execute(
            select(units.c.arm, units.c.kernel).where(units.c.run_id == run_id, units.c.kernel != "").distinct()
        )
        kernels = sorted((row[0], row[1]) for row in named)
        failures = connection.execute(
            select(units.c.error)
            .where(units.c.run_id == run_id, units.c.status == "error")
            .distinct()
            .order_by(units.c.error)
            .limit(PAGE)
        ).scalars()
        check_verdicts_placed(connection)
        made, pruning = chain(connection), prunings.pruned(connection, run_id)
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
            verdicts=tuple(_stored_verdict(row, made) for row in newest),
            failures=tuple(failures),
            pruned=str(pruning or ""),
            judging=plain.spent(run.judging_json),
            gate_name=run.gate_name or "",
        )


def unstored(verdicts: Sequence[Verdict], policy: Policy) -> tuple[StoredVerdict, ...]:
    """Verdicts of which no store knows, and on which nobody decided."""
    return tuple(
        StoredVerdict(verdict=verdict, sha256="", created_at="", policy=policy, policy_sha256="", decisions=())
        for verdict in verdicts
    )


def verdicts_at(store: Store, run_id: str, time: str) -> tuple[Verdict, ...]:
    """What had been said of its variants by this time (UTC text). A run may be that of several gate files, and each has
    it judged by rules of its own. IntegrityError for a verdict that was changed."""
    placed = and_(arms.c.run_id == verdicts.c.run_id, arms.c.name == verdicts.c.variant)
    said = select(verdicts).join(arms, placed).where(verdicts.c.run_id == run_id, verdicts.c.created_at <= time)
    with store.read() as connection:
        check_verdicts_placed(connection)
        made, found = chain(connection), {}
        for row in connection.execute(said.order_by(arms.c.position, verdicts.c.verdict_id.desc())):
            found.setdefault(row.variant, row)
        return tuple(_stored_verdict(row, made).verdict for row in found.values())


def checked_run(store: Store, run_id: str) -> RunSummary:
    """The same for who shows it: where an answer or a score is not what was recorded, or was pruned, every verdict is
    invalid, and says so. Reads the whole run."""
    run = run_summary(store, run_id)
    if run.pruned:
        return as_pruned(run)
    faults = evidence(store, run_id).integrity
    return as_damaged(run, faults) if faults else run


def as_damaged(run: RunSummary, faults: Sequence[str]) -> RunSummary:
    """The run with no verdict but invalid, and these as the reasons."""
    reasons = (*faults, "Nothing can rest on it: restore the store from a backup, or run again in another store.")
    return _invalid(run, Exit.INTEGRITY, lambda one: reasons)


def as_pruned(run: RunSummary) -> RunSummary:
    """Likewise for a run that was pruned: its verdict can still be read, and nothing can be decided by it."""

    def reasons(one: StoredVerdict) -> tuple[str, ...]:
        decided = f", and {one.decision.name} decided {one.decision.action!r}" if one.decision else ""
        said = f"The verdict of {one.created_at[:10]} was {one.verdict.word!r}{decided}: {one.verdict.reasons[0]}"
        return f"{run.pruned}: its answers and scores are gone, and nothing is decided by it any more", said

    return _invalid(run, Exit.INFRASTRUCTURE, reasons)


def _invalid(run: RunSummary, exit: Exit, reasons: Callable[[StoredVerdict], tuple[str, ...]]) -> RunSummary:
    words = (
        Verdict(variant=one.verdict.variant, word="invalid", exit=exit, reasons=reasons(one)) for one in run.verdicts
    )
    return replace(run, verdicts=tuple(replace(one, verdict=new) for one, new in zip(run.verdicts, words, strict=True)))


def _scorings(connection: Connection, run_id: str) -> tuple[ScoringLine, ...]:
    rows = connection.execute(select(scorings).where(scorings.c.run_id == run_id).order_by(scorings.c.number))
    return tuple(
        ScoringLine(
            number=row.number,
            created_at=row.created_at,
            scorers=read(dict[str, str], row.scorers_json),
            corrected=tuple(
                f"{name}/{case}"
                for name, item in sorted(sets_of_scoring(connection, run_id, row.number).items())
                for case in item.corrected
            ),
        )
        for row in rows.all()
    )


def _evalset_line(item: Evalset, cases: int, repeats: int) -> EvalsetLine:
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


def _arm_line(row: Any, counts: dict[tuple[str, str, str], int], kernels: list[tuple[str, str]]) -> ArmLine:
    check_arm(row)
    return ArmLine(
        spec=plain.arm_spec(row.spec_json),
        planned=read(ArmIdentity, row.planned_json),
        identity=plain.identity(row.observed_json),
        footprint=plain.footprint(row.footprint_json),
        expected=sum(number for (_, arm, _), number in counts.items() if arm == row.name),
        done=counts.get((row.run_id, row.name, "done"), 0),
        errors=counts.get((row.run_id, row.name, "error"), 0),
        kernels=tuple(kernel for arm, kernel in kernels if arm == row.name),
    )


def _stored_verdict(row: Any, made: Sequence[Decision]) -> StoredVerdict:
    return StoredVerdict(
        verdict=check_verdict(row),
        sha256=row.sha256,
        created_at=row.created_at,
        policy=plain.policy(row.policy_json),
        policy_sha256=row.policy_sha256,
        decisions=tuple(one for one in made if (one.run_id, one.variant) == (row.run_id, row.variant)),
    )
