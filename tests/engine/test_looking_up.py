"""n-grams alone: they are looked for while that pays, and passes without a look are counted with the cause."""

from __future__ import annotations

import pytest

from qualgate.engine.drafting import Drafting
from qualgate.speculation.looks import ALLOWED, TRIED
from qualgate.speculation.ngram import Ngram
from qualgate.speculation.propose import Asked
from qualgate.speculation.steps import Drafts

LOOK = 50e-6  # s, of each on this clock


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Each look is between two of these."""
        self.now += LOOK
        return self.now


def answered(text: list[int], a_pass: float) -> tuple[Drafts, int]:
    """The drafts of an answer, and passes that it took."""
    drafts, passes, said = Drafts(Ngram(), 0, []), 0, 0
    drafting = Drafting(drafts, Clock())
    while said < len(text):
        passes += 1
        rests = drafting.rests(1)
        offered = () if rests else drafting.draft([Asked(0, (1, 2), text[:said], len(text) - said)], 1).get(0, ())
        right = next((at for at, one in enumerate(offered) if one != text[said + at]), len(offered))
        tokens = text[said : said + right + 1]
        if rests:
            drafting.untold.setdefault(0, said)
        else:
            drafting.begins(1)
            drafting.said(0, said, len(offered), tuple(tokens), min(right, len(tokens)))
            drafting.passed(1, 1 + len(offered), a_pass * (1 + 0.2 * len(offered)))
        said += len(tokens)
    drafting.ended(0, said)
    return drafts, passes


NEVER_TWICE = list(range(10, 3_010))


def test_where_nothing_is_said_twice_looks_take_little_more_than_they_may():
    drafts, passes = answered(NEVER_TWICE, 200e-6)
    assert passes == len(NEVER_TWICE)
    looks = passes - drafts.rests.rested
    assert 2 * LOOK * (looks - TRIED) < 1.5 * ALLOWED * passes * 200e-6
    assert drafts.rests.because == "to look for drafts takes longer than they save"
    assert drafts.steps is not None
    assert [one.position for one in drafts.steps] == list(range(passes)), "each pass has its step, rested or not"


@pytest.mark.parametrize(("text", "a_pass"), [([5, 6, 7, 8] * 500, 200e-6), (NEVER_TWICE, 50e-3)])
def test_none_is_left_out_where_they_pay_or_take_next_to_nothing(text, a_pass):
    drafts, passes = answered(text, a_pass)
    assert drafts.rests.rested == 0
    assert (passes < len(text) / 4) is (text is not NEVER_TWICE)
