"""The policy's rules, checked against the run's evalsets and spread over slices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf, isfinite

from qualgate.errors import UsageError
from qualgate.records import Policy, Rule
from qualgate.records.metrics import DROP_BELOW, DROP_TOO_LARGE, METRICS


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """A rule and the evalsets it is held against together."""

    rule: Rule
    name: str  # "pooled", the evalset's name, or a label: "task:add", "tag:form:direct", "no task" of cases without
    evalsets: tuple[str, ...]
    only: frozenset[tuple[str, str]] | None = None  # (evalset, case) of a label; None = every case of the sets
    obstacle: str = ""  # why its cases cannot be told apart

    @property
    def head(self) -> str:
        """How lines for a user begin."""
        percentile = f" p{self.rule.percentile:g}" if self.rule.percentile is not None else ""
        against = f"against {self.rule.against}: " if self.rule.against else ""
        return f"{against}{self.rule.metric}{percentile} [{self.name}]"

    @property
    def base(self) -> str:
        """How lines for a user call the arm that the variant is held against."""
        return self.rule.against or "the baseline"

    def holds(self, evalset: str, case: str) -> bool:
        """Is the slice about this case?"""
        return evalset in self.evalsets and (self.only is None or (evalset, case) in self.only)


Labels = Mapping[tuple[str, str], tuple[str, ...]]
UNLABELLED = "tasks and tags of its cases are not known here: decide with the gate file whose evalsets lie beside it"


def check_policy(
    policy: Policy, metrics: dict[str, tuple[str, ...]], labels: Labels | None = None
) -> tuple[Slice, ...]:
    """Spread the policy's rules over the evalsets (evalset → metrics), in rule order, then by the slice's name.

    labels: (evalset, case) → "task:x" and "tag:y" of every case; None = not known, and rules by task or tag decide
    nothing. UsageError: no critical quality rule against the baseline (an nel policy and a first look may have none,
    and then approve nothing) or against another arm that is named, a metric that is unknown or that no named set
    carries, a label that no case has, an unfit bound.
    """
    if not 0 < policy.alpha < 0.5:
        raise UsageError(f"alpha is {policy.alpha:g}; it must be over 0 and below 0.5, for example 0.05.")
    _check_terms(policy)
    slices = tuple(
        slice_ for rule in policy.rules for slice_ in _slices_of_rule(rule, metrics, labels, bool(policy.nel))
    )
    if not policy.nel and not policy.first_look and not any(may_approve(rule) for rule in policy.rules):
        raise UsageError(
            "The policy has no critical quality rule, so nothing could earn an approval. "
            "Add one, for example: {metric: exact_match, max_drop: 0.02}"
        )
    for arm in policy.references:
        if not any(may_approve(rule, arm) for rule in policy.rules):
            raise UsageError(f"No critical quality rule is against {arm}, so nothing would be proven against it.")
    return slices


def may_approve(rule: Rule, against: str = "") -> bool:
    """Whether an approval can rest on the rule: a critical one on scores, against this arm ("": the baseline)."""
    return rule.tier == "critical" and METRICS[rule.metric].approves and rule.against == against


def _check_terms(policy: Policy) -> None:
    """Refuse what the loader of gate files refuses, for policies from elsewhere: no answer breaks a limit of NaN."""
    slo, prices = policy.slo, policy.prices
    limits = [slo.ttft, slo.tpot, slo.e2e] if slo else []
    if not all(limit is None or 0 < limit < inf for limit in limits):
        raise UsageError(f"slo is {slo}; each limit is a number of seconds over 0.")
    if prices and not (
        all(0 <= price < inf for price in (prices.prompt_token, prices.output_token, prices.device_second))
        and 1 <= prices.concurrency < inf
    ):
        raise UsageError(f"prices are {prices}; each is a number from 0, and concurrency one from 1.")


def _slices_of_rule(
    rule: Rule, metrics: dict[str, tuple[str, ...]], labels: Labels | None, brought: bool
) -> tuple[Slice, ...]:
    """Make the slices of a rule. brought: from an nel policy, whose margins may be too large to be proven."""
    location = f" (line {rule.line})" if rule.line else ""
    metric = METRICS.get(rule.metric)
    if metric is None:
        raise UsageError(f"No metric is called {rule.metric!r}{location}. Known: {', '.join(sorted(METRICS))}")
    _check_bound(rule, location, brought)
    if rule.against and not metric.of_any_two:
        raise UsageError(f"{rule.metric}{location} is not measured against {rule.against}: only the baseline can have "
                         "a rule on it.")  # fmt: skip
    if rule.evalset is not None and rule.evalset not in metrics:
        known = ", ".join(map(repr, sorted(metrics)))
        raise UsageError(
            f"Rule {rule.id}{location} is about the evalset {rule.evalset!r}, which is not here; there is {known}"
        )
    named = (rule.evalset,) if rule.evalset is not None else tuple(sorted(metrics))
    carrying = tuple(name for name in named if not metric.approves or metric.everywhere or rule.metric in metrics[name])
    if not carrying:
        carried = "; ".join(f"{name}: {', '.join(metrics[name]) or 'none'}" for name in named)
        raise UsageError(f"Rule {rule.id}{location}: no evalset carries {rule.metric}. The sets' metrics are {carried}")
    if rule.where is not None or rule.scope not in ("pooled", "evalset"):
        return _slices_by_label(rule, carrying, labels, location)
    if rule.evalset is not None or rule.scope == "evalset":
        return tuple(Slice(rule=rule, name=name, evalsets=(name,)) for name in carrying)
    return (Slice(rule=rule, name="pooled", evalsets=carrying),)


def _slices_by_label(rule: Rule, carrying: tuple[str, ...], labels: Labels | None, location: str) -> tuple[Slice, ...]:
    """Make one slice for each label in order of names, and one for the cases without such a label.

    labels: case → its marks; None gives one slice that cannot be measured. location: of the rule, for errors.
    """
    if labels is None:
        return (Slice(rule=rule, name=rule.where or rule.scope, evalsets=carrying, obstacle=UNLABELLED),)
    chosen: dict[str, set[tuple[str, str]]] = {}
    for case, marks in labels.items():
        if case[0] in carrying and (rule.where is None or rule.where in marks):
            for name in _labels_of_case(rule, case[0], marks):
                chosen.setdefault(name, set()).add(case)
    if not chosen.keys() - {f"no {rule.scope}"}:
        raise UsageError(f"Rule {rule.id}{location}: no case of {', '.join(carrying)} has such a label")
    return tuple(
        Slice(
            rule=rule,
            name=name if rule.where in (None, name) else f"{name}, {rule.where}",
            evalsets=tuple(sorted({evalset for evalset, _ in cases})),
            only=frozenset(cases),
        )
        for name, cases in sorted(chosen.items())
    )


def _labels_of_case(rule: Rule, evalset: str, marks: Iterable[str]) -> list[str]:
    """Return the labels under which a rule counts a case: its tasks or tags by the rule's scope, else one name for
    all.
    """
    if rule.scope == "task":
        return [mark for mark in marks if mark.startswith("task:")] or ["no task"]
    if rule.scope.startswith("tag:"):
        matches = [mark for mark in marks if mark == rule.scope or mark.startswith(f"{rule.scope}:")]
        return matches or [f"no {rule.scope}"]
    if rule.evalset is not None or rule.scope == "evalset":
        return [evalset]
    return [rule.where or "pooled"]


def _check_bound(rule: Rule, location: str, brought: bool) -> None:
    """Check that a rule has exactly one bound, in its metric's range, and options that fit the metric.

    location: " (line n)" or "". brought: from an nel policy, whose margins may be too large. Raises: UsageError.
    """
    metric = METRICS[rule.metric]
    bounds = ("max_drop", "max_relative_drop", "max", "min", "max_ratio")
    given = {name: value for name in bounds if (value := getattr(rule, name)) is not None}
    if len(given) != 1 or not given.keys() <= set(metric.bounds):
        names = ", ".join(given) or "none"
        raise UsageError(f"A rule on {rule.metric}{location} sets exactly {' or '.join(metric.bounds)}; found: {names}")
    (name, value), *_ = given.items()
    if (
        not isfinite(value)
        or value < 0
        or ("drop" in name and not 0 < value < 1)
        or (name == "min" and value > 1 and metric.unit != "dB")
    ):
        share = name == "min" and metric.unit != "dB"
        wanted = "between 0 and 1, both excluded" if "drop" in name else "from 0 to 1" if share else "0 or more"
        raise UsageError(f"{name} of {rule.metric}{location} is {value:g}; it must be {wanted}")
    if "drop" in name and value >= DROP_BELOW and not brought:
        raise UsageError(f"{name} {value:g} of {rule.metric}{location} {DROP_TOO_LARGE}.")
    if rule.repeats != "mean" and metric.kind != "quality":
        raise UsageError(f"repeats: {rule.repeats} of {rule.metric}{location}: only answers that are right or wrong")
    if metric.kind == "arm" and (rule.evalset or rule.where or rule.scope != "pooled"):
        raise UsageError(f"{rule.metric}{location} is one number for the whole variant: it has no part for an "
                         "evalset, a task or a tag.")  # fmt: skip
    if rule.percentile is not None and (metric.kind != "latency" or not 0 < rule.percentile < 100):
        raise UsageError(
            f"percentile {rule.percentile:g} of {rule.metric}{location}: only latency rules, over 0 and below 100"
        )
