"""What is gathered of an engine's events: when tokens came, and how long one waited for the next."""

from __future__ import annotations

from qualgate.engine.answers import Answers
from qualgate.engine.request import Ended, Spoken


def said(seconds: float, *tokens: tuple[int, int]) -> Spoken:
    """tokens: (request, position) each."""
    return Spoken(
        requests=[request for request, _ in tokens], positions=[position for _, position in tokens],
        tokens=[7] * len(tokens), logprobs=[-0.1] * len(tokens), margins=[1.0] * len(tokens), states=None,
        seconds=seconds,
    )  # fmt: skip


def test_the_longest_wait_is_between_two_passes_of_one_answer_and_none_before_its_first_token() -> None:
    answers = Answers(4)
    answers(said(1.0, (0, 0), (1, 0)))
    answers(said(1.5, (0, 1), (0, 2), (0, 3)))  # a draft: three tokens at once
    answers(said(9.0, (2, 0), (2, 1)))
    answers(said(9.25, (0, 4), (3, 0)))
    answers(said(9.5, (0, 5), (0, 6)))
    answers(Ended(request=0, reason="eos", seconds=60.0))
    assert answers.max_gap == [7.75, None, 0.0, None]
    assert (answers.first, answers.last) == ([1.0, 1.0, 9.0, 9.25], [9.5, 1.0, 9.0, 9.25])
