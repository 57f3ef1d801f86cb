from __future__ import annotations

import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qualgate.records import Evalset
from qualgate.scoring.numeric import NoNumber, faults, last_numbers, score_numeric
from tests.scoring.cases import scored
from tests.tables import each_row

EMPTY = Evalset(name="e", version="1", sha256="", metrics=())


def exact(text: str, answer: str, *normalizers: str):
    return scored({"answer": answer}, ("exact_match",), text, normalizers=normalizers)["exact_match"]


def numeric(text: str, answer: object = "18"):
    return scored({"answer": answer}, ("numeric",), text)["numeric"]


def test_exact_match_is_exact_unless_the_set_says_otherwise():
    assert exact("Paris", "Paris").verdict is True
    assert exact("paris ", "Paris").verdict is False
    assert exact("paris ", "Paris", "strip", "casefold").verdict is True


def test_a_difference_is_placed():
    found = exact("abXd", "abcd")
    assert (found.value, found.error_type, found.extracted, found.scorer) == (0.0, "different", "abXd", "exact_match/1")
    assert "character 3" in found.reason
    assert "character 5" in exact("abcde", "abcd").reason


def test_an_empty_answer_is_an_answer():
    assert exact("", "x").error_type == "empty"
    assert exact("", "").verdict is True
    assert numeric("").error_type == "empty"


@each_row(
    ("text", "number"),
    [
        ("18", "18"), ("018", "18"), ("18.0", "18"), ("18.", "18"), ("= 18 apples", "18"), ("17, then 18", "18"),
        ("1,234", "1234"), ("1,234,567.50", "1234567.5"), ("1,2345", "1.2345"), ("12,5", "12.5"), ("1,00", "1"),
        ("-3", "-3"), ("= -3", "-3"), ("x = - 3", "-3"), ("x is - 3", "-3"), ("+3", "3"), ("\u22123", "-3"),
        ("-$3", "-3"), ("$18.00", "18"), ("18€", "18"), ("60%", "60"), (".5", "0.5"), ("-.5", "-0.5"), ("...5", "5"),
        ("1e3", "1000"), ("1.5E-2", "0.015"), ("2nd", "2"), ("1/2", "1/2"), ("25 m^3", "25"),
        ("9.8 m/s^{2}", "9.8"), ("10 kg·m²", "10"), ("3 × 10^5", "300000"), ("3 \\times 10^{-2}", "0.03"),
        ("1{,}234", "1234"), ("1\\,234", "1234"), ("1 234 567", "1234567"), ("1.234,56", "1234.56"),
        ("12,34,567", "1234567"), ("1'234", "1234"), ("1_000", "1000"), ("2 1/2", "5/2"), ("2\\frac{1}{2}", "5/2"),
        ("½", "1/2"), ("2½", "5/2"), ("\\frac14", "1/4"), ("2^10", "1024"), ("10**3", "1000"), ("10⁵", "100000"),
        ("**18**", "18"), ("\\boxed{72}", "72"), ("2 + 2 = 4", "4"),
        ("答えは42", "42"), ("\uff11\uff18", "18"), ("\u0661\u0668", "18"), ("3 million", "3e6"), ("3万", "3e4"),
        ("minus 4", "-4"), ("42 [1]", "42"), ("4 (mod 7)", "4"), ("15\\text{ cm}^2", "15"), ("<b>4</b>", "4"),
        ("#### 18", "18"), ("18 x2", "18"), ("18 H2O", "18"), ("18 x_{2}", "18"),
    ],
)  # fmt: skip
def test_the_last_number_is_read_by_stated_rules(text, number):
    assert [one.value for one in last_numbers(text, 1)] == [Fraction(number)]


@each_row(
    "text",
    ["7\\sqrt{2}", "√2", "3π", "x/4", "2 + 3", "5 - 3", "x-3", "(2)-3", "log 1000", "\\log 1000", "4 ± 2", "2 × 3",
     "5-3", "3:7", "2026-01-05", "5–7", "1.2.3", "1/2/2026"],
)  # fmt: skip
def test_a_number_that_continues_another_or_an_expression_gets_no_verdict_rather_than_a_wrong_one(text):
    assert (last_numbers(text, 1)[0].value, numeric(text, "18").verdict) in ((None, None), (None, False))
    last = "".join(character if character.isdigit() else " " for character in text).split()[-1]
    assert numeric(f"so {text}", last).verdict is None


@each_row(
    ("text", "answer", "verdict"),
    [
        ("1.234", "1.234", True), ("1.234", "1234", None), ("1,234", "1.234", None), ("12,5", "5", None),
        ("1 234", "1234", True), ("1 234", "234", None), ("1.234", "5", False), ("18²", "18", None),
        ("3:7", "3:7", True), ("7:3", "3:7", False), ("5", "3:7", False), ("2026-01-05", "2026-01-05", True),
        ("x > 5", "5", None), ("f(3)", "3", None), ("(3, 4)", "4", None), ("(3, 4)", "(3, 4)", True), ("3x", "3", None),
        ("2 h 30 min", "30", None), ("5k", "5", True), ("5k", "5000", None), ("3 million", "3", None),
        ("Die Antwort ist nicht 12.", "12", None), ("The answer isn't \\boxed{12}.", "12", None),
        ("so 12 is wrong", "12", None), ("12. Wait, that is wrong.", "12", None), ("So we have 12 +", "12", None),
        ("One might say that it is 12", "12", None), ("<think>12", "12", None), ("Is it 12?", "12", None),
        ("5 and 7, and you get 12", "12", True), ("It is not hard to see 12", "12", True),
        ("either 11 or 12", "12", None), ("either 11 or 12", "11 or 12", True),
        ("12. Let me redo it: yes, the same", "12", True), ("12. Let me redo it: thirteen", "12", None),
        ("12. No, that's a mistake", "12", None),
        ("Those who did not pass are 12", "12", True), ("No doubt that it is 12", "12", True),
        ("0.25", "1/4", True), ("1/4", "4", False), ("25 m^3", "3", False), ("3 × 10^5", "5", False),
    ],
)  # fmt: skip
def test_what_can_be_read_two_ways_is_right_by_the_likelier_alone(text, answer, verdict):
    assert numeric(text, answer).verdict is verdict


@pytest.mark.parametrize("answer", ["7\\sqrt{2}", "x/4"])
def test_a_reference_without_a_value_is_refused(answer):
    assert "`math` reads expressions" in next(faults({"answer": answer}, EMPTY))


@pytest.mark.parametrize("text", ["", "none", "x2", "v1.2", "e5", "-", ".", "$", "x^2"])
def test_what_is_no_number_is_not_read_as_one(text):
    with pytest.raises(NoNumber):
        last_numbers(text)


def test_a_number_too_large_to_compare_is_not_read_as_a_smaller_one():
    with pytest.raises(NoNumber, match="more than three digits"):
        last_numbers("1e5000", 1)


def test_numbers_are_equal_by_value_and_without_tolerance():
    assert numeric("the answer is 18.00").verdict is True
    assert numeric("18.000000001").verdict is False
    assert numeric("18", 18).verdict is True
    assert numeric("0.1", 0.1).verdict is True
    found = numeric("17")
    assert (found.error_type, found.extracted, found.reason) == ("different", "17", "'17' is not '18'")


DIVISION = "6/5=1 r 1\n13/5=2 r 3\nAnswer: 12 r 3"


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (DIVISION, True), ("12 r 3", True), ("63 / 5 = 12 r 3", True), ("12 remainder 3.\nDone.", True),
        ("Answer: 11 r 3", False), ("Answer: 12 r 4", False), ("Answer: 3 r 12", False), ("Answer: 3", False),
        ("Answer: 12.3", False), ("12\n3", False), ("5*12+3=63\n12 r 3\nCheck: 63", False),
    ],
)  # fmt: skip
def test_a_quotient_and_its_remainder_are_both_compared(text, verdict):
    assert numeric(text, DIVISION).verdict is verdict


def test_numbers_before_the_references_last_line_are_its_working():
    assert numeric("so 18", "3+4=7\n7+11=18\n#### 18\n").verdict is True
    assert numeric("0.5", "1/2").verdict is True
    assert numeric("3/2", "1/2").verdict is False
    found = numeric("Answer: 4", DIVISION)
    assert (found.extracted, found.reason, found.scorer) == ("4", "'4' is not '12, 3'", "numeric/6")


def test_a_number_of_5000_digits_is_wrong_at_once():
    assert numeric("9" * 5000).error_type == "number_too_long"
    assert numeric("9" * 400).error_type == "different"
    assert numeric("0." + "9" * 400).error_type == "number_too_long"


@pytest.mark.parametrize("piece", ["1", "1,234", ",234", "1,234,", "-", "$-", "1.", ".", "1e", "+1e+", "1.1", "x1"])
def test_no_repetition_makes_numbers_slow(piece):
    start = time.process_time()
    numeric(piece * (1_000_000 // len(piece)))
    assert time.process_time() - start < 10


@given(st.text(st.characters()) | st.text("0123456789+-−.,eE$ x%", max_size=60))
def test_reading_numbers_never_fails(text):
    assert numeric(text).verdict in (True, False, None)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**12), max_value=10**12))
def test_a_number_written_plainly_or_with_groups_is_read_back(number):
    for written in (f"so it is {number}.", f"so it is {number:,}", f"so x = {number}"):
        assert [one.value for one in last_numbers(written)] == [Fraction(number)]


@pytest.mark.parametrize(
    ("text", "answer", "tolerance", "right"),
    [
        ("3.14", "3.14159", {"abs": 0.01}, True), ("3.1", "3.14159", {"abs": 0.01}, False),
        ("0.2", "0.1", {"abs": 0.1}, True), ("0.3", "0.2", {"abs": "0.1"}, True), ("0.31", "0.2", {"abs": 0.1}, False),
        ("101", "100", {"rel": 0.01}, True), ("101.01", "100", {"rel": 0.01}, False),
        ("-99", "-100", {"rel": 0.01}, True),
        ("0.001", "0", {"rel": 0.5}, False), ("0.001", "0", {"rel": 0.5, "abs": 0.001}, True), ("18", "18", {}, True),
        ("1e999", "1e998", {"rel": 9}, True), ("1e-999", "0", {"abs": 1e-300}, True),
        ("12 3", "12 r 3.1", {"abs": 0.2}, True),
        ("9" * 400, "1", {"abs": 5}, False), ("1", "12 r 3", {"abs": 100}, False),
    ],
)  # fmt: skip
def test_a_declared_tolerance_is_exact(text, answer, tolerance, right):
    assert scored({"answer": answer, "tolerance": tolerance}, ("numeric",), text)["numeric"].verdict is right


@pytest.mark.parametrize(
    "tolerance",
    [0.1, {"abs": -1}, {"abs": "x"}, {"rel": True}, {"abs": float("nan")}, {"rel": float("inf")}, {"absolute": 1},
     {"abs": None}, {"abs": "1e9999"}],
)  # fmt: skip
def test_a_tolerance_that_is_none_is_refused(tolerance):
    with pytest.raises(ValueError, match="tolerance"):
        score_numeric({"answer": "1", "tolerance": tolerance}, "1")
