"""Find the calibration set that a recipe names, and refuse one that shares cases with the evalsets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from qualgate import evalsets
from qualgate.errors import UsageError
from qualgate.quant.text_coverage import leakage, reading_of
from qualgate.records import ArmSpec, Evalset, QuantizeRecipe
from qualgate.text.numbers import counted


def with_calibration(recipe: QuantizeRecipe, relative_to: Path) -> QuantizeRecipe:
    """Return the recipe with its calibration set's path and sha256. Raises UsageError for a set with faults."""
    if not recipe.calibration:
        return recipe
    cases, digest = located(recipe.calibration, relative_to)
    return replace(recipe, calibration=cases, calibration_sha256=digest)


def located(ref: str, relative_to: Path) -> tuple[str, str]:
    """Return the file of the cases of the calibration set `ref`, and its sha256. UsageError for a set with faults."""
    calibration = evalsets.load_calibration(ref, relative_to)
    return str(Path(calibration.path).with_suffix(".jsonl").absolute()), calibration.sha256


def check_leaks(learned_by: QuantizeRecipe | ArmSpec, sets: Sequence[Evalset]) -> None:
    """Raise UsageError if the calibration set of a recipe or folder, as found by `located`, shares cases with `sets`.

    Compares texts alone, without a model, which the other coverage numbers need.
    """
    if learned_by.calibration:
        learned = evalsets.read(Path(learned_by.calibration).with_suffix(".yaml")).cases
        exam = [reading_of(case) for item in sets for case in item.cases]
        refuse_leaks(leakage([reading_of(case) for case in learned], exam).cases)


def refuse_leaks(cases: Sequence[str]) -> None:
    """Raise UsageError if any evaluation cases are in the calibration set."""
    if cases:
        raise UsageError(
            f"{counted(len(cases), 'evaluation case is', 'evaluation cases are')} in the calibration set, such as "
            f"{cases[0]}: the variant would be judged on its calibration data. Take them out of the calibration set."
        )
