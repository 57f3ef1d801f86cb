"""Which choice is named where reasons stand around it, in ways that models have."""

from __future__ import annotations

import pytest

from qualgate.scoring.multiple_choice import Ambiguous, chosen

CITIES = ["London", "Paris", "Rome", "Oslo"]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("B is correct.", 1), ("B is the correct answer.", 1), ("The correct answer would be B.", 1),
        ("I choose B.", 1), ("The answer is London.", 0), ("B) because option A is false", 1),
        ("The answer is A, C and D are wrong", 0), ("The answer is A because it is", 0),
        ("उत्तर B है।", 1), ("सही उत्तर: B", 1), ("故选:B", 1), ("La respuesta es la B", 1), ("答案不是A,是B", 1),
        ("The answer is E. (A) is the closest", None),  # of four choices
        ("Answer: A person who lives there says so.", None), ("The answer: A careful reading shows it.", None),
    ],
)  # fmt: skip
def test_a_choice_is_found_where_it_is_named_and_nowhere_else(text, place):
    assert chosen(text, CITIES, lenient=True) == place


@pytest.mark.parametrize("text", ["A. B. C. D. all wrong", r"\boxed{A} or \boxed{B}", r"$\boxed{A}$ and $\boxed{B}$"])
def test_several_together_are_ambiguous(text):
    with pytest.raises(Ambiguous):
        chosen(text, CITIES, lenient=True)
