"""Estimate the number of cases that a slice needs, and enlarge the sets to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import ceil, sqrt

import numpy as np
from numpy.typing import NDArray

from qualgate.gate.advice import AIM, bound_of, cases_surely_right, enough_right
from qualgate.gate.planning.margins import absolute_margin
from qualgate.gate.planning.outcomes import View, trials_of
from qualgate.gate.planning.planned_sets import PlannedSet
from qualgate.gate.planning.power import Prediction, answers_of
from qualgate.gate.rules import Slice
from qualgate.stats.cluster_bets import MOST_TRIALS, bets_serve, clusters_by_bets
from qualgate.stats.intervals import normal_quantile
from qualgate.stats.paired.compare import MIN_CLUSTERS
from qualgate.stats.power import MOST_PAIRS, pairs_to_approve
from qualgate.stats.unseen_clusters import p_at_most, trials_needed

_TRIED = 2_000  # draws that check an estimate
_TRIES = 6


def cases_that_do(model: Prediction, slice_: Slice) -> int | None:
    """Cases of the slice at which an identical variant is proven in `AIM` of draws: an estimate, raised until draws
    confirm it. None: too many, or unknown."""
    alone = replace(model.policy, rules=(replace(slice_.rule, tier="critical", against=""),))
    model = replace(model, policy=alone, draws=min(model.draws, _TRIED))
    (slice_,) = (planned_slice for planned_slice in model.slices if planned_slice.name == slice_.name)
    cases = cases_needed(model, slice_, AIM)
    for _ in range(_TRIES):
        grown = with_cases(model, slice_, cases) if cases is not None else None
        if grown is None or cases is None:
            return None
        (grown_slice,) = (planned_slice for planned_slice in grown.slices if planned_slice.name == slice_.name)
        if grown.alone(grown_slice) >= AIM:
            return grown.cases(grown_slice)
        cases = ceil(max(cases, model.cases(slice_)) * 1.15)
    return None


def cases_needed(model: Prediction, slice_: Slice, target: float) -> int | None:
    """Cases of the slice at which an identical variant is proven with that chance, by formula; None: too many."""
    right, bound, cases = model.mean(slice_, model.assumed.right), bound_of(slice_.rule)[1], model.cases(slice_)
    sure, flips = (
        cases_surely_right(right, enough_right(slice_.rule, bound), target),
        model.mean(slice_, model.assumed.flips),
    )
    pairs, margin, alpha = None, bound, model.policy.alpha
    for _ in range(1 if slice_.rule.max_drop is not None else 4):  # a relative margin is the wider the more cases tell
        margin, alpha = absolute_margin(model, slice_, bound, pairs or max(cases, 30))
        pairs = pairs_to_approve(margin, flips, target, alpha)
        if sure is None or pairs is None:
            return None
    assert pairs is not None, "tried at least once"
    assert sure is not None, "likewise"
    pairs = max(pairs, sure)
    repeats = max(answers_of(slice_.rule, planned_set) for planned_set in model.among(slice_))
    answers = _in_clusters(model, slice_, pairs, flips, repeats, margin, alpha, target)
    return None if answers is None else ceil(answers / repeats)


def _in_clusters(
    model: Prediction, slice_: Slice, pairs: int, flips: float, repeats: int, margin: float, alpha: float, target: float
) -> float | None:
    """Answers, in clusters like the slice's, that are worth so many independent pairs.

    A cluster counts as one pair, or by the correlation of its answers if enough clusters flip to estimate it; and there
    are enough clusters that undrawn ones which fail as a whole cannot hide the margin.
    """
    sizes = model.sizes(slice_)
    typical = sum(size * count for size, count in sizes.items()) / trials_of(sizes, alpha)
    if typical <= 1:
        return pairs
    correlation = model.assumed.alike(typical / repeats, repeats)
    effect = 1 + correlation * (typical - 1)
    serve = bets_serve(_grown(sizes, MOST_TRIALS * trials_needed(margin, alpha), alpha), margin, alpha)
    if slice_.rule.max_drop is not None and serve:
        jump = min(1.0, 1.3 / typical)  # most flips come alone, some together
        clusters = 1.08 * clusters_by_bets(margin, flips * effect / typical, jump, target, alpha)
        if clusters <= MOST_TRIALS * trials_needed(margin, alpha):
            return max(clusters, MIN_CLUSTERS) * typical
    flipping = 1 - (1 - flips) ** (
        1 + (1 - sqrt(correlation)) * (typical - 1)
    )  # of clusters, by about that many outcomes
    by_design_effect = max(pairs * effect * 1.1, 1.3 * MIN_CLUSTERS * typical / max(flipping, 1e-6))
    needed = max(min(pairs * typical, by_design_effect), max(MIN_CLUSTERS, trials_needed(margin, alpha)) * typical)
    z = normal_quantile(target)

    def proven(answers: float) -> bool:
        """Whether clusters prove the margin at the 1 − target quantile of the variant's luck."""
        error, trials = sqrt(flips * effect / answers), answers / typical
        return bool(p_at_most(-z * error, error, max(2, int(trials)), trials, -margin) <= alpha)

    while not proven(needed):
        needed *= 1.02
        if needed > MOST_PAIRS:
            return None
    return needed


def _grown(sizes: Mapping[int, int], trials: float, alpha: float) -> NDArray:
    """Clusters of these sizes, worth about `trials` independent ones."""
    share = trials / trials_of(sizes, alpha)
    return np.repeat(list(sizes), [max(1, int(count * share)) for count in sizes.values()])


def with_cases(model: Prediction, slice_: Slice, cases: float) -> Prediction | None:
    """The sets with at least so many cases of a slice; None if it has none yet, or needs too many."""
    present = model.cases(slice_)
    if not present:
        return None
    if cases <= present:
        return model
    sets = tuple(
        _enlarged(planned_set, model.view(slice_, planned_set), cases, present)
        if planned_set.name in slice_.evalsets
        else planned_set
        for planned_set in model.sets
    )
    return None if max(planned_set.cases for planned_set in sets) > MOST_PAIRS else replace(model, sets=sets)


def _enlarged(planned_set: PlannedSet, view: View, cases: float, now: int) -> PlannedSet:
    """The set enlarged so that a slice grows from `now` to `cases`. view: the questions that the slice sees."""
    if view is None:  # all of them: cases of every kind
        return planned_set.grown(ceil(planned_set.cases * cases / now))
    return planned_set.multiplied(cases / now, view.__contains__) if view else planned_set
