"""Coverage as lines for a reader."""

from __future__ import annotations

from qualgate.report.coverage import coverage_lines


def found(**more) -> dict:
    site = {"site": "layers.0.up_proj", "range": 0.5}
    return {
        "status": "measured",
        "calibration": {
            "name": "calibration", "version": "1", "cases": 128, "tokens": 9000, "activation_cases": 32,
            "activation_tokens": 2500,
        },
        "traffic": {
            "evalsets": [{"name": "code", "version": "1"}], "cases": 400, "tokens": 40_000, "activation_cases": 64,
            "activation_tokens": 6400,
        },
        "range": {"min": 0.5, "p1_over_channels": None, "clipped_energy_max": 0.001},
        "outlier_channels": {"min": 0.97},
        "ngrams": {str(n): {"share": 1 / n, "good_turing_unseen": 0.01} for n in (1, 2, 3)},
        "strata": {"min_ratio": 0.0, "least_covered": "b", "divergence": 0.1, "tools": None},
        "centroid_distance": {"max": 0.2},
        "leakage": {"grams": 2, "same": 0, "cases": [f"code/{index}" for index in range(7)]},
        "flags": [
            {"name": "range", "value": 0.5, "bound": ">= 0.999", "met": False},
            {"name": "leaked_13_grams", "value": 2, "bound": "<= 0", "met": False},
            {"name": "outlier_channels", "value": None, "bound": ">= 0.95", "met": None},
            {"name": "unigrams", "value": 1.0, "bound": ">= 0.99", "met": True},
        ],
        "sites": [site, {"site": "layers.1.up_proj", "range": None}],
        **more,
    }  # fmt: skip


def test_every_number_is_shown_and_a_missing_one_is_called_none():
    text = "\n".join(coverage_lines(found()))
    assert "calibration v1: 128 cases, 9,000 tokens; 32 cases, 2,500 tokens run through the model" in text
    assert "traffic code v1: 400 cases, 40,000 tokens; 64 cases, 6,400 tokens run through the model" in text
    assert "0.5 at the worst layer, none at the 1st percentile" in text
    assert "1, 0.5, 0.3333 of the traffic's" in text
    assert "smallest ratio 0 (b)" in text
    assert "layers.0.up_proj: range 0.5" in text
    assert "layers.1.up_proj" not in text


def test_flags_say_on_which_side_they_are_missed_and_leaks_name_cases():
    lines = [line.strip() for line in coverage_lines(found())]
    assert "LOW  range 0.5 (suggested >= 0.999)" in lines
    assert "HIGH leaked_13_grams 2 (suggested <= 0)" in lines
    assert "?    outlier_channels none (suggested >= 0.95)" in lines
    assert "ok   unigrams 1 (suggested >= 0.99)" in lines
    assert "in code/0, code/1, code/2, code/3, code/4 and 2 more" in lines


def test_a_direct_cast_is_shown_as_not_applicable():
    assert coverage_lines({"status": "not_applicable", "reason": "no data"}) == ["coverage: not applicable (no data)"]
