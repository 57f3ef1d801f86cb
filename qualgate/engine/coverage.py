"""How far a calibration set covers evalsets, as the unquantized baseline sees both."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from qualgate.engine.calibration import answered
from qualgate.quant.coverage import Coverage, measure_coverage
from qualgate.quant.model_files import read_files
from qualgate.quant.text_coverage import Reading, reading_of
from qualgate.records import ArmSpec, CalibrationSet, Case, Evalset

if TYPE_CHECKING:
    from qualgate.engine.device import Device

ACTIVATION_TOKENS = 10_000  # of each side, run through the model: of the texts all are counted


def coverage(
    model_folder: Path,
    calibration: CalibrationSet,
    traffic: Sequence[Evalset],
    *,
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16",
    device: Device = "cpu",
    activation_tokens: int = ACTIVATION_TOKENS,
) -> Coverage:
    """Load the baseline in `model_folder` and measure how far `calibration` covers `traffic` in it.

    activation_tokens: on how many of each side, at least, the inputs of layers are compared.
    """
    from qualgate.engine.load import load_modules
    from qualgate.quant.checkpoint import linear_names

    spec = ArmSpec(name="baseline", model=str(model_folder), dtype=dtype)
    return measure_coverage(
        load_modules(spec, device=device),
        linear_names(model_folder),
        readings(model_folder, calibration.cases),
        [readings(model_folder, evalset.cases) for evalset in traffic],
        activation_tokens=activation_tokens,
        about_calibration=_about(calibration),
        about_traffic={"evalsets": [_about(evalset) for evalset in traffic]},
    )


def readings(model_folder: Path, cases: Sequence[Case]) -> list[Reading]:
    """Return the cases as the model reads them."""
    limit = read_files(model_folder).context_length
    rows = [(*prompt, *answer)[:limit] for prompt, answer in answered(model_folder, cases)]
    return [reading_of(case, token_ids) for case, token_ids in zip(cases, rows, strict=True)]


def _about(case_set: CalibrationSet | Evalset) -> dict[str, Any]:
    return {"name": case_set.name, "version": case_set.version, "sha256": case_set.sha256}
