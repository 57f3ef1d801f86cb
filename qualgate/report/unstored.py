"""Build the report of evidence that came from files and is in no store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qualgate.records import ArmEvidence, ArmSpec, Policy, RunEvidence, Verdict
from qualgate.records.identity import content_hash
from qualgate.records.metrics import BY_TRAJECTORY, METRICS
from qualgate.report.source import Source, source_of
from qualgate.report.summary import FLIPS_SHOWN, Report
from qualgate.store import queries
from qualgate.store.queries.summary import ArmLine, EvalsetLine

FAILURES_SHOWN = 100

if TYPE_CHECKING:
    from qualgate.intake.score_rows import ScoreRow, Scores
    from qualgate.pipeline.from_files import Judged
    from qualgate.pipeline.from_harnesses import JudgedLogs


@dataclass(frozen=True, slots=True, kw_only=True)
class FileArm(ArmLine):
    """An arm known by its scores alone."""

    models: tuple[str, ...] = ()  # named in its rows

    @property
    def weights(self) -> str:
        """The models named in its rows, in place of a description of its weights."""
        return f"{', '.join(self.models) or 'not known'} (scores from a file)"


def report_of_files(judged: Judged) -> Report:
    """Build the report of a verdict on score files; its findings point at the gate file on disk."""
    return report_of(
        judged.evidence,
        judged.verdicts,
        judged.policy,
        [side.source for side in judged.sides],
        description="scores from files",
        sides=judged.sides,
        source=source_of(judged.gate.path, judged.gate.policy),
    )


def report_of_results(judged: JudgedLogs) -> Report:
    """Build the report of a verdict on results of another harness."""
    logs = judged.pair.baseline, judged.pair.variant
    return report_of(
        judged.evidence,
        judged.decided.verdicts,
        judged.decided.policy,
        [log.scores.source for log in logs],
        description=f"results of {logs[0].format}",
        sides=[log.scores for log in logs],
    )


def report_of(
    evidence: RunEvidence,
    verdicts: Sequence[Verdict],
    policy: Policy,
    sources: Sequence[str],
    description: str = "",
    sides: Sequence[Scores] = (),
    source: Source | None = None,
) -> Report:
    """Build a report. sources: the baseline's file, then each variant's in order. sides: their rows, to show flips.
    source: the gate file's lines, if there is one."""
    arms = (evidence.baseline, *evidence.variants)
    judged_metrics = {verdict.variant: queries.judged_by(verdict, evidence.metrics) for verdict in verdicts}
    moved = {
        arm.name: _flips(sides[0], side, judged_metrics.get(arm.name, ()))
        for arm, side in zip(evidence.variants, sides[1:], strict=bool(sides))
    }
    questions: dict[str, set[tuple[str, int]]] = {name: set() for name in evidence.metrics}
    for key in evidence.expected:
        questions.setdefault(key.evalset, set()).add((key.case_id, key.repeat))
    run = queries.RunSummary(
        run_id=evidence.run_id,
        status="complete",
        created_at="",
        finished_at=None,
        gate_file="",
        policy=policy,
        evalsets=tuple(
            EvalsetLine(
                name=name,
                version="as logged",
                sha256=content_hash(sorted(unit.case_hash for unit in evidence.baseline.units)),
                content="",
                description=description,
                metrics=metrics,
                cases=len({case for case, _ in questions[name]}),
                repeats=len({repeat for _, repeat in questions[name]}) or 1,
            )
            for name, metrics in evidence.metrics.items()
        ),
        arms=tuple(
            _arm(arm, source, evidence, side.models if side else ())
            for arm, source, side in zip(arms, sources, sides or [None] * len(arms), strict=True)
        ),
        verdicts=queries.unstored(verdicts, policy),
        failures=tuple(sorted({unit.error for arm in arms for unit in arm.units if unit.error})[:FAILURES_SHOWN]),
    )
    return Report(
        run=run,
        flips={name: lost[:FLIPS_SHOWN] for name, (lost, _) in moved.items()},
        lost={name: len(lost) for name, (lost, _) in moved.items()},
        flip_counts={name: counts for name, (_, counts) in moved.items()},
        trajectories={
            arm.name: by_set for arm in evidence.variants if (by_set := _trajectories(evidence.baseline, arm))
        },
        readings={arm.name: by_set for arm in evidence.variants if (by_set := _readings(evidence.baseline, arm))},
        source=source or Source(),
    )


def _trajectories(baseline: ArmEvidence, variant: ArmEvidence) -> tuple[queries.Trajectories, ...]:
    """Return what `queries.trajectories` does for a store; the reasons of wrong turns are in the rows alone."""
    return queries.gathered(*(_pairs(baseline, variant, metric) for metric in BY_TRAJECTORY))


def _readings(baseline: ArmEvidence, variant: ArmEvidence) -> tuple[queries.Readings, ...]:
    return queries.read_by({metric: _pairs(baseline, variant, metric) for metric in queries.READINGS})


def _pairs(baseline: ArmEvidence, variant: ArmEvidence, metric: str) -> list[queries.ScoredPair]:
    """Return what the store's `scored_pairs` does, without reasons."""
    before = {(unit.key.evalset, unit.key.case_id, unit.key.repeat): unit.values for unit in baseline.units}
    return [
        (*question, before[question][metric], unit.values[metric], None, unit.scorers.get(metric) or "")
        for unit in variant.units
        if (question := (unit.key.evalset, unit.key.case_id, unit.key.repeat)) in before
        and metric in before[question]
        and metric in unit.values
    ]


def _flips(
    baseline: Scores, variant: Scores, deciding: Sequence[queries.Judged]
) -> tuple[tuple[queries.Flip, ...], tuple[queries.FlipCount, ...]]:
    """Return the cases that were right and are wrong, each once, and the counts of moved scores by metric and evalset.

    deciding: the metrics whose flips are listed, as `of` in `queries.flipped_cases`. Rows have no answers, so the
    scorer's extracted text is shown instead.
    """
    before = {(row.metric, row.evalset, row.id, row.repeat): row for row in baseline.rows if row.value is not None}
    counts: dict[tuple[str, str], list[int]] = {}  # (metric, evalset) → pairs, lost, gained
    lost = []
    for row in variant.rows:
        key = row.metric, row.evalset, row.id, row.repeat
        if row.value is None or key not in before or (row.metric in METRICS and METRICS[row.metric].kind != "quality"):
            continue
        value_before, count = before[key].value, counts.setdefault(key[:2], [0, 0, 0])
        count[0] += 1
        if (value_before, row.value) == (1, 0):
            count[1] += 1
            if not deciding or (row.metric, None) in deciding or (row.metric, row.evalset) in deciding:
                lost.append((key, row))
        elif (value_before, row.value) == (0, 1):
            count[2] += 1
    by_case: dict[tuple[str, str], tuple[tuple[str, str, str, int], ScoreRow]] = {}
    for key, row in sorted(lost, key=lambda keyed: keyed[0]):
        by_case.setdefault((row.evalset, row.id), (key, row))
    flips = [
        queries.Flip(
            metric=row.metric,
            evalset=row.evalset,
            case_id=row.id,
            repeat=row.repeat,
            direction="lost",
            baseline=before[key].extracted,
            variant=row.extracted,
            reason=row.reason,
            first_divergence=None,
        )
        for key, row in by_case.values()
    ]
    flip_counts = [
        queries.FlipCount(metric=metric, evalset=evalset, pairs=pairs, lost=gone, gained=won)
        for (metric, evalset), (pairs, gone, won) in sorted(counts.items())
    ]
    return tuple(flips), tuple(flip_counts)


def _arm(arm: ArmEvidence, source: str, evidence: RunEvidence, models: tuple[str, ...]) -> FileArm:
    """Return the arm of a score file. source: the file. models: those that its rows name."""
    assert arm.identity is not None, "scores from a file have one"
    return FileArm(
        spec=ArmSpec(name=arm.name, model=source),
        planned=arm.identity,
        identity=arm.identity,
        footprint=None,
        expected=sum(key.arm == arm.name for key in evidence.expected),
        done=len({unit.key for unit in arm.units if unit.status == "done"}),
        errors=sum(unit.status == "error" for unit in arm.units),
        kernels=(),
        models=models,
    )
