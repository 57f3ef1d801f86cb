"""What a made variant carries: coverage of its calibration and stability of its weights, in its folder."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from qualgate.errors import UsageError
from qualgate.pipeline.quantize.folder import Order, quantize
from qualgate.pipeline.quantize.provenance import EVIDENCE, card_rows
from qualgate.quant.recipes import parse_recipe
from tests.tiny_models import save_tiny_model
from tests.tiny_sets import CALIBRATION, write_set


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def sets(tmp_path: Path) -> Path:
    write_set(tmp_path, "learned", ["A first text.", "A second one.", "A third, and longer."], CALIBRATION)
    write_set(tmp_path, "exam", ["Something else.", "And more!"])
    write_set(tmp_path, "leaky", ["Something else.", "A second one."])
    return tmp_path


def made(model: Path, sets: Path, against: tuple[str, ...] = (), **words) -> dict:
    out = sets / "made"
    order = Order(model=model, recipe=parse_recipe(words), out=out, format="compressed-tensors", relative_to=sets)
    found = quantize(replace(order, against=against))
    evidence = json.loads((out / EVIDENCE).read_text())
    assert found.evidence == evidence
    return evidence


def test_a_calibrated_variant_carries_the_five_numbers_and_its_layers_counters(model, sets):
    found = made(model, sets, ("./exam.yaml",), method="gptq", group_size=32, calibration="./learned.yaml")
    coverage, stability = found["coverage"], found["stability"]
    assert coverage["status"] == "measured"
    assert coverage["calibration"]["name"] == "learned"
    assert [one["name"] for one in coverage["traffic"]["evalsets"]] == ["exam"]
    assert {"range", "outlier_channels", "ngrams", "strata", "centroid_distance", "leakage"} <= set(coverage)
    assert len(stability["layers"]) == len(coverage["sites"]) == 14
    assert (stability["nan"], stability["inf"]) == (0, 0)
    assert 5 < stability["sqnr_min"] < 40
    card = (sets / "made" / "README.md").read_text()
    assert "| calibration coverage of | exam v1 |" in card
    tokens = [coverage[side]["activation_tokens"] for side in ("calibration", "traffic")]
    assert f"| {tokens[0]} of calibration, {tokens[1]} of evalsets |" in card
    assert "| leaked 13-word runs / whole cases | 0 / 0 |" in card
    assert f"| SQNR, worst layer | {stability['sqnr_min']:.4g} dB, {stability['sqnr_min_layer']} |" in card


@pytest.mark.parametrize("method", ["awq", "smoothquant"])
def test_folded_weights_are_compared_with_what_was_rounded_not_with_the_baseline(method, model, sets):
    words = {"group_size": 32} if method == "awq" else {}
    found = made(model, sets, ("./exam.yaml",), method=method, calibration="./learned.yaml", **words)["stability"]
    floor = 12 if method == "awq" else 30  # dB of 4 and 8 bits; against unfolded weights nothing near it would be left
    assert found["sqnr_min"] > floor


def test_a_direct_cast_says_that_coverage_does_not_apply(model, sets):
    found = made(model, sets, method="mxfp4")
    assert found["coverage"]["status"] == "not_applicable"
    assert found["stability"]["exponent_clamps"] == 0
    assert "not applicable: a direct cast" in (sets / "made" / "README.md").read_text()


def test_a_set_of_ones_own_without_traffic_is_not_measured_and_says_so(model, sets):
    found = made(model, sets, method="gptq", group_size=32, calibration="./learned.yaml")
    assert found["coverage"]["status"] == "not_measured"
    assert "--evalset" in found["coverage"]["reason"]


def test_a_calibration_set_that_holds_the_exam_makes_no_variant(model, sets):
    with pytest.raises(UsageError, match=r"1 evaluation case .* such as leaky/leaky-1"):
        made(model, sets, ("./leaky.yaml",), method="gptq", group_size=32, calibration="./learned.yaml")
    assert not (sets / "made").exists()


def test_missing_counters_say_why():
    reasons = {"coverage": "none named", "stability": "unknown"}
    rows = card_rows({name: {"status": "not_measured", "reason": reason} for name, reason in reasons.items()})
    assert rows[0] == "| calibration coverage | not measured: none named |"
    assert rows[1] == "| numerical stability | not measured: unknown |"
