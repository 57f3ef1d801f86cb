"""lm-eval's pipelines: by hand, and against lm-eval itself."""

from __future__ import annotations

import json
import random
import re
import time

import pytest

from qualgate.scoring import filters
from qualgate.scoring.filters import FilterFault, build
from qualgate.scoring.lm_eval_match import GSM8K, Options, compared, score_exact_match
from tests.scoring.cases import table
from tests.tables import each_row
from tests.verification.shared import DATA

GSM8K_ROWS = DATA / "gsm8k"


def applied(name: str, text: str, **parameters) -> str:
    pipeline = ({"function": name, **parameters}, {"function": "take_first"}) if parameters else name
    return build(pipeline)([text], {})


# --------------------------------------------------------------------------------------------------------- gsm8k


@each_row(("text", "strict", "flexible"), table("gsm8k")["extracts"])
def test_gsm8k_extracts(text, strict, flexible):
    assert (applied("strict-match", text), applied("flexible-extract", text)) == (strict, flexible)


@pytest.mark.parametrize(("text", "answer", "strict"), table("gsm8k")["compares"])
def test_gsm8k_compares_as_text(text, answer, strict):
    found = score_exact_match({"answer": answer}, text)["exact_match"]
    assert found.verdict is strict
    assert found.error_type == ("" if strict else "invalid" if found.extracted == "[invalid]" else "different")


def completions() -> list[tuple[str, str]]:
    """(answer, completion): 400 rows, the reference's own solutions and four models', as they are and made gsm8k's."""
    answers = {
        row["doc_id"]: row["answer"] for row in map(json.loads, (GSM8K_ROWS / "test.jsonl").open(encoding="utf-8"))
    }
    found = [(answer, answer) for answer in answers.values()]
    for row in map(json.loads, (GSM8K_ROWS / "model_solutions.jsonl").open(encoding="utf-8")):
        for solution in (each["solution"] for each in row.values() if isinstance(each, dict)):
            found += [(answers[row["doc_id"]], text) for text in (solution, solution.replace("\nA: ", "\n#### "))]
    return found


def mutated(draw: random.Random, text: str) -> str:
    for _ in range(draw.randint(1, 3)):
        place = draw.randrange(len(text) + 1)
        piece = draw.choice(["#### ", "$", "-", ".", ",", "18", "\u2212", "\u0663", "\n", " ", "**"])
        text = text[:place] + piece + text[place + draw.randint(0, 2) :]
    return text


@pytest.mark.skipif(not GSM8K_ROWS.is_dir(), reason="the GSM8K rows are not here")
def test_real_completions_agree_with_lm_eval():
    ensembles, metric = lm_eval()
    draw = random.Random(2)
    rows = completions()
    assert len(rows) == 3_600
    rows = rows[::2] + [(answer, mutated(draw, text[-60:])) for answer, text in rows[::2]]
    for name in ("strict-match", "flexible-extract"):
        theirs = ensembles(name, filters.PIPELINES[name], [[text] for _, text in rows], [{} for _ in rows])
        for (answer, text), found in zip(rows, theirs, strict=True):
            score = score_exact_match({"answer": answer}, text, name)["exact_match"]
            same = metric([found], [answer], regexes_to_ignore=list(GSM8K.regexes_to_ignore), ignore_case=True)
            assert (score.extracted, score.verdict) == (found, bool(same["exact_match"])), (name, text)


# ------------------------------------------------------------------------------------------------ every other step


def lm_eval():
    """(run a pipeline as lm-eval does, its exact_match)."""
    package = pytest.importorskip("lm_eval.filters")
    metrics = pytest.importorskip("lm_eval.api.metrics")

    def run(name, pipeline, responses, cases):
        steps = [(step["function"], {k: v for k, v in step.items() if k != "function"}) for step in pipeline]
        for make in package.build_filter_ensemble(name, steps).filters:
            responses = make().apply(responses, cases)
        return list(responses)

    return run, metrics.exact_match_hf_evaluate


CHOICES = [
    ["Paris", "London", "Par"], ["Guilty", "Guilty of Romance", "guilty."], ["a.b", "a+b", "(c)"], ["x"], ["yes",
    "yes"],
    ["2", "22", ""], ["é", "É"],
]  # fmt: skip
TEXTS = ["Paris", "the answer: B", "(A)", "guilty of romance", "Guilty.", "x", ": C", "a+b", ":\n A", "#### 3",
    "yes no",
         "", "22", "É", "par is", "  Paris, I think (B) ", "#### ", "('the', 'DT') ('dog', 'NN')",
         "person: bob, none $$ LOC : Rome",
         "Time: noon\nplaces: x,y$$", "date:$", "İ ß"]  # fmt: skip
PIPELINES = [
    [("regex", {"regex_pattern": r"\b([A-D])\b", "group_select": -1})],
    [("regex", {"regex_pattern": "(x)|(y)", "fallback": "?"})],
    [("regex", {})], [("regex", {"regex_pattern": " *Paris *"}), ("lowercase", {})], [("regex_pos", {})],
    [("regex_pos", {"fallback": ["none"]})], [("remove_whitespace", {}), ("uppercase", {})],
    [("map", {"mapping_dict": {"x": 1, "Paris": "P"}, "default_value": 0})], [("map", {})], [("format_span", {})],
    [("multi_choice_regex", {"regex_pattern": r"(\([A-Z]\))"})], [("multi_choice_regex", {"ignore_case": True})],
    [("multi_choice_regex", {"ignore_case": True, "ignore_punctuation": True, "regexes_to_ignore": ["of", r"\s"]})],
    [("multi_choice_regex", {"group_select": -1, "fallback": "?"})], [("lowercase", {}), ("majority_vote", {})],
    [("take_first_k", {"k": 2}), ("majority_vote", {})],
]  # fmt: skip


@pytest.mark.parametrize("steps", PIPELINES, ids=lambda steps: "-".join(name for name, _ in steps))
def test_every_step_does_what_lm_evals_does(steps):
    run, _ = lm_eval()
    pipeline = [{"function": name, **parameters} for name, parameters in [*steps, ("take_first", {})]]
    draw = random.Random(3)
    responses = [draw.choices(TEXTS, k=3) for _ in range(150)] + [[text] * 3 for text in TEXTS]
    cases = [{"choices": draw.choice(CHOICES)} for _ in responses]
    theirs = run("f", pipeline, [list(each) for each in responses], cases)
    ours = build(pipeline)
    for response, case, expected in zip(responses, cases, theirs, strict=True):
        assert ours(response, case) == expected, (response, case)


def test_lm_evals_exact_match_options_agree():
    _, metric = lm_eval()
    draw = random.Random(4)
    sides = [
        "Paris!",
        "paris",
        "par is",
        "a1b2",
        "ab",
        "x\0",
        "x",
        "x\0,",
        "a.\0",
        "a",
        "İ",
        "1.",
        ".",
        "",
        "a\n.\n",
        "#### 5",
    ]
    for _ in range(1_500):
        options = Options(
            ignore_case=draw.random() < 0.5, ignore_punctuation=draw.random() < 0.5, ignore_numbers=draw.random() < 0.5,
            regexes_to_ignore=tuple(draw.sample([",", r"\$", "(?s).*#### ", r"\.$", r"\s+", "[ae]"], draw.randint(0,
            3))),
        )  # fmt: skip
        one, other = draw.choices(sides, k=2)
        same = metric([one], [other], list(options.regexes_to_ignore) or None, options.ignore_case,
                      options.ignore_punctuation, options.ignore_numbers)["exact_match"]  # fmt: skip
        assert (compared(one, options) == compared(other, options)) is bool(same), (one, other, options)


def test_by_hand():
    assert applied("regex", "a #### 5 b") == "5"
    assert applied("regex", "x: 1, y: 2", regex_pattern=r"(x: \d)|(y: \d)", group_select=-1) == "y: 2"
    assert build("multi_choice_regex")(["I say: B"], {"choices": ["one", "two"]}) == "(B)"
    assert build("multi_choice_regex")(["it is two"], {"choices": ["one", "two"]}) == "(B)"
    assert build(({"function": "majority_vote"}, {"function": "take_first"}))(["a", "b", "b"], {}) == "b"
    assert build(({"function": "take_first_k", "k": 2},))(["a", "b", "c"], {}) == ["a", "b"]


@pytest.mark.parametrize(
    ("pipeline", "reason"),
    [
        ("strict", "no filter 'strict'"), (({"function": "custom"},), "no filter step 'custom'"),
        (({},), "no filter step"),
        (({"function": "regex", "pattern": "a"},), "unexpected keyword"), (({"function": "take_first_k"},), "missing"),
    ],
)  # fmt: skip
def test_a_pipeline_that_cannot_be_built_says_why(pipeline, reason):
    with pytest.raises(FilterFault, match=reason):
        build(pipeline)


def test_what_raises_in_lm_eval_gives_no_verdict():
    many = {"answer": "1", "choices": [str(number) for number in range(27)]}
    for body, pipeline in (
        ({"answer": "1"}, ({"function": "regex", "regex_pattern": r"\d", "group_select": 3},)),
        (many, "multi_choice_regex"), ({"answer": "1"}, "multi_choice_regex"), ({"answer": "1"}, "regex_pos"),
        ({"answer": "1"}, ({"function": "regex", "regex_pattern": "("},)),
        ({"answer": "1"}, ({"function": "take_first_k", "k": 2}, {"function": "take_first"})),
    ):  # fmt: skip
        found = score_exact_match(body, "1 2", pipeline)["exact_match"]
        assert (found.value, found.verdict, found.error_type) == (None, None, "filter"), pipeline


@each_row(
    "text", ["9" * 5_000, "#### " + "1," * 400_000, "#" * 2**20, "\u202e\x1b[31m####\x00 \u066018", "\ud800 #### 1",
             "-" * 2**20, "$." * 500_000, "x" * 10_000_000],
)  # fmt: skip
@each_row("name", ["strict-match", "flexible-extract", "multi_choice_regex", "format_span", "regex_pos"])
def test_no_answer_makes_a_filter_fail_or_hang(name, text):
    start = time.process_time()
    found = score_exact_match({"answer": "#### 1", "choices": ["a", "b"]}, text, name)["exact_match"]
    assert found.extracted is None or re.search("[\ud800-\udfff]", found.extracted) is None
    assert time.process_time() - start < 3


def test_a_users_pattern_that_takes_forever_gives_no_verdict(stopped):
    forever = ({"function": "regex", "regex_pattern": r"(a+)+$"}, {"function": "take_first"})
    found = score_exact_match({"answer": "1"}, "a" * 40 + "!", forever)["exact_match"]
    assert (found.verdict, found.error_type) == (None, "stopped")
