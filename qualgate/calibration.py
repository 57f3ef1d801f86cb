"""From the calibration set a recipe names to the one it means: where its cases lie, and which they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from qualgate import evalsets
from qualgate.records import QuantizeRecipe


def with_calibration(recipe: QuantizeRecipe, relative_to: Path) -> QuantizeRecipe:
    """The recipe with its calibration set found and named by content. Raises UsageError for a set with faults."""
    if not recipe.calibration:
        return recipe
    found = evalsets.load_calibration(recipe.calibration, relative_to)
    cases = Path(found.path).with_suffix(".jsonl").absolute()
    return replace(recipe, calibration=str(cases), calibration_sha256=found.sha256)
