"""Was a stream's answer doubled or shuffled on its way? Where no tokens are told, nothing but its pieces shows it.

Two pieces alike in a row may be a repeat or two words; arguments that are no JSON may be the model's. So such an answer
is asked for once more, whole, and taken so where it is what the stream said without the repeat, or in another order.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any


def doubtful(texts: Iterable[Sequence[str]], arguments: Iterable[Sequence[str]]) -> bool:
    """Whether pieces may have come twice or in another order. texts: of the answer and of its thought; arguments: of
    each call."""
    calls = [pieces for pieces in map(_speaking, arguments) if len(pieces) > 1]
    return any(map(_doubled, [*map(_speaking, texts), *calls])) or not all(_is_json("".join(one)) for one in calls)


def _speaking(pieces: Sequence[str]) -> list[str]:
    return [piece for piece in pieces if piece]


def _doubled(pieces: Sequence[str]) -> bool:
    return any(before == after for before, after in pairwise(pieces))


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def rearranged(streamed: Sequence[Any], whole: Sequence[Any]) -> bool:
    """Whether the stream said what the whole answer says, but with more of it or in another order. Each: the number of
    tokens that the server counts, thought, text and calls."""
    if streamed[0] != whole[0]:
        return False
    ours, theirs = json.dumps(streamed), json.dumps(whole)
    return ours != theirs and Counter(theirs) <= Counter(ours)
