"""Evidence stored with a quantized variant: its calibration's coverage of the traffic, and its weights' stability."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from qualgate import evalsets
from qualgate.evalsets.calibration_sets import refuse_leaks
from qualgate.quant.stability import WeightStability, stability_section

if TYPE_CHECKING:
    from qualgate.engine.device import Device

EVIDENCE = "qualgate-evidence.json"  # beside the weights
NOT_MEASURED = {
    "status": "not_measured",
    "reason": "no evalset was named, so there is no traffic to hold the calibration against: name them with --evalset",
}


def calibration_coverage(
    model: Path,
    calibration: str,
    against: Sequence[str],
    *,
    relative_to: Path,
    dtype: Literal["bfloat16", "float16", "float32"],
    device: Device,
) -> dict[str, Any]:
    """Measure how far `calibration` covers the evalsets `against` in the baseline `model`, as plain JSON.

    calibration: the set's name or path, "" for a direct cast. Without evalsets, a shipped calibration set is compared
    with all shipped evalsets, and any other with none. Raises UsageError if both sides share cases.
    """
    from qualgate.engine.coverage import coverage
    from qualgate.quant.coverage import NOT_APPLICABLE

    if not calibration:
        return NOT_APPLICABLE
    if not against and not evalsets.is_path(calibration):
        against = evalsets.shipped()
    if not against:
        return NOT_MEASURED
    report = coverage(
        model,
        evalsets.load_calibration(calibration, relative_to),
        [evalsets.load(name, relative_to) for name in against],
        dtype=dtype,
        device=device,
    )
    refuse_leaks(report.leakage.cases)
    return report.as_json()


def stability(layers: Mapping[str, WeightStability], reason: str = "") -> dict[str, Any]:
    """Return the counters of every layer as plain JSON, or why there are none."""
    if not layers:
        return {"status": "not_measured", "reason": reason}
    return {"status": "measured", **stability_section(layers)}


def card_rows(evidence: Mapping[str, Any]) -> list[str]:
    """Return rows for a model card's table; the evidence file has the rest."""
    coverage, steady = evidence["coverage"], evidence["stability"]
    rows = []
    if coverage["status"] != "measured":
        rows.append(f"| calibration coverage | {coverage['status'].replace('_', ' ')}: {coverage['reason']} |")
    else:
        sets = ", ".join(f"{evalset['name']} v{evalset['version']}" for evalset in coverage["traffic"]["evalsets"])
        missed = [flag["name"] for flag in coverage["flags"] if flag["met"] is False]
        grams = ", ".join(_number(gram["share"]) for gram in coverage["ngrams"].values())
        learned, met = (coverage[side]["activation_tokens"] for side in ("calibration", "traffic"))
        rows += [
            f"| calibration coverage of | {sets} |",
            f"| tokens whose activations were compared | {learned:,} of calibration, {met:,} of evalsets |",
            f"| range, worst layer | {_number(coverage['range']['min'])} |",
            f"| clipped energy, worst layer | {_number(coverage['range']['clipped_energy_max'])} |",
            f"| outlier channels covered, worst layer | {_number(coverage['outlier_channels']['min'])} |",
            f"| n-grams known (1, 2, 3) | {grams} |",
            f"| smallest stratum ratio | {_number(coverage['strata']['min_ratio'])} |",
            f"| centroid distance, worst layer | {_number(coverage['centroid_distance']['max'])} |",
            f"| leaked 13-word runs / whole cases | {coverage['leakage']['grams']} / {coverage['leakage']['same']} |",
            f"| suggested bounds missed | {', '.join(missed) or 'none'} |",
        ]
    if steady["status"] != "measured":
        rows.append(f"| numerical stability | not measured: {steady['reason']} |")
    else:
        without_noise = "exact" if not (steady["nan"] or steady["inf"]) else "not a number"
        noise = f"{_number(steady['sqnr_min'])} dB, {steady['sqnr_min_layer']}"
        rows += [
            f"| NaN / infinite weights | {steady['nan']} / {steady['inf']} |",
            f"| saturated weights | {steady['saturated']:,} of {steady['elements']:,} |",
            f"| clamped exponents / zero scales | {steady['exponent_clamps']} / {steady['zero_scales']} |",
            f"| SQNR, worst layer | {noise if steady['sqnr_min'] is not None else without_noise} |",
        ]
    return [*rows, f"| the numbers layer by layer | `{EVIDENCE}` |"]


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"
