"""From the calibration set a recipe names to the one it means, which must not hold what judges the variant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from qualgate import evalsets
from qualgate.errors import UsageError
from qualgate.formatting import counted
from qualgate.quant.text_coverage import leakage, reading_of
from qualgate.records import ArmSpec, Evalset, QuantizeRecipe


def with_calibration(recipe: QuantizeRecipe, relative_to: Path) -> QuantizeRecipe:
    """The recipe with its calibration set found and named by content. Raises UsageError for a set with faults."""
    if not recipe.calibration:
        return recipe
    cases, digest = located(recipe.calibration, relative_to)
    return replace(recipe, calibration=cases, calibration_sha256=digest)


def located(ref: str, relative_to: Path) -> tuple[str, str]:
    """The file of the cases of the calibration set that `ref` names, and their sha256. UsageError for a set with
    faults."""
    found = evalsets.load_calibration(ref, relative_to)
    return str(Path(found.path).with_suffix(".jsonl").absolute()), found.sha256


def check_leaks(learned_by: QuantizeRecipe | ArmSpec, sets: Sequence[Evalset]) -> None:
    """Raise UsageError when the calibration set of a recipe or of a folder, as `located` found it, shares cases with
    `sets`.

    Reads texts alone, without a model: the other coverage numbers need one.
    """
    if learned_by.calibration:
        learned = evalsets.read(Path(learned_by.calibration).with_suffix(".yaml")).cases
        exam = [reading_of(case) for item in sets for case in item.cases]
        refuse_leaks(leakage([reading_of(case) for case in learned], exam).cases)


def refuse_leaks(cases: Sequence[str]) -> None:
    """Raise UsageError when there are evaluation cases that stand in the calibration set."""
    if cases:
        raise UsageError(
            f"{counted(len(cases), 'evaluation case stands', 'evaluation cases stand')} in the calibration set, "
            f"{cases[0]} among them: a variant made with it has seen its exam. Take them out of the calibration set."
        )
