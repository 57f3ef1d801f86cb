"""`python -m tests.verification`: what it covers, and what it calls a failure."""

from __future__ import annotations

import pytest

from tests.benchmarks.shape import of_few
from tests.verification import PROOFS
from tests.verification.__main__ import WHOLE, Slice, chosen, main, slices


def test_every_row_of_every_proof_is_covered_once():
    covered = [(one.proof, row) for one in slices() for row in one.rows]
    assert len(covered) == len(set(covered))
    rows = {(name, id) for name, proof in PROOFS.items() for id in proof.goals}
    assert rows == set(covered)
    assert {row for one in slices() if one.whole for row in one.rows} == WHOLE


def test_parts_are_chosen_by_the_name_of_a_proof_or_of_a_row():
    assert {one.proof for one in chosen(["scoring"])} == {"scoring"}
    assert [one.proof for one in chosen(["power"])] == ["decisions", "served"], "two proofs have such a row"
    assert len(chosen([])) == len(list(slices()))
    with pytest.raises(SystemExit) as refused:
        chosen(["pover"])
    assert refused.value.code == 64


def test_the_list_names_every_row(capsys):
    assert main(["--list"]) == 0
    said = capsys.readouterr().out
    assert all(row in said for one in slices() for row in one.rows)


def few(met: bool, by_chance: bool = True):
    return of_few({"id": "errors", "met": met, "goal": "none", "measured": 3}, "3 cases", by_chance=by_chance)


@pytest.mark.parametrize(
    ("rows", "code", "word"),
    [
        ([{"id": "errors", "met": True}], 0, "ok"),
        ([{"id": "errors", "met": None, "reason": "no data"}], 0, "errors: no verdict: no data"),
        ([few(True)], 0, "errors: holds so far; too few draws: 3 cases"),
        ([few(False)], 0, "errors: does not hold so far, measured: 3; too few draws: 3 cases"),
        ([few(False, by_chance=False)], 1, "errors: not met: none; measured: 3"),
        ([{"id": "errors", "met": False, "goal": "none", "measured": 3}], 1, "errors: not met: none; measured: 3"),
        (None, 1, "CRASHED"),
    ],
)
def test_a_missed_goal_and_a_crash_fail_and_a_row_without_a_verdict_is_named(monkeypatch, capsys, rows, code, word):
    def measured(self: Slice, quick: bool):
        if rows is None:
            raise KeyError("x")
        return rows

    monkeypatch.setattr(Slice, "measured", measured)
    assert main(["errors"]) == code
    assert word in capsys.readouterr().out


def test_a_slice_is_measured_by_the_command_of_its_proof():
    [one] = chosen(["schema_suite"])
    rows = one.measured()
    assert [row["id"] for row in rows] == ["schema_suite", "suite"]
    assert all(row["met"] is True or row["reason"] for row in rows)
