"""Whether two answers say the same."""

from __future__ import annotations

import random

import pytest

from qualgate.scoring.mathematics.proof import ByPoints, same
from qualgate.scoring.mathematics.reader import read
from qualgate.scoring.mathematics.tree import Undecided

SAME = [
    (r"\frac{2}{4}", "0.5"), ("0.333333", r"\frac13"), (r"50\%", r"\frac12"), (r"50\%", "50"), ("x = 3", "3"), ("3",
    "x=3"),
    ("y=3, x=2", "x=2, y=3"), ("x=2, y=3", "(2,3)"), ("2,1", "1,2"), (r"\{2,1\}", "1, 2"), (r"\pm 2", "-2, 2"),
    (r"x = 1 \pm \sqrt{2}", r"1-\sqrt2, 1+\sqrt2"), ("x > 3", r"(3, \infty)"), ("1 < x \\le 3", "(1, 3]"),
    ("3 > x > 1", "(1,3)"),
    ("3 \\ge x", r"(-\infty, 3]"), (r"x < 1 \text{ or } x > 2", r"(-\infty,1) \cup (2,\infty)"), ("x > 3", "3 < x"),
    (r"\mathbb{R}", r"(-\infty,\infty)"), (r"5\text{ cm}", "5"), (r"5\text{ cm}", r"5\text{ centimeters}"), ("5 ft",
    "5 feet"),
    (r"\text{Monday}", "monday"), (r"\text{(A)}", "A"), ("y=2x+3", "2x-y+3=0"), ("2x=6", "x=3"), ("2x < 4", "x < 2"),
    (r"\sqrt{12}", r"2\sqrt3"),
    ("5 thousand", "5,000"), ("20 percent", r"\frac15"), ("|x-5|", "|5-x|"), (r"\ln(x-5)", r"\ln(\frac{2x-10}{2})"),
    (r"\sin^2 x + \cos^2 x - 1", "0"),
    (r"\frac{1}{\sqrt2}", r"\frac{\sqrt2}{2}"), ("(x+1)^2", "x^2+2x+1"), (r"e^{i\pi}",
    "-1"),
    (r"\frac{x^2-1}{x-1}", "x+1"), (r"\sin^2 x+\cos^2 x", "1"), (r"\ln(xy)", r"\ln x + \ln y"),
    ("1.41421356", r"\sqrt2"),
    (r"\sqrt[3]{-8}", "-2"), (r"\sin 30^\circ", r"\frac12"), ("f(x)=2x", "2x"), (r"\{3\}", "3"), (r"\max(2,3)", "3"),
]  # fmt: skip
OTHER = [
    ("0.33", r"\frac13"), ("0.3333333", r"0.333334"), (r"50\%", "5"), ("x=3", "y=3"), ("(2,1)", "(1,2)"), ("(1,2)",
    "[1,2]"),
    (r"\{1,2\}", "(1,2)"), ("1,2", "1,2,3"), ("1,1", "1,2"), ("x > 3", r"[3, \infty)"), ("x > 3", "x < 3"), ("2x < 4",
    "-x < -2"),
    (r"5\text{ cm}", r"5\text{ m}"), (r"5\text{ cm}^2", r"5\text{ cm}"), ("1011_2", "1011_3"), ("Monday", "Tuesday"),
    (r"\sqrt{x^2}", "x"), ("x+1", "y+1"), (r"\sqrt2", "1.4142"), ("1.41421357", r"\sqrt2"), ("e^{x}", "x^e"),
    ("|x-5|", "5-x"), (r"\max(x,y)", "x"), ("|x|", "x"), (r"10^{-100}\pi", r"10^{-99}\pi"),
    (r"10^{100}\pi + 1", r"10^{100}\pi"), (r"10^{-100}\pi", "0"),
    ("5 thousand", "5"),
    ("5 percent", r"\frac12"), (r"\lfloor x \rfloor", "x"), ("A",
    "B"),
    (r"e^{\pi\sqrt{163}}", "262537412640768744"), ("2^{64}", "18446744073709551615"), ("x=3", r"\text{three}"),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}1&2\end{pmatrix}"), (r"\infty", r"-\infty"),
    ("3", r"\infty"),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "reference"), SAME)
def test_what_says_the_same_is_the_same_whichever_is_the_reference(answer, reference):
    assert same(answer, reference) is True
    assert same(reference, answer) is True


@pytest.mark.parametrize(("answer", "reference"), OTHER)
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
