"""The rows of the scoring benchmark: what is timed is right, and each can be asked for alone."""

from __future__ import annotations

import pytest

from qualgate.errors import UsageError
from qualgate.scoring.tools.strict import Judged
from tests.benchmarks.__main__ import run_benchmark
from tests.verification.goals import SCORING
from tests.verification.references import scoring


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


def test_a_slow_machine_fails_no_quick_run(monkeypatch):
    monkeypatch.setattr(scoring, "per_second", lambda check: 1.0)
    monkeypatch.setattr(scoring.bfcl_agreement, "simple_checks_per_second", lambda seed, times: (1.0, 1.0))
    for quick, met in ((True, None), (False, False)):
        _, rows = scoring._speeds(quick)
        assert [(row["measured"], row["met"]) for row in rows] == [(1.0, met)] * 2
