"""Whether two answers say the same."""

from __future__ import annotations

import random

import pytest

from qualgate.scoring.mathematics.proof import ByPoints, same
from qualgate.scoring.mathematics.reader import read
from qualgate.scoring.mathematics.tree import Undecided
from tests.scoring.cases import table
from tests.tables import each_row

ANSWERS = table("mathematics/answers")


@each_row(("answer", "reference"), ANSWERS["same"])
def test_what_says_the_same_is_the_same_whichever_is_the_reference(answer, reference):
    assert same(answer, reference) is True
    assert same(reference, answer) is True


@each_row(("answer", "reference"), ANSWERS["other"])
def test_what_says_something_else_is_not_the_same(answer, reference):
    assert same(answer, reference) is False
    assert same(reference, answer) is False


def test_an_equation_is_its_last_side_where_it_answers_a_value_and_not_where_it_is_asked_for():
    assert same("x+y=5", "5") is True
    assert same("5", "x+y=5") is False


def test_what_nobody_can_say_is_undecided():
    for answer, reference in (
        ("9^{9^{9^9}}", "1"),
        (r"\log 0", r"\sqrt2"),
        (r"\log 2", r"\ln 2"),
        ("(10^{9})!", "3"),
        (r"e^{e^{e^{e^9}}}", "x"),
    ):
        with pytest.raises(Undecided):
            same(answer, reference)


def test_a_tolerance_widens_what_is_equal_and_no_more():
    for answer, reference, tolerance, verdict in (
        ("3.14", r"\pi", {"abs": 0.01}, True), ("3.1", r"\pi", {"abs": 0.01}, False), ("99", "100",
        {"rel": 0.01}, True),
        ("98", "100", {"rel": 0.01}, False), ("(3.14, 1)", r"(\pi, 1)", {"abs": 0.01}, True),
    ):  # fmt: skip
        assert same(answer, reference, tolerance) is verdict


def test_expressions_made_equal_are_equal_and_made_different_are_not():
    """Sums and products of random expressions, put in another order or multiplied out; an oracle knows which."""
    draw = random.Random(11)
    atoms = ["x", "y", r"\sqrt{3}", r"\pi", "2", r"\frac{5}{7}", r"\sin x", r"e^{y}", r"\ln 5"]
    prover = ByPoints()
    for _ in range(12):
        a, b, c = (draw.choice(atoms) for _ in range(3))
        assert prover.equal(read(f"{a} \\cdot ({b} + {c})"), read(f"{c} \\cdot {a} + {b} \\cdot {a}"))
        assert prover.equal(read(f"({a} - {b})({a} + {b})"), read(f"{a} \\cdot {a} - {b} \\cdot {b}"))
        assert not prover.equal(read(f"{a} \\cdot ({b} + {c})"), read(f"{c} \\cdot {a} + {b} \\cdot {a} + 10^{{-30}}"))
