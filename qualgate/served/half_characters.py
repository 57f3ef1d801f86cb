"""Halves of a character (surrogates) that a server wrote into two pieces of a stream: JSON can escape them.

A lone half is read as a private-use character, and becomes the whole again if both halves follow one another in the
text.
"""

from __future__ import annotations

import re

_ESCAPE = re.compile(rb"(?i:\\(?:ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}|u(d[89a-f][0-9a-f]{2})|.))")
_APART = 0x10F000 - 0xD800  # from a half to the character that stands for it
_HALVES = re.compile("([\U0010f000-\U0010f3ff])([\U0010f400-\U0010f7ff])|[\U0010f000-\U0010f7ff]")


def with_halves(raw: bytes) -> bytes:
    """Replace lone halves in JSON text by private-use characters."""

    def stand_in(escape: re.Match[bytes]) -> bytes:
        return chr(int(escape[1], 16) + _APART).encode() if escape[1] else escape[0]

    return _ESCAPE.sub(stand_in, raw)


def made_whole(text: str) -> str:
    """Join halves in a text to whole characters; a half without the other becomes U+FFFD."""

    def whole(match: re.Match[str]) -> str:
        if match[1] is None:
            return "\ufffd"
        high, low = (ord(half) - _APART for half in match.groups())
        return chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))

    return _HALVES.sub(whole, text)
