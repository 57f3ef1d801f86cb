"""The benchmark of decisions itself: its sums are probabilities, its rivals are tests, its planting is what it says."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from qualgate.gate.decide import decide
from tests.verification.goals import DECISIONS
from tests.verification.verdicts import defects, paired_errors, tables
from tests.verification.verdicts.clustered_errors import few_clusters_undecided
from tests.verification.verdicts.decisions import PARTS, Part, assembled
from tests.verification.verdicts.rival_tests import chances, rival_regions
from tests.verification.verdicts.tables import Edges, Words


def test_every_row_of_the_table_belongs_to_one_part():
    ids = [id for part in PARTS for id in part.ids]
    assert sorted(ids) == sorted(DECISIONS.goals)


def test_a_row_that_its_part_leaves_out_or_of_no_part_has_no_verdict(monkeypatch):
    def only_power(quick: bool):
        return [{"n": 1}], [{"id": "power", "measured": 1, "spread": None, "met": False}]

    monkeypatch.setattr(defects, "measure", only_power)
    result = assembled((Part(("errors", "power"), "defects"),), True)
    rows = {row["id"]: row for row in result["goals"]}
    assert rows["power"]["met"] is False
    assert rows["power"]["goal"] == DECISIONS.goals["power"]
    assert all(row["met"] is None and row["reason"] for id, row in rows.items() if id != "power")
    assert result["rounds"] == [{"part": "defects", "n": 1}]


def test_the_edges_are_the_gates_decisions_on_every_table():
    words = Words(40, 0.10)
    for lost in range(15):
        for gained in range(15):
            word, _ = words.word(lost, gained)
            assert (word == "approve") == (gained >= words.approved[lost])
            assert (word == "block") == (gained < words.unblocked[lost])
    assert {word for word, _ in words.words.values()} == {"approve", "undecided", "block"}


def test_chances_are_those_of_the_trinomial_drawn_case_by_case():
    lost, gained, n = 0.3, 0.1, 4
    by_hand = np.zeros((n + 1, n + 1))
    for outcome in product((0, 1, 2), repeat=n):
        by_hand[outcome.count(0), outcome.count(1)] += np.prod([(lost, gained, 1 - lost - gained)[o] for o in outcome])
    assert chances(n, lost - gained, lost + gained) == pytest.approx(by_hand, abs=1e-12)


@pytest.mark.parametrize(("loss", "disagreement"), [(0.03, 0.03), (0.03, 0.1), (0.05, 1.0), (0.0, 0.0), (0.1, 0.3)])
def test_the_sum_row_by_row_is_the_sum_table_by_table(loss, disagreement):
    n = 60
    holds = lambda lost, gained: gained**2 >= 3 * lost + 1  # noqa: E731
    lost, gained = np.meshgrid(np.arange(n + 1), np.arange(n + 1), indexing="ij")
    by_table = chances(n, loss, disagreement)[holds(lost, gained)].sum()
    assert Edges(n, holds).chance(loss, disagreement) == pytest.approx(by_table, abs=1e-9)
    assert Edges(n, holds).chance(loss, disagreement, forgotten=1e-3, step=3) >= by_table - 1e-9


def test_a_gate_that_approves_too_much_would_be_seen(monkeypatch):
    sound = paired_errors._exactly(60, 0.10)
    assert max(sound["approve"], sound["block"], sound["policy_block"]) <= 0.05
    monkeypatch.setattr(tables, "decide", lambda evidence, policy: decide(evidence, replace(policy, alpha=0.08)))
    assert paired_errors._exactly(60, 0.10)["approve"] > 0.05


def test_draws_that_are_not_doubtful_count_for_ten_of_which_one_is_decided():
    draws = iter([True, False] * 100)
    assert tables.rate(200, lambda: (next(draws), lambda: True)) == pytest.approx(1.0)


def test_rival_tests_keep_their_error():
    n, margin = 60, 0.05
    for approved, blocked in rival_regions(n, margin).values():
        for truth in np.linspace(margin, 1, 37):
            p = chances(n, margin, truth)
            assert max(p[approved].sum(), p[blocked].sum()) <= 0.0505  # between two points of the rivals' grid


def test_fewer_than_20_passages_stay_undecided():
    assert few_clusters_undecided()


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
