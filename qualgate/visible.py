"""Model text is hostile: what could hide, move or fake something on a screen is shown as an escape."""

from __future__ import annotations

import re

# Controls but tab and line feed, soft hyphen, zero-width, bidi, line and paragraph separators, byte order mark,
# interlinear annotation, lone surrogates, noncharacters, tags (letters that no font draws).
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\ufffe\uffff\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    """`text` with its invisible and control characters as `\\u202e`; tabs and line ends stay."""
    return _INVISIBLE.sub(lambda match: _escape(ord(match.group())), text)


def _escape(code: int) -> str:
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def visible_line(text: str) -> str:
    """`visible`, on one line: every run of white space, line ends among it, is one space."""
    return visible(" ".join(text.split()))
