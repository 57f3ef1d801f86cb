"""LaTeX and plain text as trees."""

from __future__ import annotations

import pytest

from qualgate.scoring.mathematics.exact import exact
from qualgate.scoring.mathematics.reader import read
from qualgate.scoring.mathematics.tree import Node, Undecided, Unread


def written(node: Node) -> str:
    name = node.op if not node.name else f"{node.op} {node.name}"
    inner = ", ".join(map(written, node.args))
    return str(node.value) if node.op == "number" else node.name if node.op == "name" else f"{name}({inner})"


VALUES = [
    (r"\frac12", "1/2"), (r"\dfrac{-3}{4}", "-3/4"), (r"2\frac{1}{3}", "7/3"), ("2 1/2", "5/2"), ("-1.50", "-3/2"),
    ("1,234.5", "2469/2"), (r"1{,}234", "1234"), (r"1\,234", "1234"), (".5", "1/2"), (r"0.1\overline{6}", "1/6"),
    (r"33\frac13\%", "1/3"), ("2^{-3}", "1/8"), ("2**10", "1024"), ("2^10", "1024"), ("5!", "120"), ("|{-3}|", "3"),
    (r"\binom{5}{2}", "10"), (r"3 \times 10^{2}", "300"), ("1.5e3", "1500"), ("-2^2", "-4"), ("(-2)^2", "4"),
    (r"\$1,\!000", "1000"), ("1 - 2 - 3", "-4"), (r"6 \div 2 \cdot 3", "9"), ("½", "1/2"), ("3 · 4", "12"), ("−7",
    "-7"),
    (r"\left(\frac{1}{2}\right)^{2}", "1/4"), ("073", "73"), (r"\text{5}", "5"), ("2 * -3", "-6"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), VALUES)
def test_numbers_are_read_exactly(text, value):
    assert str(exact(read(text))) == value


TREES = [
    ("2x", "mul(2, x)"), ("1/2x", "div(1, mul(2, x))"), (r"\sqrt12", "mul(call sqrt(1), 2)"), ("x_1 = 3",
    "relation =(x_1, 3)"),
    ("(1,2)", "tuple(1, 2)"), ("[1,2)", "interval [)(1, 2)"), (r"\{1,2\}", "set(1, 2)"), ("1, 2", "list(1, 2)"),
    (r"1 \text{ and } 2", "list(1, 2)"), ("1 < x \\le 2", "relation < <=(1, x, 2)"), (r"5\text{ cm}^2",
    "unit cm ^2(5)"),
    ("5 apples", "unit apples(5)"), (r"90^\circ", "unit °(90)"), ("1011_2", "unit base 2(1011)"), (r"\text{odd}",
    "text odd()"),
    ("no solution", "text no solution()"), (r"\sin^2 x", "pow(call sin(x), 2)"), (r"\log_2 8", "call log(8, 2)"),
    (r"\sqrt[3]{x}", "call root(x, 3)"), (r"x \in \mathbb{R}", "relation in(x, text R())"), ("3:4", "div(3, 4)"),
    (r"\sin^{-1} x", "call arcsin(x)"), (r"1 \pm \sqrt{2}", "pm(1, call sqrt(2))"), ("||x||", "call abs(call abs(x))"),
    (r"(0,1) \cup [2,\infty)", "union(tuple(0, 1), interval [)(2, infinity()))"), (r"\emptyset", "set()"),
    (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", "matrix(row(1, 2), row(3, 4))"), ("(1,234)", "tuple(1, 234)"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "tree"), TREES)
def test_what_is_no_number_is_read_as_it_is_meant(text, tree):
    assert written(read(text)) == tree


REFUSED = [
    ("", "malformed"), ("1 2", "malformed"), ("2 thirds", "unknown"),
    ("3 squared", "unknown"), ("(1", "malformed"), ("1)", "malformed"), (r"\frac{1}", "malformed"),
    ("1 +", "malformed"), ("x = ", "malformed"), ("{1", "malformed"), ("()", "malformed"), ("^2", "malformed"),
    (r"\begin{pmatrix}1&2\\3\end{pmatrix}", "malformed"), (r"\input{x}", "unknown"), (r"\int_0^1 x dx", "unknown"),
    (r"\begin{cases}1\end{cases}", "unknown"), ("\u0661", "unknown"), ("\uff11", "unknown"), ("9" * 1_001, "limit"),
    ("1+" * 3_000 + "1", "limit"), ("(" * 60 + "1" + ")" * 60, "limit"), ("1" + "/2" * 400, "limit"),
    ("9" + "!" * 400, "limit"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "kind"), REFUSED)
def test_what_is_not_read_says_whose_fault_it_is(text, kind):
    with pytest.raises(Unread) as error:
        read(text)
    assert error.value.kind == kind


def test_numbers_that_take_long_to_work_out_are_not_worked_out():
    for text in ("9^{9^{9}}", "(2001)!", "2^{100000}", r"\binom{1000000}{3}", r"10^{6000} \cdot 10^{6000}"):
        with pytest.raises(Undecided):
            exact(read(text))
    assert exact(read("1/0")) is None
    assert exact(read("1^{99999999}")) == 1
