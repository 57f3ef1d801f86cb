"""A four-arm comparison, weights and cache apart and together, and what serving each arm took and gave: plain lines."""

from __future__ import annotations

from collections.abc import Sequence

from qualgate.escaping import visible_line
from qualgate.formatting import size_text
from qualgate.records import ArmFootprint, ArmService, ArmStep, Effect, FourArm, Interaction, Verdict, WeightsAndCache

UNAVAILABLE, NOT_ASKED = "unavailable", "not asked"


def size_cells(size: ArmFootprint | None) -> tuple[str, str, str]:
    """On disk, in memory, bits a weight; dashes where they are not known."""
    if size is None:
        return "–", "–", "–"
    return size_text(size.bytes_on_disk), size_text(size.bytes_in_memory), f"{size.effective_bits:.2f}"


def service_lines(services: Sequence[ArmService]) -> list[str]:
    """One line an arm, and one for each reason why something of it is unavailable."""
    lines = []
    for one in services:
        parts = [
            f"{one.arm}: {_number(one.per_accepted)} per accepted answer ({one.prices or 'no prices'})",
            f"accepted {_accepted(one)}",
            f"attempts {_count(one.attempts)}",
            f"retries {_retries(one)}",
            f"within the SLO {_within_slo(one)}",
            f"corrected by users {_corrected(one)}"
            + ("" if one.feedback is None else f" (feedback on {one.feedback} of {one.units})"),
        ]
        lines.append(visible_line("; ".join(parts)))
        lines += [visible_line(f"{UNAVAILABLE}: {why}") for why in one.unavailable]
    return lines


def four_arm_lines(answer: FourArm) -> list[str]:
    """The choice, each arm step by step, the interactions, and what to try first."""
    lines = [f"{step.arm}: {step.step} {step.status}: {step.reason}" for step in answer.steps]
    lines += [f"interaction  {interaction_text(one)}" for one in answer.interactions]
    lines.append(f"try first: {answer.first} ({answer.first_why})")
    if answer.blocks:
        lines.append(f"blocks (seed {answer.seed}): {' '.join(answer.blocks)}")
    below = [*map(visible_line, lines), *service_lines(answer.services)]
    return [choice_line(answer), *(f"  {line}" for line in below)]


def choice_line(answer: FourArm) -> str:
    """Which arm to serve, on one line."""
    return visible_line(f"four arms: {answer.choice or 'not known yet'}: {answer.why}")


STEPS = {"drafting": "drafting", "parity": "parity", "quality": "quality", "slo": "SLO", "value": "value"}  # in order


def step_rows(answer: FourArm) -> list[tuple[str, dict[str, ArmStep]]]:
    """Each arm with its steps by name, in the order of the rule; a step that was not reached is not there."""
    return [
        (arm, {step.step: step for step in answer.steps if step.arm == arm})
        for arm in dict.fromkeys(step.arm for step in answer.steps)
    ]


SERVICE_HEADS = ("arm", "cost per accepted answer", "accepted", "attempts", "retries", "within SLO", "corrected")


def service_row(one: ArmService) -> tuple[str, ...]:
    """What SERVICE_HEADS names; what is not known is `unavailable`, unless nobody asked."""
    fed = "" if one.feedback is None or one.correction_rate is None else f" of {one.feedback}"
    return (
        one.arm,
        _number(one.per_accepted),
        _accepted(one),
        _count(one.attempts),
        _retries(one),
        _within_slo(one),
        f"{_corrected(one)}{fed}",
    )


def service_notes(services: Sequence[ArmService]) -> list[str]:
    """By which prices, and why something is unavailable: each said once."""
    prices = dict.fromkeys(one.prices or "no prices: a cost is in seconds" for one in services)
    return [f"prices: {said}" for said in prices] + [
        f"{one.arm}: {UNAVAILABLE}: {why}" for one in services for why in one.unavailable
    ]


def arm_lines(verdict: Verdict) -> list[str]:
    """What a verdict says of cost and of four arms; [] where nothing was asked."""
    if verdict.four_arm is not None:
        return four_arm_lines(verdict.four_arm)
    return service_lines(verdict.services)


def weights_and_cache_heads(found: WeightsAndCache) -> tuple[str, ...]:
    """What `weights_and_cache_rows` holds."""
    changed = ("weights alone", "keys and values alone", "both")
    named = zip(changed, (found.weights, found.cache, found.both), strict=True)
    return ("metric", "slice", *(f"{what} ({name})" for what, name in named), "both beyond the sum of the two")


def weights_and_cache_rows(found: WeightsAndCache) -> list[tuple[str, ...]]:
    """Of each metric and slice what each change did alone, what both did, and their interaction, each with bounds."""
    effects = {(one.metric, one.slice, one.variant): _effect(one) for one in found.effects}
    return [
        (
            one.metric,
            one.slice,
            *(effects.get((one.metric, one.slice, arm), "–") for arm in (found.weights, found.cache, found.both)),
            interaction_numbers(one),
        )
        for one in found.interactions
    ]


def weights_and_cache_lines(found: WeightsAndCache) -> list[str]:
    """The same as lines, one a metric and slice."""
    heads = weights_and_cache_heads(found)[2:]
    told = ((row[:2], zip(heads, row[2:], strict=True)) for row in weights_and_cache_rows(found))
    return [
        visible_line(f"{metric} [{part}]: {'; '.join(f'{head} {cell}' for head, cell in cells)}")
        for (metric, part), cells in told
    ]


def _effect(one: Effect) -> str:
    parts = (one.difference, one.lower, one.upper)
    middle, low, high = ("…" if part is None else f"{100 * part:+.2f}" for part in parts)
    return f"{middle} [{low}, {high}] points"


def interaction_text(one: Interaction) -> str:
    """Which one it is, with its bounds and unit."""
    return f"{one.metric} [{one.slice}] {interaction_numbers(one)}"


def too_few(one: Interaction) -> bool:
    """Its bounds are all that a difference of differences of shares can be: nothing was measured."""
    low, high = (-2.0 if one.lower is None else one.lower), (2.0 if one.upper is None else one.upper)
    return one.metric != "cost_per_accepted_answer" and low <= -2 and high >= 2


def interaction_numbers(one: Interaction) -> str:
    """Its estimate and bounds, with their unit, and whether it was found; or that the cases were too few."""
    if too_few(one):
        return f"too few cases (n {one.n}): not proven"
    if one.metric == "cost_per_accepted_answer":
        scale, digits, unit = 1.0, 4, "log ratio of costs, over 0 = worse together"
    else:
        scale, digits, unit = 100.0, 2, "points, below 0 = worse together"
    low, high = ("…" if bound is None else f"{scale * bound:+.{digits}f}" for bound in (one.lower, one.upper))
    found = "FOUND" if one.found else "not proven"
    return f"{scale * one.estimate:+.{digits}f} [{low}, {high}] ({unit}; n {one.n}): {found}"


def _within_slo(one: ArmService) -> str:
    return _share(one.within_slo) if one.slo_asked else NOT_ASKED


def _corrected(one: ArmService) -> str:
    return _share(one.correction_rate) if one.feedback_asked else NOT_ASKED


def _accepted(one: ArmService) -> str:
    """Of the answers that users were heard on, where feedback is asked for."""
    of = f"{one.units}" if one.feedback is None else f"{one.feedback} heard on"
    return f"{_count(one.accepted)} of {of}{_refused(one)}"


def _refused(one: ArmService) -> str:
    said = ", ".join(f"{count} {why}" for why, count in one.refused.items())
    return f" ({said})" if said else ""


def _retries(one: ArmService) -> str:
    if one.retries is None:
        return UNAVAILABLE
    return ", ".join(f"{cause} {_share(rate)}" for cause, rate in one.retries.items()) or "none"


def _number(value: float | None) -> str:
    return UNAVAILABLE if value is None else f"{value:.4g}"


def _count(value: int | None) -> str:
    return UNAVAILABLE if value is None else str(value)


def _share(value: float | None) -> str:
    return UNAVAILABLE if value is None else f"{100 * value:.1f} %"
