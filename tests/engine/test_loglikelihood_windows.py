"""Tokens of likelihood requests are told apart as lm-eval tells them apart."""

from __future__ import annotations

import pytest

from qualgate.engine.loglikelihood_windows import continuation_window, prefix_token, rolling_windows
from qualgate.engine.prompts import load_tokenizer
from qualgate.errors import UsageError
from qualgate.quant.model_files import read_files
from qualgate.refmodel import PATH


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(read_files(PATH))


@pytest.mark.parametrize("length", [1, 2, 7, 8, 9, 16, 17, 40])
def test_every_token_of_a_text_is_weighed_once_with_as_much_before_it_as_fits(tokenizer, length):
    """Against lm-eval's own windows where it is installed, and against what windows are for."""
    text = "4+1+0=5\nAnswer: 17"
    tokens = tuple(tokenizer.encode(text, add_special_tokens=False))
    found = rolling_windows(tokenizer, text, length)
    assert tuple(token for _, weighed in found for token in weighed) == tokens
    assert all(len(before) + len(weighed) <= length + 1 for before, weighed in found)
    assert found[0][0] == (prefix_token(tokenizer),)
    assert all(len(before) + len(weighed) == length + 1 for before, weighed in found[1:])
    utils = pytest.importorskip("lm_eval.utils")
    theirs = utils.get_rolling_token_windows(list(tokens), prefix_token(tokenizer), length, 1)
    pairs = [utils.make_disjoint_window(pair) for pair in theirs]
    assert [[list(part) for part in pair] for pair in found] == [[*map(list, pair)] for pair in pairs]


def test_spaces_go_over_to_the_continuation_and_both_sides_are_the_whole(tokenizer):
    before, after = continuation_window(tokenizer, "1 + 2 =  ", "3")
    assert tokenizer.decode(before) == "1 + 2 ="
    assert tokenizer.decode(after) == "  3"
    start = (prefix_token(tokenizer),)
    for context in ("", " "):
        assert continuation_window(tokenizer, context, "3")[0] == start
    with pytest.raises(UsageError, match="adds no token"):
        continuation_window(tokenizer, "1", "")
    with pytest.raises(UsageError, match="without a token"):
        rolling_windows(tokenizer, "", 8)
