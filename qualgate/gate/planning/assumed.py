"""The planner's assumptions: how often an identical variant disagrees, how often the baseline is right, and how alike
answers of one cluster are. From an earlier run where there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from qualgate.records import ArmEvidence, RunEvidence, turn_of
from qualgate.records.metrics import BY_TRAJECTORY
from qualgate.stats.betting import ASSUMED_DISAGREEMENT
from qualgate.stats.intervals import clustered_ratio
from qualgate.stats.paired.compare import MIN_CLUSTERS

ASSUMED_BASELINE = 0.8  # share of a set's cases that the baseline gets right
ASSUMED_CORRELATION = 0.1  # of the differences of two questions of one cluster
# Of the differences of two answers to one question. The reference model at temperature 0.7, 4 answers to each of 800
# questions of transform and arithmetic: 0.51 (95 % bound: at most 0.57) of int4, which loses 8 points; 0.03 (0.08) of
# int8, which loses none and changes 0.6 % of its answers.
REPEAT_CORRELATION = 0.6
COLLAPSED_ALIKE = "any or all of the repeats like one answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumed:
    """Assumed rates by (outcome, evalset); the others have the defaults.

    An outcome is a metric, or a metric over any or all of a question's answers: "exact_match any".
    """

    disagreement: Mapping[tuple[str, str], float] = field(default_factory=dict)
    baseline: Mapping[tuple[str, str], float] = field(default_factory=dict)
    default_disagreement: float = ASSUMED_DISAGREEMENT
    default_baseline: float = ASSUMED_BASELINE
    correlation: float = ASSUMED_CORRELATION
    repeat_correlation: float = REPEAT_CORRELATION
    source: str = "assumed: no earlier run tells"

    def flips(self, outcome: str, name: str) -> float:
        """The disagreement of an identical variant: share of answers that change from right to wrong or back."""
        return self.disagreement.get((outcome, name), self.default_disagreement)

    def right(self, outcome: str, name: str) -> float:
        """The baseline's assumed rate of right answers."""
        return self.baseline.get((outcome, name), self.default_baseline)

    def alike(self, questions: float, repeats: int) -> float:
        """Mean correlation of the differences of two answers in a cluster of so many questions; 0 of one alone."""
        others = questions * repeats - 1
        if others <= 0:
            return 0.0
        return ((repeats - 1) * self.repeat_correlation + (questions - 1) * repeats * self.correlation) / others


Pairs = list[tuple[float, float]]  # (the baseline's value, the variant's) of answers


def seen_in(evidence: RunEvidence, repeats: int = 1) -> Assumed:
    """Disagreement and baseline rates of an earlier run, from its variant most like the baseline.

    One flip is added, so that a run without any does not predict none. repeats: planned answers to each question. If
    the run has as many, it also gives the rates of any and all of them; otherwise one answer's rate stands for those.
    """
    answered = 1 + max((unit.key.repeat for unit in evidence.baseline.units), default=0)
    changed: dict[tuple[str, str], float] = {}
    right: dict[tuple[str, str], float] = {}
    change_and_correlation: tuple[float, float] | None = None  # share of answers changed, and their correlation
    for arm in evidence.variants:
        answers = _answers(evidence, arm)
        for (metric, name), questions in answers.items():
            for outcome, pairs in _pairs_by_outcome(metric, questions, repeats, answered).items():
                rate = (_changes(pairs) + 1) / (len(pairs) + 1)
                changed[outcome, name] = min(rate, changed.get((outcome, name), 1.0))
                right[outcome, name] = sum(before for before, _ in pairs) / len(pairs)
        if answered > 1 and answers:
            everything = [pair for questions in answers.values() for pairs in questions.values() for pair in pairs]
            change_and_correlation = min(
                change_and_correlation or (2.0, 0.0), (_changes(everything) / len(everything), _alike(answers))
            )
    source = f"as seen in run {evidence.run_id}"
    return Assumed(
        disagreement=changed,
        baseline=right,
        repeat_correlation=REPEAT_CORRELATION if change_and_correlation is None else change_and_correlation[1],
        source=source if repeats in (1, answered) else f"{source}; {COLLAPSED_ALIKE}",
    )


def _answers(evidence: RunEvidence, arm: ArmEvidence) -> dict[tuple[str, str], dict[str, Pairs]]:
    """(metric, evalset) → case or trajectory → its scores on both sides. A null score counts as in an approval: the
    baseline right, the variant wrong."""
    before = {(u.key.evalset, u.key.case_id, u.key.repeat): u.values for u in evidence.baseline.units}
    answers: dict[tuple[str, str], dict[str, Pairs]] = {}
    whole: dict[
        tuple[str, str, str, int], tuple[float, float]
    ] = {}  # of a trajectory's turns in one repeat: the smaller
    for unit in arm.units:
        base = before.get((unit.key.evalset, unit.key.case_id, unit.key.repeat), {})
        for metric in evidence.metrics.get(unit.key.evalset, ()):
            if metric in base and metric in unit.values:
                before_value, after = base[metric], unit.values[metric]
                questions = answers.setdefault((metric, unit.key.evalset), {})
                pair = (1.0 if before_value is None else before_value, 0.0 if after is None else after)
                turn = turn_of(unit.key.case_id) if metric in BY_TRAJECTORY else None
                if turn is None:
                    questions.setdefault(unit.key.case_id, []).append(pair)
                    continue
                turn_key = metric, unit.key.evalset, turn[0], unit.key.repeat
                before_it, after_it = whole.get(turn_key, pair)
                whole[turn_key] = min(before_it, pair[0]), min(after_it, pair[1])
    for (metric, name, trajectory, _), pair in whole.items():
        answers[metric, name].setdefault(trajectory, []).append(pair)
    return answers


def _pairs_by_outcome(metric: str, questions: Mapping[str, Pairs], repeats: int, answered: int) -> dict[str, Pairs]:
    """Return an outcome's pairs: one per answer and, with several planned, any and all of a question's answers.

    repeats: planned answers to each question. answered: those of the earlier run; unless it has as many, single answers
    stand for any and all of them.
    """
    single = [pair for pairs in questions.values() for pair in pairs]
    if repeats == 1:
        return {metric: single}
    whole = [pairs for pairs in questions.values() if len(pairs) == answered == repeats]

    def collapsed(over: Callable[[Iterable[float]], float]) -> Pairs:
        return [(over(before for before, _ in pairs), over(after for _, after in pairs)) for pairs in whole] or single

    return {metric: single, f"{metric} any": collapsed(max), f"{metric} all": collapsed(min)}


def _changes(pairs: Pairs) -> int:
    return sum(before != after for before, after in pairs)


def _alike(answers: Mapping[tuple[str, str], Mapping[str, Pairs]]) -> float:
    """Upper 95 % bound of the correlation of the differences of two answers to one question, 0 to 1.

    The moment estimator Σ dᵢ dⱼ / (k − 1) over Σ dᵢ², both over questions, d the difference less its mean. With fewer
    than `MIN_CLUSTERS` questions with any difference, at least the default.
    """
    products, squares, question_numbers, flipped = [], [], [], set()
    numbers: dict[tuple[str, str], int] = {}
    for (_, name), questions in answers.items():
        differences_by_case = {
            case: np.array([b - a for a, b in pairs]) for case, pairs in questions.items() if len(pairs) > 1
        }
        mean = np.concatenate([*differences_by_case.values(), [0.0] * (not differences_by_case)]).mean()
        for case, differences in differences_by_case.items():
            deviations = differences - mean
            squares.append(float(deviations @ deviations))
            products.append((float(deviations.sum()) ** 2 - squares[-1]) / (len(deviations) - 1))
            question_numbers.append(numbers.setdefault((name, case), len(numbers)))  # by several metrics perhaps
            flipped |= {question_numbers[-1]} if differences.any() else set()
    least = REPEAT_CORRELATION if len(flipped) < MIN_CLUSTERS else 0.0
    return min(max(clustered_ratio(products, squares, question_numbers, 0.0).upper, least), 1.0) if flipped else least
