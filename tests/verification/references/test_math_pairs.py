"""A slice of the row `math`, and the forms on which math-verify and we are known to part."""

from __future__ import annotations

from qualgate.scoring.mathematics import score_math
from tests.verification.references.math_pairs import BEYOND, PAIRS, differential, stored, unlike_listed


def test_answers_in_every_kind_are_judged_as_math_verify_judges_them():
    kinds = {kind for kind, *_ in stored()}
    assert (len(stored()), len(kinds)) == (PAIRS, 32)
    tally = differential(10 * len(kinds))
    assert tally.share >= 0.995, tally.differences
    assert set(tally.asked) == kinds
    assert all(0 < tally.true[kind] < tally.asked[kind] for kind in ("fractions", "radicals", "intervals", "texts"))


def test_where_both_are_known_to_part_we_say_what_is_listed():
    assert unlike_listed() == []
    assert {theirs for _, _, ours, theirs, _ in BEYOND if ours != theirs} == {True, False}


def test_a_verdict_is_of_the_answer_and_not_of_its_length():
    said = r"We add. " * 5_000 + r"$\boxed{\frac{6}{8}}$"
    assert score_math({"answer": "0.75"}, said)["math"].verdict is True
