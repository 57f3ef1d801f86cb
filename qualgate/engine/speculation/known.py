"""Likely continuations of a sequence, from texts: the baseline's answer, siblings' answers, its own earlier text.

A sequence that has left the baseline's answer often comes back to it: its last tokens are looked for near where it
would be in the answer, and what follows them there is the draft.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from qualgate.engine.speculation.propose import NO_DRAFT, Draft, DraftRequest
from qualgate.engine.speculation.text import MOST_MATCHED, Text, longest, repeated

SURE = 4  # tokens that match before a place is believed to be the new alignment: pairs match by chance
REACH = 32  # tokens on either side of the expected place

Kind = Literal["baseline", "sibling"]


class Found(NamedTuple):
    """A draft in a text. shift: its first token's place in the answer, minus the number of generated tokens."""

    tokens: tuple[int, ...]
    matched: int
    shift: int


def aligned(generated: Sequence[int], answer: Text, most: int, *, shift: int = 0) -> Found:
    """Return at most `most` tokens of the answer, from behind the place that matches the last generated tokens.

    The answer is expected to go on at place len(generated) + shift, `shift` from the last accepted place, 0 at first.
    Of the places within 32 of it that follow the last 2 generated tokens, the one that matches most of the last 8 is
    taken; of equals the nearest, then the earlier. Without one the answer goes on as expected: one token may have been
    replaced. No tokens: it is over. Before the first token all of the answer may follow.
    """
    expected = len(generated) + shift
    tokens, tail = answer.tokens, list(generated[-MOST_MATCHED:])
    has_full_tail = len(tail) == MOST_MATCHED or shift == 0  # or from the beginning on
    if has_full_tail and expected >= len(tail) and tokens[expected - len(tail) : expected] == tail:  # nearly every call
        return Found(tuple(tokens[expected : expected + most]), MOST_MATCHED, shift)
    if len(tail) >= 2 and (places := answer.after(tail[-2], tail[-1])):
        nearby_places = places[bisect_left(places, expected - REACH) : bisect_right(places, expected + REACH)]
        place, matched = longest(tail, tokens, sorted(nearby_places, key=lambda place: abs(place - expected)))
        if matched:
            return Found(tuple(tokens[place : place + most]), matched, place - len(generated))
    if not tail or not 0 < expected < len(tokens):
        return Found((), 0, shift)
    return Found(tuple(tokens[expected : expected + most]), int(tokens[expected - 1] == tail[-1]), shift)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What is known of one row at its start: token ids, the answers with their end tokens."""

    prompt: Sequence[int] = ()
    baseline: Sequence[int] = ()
    siblings: Sequence[Sequence[int]] = ()


class _Row:
    __slots__ = ("answers", "own", "prompt_tokens", "shifts")

    def __init__(self, sources: Sources) -> None:
        """Index one row's texts. Equal answers are kept once, as the baseline's if it is among them."""
        kinds: dict[tuple[int, ...], Kind] = {tuple(sources.baseline): "baseline"}
        for sibling in sources.siblings:  # mostly they say what the baseline said
            kinds.setdefault(tuple(sibling), "sibling")
        self.answers: list[tuple[Kind, Text]] = [(kind, Text(answer)) for answer, kind in kinds.items() if answer]
        self.shifts = [0] * len(self.answers)
        self.own = Text(sources.prompt)
        self.prompt_tokens = len(self.own.tokens)


class Known:
    """The proposer of an evaluation: for each row its baseline's answer, its siblings' answers, its own text.

    A row only grows: its tokens at one call begin with those at the call before. Calls remember the row's last place in
    each answer, which affects drafts and never tokens.
    """

    name = "known answers"
    runs_model = False
    broken = 0

    def __init__(self, rows: Iterable[Sources]) -> None:
        self._rows = [_Row(sources) for sources in rows]

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """See `Proposer`. Uses the longest match in the baseline's answer, the siblings', or the own text; of equals
        the first."""
        return [self._draft(request.row, request.generated, request.most) for request in requests]

    def ended(self, row: int) -> None:
        """See `Proposer`: texts are not large."""

    def _draft(self, row: int, generated: Sequence[int], most: int) -> Draft:
        """Return the best of a row's drafts, at most `most` tokens: from known answers, or from its own text.

        A known answer that matches as many tokens as are compared is taken at once.
        """
        if most <= 0:
            return NO_DRAFT
        known = self._rows[row]
        best = NO_DRAFT
        for index, (kind, answer) in enumerate(known.answers):
            match = aligned(generated, answer, most, shift=known.shifts[index])
            if match.matched >= SURE:
                known.shifts[index] = match.shift
            if match.tokens and (match.matched > best.matched or not best.tokens):
                best = Draft(match.tokens, kind, match.matched)
                if match.matched == MOST_MATCHED:
                    return best
        own_text = known.own
        own_text.tokens.extend(generated[len(own_text.tokens) - known.prompt_tokens :])
        own_draft = repeated(own_text, most)
        return own_draft if own_draft.matched > best.matched else best
