"""`qualgate score` of several answers to each case."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations

import pytest
from typer.testing import CliRunner

from qualgate.cli import app
from qualgate.errors import UsageError
from qualgate.intake.score_rows import read_score_rows
from qualgate.pipeline.score_files import Scored, score_files
from qualgate.scoring import registry
from tests.pipeline.outputs import scored_files, write

SEVERAL = {"a": "1101", "b": "0000", "c": "0100", "d": "1111"}  # which answers of each case are right


def several(tmp_path, said: dict[str, str] = SEVERAL, **body) -> Scored:
    cases = [{"id": id, "answer": "1", **body} for id in said]
    rows = [{"id": id, "repeat": n, "text": mark} for id, marks in said.items() for n, mark in enumerate(marks)]
    return scored_files(tmp_path, cases, rows[::-1], "numeric")


def test_each_answer_has_a_row_and_pass_at_k_is_the_mean_of_all_draws(tmp_path):
    found = several(tmp_path)
    assert [(row.as_json()["id"], row.as_json()["repeat"]) for row in found.rows] == [
        (i, n) for i in "abcd" for n in range(4)
    ]
    assert "".join(str(int(row.score.value or 0)) for row in found.rows) == "".join(SEVERAL.values())
    for k in (1, 2, 3, 4):
        drawn = [[any(map(int, draw)) for draw in combinations(marks, k)] for marks in SEVERAL.values()]
        at = found.pass_at(k)
        assert (at.rate.n, at.rate.mean) == (4, pytest.approx(sum(sum(one) / len(one) for one in drawn) / 4))
        assert 0 <= at.rate.lower < at.rate.mean < at.rate.upper <= 1
    assert (found.pass_at(5).rate, found.pass_at(5).unavailable) == (None, "needs 5 answers to each case, there are 4")


def test_answers_to_one_case_do_not_narrow_the_interval(tmp_path):
    """One answer a case, and the same answer four times, say as much."""
    marks = {f"c{n}": "1" if n % 3 else "0" for n in range(12)}
    once = several(tmp_path, marks)
    often = several(tmp_path, {id: mark * 4 for id, mark in marks.items()})
    for rates in ((once.rate, often.rate), (once.rate, often.pass_at(1).rate), (once.rate, often.pass_at(3).rate)):
        one, other = rates
        assert (one.lower, one.mean, one.upper) == pytest.approx((other.lower, other.mean, other.upper), rel=1e-9)
    alone = several(tmp_path, {"a": "11"}).rate
    assert alone.lower < 0.2  # nothing is known of other cases
    grouped = several(tmp_path, SEVERAL, cluster="g").pass_at(2).rate
    assert (grouped.lower, grouped.upper) == (0, 1)


def test_a_case_with_an_answer_that_nobody_could_judge_is_left_out_of_pass_at_k(tmp_path):
    found = several(tmp_path, {"a": "11", "b": "10"})
    rows = list(found.rows)
    rows[1] = replace(rows[1], score=replace(rows[1].score, value=None, verdict=None))
    at = replace(found, rows=tuple(rows)).pass_at(1)
    assert (at.rate.n, at.rate.mean) == (1, 0.5)
    rows[2] = replace(rows[2], score=rows[1].score)
    assert "no case whose answers could all be judged" in replace(found, rows=tuple(rows)).pass_at(1).unavailable


REPEATED = {
    "one is missing": ([("a", 0), ("a", 1), ("b", 0)], "cases.jsonl:2: no output with `repeat` 1 for the id 'b'"),
    "all of a case": ([("a", 0), ("a", 1)], "cases.jsonl:2: no output for the id 'b'"),
    "one is extra": ([("a", 0), ("b", 0), ("b", 1)], "cases.jsonl:1: no output with `repeat` 1 for the id 'a'"),
    "a gap": ([("a", 0), ("b", 0), ("a", 2), ("b", 2)], "outputs.jsonl:3: `repeat` 2, but no output has 1"),
    "a huge one": ([("a", 0), ("b", 10**18)], "outputs.jsonl:2: `repeat` 1000000000000000000, but no output has 1"),
    "twice": ([("a", 0), ("b", 0), ("b", 0)], "outputs.jsonl:3: duplicate id 'b' with `repeat` 0; first on line 2"),
    "not counted": ([("a", None), ("b", 0), ("a", None)], "duplicate id 'a'; first on line 1; several outputs of one"),
    "below 0": ([("a", -1), ("b", 0)], "outputs.jsonl:1: `repeat` must be a whole number from 0; found -1"),
    "a truth value": ([("a", True), ("b", 0)], "outputs.jsonl:1: `repeat` must be a whole number from 0; found True"),
    "an unknown id": ([("a", 0), ("b", 0), ("z", 0), ("z", 1)], "outputs.jsonl:3: no case has the id 'z'"),
}


@pytest.mark.parametrize("what", REPEATED)
def test_a_missing_or_extra_answer_is_an_error(tmp_path, what):
    keys, said = REPEATED[what]
    rows = [{"id": id, "text": "1", **({} if repeat is None else {"repeat": repeat})} for id, repeat in keys]
    with pytest.raises(UsageError) as error:
        scored_files(tmp_path, [{"id": i, "answer": "1"} for i in "ab"], rows, "numeric")
    assert said in str(error.value)


def test_what_the_gate_needs_beside_the_score_goes_from_outputs_and_cases_into_the_rows(tmp_path):
    cases = [{"id": f"c{n}", "task": "sums", "tags": ["hard"], "cluster": f"k{n}", "answer": "1"} for n in range(200)]
    write(tmp_path / "cases.jsonl", cases)
    gate = tmp_path / "gate.yaml"
    gate.write_text(
        "version: 1\nbaseline: {model: ./m}\nvariants: {v: {model: ./m}}\nevalsets: [{name: sums, cases: external}]\n"
        "gate: {rules: [{metric: numeric, max_drop: 0.1}, {metric: numeric, per: task, max_drop: 0.1}]}\n"
    )

    def exit_when_cut(cut: int) -> int:
        sides = []
        for name in ("base", "int4"):
            outputs = [{"id": f"c{n}", "text": "1", "model": name, "finish_reason": "length" if n < cut else "stop"}
                       for n in range(200)]  # fmt: skip
            write(tmp_path / f"{name}.out", outputs)
            sides += [f"--{'baseline' if name == 'base' else 'variant'}-scores", str(tmp_path / f"{name}.jsonl")]
            files = [str(tmp_path / "cases.jsonl"), str(tmp_path / f"{name}.out")]
            done = CliRunner().invoke(app, ["score", *files, "--scorer", "numeric", "--json", sides[-1]])
            assert done.exit_code == 0, done.output
        return CliRunner().invoke(app, ["gate", str(gate), *sides]).exit_code

    assert exit_when_cut(0) == 0
    row = json.loads((tmp_path / "int4.jsonl").read_text().splitlines()[0])
    assert (row["finish_reason"], row["model"], row["task"], row["tags"]) == ("stop", "int4", "sums", ["hard"])
    assert exit_when_cut(40) == 12
    write(tmp_path / "base.out", [{"id": "c0", "text": "1", "finish_reason": "lenght", "model": 1}])
    files = (tmp_path / "cases.jsonl", tmp_path / "base.out")
    with pytest.raises(UsageError, match=r"(?s)base.out:1: `finish_reason` must be .*base.out:1: `model` must be a"):
        score_files(*files, registry.find("numeric"))


def test_the_command_tells_pass_at_k_and_its_rows_are_read_by_the_gate(tmp_path):
    several(tmp_path)
    files = [str(tmp_path / name) for name in ("cases.jsonl", "outputs.jsonl")]
    out, summary = tmp_path / "rows.jsonl", tmp_path / "summary.json"
    written = ["--json", str(out), "--summary", str(summary)]
    done = CliRunner().invoke(app, ["score", "--scorer", "numeric", *files, "--k", "10, 2", *written])
    assert done.exit_code == 0, done.output
    assert "16 rows, 4 answers to each of 4 cases" in done.stdout
    assert "pass@2   62.50%   95 % interval" in done.stdout
    assert "pass@10   unavailable: needs 10 answers to each case, there are 4" in done.stdout
    told = json.loads(summary.read_text())
    assert (told["cases"], told["repeats"], told["right"], told["wrong"]) == (4, 4, 8, 8)
    assert told["pass_at"]["2"]["mean"] == pytest.approx(0.625)
    assert told["pass_at"]["10"] == {"unavailable": "needs 10 answers to each case, there are 4"}
    assert [(row.id, row.repeat) for row in read_score_rows(out).rows] == [(i, n) for i in "abcd" for n in range(4)]
    assert "pass@1" in CliRunner().invoke(app, ["score", "--scorer", "numeric", *files]).stdout
    for options in (*(["--k", bad] for bad in ("0", "1,", "x", "9" * 10)), ["--json", str(out), "--summary", str(out)]):
        refused = CliRunner().invoke(app, ["score", "--scorer", "numeric", *files, *options])
        assert isinstance(refused.exception, UsageError), options


TOOLS = [{"name": "order", "parameters": {"type": "object", "properties": {"id": {"type": "integer"}}}}]
TURN = {"user": "7?", "expected_calls": [{"name": "order", "arguments": {"id": 7}}], "results": ["sent"]}
RIGHT, WRONG = ([{"name": "order", "arguments": {"id": id}}] for id in (7, 8))


def trajectories(tmp_path, said: dict[str, list[str]], scorer: str = "turns") -> Scored:
    """said: of each trajectory, by repeat, which turns are right."""
    cases = [{"id": id, "tools": TOOLS, "turns": [TURN] * len(marks[0])} for id, marks in said.items()]
    rows = [
        {"id": f"{id}/{turn}", "repeat": repeat, "calls": RIGHT if mark == "1" else WRONG}
        for id, repeats in said.items()
        for repeat, marks in enumerate(repeats)
        for turn, mark in enumerate(marks, start=1)
    ]
    return scored_files(tmp_path, cases, rows, scorer)


def test_trajectories_are_counted_whole_and_pass_all_is_the_mean_of_all_draws(tmp_path):
    said = {"a": ["111", "101", "111"], "b": ["11", "11", "11"], "c": ["1", "0", "0"]}
    found = trajectories(tmp_path, said)
    whole = {id: [int("0" not in marks) for marks in repeats] for id, repeats in said.items()}
    assert (len(found.rows), found.rate.n, found.rate.mean) == (18, 9, sum(map(sum, whole.values())) / 9)
    for k in (1, 2, 3):
        for passed, of in ((found.pass_all(k), all), (found.pass_at(k), any)):
            drawn = [[of(draw) for draw in combinations(one, k)] for one in whole.values()]
            assert (passed.rate.n, passed.rate.mean) == (3, pytest.approx(sum(sum(x) / len(x) for x in drawn) / 3))
    assert found.pass_all(4).unavailable == "needs 4 answers to each case, there are 3"
    as_calls = trajectories(tmp_path, said, "tool_call")
    assert (as_calls.rate.n, as_calls.rate.mean) == (18, 15 / 18)  # each turn by itself


def test_a_trajectory_with_a_turn_that_nobody_could_judge_is_wrong_only_where_another_turn_is(tmp_path):
    found = trajectories(tmp_path, {"a": ["11"], "b": ["10"]})
    rows = [replace(row, score=replace(row.score, value=None, verdict=None)) for row in found.rows[::2]]
    doubted = replace(found, rows=(rows[0], found.rows[1], rows[1], found.rows[3]))
    assert [verdicts for _, verdicts in doubted.judged] == [[None], [False]]


@pytest.mark.parametrize(
    ("turns", "said"),
    [([[]], r":1: `turns` must be a list of turns"), ([[TURN]] * 2, r":2: duplicate id 'a/1'; first on line 1")],
)
def test_bad_turns_are_refused_by_their_line(tmp_path, turns, said):
    cases = [{"id": "a", "tools": TOOLS, "turns": one} for one in turns]
    with pytest.raises(UsageError, match=rf"cases\.jsonl{said}"):
        scored_files(tmp_path, cases, [{"id": "a/1", "calls": RIGHT}], "turns")
