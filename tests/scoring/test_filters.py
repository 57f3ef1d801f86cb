"""lm-eval's filters: by hand, and against lm-eval itself."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Sequence

import pytest

from qualgate.records import Case, Evalset, Score
from qualgate.scoring import registry
from qualgate.scoring.filters import FILTERS
from qualgate.scoring.lm_eval_match import OF_GSM8K, compared
from tests.scoring.cases import table
from tests.tables import each_row
from tests.verification.references.filters_fuzz import PIPELINES
from tests.verification.shared import DATA

GSM8K_ROWS = DATA / "gsm8k"


IGNORED = [",", r"\$", "(?s).*#### ", r"\.$"]  # by gsm8k


def judged(name: str, text: str, answer: str, choices: Sequence[str] = ()) -> Score:
    """The score of an answer behind the filter, as `qualgate score --mode compat --filter NAME` has it."""
    scorer = registry.filtered(registry.find("exact_match", "compat"), name)
    case = Case(evalset="set", body={"id": "1", "answer": answer, "choices": [*choices]})
    return registry.apply(scorer, case, Evalset(name="set", version="1", sha256="", metrics=()), text)["exact_match"]


# --------------------------------------------------------------------------------------------------------- gsm8k


@each_row(("text", "strict", "flexible"), table("gsm8k")["extracts"])
def test_gsm8k_extracts(text, strict, flexible):
    assert tuple(FILTERS[name](text, {}) for name in OF_GSM8K) == (strict, flexible)


@pytest.mark.parametrize(("text", "answer", "strict"), table("gsm8k")["compares"])
def test_gsm8k_compares_as_text(text, answer, strict):
    found = judged("strict-match", text, answer)
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
    for name in OF_GSM8K:
        theirs = ensembles(name, PIPELINES[name], [[text] for _, text in rows], [{} for _ in rows])
        for (answer, text), found in zip(rows, theirs, strict=True):
            score = judged(name, text, answer)
            same = metric([found], [answer], regexes_to_ignore=IGNORED, ignore_case=True)
            assert (score.extracted, score.verdict) == (found, bool(same["exact_match"])), (name, text)


# ---------------------------------------------------------------------------------------------------- every filter


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


@pytest.mark.parametrize("name", PIPELINES)
def test_every_filter_does_what_lm_evals_does(name):
    run, _ = lm_eval()
    draw = random.Random(3)
    texts = [*draw.choices(TEXTS, k=150), *TEXTS]
    cases = [{"choices": draw.choice(CHOICES)} for _ in texts]
    theirs = run("f", PIPELINES[name], [[text] for text in texts], cases)
    for text, case, expected in zip(texts, cases, theirs, strict=True):
        assert FILTERS[name](text, case) == expected, (text, case)


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
        gsm8k = draw.random() < 0.5
        one, other = draw.choices(sides, k=2)
        same = metric([one], [other], IGNORED if gsm8k else None, gsm8k)["exact_match"]
        assert (compared(one, gsm8k=gsm8k) == compared(other, gsm8k=gsm8k)) is bool(same), (one, other, gsm8k)


def test_by_hand():
    assert FILTERS["regex"]("a #### 5 b", {}) == "5"
    assert FILTERS["multi_choice_regex"]("I say: B", {"choices": ["one", "two"]}) == "(B)"
    assert FILTERS["multi_choice_regex"]("it is two", {"choices": ["one", "two"]}) == "(B)"
    assert FILTERS["choice-extract"]("(A), no, it is TWO!", {"choices": ["one", "two"]}) == "(A)"
    assert FILTERS["majority_vote"]("a b b", {}) == "a b b"


def test_choices_that_are_too_long_for_a_pattern_give_no_verdict():
    score = judged("choice-extract", "it is two", "(B)", ["one" * 400, "two" * 400])
    assert (score.value, score.verdict, score.error_type) == (None, None, "filter")
    assert "a pattern of 2,401 characters" in score.reason


@each_row(
    "text", ["9" * 5_000, "#### " + "1," * 400_000, "#" * 2**20, "\u202e\x1b[31m####\x00 \u066018", "\ud800 #### 1",
             "-" * 2**20, "$." * 500_000, "x" * 10_000_000],
)  # fmt: skip
@pytest.mark.parametrize("name", [*OF_GSM8K, "multi_choice_regex", "format_span"])
def test_no_answer_makes_a_filter_fail_or_hang(name, text):
    start = time.process_time()
    found = judged(name, text, "#### 1", ["a", "b"])
    assert found.extracted is None or re.search("[\ud800-\udfff]", found.extracted) is None
    assert time.process_time() - start < 3
