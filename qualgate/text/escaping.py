"""Escape hostile model text: characters that could hide, move or fake something on a screen."""

from __future__ import annotations

import re

# Letters and symbols to Unicode, blank on a screen: fillers of Hangul, Braille's empty cell, Khmer's inherent vowels.
BLANK = "\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"
# Controls but tab and line feed, soft hyphen, joiners and other zero-width marks, bidi, line and paragraph separators,
# byte order mark, what formats musical notes, shorthand, hieroglyphs and annotations, lone surrogates, noncharacters,
# tags (letters that no font draws), selectors of variants but for the two that emoji are made with, after one.
_INVISIBLE = re.compile(
    f"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c{BLANK}\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ud800-\udfff\ufdd0-\ufdef\ufe00-\ufe0d\ufeff\ufff0-\ufffb\ufffe\uffff\U00013430-\U0001345f"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    + "".join(f"{chr(plane + 0xFFFE)}{chr(plane + 0xFFFF)}" for plane in range(0x10000, 0x110000, 0x10000))
    + "]|(?<![#*0-9\xa9\xae\u203c-\u3299\U0001f000-\U0001faff])[\ufe0e\ufe0f]"
)

# Commands that CI runners obey in a log: GitHub's `::error::` at the beginning of a line, perhaps after blanks; its
# older `##[error]`, Azure's `##vso[`, TeamCity's `##teamcity[` anywhere in a line; GitLab's marks of a section.
_COMMAND = re.compile(r"(?<!\S):(?=:\w)|#(?=#\w*\[)|(?<=section)_(?=(?:start|end):)")


def says_something(text: str) -> bool:
    """Whether any character is neither blank, control, invisible nor unassigned."""
    return any(character.isprintable() and character != " " for character in text)


def visible(text: str) -> str:
    """Escape invisible and control characters (`\\u202e`) and commands (`unread`); tabs and line ends stay."""
    return _INVISIBLE.sub(_escape, unread(text))


def unread(text: str) -> str:
    """Escape commands to the runner of a CI job, so that a log may contain the text. JSON stays the same JSON."""
    return _COMMAND.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def visible_line(text: str) -> str:
    """`visible` on one line: every run of white space, line ends included, becomes one space."""
    return visible(" ".join(text.split()))
