"""The baseline against itself is shown beside a variant, ranks the review, and decides nothing."""

from __future__ import annotations

import json
from dataclasses import replace

from qualgate.gate.causes.noise_floor import UNMEASURED
from qualgate.gate.verdict import decide_plain
from qualgate.pipeline.stored import Standing
from qualgate.records import NOISE, RunEvidence
from tests.gate.planted import POLICY, of, run, witness
from tests.intake.score_files import exported, gated


def with_floor(evidence: RunEvidence, floor: RunEvidence, drop: int = 0) -> RunEvidence:
    again = witness(replace(floor, variants=(replace(floor.variants[0], name="baseline"),)), NOISE)
    aa, units = replace(again, identity=evidence.baseline.identity), again.units
    whole = of(evidence.baseline, *evidence.variants, aa)
    return replace(whole, variants=(*evidence.variants, replace(aa, units=units[drop:])))


def test_the_margin_test_does_not_see_the_noise_floor():
    for own in (run(), run(lost=0.3), run(lost=0.06)):
        (alone,) = decide_plain(own, POLICY)
        for floor in (run(), run(lost=0.3)):
            (beside,) = decide_plain(with_floor(own, floor), POLICY)
            assert replace(beside, reasons=beside.reasons[:-1]) == alone
            assert beside.reasons[-1].startswith("noise floor, lost / gained")


def test_flips_of_both_are_told_side_by_side():
    evidence = with_floor(run(lost=0.05), run(lost=0.025, gained=0.025))
    (verdict,) = decide_plain(evidence, POLICY)
    assert "exact_match 12 / 0 and 6 / 6 of 240" in verdict.reasons[-1]


def test_a_floor_that_was_not_finished_is_said_and_changes_no_verdict():
    (verdict,) = decide_plain(with_floor(run(), run(), drop=1), POLICY)
    assert verdict.word == "approve"
    assert "noise floor: not available" in verdict.reasons[-1]


def test_a_gate_file_that_asks_for_a_floor_hears_that_none_was_measured(tmp_path):
    """Of score files there is never one, and of a stored run none where `noise_floor` was written after it."""
    said = json.loads(gated(exported(tmp_path, run(n=120), "  noise_floor: true")).stdout)["verdicts"]
    assert [verdict["reasons"].count(UNMEASURED) for verdict in said] == [1]
    silent = json.loads(gated(exported(tmp_path, run(n=120))).stdout)["verdicts"]
    assert UNMEASURED not in silent[0]["reasons"]
    evidence = run(n=120)
    asked = Standing(run_id="r", evidence=evidence, policy=POLICY, then=POLICY, feedback=None, noise_floor=True)
    assert [one.reasons.count(UNMEASURED) for one in asked.decided(evidence).verdicts] == [1]
    assert [UNMEASURED in one.reasons for one in replace(asked, noise_floor=False).decided(evidence).verdicts] == [
        False
    ]
    whole = with_floor(evidence, evidence)
    (found,) = asked.decided(whole).verdicts
    assert UNMEASURED not in found.reasons
    assert any(reason.startswith("noise floor, lost / gained") for reason in found.reasons)
