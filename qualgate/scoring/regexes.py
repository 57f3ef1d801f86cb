"""Match users' Python patterns on hostile text: with the same matches, and never a hang.

RE2 matches a pattern whose constructs all mean the same there, on texts short enough that even its quadratic case (many
matches that each look far ahead) takes no time. All else is matched by Python in `killable`, which ends it after a
second. Patterns known to be linear in Python are matched by Python here.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import re2

from qualgate.sandbox import killable

MAX_PATTERN = 2_000  # characters
SHORT = 10_000  # characters of text

# One pass over any text: nothing that a repetition may take can be taken in two ways, and a failed start costs little.
LINEAR = frozenset(
    {
        r"#### (\-?[0-9\.\,]+)",
        r"(-?[$0-9.,]{2,})|(-?[0-9]+)",
        r"answer is \(?([ABCDEFGHIJ])\)?",
        r"(\([A-Z]\))",
    }
)

# Constructs with one meaning in both. `\d \w \s \b` mean the same on ASCII text; anchors, flags, look-around and
# back-references do not or are not there.
_TOKEN = re.compile(
    r"""(?P<opens>\((?:\?:|(?!\?))) | (?P<closes>\)) | (?P<repeat>(?:[*+?]|\{[0-9]{1,3}(?:,[0-9]{0,3})?\})\??(?!\+))
      | (?P<word>\\[bB]) | (?P<ascii>\\[dwsDWS]) | \| | \. | \\[^A-Za-z0-9\s] | \\[nrt\ ] | [^\\^$.|?*+()\[\]{}]
      | (?P<set>\[\^?(?:[^\\\[\]^]|\\[dws]|\\[^A-Za-z0-9\s]|\\[nrt\ ])+\])""",
    re.VERBOSE,
)
_OTHER_SPACE = re.compile(r"[\x0b\x1c-\x1f]")  # white space to Python, not to RE2


class BadPattern(ValueError):
    """A text that is no regular expression of Python's, or too long."""


@lru_cache(maxsize=1024)
def compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern by Python. BadPattern if it is invalid or longer than MAX_PATTERN."""
    if len(pattern) > MAX_PATTERN:
        raise BadPattern(f"a pattern of {len(pattern):,} characters, {MAX_PATTERN:,} are allowed")
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise BadPattern(f"not a regular expression: {error}") from None


def compiled_by_re2(pattern: str) -> Any:
    """Compile a pattern by RE2, which then prints nothing itself. Raises re2.error."""
    options = re2.Options()
    options.log_errors = False
    return re2.compile(pattern, options)


def findall(pattern: str, text: str) -> list[Any]:
    """Match as re.findall does. BadPattern, or killable.Killed if it was stopped."""
    python = compiled(pattern)
    if pattern in LINEAR:
        return python.findall(text)
    if (re2_pattern := _by_re2(pattern, text)) is not None:
        groups = python.groups
        return [
            m[0] if not groups else (m[1] or "") if groups == 1 else tuple(group or "" for group in m.groups())
            for m in re2_pattern.finditer(text)
        ]
    matches = killable.run(_python_findall, pattern, text)
    return [tuple(item) if isinstance(item, list) else item for item in matches]


def _python_findall(pattern: str, text: str) -> list[Any]:
    return re.findall(pattern, text)


def _by_re2(pattern: str, text: str) -> Any:
    """Return `pattern` compiled by RE2 if that gives Python's matches on this text in a short time, else None."""
    if len(text) > SHORT:
        return None
    re2_pattern, needs_ascii = _in_re2(pattern)
    if re2_pattern is None or (needs_ascii and (not text.isascii() or _OTHER_SPACE.search(text))):
        return None
    try:
        text.encode()
    except UnicodeEncodeError:
        return None
    return re2_pattern


@lru_cache(maxsize=1024)
def _in_re2(pattern: str) -> tuple[Any, bool]:
    """Return `pattern` compiled by RE2 and whether texts must be ASCII; (None, False) where RE2 may match otherwise."""
    position, needs_ascii, opened = 0, False, []
    group, without_words = "", ""  # the group just closed; the pattern without \b, to see whether it matches nothing
    while position < len(pattern):
        token = _TOKEN.match(pattern, position)
        if token is None:
            return None, False
        if token["opens"]:
            opened.append(position)
        elif token["repeat"] and group and (re.search(r"\((?!\?)", group) or compiled(group).fullmatch("")):
            return None, False  # which pass of a repetition a group remembers, and empty passes, differ
        elif token["repeat"] and pattern[:position].endswith(("\\b", "\\B")):
            return None, False
        needs_ascii |= bool(token["word"] or token["ascii"] or (token["set"] and re.search(r"\\[dws]", token["set"])))
        group = pattern[opened.pop() : token.end()] if token["closes"] else ""
        without_words += "" if token["word"] else token[0]
        position = token.end()
    try:
        if re.fullmatch(without_words, "") is not None:
            return None, False  # where empty matches are found differs
        return compiled_by_re2(pattern), needs_ascii
    except (re.error, re2.error):
        return None, False


_LITERAL = re.compile(r"(?:\\b)?(?:\\s\?)?[^\\^$.|?*+()\[\]{}]{1,200}(?:\\b|\\s\?\\d\+\\s\?)?")


def count(pattern: str, text: str, ignore_case: bool = False) -> int:
    """Count the matches of re.finditer. BadPattern, or killable.Killed if it was stopped.

    Words, with word borders or a number around them, are counted here: a failed start costs at most their length.
    """
    compiled(pattern)
    if _LITERAL.fullmatch(pattern):
        return _python_count(pattern, text, ignore_case)
    if not ignore_case and (same := _by_re2(pattern, text)) is not None:
        return sum(1 for _ in same.finditer(text))
    return killable.run(_python_count, pattern, text, ignore_case)


def _python_count(pattern: str, text: str, ignore_case: bool) -> int:
    return sum(1 for _ in re.finditer(pattern, text, re.IGNORECASE if ignore_case else 0))
