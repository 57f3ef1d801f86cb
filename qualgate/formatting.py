"""Format numbers for people, the same in every report and on every page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from qualgate.metrics import METRICS
from qualgate.records import Comparison, Interaction, Seen


def counted(count: int, singular: str, plural: str = "") -> str:
    """`1 case`, `2,800 cases`. plural: unless it is `singular` with an s, as in ("case is", "cases are")."""
    return f"{count:,} {singular if count == 1 else plural or f'{singular}s'}"


def value_text(metric: str, value: float | None) -> str:
    """Format a metric's value: a rate in %, a time in ms, a size in MiB or GiB, decibels, else four digits."""
    if value is None:
        return "–"
    match METRICS[metric].unit if metric in METRICS else "":
        case "rate":
            return f"{100 * value:.1f} %"
        case "seconds":
            return ms_text(value)
        case "bytes":
            return size_text(round(value))
        case "dB":
            return f"{value:.1f} dB"
    return f"{value:.4g}"


def score_text(value: float | None) -> str:
    """Format one answer's score: `right`, `wrong`, a share, or – if unknown."""
    return "–" if value is None else {0.0: "wrong", 1.0: "right"}.get(value, f"{value:.2f}")


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
    return _kind(comparison.metric) in ("latency", "cost") or "max_ratio" in comparison.rule


def _share(comparison: Comparison) -> str:
    """ " %" if the comparison is a share of the baseline's rate instead of points."""
    return " %" if "max_relative_drop" in comparison.rule else ""


def difference_and_bounds(comparison: Comparison) -> str:
    """The bounds, after the difference if there is one."""
    bounds = bounds_text(comparison)
    return bounds if comparison.difference is None else f"{difference_text(comparison)} {bounds}"


_DRIFT_TERMS = {
    "drift.kl_mean": "mean KL (nats)",
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
            if name == "drift.identical":
                text = f"{100 * value:.1f} %"
            elif name.startswith("constraint."):
                text = f"{100 * value:.3g} %"
            elif name in ("drift.length_ratio", "reasoning.tokens"):
                text = f"× {value:.3g}"
        terms.append((_DRIFT_TERMS.get(name, name.removeprefix("drift.").replace("_", " ")), text))
    return terms


def drift_texts(drift: dict[str, float | None]) -> list[str]:
    """One short phrase per number: "mean KL (nats) 0.0031"."""
    return [f"{term} {value}" for term, value in drift_terms(drift)]


def stop_texts(stop_reasons: dict[str, int]) -> list[str]:
    """ "980 eos", "20 eos → length"."""
    return [f"{count:,} {how}" for how, count in stop_reasons.items()]


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


def ms_text(seconds: float | None) -> str:
    """Seconds as milliseconds."""
    return "–" if seconds is None else f"{1000 * seconds:.1f} ms"


def size_text(size: int) -> str:
    """Bytes as MiB or GiB."""
    return f"{size / 2**20:.2f} MiB" if size < 2**30 else f"{size / 2**30:.2f} GiB"


def version_text(version: str) -> str:
    """`v1.2.0`; a version that is a word stays as it is."""
    return f"v{version}" if version[:1].isdigit() else version


def time_text(seconds: float) -> str:
    """Seconds as s, min or h with two or three digits."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def money_text(amount: float | None) -> str:
    """An amount without its currency."""
    if amount is None:
        return "unknown"
    return f"{amount:,.2f}" if amount >= 1 else f"{amount:.3g}"


def prompt_text(body: Mapping[str, Any]) -> str:
    """The case's question: its prompt, or its messages turn by turn and its tools."""
    if "prompt" in body:
        return str(body["prompt"])
    turns = [f"{turn.get('role', '')}: {turn.get('content', '')}" for turn in body.get("messages", ())]
    tools = [f"tool: {json.dumps(tool.get('function', tool), ensure_ascii=False)}" for tool in body.get("tools", ())]
    return "\n\n".join([*turns, *tools])


def reference_text(body: Mapping[str, Any]) -> str:
    """The case's reference: its `answer`, else the keys that its scorers read."""
    if "answer" in body:
        return str(body["answer"])
    references = {
        name: body[name]
        for name in ("references", "contains", "pattern", "expected_calls", "schema", "tests")
        if name in body
    }
    return json.dumps(references, indent=2, ensure_ascii=False) if references else ""


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
