"""The scorer `math`: verdicts, error types, and what a case must carry."""

from __future__ import annotations

import pytest

from qualgate.records import Evalset
from qualgate.scoring import registry
from qualgate.scoring.mathematics import score_math
from tests.tables import each_row

VERDICTS = [
    (r"\frac{1}{2}", r"We get $\boxed{0.5}$.", True, ""), (3, "The answer is x = 3.", True, ""), ("3",
    "4", False, "different"),
    ("3", "  ", False, "empty"), ("3", r"\boxed{3", False, "malformed"), ("3", r"\boxed{\frac{1}}", False, "malformed"),
    ("3", r"\boxed{\int_0^1 6x^2 dx}", None, "unknown"),
    ("3", r"\boxed{" + "(" * 80 + "3" + ")" * 80 + "}", None, "limit"),
    ("3", r"\boxed{9^{9^{9^9}}}", None, "undecided"), (r"\boxed{9^{9^{9^9}}}", r"\boxed{9^{9^{9^9}}}", True, ""),
    (r"so it is \boxed{7}.", r"$7$", True, ""), (r"\angle ABC", r"$\angle\, ABC$", True, ""), ("3",
    "9" * 1_000_000, None, "limit"),
    (r"\angle ABC", r"$\angle ABD$", None, "unknown"), ("3", "\u0663", None, "unknown"), ("1/3",
    "0.3333", False, "different"),
    ("B", r"\boxed{\textbf{(B)} 12}", True, ""), ("12", r"\boxed{\text{(B) 12}}", True, ""), ("B", "(B) 12", True, ""),
    ("2", "The final result is 7√2 in all", None, "unknown"),
    (r"\textbf{(B)}\ 12", r"\boxed{12}", True, ""), ("C", r"\boxed{\mathrm{(B)}\ 12}", False, "different"),
    (r"2\sqrt{2}", r"\boxed{2\sqrt{2} \approx 2.83}", True, ""), (r"\sqrt{3}", r"\boxed{\sqrt{2} \approx 1.4}", False,
    "different"),
    ("3", r"The answer is not $\boxed{3}$.", None, "not_meant"), ("3", "It can't be 3.", None, "not_meant"), ("3",
    r"\boxed{3}. Wait, that cannot be right.", None, "not_meant"), ("3",
    "So 1 plus 2 is 3. Then we", None, "not_meant"),
    ("3", r"<think>Is it \boxed{3}?", None, "not_meant"), ("3", r"\boxed{3}? No.", None, "not_meant"),
    (r"\textbf{(B)}\ 12", r"\boxed{\textbf{(B)}\ 13}", False, "different"), ("12B", r"\boxed{(B) 12}", True, ""),
]  # fmt: skip


@each_row(("reference", "text", "verdict", "error_type"), VERDICTS)
def test_an_answer_is_right_wrong_or_nobody_can_say(reference, text, verdict, error_type):
    score = score_math({"answer": reference}, text)["math"]
    assert (score.verdict, score.error_type or "") == (verdict, error_type)
    assert (score.value is None) == (verdict is None)
    assert score.reason or verdict


def test_a_comparison_that_had_to_be_stopped_is_no_verdict(stopped):
    score = score_math({"answer": r"\sqrt{2}"}, r"$\sqrt{3}$")["math"]
    assert (score.verdict, score.error_type) == (None, "stopped")
    assert score_math({"answer": "2"}, "$3$")["math"].verdict is False, "numbers ask no child"


def test_the_tolerance_of_a_case_counts():
    body = {"answer": r"\pi", "tolerance": {"abs": 0.01}}
    assert score_math(body, "3.14")["math"].verdict is True
    assert score_math(body, "3.2")["math"].verdict is False


@pytest.mark.parametrize(
    ("body", "said"),
    [({}, "math needs `answer`, a text as 'x = 3' or a number; it is missing"), ({"answer": ["3"]}, "found ['3']"),
     ({"answer": ""}, "there is nothing to read. It is written in LaTeX or plain"),
     ({"answer": r"\frac{1}"}, "math cannot read `answer`"),
     ({"answer": "3", "tolerance": 5}, "`tolerance`"), ({"answer": r"\boxed{3"}, "not closed"),
     ({"answer": True}, "a number")],
)  # fmt: skip
def test_a_case_that_cannot_be_scored_says_why_before_any_answer_is_read(body, said):
    evalset = Evalset(name="set", version="1", sha256="", metrics=("math",))
    assert said in "\n".join(registry.find("math").unscorable({"id": "1", **body}, evalset))
