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
    at: Callable[[int], Steps], shared: Mapping[str, str], singles: tuple[str, str], costs: Costs, alpha: float
) -> tuple[dict[str, list[ArmStep]], bool]:
    """(steps corrected for the choice: undecided if proven only at alpha; whether one single is surely cheaper).

    at: k → every step at alpha / k. shared: an arm's name → the arm whose quality it has by parity.
    """
    first = at(1)
    passed = [name for name, its in first.items() if all(step.status == "proven" for step in its)]
    if not passed:
        return dict(first), False
    levels = [at(k) for k in range(1, CLAIMS + 1)]
    parts = {
        name: {f"{shared.get(name, name) if step.step == 'quality' else name} {step.step}": place
               for place, step in enumerate(its)}
        for name, its in first.items()
    }  # fmt: skip
    among: dict[str, int] = {}
    for name, places in parts.items():
        for part, place in places.items():
            proven = (steps[name][place].status == "proven" for steps in levels)
            among[part] = min(among.get(part, CLAIMS), _before_false(proven))
    claims = {name: list(places) for name, places in parts.items()}
    cheaper = "one single is cheaper than the other"
    claims[cheaper] = [*claims[singles[0]], *claims[singles[1]], cheaper]
    among[cheaper] = _before_false(_cheaper(costs, singles, alpha / k) for k in range(1, CLAIMS + 1))
    proven_claims = provable_together(claims, among)
    steps = {name: list(its) for name, its in first.items()}
    for name in set(passed) - proven_claims:
        weakest = min(among[part] for part in parts[name])
        for part, place in parts[name].items():
            if among[part] == weakest:
                at_level = levels[weakest][name][place] if weakest < CLAIMS else first[name][place]
                steps[name][place] = replace(first[name][place], status="undecided", reason=(
                    f"proven at alpha {alpha:g}, and one of three arms is chosen: at {alpha / (weakest + 1):.3g}, "
                    f"{at_level.reason}"))  # fmt: skip
    return steps, cheaper in proven_claims


def _before_false(values: Iterable[bool]) -> int:
    return sum(1 for _ in takewhile(bool, values))


def _cheaper(costs: Costs, singles: tuple[str, str], alpha: float) -> bool:
    """Whether one single is surely cheaper than the other: two-sided, half of alpha for each direction."""
    ratios = [costs.ratio(arm, other) for arm, other in (singles, singles[::-1])]
    return any(ratio is not None and ratio.bounds(1.0, alpha / 2).p_below <= alpha / 2 for ratio in ratios)
