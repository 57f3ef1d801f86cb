"""Predict, before anything is generated, whether a policy can decide.

For each rule, and for the whole policy jointly: how often an identical variant would be approved, and how often a
variant that loses twice the margin would be blocked (`planning.power`). For a policy that rarely approves an identical
variant the planner suggests changes, each checked in the same way (`planning.suggestions`).

The plan lists its assumptions: the disagreement of an identical variant (from an earlier run, else
`ASSUMED_DISAGREEMENT`), the baseline's rate, and independent flips of different metrics of one set. Real metrics rise
and fall together, which can only help an approval by all of them. A loss adds lost answers and no gained ones.

Only quality rules are predicted. Rules on drift or latency are checked for the number of cases that they need.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from qualgate.gate.advice import AIM, ENOUGH
from qualgate.gate.planning.assumed import COLLAPSED_ALIKE, Assumed
from qualgate.gate.planning.cases_needed import cases_needed, cases_that_do
from qualgate.gate.planning.change import Change
from qualgate.gate.planning.planned_sets import PlannedSet
from qualgate.gate.planning.power import DRAWS, PlannedRule, Prediction, outcome_of
from qualgate.gate.planning.suggestions import changes
from qualgate.gate.rules import Slice, may_approve
from qualgate.records import Policy, Rule, RunEvidence
from qualgate.records.metrics import METRICS


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPolicy:
    """Predicted rates of a policy, and changes if it can hardly decide."""

    approve: float  # P(every critical rule proven, nothing broken | identical)
    block: float  # P(block | every set loses twice the smallest margin of a critical rule on it)
    rules: tuple[PlannedRule, ...]
    changes: tuple[Change, ...]  # empty when the policy can decide, or when no change was found
    cases: dict[str, int]  # by evalset, as they are
    answers: int  # to all of them
    draws: int
    error: float  # the largest standard error of these rates from drawing
    source: str  # of the assumed disagreement

    @property
    def decidable(self) -> bool:
        """Whether an identical variant is approved often enough."""
        return self.approve >= ENOUGH

    @property
    def refused(self) -> bool:
        """Whether the policy can neither decide nor be changed so that it can."""
        return not self.decidable and not self.changes


def foreseeable(sets: Sequence[PlannedSet], policy: Policy) -> tuple[Policy | None, tuple[str, ...]]:
    """(the policy without rules on scores that no set declares, the ids of those rules).

    None instead of the policy: no critical quality rule remains, so nothing can be predicted.
    """
    carried = {metric for planned_set in sets for metric in planned_set.metrics}

    def fits(rule: Rule) -> bool:
        metric = METRICS[rule.metric]
        return not metric.approves or metric.everywhere or rule.metric in carried

    predictable = tuple(rule for rule in policy.rules if fits(rule))
    out = tuple(rule.id for rule in policy.rules if not fits(rule))
    critical = any(may_approve(rule) and METRICS[rule.metric].kind == "quality" for rule in predictable)
    return (replace(policy, rules=predictable) if critical else None), out


def plan_policy(
    sets: Sequence[PlannedSet],
    policy: Policy,
    assumed: Assumed | None = None,
    *,
    draws: int = DRAWS,
    seed: int = 0,
    search: bool = True,
    earlier: RunEvidence | None = None,
) -> PlannedPolicy:
    """Rates of the whole policy and of each rule, and what to change. UsageError: a policy that does not fit the sets.

    Same arguments, same numbers. search: look for changes where it can hardly decide. earlier: a run that tells how
    much what is measured varies. `draws` shrinks where clusters have to be drawn one by one.
    """
    assumed = assumed or Assumed()
    model = Prediction(sets=tuple(sets), policy=policy, assumed=assumed, draws=draws, seed=seed, earlier=earlier)
    rules, edits = model.rules(), ()
    if search:
        rules = tuple(_with_cases(model, slice_, rule) for slice_, rule in zip(model.slices, rules, strict=True))
        edits = () if model.approve >= ENOUGH else tuple(changes(model, rules))
    return PlannedPolicy(
        approve=model.approve,
        block=model.block,
        rules=rules,
        changes=edits,
        cases={planned_set.name: planned_set.cases for planned_set in model.sets},
        answers=sum(planned_set.cases * planned_set.repeats for planned_set in model.sets),
        draws=model.used,
        error=model.error,
        source=_source(model),
    )


def _with_cases(model: Prediction, slice_: Slice, rule: PlannedRule) -> PlannedRule:
    """Add the cases that a rarely proven slice needs: by formula, or by an estimate checked in draws."""
    if rule.approve is None or rule.approve >= ENOUGH or rule.needed is not None:
        return rule
    by_formula = slice_.rule.max_drop is not None and not model.clustered(slice_)
    return replace(rule, needed=cases_needed(model, slice_, AIM) if by_formula else cases_that_do(model, slice_))


def _source(model: Prediction) -> str:
    """Name the source of the assumed disagreement, and add that it does not cover any or all of several answers."""
    disagreement, source = model.assumed.disagreement, model.assumed.source
    collapsed = {
        (name, planned_set.name) for slice_ in model.quality for planned_set in model.among(slice_)
        if (name := outcome_of(slice_.rule, planned_set)) != slice_.rule.metric
    }  # fmt: skip
    return source if collapsed <= disagreement.keys() or COLLAPSED_ALIKE in source else f"{source}; {COLLAPSED_ALIKE}"
