"""Report drafts that are not worth their passes, with the cause as far as the counts show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qualgate.gate.comparisons.draft_levels import LEAST_TESTED
from qualgate.records import DraftLevel, Gain, Rate
from qualgate.stats.intervals import binomial_upper
from qualgate.text.numbers import counted

LEAST_ACCEPTED, LONG = 1.2, 4  # fewer accepted tokens a verification are a waste for drafts of `LONG` tokens or more
LEAST_GAIN = 1.05  # times as fast: an arm that surely gains less is not worth its second model
NEVER = 0.02  # acceptance below which, and surely below FEWEST, a draft belongs to another model
FEWEST = 0.2  # least acceptance of any draft of the target: its own weights in two bits reach 0.31
ALPHA = 0.01  # of that bound: 21 tested tokens, none accepted. Drafts of no fixed length stop soon after
HALF = 0.5
UNEVEN = 1.5  # times the rejection of all, from which one task is named


def wasted_drafts(
    levels: Sequence[DraftLevel], gain: Gain, memory: Mapping[str, float]
) -> tuple[tuple[str, ...], bool]:
    """(alerts on rejected drafts, on a missing gain and on memory given back; whether the arm is not worth serving)."""
    lines = [_alert_on_rejections(level) for level in levels]
    alerts = list(filter(None, lines))
    measured = gain.measured
    if useless := measured.upper is not None and measured.upper < LEAST_GAIN:
        alerts.append(
            f"speculation gains nothing: {measured.value:.2f} times as fast as {gain.against}, at most "
            f"{measured.upper:.2f}"
        )
    taken, saved = memory.get("draft_weights", 0.0), memory.get("saved_by_quantization", 0.0)
    if saved > 0 and taken > HALF * saved:
        alerts.append(f"the draft's weights take {taken / saved:.0%} of what quantization saved of the weights")
    return tuple(alerts), bool(lines and lines[0]) or useless


def broken(drafts: int) -> tuple[str, ...]:
    """Report drafts whose logits were NaN or infinite."""
    if not drafts:
        return ()
    return (
        f"{counted(drafts, 'draft')} ended with logits that are no numbers (NaN or infinite), and its target went on "
        "alone: damaged weights of the draft, or values beyond its dtype",
    )


def _alert_on_rejections(level: DraftLevel) -> str:
    """Describe a level whose drafts are nearly always rejected, or too often for their length; "" if neither holds."""
    tested = level.accepted + level.rejected
    proposed, accepted = level.proposed_per_verification.value, level.accepted_per_verification.value
    if proposed is None or accepted is None:
        return ""
    who = f"{level.proposer} (level {level.level})" if level.level > 1 else level.proposer
    if level.accepted < NEVER * tested and binomial_upper(level.accepted, tested, ALPHA) < FEWEST:
        always = "always" if not level.accepted else "all but always"
        return (
            f"{who} is {always} rejected: {level.accepted:,} of {tested:,} tested tokens accepted. It is no draft of "
            "this target: another tokenizer or template, damaged or wrong weights, or too few bits"
        )
    if tested < LEAST_TESTED or accepted >= LEAST_ACCEPTED or round(proposed) < LONG:
        return ""
    return f"{who}: {level.in_words} a verification: {_why_rejected(level)}"


def _why_rejected(level: DraftLevel) -> str:
    """Explain the low acceptance: by one task, the first token, or the position from which it falls below half."""
    uneven = _worst_task(level)
    rates = [position.conditional.value for position in level.positions if position.conditional.value is not None]
    if uneven:
        return uneven
    if rates[0] < HALF:
        return (
            f"its first token is already rejected in {1 - rates[0]:.0%} of verifications: the draft is too far from "
            "its target"
        )
    place = next((number for number, value in enumerate(rates, 1) if value < HALF), None)
    if place is not None:
        return (
            f"acceptance falls from {rates[0]:.0%} at the first token to {rates[place - 1]:.0%} at token {place}: "
            f"draft {place - 1} at most"
        )
    return f"{rates[0]:.0%} of first tokens are accepted, too few for drafts of this length: draft fewer"


def _worst_task(level: DraftLevel) -> str:
    """Name the task that rejects far more tokens than all tasks together; "" if there is none."""
    rates: dict[str, Rate] = {task: rate for task, rate in level.rejection.items() if rate.value is not None}
    of_all = level.rejected / (level.accepted + level.rejected)
    if len(rates) < 2:
        return ""
    worst = max(rates, key=lambda task: (rates[task].value or 0.0, task))
    rate = rates[worst].value or 0.0
    return f"above all in {worst}, where {rate:.0%} of tested tokens are rejected" if rate > UNEVEN * of_all else ""
