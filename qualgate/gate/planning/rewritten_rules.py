"""Rewrite rules so that a policy can decide with its present cases: a pooled endpoint, or wider margins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, sqrt

from qualgate.gate.advice import SENSITIVITY_ALPHA, bound_of, enough_right
from qualgate.gate.planning.change import Change, targets, tried
from qualgate.gate.planning.margins import absolute_margin
from qualgate.gate.planning.outcomes import trials_of
from qualgate.gate.planning.power import PlannedRule, Prediction
from qualgate.gate.planning.rule_lines import rewritten_lines
from qualgate.gate.rules import Slice, may_approve
from qualgate.records import Rule
from qualgate.records.metrics import DROP_BELOW, METRICS
from qualgate.stats.intervals import normal_quantile
from qualgate.stats.paired.compare import MIN_CLUSTERS
from qualgate.stats.power import chance_to_approve


def pooled_endpoint(model: Prediction, rules: Sequence[PlannedRule]) -> Change | None:
    """Add one critical rule over everything at the same margin; slices too small to prove it get wider margins."""
    partial = [slice_ for slice_ in _failing(model, rules) if slice_.name != "pooled"]
    if not any(len(model.sets) > 1 or slice_.only is not None for slice_ in partial):
        return None
    by_kind: dict[tuple[str, str, str, str], list[Slice]] = {}
    for slice_ in partial:
        by_kind.setdefault(_kind_of(slice_), []).append(slice_)
    added: list[Rule] = []
    for kind, slices in sorted(by_kind.items()):
        metric, bound, *_ = kind
        carrying = {
            planned_set.name
            for planned_set in model.sets
            if METRICS[metric].everywhere or metric in planned_set.metrics
        }
        exists = any(_kind_of(slice_) == kind and slice_.only is None and carrying == set(slice_.evalsets)
                    for slice_ in model.critical)  # fmt: skip
        if not exists:
            least = min(bound_of(slice_.rule)[1] for slice_ in slices)
            # pyrefly: ignore[bad-argument-type]
            added.append(replace(slices[0].rule, scope="pooled", evalset=None, where=None, **{bound: least}))
    return _rewritten(model, failing=_failing(model, rules), added=added, kind="pooled endpoint")


def _kind_of(slice_: Slice) -> tuple[str, str, str, str]:
    """(metric, name of the bound, repeats, the arm it is against): rules of one kind can replace each other."""
    return slice_.rule.metric, bound_of(slice_.rule)[0], slice_.rule.repeats, slice_.rule.against


def wider_margins(model: Prediction, rules: Sequence[PlannedRule]) -> Change | None:
    """Give every failing slice the least margin at which it would decide."""
    failing = _failing(model, rules)
    if not failing or (
        len(model.sets) > 1 and any(slice_.name != "pooled" and slice_.only is None for slice_ in failing)
    ):
        return None  # nothing to widen, or the pooled endpoint's task
    return _rewritten(model, failing, [], "wider margins")


def _failing(model: Prediction, rules: Sequence[PlannedRule]) -> list[Slice]:
    target = next(iter(targets(model)))
    return [
        slice_
        for slice_, rule in zip(model.slices, rules, strict=True)
        if slice_.rule.tier == "critical" and rule.approve is not None and rule.approve < target
    ]


def _rewritten(model: Prediction, failing: Sequence[Slice], added: Sequence[Rule], kind: str) -> Change | None:
    """Find the first change of margins, by rising target chances, that makes the policy decidable.

    failing: slices whose margins are too small. added: rules to add. kind: name of the change. None if no change does,
    or all would lose their critical quality rules.
    """
    for target in targets(model):
        becomes = [
            (rule, _replacements(model, [slice_ for slice_ in model.slices if slice_.rule is rule], failing, target))
            for rule in model.policy.rules
        ]
        changed = replace(model.policy, rules=_strictest([*(rule for _, new in becomes for rule in new), *added]))
        lines = rewritten_lines(becomes, added, changed.rules)
        if not any(may_approve(rule) and METRICS[rule.metric].kind == "quality" for rule in changed.rules):
            continue
        change = tried(replace(model, policy=changed), kind, lines)
        if change is not None:
            return change
    return None


def _replacements(model: Prediction, slices: Sequence[Slice], failing: Sequence[Slice], target: float) -> list[Rule]:
    """Return the rules that replace one, with the smallest margins that do. A slice that no margin saves becomes
    advisory.

    slices: all slices of the rule. failing: those to widen. target: chance that each should have.
    """
    rule, (name, bound) = slices[0].rule, bound_of(slices[0].rule)
    if not any(slice_ in failing for slice_ in slices):
        return [rule]
    margins = {slice_: _least_margin(model, slice_, target) if slice_ in failing else bound for slice_ in slices}
    least = [margin for margin in margins.values() if margin is not None]
    alone = [_on_slice_alone(slice_) for slice_ in slices]
    together = rule.scope != "evalset" and len(least) == len(slices)  # one line for all tasks, or all values of a tag
    if together or None in alone:
        whole = replace(rule, **{name: max(least, default=bound)})  # pyrefly: ignore[bad-argument-type]
        return [whole if len(least) == len(slices) else replace(rule, tier="advisory")]
    return [
        # pyrefly: ignore[bad-argument-type]
        replace(rule, tier="advisory") if margin is None else replace(rule, **{name: margin})
        for rule, margin in zip(alone, margins.values(), strict=True)
        if rule is not None
    ]


def _on_slice_alone(slice_: Slice) -> Rule | None:
    """Return the rule restricted to this slice; None if no line of a gate file can express it: two labels at once."""
    rule = slice_.rule
    if rule.evalset is not None or rule.scope == "pooled":
        return rule
    if rule.scope == "evalset":
        return replace(rule, scope="pooled", skip="", evalset=slice_.evalsets[0])
    return replace(rule, scope="pooled", skip="", where=slice_.name) if rule.where in (None, slice_.name) else None


def _strictest(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """Of rules on the same cases in the same tier, which no gate file may hold, the one with the least margin."""
    strictest: dict[tuple[object, ...], Rule] = {}
    for index, rule in enumerate(rules):
        name, bound = bound_of(rule)
        where = rule.evalset is None and rule.scope, rule.evalset, rule.where, rule.repeats, rule.against
        key = (rule.metric, rule.tier, name, *where) if bound else (index,)
        if key not in strictest or bound < bound_of(strictest[key])[1]:
            strictest[key] = rule
    return tuple(strictest.values())


def _least_margin(model: Prediction, slice_: Slice, target: float) -> float | None:
    """Find the smallest margin, in half points, at which the slice approves an identical variant often enough.

    target: that chance. None if none below `DROP_BELOW` does, the baseline is too weak for it, or cases are too few.
    """
    sizes, flips = model.sizes(slice_), model.mean(slice_, model.assumed.flips)
    cases = sum(size * count for size, count in sizes.items())
    if model.clustered(slice_):
        if sizes.total() < MIN_CLUSTERS:
            return None
        cases = int(trials_of(sizes, model.policy.alpha))
    if not cases:
        return None
    right = model.mean(slice_, model.assumed.right)
    reach = normal_quantile(1 - SENSITIVITY_ALPHA) + normal_quantile(target)
    surely = right - reach * sqrt(right * (1 - right) / cases)
    margin = bound_of(slice_.rule)[1] + 0.005
    while margin < DROP_BELOW:
        margin = ceil(round(margin * 200, 6)) / 200
        if margin >= DROP_BELOW or surely < enough_right(slice_.rule, margin):
            return None
        absolute, alpha = absolute_margin(model, slice_, margin, cases)
        if chance_to_approve(cases, absolute, flips, 0.0, alpha) >= target:
            return margin
        margin += 0.005
    return None
