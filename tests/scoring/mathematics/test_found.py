"""Where in a text the final answer stands."""

from __future__ import annotations

import pytest

from qualgate.scoring.mathematics.found import final_answer
from qualgate.scoring.mathematics.tree import Unread

FOUND = [
    (r"so $\boxed{\frac{1}{2}}$.", r"\frac{1}{2}"),
    (r"\boxed{3}, no: \boxed{4 - \boxed{5}}", "5"),
    (r"\boxed{\{1,2\}}", r"\{1,2\}"),
    (r"hence $\boxed 7$ it is", "7"),
    (r"\fbox{8}", "8"),
    (r"$\boxed{1}$ and $\boxed{2}$", "1, 2"),
    (r"first \boxed{1}. We then look at the second case. \boxed{2}", "2"),
    ("The final answer is 5. I hope it is correct.", "5"),
    ("**Answer:** 42", "42"),
    ("Answer:\n\n42", "42"),
    ("the answer is\n\n$$\\frac12$$", r"\frac12"),
    ("The answer is $x=3$ or $x=5$, since $y > 0$.", "x=3, x=5"),
    (r"\boxed{4}. No, wait. The answer is $5$.", "5"),
    ("The answer is 1,000 cm, because it is.", "1,000 cm"),
    ("The answer is 3.14", "3.14"),
    ("we have $a=1$, then $b=2$", "b=2"),
    ("\\[ x = \n\\frac{3}{4} \\]", "x = \n\\frac{3}{4}"),
    (r"\(x\)", "x"),
    ("So there are 42 apples in 1 box.", "1"),
    ("So there are 1,234 apples in total.", "1,234"),
    ("I pay $5 and get $6 more in change", "6"),
    ("x = 5\n", "x = 5"),
    ("**7**", "7"),
]


@pytest.mark.parametrize(("text", "answer"), FOUND)
def test_the_final_answer_is_found_where_it_is_said(text, answer):
    assert final_answer(text) == answer


def test_a_box_that_was_cut_is_no_answer():
    for text in (r"\boxed{\frac{1}{2}", r"\boxed{1} and so \boxed{2", r"\boxed{"):
        with pytest.raises(Unread, match="not closed") as error:
            final_answer(text)
        assert error.value.kind == "malformed"
