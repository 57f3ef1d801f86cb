from __future__ import annotations

import math
import random
import time

import pytest

from qualgate.metrics import BY_LIKELIHOOD
from qualgate.scoring.multiple_choice import (
    Ambiguous,
    chosen,
    picks,
    requests_of,
    score_likelihoods,
    score_multiple_choice,
    score_weighed,
)

CHOICES = ["London", "Paris", "Rome"]


def test_the_three_ways_to_weigh_a_likelihood():
    assert picks([-4.0, -6.0, -5.0], ["ab", "abcdef", "éé"]) == {"acc": 0, "acc_norm": 1, "acc_bytes": 1}
    assert picks([-4.0, -3.9], ["ab", "é"]) == {"acc": 1, "acc_norm": 0, "acc_bytes": 1}
    assert picks([-2.0, -2.0], ["a", "b"]) == {"acc": 0, "acc_norm": 0, "acc_bytes": 0}


def test_the_picks_are_numpys():
    numpy = pytest.importorskip("numpy")
    draw = random.Random(1)
    for _ in range(2_000):
        choices = [draw.choice(["", "a", "éß", "long one", "😀"]) for _ in range(draw.randint(1, 5))]
        values = [draw.choice([-1.0, -2.5, -0.0, 0.0, -math.inf, math.nan, -draw.random() * 9]) for _ in choices]
        with numpy.errstate(all="ignore"):
            expected = {
                "acc": numpy.argmax(values),
                "acc_norm": numpy.argmax(values / numpy.array([float(len(choice)) for choice in choices])),
                "acc_bytes": numpy.argmax(values / numpy.array([float(len(choice.encode())) for choice in choices])),
            }
        assert picks(values, choices) == expected, (values, choices)


def test_scores_by_likelihood():
    found = score_likelihoods({"choices": CHOICES, "answer": 1}, [-3.0, -2.0, -1.9])
    assert {name: score.verdict for name, score in found.items()} == {
        "multiple_choice.acc": False, "multiple_choice.acc_norm": True, "multiple_choice.acc_bytes": True,
    }  # fmt: skip
    assert found["multiple_choice.acc"].extracted == "Rome"
    for values in ([-1.0, math.nan, -2.0], [-1.0]):
        found = score_likelihoods({"choices": CHOICES, "answer": "B"}, values)
        assert {score.verdict for score in found.values()} == {None}


@pytest.mark.parametrize(
    ("text", "strict", "lenient"),
    [
        ("B", 1, 1), ("(B)", 1, 1), (" B.\n", 1, 1), ("B)", 1, 1), ("Answer: B", 1, 1), ("The answer is (B).", 1, 1),
        ("The correct answer is: C", 2, 2), ("Paris", 1, 1), ("b", None, None), ("D", None, None), ("", None, None),
        ("I think B", None, None), ("So the answer is **B**, not C", None, 1), ("Answer: A. No, answer: B", None, 1),
        ("It must be (C).", None, 2), ("Because of A", None, None),
        ("B:", 1, 1), ("**B**", 1, 1), ("**B)**", 1, 1), (r"\boxed{B}", 1, 1), (r"$\boxed{\text{B}}$", 1, 1),
        ("Option B", 1, 1), ("**Answer:** B", 1, 1), ("The answer is option B.", 1, 1), ("The best choice is: B", 1, 1),
        ("B) It is on the Seine.", None, 1), ("B: it is on the Seine", None, 1), ("**B** as it is", None, 1),
        ("A capital. So (B).", None, 1), (r"(A) is no capital, so \boxed{B}", None, 1), ("Option B, for A.", None, 1),
        ("(A)? No. The answer is B, for (C) is south.", None, 1), ("B. The Seine.", None, 1), ("I. do", None, None),
        ("Answer: Bob", None, None), ("The answer is B, not A.", None, 1), ("The answer is B, as A is wrong", None, 1),
        ("Answer A is wrong, so (B)", None, 1), ("Answer B is right.", None, 1), ("Answer: C++? No: (B)", None, 1),
        ("B\n\nExplanation: A is wrong.", None, 1), ("It lies on the Seine.\n\nB", None, 1), ("`B`", None, 1),
        ("B because it is", None, 1), ("B - Paris", None, 1), ("B, not A", None, 1), ("[B]", None, 1),
        ("A capital, as it is", None, None), ("B C", None, None), ("paris", None, None), ("\u202eB", None, None),
        ("\uff22", None, None),
        ("A and C are both wrong, so B", None, 1), ("The answer isn't A, it is B", None, 1), ("It's B.", None, 1),
        ("The answer is not A", None, None), ("So A man walks", None, None), ("It could be A, but it is B.", None, 1),
        ("A and C are wrong", None, None), ("(B). A and C are too small.", None, 1),
        ("答案是B", None, 1), ("答案：B", None, 1), ("答案不是B", None, None), ("正确答案是B，因为", None, 1),
        ("الإجابة هي B", None, 1), ("الإجابة الصحيحة هي B", None, 1), ("la respuesta es B", None, 1),
        ("La respuesta correcta es la opción B.", None, 1), ("Die richtige Antwort ist B.", None, 1),
        ("La bonne réponse est B", None, 1), ("Правильный ответ: B", None, 1), ("정답은 B", None, 1),
    ],
)  # fmt: skip
def test_a_letter_is_read_from_a_text(text, strict, lenient):
    assert chosen(text, CHOICES) == strict
    assert chosen(text, CHOICES, lenient=True) == lenient


@pytest.mark.parametrize(
    "text",
    ["(A) or (B)", "A) no\nB) yes", "The answer is A: \\boxed{B}", "**A** **B**", "Option A. Option B.",
             "The answer is A or B", "Answer: A, B", r"\boxed{A, B}", "Answer: A/B", "Answer: **A** and **B**",
             "A or B", "Both A and B", "A\nB", "A, B", "A/B", "The answer is (A) and (B).",
             "The answer is A, and B because of", "Both A and B are correct", "A and B are both right",
             "The answer is either A or B", "It could be A and B", "It is A or B.", "答案是A和B",
             "la respuesta es A o B"],
)  # fmt: skip
def test_an_answer_that_names_several_choices_gets_no_verdict(text):
    found = score_multiple_choice({"choices": CHOICES, "answer": 1}, text, lenient=True)["multiple_choice"]
    assert (found.verdict, found.error_type) == (None, "ambiguous")
    assert "it names A, B" in found.reason
    assert chosen(text, CHOICES) is None, "strictly it names none"


@pytest.mark.parametrize("text", ["Answer: I think it is (B)", "Answer: I'm sure, (B)", "The answer is I or (B)?"])
def test_a_pronoun_is_no_letter(text):
    ten = [f"choice {number}" for number in range(10)]
    if "or" in text:
        with pytest.raises(Ambiguous):
            chosen(text, ten, lenient=True)
    else:
        assert chosen(text, ten, lenient=True) == 1


@pytest.mark.parametrize("answer", [1, "B", "Paris", ["A", "Paris"]])
def test_an_answer_is_an_index_a_letter_or_a_choice(answer):
    body = {"choices": CHOICES, "answer": answer}
    assert score_multiple_choice(body, "(B)")["multiple_choice"].verdict is True
    assert score_multiple_choice(body, "C")["multiple_choice"].error_type == "different"
    assert score_multiple_choice(body, "who knows")["multiple_choice"].error_type == "no_choice"


@pytest.mark.parametrize("answer", [3, -1, "D", "", None, True, 1.0])
def test_an_answer_that_is_no_choice_is_refused(answer):
    with pytest.raises(ValueError, match="none of 3 choices"):
        score_multiple_choice({"choices": CHOICES, "answer": answer}, "A")


@pytest.mark.parametrize(
    "text",
    [
        "answer " * 150_000,
        "respuesta " * 100_000,
        "so it is " * 100_000,
        "D/" * 500_000,
        "(" * 2**20,
        "answer is" + " " * 2**20,
        "\ud800",
        "B" * 10_000_000,
    ],
)
def test_no_answer_makes_it_fail_or_hang(text):
    start = time.process_time()
    found = score_multiple_choice({"choices": CHOICES, "answer": 0}, text, lenient=True)["multiple_choice"]
    assert found.verdict is False
    assert time.process_time() - start < 2


NO_LIKELIHOODS = ["", "B", "[-1]", "[-1, -2, -3]", "[NaN, -1]", "[true, -1]", '["-1", -1]', '[["-1"], -1]', "[[], -1]",
                  "[[true], -1]", "{}", "[null, -1]", "[-1, -2", "[" * 100_000, f"[-1, {'9' * 400}]", "3"]  # fmt: skip


@pytest.mark.parametrize("text", NO_LIKELIHOODS)
def test_what_is_no_list_of_likelihoods_gets_no_verdict(text):
    found = score_weighed({"choices": ["a", "b"], "answer": "a"}, text)
    assert {(s.value, s.verdict, s.error_type) for s in found.values()} == {(None, None, "likelihoods")}
    assert set(found) == set(BY_LIKELIHOOD)
    assert all(s.reason.isprintable() for s in found.values())


def test_a_choice_is_read_behind_the_prompt_and_a_delimiter():
    body = {"prompt": "2 + 2 =", "choices": ["4", "five"]}
    assert requests_of(body) == [["2 + 2 =", " 4"], ["2 + 2 =", " five"]]
    assert requests_of({**body, "delimiter": ""}) == [["2 + 2 =", "4"], ["2 + 2 =", "five"]]
