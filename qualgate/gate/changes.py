"""What would make a policy decidable: first what costs no case, then more cases. Each change was tried in draws."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, sqrt

from qualgate.gate.measure import LEAST_BASELINE_RATE, SENSITIVITY_ALPHA
from qualgate.gate.outcomes import ASSUMED_CORRELATION
from qualgate.gate.prediction import ENOUGH, PlannedRule, Prediction, units_needed
from qualgate.gate.rules import Slice
from qualgate.metrics import DROP_BELOW, MARGINS_OF_BASELINE, METRICS
from qualgate.records import Policy, Rule
from qualgate.stats.intervals import normal_quantile
from qualgate.stats.paired import MIN_CLUSTERS
from qualgate.stats.power import MOST_PAIRS, chance_to_approve, pairs_to_approve
from qualgate.stats.unseen import p_at_most, trials_needed


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """An edit that makes the policy decidable, with what the planner then predicts."""

    kind: str  # "more cases", "pooled endpoint", "wider margins"
    lines: tuple[str, ...]  # what to write, one line each; of rules: lines of the gate file's list of rules
    cases: dict[str, int]  # by evalset
    policy: Policy
    approve: float
    block: float


def changes(model: Prediction, rules: Sequence[PlannedRule]) -> Iterator[Change]:
    """rules: what `model` predicts of each slice. None where a set has no case that counts: it cannot grow."""
    if not all(one.cases for one in model.sets):
        return
    for search in (_pooled, _wider, _more_cases):
        found = search(model, rules)
        if found is not None:
            yield found


def _targets(model: Prediction) -> Iterator[float]:
    """Chances that each critical rule should have, so that all of them together have `ENOUGH`."""
    critical = max(1, model.family("critical"))
    yield from (ENOUGH ** (1 / critical), 1 - (1 - ENOUGH) / critical, 1 - (1 - ENOUGH) / critical / 3, 0.999)


def _pooled(model: Prediction, rules: Sequence[PlannedRule]) -> Change | None:
    """One critical rule over all sets keeps the margin; sets too small to prove it alone guard against a collapse."""
    failing = _failing(model, rules)
    added: list[Rule] = []
    for metric in sorted({part.rule.metric for part in failing if part.name != "pooled"}):
        margin = min(p.rule.max_drop or 1.0 for p in failing if p.rule.metric == metric and p.name != "pooled")
        there = [p for p in model.quality if p.name == "pooled" and p.rule.metric == metric]
        if sum(metric in one.metrics for one in model.sets) > 1 and not any(p.rule.tier == "critical" for p in there):
            added.append(Rule(metric=metric, max_drop=margin))
    if len(model.sets) < 2 or not any(part.name != "pooled" for part in failing):
        return None
    return _rewritten(model, failing, added, "pooled endpoint")


def _wider(model: Prediction, rules: Sequence[PlannedRule]) -> Change | None:
    failing = _failing(model, rules)
    if not failing or (len(model.sets) > 1 and any(part.name != "pooled" for part in failing)):
        return None  # nothing to widen, or the pooled endpoint's task
    return _rewritten(model, failing, [], "wider margins")


def _failing(model: Prediction, rules: Sequence[PlannedRule]) -> list[Slice]:
    target = next(iter(_targets(model)))
    return [
        part
        for part, rule in zip(model.slices, rules, strict=True)
        if part.rule.tier == "critical" and rule.approve is not None and rule.approve < target
    ]


def _rewritten(model: Prediction, failing: Sequence[Slice], added: Sequence[Rule], kind: str) -> Change | None:
    names = {(id(part.rule), part.name) for part in failing}
    for target in _targets(model):
        becomes: list[tuple[Rule, list[Rule]]] = []
        for rule in model.policy.rules:
            mine = [part for part in model.slices if part.rule is rule]
            becomes.append((rule, [rule]))
            if not any((id(rule), part.name) in names for part in mine):
                continue
            becomes[-1][1].clear()
            for part in mine:
                edited = rule if part.name == "pooled" else replace(rule, scope="pooled", evalset=part.name)
                if (id(rule), part.name) in names:
                    margin = _least_margin(model, part, target)
                    edited = replace(edited, tier="advisory") if margin is None else replace(edited, max_drop=margin)
                becomes[-1][1].append(edited)
        changed = replace(model.policy, rules=_strictest([*(one for _, new in becomes for one in new), *added]))
        lines = _lines(becomes, added, changed.rules)
        if not any(r.tier == "critical" and METRICS[r.metric].kind == "quality" for r in changed.rules):
            continue
        tried = _tried(replace(model, policy=changed), kind, lines)
        if tried is not None:
            return tried
    return None


def _strictest(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """Of rules on the same cases in the same tier, which no gate file may hold, the one with the least margin."""
    kept: dict[tuple[object, ...], Rule] = {}
    for index, rule in enumerate(rules):
        where = rule.evalset is None and rule.scope, rule.evalset
        key = (rule.metric, rule.tier, *where) if rule.max_drop is not None else (index,)
        if key not in kept or (rule.max_drop or 0.0) < (kept[key].max_drop or 0.0):
            kept[key] = rule
    return tuple(kept.values())


def _lines(becomes: Sequence[tuple[Rule, list[Rule]]], added: Sequence[Rule], final: Sequence[Rule]) -> tuple[str, ...]:
    """What is to be taken out, each with what comes in its place, and what is new."""
    lines, open_ = [], list(final)
    for rule, new in becomes:
        if new == [rule] and rule in open_:
            open_.remove(rule)
            continue
        lines.append(f"# instead of - {as_line(rule)}")
        for one in new:
            if one in open_:
                open_.remove(one)
                lines.append(f"- {as_line(one)}")
    return (*lines, *(f"- {as_line(rule)}  # new" for rule in added if rule in open_))


def _least_margin(model: Prediction, part: Slice, target: float) -> float | None:
    """The smallest margin, in half points, at which the slice approves an identical variant often enough."""
    cases, flips = model.cases(part), model.mean(part, model.assumed.flips)
    if model.clustered(part):
        sizes = model.sizes(part)
        if sizes.total() < MIN_CLUSTERS:
            return None
        cases = int(cases**2 / _squares(sizes))
    right = model.mean(part, model.assumed.right)
    reach = normal_quantile(1 - SENSITIVITY_ALPHA) + normal_quantile(target)
    surely = right - reach * sqrt(right * (1 - right) / cases)
    margin = (part.rule.max_drop or 0.0) + 0.005
    while margin < DROP_BELOW:
        margin = ceil(round(margin * 200, 6)) / 200
        if surely < max(LEAST_BASELINE_RATE, MARGINS_OF_BASELINE * margin):
            return None
        if chance_to_approve(cases, margin, flips, 0.0, model.policy.alpha) >= target:
            return margin
        margin += 0.005
    return None


def _more_cases(model: Prediction, rules: Sequence[PlannedRule]) -> Change | None:
    factor = 1.0
    for target in _targets(model):
        needed = {one.name: one.cases for one in model.sets}
        for part in model.critical:
            total = _cases_needed(model, part, target)
            if total is None:
                return None
            chosen = model.among(part)
            grown = total * factor / sum(needed[one.name] for one in chosen)
            if grown > 1:
                needed |= {one.name: ceil(needed[one.name] * grown) for one in chosen}
        for part in model.slices:  # what cannot be said for want of cases alone
            if part.rule.tier == "critical":
                chosen = model.among(part)
                grown = units_needed(part, chosen) / model.sizes(part).total()
                needed |= {one.name: max(needed[one.name], ceil(one.cases * grown)) for one in chosen}
        sets = tuple(one.grown(needed[one.name]) for one in model.sets)
        lines = [
            f"evalset {after.name}: {after.cases + after.held:,} cases instead of {before.cases + before.held:,}"
            for before, after in zip(model.sets, sets, strict=True)
            if after.cases > before.cases
        ]
        if max(needed.values()) > MOST_PAIRS or not lines:
            return None
        tried = _tried(replace(model, sets=sets), "more cases", lines)
        if tried is not None:
            return tried
        factor *= 1.3 if any(one.clusters for one in model.sets) else 1.0
    return None


def _cases_needed(model: Prediction, part: Slice, target: float) -> int | None:
    margin, alpha = part.rule.max_drop or 0.0, model.policy.alpha
    right = model.mean(part, model.assumed.right)
    spare = right - max(LEAST_BASELINE_RATE, MARGINS_OF_BASELINE * margin)
    found = pairs_to_approve(margin, model.mean(part, model.assumed.flips), target, alpha)
    if spare <= 0 or found is None:
        return None
    reach = normal_quantile(1 - SENSITIVITY_ALPHA) + normal_quantile(target)
    found = max(found, ceil(reach**2 * right * (1 - right) / spare**2) + ceil(1 / spare))
    if model.clustered(part):
        typical = _squares(model.sizes(part)) / model.cases(part)
        effect = 1 + ASSUMED_CORRELATION * (typical - 1)
        found = max(ceil(found * effect * 1.1), ceil(max(MIN_CLUSTERS, trials_needed(margin, alpha)) * typical))
        flips, z = model.mean(part, model.assumed.flips), normal_quantile(target)

        def proven(cases: int) -> bool:
            """Whether clusters prove it where the variant's luck is as bad as in a share 1 − target of draws."""
            error, trials = sqrt(flips * effect / cases), cases / typical
            return bool(p_at_most(-z * error, error, max(2, int(trials)), trials, -margin) <= alpha)

        while found <= MOST_PAIRS and not proven(found):
            found = ceil(found * 1.02)
    return found


def _squares(sizes: Mapping[int, int]) -> int:
    return sum(size * size * many for size, many in sizes.items())


def _tried(changed: Prediction, kind: str, lines: Sequence[str]) -> Change | None:
    changed = replace(changed, seed=changed.seed + 1)
    if changed.approve < ENOUGH + 3 * sqrt(ENOUGH * (1 - ENOUGH) / changed.used):  # not by the luck of these draws
        return None
    return Change(
        kind=kind,
        lines=tuple(lines),
        cases={one.name: one.cases for one in changed.sets},
        policy=changed.policy,
        approve=changed.approve,
        block=changed.block,
    )


def as_line(rule: Rule) -> str:
    """The rule as an entry of a gate file's list of rules."""
    parts = [f"metric: {rule.metric}"]
    if rule.evalset is not None:
        plain = rule.evalset.replace("_", "").replace("-", "").isalnum() and rule.evalset[0].isalpha()
        parts.append(f"evalset: {rule.evalset if plain else json.dumps(rule.evalset)}")
    elif rule.scope == "evalset":
        parts.append("per: evalset")
    parts += [
        f"{name}: {value:g}"
        for name in ("max_drop", "max", "min", "max_ratio", "percentile")
        if (value := getattr(rule, name)) is not None
    ]
    return f"{{{', '.join(parts)}{f', tier: {rule.tier}' if rule.tier != 'critical' else ''}}}"
