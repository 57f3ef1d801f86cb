"""The report of evidence that came from files and is in no store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qualgate.identity import content_hash
from qualgate.records import ArmEvidence, ArmSpec, Policy, RunEvidence, Verdict
from qualgate.report.summary import Report
from qualgate.store import queries
from qualgate.store.queries.summary import ArmLine, EvalsetLine, StoredVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class FileArm(ArmLine):
    @property
    def weights(self) -> str:
        return "not known (scores from a file)"


def report_of(
    evidence: RunEvidence, verdicts: Sequence[Verdict], policy: Policy, sources: Sequence[str], description: str = ""
) -> Report:
    """sources: the file of the baseline, then of each variant in order."""
    arms = (evidence.baseline, *evidence.variants)
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
                cases=sum(key.arm == evidence.baseline.name and key.evalset == name for key in evidence.expected),
            )
            for name, metrics in evidence.metrics.items()
        ),
        arms=tuple(_arm(arm, source, evidence) for arm, source in zip(arms, sources, strict=True)),
        verdicts=tuple(
            StoredVerdict(verdict=verdict, sha256="", created_at="", policy=policy, policy_sha256="", decisions=())
            for verdict in verdicts
        ),
        failures=(),
    )
    return Report(run=run, flips={})


def _arm(arm: ArmEvidence, source: str, evidence: RunEvidence) -> FileArm:
    assert arm.identity is not None, "scores from a file have one"
    return FileArm(
        spec=ArmSpec(name=arm.name, model=source),
        planned=arm.identity,
        identity=arm.identity,
        footprint=None,
        expected=sum(key.arm == arm.name for key in evidence.expected),
        done=len({unit.key for unit in arm.units}),
        errors=0,
        kernels=(),
    )
