"""Correct for the choice of one of three arms, which gives a wrong choice three chances.

Closed testing over all three arms, whatever each one's own test says: an arm that fails could have been chosen. That
one single arm is cheaper than the other is a separate, two-sided claim: which of the two is simpler depends on an arm's
quality, and another arm's loss must not prove an arm's quality. If `both` has the quality of quantization by parity,
the two share that test and pay for it once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import takewhile

from qualgate.gate.four_arm.value import Costs
from qualgate.records import ArmStep
from qualgate.stats.multiplicity import provable_together

CLAIMS = 3  # arms, of which one is chosen: no part is asked for more than alpha / 3
Steps = Mapping[str, list[ArmStep]]


def over_the_choice(
    steps_at: Callable[[int], Steps], shared: Mapping[str, str], singles: tuple[str, str], costs: Costs, alpha: float
) -> tuple[dict[str, list[ArmStep]], bool]:
    """Correct the arms' steps for the choice of one of them, by closed testing.

    steps_at: k → every step of every arm at alpha / k. shared: an arm's name → the arm whose quality it has by parity.
    singles: the two arms with one change each.

    Returns: (arm → steps, undecided where they are proven only at alpha; whether one single is surely cheaper).
    """
    first = steps_at(1)
    passed = [name for name, arm_steps in first.items() if all(step.status == "proven" for step in arm_steps)]
    if not passed:
        return dict(first), False
    levels = [steps_at(k) for k in range(1, CLAIMS + 1)]
    # Part of a claim → index of its step. Arms that share quality by parity share that part.
    parts_of_arm = {
        name: {f"{shared.get(name, name) if step.step == 'quality' else name} {step.step}": index
               for index, step in enumerate(arm_steps)}
        for name, arm_steps in first.items()
    }  # fmt: skip
    provable_at: dict[str, int] = {}  # part → the largest k at which it is proven at alpha / k
    for name, indices in parts_of_arm.items():
        for claim_part, index in indices.items():
            proven = (steps[name][index].status == "proven" for steps in levels)
            provable_at[claim_part] = min(provable_at.get(claim_part, CLAIMS), _count_leading_true(proven))
    claims = {name: list(indices) for name, indices in parts_of_arm.items()}
    cheaper = "one single is cheaper than the other"
    claims[cheaper] = [*claims[singles[0]], *claims[singles[1]], cheaper]
    provable_at[cheaper] = _count_leading_true(_cheaper(costs, singles, alpha / k) for k in range(1, CLAIMS + 1))
    proven_claims = provable_together(claims, provable_at)
    steps = {name: list(arm_steps) for name, arm_steps in first.items()}
    for name in set(passed) - proven_claims:
        weakest = min(provable_at[claim_part] for claim_part in parts_of_arm[name])
        for claim_part, index in parts_of_arm[name].items():
            if provable_at[claim_part] == weakest:
                at_level = levels[weakest][name][index] if weakest < CLAIMS else first[name][index]
                steps[name][index] = replace(first[name][index], status="undecided", reason=(
                    f"proven at alpha {alpha:g}, and one of three arms is chosen: at {alpha / (weakest + 1):.3g}, "
                    f"{at_level.reason}"))  # fmt: skip
    return steps, cheaper in proven_claims


def _count_leading_true(values: Iterable[bool]) -> int:
    """Count the values before the first that is false."""
    return sum(1 for _ in takewhile(bool, values))


def _cheaper(costs: Costs, singles: tuple[str, str], alpha: float) -> bool:
    """Whether one single is surely cheaper than the other: two-sided, half of alpha for each direction."""
    ratios = [costs.ratio(arm, other) for arm, other in (singles, singles[::-1])]
    return any(ratio is not None and ratio.bounds(1.0, alpha / 2).p_below <= alpha / 2 for ratio in ratios)
