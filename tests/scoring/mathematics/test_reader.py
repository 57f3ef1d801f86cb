"""LaTeX and plain text as trees."""

from __future__ import annotations

import pytest

from qualgate.scoring.mathematics.exact import exact
from qualgate.scoring.mathematics.reader import read
from qualgate.scoring.mathematics.tree import Node, Undecided, Unread
from tests.scoring.cases import table
from tests.tables import each_row


def written(node: Node) -> str:
    name = node.op if not node.name else f"{node.op} {node.name}"
    inner = ", ".join(map(written, node.args))
    return str(node.value) if node.op == "number" else node.name if node.op == "name" else f"{name}({inner})"


ANSWERS = table("mathematics/answers")


@each_row(("text", "value"), ANSWERS["values"])
def test_numbers_are_read_exactly(text, value):
    assert str(exact(read(text))) == value


@each_row(("text", "tree"), ANSWERS["trees"])
def test_what_is_no_number_is_read_as_it_is_meant(text, tree):
    assert written(read(text)) == tree


TOO_MUCH = ("9" * 1_001, "1+" * 3_000 + "1", "(" * 60 + "1" + ")" * 60, "1" + "/2" * 400, "9" + "!" * 400)


@each_row(("text", "kind"), [*ANSWERS["refused"], *((text, "limit") for text in TOO_MUCH)])
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
