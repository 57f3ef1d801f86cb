"""The suite itself: its starting point approves, its faults are the faults they are called, and none approves."""

from __future__ import annotations

import pytest

from tests.verification.verdicts import fail_closed
from tests.verification.verdicts.fail_closed import cases
from tests.verification.verdicts.faults.given import exit_of, sound
from tests.verification.verdicts.faults.mutations import MUTATIONS, mutated
from tests.verification.verdicts.faults.of_early_stops import stopped
from tests.verification.verdicts.faults.of_four_arms import four
from tests.verification.verdicts.faults.of_nel_policies import GOOD_NEL, NEL, nel_exit
from tests.verification.verdicts.faults.of_score_files import FILES, GOOD_FILE, file_exit
from tests.verification.verdicts.faults.of_whole_arms import weighed

FAULTED = cases()


def test_what_the_faults_start_from_approves(tmp_path):
    assert [exit_of(start()) for start in (sound, weighed, stopped, four)] == [0] * 4
    assert file_exit(GOOD_FILE, GOOD_FILE, tmp_path) == 0
    assert nel_exit(GOOD_NEL, tmp_path) == 0


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("nothing at all", 13),
        ("12 rows, variant", 13),
        ("12 rows, both", 13),
        ("every row failed, variant", 13),
        ("score NaN, baseline", 13),
        ("a row twice, variant", 14),
        ("same alias for two weights", 14),
        ("shuffled ids", 12),
        ("re-versioned set", 12),
        ("zero flips at n = 10", 12),
        ("baseline right on nothing", 12),
        ("both arms truncated", 12),
        ("both arms too long", 12),
        ("19 passages", 12),
        ("a loss at the margin", 12),
        ("variant wrong on all", 10),
        ("a person is asked for", 11),
        ("advisory rules alone, variant wrong on all", 64),
        ("alpha nan", 64),
        ("whole: stability.sqnr nan, variant", 13),
        ("whole: a layer of NaN", 12),
        ("whole: the baseline's sizes", 10),
        ("stopped: no record", 13),
        ("stopped: another number of the look", 14),
        ("stopped: approved though wrong on 30 %", 12),
        ("stopped: judged by a wider margin", 12),
        ("four arms: no both", 13),
        ("four arms: both was never planned", 64),
        ("four arms: one arm in two roles", 64),
        ("four arms: both under two weights", 14),
        ("four arms: a person is asked for", 11),
        ("four arms: a supporting rule broken by every arm", 11),
        ("four arms: -1000000000.0 s of an attempt, both", 13),
    ],
)
def test_a_fault_is_refused_for_what_it_is(name, code):
    assert exit_of(FAULTED[name]) == code


@pytest.mark.proof
def test_no_faulted_input_exits_with_0_and_none_crashes():
    rounds, rows = fail_closed.measure(quick=True)
    found = {row["id"]: row for row in rows}
    assert found["fail_closed.cases"]["met"] is True, rounds
    assert found["fail_closed.cases"]["measured"]["tried"] >= 60
    assert found["fail_closed.mutations"]["measured"] | {"tried": 0} == {"tried": 0, "approved": 0, "crashed": 0}
    assert found["fail_closed.mutations"]["met"] is None  # a slice is no proof


def test_every_fault_differs_from_the_sound_input_and_is_drawn_again_the_same():
    good = sound()
    starts = (good, weighed(), stopped(), four())
    assert all(asked not in starts for asked in FAULTED.values())
    drawn = list(mutated(len(MUTATIONS), 20))
    assert all(asked != good for _, asked in drawn)
    assert repr(drawn) == repr(list(mutated(len(MUTATIONS), 20)))  # by text, for NaN does not equal itself


@pytest.mark.parametrize(("name", "code"), [("a benchmark that did not run", 12), ("version 2", 64), ("empty", 64)])
def test_a_faulted_nel_policy_is_refused_for_what_it_is(name, code, tmp_path):
    assert nel_exit(NEL[name], tmp_path) == code


def test_a_case_under_many_names_is_no_more_evidence(tmp_path):
    many = [name for name in FILES if name.startswith("12 cases")]
    assert {file_exit(*FILES[name], tmp_path) for name in many} == {12}
    assert len(many) == 4


def test_an_approval_or_a_crash_would_be_counted(monkeypatch):
    def crash() -> int:
        raise KeyError("x")

    monkeypatch.setitem(FILES, "nothing wrong", (GOOD_FILE, GOOD_FILE))
    monkeypatch.setattr(fail_closed, "cases", dict)
    _, rows = fail_closed.measure(quick=True)
    assert (rows[0]["met"], rows[0]["measured"]["approved"]) == (False, 1)
    assert fail_closed.outcome(crash) == "KeyError"
