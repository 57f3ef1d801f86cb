"""Where in a text the final answer stands."""

from __future__ import annotations

import pytest

from qualgate.scoring.mathematics.found import final_answer
from qualgate.scoring.mathematics.tree import Unread
from tests.scoring.cases import table
from tests.tables import each_row


@each_row(("text", "answer"), table("mathematics/answers")["found"])
def test_the_final_answer_is_found_where_it_is_said(text, answer):
    assert final_answer(text) == answer


def test_a_box_that_was_cut_is_no_answer():
    for text in (r"\boxed{\frac{1}{2}", r"\boxed{1} and so \boxed{2", r"\boxed{"):
        with pytest.raises(Unread, match="not closed") as error:
            final_answer(text)
        assert error.value.kind == "malformed"
