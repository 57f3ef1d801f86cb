"""Answers that end at a text, such as a line break, and not at one of the model's stop tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

EXTRA_TOKENS = 8  # decoded beyond what the longest text can take: the first of them may come out cut


class Stops:
    """The stop texts of each row; None: only the model's stop tokens end it, and its text stays as generated.

    The text of a row with stop texts, even an empty list, is what lm-eval makes of an answer: without special tokens,
    cut at each text in turn, the end-of-text token's spelling among them.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, until: Sequence[tuple[str, ...] | None]) -> None:
        """Prepare the stop texts. until: those of each row, None for a row without; the end token's text stops it
        too."""
        self._tokenizer = tokenizer
        added: dict[int, Any] = getattr(tokenizer, "added_tokens_decoder", {})
        self._special = frozenset(number for number, token in added.items() if token.special)  # which say no text
        end = tokenizer.eos_token_id
        end_texts = (self._decode([end], plain=False),) if isinstance(end, int) else ()
        self._until: list[tuple[str, ...] | None] = [
            None if texts is None else tuple(dict.fromkeys(text for text in (*texts, *end_texts) if text))
            for texts in until
        ]

    @property
    def any(self) -> bool:
        """Whether any row has stop texts."""
        return any(self._until)

    def watches(self, row: int) -> bool:
        """Return whether this row has stop texts."""
        return bool(self._until[row])

    def reached(self, row: int, tokens: Sequence[int]) -> bool:
        """Return whether the row contains one of its stop texts. Called after every token, so it looks at the last few
        first; since a tail may decode otherwise at its beginning, what it shows is confirmed on the whole row."""
        texts = self._until[row] or ()
        # A token that is text has at least a byte, so the longest text lies within so many of them.
        limit, tail = max((len(text.encode()) for text in texts), default=0) + EXTRA_TOKENS, 0
        for start in range(len(tokens) - 1, -1, -1):
            tail += tokens[start] not in self._special
            if tail == limit:
                return self._holds(texts, tokens[start:]) and self._holds(texts, tokens)
        return self._holds(texts, tokens)

    def text(self, row: int, tokens: Sequence[int]) -> str:
        """Return the row's answer, from its tokens without the end-of-turn token."""
        texts = self._until[row]
        answer = self._decode(tokens, plain=texts is not None)
        for text in texts or ():
            answer = answer.split(text)[0]
        return answer

    def _holds(self, texts: Sequence[str], tokens: Sequence[int]) -> bool:
        answer = self._decode(tokens, plain=True)
        return any(text in answer for text in texts)

    def _decode(self, tokens: Sequence[int], *, plain: bool) -> str:
        decoded = self._tokenizer.decode(list(tokens), skip_special_tokens=plain)
        assert isinstance(decoded, str)
        return decoded
