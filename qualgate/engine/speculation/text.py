"""Tokens of a text, with an index of earlier occurrences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from qualgate.engine.speculation.propose import NO_DRAFT, Draft

MOST_MATCHED = 8  # of the last tokens said; away from the expected place at least 2, for one stands nearly everywhere
TRIED = 32  # latest places in a row's own text: what is said over and over has hundreds
NEAR = 64  # tokens from the end, within which a text mostly leaves another


def agreed(left: Sequence[int], right: Sequence[int]) -> int:
    """Return the length of the common prefix of two texts."""
    shorter = min(len(left), len(right))
    start = max(0, shorter - NEAR)
    if left[:start] != right[:start]:
        start = 0
    return next((index for index in range(start, shorter) if left[index] != right[index]), shorter)


class Text:
    """Tokens, and the places that each pair of neighbours stands before. It may grow at its end.

    Pairs are indexed when they are first asked for: an answer that is followed to its end never needs it.
    """

    __slots__ = ("_after", "_indexed", "tokens")

    def __init__(self, tokens: Iterable[int]) -> None:
        self.tokens = list(tokens)
        self._after: dict[tuple[int, int], list[int]] = {}
        self._indexed = 1  # the last place looked at; place 2 is the first with a pair before it

    def after(self, first: int, second: int) -> Sequence[int]:
        """Return every place, ascending, that follows these two tokens."""
        tokens, index = self.tokens, self._after
        for place in range(self._indexed + 1, len(tokens)):
            index.setdefault((tokens[place - 2], tokens[place - 1]), []).append(place)
        self._indexed = max(self._indexed, len(tokens) - 1)
        return index.get((first, second), ())

    def go_on(self, tokens: Sequence[int]) -> None:
        """Become `tokens`, which mostly extend the present ones; what differs is dropped."""
        shared = agreed(self.tokens, tokens)
        for place in range(self._indexed, max(shared, 2) - 1, -1):
            if place < len(self.tokens):
                self._after[self.tokens[place - 2], self.tokens[place - 1]].pop()
        self._indexed = min(self._indexed, max(shared - 1, 1))
        self.tokens[shared:] = tokens[shared:]


def repeated(text: Text, most: int) -> Draft:
    """Return what followed the previous occurrence of a text's last tokens (prompt and answer).

    It takes the longest match of 2 to 8 tokens among the 32 latest, of equals the latest. If the text ends before
    `most` tokens, the draft repeats itself: a loop is drafted whole.
    """
    tokens = text.tokens
    tail = tokens[-MOST_MATCHED:]
    if len(tail) < 2:
        return NO_DRAFT
    place, matched = longest(tail, tokens, text.after(tail[-2], tail[-1])[: -TRIED - 1 : -1])
    if not matched:
        return NO_DRAFT
    following = tokens[place : place + most]
    if len(following) < most:
        following = (following * -(-most // len(following)))[:most]
    return Draft(tuple(following), "own", matched)


def longest(tail: Sequence[int], tokens: Sequence[int], places: Iterable[int]) -> tuple[int, int]:
    """Return (place, matching tokens of the tail) for the best of these places, all of which follow its last two
    tokens."""
    best, best_matched = 0, 0
    for place in places:
        matched, most = 2, min(len(tail), place)
        while matched < most and tokens[place - 1 - matched] == tail[-1 - matched]:
            matched += 1
        if matched > best_matched:
            best, best_matched = place, matched
            if matched == len(tail):
                break
    return best, best_matched
