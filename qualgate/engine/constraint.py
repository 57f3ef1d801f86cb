"""The tokens that a constraint admits after a text. Only this module uses llguidance to generate.

A mask compares its state with the given text: it rewinds what it read beyond it and reads what is missing. So drafts
advance it and rejections rewind it without any message, as in `speculation/propose`. llguidance never leaves an error
state; a fresh matcher then replaces it, so no draft can spoil what follows.

An end token is admitted exactly where the grammar may end; a grammar's own end tokens are not.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from qualgate.engine.speculation.text import agreed
from qualgate.errors import UsageError, one_line
from qualgate.errors.extras import pip_install

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class Vocabulary:
    """A tokenizer's tokens in llguidance's form. stop_ids: tokens that end an answer."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, stop_ids: Collection[int]) -> None:
        """Raise UsageError if the tokens cannot be read or llguidance is missing."""
        try:
            self.tokens: Any = _library_tokens(tokenizer, tuple(sorted(stop_ids)))
        except ImportError:
            raise UsageError(f"Constraints need llguidance. Install it: {pip_install('llguidance')}") from None
        except Exception as error:  # of any kind: it reads what the folder's author wrote
            raise UsageError(
                f"The tokenizer in {tokenizer.name_or_path} cannot be used with constraints: {one_line(error)}. "
                "They need one with a tokenizer.json."
            ) from None
        self.stop_ids = frozenset(stop_ids)


@lru_cache(maxsize=4)  # a second for large vocabularies
def _library_tokens(tokenizer: PreTrainedTokenizerBase, stop_ids: tuple[int, ...]) -> Any:
    from llguidance.hf import from_tokenizer

    return from_tokenizer(tokenizer, eos_token=list(stop_ids) or None)  # type: ignore[arg-type]


class GrammarMask:
    """The mask of one request. grammar: as `scoring.constraint.grammar_of` writes it."""

    def __init__(self, vocabulary: Vocabulary, grammar: str) -> None:
        """Raise UsageError for a grammar that does not compile."""
        from llguidance import LLMatcher, LLParserLimits

        self._vocabulary = vocabulary
        limits = LLParserLimits(verbose_errors=False)
        self._fresh = LLMatcher(vocabulary.tokens, grammar, log_level=0, limits=limits)
        if self._fresh.is_error():
            raise UsageError(f"A constraint cannot be used: {' '.join(self._fresh.get_error().split())[:300]}")
        self._matcher = self._fresh.deep_copy()
        self._read: list[int] = []

    def admitted(self, generated: Sequence[int], offered: Sequence[int]) -> list[bytes]:
        """See `steering.Mask`."""
        if not self._reads(generated):
            return []
        rows = [self._row()]
        for token in offered:
            ends = token in self._vocabulary.stop_ids or not (token < len(rows[-1]) and rows[-1][token])
            if ends or not self._reads([*self._read, token]):
                break
            rows.append(self._row())
        return rows

    def _reads(self, text: Sequence[int]) -> bool:
        """Return whether the text is admitted so far; the state then covers its admitted part."""
        if self._matcher.is_error():
            self._matcher, self._read = self._fresh.deep_copy(), []
        shared = agreed(self._read, text)
        if shared < len(self._read) and not self._matcher.rollback(len(self._read) - shared):
            self._matcher, shared = self._fresh.deep_copy(), 0
        count = self._matcher.try_consume_tokens(list(text[shared:]))
        self._read = list(text[: shared + count])
        return len(self._read) == len(text)

    def _row(self) -> bytes:
        """Return one byte per token of the vocabulary, not 0 if it may come next; all 0 after an error of the matcher.

        Stop tokens are admitted exactly where the constraint accepts the text as complete.
        """
        matcher, ends = self._matcher, self._vocabulary.stop_ids
        row = bytearray(self._vocabulary.tokens.vocab_size)
        if not matcher.is_stopped():
            row[:] = matcher.compute_logit_bias()
        may_end = not matcher.is_error() and matcher.is_accepting()
        for token in ends:
            if token < len(row):
                row[token] = may_end
        if matcher.is_error():
            row[:] = bytes(len(row))
        return bytes(row)
