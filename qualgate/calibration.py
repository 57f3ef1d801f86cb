"""From the calibration set a recipe names to the one it means, which must not hold what judges the variant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from qualgate import evalsets
from qualgate.errors import UsageError
from qualgate.numbers import counted
from qualgate.quant.text_coverage import leakage, reading_of
from qualgate.records import Evalset, QuantizeRecipe


def with_calibration(recipe: QuantizeRecipe, relative_to: Path) -> QuantizeRecipe:
    """The recipe with its calibration set found and named by content. Raises UsageError for a set with faults."""
    if not recipe.calibration:
        return recipe
    found = evalsets.load_calibration(recipe.calibration, relative_to)
    cases = Path(found.path).with_suffix(".jsonl").absolute()
    return replace(recipe, calibration=str(cases), calibration_sha256=found.sha256)


def check_leaks(recipe: QuantizeRecipe, sets: Sequence[Evalset]) -> None:
    """Raise UsageError when the calibration set of `recipe`, as `with_calibration` found it, shares cases with `sets`.

    Reads texts alone, without a model: the other coverage numbers need one.
    """
    if recipe.calibration:
        learned = evalsets.read(Path(recipe.calibration).with_suffix(".yaml")).cases
        exam = [reading_of(case) for item in sets for case in item.cases]
        refuse_leaks(leakage([reading_of(case) for case in learned], exam).cases)


def refuse_leaks(cases: Sequence[str]) -> None:
    """Raise UsageError when there are evaluation cases that stand in the calibration set."""
    if cases:
        raise UsageError(
            f"{counted(len(cases), 'evaluation case stands', 'evaluation cases stand')} in the calibration set, "
            f"{cases[0]} among them: a variant made with it has seen its exam. Take them out of the calibration set."
        )
