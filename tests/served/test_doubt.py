"""When a stream is not taken at its word."""

from __future__ import annotations

import pytest

from qualgate.served.doubt import doubtful, rearranged


@pytest.mark.parametrize(
    ("texts", "calls", "doubted"),
    [
        (["ye", "s"], [], False),
        (["no", "", "no"], [], True),
        ([], [['{"a"', ": 1}"]], False),
        ([], [[": 1}", '{"a"']], True),
        ([], [['{"a"']], False),  # came in one piece: whatever it is, its model said it
        ([], [["[1", "2", "2", "]"]], True),
    ],
)
def test_a_stream_is_doubted_for_pieces_alike_in_a_row_and_arguments_that_are_no_json(texts, calls, doubted):
    assert doubtful([texts], calls) is doubted


STREAMED = (3, "", "no no", (("look", '{"a": 12}'),))


@pytest.mark.parametrize(
    ("whole", "taken"),
    [
        (STREAMED, False),
        ((3, "", "no", STREAMED[3]), True),
        ((3, "", "no no", (("look", '{"a": 21}'),)), True),
        ((2, "", "no", STREAMED[3]), False),  # of fewer tokens: another answer
        ((3, "", "no, no", STREAMED[3]), False),  # says what the stream never said
    ],
)
def test_the_whole_answer_is_taken_where_the_stream_said_it_with_more_or_in_another_order(whole, taken):
    assert rearranged(STREAMED, whole) is taken
