"""The effects of new weights and of a new cache, alone and together."""

from __future__ import annotations

from qualgate.records import Effect, Verdict
from qualgate.report import plots
from qualgate.report.blocks import Figure, Section, Table
from qualgate.report.comparison_text import interaction_numbers


def weights_and_cache_sections(verdict: Verdict) -> list[Section]:
    """Return per metric and slice the effect of each change alone, of both, and their interaction, with bounds."""
    if (comparison := verdict.weights_and_cache) is None:
        return []
    arms = (comparison.weights, comparison.cache, comparison.both)
    changes = zip(("weights alone", "keys and values alone", "both"), arms, strict=True)
    effects = {(effect.metric, effect.slice, effect.variant): _effect(effect) for effect in comparison.effects}
    table = Table(
        heads=("metric", "slice", *(f"{what} ({arm})" for what, arm in changes), "both beyond the sum of the two"),
        rows=tuple(
            (
                interaction.metric,
                interaction.slice,
                *(effects.get((interaction.metric, interaction.slice, arm), "–") for arm in arms),
                interaction_numbers(interaction),
            )
            for interaction in comparison.interactions
        ),
        numbers=range(2, 6),
    )
    figure = Figure(
        picture=plots.interactions(comparison.interactions),
        caption="Both together beyond the sum of what each does alone, in points",
    )
    return [Section("Weights and cache, apart and together", (table, figure))]


def _effect(effect: Effect) -> str:
    numbers = (effect.difference, effect.lower, effect.upper)
    middle, low, high = ("…" if value is None else f"{100 * value:+.2f}" for value in numbers)
    return f"{middle} [{low}, {high}] points"
