"""From texts to the windows of tokens whose likelihood is asked for, told apart as lm-eval does for causal models.

Checked against lm-eval's own (`TemplateLM._encode_pair`, `get_rolling_token_windows`) in its tests. Loads no torch.
"""

from __future__ import annotations

from typing import Any

from qualgate.errors import UsageError
from qualgate.records import Window


def continuation_window(tokenizer: Any, context: str, continuation: str) -> Window:
    """The tokens of both together, split where the context's own end. Spaces that end a context go over to what
    follows, as most tokenizers have them; an empty context is the token that begins a text.

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
    """Every token of `text` once, each with as much before it as fits: the first window begins with the token that
    begins a text, later ones are full and weigh what is new in them alone. UsageError for a text without a token."""
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
    """With the tokenizer's own special tokens, but not a second one where the text begins with its spelling."""
    known = _prefix_token(tokenizer)
    start = tokenizer.decode([known]) if known is not None else ""
    special = {"add_special_tokens": False} if start and text.startswith(start) else {}
    return tuple(tokenizer.encode(text, verbose=False, **special))


def prefix_token(tokenizer: Any) -> int:
    """What stands before a text that has nothing before it: the beginning-of-text token, else the end-of-text one."""
    token = _prefix_token(tokenizer)
    if token is None:
        raise UsageError("the tokenizer has neither a beginning-of-text nor an end-of-text token to start from")
    return token


def _prefix_token(tokenizer: Any) -> int | None:
    return tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
