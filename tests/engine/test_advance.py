"""What an answer says of what was offered: what it would have said one token at a time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import assume, given
from hypothesis import strategies as st

from qualgate.engine.advance import Advance, advance
from qualgate.engine.request import Request
from qualgate.engine.sampling import DEAD_END

TOKENS = st.lists(st.integers(0, 3), max_size=12)


def a_pair(tokens: Sequence[int]) -> bool:
    """The text that ends an answer: the same token twice."""
    return any(one == other for one, other in pairwise(tokens))


def one_at_a_time(
    request: Request, said: list[int], offered: list[int], would: list[int], finite: list[bool]
) -> tuple[list[int], str | None]:
    """A token, and then the next if none is wrong so far and the one before it was offered."""
    tokens: list[int] = []
    for place, token in enumerate(would):
        tokens.append(token)
        if not finite[place]:
            return tokens, "broken"
        if token in request.stop_ids:
            return tokens, "eos"
        if request.stops is not None and request.stops([*said, *tokens]):
            return tokens, "stop"
        if len(said) + len(tokens) == request.max_new_tokens:
            return tokens, "length"
        if place < len(offered) and offered[place] != token:
            break
    return tokens, None


@given(
    said=TOKENS, would=TOKENS, changed=st.integers(0, 15), more=st.booleans(), room=st.integers(1, 15),
    stop_ids=st.frozensets(st.integers(0, 3), max_size=1), watched=st.booleans(), broken=st.integers(0, 20),
)  # fmt: skip
def test_what_is_said_is_what_one_token_at_a_time_says(said, would, changed, more, room, stop_ids, watched, broken):
    """The last token that would be said follows a whole draft (`more`), or stands where the last was offered."""
    assume(would and not a_pair(said))
    offered = would[: len(would) - more]
    if changed < len(offered):
        offered[changed] = (offered[changed] + 1) % 4
    finite = [place != broken for place in range(len(would))]
    request = Request(
        prompt=(0,), max_new_tokens=len(said) + room, stop_ids=stop_ids, stops=a_pair if watched else None
    )
    got = advance(request, said, offered, would, finite)
    tokens, reason = one_at_a_time(request, said, offered, would, finite)
    assert (list(got.tokens), got.reason) == (tokens, reason)
    assert got.agreed == next(
        (at for at, pair in enumerate(zip(tokens, offered, strict=False)) if len(set(pair)) > 1),
        min(len(tokens), len(offered)),
    )


def test_the_first_that_ends_an_answer_names_its_end():
    request = Request(prompt=(0,), max_new_tokens=3, stop_ids=frozenset({9}), stops=a_pair)
    ways = {
        (9, True): Advance(tokens=(1, 9), agreed=2, reason="eos"),
        (9, False): Advance(tokens=(1, 9), agreed=2, reason="broken"),
        (1, True): Advance(tokens=(1, 1), agreed=2, reason="stop"),
        (2, True): Advance(tokens=(1, 2, 4), agreed=3, reason="length"),
    }
    for (token, finite), expected in ways.items():
        assert advance(request, [], [1, token, 4, 4], [1, token, 4, 4], [True, finite, True, True]) == expected
    for finite, reason in ((True, "dead_end"), (False, "broken")):
        assert advance(request, [], [1], [1, DEAD_END], [True, finite]) == Advance(tokens=(1,), agreed=1, reason=reason)
