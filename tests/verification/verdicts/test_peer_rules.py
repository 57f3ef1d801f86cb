"""The benchmark's own arithmetic, on a slice of it."""

from __future__ import annotations

import numpy as np
import pytest

from qualgate.gate.peers.rule import Outcomes
from tests.verification.verdicts import peer_rules


def test_the_table_of_pairs_gives_the_outcomes_that_the_cases_themselves_give():
    before = {f"q{i}": float(i < 14) for i in range(20)}
    after = {f"q{i}": float(i < 11 or i in (15, 16)) for i in range(20)}  # 3 lost, 2 gained, 11 right on both
    made, direct = peer_rules.outcomes(3, 2, 11, n=20), Outcomes.of("made", "exact_match", before, after)
    for side in ("baseline", "variant", "difference"):
        one, other = getattr(made, side), getattr(direct, side)
        assert (one.n, one.mean, one.sd) == pytest.approx((other.n, other.mean, other.sd))
    assert (made.lost, made.gained, made.paired_level) == (direct.lost, direct.gained, direct.paired_level)


def test_a_difference_of_means_needs_the_cases_of_the_textbook_formula():
    found = peer_rules.peer_cases(peer_rules.UNPAIRED["sglang_minus5"], 0.03, None, 20_000)
    assert found is not None
    assert found.n == pytest.approx((1.645 + 0.842) ** 2 * 2 * 0.755 * 0.245 / 0.03**2, rel=0.06)


def test_draws_have_the_loss_and_the_disagreement_asked_for():
    lost, gained, both = peer_rules._tables(1000, 0.03, 0.07, 4000, np.random.default_rng(1))
    assert np.mean(lost - gained) == pytest.approx(30, abs=0.5)
    assert np.mean(lost + gained) == pytest.approx(70, abs=0.5)
    assert np.mean(both + lost) == pytest.approx(755, abs=1)


def test_a_slice_reproduces_the_known_false_passes():
    rounds, rows = peer_rules.measure(quick=True)
    shares = {one["rule"]: one["false_pass"] for one in rounds if "false_pass" in one}
    assert shares["nel_v1"] < 0.01
    assert shares["trt_hypothesis"] == pytest.approx(0.62, abs=0.04)
    assert [row["id"] for row in rows] == ["peers.cases", "peers.false_pass"]
    assert {row["met"] for row in rows} == {None}  # a slice is no proof
    assert rows[0]["measured"]["least_share_of_2pq_over_disagreement"] > 0.8
