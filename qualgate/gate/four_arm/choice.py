"""Choose the arm to serve by the steps that each passed, and give each arm its word, reasons and exit code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qualgate.errors import Exit
from qualgate.gate.four_arm.steps import rules_of_step
from qualgate.gate.four_arm.value import Costs
from qualgate.records import ArmStep, FourArms, Policy, Verdict, VerdictWord
from qualgate.records.metrics import METRICS


def simplest_singles(quantized: Verdict, arms: FourArms) -> tuple[str, str]:
    """The single arms, the simpler change first: speculation, which changes no answer, if quantization is proven to
    lose something. quantized: the verdict on quantization alone."""
    loses = any(
        (comparison.upper or 0) < 0
        for comparison in rules_of_step(quantized, "quality")
        if METRICS[comparison.metric].kind == "quality"
    )
    return (arms.speculation, arms.quantization) if loses else (arms.quantization, arms.speculation)


def choose(
    base: str,
    names: tuple[str, ...],
    steps: Mapping[str, list[ArmStep]],
    singles: tuple[str, str],
    costs: Costs,
    *,
    cheaper: bool,
) -> tuple[str, str]:
    """(arm, why): the cheapest arm that passed every step; of arms with indistinguishable costs, the simplest.

    `both` passes by beating both singles. singles: the simpler first. cheaper: whether one single is surely cheaper
    than the other.
    """
    if unknown := next((step for name in names for step in steps[name] if _not_what_it_is_called(step)), None):
        return "", f"{unknown.arm}: {unknown.reason}"
    passed = [name for name in names if all(step.status == "proven" for step in steps[name])]
    if not passed:
        for name in names:
            if (ended := ended_by(steps[name])) is not None and ended.status == "undecided":
                return "", f"{name}: {ended.reason}"
        return base, "none of the three may and should replace the baseline"
    best = min(passed, key=costs.each)
    if best == singles[1] and singles[0] in passed and not cheaper:
        return singles[0], f"{best} is not surely cheaper, and {singles[0]} has fewer moving parts"
    return best, "passed parity, quality, SLO and value, at the lowest cost per accepted answer"


def _not_what_it_is_called(step: ArmStep) -> bool:
    return step.step == "drafting" and step.status != "proven"


def ended_by(steps: Sequence[ArmStep]) -> ArmStep | None:
    """The first broken step, whatever stayed open before it; else the first open one."""
    for status in ("broken", "undecided"):
        if first := next((step for step in steps if step.status == status), None):
            return first
    return None


def word_of(steps: Sequence[ArmStep], verdict: Verdict, policy: Policy) -> tuple[VerdictWord, Exit]:
    """(word, exit code) of an arm, from the step that ended it; review if the policy asks for a person."""
    ended = ended_by(steps)
    if ended is not None:
        return ("block", Exit.BLOCK) if ended.status == "broken" else ("undecided", Exit.UNDECIDED)
    return ("review", Exit.REVIEW) if _asks_a_person(verdict, policy) else ("approve", Exit.APPROVE)


def _asks_a_person(verdict: Verdict, policy: Policy) -> tuple[str, ...]:
    """Say why a person must review an arm that passed every step, as in `decide_plain`."""
    broken = _of_tier(verdict, "supporting", "broken")
    return broken or (("the policy asks for a person",) if policy.review == "always" else ())


def _of_tier(verdict: Verdict, tier: str, status: str) -> tuple[str, ...]:
    return tuple(
        comparison.reason
        for comparison in verdict.comparisons
        if (comparison.tier, comparison.status) == (tier, status)
    )


def reasons_of(steps: Sequence[ArmStep], verdict: Verdict, policy: Policy) -> tuple[str, ...]:
    """List the step that ended the arm or why a person is asked, then the other steps in order, then lesser rules."""
    ended = ended_by(steps)
    ordered = ([ended] if ended else []) + [step for step in steps if step is not ended]
    step_reasons = tuple(f"{step.step} {step.status}: {step.reason}" for step in ordered)
    asks = _asks_a_person(verdict, policy)
    lesser = (("supporting", "undecided"), ("advisory", "broken"), ("advisory", "undecided"))
    lesser_reasons = tuple(reason for tier, status in lesser for reason in _of_tier(verdict, tier, status))
    return (*step_reasons, *asks, *lesser_reasons) if ended else (*asks, *step_reasons, *lesser_reasons)


def exit_code(choice: str, base: str, words: Mapping[str, tuple[VerdictWord, Exit]]) -> Exit:
    """0 only for an arm that may replace the baseline without review; 11 if the chosen one needs a person."""
    if choice and choice != base:
        return words[choice][1]
    return Exit.UNDECIDED if not choice or any(word == "undecided" for word, _ in words.values()) else Exit.BLOCK
