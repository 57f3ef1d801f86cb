"""Two sample logs of lm-eval's → one verdict."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from qualgate.cli.intake import intake
from qualgate.errors import QualgateError

app = typer.Typer()
app.command()(intake)


def sample(doc: int, right: bool, filter: str = "none", **changed):
    """One line as lm-eval 0.4.13 writes it."""
    return {
        "doc_id": doc,
        "doc": {"question": f"q{doc}", "answer": "1"},
        "target": "1",
        "arguments": {"gen_args_0": {"arg_0": f"q{doc}", "arg_1": {"until": ["\n"], "do_sample": False}}},
        "resps": [["1" if right else "2"]],
        "filtered_resps": ["1" if right else "2"],
        "filter": filter,
        "metrics": ["exact_match"],
        "doc_hash": f"d{doc}",
        "prompt_hash": f"p{doc}",
        "target_hash": "t",
        "exact_match": float(right),
    } | changed


def log(
    folder: Path, name: str, right: int, n: int = 200, task: str = "sums", results: dict | None = None, **changed
) -> Path:
    folder = folder / name
    folder.mkdir()
    path = folder / f"samples_{task}_2026-11-21T10-20-30.123456.jsonl"
    path.write_text("".join(json.dumps(sample(i, i < right, **changed)) + "\n" for i in range(n)))
    (folder / "results_2026-11-21T10-20-30.123456.json").write_text(json.dumps({"model_name": name, **(results or {})}))
    return path


def judged(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [*map(str, arguments)])
    if isinstance(result.exception, QualgateError):
        return int(result.exception.exit), str(result.exception)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def test_two_logs_give_a_verdict_with_its_numbers(tmp_path):
    base = log(tmp_path, "base", 180)
    assert judged(base, log(tmp_path, "same", 180))[0] == 0
    code, text = judged(base, log(tmp_path, "worse", 120), "--json")
    report = json.loads(text)
    assert code == report["verdicts"][0]["exit"] == 10
    comparison = report["verdicts"][0]["comparisons"][0]
    assert (comparison["metric"], comparison["n"], comparison["lost"]) == ("lm_eval.exact_match", 200, 60)
    assert report["evalsets"][0]["name"] == "sums"
    assert judged(base, log(tmp_path, "a bit worse", 177), "--max-drop", 0.001)[0] == 12


def test_a_gate_files_rules_decide(tmp_path):
    gate = tmp_path / "gate.yaml"
    gate.write_text(
        "version: 1\nbaseline: {model: ./m}\nvariants: {v: {model: ./v}}\nevalsets: [arithmetic]\n"
        "gate: {review: always, rules: [{metric: lm_eval.exact_match, max_drop: 0.15}]}\n"
    )
    paths = log(tmp_path, "base", 180), log(tmp_path, "worse", 171)
    assert judged(*paths, gate)[0] == 11
    gate.write_text(gate.read_text().replace("_match, ", "_match, evalset: arithmetic, "))
    assert judged(*paths, gate) == (
        64,
        f"{gate}: Rule lm_eval.exact_match [arithmetic] max_drop 0.15 (line 5) is about the evalset 'arithmetic', "
        "which is not here; there is 'sums'",
    )


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"doc_hash": "another"}, 12),
        ({"prompt_hash": "another"}, 12),
        ({"target_hash": "another"}, 12),
        ({"filter": "strict-match"}, 12),
        ({"arguments": {"gen_args_0": {"arg_0": "q", "arg_1": {"until": [], "do_sample": True}}}}, 12),
        ({"doc_hash": None}, 12),
        ({"exact_match": float("nan")}, 64),
        ({"exact_match": 3}, 64),
        ({"exact_match": None}, 12),
        ({"exact_match": [0, 1]}, 64),
        ({"exact_match": "right"}, 64),
        ({"metrics": ["bypass"], "bypass": 999}, 64),
        ({"metrics": 3}, 64),
    ],
    ids=str,
)
def test_what_is_not_the_same_question_or_no_score_never_approves(tmp_path, changed, code):
    assert judged(log(tmp_path, "base", 180), log(tmp_path, "variant", 180, **changed))[0] == code


def test_missing_doubled_cut_and_empty_logs_never_approve(tmp_path):
    base, variant = log(tmp_path, "base", 180), log(tmp_path, "variant", 180)
    lines = variant.read_text().splitlines(keepends=True)
    for text, code in (
        ("".join(lines[:-1]), 13),
        ("".join([*lines, lines[0]]), 14),
        ("".join(lines)[:-40], 64),
        ("", 64),
        ("{}\n", 64),
    ):
        variant.write_text(text)
        assert judged(base, variant)[0] == code
    assert judged(base, tmp_path / "nowhere.jsonl")[0] == 64
    assert judged(base, log(tmp_path, "other", 180, task="other"))[0] == 64
    nothing = [log(tmp_path, name, 0) for name in ("all wrong", "all wrong too")]
    assert judged(*nothing)[0] == 12, "an endpoint that answered nothing but errors"


def test_several_filters_must_be_chosen_among_and_one_document_is_counted_once(tmp_path):
    paths = []
    for name, strict in (("base", 150), ("variant", 100)):
        path = log(tmp_path, name, 180, filter="flexible-extract")
        with path.open("a") as file:
            file.writelines(json.dumps(sample(i, i < strict, "strict-match")) + "\n" for i in range(200))
        paths.append(path)
    assert judged(*paths)[0] == 64
    code, text = judged(*paths, "--filter", "lost-match")
    assert (code, text.partition(": ")[2]) == (
        64, "no sample of the filter 'lost-match'; its filters: 'flexible-extract', 'strict-match'"
    )  # fmt: skip
    assert judged(*paths, "--filter", "flexible-extract")[0] == 0
    code, text = judged(*paths, "--filter", "strict-match", "--json")
    assert (code, json.loads(text)["verdicts"][0]["comparisons"][0]["n"]) == (10, 200)


OWN = {"metrics": ["prompt_level_strict_acc"], "prompt_level_strict_acc": True}
# As lm-eval logs `acc` with `f1` and `brier_score` of a multiple choice: pairs for scores of the whole set.
PAIRS = {"metrics": ["acc", "f1", "brier_score"], "acc": 1.0, "f1": [0, 1], "brier_score": [0, [0.2, 0.8]]}


@pytest.mark.parametrize(
    ("changed", "metric", "code", "said"),
    [
        (OWN, "", 64, ""),
        (OWN, "prompt_level_strict_acc", 0, ""),
        (PAIRS, "", 0, "lm_eval.acc"),
        (PAIRS, "f1", 64, ""),
        ({}, "bleu", 64, "--metric bleu: no sample has this metric; known: exact_match"),
        ({}, "exact_macth", 64, "--metric exact_macth: no sample has this metric; did you mean 'exact_match'?"),
    ],
)
def test_a_metric_of_the_tasks_own_is_judged_when_it_is_named(tmp_path, changed, metric, code, said):
    paths = [log(tmp_path, name, 180, **changed) for name in ("base", "variant")]
    found, text = judged(*paths, *(["--metric", metric] if metric else []))
    assert (found, said in text) == (code, True), text


def test_logs_of_lm_eval_before_it_listed_its_metrics_are_read(tmp_path):
    paths = [log(tmp_path, name, right) for name, right in (("base", 180), ("variant", 120))]
    for path in paths:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        path.write_text("".join(json.dumps({k: v for k, v in row.items() if k not in ("metrics", "filter")}) + "\n"
                                for row in rows))  # fmt: skip
    code, text = judged(*paths, "--json")
    assert (code, json.loads(text)["verdicts"][0]["comparisons"][0]["lost"]) == (10, 60)


def test_one_log_given_twice_is_refused(tmp_path):
    base = log(tmp_path, "base", 180)
    (tmp_path / "link.jsonl").symlink_to(base)
    for other in (base, tmp_path / "link.jsonl"):
        code, text = judged(base, other)
        assert code == 64
        assert "given for two arms" in text


def test_what_numpy_says_is_read_as_the_number_it_is(tmp_path):
    """lm-eval writes `np.bool_(True)` and `np.float32(1)` as texts."""
    base = log(tmp_path, "base", 200)
    assert [judged(base, log(tmp_path, value, 0, exact_match=value))[0] for value in ("True", "1.0", "0.5", "False")] \
        == [0, 0, 10, 10]  # fmt: skip


def written(text: str, filtered: str = "[invalid]", value: float = 0.0, target: str = "1") -> dict:
    return {"resps": [[text]], "filtered_resps": [filtered], "exact_match": value, "target": target}


@pytest.mark.parametrize(
    ("changed", "cause"),
    [
        (written(""), "harness"), (written(" \n\u200b"), "harness"), (written("", ""), "harness"),
        (written("**Answer: 1**"), "filter"), (written("So it is 1.\n"), "filter"),
        (written("\\boxed{1}", ""), "filter"),
        (written("Answer: 2"), ""), (written("1 and then\nI know not"), ""), (written("it is 1.5"), ""),
        (written("it is 12", "12"), ""),
    ],
    ids=str,
)  # fmt: skip
def test_empty_and_unfiltered_answers_are_not_taken_for_wrong_ones(tmp_path, changed, cause):
    base = log(tmp_path, "base", 180)
    code, text = judged(base, log(tmp_path, "variant", 0, **changed), "--json")
    (verdict,) = json.loads(text)["verdicts"]
    assert (code, verdict["cause"]) == (10, cause)
    line = "unfinished answers of sums: baseline 0 of 200, variant 200 of 200"
    assert any(line in reason for reason in verdict["reasons"]) == bool(cause)
    other = log(tmp_path, "other", 0, **changed)
    if cause:
        assert judged(log(tmp_path, "base too", 0, **changed), other)[0] == 12, "of both sides they decide nothing"


@pytest.mark.parametrize(
    ("target", "text", "cause"),
    [("A", "The answer is A", "filter"), ("A", "(A)", "filter"), ("A", "A man came", ""),
     ("A", "It is clear. A man came", ""),
     ("A", "**A**", "filter"), ("A", "Answer: (A) four", "filter"), ("B", "The answer is A", ""),
     ("1", "so 3 - 1 = 2", ""), ("18", "That is $18.00.", "filter"), ("-3", "x = -3", "filter"), ("3", "x = -3", ""),
     ("18 - 3 = 15\n#### 1,234", "which makes 1234", "filter"), ("Paris", "It is Paris", "filter"), ("", "x", ""),
     ("A", "So the answer is not (A)", ""), ("Paris", "It is not Paris", ""), ("Paris", "It isn’t Paris.", ""),
     ("127", "12,7", ""), ("7", "12,7", ""), ("123", "0,123", ""), ("18", "It cannot be 18", ""),
     ("1,234,567", "so 1,234,567.", "filter"), ("no", "The answer is no.", "filter"), ("no", "It is not a no", "")],
)  # fmt: skip
def test_the_reference_stands_where_an_answer_commits_itself(tmp_path, target, text, cause):
    base = log(tmp_path, "base", 180, target=target)
    _, report = judged(base, log(tmp_path, "v", 0, **written(text, target=target)), "--json")
    assert json.loads(report)["verdicts"][0]["cause"] == cause


def test_an_error_in_place_of_an_answer_is_an_error(tmp_path):
    failed = written("Error during inference: Connection error.", "")
    code, text = judged(log(tmp_path, "base", 180), log(tmp_path, "variant", 0, **failed))
    assert (code, "is an endpoint's error and no answer" in text) == (13, True)


def test_a_copy_of_the_baselines_log_is_refused_unless_two_models_are_named(tmp_path):
    base, copy = log(tmp_path, "base", 180), log(tmp_path, "copy", 180)
    assert judged(base, copy)[0] == 0, "two models may answer alike"
    for results in tmp_path.rglob("results_*.json"):
        results.unlink()
    code, text = judged(base, copy)
    assert (code, "holds the answers of" in text) == (64, True)


def test_runs_that_were_set_up_otherwise_decide_nothing_and_the_setting_is_named(tmp_path):
    few = {"n-shot": {"sums": 5}, "versions": {"sums": 1}, "n-samples": {"sums": {"effective": 200}}}
    base = log(tmp_path, "base", 180, results=few)
    for name, changed, said in (
        ("shots", {"n-shot": {"sums": 0}}, "few-shots is 5 for the baseline and 0 for the variant"),
        ("version", {"versions": {"sums": 2}}, "the task's version is 1 for the baseline and 2 for the variant"),
        ("template", {"chat_template_sha": "abc"}, "the chat template is none for the baseline and abc"),
        ("lost", {"n-samples": {"sums": {"effective": 300}}}, "counted 300 documents, and the log holds 200"),
    ):
        code, text = judged(base, log(tmp_path, name, 180, results=few | changed), "--json")
        assert code == 12, name
        assert any(said in reason for reason in json.loads(text)["verdicts"][0]["reasons"]), text


def test_a_folder_of_one_run_is_read_and_a_task_chosen_among_several(tmp_path):
    base, variant = log(tmp_path, "base", 180).parent, log(tmp_path, "variant", 120).parent
    assert judged(base, variant)[0] == 10
    for folder in (base, variant):
        (next(folder.glob("samples_*"))).with_name("samples_more_2026-11-21T10-20-30.123456.jsonl").write_text(
            "".join(json.dumps(sample(i, i % 2 == 0)) + "\n" for i in range(200))
        )
    code, text = judged(base, variant)
    assert (code, "several tasks (more, sums); choose one: --task NAME" in text) == (64, True)
    assert judged(base, variant, "--task", "sums")[0] == 10
    assert judged(base, variant, "--task", "some")[0] == 64
