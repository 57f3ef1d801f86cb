"""Drift where it matters: in thoughts, at tool names, JSON keys, digits, and where the answer ends.

Places are character spans of the baseline's text; a token counts for a place when one of its characters lies in it. One
token may count for several. `end` is the position after the last character: the token that ends the turn.

Which token covers which characters follows from the tokens' own bytes, so a token may be a part of a character. Where
those do not spell the text (a tokenizer that changes what it decodes), nothing is said.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

PLACES = ("thought", "tool_name", "json_key", "digit", "end", "elsewhere")

Span = tuple[int, int]  # characters [start, stop)

_STRING = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\Z)', re.DOTALL)  # an open one reaches to the end: no quote is read twice
_COLON = re.compile(r"\s*+:")
_NAME = re.compile(r'"(?:name|function)"\s*+:\s*+"((?:[^"\\]|\\.)*+)"', re.DOTALL)
_TAGGED = re.compile(r"(?:<function=|\[TOOL_CALLS\]\s*+)([\w.-]++)")
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_DIGITS = re.compile(r"[0-9]++")


def places(text: str, tool_names: Sequence[str] = ()) -> dict[str, tuple[Span, ...]]:
    """Spans of each kind in a baseline's text, in order, in linear time.

    tool_name: only where the case offers tools, whose names are given. The value of a `name` or `function` key, what
    follows `<function=` or `[TOOL_CALLS]`, and an offered name before a parenthesis. json_key: what a colon follows,
    of the strings in double quotes, read one after the other; quotes left out. digit: runs of 0-9.
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
    """The bytes of a token of a byte-level vocabulary (GPT-2, Llama 3, Qwen), where each character stands for a byte.

    A token with any other character, as special ones may have, is taken for its own text. spaced: of a SentencePiece
    vocabulary (Llama 2, Mistral, Gemma), where `▁` stands for a space, `<0x0A>` for a byte, and the rest for itself.
    """
    if spaced:
        byte = _BYTE.fullmatch(token)
        return bytes([int(byte[1], 16)]) if byte else token.replace("▁", " ").encode("utf-8", "surrogatepass")
    try:
        return bytes(_BYTES[character] for character in token)
    except KeyError:
        return token.encode("utf-8", "surrogatepass")


def _byte_alphabet() -> dict[str, int]:
    """Printable characters of Latin-1 stand for themselves, the other bytes for U+0100 and on, in their order."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(0x100 + n): byte for n, byte in enumerate(others)}


_BYTES = _byte_alphabet()


def token_spans(tokens: Sequence[bytes], text: str) -> tuple[Span, ...] | None:
    """The characters of `text` that each token covers, by the tokens' bytes. None when they do not spell the text.

    Tokens behind the text's last byte (the end of turn) cover nothing. A token of a part of a character covers it. The
    space that begins the first token may be missing in the text: SentencePiece's decoders leave it out.
    """
    whole = text.encode("utf-8", "surrogatepass")
    if tokens and tokens[0][:1] == b" " != whole[:1]:
        tokens = (tokens[0][1:], *tokens[1:])
    stops = np.cumsum([0, *map(len, tokens)], dtype=np.int64)
    spoken = int(np.searchsorted(stops, len(whole), side="right")) - 1
    if b"".join(tokens[:spoken]) != whole:
        return None
    first_bytes = (np.frombuffer(whole, np.uint8) & 0xC0) != 0x80
    character = np.cumsum(first_bytes) - 1  # of each byte
    nothing = (len(text), len(text))
    return tuple(
        (int(character[start]), int(character[stop - 1]) + 1 if stop > start else int(character[start]))
        if index < spoken and start < len(whole)
        else nothing
        for index, (start, stop) in enumerate(zip(stops[:-1].tolist(), stops[1:].tolist(), strict=True))
    )


def kinds_of(spans: Sequence[Span], found: dict[str, tuple[Span, ...]], length: int) -> dict[str, NDArray[np.bool_]]:
    """Which tokens count for which place, [tokens] each. `end`: those that cover nothing behind the text."""
    starts, stops = np.array(spans, dtype=np.int64).reshape(-1, 2).T
    marked = {}
    for kind, of_kind in found.items():
        edges = np.zeros(length + 1, dtype=np.int64)
        for start, stop in of_kind:
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
    """Kind of place → which tokens of the answer count for it, [tokens]. None when the tokens do not spell the text.
    thoughts: where the text's thoughts stand."""
    spans = token_spans(tokens, text)
    if spans is None:
        return None
    return kinds_of(spans, {"thought": tuple(thoughts)} | places(text, tool_names), len(text))
