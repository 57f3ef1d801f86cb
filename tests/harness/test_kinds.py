"""Every kind of task: lm-eval's own evaluation and ours ask the same, and score the same answers the same."""

from __future__ import annotations

import contextlib
import json

import pytest
import typer
from typer.testing import CliRunner

from qualgate.cli.intake import intake
from qualgate.config import load_gate_file
from qualgate.errors import UsageError
from qualgate.pipeline.named_sets import set_refs
from qualgate.pipeline.plan import make_plan
from qualgate.records import LmEvalTask

pytest.importorskip("lm_eval")

from qualgate.harness import tasks
from tests.harness.lm_eval_tasks import FILTER, KINDS, Drawn, write_kinds

GATE = """\
version: 1
baseline: {{model: reference}}
variants: {{int8: {{quantize: {{method: int8, group_size: 32}}}}}}
evalsets:
{sets}
gate: {{rules: [{{metric: lm_eval.acc, evalset: {rule}, max_drop: 0.1}}]}}
"""


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    return write_kinds(tmp_path_factory.mktemp("kinds"))


@pytest.fixture(scope="module")
def theirs(kinds):
    """lm-eval's evaluation of the drawn answers: all tasks but the one whose own code fails on some."""
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=str(kinds), include_defaults=False)
    with contextlib.chdir(kinds):
        return simple_evaluate(
            model=Drawn(), tasks=[name for name in KINDS if name != "fragile"], task_manager=manager, bootstrap_iters=0
        )


def asked(kinds, name: str, **more) -> LmEvalTask:
    return LmEvalTask(task=name, include_path=str(kinds), filter=FILTER.get(name, ""), **more)


@pytest.mark.parametrize("name", [name for name in KINDS if name != "fragile"])
def test_requests_and_scores_are_lm_evals(kinds, theirs, name, capsys):
    ref = asked(kinds, name)
    item, loaded = tasks.load(ref), tasks._loaded(ref)
    cases = {case.id: case for case in item.cases}
    sums: dict[str, list[float]] = {}
    for row in theirs["samples"][name]:
        case = cases[str(row["doc_id"])]
        assert [list(one.args) for one in loaded.requests[case.id]] == [list(one) for one in row["arguments"]]
        answers = [one[0] for one in row["resps"]]
        kind = loaded.task.OUTPUT_TYPE
        text = answers[0] if kind == "generate_until" else json.dumps(
            [[one, False] if kind == "loglikelihood_rolling" else list(one) for one in answers]
        )  # fmt: skip
        said = {score.metric: score for score in tasks.score(case, ref, text)}
        for metric in row["metrics"]:
            gated = f"lm_eval.{metric}" if row["filter"] == loaded.filter else ""
            score = said[gated if gated in item.metrics else f"lm_eval.{metric},{row['filter']}"]
            assert score.error_type == ""
            if isinstance(row[metric], bool | int | float):
                assert score.value == pytest.approx(row[metric], abs=1e-12)
                sums.setdefault(f"{metric},{row['filter']}", []).append(score.value)
    assert {case for row in theirs["samples"][name] for case in [str(row["doc_id"])]} == cases.keys()
    whole = theirs["results"][name]
    for key, values in sums.items():
        if key.partition(",")[0] != "perplexity":  # else lm-eval's is no mean
            assert sum(values) / len(values) == pytest.approx(whole[key], abs=1e-9)
    assert name == "text" or sums
    assert capsys.readouterr().out == "", "a task's own prints would spoil --json"


def test_a_pair_for_a_score_of_all_documents_is_gated_only_when_it_is_named(kinds):
    gated = tasks.load(asked(kinds, "choices")).metrics
    assert gated == ("lm_eval.acc", "lm_eval.acc_norm", "lm_eval.acc_bytes", "lm_eval.exact_match")
    assert tasks.load(asked(kinds, "own_code", metric="wordy")).metrics == ("lm_eval.acc", "lm_eval.score")


def test_a_task_whose_code_fails_on_an_answer_gives_no_value_there_and_draws_the_same_each_time(kinds):
    ref = asked(kinds, "fragile")
    cases = tasks.load(ref).cases

    def values() -> list[float | None]:
        return [tasks.score(case, ref, case.body["answer"])[0].value for case in cases]

    assert values() == values()
    assert set(values()) == {0.0, 1.0}, "another draw for each document"
    [failed] = tasks.score(cases[0], ref, "")
    assert (failed.value, failed.error_type) == (None, "metric_failed")
    assert "IndexError" in failed.reason


def test_a_group_is_its_tasks_as_it_has_them(kinds, tmp_path):
    refs = tasks.members(asked(kinds, "family"))
    assert [ref.task for ref in refs] == ["several_contexts", "punctuation_and_delimiters", "choices", "text"]
    assert {ref.group for ref in refs} == {"family"}
    alone = tasks.load(asked(kinds, "punctuation_and_delimiters"))
    grouped = tasks.load(refs[1])
    assert alone.cases[0].body["prompt"].count("---") == 2
    assert grouped.cases[0].body["prompt"].count("---") == 1, "the group's own number of examples"
    assert tasks.load(refs[0]).cases == tasks.load(asked(kinds, "several_contexts")).cases
    assert tasks.members(asked(kinds, "choices")) == (asked(kinds, "choices"),)
    path = tmp_path / "gate.yaml"
    group, task = (f"  - {{lm_eval: {name}, include_path: {kinds}}}" for name in ("pair", "choices"))
    path.write_text(GATE.format(sets=group, rule="choices"))
    assert [ref.task for ref in set_refs(load_gate_file(path)) if isinstance(ref, LmEvalTask)] == ["choices", "text"]
    path.write_text(GATE.format(sets=f"{group}\n{task}", rule="choices"))
    with pytest.raises(UsageError, match="'choices' is named twice"):
        set_refs(load_gate_file(path))


def test_a_rule_on_what_no_group_holds_is_refused_by_the_plan(kinds, tmp_path):
    path = tmp_path / "gate.yaml"
    path.write_text(GATE.format(sets=f"  - {{lm_eval: pair, include_path: {kinds}}}", rule="pear"))
    with pytest.raises(UsageError, match=r"'pear', which this gate file does not run\. It runs: choices, text"):
        make_plan(load_gate_file(path))


def test_names_that_no_column_holds_stay_apart():
    names = {tasks._other("exact_match", f"{'a long filter ' * 5}{end}") for end in "12"}
    assert len(names) == 2
    assert max(map(len, names)) <= 64


class Worse(Drawn):
    """Each text a hundredth less likely."""

    def loglikelihood_rolling(self, requests, disable_tqdm=False) -> list[float]:
        return [1.01 * one for one in super().loglikelihood_rolling(requests)]


@pytest.mark.proof
def test_the_perplexities_of_its_logs_are_those_that_lm_eval_tells(tmp_path):
    """lm-eval's own files, judged as a user would: what a rule compares is what lm-eval prints of both."""
    from lm_eval import simple_evaluate
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.tasks import TaskManager

    folder, told, logs = write_kinds(tmp_path / "kinds", n=60), [], []
    manager = TaskManager(include_path=str(folder), include_defaults=False)
    for model in (Drawn(), Worse()):
        tracker = EvaluationTracker(output_path=str(tmp_path / type(model).__name__))
        with contextlib.chdir(folder):
            found = simple_evaluate(model=model, tasks=["text"], task_manager=manager, bootstrap_iters=0)
        tracker.date_id = "2026-11-21T10-20-30.123456"
        tracker.general_config_tracker.model_name_sanitized = "drawn"
        tracker.save_results_samples("text", found["samples"]["text"])
        told.append(found["results"]["text"])
        logs += (tmp_path / type(model).__name__).rglob("samples_text_*.jsonl")
    app = typer.Typer()
    app.command()(intake)
    done = CliRunner().invoke(app, [*map(str, logs), "--max-ratio", "1.02", "--json"])
    (verdict,) = json.loads(done.stdout)["verdicts"]
    for one in verdict["comparisons"]:
        key = f"{one['metric'].removeprefix('lm_eval.')},none"
        assert [one["baseline"], one["variant"]] == pytest.approx([side[key] for side in told], rel=1e-9)
    assert [one["metric"] for one in verdict["comparisons"]] == [
        "lm_eval.word_perplexity", "lm_eval.byte_perplexity", "lm_eval.bits_per_byte"
    ]  # fmt: skip
    assert verdict["comparisons"][2]["status"] == "undecided", "1.01, which 60 texts do not tell from 1.02"
