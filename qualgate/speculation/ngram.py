"""Drafts from what was said before: in the same answer and its prompt (n-gram), or in other answers as well (suffix).

Both follow the longest match of the last tokens, 2 to 8 of them; neither costs more than looking it up.
"""

from __future__ import annotations

from collections.abc import Sequence

from qualgate.speculation.propose import DraftRequest, Draft
from qualgate.speculation.text import MOST_MATCHED, TRIED, Text, longest, repeated

BREAK = -1  # stands between two answers and is no token
REMEMBERED = 2**19  # tokens of answers that ended, the latest: with their index some 100 MB at most


class Ngram:
    """What followed the last tokens where they stood last in the row's own text (prompt lookup)."""

    name = "ngram"
    runs_model = False
    broken = 0

    def __init__(self) -> None:
        self._texts: dict[int, Text] = {}

    def propose(self, asked: Sequence[DraftRequest]) -> list[Draft]:
        """See `Proposer`."""
        return [self._draft(one) for one in asked]

    def ended(self, row: int) -> None:
        """See `Proposer`."""
        self._texts.pop(row, None)

    def _draft(self, one: DraftRequest) -> Draft:
        text = self._texts.setdefault(one.row, Text(()))
        text.go_on([*one.prompt, *one.generated])
        found = repeated(text, one.most)
        return Draft(found.tokens, self.name, found.matched) if found.tokens else found


class Suffix(Ngram):
    """Or where they stood in an answer that ended before, whichever match is longer; of equals the row's own
    (SuffixDecoding 2411.04975 keeps a tree of them; here it is an index of pairs, of which the latest are tried)."""

    name = "suffix"

    def __init__(self) -> None:
        super().__init__()
        self._others = Text(())

    def ended(self, row: int) -> None:
        """See `Proposer`: its text drafts for those that come later."""
        text = self._texts.pop(row, None)
        if text is not None:
            self._others.tokens += [*text.tokens, BREAK]
        if len(self._others.tokens) > REMEMBERED:
            self._others = Text(self._others.tokens[-REMEMBERED // 2 :])

    def _draft(self, one: DraftRequest) -> Draft:
        own = super()._draft(one)
        tail = [*one.prompt[-MOST_MATCHED:], *one.generated[-MOST_MATCHED:]][-MOST_MATCHED:]
        if own.matched == len(tail) or len(tail) < 2:
            return own
        others = self._others.tokens
        places = [at for at in self._others.after(tail[-2], tail[-1]) if others[at : at + 1] not in ([], [BREAK])]
        places = places[: -TRIED - 1 : -1]
        place, matched = longest(tail, others, places)
        if matched <= own.matched:
            return own
        found = others[place : place + one.most]
        found = found[: found.index(BREAK)] if BREAK in found else found
        return Draft(tuple(found), self.name, matched) if found else own
