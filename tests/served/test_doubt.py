"""When a stream is not taken at its word."""

from __future__ import annotations

import pytest

from qualgate.served.doubt import doubtful, misput, otherwise, rearranged


@pytest.mark.parametrize(
    ("texts", "calls", "doubted"),
    [
        (["ye", "s"], [], False),
        (["no", "", "no"], [], True),
        (["y", "es", "yes"], [], True),
        (["y", "es", "yep"], [], False),
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
        ((3, "", "no no", (("look", '{"a":'), ("look", " 12}"))), True),  # two calls, which the stream made one
        ((3, "", "no no", (("look", '{"a":'), ("book", " 12}"))), False),
        ((3, "", "no no\n", STREAMED[3]), False),  # SGLang streams blanks between calls and not whole
    ],
)
def test_the_whole_answer_is_taken_where_the_stream_said_it_with_more_or_in_another_order(whole, taken):
    assert rearranged(STREAMED, whole) is taken


CALL = ("look", '{"a": 12}')


@pytest.mark.parametrize(
    ("streamed", "whole", "differs", "surely"),
    [
        (("", "yes", ()), ("", "yes\n", ()), "", False),
        (("", "", (CALL,)), ("", "", (("look", '{"a":12}'),)), "", False),
        (("Hm.", "yes", ()), ("", "yes", ()), "", False),
        (("Hm.", "yes", ()), ("", "", ()), "", False),  # it answers by streams alone
        (("", "yes", ()), ("Hm.", "yes", ()), "another thought", False),
        (("", "yes yes", ()), ("", "yes", ()), "another text", True),
        (("", "yesyes", ()), ("", "yesyes", ()), "", False),
        (("", "ye", ()), ("", "yes", ()), "another text", False),
        (("", "", (("look", '{"a": 12}{"a": 3}'),)), ("", "", (CALL, CALL)), "1 call in place of 2", True),
        (("", "", (("look", "{"),)), ("", "", (("look", "["),)), "other calls", False),
    ],
)
def test_in_what_a_stream_is_another_answer_and_whether_it_was_surely_put_together_so(streamed, whole, differs, surely):
    assert otherwise(streamed, whole) == differs
    assert not differs or misput(streamed, whole) is surely
