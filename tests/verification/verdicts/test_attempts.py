"""The lists that are put to the gate: their starts are what they are called, each fault is one, none gets through."""

from __future__ import annotations

import json

import pytest

from tests.verification.verdicts import fail_closed, fail_closed_files, legitimate, new_attacks
from tests.verification.verdicts.attacks.scene import gated, lines, losing, lost_ids, without
from tests.verification.verdicts.attempts import REFUSALS, Attempt, exit_code, outcomes, row_of, wrong_of
from tests.verification.verdicts.fail_closed import STARTS, faulted, pairs
from tests.verification.verdicts.fail_closed_files import LOST, exit_of, files, harmless, mutated
from tests.verification.verdicts.faults import evidence

CODES = {
    "runs": {
        "nothing at all": 13, "12 rows, int4": 13, "12 rows, both": 13, "every row failed, int4": 13,
        "score NaN, baseline": 13, "a row twice, int4": 14, "same alias for two weights": 14, "shuffled ids": 12,
        "re-versioned set": 12, "zero flips at n = 10": 12, "baseline right on nothing": 12,
        "both arms truncated": 12, "both arms too long": 12, "19 passages": 12, "a loss at the margin": 12,
        "variant wrong on all": 10, "a person is asked for": 11, "alpha nan": 64,
        "advisory rules alone, variant wrong on all": 64,
    },
    "whole": {
        "stability.sqnr nan, variant": 13, "a layer of NaN": 12, "the baseline's sizes": 10,
    },
    "stopped": {
        "no record": 13, "another number of the look": 14, "approved though wrong on 30 %": 12,
        "judged by a wider margin": 12,
    },
    "four arms": {
        "no both": 13, "both was never planned": 64, "both under two weights": 14, "a person is asked for": 11,
        "a supporting rule broken by every arm": 11, "-1000000000.0 s of an attempt, both": 13,
    },
}  # fmt: skip
LISTS = {
    "faults of evidence": (fail_closed.singles, 5),
    "pairs of faults": (lambda: pairs(fail_closed.QUICK), 1),
    "attacks": (new_attacks.listed, new_attacks.QUICK),
    "honest users": (legitimate.listed, legitimate.QUICK),
    "mutated files": (lambda: fail_closed_files.attempts(1), 3),
}


@pytest.mark.parametrize("kind", STARTS)
def test_evidence_without_a_fault_approves_and_a_fault_is_refused_for_what_it_is(kind):
    assert evidence.exit_of(STARTS[kind][0]()) == 0
    assert {name: evidence.exit_of(faulted(kind, name)) for name in CODES[kind]} == CODES[kind]


def test_every_fault_differs_from_the_sound_input():
    assert not [(kind, name) for kind, (start, faults) in STARTS.items() for name in faults
                if faulted(kind, name) == start()]  # fmt: skip


@pytest.mark.parametrize("name", LISTS)
def test_a_slice_of_each_list_comes_out_as_it_must(name):
    listed, every = LISTS[name]
    attempts = listed()
    assert len({(one.group, one.name) for one in attempts}) >= 0.99 * len(attempts), "none is listed twice"
    found = outcomes(attempts[::every])
    assert wrong_of(found) == []
    if name != "honest users":
        assert len({code for _, code in found}) >= 3, "refused for one reason, they tell of one defence"


@pytest.mark.parametrize(("code", "met"), [(14, True), (0, False), ("KeyError: 'x'", False), (1, False)])
def test_an_attempt_that_gets_through_or_crashes_is_not_met(code, met):
    refused = [(Attempt(group="ids", name="x", ask=lambda _: 12), 12)] * 100
    odd = Attempt(group="ids", name="odd", ask=lambda _: code)
    assert row_of("attacks.new", [*refused, *outcomes([odd])], 100)[1]["met"] is met
    assert row_of("attacks.new", refused[:5], 100)[1]["met"] is None, "five are too few"


def test_a_crash_is_no_exit_code():
    assert exit_code(lambda: {}["x"]) == "KeyError: 'x'"
    assert exit_code(lambda: 12) == 12
    assert exit_code(lambda: None) not in REFUSALS


def test_what_attacks_start_from_exits_as_it_is_called_and_what_is_hidden_is_what_was_lost(tmp_path):
    new_attacks.check_starts()
    scene = losing()
    assert len(lost_ids(scene)) > 50
    without(lost_ids(scene))(scene)
    scene.cases = [case for case in scene.cases or [] if case["id"] not in lost_ids(losing())]
    assert gated(scene, tmp_path / "scene") == 0, "without them, the rest would approve"
    assert (exit_of(files(), tmp_path / "files"), exit_of(files(LOST), tmp_path / "files")) == (0, 10)


def test_every_mutation_of_files_is_drawn_and_drawn_again_the_same():
    drawn = list(mutated(1))
    assert {*fail_closed_files.ROWS, *fail_closed_files.POLICY} <= {name.rpartition(", ")[0] for name, *_ in drawn}
    assert drawn == list(mutated(1))
    assert [one.name for one in pairs(9)] == [one.name for one in pairs(9)]


@pytest.mark.parametrize(
    ("over", "fine"),
    [
        ({"extracted": "other", "model": "x"}, True),
        ({"finish_reason": "length"}, True),
        ({"value": 0.0}, False),
        ({"verdict": None}, False),
        ({"status": "error"}, False),
        ({"case_hash": "x"}, False),
        ({"tags": []}, False),
    ],
)
def test_the_oracle_of_files_tells_what_counts_from_what_does_not(over, fine):
    before = files()
    changed = [json.loads(line) for line in before["b.jsonl"].splitlines()]
    changed[-1] |= over
    assert harmless(before, before | {"b.jsonl": lines(changed)}) == fine
