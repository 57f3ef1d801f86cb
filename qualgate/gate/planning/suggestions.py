"""What would make a policy decidable: first what keeps every margin and tier (more cases, more answers to each), then
what costs no case (a pooled endpoint, wider margins). Each change was tried in draws."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, sqrt

from qualgate.gate.comparisons.quality import LEAST_BASELINE_RATE, SENSITIVITY_ALPHA
from qualgate.gate.planning.outcomes import trials_of
from qualgate.gate.planning.planned_sets import PlannedSet
from qualgate.gate.planning.power import ENOUGH, PlannedRule, Prediction, answers_of
from qualgate.gate.rules import Slice
from qualgate.metrics import DROP_BELOW, MARGINS_OF_BASELINE, METRICS
from qualgate.records import Policy, Rule
from qualgate.stats.intervals import binomial_lower, normal_quantile
from qualgate.stats.paired.compare import MIN_CLUSTERS
from qualgate.stats.power import MOST_PAIRS, chance_to_approve, pairs_to_approve
from qualgate.stats.relative import RATE_PART
from qualgate.stats.unseen_clusters import p_at_most, trials_needed

_TRIED = 2_000  # draws by which an estimate of the cases that a slice needs is tried
_TRIES = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """An edit that makes the policy decidable, with what the planner then predicts."""

    kind: str  # "more cases", "repeats", "pooled endpoint", "wider margins"
    lines: tuple[str, ...]  # what to write, one line each; of rules: lines of the gate file's list of rules
    sets: tuple[PlannedSet, ...]
    policy: Policy
    approve: float
    block: float

    @property
    def cases(self) -> dict[str, int]:
        """By evalset."""
        return {one.name: one.cases for one in self.sets}

    @property
    def answers(self) -> int:
        return sum(one.cases * one.repeats for one in self.sets)


def changes(model: Prediction, rules: Sequence[PlannedRule]) -> Iterator[Change]:
    """rules: what `model` predicts of each slice. None where a set has no case that counts: it cannot grow."""
    if not all(one.cases for one in model.sets):
        return
    pooled = _pooled(model, rules)
    wider = None if pooled else _wider(model, rules)
    found = (_more_cases(model), _repeated(model), pooled, wider)
    yield from (one for one in found if one is not None)


def _targets(model: Prediction) -> Iterator[float]:
    """Chances that each critical rule should have, so that all of them together have `ENOUGH`."""
    critical = max(1, model.family("critical"))
    yield from (ENOUGH ** (1 / critical), 1 - (1 - ENOUGH) / critical, 1 - (1 - ENOUGH) / critical / 3, 0.999)


def _pooled(model: Prediction, rules: Sequence[PlannedRule]) -> Change | None:
    """One critical rule over everything keeps the margin; slices too small to prove it guard against a collapse."""
    partial = [part for part in _failing(model, rules) if part.name != "pooled"]
    if not any(len(model.sets) > 1 or part.only is not None for part in partial):
        return None
    found: dict[tuple[str, str, str], list[Slice]] = {}
    for part in partial:
        found.setdefault(_kind(part), []).append(part)
    added: list[Rule] = []
    for kind, parts in sorted(found.items()):
        metric, _, bound = kind
        carrying = {one.name for one in model.sets if METRICS[metric].everywhere or metric in one.metrics}
        there = any(_kind(part) == kind and part.only is None and carrying == set(part.evalsets)
                    for part in model.critical)  # fmt: skip
        if not there:
            least = min(bound_of(part.rule)[1] for part in parts)
            added.append(replace(parts[0].rule, scope="pooled", evalset=None, where=None, **{bound: least}))
    return _rewritten(model, failing=_failing(model, rules), added=added, kind="pooled endpoint")


def _kind(part: Slice) -> tuple[str, str, str]:
    """Rules of one kind can stand in for each other on other cases: metric, repeats, and which bound."""
    return part.rule.metric, part.rule.repeats, bound_of(part.rule)[0]


def _wider(model: Prediction, rules: Sequence[PlannedRule]) -> Change | None:
    failing = _failing(model, rules)
    if not failing or (len(model.sets) > 1 and any(part.name != "pooled" and part.only is None for part in failing)):
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
    for target in _targets(model):
        becomes = [
            (rule, _widened(model, [part for part in model.slices if part.rule is rule], failing, target))
            for rule in model.policy.rules
        ]
        changed = replace(model.policy, rules=_strictest([*(one for _, new in becomes for one in new), *added]))
        lines = _lines(becomes, added, changed.rules)
        if not any(r.tier == "critical" and METRICS[r.metric].kind == "quality" for r in changed.rules):
            continue
        tried = _tried(replace(model, policy=changed), kind, lines)
        if tried is not None:
            return tried
    return None


def _widened(model: Prediction, mine: Sequence[Slice], failing: Sequence[Slice], target: float) -> list[Rule]:
    """What a rule becomes. mine: all of its slices. A slice that no margin saves is kept as advice."""
    rule, (name, bound) = mine[0].rule, bound_of(mine[0].rule)
    if not any(part in failing for part in mine):
        return [rule]
    margins = {part: _least_margin(model, part, target) if part in failing else bound for part in mine}
    least = [margin for margin in margins.values() if margin is not None]
    alone = [_alone(part) for part in mine]
    together = rule.scope != "evalset" and len(least) == len(mine)  # one line for all tasks, or all values of a tag
    if together or None in alone:
        whole = replace(rule, **{name: max(least, default=bound)})
        return [whole if len(least) == len(mine) else replace(rule, tier="advisory")]
    return [
        replace(one, tier="advisory") if margin is None else replace(one, **{name: margin})
        for one, margin in zip(alone, margins.values(), strict=True)
        if one is not None
    ]


def _alone(part: Slice) -> Rule | None:
    """The rule on this slice only; None where no line of a gate file can say that: two labels at once."""
    rule = part.rule
    if rule.evalset is not None or rule.scope == "pooled":
        return rule
    if rule.scope == "evalset":
        return replace(rule, scope="pooled", evalset=part.evalsets[0])
    return replace(rule, scope="pooled", where=part.name) if rule.where in (None, part.name) else None


def bound_of(rule: Rule) -> tuple[str, float]:
    """Which bound of a quality rule is set, and to what; of other rules any name and 0."""
    return ("max_relative_drop", rule.max_relative_drop) if rule.max_relative_drop else ("max_drop", rule.max_drop or 0)


def _strictest(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """Of rules on the same cases in the same tier, which no gate file may hold, the one with the least margin."""
    kept: dict[tuple[object, ...], Rule] = {}
    for index, rule in enumerate(rules):
        name, bound = bound_of(rule)
        where = rule.evalset is None and rule.scope, rule.evalset, rule.where, rule.repeats
        key = (rule.metric, rule.tier, name, *where) if bound else (index,)
        if key not in kept or bound < bound_of(kept[key])[1]:
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
    sizes, flips = model.sizes(part), model.mean(part, model.assumed.flips)
    cases = sum(size * many for size, many in sizes.items())
    if model.clustered(part):
        if sizes.total() < MIN_CLUSTERS:
            return None
        cases = int(trials_of(sizes, model.policy.alpha))
    if not cases:
        return None
    right = model.mean(part, model.assumed.right)
    reach = normal_quantile(1 - SENSITIVITY_ALPHA) + normal_quantile(target)
    surely = right - reach * sqrt(right * (1 - right) / cases)
    margin = bound_of(part.rule)[1] + 0.005
    while margin < DROP_BELOW:
        margin = ceil(round(margin * 200, 6)) / 200
        if margin >= DROP_BELOW or surely < _enough(part.rule, margin):
            return None
        absolute, alpha = _absolute(model, part, margin, cases)
        if chance_to_approve(cases, absolute, flips, 0.0, alpha) >= target:
            return margin
        margin += 0.005
    return None


def _enough(rule: Rule, margin: float) -> float:
    """The rate that the baseline must surely have to lose the margin."""
    return max(LEAST_BASELINE_RATE, MARGINS_OF_BASELINE * margin if rule.max_drop is not None else 0.0)


def _absolute(model: Prediction, part: Slice, margin: float, cases: float) -> tuple[float, float]:
    """The margin as a share of all answers, and the alpha that its test has: a relative one's rests on a rate."""
    alpha = model.policy.alpha
    if part.rule.max_drop is not None:
        return margin, alpha
    right, spent = model.mean(part, model.assumed.right), RATE_PART * alpha
    return margin * binomial_lower(right * cases, cases, spent), alpha - spent  # type: ignore[arg-type]  # fractions


def _more_cases(model: Prediction) -> Change | None:
    """More of what a slice sees: of a whole set cases of all kinds, of a label those that have it."""
    factor = 1.0
    for target in _targets(model):
        grown = model
        for part in sorted(model.critical, key=lambda part: part.only is None):  # what a label needs counts for the set
            total = _cases_needed(model, part, target)
            if total is None:
                return None
            grown = _grown(grown, part, total * factor)
            if grown is None:
                return None
        for part in model.slices:  # what cannot be said for want of cases alone
            if part.rule.tier == "critical":
                least = model.units_needed(part) * model.cases(part) / max(1, model.sizes(part).total())
                grown = _grown(grown, part, least)
                if grown is None:
                    return None
        lines = _growth(model, grown)
        if not lines:
            return None
        tried = _tried(grown, "more cases", lines)
        if tried is not None:
            return tried
        factor *= 1.3 if any(model.clustered(part) or part.rule.max_drop is None for part in model.quality) else 1.0
    return None


def _repeated(model: Prediction) -> Change | None:
    """More answers to each case, where they are alike to a part only and all could help.

    However many there are, they tell at most 1 / (what two of them have in common) times as much.
    """
    now, failing = max(one.repeats for one in model.sets), [one for one in model.critical if one.rule.repeats == "mean"]
    if len(failing) < len(model.critical):
        return None
    most = 1 / max(model.assumed.repeat_correlation, 1e-3)
    wanted = [_cases_needed(model, part, next(iter(_targets(model)))) for part in failing]
    if any(cases is None or cases > most * model.cases(part) for cases, part in zip(wanted, failing, strict=True)):
        return None
    for repeats in (2, 4, 8):
        if repeats > now:
            sets = tuple(replace(one, repeats=repeats) for one in model.sets)
            said = f"repeats: {repeats}" if now > 1 else f"temperature: 0.7, repeats: {repeats}"
            lines = [f"generation: {{{said}}}  # answers to each case; they are sampled"]
            if (tried := _tried(replace(model, sets=sets), "repeats", lines)) is not None:
                return tried
    return None


def _grown(model: Prediction, part: Slice, cases: float) -> Prediction | None:
    """The sets with at least so many cases of a slice; None where it has none yet, or that would be too many."""
    now = model.cases(part)
    if not now:
        return None
    if cases <= now:
        return model
    chosen = {one.name: model.view(part, one) for one in model.among(part)}
    sets = []
    for one in model.sets:
        view = chosen.get(one.name, frozenset())
        if view is None:
            one = one.grown(ceil(one.cases * cases / now))
        elif view:
            one = one.multiplied(cases / now, view.__contains__)
        sets.append(one)
    if max(one.cases for one in sets) > MOST_PAIRS:
        return None
    return replace(model, sets=tuple(sets))


def _growth(before: Prediction, after: Prediction) -> list[str]:
    lines = []
    for old, new in zip(before.sets, after.sets, strict=True):
        if new.cases == old.cases:
            continue
        line = f"evalset {new.name}: {new.cases + new.held:,} cases instead of {old.cases + old.held:,}"
        labels = {part.rule.where or part.name: before.view(part, old) for part in before.critical if part.only}
        for name, view in labels.items():
            were, are = (
                sum(count * many for kind, many in one.kinds.items() for marks, count in kind if marks in (view or ()))
                for one in (old, new)
            )
            if were < are < new.cases:
                line += f", of them {are:,} with {name} instead of {were:,}"
        lines.append(line)
    return lines


def cases_that_do(model: Prediction, part: Slice) -> int | None:
    """Cases of the slice at which an identical variant is proven in `ENOUGH` of draws: an estimate, raised until draws
    bear it out. None: too many, or not known."""
    alone = replace(model.policy, rules=(replace(part.rule, tier="critical"),))
    model = replace(model, policy=alone, draws=min(model.draws, _TRIED))
    (part,) = (one for one in model.slices if one.name == part.name)
    cases = _cases_needed(model, part, ENOUGH)
    for _ in range(_TRIES):
        grown = _grown(model, part, cases) if cases is not None else None
        if grown is None or cases is None:
            return None
        (mine,) = (one for one in grown.slices if one.name == part.name)
        if grown.alone(mine) >= ENOUGH:
            return grown.cases(mine)
        cases = ceil(max(cases, model.cases(part)) * 1.15)
    return None


def _cases_needed(model: Prediction, part: Slice, target: float) -> int | None:
    right, bound, cases = model.mean(part, model.assumed.right), bound_of(part.rule)[1], model.cases(part)
    spare, flips = right - _enough(part.rule, bound), model.mean(part, model.assumed.flips)
    found, margin, alpha = None, bound, model.policy.alpha
    for _ in range(1 if part.rule.max_drop is not None else 4):  # a relative margin is the wider the more cases tell
        margin, alpha = _absolute(model, part, bound, found or max(cases, 30))
        found = pairs_to_approve(margin, flips, target, alpha)
        if spare <= 0 or found is None:
            return None
    assert found is not None, "tried at least once"
    reach = normal_quantile(1 - SENSITIVITY_ALPHA) + normal_quantile(target)
    found = max(found, ceil(reach**2 * right * (1 - right) / spare**2) + ceil(1 / spare))
    repeats = max(answers_of(part.rule, one) for one in model.among(part))
    answers = _in_clusters(model, part, found, flips, repeats, margin, alpha, target)
    return None if answers is None else ceil(answers / repeats)


def _in_clusters(
    model: Prediction, part: Slice, pairs: int, flips: float, repeats: int, margin: float, alpha: float, target: float
) -> float | None:
    """Answers, in clusters like the slice's, that tell as much as so many independent pairs.

    Each cluster for one pair, or where enough of them flip to tell how alike their answers are, by that; and so many
    that clusters which fail as a whole and were not drawn cannot hide the margin.
    """
    sizes = model.sizes(part)
    typical = sum(size * many for size, many in sizes.items()) / trials_of(sizes, alpha)
    if typical <= 1:
        return pairs
    alike = model.assumed.alike(typical / repeats, repeats)
    effect = 1 + alike * (typical - 1)
    flipping = 1 - (1 - flips) ** (1 + (1 - sqrt(alike)) * (typical - 1))  # of clusters, by about that many outcomes
    told = max(pairs * effect * 1.1, 1.3 * MIN_CLUSTERS * typical / max(flipping, 1e-6))
    found = max(min(pairs * typical, told), max(MIN_CLUSTERS, trials_needed(margin, alpha)) * typical)
    z = normal_quantile(target)

    def proven(answers: float) -> bool:
        """Whether clusters prove it where the variant's luck is as bad as in a share 1 − target of draws."""
        error, trials = sqrt(flips * effect / answers), answers / typical
        return bool(p_at_most(-z * error, error, max(2, int(trials)), trials, -margin) <= alpha)

    while not proven(found):
        found *= 1.02
        if found > MOST_PAIRS:
            return None
    return found


def _tried(changed: Prediction, kind: str, lines: Sequence[str]) -> Change | None:
    changed = replace(changed, seed=changed.seed + 1)
    if changed.approve < ENOUGH + 3 * sqrt(ENOUGH * (1 - ENOUGH) / changed.used):  # not by the luck of these draws
        return None
    return Change(
        kind=kind,
        lines=tuple(lines),
        sets=changed.sets,
        policy=changed.policy,
        approve=changed.approve,
        block=changed.block,
    )


def as_line(rule: Rule) -> str:
    """The rule as an entry of a gate file's list of rules."""
    parts = [f"metric: {rule.metric}"]
    if rule.evalset is not None:
        parts.append(f"evalset: {_word(rule.evalset)}")
    elif rule.scope != "pooled":
        parts.append(f"per: {_word(rule.scope)}")
    if rule.where is not None:
        label, _, value = rule.where.partition(":")
        parts.append(f"where: {{{label}: {_word(value)}}}")
    parts += [
        f"{name}: {value:g}"
        for name in ("max_drop", "max_relative_drop", "max", "min", "max_ratio", "percentile")
        if (value := getattr(rule, name)) is not None
    ]
    parts += [f"repeats: {rule.repeats}"] if rule.repeats != "mean" else []
    parts += [f"tier: {rule.tier}"] if rule.tier != "critical" else []
    return f"{{{', '.join(parts)}}}"


_NOT_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}  # YAML reads something else in them


def _word(text: str) -> str:
    """The text as YAML reads it back: as it stands, or quoted."""
    if text.replace("_", "").replace("-", "").isalnum() and text[0].isalpha() and text.lower() not in _NOT_WORDS:
        return text
    shown = (c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08x}" for c in text)
    return f'"{"".join(shown)}"'
