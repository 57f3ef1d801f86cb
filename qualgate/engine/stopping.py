"""Answers that end at a text, such as a line break, instead of at a token of the model's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

EXTRA_TOKENS = 8  # decoded beyond what the longest text can take: the first of them may come out cut


class Stops:
    """For each row the texts that end it; None: only the model's own tokens do, and the text is as it was said.

    The text of a row that has texts (none of them, too) is what lm-eval makes of an answer: without special tokens,
    cut at each text in turn, the end-of-text token's own spelling among them.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, until: Sequence[tuple[str, ...] | None]) -> None:
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
        """Whether a row has texts to stop at."""
        return any(self._until)

    def watches(self, row: int) -> bool:
        """Whether this row has."""
        return bool(self._until[row])

    def reached(self, row: int, tokens: Sequence[int]) -> bool:
        """Whether the row has said one of its texts. Called after every token, it looks at the last few alone."""
        texts = self._until[row] or ()
        # A token that is text has at least a byte, so the longest text lies within so many of them.
        most, tail = max((len(text.encode()) for text in texts), default=0) + EXTRA_TOKENS, 0
        for at in range(len(tokens) - 1, -1, -1):
            tail += tokens[at] not in self._special
            if tail == most:
                return self._holds(texts, tokens[at:]) and self._holds(texts, tokens)
        return self._holds(texts, tokens)

    def text(self, row: int, tokens: Sequence[int]) -> str:
        """The row's answer, from its tokens without the end-of-turn token."""
        texts = self._until[row]
        said = self._decode(tokens, plain=texts is not None)
        for text in texts or ():
            said = said.split(text)[0]
        return said

    def _holds(self, texts: Sequence[str], tokens: Sequence[int]) -> bool:
        said = self._decode(tokens, plain=True)
        return any(text in said for text in texts)

    def _decode(self, tokens: Sequence[int], *, plain: bool) -> str:
        decoded = self._tokenizer.decode(list(tokens), skip_special_tokens=plain)
        assert isinstance(decoded, str)
        return decoded
