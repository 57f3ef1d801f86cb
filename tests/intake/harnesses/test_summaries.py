"""Rows of golden results equal the tool's own summary in every count, and tables print how they were read."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from qualgate.errors import UsageError
from qualgate.intake.harnesses.log import Choice, Log
from qualgate.intake.harnesses.recognise import read_log
from tests.intake.harnesses.formats import GOLDEN
from tests.intake.test_lm_eval import judged


def numbers(log: Log, metric: str) -> tuple[int, int, int, float]:
    values = [row.value or 0 for row in log.scores.rows if row.metric == f"harness.{metric}"]
    return log.counts.answers, log.counts.errors, log.counts.empty, sum(values)


@pytest.mark.parametrize(
    ("name", "errors", "empty"), [("base", 0, 0), ("worse", 0, 0), ("empty", 0, 10), ("errors", 7, 0)]
)
def test_lighteval(name, errors, empty):
    folder = GOLDEN / "lighteval" / name
    results = json.loads(next(folder.glob("results_*.json")).read_text())["results"]["sums|0"]
    log = read_log(folder)
    assert (log.format, log.task, log.faults) == ("lighteval", "sums", ())
    assert numbers(log, "em") == (20, errors, empty, pytest.approx(20 * results["em"]))


@pytest.mark.parametrize("name", ["base", "worse", "empty", "errors"])
def test_nemo_evaluator(name):
    folder = GOLDEN / "nemo-evaluator" / name
    bundle = json.loads(next(folder.glob("eval-*.json")).read_text())
    scores = bundle["benchmark"]["scores"]
    log = read_log(folder)
    empty = 12 if name == "empty" else 0
    assert (log.format, log.faults) == ("nemo-evaluator", ())
    assert numbers(log, "reward") == (
        bundle["n_results"], scores["runtime"]["model_errors"], empty, pytest.approx(24 * scores["summary"]["mean"])
    )  # fmt: skip


@pytest.mark.parametrize("category", ["simple_python", "irrelevance"])
@pytest.mark.parametrize(
    ("name", "errors", "empty"), [("base", 0, 0), ("worse", 0, 0), ("errors", 6, 0), ("empty", 0, 12)]
)
def test_bfcl(name, errors, empty, category):
    folder = GOLDEN / "bfcl" / name
    score = next(folder.rglob(f"*{category}_score.json"))
    summary = json.loads(score.read_text().splitlines()[0])
    log = read_log(folder, choice=Choice(task=category))
    assert (log.format, log.task, log.faults) == ("bfcl", category, ())
    right = summary["correct_count"]
    if category == "irrelevance":  # BFCL counts an error as right there, since no call was made
        right -= errors
    assert numbers(log, "accuracy") == (summary["total_count"], errors, empty, right)
    with pytest.raises(UsageError, match=r"several tasks \(irrelevance, simple_python\)"):
        read_log(folder)


def test_helm():
    folder = GOLDEN / "helm" / "base"
    log = read_log(folder)
    stated = {
        stat["name"]["name"]: stat.get("mean")
        for stat in json.loads((folder / "stats.json").read_text())
        if stat["name"]["split"] == "test" and "perturbation" not in stat["name"]
    }
    assert (log.format, log.task, log.faults) == ("helm", "simple_mcqa", ())
    assert stated["num_instances"] == log.counts.answers == 2
    for metric in {row.metric.removeprefix("harness.") for row in log.scores.rows}:
        assert numbers(log, metric)[3] == 2 * stated[metric]


def table(folder: Path, header: str, *rows: str, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def test_a_table_says_how_it_was_read_and_what_to_write_where_two_columns_claim_a_meaning(tmp_path):
    path = table(tmp_path, "id;prompt;output;correct;gold", "1;a;b;yes;b", "2;c;;no;d")
    log = read_log(path)
    assert log.notes[0].endswith("read as id = id, question = prompt, answer = output, score = correct, target = gold")
    assert (log.counts.answers, log.counts.empty) == (2, 1)
    two = table(tmp_path, "id,prompt,score,passed", "1,a,0.5,yes")
    code, text = judged(two, table(tmp_path, "id,prompt,score,passed", "1,a,0.6,yes", name="u.csv"))
    assert (code, "'score', 'passed' may each be the score; say which: --columns score=score" in text) == (64, True)
    log = read_log(two, choice=Choice(columns={"score": "passed", "id": "prompt"}))
    assert (log.scores.rows[0].id, log.scores.rows[0].value) == ("a", 1)
    for columns, said in (({"score": "pased"}, "no column 'pased'; did you mean 'passed'"), ({"scor": "x"}, "no such")):
        with pytest.raises(UsageError, match=said):
            read_log(two, choice=Choice(columns=columns))


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (["1,a,0.5", "2,b"], r"t\.csv:3: has 2 cells"),
        (["1,a,often"], r"t\.csv:2: the score 'score' is 'often'"),
        ([",a,1"], r"t\.csv:2: its id must be"),
        (['1,"a,1'], r"not readable as CSV"),
    ],
)
def test_a_damaged_table_is_refused_with_its_line(tmp_path, rows, said):
    with pytest.raises(UsageError, match=said):
        read_log(table(tmp_path, "id,prompt,score", *rows))


def test_a_parquet_file_that_is_cut_or_something_else_is_refused(tmp_path):
    raw = next((GOLDEN / "lighteval" / "base").glob("*.parquet")).read_bytes()
    for content in (raw[:-9], raw[:4000], b"PAR1" + b"\0" * 100 + b"PAR1"):
        path = tmp_path / "details_sums|0_2026-12-01T10-13-14.630285.parquet"
        path.write_bytes(content)
        with pytest.raises(UsageError, match=r"not readable as Parquet"):
            read_log(path)


def test_a_parquet_file_that_unpacks_to_too_much_is_refused(tmp_path):
    path = tmp_path / "details_sums|0_2026-12-01T10-13-14.630285.parquet"
    texts = pa.array(["a" * (100 * 2**20)] + ["b"] * 9)
    response = pa.StructArray.from_arrays([texts], ["input"])
    pq.write_table(pa.table({"doc": [{"id": "1"}] * 10, "metric": [{"em": 1}] * 10, "model_response": response}), path)
    assert path.stat().st_size < 8 * 2**20
    with pytest.raises(UsageError, match=r"a row unpacks to more than 32 MiB"):
        read_log(path)
