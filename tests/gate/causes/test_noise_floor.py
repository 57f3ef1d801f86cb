"""The baseline against itself is shown beside a variant, ranks the review, and decides nothing."""

from __future__ import annotations

from dataclasses import replace

from qualgate.gate.verdict import decide_plain
from qualgate.records import NOISE, RunEvidence
from tests.gate.planted import POLICY, of, run
from tests.verification.verdicts.noise import block_rate


def with_floor(evidence: RunEvidence, floor: RunEvidence, drop: int = 0) -> RunEvidence:
    arm = floor.variants[0]
    units = tuple(replace(u, key=replace(u.key, arm="baseline" + NOISE)) for u in arm.units)
    aa = replace(arm, name="baseline" + NOISE, units=units, identity=evidence.baseline.identity)
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


def test_symmetric_noise_is_rarely_blocked():
    row = block_rate(quick=True)
    assert row["met"] is True
    assert row["measured"] > 0, "some noise does look like a loss"
