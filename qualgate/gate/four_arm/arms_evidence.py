"""Select the evidence of the four arms, and of one arm against its own target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from qualgate.errors import UsageError
from qualgate.records import NOISE, FourArms, RunEvidence


def against_itself(evidence: RunEvidence) -> tuple[str, ...]:
    """Names of A/A arms, which serve the noise floor and `stability.rerun` and are none of the four."""
    planned = {key.arm for key in evidence.expected} | {arm.name for arm in evidence.variants}
    return tuple(sorted(name for name in planned if name.endswith(NOISE)))


def only(evidence: RunEvidence, names: Sequence[str], beside: Sequence[str] = ()) -> RunEvidence:
    """The evidence of the four arms, and of those `beside` them; the variants in the order of `names`."""
    arm_names = {evidence.baseline.name, *names}
    planned = {key.arm for key in evidence.expected} | {arm.name for arm in evidence.variants}
    if len(arm_names) != 4:
        raise UsageError(f"the four arms must be four different ones; found {', '.join(sorted(arm_names))}")
    if missing := sorted(arm_names - planned - {evidence.baseline.name}):
        raise UsageError(
            f"four_arm names {', '.join(missing)}, which the run does not have: {', '.join(sorted(planned))}"
        )
    arm_names |= set(beside)
    return replace(
        evidence,
        expected=tuple(key for key in evidence.expected if key.arm in arm_names),
        variants=tuple(arm for name in (*names, *beside) for arm in evidence.variants if arm.name == name),
    )


def against_quantization(evidence: RunEvidence, arms: FourArms) -> RunEvidence:
    """`both` as the variant of `quantization`, without its drift, which was measured from the baseline."""
    by_name = {arm.name: arm for arm in evidence.variants}
    both = by_name[arms.both]
    silent = tuple(replace(unit, kl=(), top1_agreement=None, first_divergence=None) for unit in both.units)
    arm_names = (arms.quantization, arms.both)
    return replace(
        evidence,
        expected=tuple(key for key in evidence.expected if key.arm in arm_names),
        baseline=by_name[arms.quantization],
        variants=(replace(both, units=silent),),
    )
