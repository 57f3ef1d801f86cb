"""Score rows of two files → one verdict, and what fails closed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from qualgate.errors import UsageError
from qualgate.intake.scores import BY_IDS, ScoreRow, Scores, evidence_of, judge, read_score_rows
from qualgate.records import Policy, Rule

POLICY = Policy(rules=(Rule(metric="exact_match", max_drop=0.05),))


def side(name: str, right: int, n: int = 200, **fields) -> Scores:
    given = {"case_hash": "h", "scorer": "s/1", **fields}

    def row(case: int) -> ScoreRow:
        own_hash = given["case_hash"] and f"{given['case_hash']}{case}"
        return ScoreRow(
            id=str(case), metric="exact_match", value=float(case < right), **{**given, "case_hash": own_hash}
        )

    return Scores(source=name, rows=tuple(map(row, range(n))))


def word(baseline: Scores, variant: Scores, **options) -> tuple[str, int]:
    (verdict,) = judge(baseline, variant, POLICY, evalset="set", **options)[1]
    return verdict.word, verdict.exit


def test_equal_scores_approve_and_a_collapse_blocks():
    assert word(side("a", 180), side("b", 180)) == ("approve", 0)
    assert word(side("a", 180), side("b", 100)) == ("block", 10)


@pytest.mark.parametrize(
    ("baseline", "variant"),
    [({"case_hash": "h"}, {"case_hash": ""}), ({"case_hash": "h"}, {"case_hash": "g"}), ({"case_hash": ""},) * 2],
    ids=["on one side only", "different", "on neither"],
)
def test_without_an_equal_hash_nothing_is_compared(baseline, variant):
    assert word(side("a", 180, **baseline), side("b", 180, **variant)) == ("undecided", 12)


def test_ids_alone_make_a_pair_only_when_asked_and_the_verdict_says_so():
    nameless = side("a", 180, case_hash=""), side("b", 180, case_hash="")
    (verdict,) = judge(*nameless, POLICY, evalset="set", identity="ids")[1]
    assert verdict.word == "approve"
    assert BY_IDS in verdict.reasons


def test_what_fails_closed():
    whole = side("a", 180)
    rows = list(side("b", 180).rows)
    assert word(whole, Scores(source="b", rows=tuple(rows[:-1])))[1] == 13, "a missing row"
    assert word(Scores(source="a", rows=tuple(rows[:-1])), whole)[1] == 13, "a row of one side only"
    assert word(whole, Scores(source="b", rows=(*rows, rows[0])))[1] == 14, "a row twice"
    assert word(whole, Scores(source="b", rows=(replace(rows[0], value=float("nan")), *rows[1:])))[1] == 13, "NaN"
    assert word(whole, Scores(source="b", rows=(replace(rows[0], value=None), *rows[1:])))[1] == 12, "nobody could say"
    assert word(whole, side("b", 180, scorer="s/2"))[1] == 12, "another scorer"
    assert word(side("a", 0), side("b", 0))[1] == 12, "nothing right, so nothing could be lost"
    expected = [row.id for row in rows] + ["one more"]
    assert word(whole, side("b", 180), expected=expected)[1] == 13, "missing on both sides"


def test_repeats_and_metrics_of_one_case_are_one_unit():
    rows = [ScoreRow(id="x", metric=m, value=1.0, repeat=r) for m in ("exact_match", "numeric") for r in (0, 1)]
    evidence = evidence_of(Scores(source="a", rows=tuple(rows)), Scores(source="b", rows=tuple(rows)), evalset="set")
    assert [unit.values for unit in evidence.baseline.units] == [{"exact_match": 1.0, "numeric": 1.0}] * 2
    assert evidence.metrics == {"set": ("exact_match", "numeric")}


def test_a_file_of_score_rows_is_read_with_every_fault_named(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(
        json.dumps({"id": "1", "metric": "exact_match", "value": True, "case_hash": "h", "tags": []}) + "\n"
    )
    assert read_score_rows(path).rows == (ScoreRow(id="1", metric="exact_match", value=1.0, case_hash="h"),)
    for line in (
        '{"id": "1"',
        "[]",
        "[" * 10**5,
        '{"id": "1", "metric": "m"}',
        '{"id": 1, "metric": "m", "value": 1}',
        '{"id": "1", "metric": "m", "value": "1"}',
        '{"id": "1", "id": "2", "metric": "m", "value": 1}',
        '{"id": "1", "metric": "m", "value": 1, "repeat": -1}',
        '{"id": "\\ud800", "metric": "m", "value": 1}',
    ):
        path.write_text(line)
        with pytest.raises(UsageError, match=r"a\.jsonl:1: "):
            read_score_rows(path)
    path.write_text('{"id": "1", "metric": "m", "value": 1' + "0" * 400 + "}")
    assert read_score_rows(path).rows[0].value != read_score_rows(path).rows[0].value, "beyond a double: NaN"
