"""What a pass accepts, against decoding one token at a time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qualgate.engine.speculation.accept import accepted

tokens = st.integers(0, 3)


@given(
    st.functions(like=lambda prefix: None, returns=tokens, pure=True),
    st.lists(tokens, max_size=6),
    st.integers(0, 6),
    st.sets(tokens, max_size=2),
    st.integers(0, 8),
)
def test_a_verified_draft_says_what_one_token_at_a_time_says(model, noise, agreeing, stop_ids, room):
    """The model is any function of the tokens so far; the draft follows it for a while."""
    draft = [*one_at_a_time(model, set(), agreeing), *noise]
    would = [model(tuple(draft[:i])) for i in range(len(draft) + 1)]
    result = accepted(draft, would, stop_ids, room)

    alone = one_at_a_time(model, stop_ids, room)
    assert list(result.tokens) == alone[: len(result.tokens)]
    assert result.ended == (bool(result.tokens) and result.tokens[-1] in stop_ids)
    assert list(result.tokens[: result.count]) == draft[: result.count]
    over = result.ended or len(result.tokens) == room
    if over:
        assert list(result.tokens) == alone
        assert len(result.tokens) - result.count in (0, 1)
    else:  # the draft was used as far as it goes, and one token more was said
        assert len(result.tokens) == result.count + 1
        assert result.count == len(draft) or draft[result.count] != result.tokens[-1]


def one_at_a_time(model: Callable[[tuple[int, ...]], int], stop_ids: set[int], room: int) -> list[int]:
    said: list[int] = []
    while len(said) < room:
        said.append(model(tuple(said)))
        if said[-1] in stop_ids:
            break
    return said


def test_a_draft_without_all_of_the_models_own_tokens_is_a_defect_of_the_caller():
    with pytest.raises(AssertionError):
        accepted([1, 2], [1, 2], (), 9)
