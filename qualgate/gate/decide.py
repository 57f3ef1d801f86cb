"""The only entry point for a verdict. The policy chooses the way: four arms, an nel policy, early looks (`stop: early`)
at a run or at growing files, or else its rules on all cases, once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from qualgate.errors import Exit, UsageError
from qualgate.gate.comparisons.speculation import speculation_remarks
from qualgate.gate.early import decide_early
from qualgate.gate.evidence.answered_by import answerer_remarks
from qualgate.gate.evidence.sampler import sampler_remarks
from qualgate.gate.four_arm.drafting import drafting_remarks
from qualgate.gate.four_arm.verdict import decide_four
from qualgate.gate.growing import decide_growing, look_remarks
from qualgate.gate.peers.nel_policy import NelSaid, adopt, decide_by, of_text
from qualgate.gate.remark import Judged, Remark, Remarks, with_remarks
from qualgate.gate.trial import trial_remarks
from qualgate.gate.uncounted import uncounted_remarks
from qualgate.gate.verdict import decide_plain, overall_exit
from qualgate.gate.weights_and_cache import weights_and_cache_remarks
from qualgate.records import Policy, RunEvidence, ScoredAgain, Verdict
from qualgate.text.numbers import counted

MOST_ALPHA = 0.2  # a verdict at a larger alpha begins with a warning
CASES_SHOWN = 5  # of corrected references


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """Verdicts, and what they rest on."""

    verdicts: tuple[Verdict, ...]
    policy: Policy  # by which rules in the end: an nel policy's are known once there is evidence
    nel: tuple[NelSaid, ...] = ()  # where an nel policy decided: what nel would say, and why ours differs

    @property
    def exit(self) -> Exit:
        """The exit code of all of them."""
        return exit_of(self.verdicts)


def decide(evidence: RunEvidence, policy: Policy, now: str = "") -> Decided:
    """The verdict on each variant of a run or of score files.

    now: UTC, ISO 8601, for quarantines that end and evidence that grows old; "" = unknown: no quarantine is in force,
    and a `max_age` decides nothing.

    Same evidence in any order of units → the same verdicts, to the byte. UsageError: no variant, or a policy that
    does not fit the evidence.
    """
    decided = _decide_by_policy(evidence, policy, now)
    decision = Judged(evidence=evidence, policy=policy, rules=decided.policy, now=now, verdicts=decided.verdicts)
    for remarks in REMARKS:
        decision = replace(decision, verdicts=with_remarks(decision.verdicts, remarks(decision)))
    return replace(decided, verdicts=decision.verdicts)


def config_remarks(decision: Judged) -> Remarks:
    """Put intended differences of architecture first."""
    lines: dict[str, tuple[str, ...]] = {}
    for arm in decision.evidence.variants:
        if arm.another_model or arm.config_differences:
            what = (
                "another model than the baseline, on purpose" if arm.another_model else "not the baseline's, as allowed"
            )
            held_against = arm.name in decision.policy.references
            of = f" of {arm.name}" if held_against else ""
            line = f"config{of}: {what}: {'; '.join(arm.config_differences) or 'the same architecture'}"
            for name in [verdict.variant for verdict in decision.verdicts] if held_against else [arm.name]:
                lines[name] = (*lines.get(name, ()), line)
    return {name: Remark(lines=of_arm, place="first") for name, of_arm in lines.items()}


def scoring_remarks(decision: Judged) -> Remarks:
    """Note that metrics or references were chosen after the answers. An approval may rest on that choice."""
    if decision.evidence.scored_again is None:
        return {}
    note = scored_again_note(decision.evidence.scored_again)
    return {
        verdict.variant: Remark(
            lines=(note,),
            place="head",
            answer=verdict.four_arm and replace(verdict.four_arm, why=f"{verdict.four_arm.why} ({note})"),
        )
        for verdict in decision.verdicts
    }


def alpha_remarks(decision: Judged) -> Remarks:
    """Put a warning about a large alpha into the first line."""
    alpha = decision.policy.alpha
    if alpha <= MOST_ALPHA:
        return {}
    lead = f"at alpha {alpha:g}, so wrong up to {alpha:.0%} of the time: "
    return {
        verdict.variant: Remark(
            answer=verdict.four_arm and replace(verdict.four_arm, why=lead + verdict.four_arm.why),
            facts={"reasons": (lead + verdict.reasons[0], *verdict.reasons[1:])},
        )
        for verdict in decision.verdicts
    }


# In the order of application: of two remarks with first lines, the later one stands on top.
REMARKS: tuple[Callable[[Judged], Remarks], ...] = (
    drafting_remarks,
    sampler_remarks,
    weights_and_cache_remarks,
    speculation_remarks,
    look_remarks,
    uncounted_remarks,
    config_remarks,
    answerer_remarks,
    scoring_remarks,
    alpha_remarks,
    trial_remarks,  # last: whatever was decided before, it was a trial
)


def scored_again_note(again: ScoredAgain) -> str:
    """Say which metrics or references were chosen after the answers were seen, and what they were before."""
    by_change: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for evalset, change in again.metrics.items():
        by_change.setdefault(change, []).append(evalset)
    parts = [
        f"{', '.join(sets)} with {', '.join(after) or 'no metric'} (before: {', '.join(before) or 'no metric'})"
        for (before, after), sets in by_change.items()
    ]
    if cases := [f"{evalset}/{case}" for evalset, case in again.corrected]:
        few = ", ".join(cases[:CASES_SHOWN]) + (", …" if len(cases) > CASES_SHOWN else "")
        parts.append(f"{counted(len(cases), 'reference')} corrected for every arm ({few})")
    if again.forgiving:
        parts.append(f"another `lenient` or `normalizers` of {', '.join(again.forgiving)}")
    if again.retagged:
        parts.append(f"other tags on cases of {', '.join(again.retagged)}")
    return f"scored again on {again.at[:10]}, after the answers were seen: {'; '.join(parts)}"


def _decide_by_policy(evidence: RunEvidence, policy: Policy, now: str) -> Decided:
    """Decide by the procedure that the policy asks for: four arms, nel, a growing list, early stopping, or none of
    them.
    """
    ways = {"four arms": policy.four_arm, "an nel policy": policy.nel, "`stop: early`": policy.stop}
    if policy.references and (way := next((name for name, applies in ways.items() if applies), "")):
        raise UsageError(f"rules against {policy.references[0]} go with a fixed test of rules, not with {way}.")
    if policy.four_arm is not None:
        return Decided(verdicts=decide_four(evidence, policy, now), policy=policy)
    if policy.nel:
        verdicts, adopted, nel_replies = decide_by(of_text(policy.nel), evidence, policy, now)
        return Decided(verdicts=verdicts, policy=adopted, nel=nel_replies)
    if policy.stop is not None and evidence.looks is not None and not policy.stop.looks:
        return Decided(verdicts=decide_growing(evidence, policy, now), policy=policy)
    if policy.stop is not None and policy.stop.looks:
        return Decided(verdicts=decide_early(evidence, policy, now), policy=policy)
    return Decided(verdicts=decide_plain(evidence, policy, now), policy=policy)


def exit_of(verdicts: Sequence[Verdict]) -> Exit:
    """The exit code: the four-arm answer's, else the first of 14, 13, 10, 12, 11, 0 that occurs."""
    answers = [verdict.four_arm for verdict in verdicts if verdict.four_arm is not None]
    return Exit(answers[0].exit) if answers else overall_exit(verdicts)


def rules_before(policy: Policy, metrics: Mapping[str, tuple[str, ...]]) -> Policy:
    """The policy with the rules that will decide, as far as known before a run (metrics: of each evalset). An nel
    policy's relative guards need the baseline's level; a policy of rules stays as it is."""
    if not policy.nel:
        return policy
    adopted, _, _ = adopt(of_text(policy.nel), metrics)
    return replace(policy, rules=adopted.rules, alpha=adopted.alpha)
