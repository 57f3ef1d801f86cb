"""Plain lines for a four-arm comparison, for weights and cache apart and together, and for the cost of serving."""

from __future__ import annotations

from collections.abc import Sequence

from qualgate.escaping import visible_line
from qualgate.formatting import size_text
from qualgate.records import ArmFootprint, ArmService, ArmStep, Effect, FourArm, Interaction, Verdict, WeightsAndCache

UNAVAILABLE, NOT_ASKED = "unavailable", "not asked"


def size_cells(size: ArmFootprint | None) -> tuple[str, str, str]:
    """Return the size on disk, the size in memory and the bits per weight; dashes where unknown."""
    if size is None:
        return "–", "–", "–"
    return size_text(size.bytes_on_disk), size_text(size.bytes_in_memory), f"{size.effective_bits:.2f}"


def service_lines(services: Sequence[ArmService]) -> list[str]:
    """Return one line per arm, and one per reason for an unavailable figure."""
    lines = []
    for service in services:
        parts = [
            f"{service.arm}: {_number(service.per_accepted)} per accepted answer ({service.prices or 'no prices'})",
            f"accepted {_accepted(service)}",
            f"attempts {_count(service.attempts)}",
            f"retries {_retries(service)}",
            f"within the SLO {_within_slo(service)}",
            f"corrected by users {_corrected(service)}"
            + ("" if service.feedback is None else f" (feedback on {service.feedback} of {service.units})"),
        ]
        lines.append(visible_line("; ".join(parts)))
        lines += [visible_line(f"{UNAVAILABLE}: {why}") for why in service.unavailable]
    return lines


def four_arm_lines(answer: FourArm) -> list[str]:
    """Return the choice, each arm step by step, the interactions, and what to try first."""
    lines = [f"{step.arm}: {step.step} {step.status}: {step.reason}" for step in answer.steps]
    lines += [f"interaction  {interaction_text(interaction)}" for interaction in answer.interactions]
    lines.append(f"try first: {answer.first} ({answer.first_why})")
    if answer.blocks:
        lines.append(f"blocks (seed {answer.seed}): {' '.join(answer.blocks)}")
    below = [*map(visible_line, lines), *service_lines(answer.services)]
    return [choice_line(answer), *(f"  {line}" for line in below)]


def choice_line(answer: FourArm) -> str:
    """Return the arm to serve and the reason, on one line."""
    return visible_line(f"four arms: {answer.choice or 'not known yet'}: {answer.why}")


STEPS = {"drafting": "drafting", "parity": "parity", "quality": "quality", "slo": "SLO", "value": "value"}  # in order


def step_rows(answer: FourArm) -> list[tuple[str, dict[str, ArmStep]]]:
    """Return each arm with its steps by name, in the order of the rule; steps that were not reached are absent."""
    return [
        (arm, {step.step: step for step in answer.steps if step.arm == arm})
        for arm in dict.fromkeys(step.arm for step in answer.steps)
    ]


SERVICE_HEADS = ("arm", "cost per accepted answer", "accepted", "attempts", "retries", "within SLO", "corrected")


def service_row(service: ArmService) -> tuple[str, ...]:
    """Return the cells below SERVICE_HEADS: `unavailable` where unknown, `not asked` where nobody asked."""
    heard = "" if service.feedback is None or service.correction_rate is None else f" of {service.feedback}"
    return (
        service.arm,
        _number(service.per_accepted),
        _accepted(service),
        _count(service.attempts),
        _retries(service),
        _within_slo(service),
        f"{_corrected(service)}{heard}",
    )


def service_notes(services: Sequence[ArmService]) -> list[str]:
    """Return the price tables in use and the reasons for unavailable figures, each once."""
    prices = dict.fromkeys(service.prices or "no prices: a cost is in seconds" for service in services)
    return [f"prices: {source}" for source in prices] + [
        f"{service.arm}: {UNAVAILABLE}: {why}" for service in services for why in service.unavailable
    ]


def arm_lines(verdict: Verdict) -> list[str]:
    """Return a verdict's lines on cost and on four arms; [] if neither was asked for."""
    if verdict.four_arm is not None:
        return four_arm_lines(verdict.four_arm)
    return service_lines(verdict.services)


def weights_and_cache_heads(comparison: WeightsAndCache) -> tuple[str, ...]:
    """Return the column heads of `weights_and_cache_rows`."""
    changed = ("weights alone", "keys and values alone", "both")
    named = zip(changed, (comparison.weights, comparison.cache, comparison.both), strict=True)
    return ("metric", "slice", *(f"{what} ({name})" for what, name in named), "both beyond the sum of the two")


def weights_and_cache_rows(comparison: WeightsAndCache) -> list[tuple[str, ...]]:
    """Return per metric and slice the effect of each change alone, of both, and their interaction, with bounds."""
    effects = {(effect.metric, effect.slice, effect.variant): _effect(effect) for effect in comparison.effects}
    return [
        (
            interaction.metric,
            interaction.slice,
            *(
                effects.get((interaction.metric, interaction.slice, arm), "–")
                for arm in (comparison.weights, comparison.cache, comparison.both)
            ),
            interaction_numbers(interaction),
        )
        for interaction in comparison.interactions
    ]


def weights_and_cache_lines(comparison: WeightsAndCache) -> list[str]:
    """Return `weights_and_cache_rows` as lines, one per metric and slice."""
    heads = weights_and_cache_heads(comparison)[2:]
    rows = ((row[:2], zip(heads, row[2:], strict=True)) for row in weights_and_cache_rows(comparison))
    return [
        visible_line(f"{metric} [{slice_}]: {'; '.join(f'{head} {cell}' for head, cell in cells)}")
        for (metric, slice_), cells in rows
    ]


def _effect(effect: Effect) -> str:
    numbers = (effect.difference, effect.lower, effect.upper)
    middle, low, high = ("…" if value is None else f"{100 * value:+.2f}" for value in numbers)
    return f"{middle} [{low}, {high}] points"


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


def _within_slo(service: ArmService) -> str:
    return _share(service.within_slo) if service.slo_asked else NOT_ASKED


def _corrected(service: ArmService) -> str:
    return _share(service.correction_rate) if service.feedback_asked else NOT_ASKED


def _accepted(service: ArmService) -> str:
    """Return the accepted answers: of those with feedback if feedback is asked for, else of all."""
    total = f"{service.units}" if service.feedback is None else f"{service.feedback} heard on"
    return f"{_count(service.accepted)} of {total}{_refused(service)}"


def _refused(service: ArmService) -> str:
    reasons = ", ".join(f"{count} {why}" for why, count in service.refused.items())
    return f" ({reasons})" if reasons else ""


def _retries(service: ArmService) -> str:
    if service.retries is None:
        return UNAVAILABLE
    return ", ".join(f"{cause} {_share(rate)}" for cause, rate in service.retries.items()) or "none"


def _number(value: float | None) -> str:
    return UNAVAILABLE if value is None else f"{value:.4g}"


def _count(value: int | None) -> str:
    return UNAVAILABLE if value is None else str(value)


def _share(value: float | None) -> str:
    return UNAVAILABLE if value is None else f"{100 * value:.1f} %"
