"""Format comparisons of a verdict for people, the same in every report and on every page."""

from __future__ import annotations

from qualgate.records import Comparison, Interaction, Seen
from qualgate.records.metrics import METRICS, unit_of
from qualgate.text.numbers import counted, unit_text


def value_text(metric: str, value: float | None) -> str:
    """Format a metric's value by its unit."""
    return unit_text(value, unit_of(metric))


def difference_text(comparison: Comparison) -> str:
    """Format the difference, in points for metrics of quality."""
    if comparison.difference is None:
        return "–"
    return _difference(comparison.metric, comparison.difference) + _share(comparison)


def bounds_text(comparison: Comparison) -> str:
    """Format the bounds: of the difference in points if there is one, of the ratio for rules on ratios, else of the
    variant's value."""
    if comparison.lower is None and comparison.upper is None:
        return "–"
    low, high = ("…" if bound is None else _bound(comparison, bound) for bound in (comparison.lower, comparison.upper))
    return f"[{low}, {high}]" + (" x" if _by_ratio(comparison) else _share(comparison))


def _by_ratio(comparison: Comparison) -> bool:
    return _kind(comparison.metric) in ("latency", "cost") or "] max_ratio " in comparison.rule


def _share(comparison: Comparison) -> str:
    """ " %" if the comparison is a share of the baseline's rate instead of points."""
    return " %" if "] max_relative_drop " in comparison.rule else ""


def difference_and_bounds(comparison: Comparison) -> str:
    """The bounds, after the difference if there is one."""
    bounds = bounds_text(comparison)
    return bounds if comparison.difference is None else f"{difference_text(comparison)} {bounds}"


_DRIFT_TERMS = {
    "drift.kl_mean": "mean KL (nats)",
    "drift.measured": "answers whose drift was measured",
    "drift.kl_error": "mean KL known to within (nats)",
    "drift.kl_mean_least": "mean KL at least (nats)",
    "drift.kl_mean_most": "mean KL at most (nats)",
    "drift.kl_p99_least": "KL at the 99th percentile at least (nats)",
    "drift.kl_p99_most": "KL at the 99th percentile at most (nats)",
    "drift.kl_max_least": "largest KL at least (nats)",
    "drift.kl_max_most": "largest KL at most (nats)",
    "drift.kl_p99": "KL at the 99th percentile (nats)",
    "drift.kl_max": "largest KL (nats)",
    "drift.top1_agreement": "same most likely token",
    "drift.length_ratio": "length against the baseline's",
    "drift.identical": "answers token for token the same",
    "reasoning.tokens": "thoughts' length against the baseline's",
    "constraint.masked": "probability outside the cases' constraints",
    "constraint.masked_baseline": "of the baseline's",
    "drift.first_divergence": "first other token, median of those that differ",
}


def drift_terms(drift: dict[str, float | None]) -> list[tuple[str, str]]:
    """(term, value) of each number, in words that need no formula id."""
    terms = []
    for name, value in drift.items():
        text = value_text(name, value)
        if value is not None:
            if name in ("drift.identical", "drift.measured"):
                text = f"{100 * value:.1f} %"
            elif name.startswith("constraint."):
                text = f"{100 * value:.3g} %"
            elif name in ("drift.length_ratio", "reasoning.tokens"):
                text = f"× {value:.3g}"
        terms.append((_DRIFT_TERMS.get(name, name.removeprefix("drift.").replace("_", " ")), text))
    return terms


def _bound(comparison: Comparison, bound: float) -> str:
    if _kind(comparison.metric) == "quality" or comparison.difference is not None:
        return _difference(comparison.metric, bound)
    return f"{bound:.4g}" if _by_ratio(comparison) else value_text(comparison.metric, bound)


def _difference(metric: str, difference: float) -> str:
    return f"{100 * difference:+.1f}" if _kind(metric) in ("quality", "service", "judged") else f"{difference:+.4g}"


def _kind(metric: str) -> str:
    return METRICS[metric].kind if metric in METRICS else ""


def flips_text(comparison: Comparison) -> str:
    """Right → wrong and wrong → right."""
    return "–" if comparison.lost is None else f"{comparison.lost} / {comparison.gained}"


def seen_text(seen: Seen | None) -> str:
    """The cases seen by an early verdict, to put behind its reason; "" for other verdicts."""
    if seen is None:
        return ""
    return f" ({seen.questions:,} of {counted(seen.of, 'case')} seen, look {seen.look} of {seen.looks})"


def interaction_text(interaction: Interaction) -> str:
    """Return the metric and slice of an interaction, with its estimate, bounds and unit."""
    return f"{interaction.metric} [{interaction.slice}] {interaction_numbers(interaction)}"


def too_few(interaction: Interaction) -> bool:
    """Whether the bounds span all that a difference of differences of shares can be, so nothing was measured."""
    low = -2.0 if interaction.lower is None else interaction.lower
    high = 2.0 if interaction.upper is None else interaction.upper
    return interaction.metric != "cost_per_accepted_answer" and low <= -2 and high >= 2


def interaction_numbers(interaction: Interaction) -> str:
    """Return the estimate and bounds with their unit, and whether it is proven; or that the cases were too few."""
    if too_few(interaction):
        return f"too few cases (n {interaction.n}): not proven"
    if interaction.metric == "cost_per_accepted_answer":
        scale, digits, unit = 1.0, 4, "log ratio of costs, over 0 = worse together"
    else:
        scale, digits, unit = 100.0, 2, "points, below 0 = worse together"
    bounds = (interaction.lower, interaction.upper)
    low, high = ("…" if bound is None else f"{scale * bound:+.{digits}f}" for bound in bounds)
    conclusion = "FOUND" if interaction.found else "not proven"
    return f"{scale * interaction.estimate:+.{digits}f} [{low}, {high}] ({unit}; n {interaction.n}): {conclusion}"
