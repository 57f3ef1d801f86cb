"""The noise floor: answers that change when the baseline is run again with nothing but its batches changed.

The A/A arm's flips are shown beside each variant's, and `store.queries.flips` lists cases that flip in both last: they
say little about a variant. No test of a margin uses them: noise that flips cases both ways must not excuse a loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from qualgate.records import NOISE, ArmEvidence, RunEvidence, Verdict

UNMEASURED = (
    "noise floor: not measured: here the baseline was never run against itself; `qualgate run` with "
    "`noise_floor: true` measures it"
)
Case = tuple[str, str]  # evalset, case id


@dataclass(frozen=True, slots=True, kw_only=True)
class Flips:
    """Cases of one metric with a repeat that got worse (lost) or better (gained)."""

    lost: frozenset[Case]
    gained: frozenset[Case]
    cases: int


def flips(baseline: ArmEvidence, arm: ArmEvidence) -> dict[str, Flips]:
    """Metric → flips over the cases that both arms answered and scored."""
    answers = {(u.key.evalset, u.key.case_id, u.key.repeat): u for u in arm.units if u.status == "done"}
    lost: dict[str, set[Case]] = {}
    gained: dict[str, set[Case]] = {}
    compared: dict[str, set[Case]] = {}
    for unit in baseline.units:
        other = answers.get((unit.key.evalset, unit.key.case_id, unit.key.repeat))
        if unit.status != "done" or other is None:
            continue
        case = (unit.key.evalset, unit.key.case_id)
        for metric in unit.scorers.keys() & other.scorers.keys():
            before, after = unit.values.get(metric), other.values.get(metric)
            if before is None or after is None:
                continue
            compared.setdefault(metric, set()).add(case)
            if after != before:
                (lost if after < before else gained).setdefault(metric, set()).add(case)
    empty: set[Case] = set()
    return {
        metric: Flips(
            lost=frozenset(lost.get(metric, empty)), gained=frozenset(gained.get(metric, empty)), cases=len(cases)
        )
        for metric, cases in sorted(compared.items())
    }


def with_noise_floor(verdicts: Sequence[Verdict], evidence: RunEvidence) -> tuple[Verdict, ...]:
    """Add a line with the variant's and the A/A arm's flips to each verdict, and drop the A/A arm's own verdict. If
    there is none, verdicts on a served baseline say that noise was not measured."""
    noise_verdicts = [verdict for verdict in verdicts if verdict.variant.endswith(NOISE)]
    if not noise_verdicts:
        served = evidence.baseline.identity is not None and evidence.baseline.identity.served
        return without_noise_floor(verdicts, evidence) if served else tuple(verdicts)
    arms = {arm.name: arm for arm in evidence.variants}
    unusable = next((verdict.reasons[0] for verdict in noise_verdicts if verdict.exit in (13, 14)), "")
    annotated = []
    for verdict in verdicts:
        if verdict.variant.endswith(NOISE):
            continue
        if unusable or verdict.variant not in arms or verdict.exit in (13, 14):
            line = f"noise floor: not available ({unusable or verdict.reasons[0]})"
        else:
            own, noise = flips(evidence.baseline, arms[verdict.variant]), _floor(evidence)
            line = "noise floor, lost / gained of the variant and of the baseline against itself: " + "; ".join(
                f"{metric} {len(own[metric].lost)} / {len(own[metric].gained)} and "
                f"{len(noise[metric].lost)} / {len(noise[metric].gained)} of {noise[metric].cases}"
                for metric in sorted(own.keys() & noise.keys())
            )
        annotated.append(replace(verdict, reasons=(*verdict.reasons, line)))
    return tuple(annotated)


def without_noise_floor(verdicts: Sequence[Verdict], evidence: RunEvidence) -> tuple[Verdict, ...]:
    """Say once in each verdict that the noise floor was not measured, if the run has no A/A arm."""
    if any(arm.name.endswith(NOISE) for arm in evidence.variants):
        return tuple(verdicts)
    return tuple(
        verdict if UNMEASURED in verdict.reasons else replace(verdict, reasons=(*verdict.reasons, UNMEASURED))
        for verdict in verdicts
    )


def _floor(evidence: RunEvidence) -> dict[str, Flips]:
    rerun = next((arm for arm in evidence.variants if arm.name.endswith(NOISE)), None)
    return flips(evidence.baseline, rerun) if rerun is not None else {}
