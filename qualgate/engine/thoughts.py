"""How many of an answer's tokens its thought takes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

from qualgate.records import NO_REASONING


def thought_tokens(tokens: Sequence[int], way: str, decode: Callable[[Sequence[int]], str]) -> int | None:
    """Tokens of the thought, those of its markers not; 0 where there is none, None where the case has no `reasoning`.

    tokens: of the answer, the end-of-turn token not; way: of `scoring.reasoning`; decode: text of the first tokens. Of
    tokens that two of them share, each is whose it ends. Takes O(log tokens) decodings for each thought.
    """
    if way == NO_REASONING:
        return None
    from qualgate.scoring.reasoning import split  # every scorer with it, for which a first answer would wait

    text = decode(tokens)

    def said(characters: int) -> int:
        """The fewest tokens that say so many of the text's first characters."""
        first = text[:characters]
        return bisect_left(range(len(tokens)), True, key=lambda count: decode(tokens[:count]).startswith(first))

    return sum(said(end) - said(start) for start, end in split(text, way).spans)
