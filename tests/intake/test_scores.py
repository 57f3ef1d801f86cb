"""Score rows of two files → one verdict, and what fails closed."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from qualgate.errors import UsageError
from qualgate.gate.decide import Decided
from qualgate.intake.row_evidence import Identity, KnownCases, evidence_of
from qualgate.intake.score_rows import ScoreRow, Scores, read_score_rows
from qualgate.pipeline.from_files import BY_IDS, judge_scores
from qualgate.records import EarlyStop, Policy, Rule, RunEvidence
from tests.gate import planted
from tests.intake.score_files import code, exported, gated, said, side, written

POLICY = Policy(rules=(Rule(metric="exact_match", max_drop=0.05),))


def judged(
    baseline: Scores, variant: Scores, policy: Policy = POLICY, *, identity: Identity = "hash", **known
) -> tuple[RunEvidence, Decided]:
    """By the rules, of rows that name no evalset: they are of `set`. known: see `KnownCases`."""
    sides = {"baseline": baseline, "variant": variant}
    return judge_scores(sides, policy, KnownCases(default="set", **known), identity=identity)


def word(baseline: Scores, variant: Scores, **options) -> tuple[str, int]:
    (verdict,) = judged(baseline, variant, **options)[1].verdicts
    return verdict.word, verdict.exit


@pytest.mark.parametrize(
    ("baseline", "variant", "why"),
    [("h", "", "200 cases lack a `case_hash`"), ("h", "g", "200 cases are not the same"), ("", "", "{identity: ids}")],
    ids=["on one side only", "different", "on neither"],
)
def test_without_an_equal_hash_nothing_is_compared_and_it_is_said_why(baseline, variant, why):
    sides = side("a", 180, case_hash=baseline), side("b", 180, case_hash=variant)
    assert word(*sides) == ("undecided", 12)
    (verdict,) = judged(*sides)[1].verdicts
    assert len([reason for reason in verdict.reasons if why in reason]) == 1, verdict.reasons


def test_a_scorer_that_neither_side_names_is_said_to_be_unknown():
    def said(baseline: Scores, variant: Scores) -> list[str]:
        (verdict,) = judged(baseline, variant)[1].verdicts
        return [reason for reason in verdict.reasons if "name no `scorer`" in reason]

    silent = side("a", 180, scorer=""), side("b", 180, scorer="")
    assert word(*silent) == ("approve", 0)
    told = ["exact_match: rows name no `scorer`, so whether both sides were scored alike is not known"]
    assert said(*silent) == told
    some = replace(silent[0], rows=(*silent[0].rows[:1], *side("a", 180).rows[1:]))
    assert said(some, replace(silent[1], rows=(*silent[1].rows[:1], *side("b", 180).rows[1:]))) == told, (
        "one row of each"
    )
    assert said(side("a", 180), side("b", 180)) == []
    assert word(side("a", 180), silent[1])[1] == 12, "a scorer that one side names is another"


def test_hashes_that_differ_are_two_cases_though_ids_alone_were_asked_for():
    other = side("b", 180, case_hash="g")
    assert word(side("a", 180), other, identity="ids")[1] == 12
    assert word(side("a", 180), side("b", 180, case_hash=""), identity="ids")[1] == 0, "one side never said"
    nameless = side("a", 180, case_hash=""), side("b", 180, case_hash="")
    (verdict,) = judged(*nameless, identity="ids")[1].verdicts
    assert (verdict.word, BY_IDS in verdict.reasons) == ("approve", True)
    one = Scores(source="b", rows=(other.rows[0], *side("b", 180).rows[1:]))
    assert word(side("a", 180), one, identity="ids")[1] == 12


def test_an_evalset_without_a_score_is_not_passed_over():
    def with_times(name: str) -> Scores:
        times = [
            ScoreRow(id=f"t{n}", metric="latency.e2e", value=1.0, case_hash=f"t{n}", evalset="b") for n in range(50)
        ]
        return Scores(source=name, rows=(*side(name, 200).rows, *times))

    assert word(with_times("a"), with_times("b"))[1] == 12
    required = {"b": ["exact_match"]}
    assert word(with_times("a"), with_times("b"), required=required)[1] == 13, "a metric that the set is known to have"


def test_what_a_policy_says_of_generation_is_not_asked_of_files():
    early = replace(POLICY, stop=EarlyStop(seed=1, looks=(32, 64)))
    _, decided = judged(side("a", 180), side("b", 180), early)
    (verdict,) = decided.verdicts
    assert (verdict.word, verdict.seen, decided.policy.stop) == ("approve", None, None)


def test_what_fails_closed():
    whole = side("a", 180)
    rows = list(side("b", 180).rows)
    assert word(whole, side("b", 180)) == ("approve", 0)
    assert word(whole, side("b", 100)) == ("block", 10)
    assert word(whole, Scores(source="b", rows=tuple(rows[:-1])))[1] == 13, "a missing row"
    assert word(Scores(source="a", rows=tuple(rows[:-1])), whole)[1] == 13, "a row of one side only"
    assert word(whole, Scores(source="b", rows=(*rows, rows[0])))[1] == 14, "a row twice"
    assert word(whole, Scores(source="b", rows=(replace(rows[0], value=float("nan")), *rows[1:])))[1] == 13, "NaN"
    silent = [replace(row, value=None) for row in rows]
    assert word(whole, Scores(source="b", rows=(*silent[:12], *rows[12:])))[1] == 12, "nobody could say, of too many"
    assert word(whole, Scores(source="b", rows=tuple(silent)))[1] == 12, "of any"
    assert word(whole, side("b", 180, scorer="s/2"))[1] == 12, "another scorer"
    assert word(side("a", 0), side("b", 0))[1] == 12, "nothing right, so nothing could be lost"
    expected = [row.id for row in rows] + ["one more"]
    assert word(whole, side("b", 180), expected={"set": expected})[1] == 13, "missing on both sides"


def test_repeats_and_metrics_of_one_case_are_one_unit():
    rows = [ScoreRow(id="x", metric=m, value=1.0, repeat=r) for m in ("exact_match", "numeric") for r in (0, 1)]
    evidence = evidence_of({arm: Scores(source=arm, rows=tuple(rows)) for arm in ("a", "b")}, KnownCases(default="set"))
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


@pytest.mark.parametrize(
    ("metric", "value", "said"),
    [
        ("exact_match", "NaN", "0 or 1, found NaN"),
        ("exact_match", "-5", "0 or 1, found -5"),
        ("exact_match", "1e300", "0 or 1, found 1e+300"),
        ("lm_eval.f1", "1.5", "a number from 0 to 1, found 1.5"),
        ("latency.e2e", "-0.1", "a finite number from 0, found -0.1"),
        ("politeness", "1e999", "a finite number, found Infinity"),
        ("politeness", "1" + "0" * 400, "a finite number, found 1000"),
    ],
)
def test_a_value_beyond_its_metrics_range_is_named_with_its_line(tmp_path, metric, value, said):
    path = tmp_path / "a.jsonl"
    row = f'{{"id": "1", "metric": "{metric}", "value": %s}}\n'
    path.write_text(row % "1" + row % value)
    with pytest.raises(UsageError, match=rf"a\.jsonl:2: the value of {metric} must be {re.escape(said)}"):
        read_score_rows(path)
    path.write_text(f'{{"id": "1", "metric": "{metric}", "value": {value}, "status": "error"}}\n')
    assert read_score_rows(path).rows[0].failed, "a failure is none of a value"


def test_a_row_twice_is_named_with_both_lines(tmp_path):
    files = exported(tmp_path, planted.run(n=120))
    lines = files[2].read_text().splitlines(keepends=True)
    files[2].write_text("".join([*lines, *lines[:5]]))
    done = gated(files)
    reasons = json.loads(done.stdout)["verdicts"][0]["reasons"]
    told = [reason for reason in reasons if "the first is on line" in reason]
    assert (done.exit_code, len(told)) == (14, 3)
    first = json.loads(lines[0])
    at = f"{files[2]}:{len(lines) + 1}"
    assert told[0] == f"{at}: a second {first['metric']} of {first['id']!r}; the first is on line 1"


def renamed(scores: Scores, metric: str, rows: int = 200) -> Scores:
    return replace(scores, rows=tuple(
        replace(row, metric=metric, line=line) if line <= rows else row for line, row in enumerate(scores.rows, 1)
    ))  # fmt: skip


@pytest.mark.parametrize("rows", [1, 200])
def test_a_misspelt_metric_is_refused_where_it_stands(rows):
    said = "b:1: no other file has a score of 'exact_macth'; did you mean 'exact_match', which '0' lacks here"
    for sides in ((side("a", 180), renamed(side("b", 180), "exact_macth", rows)),
                  (renamed(side("b", 180), "exact_macth", rows), side("a", 180))):  # fmt: skip
        with pytest.raises(UsageError, match=said):
            judged(*sides)


def test_a_metric_of_ones_own_is_no_slip_and_who_lacks_it_is_told():
    def with_own(name: str, metric: str) -> Scores:
        rows = side(name, 180).rows
        return Scores(source=name, rows=(*rows, *(replace(row, metric=metric) for row in rows)))

    for metric in ("politeness", "exact_match2"):
        assert word(with_own("a", metric), with_own("b", metric)) == ("approve", 0)
        (verdict,) = judged(side("a", 180), with_own("b", metric))[1].verdicts
        assert verdict.exit == 13
        assert (
            f"baseline: 200 of 200 units without a score of {metric}, which there is of variant" in verdict.reasons[0]
        )
    some = with_own("b", "politeness")
    (verdict,) = judged(side("a", 180), replace(some, rows=some.rows[:-1]))[1].verdicts
    assert "variant: 1 of 200 units without a score of politeness, which there is of its other answers" in "".join(
        verdict.reasons
    )


def faulted(folder: Path, rows: int = 12, **over) -> int:
    """The exit code when so many rows of the variant say something else; `...` takes a key away."""
    files = exported(folder, planted.run(n=60))
    lines = [json.loads(line) for line in files[2].read_text().splitlines()]
    changed = [row for row in lines if row["metric"] == "exact_match" and row["value"] == 1][:rows]
    for row in changed:
        row |= over
    kept = [{key: value for key, value in row.items() if value is not ...} for row in lines]
    files[2].write_text("".join(json.dumps(row) + "\n" for row in kept))
    return code(files)


@pytest.mark.parametrize(
    ("over", "exit"),
    [
        ({"verdict": True}, 0),
        ({"verdict": True, "finish_reason": "length"}, 12),
        ({"verdict": True, "finish_reason": "abort"}, 13),
        ({"verdict": True, "finish_reason": "content_filter"}, 13),
        ({"verdict": True, "error_type": "", "status": "done", "error": None, "finish_reason": "EOS"}, 0),
        ({"verdict": None}, 13),
        ({"verdict": None, "error_type": "scorer_crashed"}, 13),
        ({"error_type": "truncated"}, 13),
        ({"verdict": True, "error_type": "timeout"}, 13),
        ({"status": "error"}, 13),
        ({"status": "error", "value": ...}, 13),
        ({"status": "skipped", "verdict": True}, 13),
        ({"error": "connection refused"}, 13),
        ({"error": {"code": 500}}, 13),
        ({"verdict": False}, 14),
        ({"verdict": False, "error_type": "timeout"}, 14),
        ({"verdict": True, "value": 0}, 14),
        ({"verdict": True, "value": None}, 14),
        ({"verdict": None, "value": None, "error_type": "tests"}, 12),
        ({"value": 0.5}, 64),
        ({"verdict": "true"}, 64),
        ({"status": 1}, 64),
        ({"finish_reason": "lenght"}, 64),
        ({"finish_reason": 7}, 64),
    ],
    ids=str,
)
def test_a_row_counts_as_what_all_of_it_says(tmp_path, over, exit):
    """A failure is no answer, a contradiction is not what a scorer wrote, and what nobody could say proves nothing."""
    assert faulted(tmp_path, **over) == exit


def test_a_wrong_answers_error_type_is_no_failure_and_a_graded_score_may_be_neither(tmp_path):
    def read(**row) -> ScoreRow:
        (tmp_path / "a.jsonl").write_text(json.dumps({"id": "1", **row}))
        (found,) = read_score_rows(tmp_path / "a.jsonl").rows
        return found

    assert not read(metric="exact_match", value=0, verdict=False, error_type="no_number").failed
    assert not read(metric="f1", value=0.4, verdict=None).failed
    assert not read(metric="f1", value=0.4, verdict=True).failed
    assert not read(metric="latency.e2e", value=1.0, verdict=None).failed
    assert read(metric="f1", value=0.4, verdict=None, error_type="timeout").failed.startswith(f"{tmp_path}/a.jsonl:1: ")
    assert read(metric="latency.e2e", value=1.0, error_type="timeout").failed


def test_how_answers_ended_is_told_as_in_a_run(tmp_path):
    """Answers that were cut off allow no approval on either side."""

    def ended(arm: str, word: str) -> tuple[Path, ...]:
        whole = planted.with_each(planted.run(n=120), "baseline", finish_reason="eos")
        return exported(tmp_path, planted.with_units(whole, arm, lambda us: (
            replace(u, finish_reason=word if i < 60 else "eos", truncated=word == "length" and i < 60)
            for i, u in enumerate(us)
        )))  # fmt: skip

    assert code(ended("baseline", "length")) == 12
    exit, text = said(ended("baseline", "abort"))
    assert (exit, "baseline: 60 of 240 units ended by the server (abort" in text) == (13, True)
    done = gated(ended("int4", "length"))
    reasons = json.loads(done.stdout)["verdicts"][0]["stop_reasons"]
    assert (done.exit_code, reasons) == (12, {"eos": 180, "eos → length": 60})
    for line, word in (("max_tokens", "length"), ("tool_calls", "stop"), ("Stop", "stop")):
        row = written(tmp_path / "one.jsonl", [{"id": "1", "finish_reason": line}])
        assert read_score_rows(row).rows[0].finish_reason == word


@pytest.mark.parametrize(
    ("outcomes", "answered"),
    [(["done"], True), (["failed", "done"], True), (["done", "cancelled"], True), (["failed"], False),
     (["failed", "cancelled"], False)],
)  # fmt: skip
def test_an_answer_came_of_an_attempt_that_was_done(tmp_path, outcomes, answered):
    row = {"id": "1", "metric": "exact_match", "value": 1, "attempts": [{"outcome": word} for word in outcomes]}
    (tmp_path / "one.jsonl").write_text(json.dumps(row))
    failed = read_score_rows(tmp_path / "one.jsonl").rows[0].failed
    assert ("none of its `attempts` was done" not in failed) is answered
    assert bool(failed) is not answered


def test_rows_of_one_answer_that_end_it_twice_are_refused():
    rows = [
        ScoreRow(id="x", metric=m, value=1.0, finish_reason=word) for m, word in (("numeric", "eos"), ("f1", "length"))
    ]
    with pytest.raises(UsageError, match="different ends: 'eos' in numeric, 'length' in f1"):
        evidence_of({arm: Scores(source=arm, rows=tuple(rows)) for arm in ("a", "b")}, KnownCases(default="set"))
