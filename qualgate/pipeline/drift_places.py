"""Drift by kind of place: thoughts, tool names, JSON keys, digits, and the end of the answer.

Places are character spans of the baseline's text; a token counts for a place when one of its characters lies in it. One
token may count for several. `end` is the position after the last character: the token that ends the turn.

Token spans follow from the tokens' bytes, so a token may be part of a character. If the bytes do not spell the text (a
tokenizer that changes what it decodes), there are no places.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

PLACES = ("thought", "tool_name", "json_key", "digit", "end", "elsewhere")

Span = tuple[int, int]  # characters [start, stop)
Spelled = Callable[[tuple[int, ...]], list[bytes] | None]  # token ids → their bytes; None if an id is no token

_STRING = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\Z)', re.DOTALL)  # an unclosed string reaches to the end
_COLON = re.compile(r"\s*+:")
_NAME = re.compile(r'"(?:name|function)"\s*+:\s*+"((?:[^"\\]|\\.)*+)"', re.DOTALL)
_TAGGED = re.compile(r"(?:<function=|\[TOOL_CALLS\]\s*+)([\w.-]++)")
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_DIGITS = re.compile(r"[0-9]++")


def places(text: str, tool_names: Sequence[str] = ()) -> dict[str, tuple[Span, ...]]:
    """Return the spans of each kind in a baseline's text, in order, in linear time.

    tool_name: only with `tool_names`, the tools that the case offers: the value of a `name` or `function` key, the word
    after `<function=` or `[TOOL_CALLS]`, and an offered name before a parenthesis. json_key: a double-quoted string
    before a colon, without its quotes. digit: runs of 0-9.
    """
    names: set[Span] = set()
    if offered := [re.escape(name) for name in sorted(set(tool_names), key=len, reverse=True) if name]:
        called = re.compile(rf"(?<![\w.-])({'|'.join(offered)})\(")
        names = {match.span(1) for pattern in (_NAME, _TAGGED, called) for match in pattern.finditer(text)}
    keys = (match.span() for match in _STRING.finditer(text) if _COLON.match(text, match.end()))
    return {
        "tool_name": tuple(sorted(names)),
        "json_key": tuple((start + 1, stop - 1) for start, stop in keys),
        "digit": tuple(match.span() for match in _DIGITS.finditer(text)),
    }


def token_bytes(token: str, *, spaced: bool = False) -> bytes:
    """Return the bytes of a token of a byte-level vocabulary (GPT-2, Llama 3, Qwen): each character encodes a byte.

    A token with any other character, such as a special token, stands for its own text. spaced: for a SentencePiece
    vocabulary (Llama 2, Mistral, Gemma), where `▁` is a space, `<0x0A>` a byte, and the rest itself.
    """
    if spaced:
        byte = _BYTE.fullmatch(token)
        return bytes([int(byte[1], 16)]) if byte else token.replace("▁", " ").encode("utf-8", "surrogatepass")
    try:
        return bytes(_BYTES[character] for character in token)
    except KeyError:
        return token.encode("utf-8", "surrogatepass")


def speller(tokenizer: Any) -> Spelled:
    """Return the function from token ids to the bytes of each token. tokenizer: transformers' own."""
    spaced = "▁" in tokenizer.get_vocab()

    def spelled(ids: tuple[int, ...]) -> list[bytes] | None:
        """Return the bytes of each token; None if an id is no token of this tokenizer."""
        if any(not 0 <= token < len(tokenizer) for token in ids):
            return None
        tokens = tokenizer.convert_ids_to_tokens(list(ids))
        return (
            [token_bytes(token, spaced=spaced) for token in tokens]
            if all(isinstance(token, str) for token in tokens)
            else None
        )

    return spelled


def _byte_alphabet() -> dict[str, int]:
    """Return character → byte: printable Latin-1 characters encode themselves, the other bytes follow from U+0100."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    unprintable = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(0x100 + n): byte for n, byte in enumerate(unprintable)}


_BYTES = _byte_alphabet()


def token_spans(tokens: Sequence[bytes], text: str) -> tuple[Span, ...] | None:
    """Return the span of `text` that each token covers, by the tokens' bytes; None if they do not spell the text.

    Tokens after the text's last byte (the end of turn) cover nothing. A token that is part of a character covers the
    character. The first token's leading space may be missing in the text: SentencePiece decoders drop it.
    """
    text_bytes = text.encode("utf-8", "surrogatepass")
    if tokens and tokens[0][:1] == b" " != text_bytes[:1]:
        tokens = (tokens[0][1:], *tokens[1:])
    stops = np.cumsum([0, *map(len, tokens)], dtype=np.int64)
    text_tokens = int(np.searchsorted(stops, len(text_bytes), side="right")) - 1
    if b"".join(tokens[:text_tokens]) != text_bytes:
        return None
    first_bytes = (np.frombuffer(text_bytes, np.uint8) & 0xC0) != 0x80
    character = np.cumsum(first_bytes) - 1  # of each byte
    empty_span = (len(text), len(text))
    return tuple(
        (int(character[start]), int(character[stop - 1]) + 1 if stop > start else int(character[start]))
        if index < text_tokens and start < len(text_bytes)
        else empty_span
        for index, (start, stop) in enumerate(zip(stops[:-1].tolist(), stops[1:].tolist(), strict=True))
    )


def kinds_of(spans: Sequence[Span], places: dict[str, tuple[Span, ...]], length: int) -> dict[str, NDArray[np.bool_]]:
    """Return kind of place → whether each token counts for it, [tokens]. `end`: tokens after the text."""
    starts, stops = np.array(spans, dtype=np.int64).reshape(-1, 2).T
    marked = {}
    for kind, kind_spans in places.items():
        edges = np.zeros(length + 1, dtype=np.int64)
        for start, stop in kind_spans:
            edges[start] += 1
            edges[stop] -= 1
        inside = np.concatenate([[0], np.cumsum(np.cumsum(edges)[:-1] > 0)])  # characters in a place, before each
        marked[kind] = inside[stops] > inside[starts]
    marked["end"] = starts >= length
    marked["elsewhere"] = ~np.logical_or.reduce(list(marked.values()))
    return marked


def marked_tokens(
    tokens: Sequence[bytes], text: str, tool_names: Sequence[str] = (), thoughts: Sequence[Span] = ()
) -> dict[str, NDArray[np.bool_]] | None:
    """Return kind of place → whether each token counts for it, [tokens]; None if the tokens do not spell the text.
    thoughts: the spans of the text's thoughts."""
    spans = token_spans(tokens, text)
    if spans is None:
        return None
    return kinds_of(spans, {"thought": tuple(thoughts)} | places(text, tool_names), len(text))
