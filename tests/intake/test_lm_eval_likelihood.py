"""Perplexities of two sample logs of lm-eval's: the same texts, the variant's over the baseline's."""

from __future__ import annotations

import json
from math import exp, inf, log, nan
from pathlib import Path

import numpy as np
import pytest

from tests.intake.test_lm_eval import judged, sample
from tests.intake.test_lm_eval import log as log_of_answers

ROLLING = ("word_perplexity", "byte_perplexity", "bits_per_byte")


def text(doc: int, nats: float, words: int = 100, **changed) -> dict:
    """One line as lm-eval 0.4.13 writes it of a task with `output_type: loglikelihood_rolling`."""
    written = {name: [-nats, words if name == "word_perplexity" else 5 * words] for name in ROLLING}
    return {
        "doc_id": doc,
        "doc": {"text": f"text {doc}"},
        "target": f"text {doc}",
        "arguments": {"gen_args_0": {"arg_0": f"text {doc}"}},
        "resps": [[str(-nats)]],
        "filtered_resps": [str(-nats)],
        "filter": "none",
        "metrics": list(ROLLING),
        "doc_hash": f"d{doc}",
        "prompt_hash": f"p{doc}",
        "target_hash": f"p{doc}",
    } | written | changed  # fmt: skip


def texts(times: float = 1.0, n: int = 120) -> list[dict]:
    """Texts of unequal length, whose perplexity a word is `times` that of `texts()`, each with an error of its own."""
    generator = np.random.default_rng(5)
    words, own = generator.integers(50, 400, n), generator.normal(0, 0.002, n)
    moved = 0.0 if times == 1.0 else log(times) + own - (own * words).sum() / words.sum()
    nats = words * (3.0 + moved)
    return [text(i, float(nats[i]), int(words[i])) for i in range(n)]


def log_of(folder: Path, name: str, rows: list[dict], task: str = "wikitext") -> Path:
    (folder / name).mkdir()
    path = folder / name / f"samples_{task}_2026-11-21T10-20-30.123456.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / name / "results_2026-11-21T10-20-30.123456.json").write_text(json.dumps({"model_name": name}))
    return path


def gate(folder: Path, rule: str) -> Path:
    path = folder / "gate.yaml"
    path.write_text(
        "version: 1\nbaseline: {model: ./m}\nvariants: {v: {model: ./v}}\nevalsets: [arithmetic]\n"
        f"gate: {{rules: [{rule}]}}\n"
    )
    return path


@pytest.mark.parametrize(
    ("metric", "ratio", "code"),
    [
        ("word_perplexity", 1.001, 0), ("word_perplexity", 1.019, 12), ("word_perplexity", 1.04, 10),
        ("word_perplexity", 0.9, 0), ("byte_perplexity", 1.04, 0), ("byte_perplexity", 1.2, 10),
        ("bits_per_byte", 1.01, 0), ("bits_per_byte", 1.2, 10),
    ],
)  # fmt: skip
def test_a_rule_on_a_perplexity_bounds_the_ratio_that_lm_eval_would_tell(tmp_path, metric, ratio, code):
    base, rule = log_of(tmp_path, "base", texts()), f"{{metric: lm_eval.{metric}, max_ratio: 1.02}}"
    found, report = judged(base, log_of(tmp_path, "v", texts(ratio)), gate(tmp_path, rule), "--json")
    (one,) = json.loads(report)["verdicts"][0]["comparisons"]
    assert (found, one["metric"], one["n"]) == (code, f"lm_eval.{metric}", 120)
    told = {  # by lm-eval's own formulas
        "word_perplexity": (exp(3.0), ratio * exp(3.0)),
        "byte_perplexity": (exp(0.6), exp(0.6 + log(ratio) / 5)),
        "bits_per_byte": (0.6 / log(2), (0.6 + log(ratio) / 5) / log(2)),
    }[metric]
    assert (one["baseline"], one["variant"]) == pytest.approx(told, rel=1e-9)
    assert one["lower"] < told[1] / told[0] < one["upper"]
    assert (one["upper"] < 1.02, one["lower"] > 1.02) == (code == 0, code == 10)


def test_without_a_gate_file_scores_lose_2_points_and_perplexities_2_per_cent(tmp_path):
    base = log_of(tmp_path, "base", texts())
    code, said = judged(base, log_of(tmp_path, "v", texts(1.04)))
    assert (code, "lm_eval.word_perplexity [pooled] is 1.04 times the baseline's (20.89 against 20.09; " in said) == (
        10,
        True,
    )
    assert judged(base, log_of(tmp_path, "w", texts(1.04)), "--max-ratio", 1.1)[0] == 0
    assert (
        judged(base, base.parent, gate(tmp_path, "{metric: lm_eval.perplexity, max_ratio: 1.1}"), "--max-ratio", 2)[0]
        == 64
    )
    of_words = [
        [sample(i, True, metrics=["perplexity", "acc"], perplexity=-likelihood, acc=1) for i in range(400)]
        for likelihood in (0.5, 0.501, 0.6)
    ]
    logs = [log_of(tmp_path, f"lambada {i}", rows, "lambada") for i, rows in enumerate(of_words)]
    code, report = judged(*logs[:2], "--json")
    verdict = json.loads(report)["verdicts"][0]
    assert [(one["metric"], one["status"]) for one in verdict["comparisons"]] == [
        ("lm_eval.perplexity", "proven"), ("lm_eval.acc", "proven")
    ]  # fmt: skip
    assert (code, judged(logs[0], logs[2])[0]) == (0, 10)


def test_few_texts_decide_nothing_and_are_told_how_many_would(tmp_path):
    rule = gate(tmp_path, "{metric: lm_eval.word_perplexity, max_ratio: 1.02}")
    for n, said in (
        (5, "5 independent texts are too few (44 needed at least)"),
        (30, "30 independent texts are too few (44 needed at least)"),
        (44, "over 44 texts: too few to tell (at least 48 independent ones needed)"),
    ):
        logs = [log_of(tmp_path, f"{n} {times}", texts(times)[:n]) for times in (1.0, 1.002)]
        code, told = judged(*logs, rule)
        assert (code, said in told) == (12, True), told
    assert judged(*[log_of(tmp_path, f"60 {times}", texts(times)[:60]) for times in (1.0, 1.002)], rule)[0] == 0


def test_a_few_long_texts_do_not_stand_for_many(tmp_path):
    """Three of 83 hold nine tenths of all words, and are what is better."""

    def of(moved: float) -> list[dict]:
        return [text(i, (20_000 if i < 3 else 80) * (3 + (moved if i < 3 else 0.0)), 20_000 if i < 3 else 80)
                for i in range(83)]  # fmt: skip

    rule = gate(tmp_path, "{metric: lm_eval.word_perplexity, max_ratio: 1.02}")
    assert judged(log_of(tmp_path, "base", of(0.0)), log_of(tmp_path, "v", of(-0.01)), rule)[0] == 12


def likelihood(value: float, words: float = 100) -> dict:
    return {name: [value, words] for name in ROLLING}


@pytest.mark.parametrize(
    ("changed", "code", "said"),
    [
        (likelihood(nan), 64, ":8: the log-likelihood under lm_eval.word_perplexity is nan, but must be finite"),
        (likelihood(-inf), 64, "is -inf, but must be finite and at most 0; check the model for overflow"),
        (likelihood(inf), 64, "is inf, but"), (likelihood(0.5), 64, "is 0.5, but"),
        (likelihood("nan"), 64, "must be a log-likelihood"), (likelihood(True), 64, "must be a log-likelihood"),
        (likelihood(-(10**400)), 64, "is nan, but"), (likelihood(-300.0, nan), 64, "divided by nan"),
        (likelihood(-300.0, -5), 64, "divided by -5"), (likelihood(-1e15), 64, "is -1e+15, but"),
        (likelihood(-300.0, 0.5), 64, "divided by 0.5, which cannot be a number of words or bytes"),
        ({"word_perplexity": -300.0}, 64, "must be a log-likelihood, or one with its words or bytes, found -300.0"),
        ({"word_perplexity": [-300.0]}, 64, "must be a log-likelihood, or one with its words or bytes, found [-300.0]"),
        (likelihood(0.0), 64, ":8: the log-likelihood of document 7 under lm_eval.word_perplexity is 0, but no"),
        (likelihood(-0.0, 2), 64, "of document 7 under"),
        ({"byte_perplexity": [0, 1]}, 64, "of document 7 under lm_eval.byte_perplexity"),
        ({"word_perplexity": None}, 12, "is not known of 1 of 120 texts"),
        ({"word_perplexity": [-300.0, 101]}, 64, "of document 7 is divided by 101, and by "),
        ({"doc_hash": "another", "word_perplexity": [-300.0, 101]}, 12, "1 case is not the same version on both sides"),
        ({"prompt_hash": "another"}, 12, "not the same version on both sides: wikitext/7"),
        ({"doc_id": 500}, 13, "wikitext/7"),
        ({"metrics": ["byte_perplexity", "bits_per_byte"]}, 13, "without a score of lm_eval.word_perplexity"),
    ],
    ids=lambda one: str(one)[:60],
)  # fmt: skip
def test_a_text_without_a_likelihood_of_its_own_never_approves(tmp_path, changed, code, said):
    rows = texts(1.0001)
    rows[7] |= changed
    found, told = judged(log_of(tmp_path, "base", texts()), log_of(tmp_path, "v", rows))
    assert (found, said in told) == (code, True), told


def test_a_continuation_may_be_certain_and_a_whole_log_may_not(tmp_path):
    """A log-likelihood of 0 at a length of 1: lm-eval counts one word in an empty text, and floats round."""

    def of(many: int, likelihood: float) -> list[dict]:
        return [sample(i, True, metrics=["perplexity"], perplexity=0.0 if i < many else likelihood) for i in range(400)]

    logs = [log_of(tmp_path, str(i), of(*one), "lambada") for i, one in enumerate([(3, -0.5), (3, -0.501), (400, 0)])]
    assert judged(*logs[:2])[0] == 0
    for pair in (logs[::2], logs[2::-2]):
        code, said = judged(*pair)
        assert (code, f"{logs[2]}:1: the log-likelihood of document 0 under lm_eval.perplexity is 0" in said) == (
            64,
            True,
        )
    empty = {"word_perplexity": [0.0, 1], "byte_perplexity": [0.0, 0], "bits_per_byte": [0.0, 0]}
    sides = [texts(times) for times in (1.0, 1.0001)]
    for rows in sides:
        rows[7] |= empty
    assert judged(*[log_of(tmp_path, f"empty {i}", rows) for i, rows in enumerate(sides)])[0] == 0


@pytest.mark.parametrize(("ratio", "told"), [(0.85, False), (0.82, True), (0.5, True)])
def test_a_perplexity_that_no_quantization_gives_is_told_first(tmp_path, ratio, told):
    rule = gate(tmp_path, "{metric: lm_eval.word_perplexity, max_ratio: 1.02}")
    code, report = judged(*[log_of(tmp_path, str(one), texts(one)) for one in (1.0, ratio)], rule, "--json")
    first = json.loads(report)["verdicts"][0]["reasons"][0]
    said = f"lm_eval.word_perplexity [pooled] is {ratio} times the baseline's: quantization does not make a perplexity"
    assert (code, first.startswith(said)) == (0, told)


@pytest.mark.parametrize("value", [-1.0, 0.98, 1.0, 1.02, 100.0])
def test_the_limit_of_a_perplexity_is_over_1(tmp_path, value):
    logs = [log_of(tmp_path, str(times), texts(times)) for times in (1.0, 1.0001)]
    code, said = judged(*logs, gate(tmp_path, f"{{metric: lm_eval.word_perplexity, max_ratio: {value}}}"))
    assert code == (0 if value == 1.02 else 64), said
    assert judged(*logs, "--max-ratio", value)[0] == {1.02: 0, 100.0: 0}.get(value, 12 if value > 0 else 64)


@pytest.mark.parametrize("metrics", [{"metrics": []}, {"metrics": ["bypass"], "bypass": 999}], ids=str)
def test_a_log_of_predict_only_is_named_as_one(tmp_path, metrics):
    sides = [log_of_answers(tmp_path, "base", 180), log_of_answers(tmp_path, "v", 180, **metrics)]
    for logs in (sides, sides[::-1]):
        code, said = judged(*logs)
        assert code == 64
        assert said.startswith(f"{sides[1]}: answers without a score. lm-eval logs them so under --predict_only")


@pytest.mark.parametrize("ids", [range(100, 200), [*range(100, 130), *range(130, 200)]])
def test_epochs_under_other_ids_are_named_and_count_once(tmp_path, ids):
    """Their documents' hashes differ, for an id stands in them; what was asked does not."""

    def twice(right: int) -> list[dict]:
        once = [sample(i, i < right) for i in range(100)]
        return once + [one | {"doc_id": other, "doc_hash": f"e{other}"} for one, other in zip(once, ids, strict=True)]

    logs = [log_of(tmp_path, str(right), twice(right), "sums") for right in (90, 88)]
    code, report = judged(*logs, "--json")
    verdict = json.loads(report)["verdicts"][0]
    assert (code, verdict["comparisons"][0]["n"], verdict["comparisons"][0]["clusters"]) == (12, 200, 100)
    said = "sums: 200 documents under several ids ask 100 questions, word for word the same (doc_id 0, 100; 1, 101; 2,"
    assert any(reason.startswith(said) for reason in verdict["reasons"])


def test_other_choices_or_other_settings_are_told_apart(tmp_path):
    def asked(second: object, doc: int) -> dict:
        return sample(doc, True, arguments={"gen_args_0": {"arg_0": "q", "arg_1": second}})

    for second, clusters in ((lambda i: f" choice {i}", None), (lambda i: {"until": ["\n"], "seed": i}, 1)):
        logs = [log_of(tmp_path, f"{clusters} {side}", [asked(second(i), i) for i in range(150)]) for side in "ab"]
        comparison = json.loads(judged(*logs, "--json")[1])["verdicts"][0]["comparisons"][0]
        assert comparison["clusters"] == clusters or (clusters == 1 and comparison["status"] == "undecided")
