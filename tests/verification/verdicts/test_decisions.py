"""The benchmark of decisions itself: its sums are probabilities, its rivals are tests, its planting is what it says."""

from __future__ import annotations

from itertools import product
from types import ModuleType

import numpy as np
import pytest

from qualgate.stats.paired.compare import compare_pairs
from qualgate.stats.paired.region import Region
from qualgate.stats.power import approval_region, evidence_threshold
from tests.verification.goals import DECISIONS
from tests.verification.verdicts import defects, exact_chances, paired_errors
from tests.verification.verdicts.decisions import PARTS, Part, assembled
from tests.verification.verdicts.exact_chances import chances, inside, unblocked_region
from tests.verification.verdicts.rival_tests import rival_regions


def test_every_row_of_the_table_belongs_to_one_part():
    ids = [id for part in PARTS for id in part.ids]
    assert sorted(ids) == sorted(DECISIONS.goals)


def test_a_part_that_is_not_there_or_leaves_a_row_out_gives_no_verdict():
    def only_power(module: ModuleType, quick: bool):
        return [{"n": 1}], [{"id": "power", "measured": 1, "spread": None, "met": False}]

    result = assembled((Part(("errors", "power"), "defects", only_power), Part(("peeking",), "no_such_part")), True)
    rows = {row["id"]: row for row in result["goals"]}
    assert rows["power"]["met"] is False
    assert rows["power"]["goal"] == DECISIONS.goals["power"]
    assert all(row["met"] is None and row["reason"] for id, row in rows.items() if id != "power")
    assert "no_such_part" in rows["peeking"]["reason"]
    assert result["rounds"] == [{"part": "defects", "n": 1}]


def test_the_enumerated_regions_are_the_gates_decisions_on_every_table():
    n, margin = 20, 0.10
    approved, kept = approval_region(n, margin, 0.05), unblocked_region(n, margin, 0.05)
    for lost in range(n + 1):
        for gained in range(n + 1 - lost):
            result = compare_pairs(lost, gained, n, margin)
            assert (result.p_within <= 0.05) == (gained >= approved.edge[lost])
            assert (result.p_beyond <= 0.05) == (gained < kept.edge[lost])


def test_chances_are_those_of_the_trinomial_drawn_case_by_case():
    lost, gained, n = 0.3, 0.1, 4
    by_hand = np.zeros((n + 1, n + 1))
    for outcome in product((0, 1, 2), repeat=n):
        by_hand[outcome.count(0), outcome.count(1)] += np.prod([(lost, gained, 1 - lost - gained)[o] for o in outcome])
    assert chances(n, lost - gained, lost + gained) == pytest.approx(by_hand, abs=1e-12)


def test_the_sum_row_by_row_is_the_sum_table_by_table(monkeypatch):
    truths = [(0.03, 0.03), (0.03, 0.1), (0.05, 1.0), (0.0, 0.0), (0.1, 0.3)]
    for region in (approval_region(150, 0.03), unblocked_region(150, 0.05, 0.05)):
        by_table = [inside(region, *truth) for truth in truths]
        monkeypatch.setattr(exact_chances, "EXACT_N", 10)
        assert [inside(region, *truth) for truth in truths] == pytest.approx(by_table, abs=1e-10)
        monkeypatch.undo()


def test_a_gate_that_approves_too_much_would_be_seen(monkeypatch):
    sound = paired_errors._exactly(100, 0.05)
    assert max(sound["approve"], sound["block"], sound["policy_block"]) <= 0.05
    for module in (exact_chances, paired_errors):
        monkeypatch.setattr(module, "approval_region", lambda n, margin, alpha: approval_region(n, margin, 0.08))
    assert paired_errors._exactly(100, 0.05)["approve"] > 0.05
    assert exact_chances.not_the_gates(100, 0.05, np.random.default_rng(0)) > 0


def test_rival_tests_keep_their_error_and_the_score_computed_anew_is_ours():
    n, margin = 60, 0.05
    rivals = rival_regions(n, margin)
    for approved, blocked in rivals.values():
        for truth in np.linspace(margin, 1, 37):
            p = chances(n, margin, truth)
            assert max(p[approved].sum(), p[blocked].sum()) <= 0.0505  # between two points of the rivals' grid
    by_evidence = Region.at_least(n, margin, evidence_threshold(n, margin))
    ours = np.arange(n + 1)[None, :] >= by_evidence.edge[:, None]
    tables = np.add.outer(np.arange(n + 1), np.arange(n + 1)) <= n
    assert (rivals["score"][0] == (ours & tables)).mean() > 0.999


def test_fewer_than_20_passages_stay_undecided():
    assert paired_errors._few_clusters()


def test_what_is_planted_is_true_of_the_evidence():
    truth = next(truth for kind, truth in defects.LOSSES.items() if "10 points of valid JSON" in kind)
    evidence = defects.made(truth, np.random.default_rng(0), 4_000)
    mean = {
        (arm.name, metric): np.mean([u.values[metric] for u in arm.units if u.key.evalset == "forms"])
        for arm in (evidence.baseline, *evidence.variants)
        for metric in ("exact_match", "json.valid")
    }
    assert mean["baseline", "json.valid"] - mean["variant", "json.valid"] == pytest.approx(0.10, abs=0.02)
    assert mean["baseline", "exact_match"] == pytest.approx(mean["variant", "exact_match"], abs=0.02)


def test_defects_are_refused_and_sound_variants_are_not_blocked(monkeypatch):
    monkeypatch.setattr(defects, "N", 300)
    monkeypatch.setattr(defects, "LOSSES", {kind: defects.LOSSES[kind] for kind in list(defects.LOSSES)[2::5]})
    monkeypatch.setattr(defects, "made", lambda truth, g, n=300, make=defects.made: make(truth, g, n))
    rounds, rows = defects.measure(quick=True)
    found = {row["id"]: row for row in rows}
    assert found["defects.false_approve"]["measured"]["approved"] == 0, rounds
    assert found["defects.false_block"]["measured"]["blocked"] == 0, rounds
    assert all(row["met"] is None and "slice" in row["reason"] for row in rows)


def test_an_approved_defect_would_fail_the_row(monkeypatch):
    monkeypatch.setattr(defects, "word", lambda planted: "approve" if planted.kind else "block")
    monkeypatch.setattr(defects, "defects", lambda each: [defects.Planted(kind="x", evidence=None)])
    monkeypatch.setattr(defects, "sound", lambda count: [defects.Planted(kind="", evidence=None)])
    _, rows = defects.measure(quick=True)
    assert [row["met"] for row in rows] == [False, False]
