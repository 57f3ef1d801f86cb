"""The only entry point for a verdict. The policy chooses the way: four arms, an nel policy, early looks (`stop: early`)
at a run or at growing files, or else its rules on all cases, once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from qualgate.errors import Exit
from qualgate.formatting import counted
from qualgate.gate.comparisons.speculation import with_speculation
from qualgate.gate.early import decide_early
from qualgate.gate.evidence.answered_by import with_answerers
from qualgate.gate.evidence.quarantine import hold
from qualgate.gate.evidence.sampler import with_sampler
from qualgate.gate.four_arm.drafting import with_drafting
from qualgate.gate.four_arm.verdict import decide_four
from qualgate.gate.growing import answers_before, ask_no_more, decide_growing, tested_before
from qualgate.gate.peers.nel_policy import NelSaid, adopt, decide_by, of_text
from qualgate.gate.uncounted import cases_of, uncounted, with_uncounted
from qualgate.gate.verdict import NOTHING_CRITICAL, decide_plain, overall_exit, slices_of
from qualgate.gate.weights_and_cache import with_weights_and_cache
from qualgate.records import ArmEvidence, Policy, RunEvidence, ScoredAgain, Verdict

MOST_ALPHA = 0.2  # a verdict at a larger alpha begins with a warning
CASES_SHOWN = 5  # of corrected references
NO_POLICY = (
    "no policy, no verdict: these arms were looked at, and nobody said what loss is accepted; say it by a rule of a "
    "gate file, and run that"
)


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
    decided = _decide(evidence, policy, now)
    if policy.four_arm is None:  # there these are steps
        verdicts = with_sampler(with_drafting(decided.verdicts, evidence), evidence)
        decided = replace(decided, verdicts=verdicts)
    if decided.policy.stop is None and decided.policy.four_arm is None:
        verdicts = with_weights_and_cache(decided.verdicts, evidence, decided.policy, now)
        decided = replace(decided, verdicts=verdicts)
    decided = replace(decided, verdicts=with_speculation(decided.verdicts, evidence, policy.alpha))
    decided = replace(decided, verdicts=tuple(_at_its_look(verdict, evidence, policy) for verdict in decided.verdicts))
    if not (policy.nel or evidence.trial):  # these gate by other means, or decide nothing
        quarantined = hold(policy, evidence.expected, now[:10]).cases
        missed = uncounted(cases_of(evidence, quarantined), slices_of(evidence, policy))
        decided = replace(
            decided, verdicts=tuple(with_uncounted(verdict, missed, policy) for verdict in decided.verdicts)
        )
    arms = {arm.name: arm for arm in evidence.variants}
    decided = replace(
        decided, verdicts=tuple(_with_config(verdict, arms.get(verdict.variant)) for verdict in decided.verdicts)
    )
    decided = replace(decided, verdicts=with_answerers(decided.verdicts, evidence))
    if evidence.scored_again is not None:
        note = scored_again_note(evidence.scored_again)
        decided = replace(decided, verdicts=tuple(_with_scoring(verdict, note) for verdict in decided.verdicts))
    if policy.alpha > MOST_ALPHA:
        decided = replace(decided, verdicts=tuple(_with_alpha(verdict, policy.alpha) for verdict in decided.verdicts))
    if evidence.trial:  # after all else: what a trial says is said of the trial, by whichever policy it is judged
        looked = policy.trial is not None and policy.trial.first_look  # else rules were given to it later
        judged = decided.verdicts
        trial_verdicts = tuple(
            _of_first_look(verdict) if looked else _of_trial(verdict, evidence.trial) for verdict in judged
        )
        decided = replace(decided, verdicts=trial_verdicts)
    return decided


def _at_its_look(verdict: Verdict, evidence: RunEvidence, policy: Policy) -> Verdict:
    """Make the verdict undecided if the list was tested before: only the first test decides, see `growing`."""
    looks, seen = evidence.looks or (), evidence.judged_before
    if test := tested_before(looks, policy):
        return ask_no_more(verdict, test, answers_before(looks))
    # One of four arms is chosen, so a look at any of them was a look at the choice.
    before = max(seen.values(), default=0) if policy.four_arm is not None else seen.get(verdict.variant, 0)
    return ask_no_more(verdict, "", before) if before else verdict


def _of_trial(verdict: Verdict, trial: str) -> Verdict:
    """Make a trial's verdict undecided; a broken or incomplete run stays so."""
    why = f"{trial}: it decides nothing"
    if verdict.exit in (Exit.INTEGRITY, Exit.INFRASTRUCTURE):
        return replace(verdict, reasons=(*verdict.reasons, why))
    four = verdict.four_arm and replace(verdict.four_arm, choice="", why=why, exit=int(Exit.UNDECIDED))
    reasons = (f"{why}; judged on these alone it would be {verdict.word}", *verdict.reasons)
    return replace(verdict, word="undecided", exit=int(Exit.UNDECIDED), reasons=reasons, four_arm=four)


def _of_first_look(verdict: Verdict) -> Verdict:
    """Make a first look's verdict undecided and advisory, since nobody chose margins yet. A broken or incomplete run
    stays so."""
    if verdict.exit in (Exit.INTEGRITY, Exit.INFRASTRUCTURE):
        return replace(verdict, reasons=(*verdict.reasons, NO_POLICY))
    comparison_reasons = {comparison.reason for comparison in verdict.comparisons} | {NOTHING_CRITICAL}
    measured = tuple(
        replace(
            comparison,
            rule=f"{comparison.metric} [{comparison.slice}]",
            status="undecided",
            tier="advisory",
            reason=NO_POLICY,
        )
        for comparison in verdict.comparisons
    )
    reasons = (NO_POLICY, *(reason for reason in verdict.reasons if reason not in comparison_reasons))
    code = int(Exit.UNDECIDED)
    return replace(verdict, word="undecided", exit=code, reasons=reasons, comparisons=measured)


def scored_again_note(again: ScoredAgain) -> str:
    """Say which metrics or references were chosen after the answers were seen, and what they were before."""
    by_change: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for evalset, change in again.metrics.items():
        by_change.setdefault(change, []).append(evalset)
    parts = [
        f"{', '.join(sets)} with {', '.join(now) or 'no metric'} (before: {', '.join(before) or 'no metric'})"
        for (before, now), sets in by_change.items()
    ]
    if cases := [f"{evalset}/{case}" for evalset, case in again.corrected]:
        few = ", ".join(cases[:CASES_SHOWN]) + (", …" if len(cases) > CASES_SHOWN else "")
        parts.append(f"{counted(len(cases), 'reference')} corrected for every arm ({few})")
    if again.forgiving:
        parts.append(f"another `lenient` or `normalizers` of {', '.join(again.forgiving)}")
    if again.retagged:
        parts.append(f"other tags on cases of {', '.join(again.retagged)}")
    return f"scored again on {again.at[:10]}, after the answers were seen: {'; '.join(parts)}"


def _with_scoring(verdict: Verdict, note: str) -> Verdict:
    """Put the note first in an approval, which may rest on that choice, and second in any other verdict."""
    first, *others = verdict.reasons
    passes = verdict.exit in (Exit.APPROVE, Exit.REVIEW)
    four = verdict.four_arm and replace(verdict.four_arm, why=f"{verdict.four_arm.why} ({note})")
    return replace(verdict, reasons=(note, first, *others) if passes else (first, note, *others), four_arm=four)


def _with_config(verdict: Verdict, arm: ArmEvidence | None) -> Verdict:
    """Put intended differences of architecture first."""
    if arm is None or not (arm.another_model or arm.config_differences):
        return verdict
    what = "another model than the baseline, on purpose" if arm.another_model else "not the baseline's, as allowed"
    note = f"config: {what}: {'; '.join(arm.config_differences) or 'the same architecture'}"
    return replace(verdict, reasons=(note, *verdict.reasons))


def _with_alpha(verdict: Verdict, alpha: float) -> Verdict:
    """Put a warning about a large alpha first."""
    warning = f"at alpha {alpha:g}, so wrong up to {alpha:.0%} of the time: "
    four = verdict.four_arm and replace(verdict.four_arm, why=warning + verdict.four_arm.why)
    return replace(verdict, reasons=(warning + verdict.reasons[0], *verdict.reasons[1:]), four_arm=four)


def _decide(evidence: RunEvidence, policy: Policy, now: str) -> Decided:
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
