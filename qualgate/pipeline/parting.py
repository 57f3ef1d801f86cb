"""The first difference of two answers, piece by piece: by tokens where both have token ids, else by words."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal

from qualgate.pipeline.drift_places import Spelled

ROWS = 20  # most pieces listed on each side
_WORDS = re.compile(r"\w+|\s+|[^\w\s]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A token with its id, or a word without one. text: not yet escaped."""

    text: str
    id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPieces:
    """An answer as it is compared. token_ids: () if its server sends none; spelled: None without a tokenizer."""

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str
    spelled: Spelled | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parting:
    """Where two answers part.

    position: of the first different piece, counted from 0; None if all pieces are equal. rows: both answers' pieces
    from there on, at most ROWS; None where an answer has ended. following: pieces of each answer after these rows.
    sizes: pieces of each answer. ended: both finish reasons.
    """

    unit: Literal["token", "word"]
    position: int | None
    rows: tuple[tuple[Piece | None, Piece | None], ...]
    following: tuple[int, int]
    sizes: tuple[int, int]
    ended: tuple[str, str]

    @property
    def same(self) -> bool:
        """Whether the answers are equal piece for piece and ended for the same reason."""
        return self.position is None and self.ended[0] == self.ended[1]


def part(first: AnswerPieces, second: AnswerPieces, *, same_tokenizer: bool = True) -> Parting:
    """Compare two answers. They are compared by words if one has no token ids, or if ids mean different tokens."""
    pair = (first, second)
    by_tokens = same_tokenizer and all(answer.token_ids for answer in pair)
    before, after = (_tokens(answer) if by_tokens else _words(answer) for answer in pair)
    position = next((place for place, (a, b) in enumerate(zip_longest(before, after)) if a != b), None)
    rest = [] if position is None else list(zip_longest(before[position:], after[position:]))
    shown = len(rest[:ROWS]) + (position or 0)
    return Parting(
        unit="token" if by_tokens else "word",
        position=position,
        rows=tuple(rest[:ROWS]),
        following=(0, 0) if position is None else (max(0, len(before) - shown), max(0, len(after) - shown)),
        sizes=(len(before), len(after)),
        ended=(first.finish_reason, second.finish_reason),
    )


def _words(answer: AnswerPieces) -> list[Piece]:
    return [Piece(text=word) for word in _WORDS.findall(answer.text)]


def _tokens(answer: AnswerPieces) -> list[Piece]:
    """Return the tokens of an answer. A byte that is no character is written as `\\xe2`."""
    spelled = answer.spelled(answer.token_ids) if answer.spelled else None
    texts = [token.decode("utf-8", "backslashreplace") for token in spelled or [b""] * len(answer.token_ids)]
    return [Piece(id=token, text=text) for token, text in zip(answer.token_ids, texts, strict=True)]
