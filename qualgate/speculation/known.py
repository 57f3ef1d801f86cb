"""Likely continuations of a sequence, from texts: the baseline's answer, siblings' answers, its own earlier text.

A sequence that has left the baseline's answer often comes back to it: its last tokens are looked for near where it
would be in the answer, and what follows them there is the draft.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from qualgate.speculation.propose import NO_DRAFT, DraftRequest, Draft
from qualgate.speculation.text import MOST_MATCHED, Text, longest, repeated

SURE = 4  # tokens that match before a place is believed to be the new alignment: pairs match by chance
REACH = 32  # tokens on either side of the expected place

Kind = Literal["baseline", "sibling"]


class Found(NamedTuple):
    """Where a draft was found. shift: its first token's place in the answer, less the number of tokens said."""

    tokens: tuple[int, ...]
    matched: int
    shift: int


def aligned(said: Sequence[int], answer: Text, most: int, *, shift: int = 0) -> Found:
    """At most `most` tokens of the answer, from where the last tokens said stand in it.

    The answer is expected to go on at place len(said) + shift, `shift` being that of the last place believed in, 0
    before there was one. Of the places within 32 of it that follow the last 2 tokens said, the one that follows most of
    the last 8 is taken, of equals the nearest, then the earlier. Where there is none, the answer goes on as expected:
    one token may have been replaced. No tokens: it is over. With nothing said yet, all of it may follow.
    """
    expected = len(said) + shift
    tokens, tail = answer.tokens, list(said[-MOST_MATCHED:])
    whole = len(tail) == MOST_MATCHED or shift == 0  # or from the beginning on
    if whole and expected >= len(tail) and tokens[expected - len(tail) : expected] == tail:  # nearly every call
        return Found(tuple(tokens[expected : expected + most]), MOST_MATCHED, shift)
    if len(tail) >= 2 and (places := answer.after(tail[-2], tail[-1])):
        near = places[bisect_left(places, expected - REACH) : bisect_right(places, expected + REACH)]
        place, matched = longest(tail, tokens, sorted(near, key=lambda place: abs(place - expected)))
        if matched:
            return Found(tuple(tokens[place : place + most]), matched, place - len(said))
    if not tail or not 0 < expected < len(tokens):
        return Found((), 0, shift)
    return Found(tuple(tokens[expected : expected + most]), int(tokens[expected - 1] == tail[-1]), shift)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What is known of one row before it says anything: token ids, the answers with the token that ended them."""

    prompt: Sequence[int] = ()
    baseline: Sequence[int] = ()
    siblings: Sequence[Sequence[int]] = ()


class _Row:
    __slots__ = ("answers", "own", "prompt_tokens", "shifts")

    def __init__(self, sources: Sources) -> None:
        kinds: dict[tuple[int, ...], Kind] = {tuple(sources.baseline): "baseline"}
        for sibling in sources.siblings:  # mostly they say what the baseline said
            kinds.setdefault(tuple(sibling), "sibling")
        self.answers: list[tuple[Kind, Text]] = [(kind, Text(answer)) for answer, kind in kinds.items() if answer]
        self.shifts = [0] * len(self.answers)
        self.own = Text(sources.prompt)
        self.prompt_tokens = len(self.own.tokens)


class Known:
    """The proposer of an evaluation: for each row its baseline's answer, its siblings' answers, its own text.

    A row only grows: what it has said by one call begins with what it had said by the call before. Calls remember where
    the row was last in each answer, which moves drafts and never tokens.
    """

    name = "known answers"
    runs_model = False
    broken = 0

    def __init__(self, rows: Iterable[Sources]) -> None:
        self._rows = [_Row(sources) for sources in rows]

    def propose(self, asked: Sequence[DraftRequest]) -> list[Draft]:
        """See `Proposer`. The baseline's answer, the siblings', the own text: whichever matches most tokens said, of
        equals the first."""
        return [self._draft(one.row, one.generated, one.most) for one in asked]

    def ended(self, row: int) -> None:
        """See `Proposer`: texts are not large."""

    def _draft(self, row: int, said: Sequence[int], most: int) -> Draft:
        if most <= 0:
            return NO_DRAFT
        known = self._rows[row]
        best = NO_DRAFT
        for index, (kind, answer) in enumerate(known.answers):
            found = aligned(said, answer, most, shift=known.shifts[index])
            if found.matched >= SURE:
                known.shifts[index] = found.shift
            if found.tokens and (found.matched > best.matched or not best.tokens):
                best = Draft(found.tokens, kind, found.matched)
                if found.matched == MOST_MATCHED:
                    return best
        own = known.own
        own.tokens.extend(said[len(own.tokens) - known.prompt_tokens :])
        mine = repeated(own, most)
        return mine if mine.matched > best.matched else best
