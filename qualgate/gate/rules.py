"""The policy's rules, checked against the run's evalsets and spread over slices."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from qualgate.errors import UsageError
from qualgate.metrics import DROP_BELOW, DROP_TOO_LARGE, METRICS
from qualgate.records import Policy, Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """A rule and the evalsets it is held against together."""

    rule: Rule
    name: str  # "pooled" or the evalset's name
    evalsets: tuple[str, ...]

    @property
    def head(self) -> str:
        at = f" p{self.rule.percentile:g}" if self.rule.percentile is not None else ""
        return f"{self.rule.metric}{at} [{self.name}]"


def check_policy(policy: Policy, metrics: dict[str, tuple[str, ...]]) -> tuple[Slice, ...]:
    """The policy's rules spread over the evalsets (evalset → metrics), in rule order, then by evalset name.

    UsageError: no critical quality rule, a metric that is unknown or that no named set carries, an unfit bound.
    """
    if not 0 < policy.alpha < 0.5:
        raise UsageError(f"alpha is {policy.alpha:g}; it must be over 0 and below 0.5, for example 0.05.")
    slices = tuple(part for rule in policy.rules for part in _spread(rule, metrics))
    if not any(rule.tier == "critical" and METRICS[rule.metric].kind == "quality" for rule in policy.rules):
        raise UsageError(
            "The policy has no critical quality rule, so nothing could earn an approval. "
            "Add one, for example: {metric: exact_match, max_drop: 0.02}"
        )
    return slices


def _spread(rule: Rule, metrics: dict[str, tuple[str, ...]]) -> tuple[Slice, ...]:
    at = f" (line {rule.line})" if rule.line else ""
    metric = METRICS.get(rule.metric)
    if metric is None:
        raise UsageError(f"No metric is called {rule.metric!r}{at}. Known: {', '.join(sorted(METRICS))}")
    _check_bound(rule, at)
    if rule.evalset is not None and rule.evalset not in metrics:
        raise UsageError(f"Rule {rule.id}{at} names an evalset that is not in the run: {', '.join(sorted(metrics))}")
    named = (rule.evalset,) if rule.evalset is not None else tuple(sorted(metrics))
    carrying = tuple(
        name for name in named if metric.kind != "quality" or metric.everywhere or rule.metric in metrics[name]
    )
    if not carrying:
        carried = "; ".join(f"{name}: {', '.join(metrics[name]) or 'none'}" for name in named)
        raise UsageError(f"Rule {rule.id}{at}: no evalset carries {rule.metric}. The sets' metrics are {carried}")
    if rule.evalset is not None or rule.scope == "evalset":
        return tuple(Slice(rule=rule, name=name, evalsets=(name,)) for name in carrying)
    return (Slice(rule=rule, name="pooled", evalsets=carrying),)


def _check_bound(rule: Rule, at: str) -> None:
    metric = METRICS[rule.metric]
    given = {
        name: value for name in ("max_drop", "max", "min", "max_ratio") if (value := getattr(rule, name)) is not None
    }
    if len(given) != 1 or not given.keys() <= set(metric.bounds):
        found = ", ".join(given) or "none"
        raise UsageError(f"A rule on {rule.metric}{at} sets exactly {' or '.join(metric.bounds)}; found: {found}")
    (name, value), *_ = given.items()
    if not isfinite(value) or value < 0 or (name == "max_drop" and not 0 < value < 1) or (name == "min" and value > 1):
        raise UsageError(f"{name} of {rule.metric}{at} is {value:g}, out of range")
    if name == "max_drop" and value >= DROP_BELOW:
        raise UsageError(f"max_drop {value:g} of {rule.metric}{at} {DROP_TOO_LARGE}.")
    if rule.percentile is not None and (metric.kind != "latency" or not 0 < rule.percentile < 100):
        raise UsageError(
            f"percentile {rule.percentile:g} of {rule.metric}{at}: only latency rules, over 0 and below 100"
        )
