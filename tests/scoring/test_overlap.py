"""Token F1: by hand, SQuAD's against a second implementation, DROP's against lm-eval's."""

from __future__ import annotations

import importlib.util
import random
import string
import time

import pytest

from qualgate.scoring.overlap import drop_f1, score_f1, squad_f1

WORDS = ["the", "a", "An", "cat", "Cat's", "non-stop", "3", "3.0", "1,000", "5%", "nan", "$5", "-", "é", "theatre",
    "", "\t",
         "_", "the.", "inf", "1_0", "²", "twenty one"]  # fmt: skip


def sentences(seed: int, count: int) -> list[str]:
    draw = random.Random(seed)
    return [
        "",
        " ",
        *(draw.choice([" ", "-", "  "]).join(draw.choices(WORDS, k=draw.randint(1, 5))) for _ in range(count)),
    ]


@pytest.mark.parametrize(
    ("answer", "reference", "value"),
    [("the cat", "Cat", 1.0), ("cat dog", "cat", 2 / 3), ("cat cat", "cat", 2 / 3), ("", "", 1.0), ("the", "a", 1.0),
     ("", "cat", 0.0), ("dog", "cat", 0.0), ("nonstop", "non-stop", 1.0), ("non stop", "non-stop", 0.0)],
)  # fmt: skip
def test_squad_by_hand(answer, reference, value):
    assert squad_f1(answer, reference) == value


@pytest.mark.parametrize(
    ("answer", "spans", "value"),
    [("3", ("3.0",), 1.0), ("4 yards", ("3 yards",), 0.0), ("3 yard", ("3 yards",), 0.5),
    ("Smith", ("Smith", "Jones"), 0.5),
     ("non stop", ("non-stop",), 1.0), ("cat cat", ("cat",), 1.0)],
)  # fmt: skip
def test_drop_by_hand(answer, spans, value):
    assert drop_f1(answer, spans) == value


def squad_by_the_paper(answer: str, reference: str) -> float:
    """Written from the paper: letter by letter, token by token."""

    def tokens(text: str) -> list[str]:
        kept = "".join(" " if c.isspace() else c for c in text.lower() if c not in string.punctuation)
        return [word for word in kept.split() if word not in ("a", "an", "the")]

    said, expected = tokens(answer), tokens(reference)
    if not said or not expected:
        return float(said == expected)
    left, shared = list(expected), 0
    for word in said:
        if word in left:
            left.remove(word)
            shared += 1
    return 2 * shared / (len(said) + len(expected))


def test_squad_agrees_with_a_second_implementation():
    for answer, reference in zip(sentences(1, 2_000), sentences(2, 2_000)[::-1], strict=True):
        assert squad_f1(answer, reference) == pytest.approx(squad_by_the_paper(answer, reference), abs=1e-12)


def test_drop_agrees_with_lm_eval():
    found = importlib.util.find_spec("lm_eval")
    if found is None or found.submodule_search_locations is None:
        pytest.skip("lm-eval is not installed")
    path = next(iter(found.submodule_search_locations)) + "/tasks/drop/utils.py"
    spec = importlib.util.spec_from_file_location("drop_utils", path)
    assert spec is not None and spec.loader is not None  # noqa: PT018
    theirs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(theirs)
    draw = random.Random(3)
    pool = sentences(4, 500)
    for answer in sentences(5, 1_000):
        golds = [tuple(draw.choices(pool, k=draw.randint(1, 3))) for _ in range(2)]
        expected = theirs.process_results({"answers": golds}, [answer])["f1"]
        assert score_f1({"answer": [list(gold) for gold in golds]}, answer, "drop")["f1.drop"].value == expected, (
            answer,
            golds,
        )


def test_the_best_reference_counts_and_the_verdict_is_whether_all_is_there():
    found = score_f1({"answer": ["dog", "black cat"]}, "cat")["f1"]
    assert (found.value, found.verdict, found.reason) == (2 / 3, False, "F1 is 0.667")
    assert score_f1({"answer": "cat"}, "the cat!")["f1"].verdict is True
    assert score_f1({"answer": "cat"}, " ")["f1"].error_type == "empty"


@pytest.mark.parametrize("text", ["9" * 2**20, "a " * 2**19, "-" * 2**20, "\u202e\x1b[31m\x00\ud800", "x" * 10_000_000])
@pytest.mark.parametrize("rules", ["squad", "drop"])
def test_no_answer_makes_f1_fail_or_hang(rules, text):
    start = time.process_time()
    [found] = score_f1({"answer": "1 cat"}, text, rules).values()
    assert found.verdict is False
    assert time.process_time() - start < 3
