"""Count the tokens of an answer's thought."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

from qualgate.records import NO_REASONING


def thought_tokens(tokens: Sequence[int], way: str, decode: Callable[[Sequence[int]], str]) -> int | None:
    """Return the tokens of the thought without its markers; 0 if there is none, None if the case has no `reasoning`.

    tokens: of the answer, without the end-of-turn token; way: a mode of `scoring.reasoning`; decode: text of the first
    tokens. A token shared by two parts belongs to the one that it ends. Takes O(log tokens) decodings per thought.
    """
    if way == NO_REASONING:
        return None
    from qualgate.scoring.reasoning import split  # every scorer with it, for which a first answer would wait

    text = decode(tokens)

    def tokens_up_to(characters: int) -> int:
        """Return the fewest tokens that decode to so many of the text's first characters."""
        first = text[:characters]
        return bisect_left(range(len(tokens)), True, key=lambda count: decode(tokens[:count]).startswith(first))

    return sum(tokens_up_to(end) - tokens_up_to(start) for start, end in split(text, way).spans)
