"""Results that the real tools wrote: every count is the tool's own."""

from __future__ import annotations

import gzip
import json
import shutil
from collections import Counter

import pytest

from qualgate.errors import QualgateError
from qualgate.intake.harnesses.log import Choice, Counts, Log
from qualgate.intake.harnesses.recognise import read_log
from tests.intake.harnesses.formats import GOLDEN, read
from tests.intake.test_lm_eval import judged


def mean(log: Log, metric: str) -> float:
    values = [row.value for row in log.scores.rows if row.metric == metric and row.value is not None]
    return sum(values) / len(values)


@pytest.mark.parametrize(
    ("name", "counts", "means"),
    [  # what inspect printed: samples, completed, accuracy of match, means of style
        ("inspect/base.eval", Counts(answers=12, alike=2, texts=12), {"match": 1, "style.polite": 0.5}),
        ("inspect/worse.eval", Counts(answers=12, alike=4, texts=12), {"match": 2 / 3}),
        # two samples in two epochs raised an error, one had a thought alone, one was refused by a filter, one was cut
        ("inspect/faulty.eval", Counts(answers=12, errors=4, empty=4, cut=2, alike=6, texts=10), {"match": 0.25}),
        ("inspect/limited.eval", Counts(answers=12, cut=2, alike=2, texts=10), {"match": 10 / 12}),
        ("promptfoo/base.json", Counts(answers=4, alike=1, texts=4), {"pass": 1, "right": 1, "javascript": 1}),
        ("promptfoo/base.yaml", Counts(answers=4, alike=1, texts=4), {"pass": 1, "right": 1, "javascript": 1}),
        ("promptfoo/faulty.json", Counts(answers=5, errors=1, empty=1, cut=1, alike=1, texts=4), {"pass": 0.25}),
        ("openai-evals/base-sums.jsonl", Counts(answers=12, alike=1, texts=12), {"match": 1}),
        ("openai-evals/worse-sums.jsonl", Counts(answers=12, alike=4, texts=12), {"match": 2 / 3}),
        # oaieval's accuracy of 9 in 12 counts an endpoint's error, which has no score here, as wrong
        ("openai-evals/faulty-sums.jsonl", Counts(answers=12, errors=1, empty=1, unfiltered=1, alike=1, texts=12),
         {"match": 9 / 11}),
        ("every-eval-ever/base_samples.jsonl", Counts(answers=12, alike=2, texts=12), {"score": 1, "is_correct": 1}),
        ("every-eval-ever/worse.json", Counts(answers=12, alike=4, texts=12), {"score": 2 / 3}),
        ("mlflow/base.json", Counts(answers=12, alike=1, texts=12), {"right": 1, "brief": 1}),
        ("mlflow/worse.json", Counts(answers=12, alike=4, texts=12), {"right": 2 / 3, "brief": 1}),
        ("mlflow/faulty.json", Counts(answers=12, errors=1, empty=1, alike=1, texts=12), {"right": 10 / 11}),
    ],
)  # fmt: skip
def test_rows_equal_the_tools_own_summary(name, counts, means):
    log = read_log(GOLDEN / name)
    assert (log.format, log.counts, log.faults) == (name.partition("/")[0], counts, ())
    for metric, value in means.items():
        assert mean(log, f"harness.{metric}") == pytest.approx(value)


def test_an_epoch_is_a_repeat():
    assert Counter(row.repeat for row in read_log(GOLDEN / "inspect" / "base.eval").scores.rows) == {1: 18, 2: 18}
    assert {row.repeat for row in read_log(GOLDEN / "every-eval-ever" / "base.json").scores.rows} == {1, 2}


def test_one_file_of_two_providers_is_judged_by_their_names(tmp_path):
    both = GOLDEN / "promptfoo" / "both.json"
    code, text = judged(both, both, "--baseline-model", "base", "--variant-model", "worse", "--json")
    comparison = json.loads(text)["verdicts"][0]["comparisons"][0]
    assert (code, comparison["n"], comparison["lost"]) == (12, 2, 1)
    for models, said in (
        ((), "is given for two arms"),
        (("--baseline-model", "base", "--variant-model", "base"), "is given for two arms"),
        (
            ("--baseline-model", "base", "--variant-model", "best"),
            "no answer of the model 'best'; it has 'base', 'worse'",
        ),
    ):
        code, text = judged(both, both, *models)
        assert (code, said in text) == (64, True), text
    copy = shutil.copy(both, tmp_path / "copy.json")
    assert "answers of several models ('base', 'worse')" in judged(both, copy)[1]


def test_results_of_whole_sets_alone_are_refused(tmp_path):
    shutil.copy(GOLDEN / "every-eval-ever" / "base.json", tmp_path)
    with pytest.raises(QualgateError, match=r"base\.json: has scores of whole sets alone; .* base_samples\.jsonl"):
        read_log(tmp_path / "base.json")
    table = read(GOLDEN / "mlflow" / "base.json")
    (tmp_path / "table.json").write_text(
        json.dumps(table | {"columns": [c.replace("/", ":") for c in table["columns"]]})
    )
    with pytest.raises(QualgateError, match="no column NAME/score"):
        read_log(tmp_path / "table.json", "mlflow")


def test_a_metric_of_which_less_is_better_is_named_and_not_judged(tmp_path):
    for name in ("base.json", "base_samples.jsonl"):
        shutil.copy(GOLDEN / "every-eval-ever" / name, tmp_path)
    summary = read(tmp_path / "base.json")
    del summary["evaluation_results"][1:]
    summary["evaluation_results"][0]["metric_config"]["lower_is_better"] = True
    (tmp_path / "base.json").write_text(json.dumps(summary))
    log = read_log(tmp_path / "base.json", choice=Choice(metric="is_correct"))
    assert log.notes[-1].endswith("not judged, since less is better: score")
    assert {row.metric for row in log.scores.rows} == {"harness.is_correct"}


def test_a_packed_file_is_named_as_one(tmp_path):
    path = tmp_path / "samples.jsonl.gz"
    path.write_bytes(gzip.compress(b"{}"))
    with pytest.raises(QualgateError, match="packed by gzip; unpack it first"):
        read_log(path)
