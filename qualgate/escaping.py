"""Model text is hostile: what could hide, move or fake something on a screen is shown as an escape."""

from __future__ import annotations

import re

# Controls but tab and line feed, soft hyphen, zero-width, bidi, line and paragraph separators, byte order mark,
# interlinear annotation, lone surrogates, noncharacters, tags (letters that no font draws).
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\ufffe\uffff\U000e0000-\U000e007f]"
)

# What a CI runner obeys when it reads a log: GitHub's `::error::` where a line begins, blanks before it or not;
# its older `##[error]`, Azure's `##vso[`, TeamCity's `##teamcity[` anywhere in a line; GitLab's marks of a section.
_COMMAND = re.compile(r"(?<!\S):(?=:\w)|#(?=#\w*\[)|(?<=section)_(?=(?:start|end):)")


def visible(text: str) -> str:
    """`text` with its invisible and control characters as `\\u202e`, and `unread`; tabs and line ends stay."""
    return _INVISIBLE.sub(_escape, unread(text))


def unread(text: str) -> str:
    """`text` as a log may hold it: no line is a command to the CI job's runner. JSON stays the same JSON."""
    return _COMMAND.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def visible_line(text: str) -> str:
    """`visible`, on one line: every run of white space, line ends among it, is one space."""
    return visible(" ".join(text.split()))
