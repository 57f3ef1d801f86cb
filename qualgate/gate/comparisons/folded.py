"""Fold the scores of several answers into one: of a trajectory's turns, of the repeats of a case.

A trajectory is right in a repeat if all of its turns in the slice are. For repeats the rule chooses: any is right, all
are, or the chance that `k` of them are (`stats.all_of`). None of these falls when a score rises, so bounds at the worst
and the best scores hold in between.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from qualgate.records import Rule, UnitKey, turn_of
from qualgate.records.metrics import BY_TRAJECTORY
from qualgate.stats.all_of import all_of

PASS_ALL = re.compile(r"pass\^([1-9][0-9]{0,3})")
Fold = Callable[[Sequence[float]], float]


class Folding:
    """Folds the scores of answers into those that a rule compares."""

    def __init__(self, rule: Rule, answers: Sequence[UnitKey]) -> None:
        """Plan how answers are folded into compared items.

        Raises: ValueError, with a message for the user, for answers that the rule cannot count.
        """
        self._steps: list[tuple[NDArray, int, Fold]] = []
        keys: list[tuple[str, str, int]] = [_trajectory(rule, key) for key in answers]
        if rule.metric in BY_TRAJECTORY:
            keys = self._step(keys, min)
        if rule.repeats != "mean":
            self._step([key[:2] for key in keys], fold_of(rule.repeats, _answers(keys)))

    def _step(self, keys: Sequence[Hashable], fold: Fold) -> list:
        numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        self._steps.append((np.array([numbers[key] for key in keys], int), len(numbers), fold))
        return list(numbers)

    def scores(self, values: NDArray) -> NDArray:
        """Fold scores: [answers] → [compared items]."""
        for item_of_answer, count, fold in self._steps:
            order, sizes = np.argsort(item_of_answer, kind="stable"), np.bincount(item_of_answer, minlength=count)
            scores_by_item = np.split(values[order], np.cumsum(sizes)[:-1])
            values = np.array([fold(item_scores.tolist()) for item_scores in scores_by_item], float)
        return values

    def clusters(self, labels: NDArray) -> NDArray:
        """Fold cluster labels: [answers] → [compared items]."""
        for item_of_answer, count, _ in self._steps:
            folded = np.zeros(count, int)
            folded[item_of_answer] = labels
            labels = folded
        return labels


def fold_of(repeats: str, answers: int) -> Fold:
    """The fold that `repeats` names. answers: the fewest to any case. ValueError for a `pass^k` with a larger k."""
    if repeats in ("any", "all"):
        return max if repeats == "any" else min
    match = PASS_ALL.fullmatch(repeats)
    assert match is not None, "the gate file's reader lets nothing else through"
    if (k := int(match[1])) > answers:
        raise ValueError(f"{repeats} needs {k} answers to each case, there are {answers}")
    return partial(all_of, k)


def _answers(keys: Sequence[tuple[str, str, int]]) -> int:
    return min(Counter(key[:2] for key in keys).values(), default=0)


def _trajectory(rule: Rule, key: UnitKey) -> tuple[str, str, int]:
    """(evalset, trajectory or else case, repeat) of an answer."""
    if rule.metric not in BY_TRAJECTORY:
        return key.evalset, key.case_id, key.repeat
    if (turn := turn_of(key.case_id)) is None:
        raise ValueError(f"{rule.metric} counts trajectories, and {key.case_id!r:.80} is no turn of one (TRAJECTORY/1)")
    return key.evalset, turn[0], key.repeat
