"""A small slice of the scoring benchmark: every row is measured, and its checks can fail."""

from __future__ import annotations

import pytest

from qualgate.bench import run_benchmark
from qualgate.errors import UsageError
from qualgate.scoring.tools.strict import Judged
from tests.verification.goals import SANDBOX, SCORING, STORED
from tests.verification.references import lm_eval_log, scoring

FUZZ = ("filters_fuzz", "match_fuzz", "ifeval_fuzz")


def cannot_run():
    raise lm_eval_log.CannotRun("the rows are not here")


@pytest.mark.proof
def test_every_row_is_measured_or_says_what_it_waits_for(monkeypatch):
    monkeypatch.setattr(scoring, "hostile", lambda count: {"crashes": [], "hangs": [], "slowest": 0.1})
    monkeypatch.setattr(scoring, "CHECKS", 50)
    monkeypatch.setattr(scoring, "FUZZED", 2000)
    monkeypatch.setattr(scoring, "THOUGHTS", 500)
    monkeypatch.setattr(scoring, "CHOSEN", 500)
    monkeypatch.setattr(scoring.judges, "proof", lambda quick: ({"worlds": 1, "held": 1}, True))
    fuzzed = (lambda quick: ([], [SCORING.row(i, 1, met=True) for i in FUZZ]), FUZZ)
    monkeypatch.setattr(scoring, "PARTS", tuple(fuzzed if ids == FUZZ else (part, ids) for part, ids in scoring.PARTS))
    monkeypatch.setattr(scoring.lm_eval_log, "samples", lambda data: cannot_run())
    monkeypatch.setattr(scoring.sandbox, "rows", lambda quick, data: [SCORING.row(i, 1, met=True) for i in SANDBOX])
    monkeypatch.setattr(scoring.drift_stored, "rows", lambda q: ([], [SCORING.row(i, 1, met=True) for i in STORED]))
    result = scoring.run(quick=True)
    assert [row["id"] for row in result["goals"]] == list(SCORING.goals)
    for row in result["goals"]:
        assert (row["met"] is None) == ("reason" in row)


@pytest.mark.parametrize("name", ["tool_call_judged", "tool_call_strict", "schema_speed"])
def test_what_is_timed_is_a_right_answer(name):
    said = scoring.checks()[name]()
    if isinstance(said, Judged):
        assert all(said.flags.values())
    else:
        assert said is None or all(score.verdict for score in said.values())


def test_rows_can_be_asked_for_alone_and_the_others_have_no_verdict():
    ids = [id for _, part in scoring.PARTS for id in part]
    assert sorted(ids) == sorted(SCORING.goals)
    rows = {row["id"]: row for row in run_benchmark("scoring", quick=True, only=["schema_suite"])["goals"]}
    assert rows["schema_suite"].get("reason") != "not asked for"
    assert {row["met"] for id, row in rows.items() if id != "schema_suite"} == {None}
    for name, row, said in (("scoring", "schema_suit", "schema_suite"), ("demo", "seconds", "as a whole")):
        with pytest.raises(UsageError, match=said):
            run_benchmark(name, quick=True, only=[row])
