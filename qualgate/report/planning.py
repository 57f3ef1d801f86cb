"""What the planner predicts of a policy, as lines and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qualgate.gate.early_plan import EarlyRates
    from qualgate.gate.planner import PlannedPolicy


def policy_as_lines(policy: PlannedPolicy, seconds: float) -> list[str]:
    """seconds: the forecast of the run as it stands; a change of cases scales it."""
    names = [rule.rule.replace("[each set]", f"[{rule.slice}]") for rule in policy.rules]
    wide = max(map(len, names))
    lines = [f"{'will it decide?':<{wide + 13}}   cases   identical: proven   twice the margin: broken"]
    for rule, name in zip(policy.rules, names, strict=True):
        head = f"  {rule.tier:<10} {name:<{wide}} {rule.n:>7,}"
        if rule.approve is None or rule.note:
            lines.append(f"{head}   {rule.note}")
            continue
        needed = f"   {rule.needed:,} cases would" if rule.needed else ""
        lines.append(f"{head} {_rate(rule.approve):>19} {_rate(rule.block):>26}{needed}")
    lines += [
        "",
        f"The whole policy approves an identical variant in {_rate(policy.approve).strip()} of runs, and blocks in "
        f"{_rate(policy.block).strip()} one that loses twice the smallest margin everywhere.",
        f"Disagreement {_range(policy)} ({policy.source}). Rates are drawn: {policy.draws:,} times, so within "
        f"{300 * policy.error:.1f} points (3 standard errors).",
    ]
    if policy.decidable:
        return lines
    if policy.refused:
        lines.append("This policy cannot decide, and no change of cases or margins was found that would let it.")
        return lines
    lines.append("This policy can hardly decide. What would change that:")
    before = sum(policy.cases.values())
    for change in policy.changes:
        times = sum(change.cases.values()) / before
        cost = f", about {time_text(seconds * times)} instead of {time_text(seconds)}" if times > 1 else ""
        lines += [
            f"  {change.kind}: approves an identical variant in {_rate(change.approve).strip()}, blocks twice the "
            f"margin in {_rate(change.block).strip()}{cost}",
        ]
        if change.kind != "more cases":
            lines.append("    in the gate file, under `gate:`, `rules:`")
        lines += [f"    {line}" for line in change.lines]
    return lines


def early_as_lines(early: EarlyRates) -> list[str]:
    """What `stop: early` is foretold to save."""
    lines = [
        "",
        f"stop: early looks at each variant {early.looks} times at most and stops once it is settled. An identical one "
        f"takes about {early.identical:,.0f} of {early.of:,} cases and is approved in {_rate(early.approve)} of runs;",
        f"one that loses twice the smallest margin everywhere takes about {early.twice:,.0f} and is blocked in "
        f"{_rate(early.block)}. Tests that may be asked at any time need more cases than one at the end: the rates "
        "above are that one's.",
    ]
    if early.waiting:
        lines.append(
            f"These rules are tested once every case is in, so only a block can come early: {', '.join(early.waiting)}."
        )
    if not early.decidable:
        lines.append("Too rarely: with `stop: end` or more cases it is approved more often.")
    return lines


def policy_as_body(policy: PlannedPolicy) -> dict[str, Any]:
    return {
        "approve_identical": policy.approve,
        "block_twice_the_margin": policy.block,
        "decidable": policy.decidable,
        "refused": policy.refused,
        "draws": policy.draws,
        "standard_error": policy.error,
        "assumed": policy.source,
        "rules": [asdict(rule) for rule in policy.rules],
        "changes": [
            {
                "kind": change.kind,
                "lines": list(change.lines),
                "cases": change.cases,
                "approve_identical": change.approve,
                "block_twice_the_margin": change.block,
            }
            for change in policy.changes
        ],
    }


def time_text(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _rate(rate: float | None) -> str:
    return "–" if rate is None else f"{100 * rate:.1f} %"


def _range(policy: PlannedPolicy) -> str:
    rates = [rule.disagreement for rule in policy.rules if rule.disagreement is not None]
    low, high = min(rates), max(rates)
    return f"{100 * low:.1f} %" if high - low < 5e-4 else f"{100 * low:.1f} to {100 * high:.1f} %"
