"""Halves of a character that a server wrote into two pieces of a stream: JSON has escapes for them, UTF-8 does not.

A half that stands alone is read as a character for private use and becomes the whole again where both halves follow one
another in the text.
"""

from __future__ import annotations

import re

_ESCAPE = re.compile(rb"(?i:\\(?:ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}|u(d[89a-f][0-9a-f]{2})|.))")
_APART = 0x10F000 - 0xD800  # from a half to the character that stands for it
_HALVES = re.compile("([\U0010f000-\U0010f3ff])([\U0010f400-\U0010f7ff])|[\U0010f000-\U0010f7ff]")


def with_halves(raw: bytes) -> bytes:
    """JSON's text, whose halves that stand alone are characters for private use."""

    def told(escape: re.Match[bytes]) -> bytes:
        return chr(int(escape[1], 16) + _APART).encode() if escape[1] else escape[0]

    return _ESCAPE.sub(told, raw)


def made_whole(text: str) -> str:
    """The text with whole characters; a half whose other half never came is U+FFFD."""

    def whole(found: re.Match[str]) -> str:
        if found[1] is None:
            return "\ufffd"
        high, low = (ord(half) - _APART for half in found.groups())
        return chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))

    return _HALVES.sub(whole, text)
