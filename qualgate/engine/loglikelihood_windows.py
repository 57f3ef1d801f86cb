"""Split texts into windows of tokens for likelihood requests, as lm-eval does for causal models.

Tested against lm-eval's own functions (`TemplateLM._encode_pair`, `get_rolling_token_windows`). Loads no torch.
"""

from __future__ import annotations

from typing import Any

from qualgate.errors import UsageError
from qualgate.records import Window


def continuation_window(tokenizer: Any, context: str, continuation: str) -> Window:
    """Tokenize both together and split at the end of the context's own tokens. Spaces at the context's end move to the
    continuation, as most tokenizers expect; an empty context becomes the token that begins a text.

    UsageError when nothing is left to weigh.
    """
    if context:
        bare = context.rstrip()
        continuation, context = context[len(bare) :] + continuation, bare
    if context:
        before = encoded(tokenizer, context)
        after = encoded(tokenizer, context + continuation)[len(before) :]
    else:
        after = tuple(tokenizer.encode(continuation, add_special_tokens=False))
        before = (prefix_token(tokenizer),)
        if after[:1] == before:
            after = after[1:]
    if not before or not after:
        raise UsageError(f"the continuation {continuation[:60]!r} adds no token to its context; it cannot be weighed")
    return before, after


def rolling_windows(tokenizer: Any, text: str, context_length: int) -> tuple[Window, ...]:
    """Windows that cover every token of `text` once, each with as much context as fits: the first begins with the token
    that begins a text, later ones are full and count only their new tokens. UsageError for a text without a token."""
    tokens = encoded(tokenizer, text)
    if not tokens:
        raise UsageError("a text without a token has no likelihood")
    first = tokens[:context_length]
    windows: list[Window] = [((prefix_token(tokenizer),), first)]
    for start in range(len(first), len(tokens), context_length):
        stop = min(start + context_length, len(tokens))
        windows.append((tokens[stop - context_length - 1 : start], tokens[start:stop]))
    return tuple(windows)


def encoded(tokenizer: Any, text: str) -> tuple[int, ...]:
    """Tokenize with the tokenizer's special tokens, without a second one if the text already begins with its
    spelling."""
    prefix_id = _prefix_token(tokenizer)
    start = tokenizer.decode([prefix_id]) if prefix_id is not None else ""
    special = {"add_special_tokens": False} if start and text.startswith(start) else {}
    return tuple(tokenizer.encode(text, verbose=False, **special))


def prefix_token(tokenizer: Any) -> int:
    """Return the token before a text without context: beginning-of-text, else end-of-text."""
    token = _prefix_token(tokenizer)
    if token is None:
        raise UsageError("the tokenizer has neither a beginning-of-text nor an end-of-text token to start from")
    return token


def _prefix_token(tokenizer: Any) -> int | None:
    return tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
