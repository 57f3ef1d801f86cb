from __future__ import annotations

import math
import random
import time

import pytest

from qualgate.records.metrics import BY_LIKELIHOOD
from qualgate.scoring.multiple_choice import (
    Ambiguous,
    chosen,
    picks,
    requests_of,
    score_likelihoods,
    score_multiple_choice,
    score_weighed,
)
from tests.scoring.cases import scored, table
from tests.tables import each_row

CHOICES = ["London", "Paris", "Rome"]
CITIES = [*CHOICES, "Oslo"]
TEXTS = table("choices")


def read(text: str, choices: list[str], lenient: bool = False) -> int | str | None:
    """The place of the choice that the text gives, or `ambiguous`."""
    try:
        found = chosen(text, choices, lenient)
    except Ambiguous:
        return "ambiguous"
    return None if found is None else found.place


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


@each_row(("text", "strict", "lenient"), TEXTS["three"])
def test_a_letter_is_read_from_a_text(text, strict, lenient):
    assert read(text, CHOICES) == strict
    assert read(text, CHOICES, lenient=True) == lenient


@each_row(("text", "place"), TEXTS["four"])
def test_a_choice_is_found_where_reasons_stand_around_it_and_nowhere_else(text, place):
    assert read(text, CITIES, lenient=True) == place


@pytest.mark.parametrize("text", TEXTS["several of four"])
def test_several_together_are_ambiguous(text):
    assert read(text, CITIES, lenient=True) == "ambiguous"


@each_row("text", TEXTS["several"])
def test_an_answer_that_names_several_choices_gets_no_verdict(text):
    found = score_multiple_choice({"choices": CHOICES, "answer": 1}, text, lenient=True)["multiple_choice"]
    assert (found.verdict, found.error_type) == (None, "ambiguous")
    assert "it names A, B" in found.reason
    assert chosen(text, CHOICES) is None, "strictly it names none"


@pytest.mark.parametrize("text", ["Answer: I think it is (B)", "Answer: I'm sure, (B)", "The answer is I or (B)?"])
def test_a_pronoun_is_no_letter(text):
    ten = [f"choice {number}" for number in range(10)]
    assert read(text, ten, lenient=True) == ("ambiguous" if "or" in text else 1)


@pytest.mark.parametrize(
    ("text", "ended", "found"),
    [("B because", "length", None), ("B because", "eos", True), ("The answer is B because", "length", True),
     ("B", "length", True), ("C because", "length", False)],
)  # fmt: skip
def test_a_letter_that_nothing_states_gets_no_verdict_where_the_answer_was_cut(text, ended, found):
    body = {"choices": CHOICES, "answer": 1}
    score = scored(body, ("multiple_choice",), text, finish_reason=ended, lenient=("trailing_text",))["multiple_choice"]
    assert score.verdict is found


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
    ["answer " * 150_000, "respuesta " * 100_000, "so it is " * 100_000, "D/" * 500_000, "(" * 2**20,
     "answer is" + " " * 2**20, "\ud800", "B" * 10_000_000],
)  # fmt: skip
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
