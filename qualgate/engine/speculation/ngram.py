"""Drafts from earlier text: of the same answer and its prompt (n-gram), or of other answers as well (suffix). Both
follow the longest match of the last tokens, 2 to 8 of them; neither costs more than the lookup."""

from __future__ import annotations

from collections.abc import Sequence

from qualgate.engine.speculation.propose import Draft, DraftRequest
from qualgate.engine.speculation.text import MOST_MATCHED, TRIED, Text, longest, repeated

BREAK = -1  # stands between two answers and is no token
REMEMBERED = 2**19  # tokens of answers that ended, the latest: with their index some 100 MB at most


class Ngram:
    """Draft what followed the last tokens at their previous occurrence in the row's own text (prompt lookup)."""

    name = "ngram"
    runs_model = False
    broken = 0

    def __init__(self) -> None:
        self._texts: dict[int, Text] = {}

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """See `Proposer`."""
        return [self._draft(request) for request in requests]

    def ended(self, row: int) -> None:
        """See `Proposer`."""
        self._texts.pop(row, None)

    def _draft(self, request: DraftRequest) -> Draft:
        text = self._texts.setdefault(request.row, Text(()))
        text.go_on([*request.prompt, *request.generated])
        draft = repeated(text, request.most)
        return Draft(draft.tokens, self.name, draft.matched) if draft.tokens else draft


class Suffix(Ngram):
    """Draft from an earlier answer as well, whichever match is longer; of equals the row's own (SuffixDecoding
    2411.04975 keeps a tree of them; here it is an index of pairs, of which the latest are tried)."""

    name = "suffix"

    def __init__(self) -> None:
        super().__init__()
        self._others = Text(())

    def ended(self, row: int) -> None:
        """See `Proposer`: its text serves later drafts."""
        text = self._texts.pop(row, None)
        if text is not None:
            self._others.tokens += [*text.tokens, BREAK]
        if len(self._others.tokens) > REMEMBERED:
            self._others = Text(self._others.tokens[-REMEMBERED // 2 :])

    def _draft(self, request: DraftRequest) -> Draft:
        """Return the longer match of the row's own text and of other answers; a draft from others ends at a text's
        end."""
        own_draft = super()._draft(request)
        tail = [*request.prompt[-MOST_MATCHED:], *request.generated[-MOST_MATCHED:]][-MOST_MATCHED:]
        if own_draft.matched == len(tail) or len(tail) < 2:
            return own_draft
        others = self._others.tokens
        places = [
            candidate
            for candidate in self._others.after(tail[-2], tail[-1])
            if others[candidate : candidate + 1] not in ([], [BREAK])
        ]
        places = places[: -TRIED - 1 : -1]
        place, matched = longest(tail, others, places)
        if matched <= own_draft.matched:
            return own_draft
        following = others[place : place + request.most]
        following = following[: following.index(BREAK)] if BREAK in following else following
        return Draft(tuple(following), self.name, matched) if following else own_draft
