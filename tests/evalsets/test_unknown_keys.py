"""Keys of case and score rows that nothing reads: slips of the pen are refused, keys of somebody's own are not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from qualgate import evalsets
from qualgate.cli import app
from qualgate.documents import misspelt
from qualgate.errors import UsageError
from qualgate.intake.score_rows import read_score_rows
from qualgate.pipeline.score_files import score_files
from qualgate.scoring import registry

CASE = {"id": "a", "prompt": "2 + 2 =", "max_new_tokens": 4, "answer": "4"}
ROW = {"id": "a", "metric": "exact_match", "value": 1, "case_hash": "h"}
SLIPS = {"clustr": "cluster", "Cluster": "cluster", "culster": "cluster", "clusters": "cluster", "cluster_": "cluster",
         "tag": "tags", "tgas": "tags", "TAGS": "tags", "tasks": "task", "tsk": "task"}  # fmt: skip
# What HumanEval, MBPP, GSM8K, BFCL, MT-Bench and Spec-Bench carry, and words that are near a short one of ours.
THEIRS = ["task_id", "canonical_solution", "text", "code", "challenge_test_list", "source_file", "test_imports",
          "question", "doc_id", "ground_truth", "6b_finetuning", "function", "question_id", "turns", "tstamp",
          "answer_id", "model_id", "rank", "type", "page", "date", "lang", "level", "score", "mode", "idx", "url",
          "metadata", "x-clustr", "x-tag"]  # fmt: skip


def lay(folder: Path, **more: object) -> Path:
    (folder / "own.yaml").write_text("name: own\nversion: '1'\nmetrics: [exact_match]\n")
    (folder / "own.jsonl").write_text(json.dumps(CASE | more) + "\n")
    return folder / "own.yaml"


@pytest.mark.parametrize(("slip", "meant"), SLIPS.items())
def test_a_slip_of_the_pen_is_refused_with_the_key_that_was_meant(tmp_path, slip, meant):
    (fault,) = evalsets.check(lay(tmp_path, **{slip: "p1"}))
    assert fault.message.startswith(f"`{slip}` is read by nothing; did you mean `{meant}`")
    assert f"`x-{slip}`" in fault.message
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps(ROW | {slip: "p1"}))
    with pytest.raises(UsageError, match=rf"rows\.jsonl:1: `{slip}` is read by nothing; did you mean `{meant}`"):
        read_score_rows(rows)


@pytest.mark.parametrize("key", ["finish_reson", "casehash", "case-hash", "scorrer", "repeats", "evalst", "eror_type",
                                 "statsu", "verdit", "models", "errors", "draft_acepted", "token_id"])  # fmt: skip
def test_every_key_of_a_score_row_is_told_from_its_slips(tmp_path, key):
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({name: value for name, value in ROW.items() if name != "case_hash"} | {key: 1}))
    with pytest.raises(UsageError, match="is read by nothing; did you mean"):
        read_score_rows(rows)


def test_where_the_right_key_is_there_another_beside_it_is_somebodys_own(tmp_path):
    assert evalsets.check(lay(tmp_path, cluster="p", clustr="q", task="t", tags=["x"], tag="y", prompts=["z"])) == ()
    (tmp_path / "rows.jsonl").write_text(json.dumps(ROW | {"cluster": "p", "clustr": "q"}))
    assert read_score_rows(tmp_path / "rows.jsonl").rows[0].cluster == "p"


@pytest.mark.parametrize("key", THEIRS)
def test_keys_of_other_datasets_are_taken(tmp_path, key):
    assert evalsets.check(lay(tmp_path, **{key: "any"})) == ()
    (tmp_path / "rows.jsonl").write_text(json.dumps(ROW | {key: "any"}))
    assert len(read_score_rows(tmp_path / "rows.jsonl").rows) == 1
    (tmp_path / "outputs.jsonl").write_text(json.dumps({"id": "a", "text": "4", key: "4"} | {"text": "4"}))
    assert score_files(tmp_path / "own.jsonl", tmp_path / "outputs.jsonl", registry.find("exact_match")).rows


def test_the_check_lists_once_what_nothing_reads(tmp_path):
    path = lay(tmp_path)
    more = {"task_id": 7, "canonical_solution": "", "metadata": {}, "x-note": "", "score": 1}
    bodies = [CASE | {"id": f"c{n}", "prompt": f"{n} + 2 ="} | (more if n else {}) for n in range(9)]
    path.with_suffix(".jsonl").write_text("".join(json.dumps(body) + "\n" for body in bodies))
    done = CliRunner().invoke(app, ["evalset", "check", str(path)])
    assert done.exit_code == 0
    (note,) = [line for line in done.stderr.splitlines() if "nothing reads" in line]
    assert note == "note: keys that nothing reads: 'canonical_solution' (8 cases), 'task_id' (8 cases)"
    assert "nothing reads" not in CliRunner().invoke(app, ["evalset", "check", "tool_calls"]).stderr


def test_score_reads_cases_and_outputs_as_strictly(tmp_path):
    numeric, cases, outputs = registry.find("numeric"), tmp_path / "cases.jsonl", tmp_path / "outputs.jsonl"
    cases.write_text(json.dumps({"id": "a", "answer": "4", "clustr": "p"}))
    outputs.write_text(json.dumps({"id": "a", "text": "4", "finish_reson": "length"}))
    with pytest.raises(UsageError) as error:
        score_files(cases, outputs, numeric)
    assert "cases.jsonl:1: `clustr` is read by nothing; did you mean `cluster`" in str(error.value)
    assert "outputs.jsonl:1: `finish_reson` is read by nothing; did you mean `finish_reason`" in str(error.value)


@pytest.mark.parametrize("key", ["cluster", "max_new_tokens", "expected_calls"])
def test_no_edit_but_two_hides_a_key(key):
    """Property: every deletion, exchange and doubling of one or two letters of a key is found."""
    once = {key[:i] + key[i + 1 :] for i in range(len(key))} | {key[:i] + key[i] + key[i:] for i in range(len(key))}
    once |= {key[:i] + key[i + 1] + key[i] + key[i + 2 :] for i in range(len(key) - 1)} - {key}
    twice = {one[:i] + one[i + 1 :] for one in once for i in range(len(one))} - {key}
    for slip in once | twice:
        assert [*misspelt(frozenset({slip}), frozenset({key}), frozenset({key}))], slip


def test_packages_that_name_none_are_told_what_to_write(write):
    (said,) = [fault.message for fault in evalsets.check(write([], "metrics: [code.pass]\npackages: []"))][:1]
    assert said == "`packages` is empty: write for example `packages: [numpy]`, or leave the key out"
