"""Schemas' patterns (ECMA 262), compiled by RE2 or, if they need what it lacks (look-around, back-references,
`{1,2000}`, `\\Z`), by the backtracking engine of `regex`.

A backtracking match may never end, so it runs only in a process with a time limit of one second
(`keywords.pattern_matches`).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import re2
import regex

from qualgate.scoring.regexes import compiled_by_re2

# Spellings of ECMA 262 that the engines spell otherwise or, like \s, mean more narrowly.
_ECMA = re.compile(
    r"\\(?:u([0-9A-Fa-f]{4})|([pP])\{([A-Za-z_]+)\}|c([A-Za-z])|([sS])|([dDwWb])|k<(\w+)>|.)|(\[)|(\])|(\$)|(\{(?![0-9]+,?[0-9]*\}))",
    re.DOTALL,
)
_CATEGORIES = {"Letter": "L", "Lowercase_Letter": "Ll", "Uppercase_Letter": "Lu", "Mark": "M", "Number": "N",
               "Decimal_Number": "Nd", "digit": "Nd", "Punctuation": "P", "Symbol": "S", "Separator": "Z"}  # fmt: skip
_SPACE = {"re2": r"\s\v\x{feff}\p{Z}", "regex": r"\t-\r\ufeff\p{Z}"}
_ASCII_IN_CLASS = {"d": "0-9", "w": "0-9A-Za-z_"}
_ASCII = {
    "d": "[0-9]", "D": "[^0-9]", "w": "[0-9A-Za-z_]", "W": "[^0-9A-Za-z_]",
    "b": "(?:(?<=[0-9A-Za-z_])(?![0-9A-Za-z_])|(?<![0-9A-Za-z_])(?=[0-9A-Za-z_]))",
}  # fmt: skip
# What `regex` has beyond ECMA 262 and Python: fuzzy matches, recursion, verbs, and escapes of letters of its own.
_ITS_OWN = re.compile(r"\(\*|\(\?(?![:=!>imsx-]|P?<|P=)|(?<!\\)(?:\\\\)*\\[a-zA-Z](?<![dDwWsSbBnrtfvxucpPkZzA])")


def _spelled(source: str, engine: str) -> str:
    """Return an ECMAScript pattern in the syntax of `engine`, "re2" or "regex"."""
    in_class, lines = False, re.search(r"\(\?[a-z]*m", source) is not None

    def spell(match: re.Match[str]) -> str:
        """Return one matched piece of the pattern in the engine's syntax; others as they are."""
        nonlocal in_class
        code, sign, category, control, space, ascii_class, name, opens, closes, end, brace = match.groups()
        if opens or closes:
            in_class = bool(opens) or (in_class and not closes)
        if code or control:
            number = int(code, 16) if code else ord(control) % 32
            return f"\\x{{{number:x}}}" if engine == "re2" else f"\\u{number:04x}"
        if category:
            return f"\\{sign}{{{_CATEGORIES.get(category, category)}}}"
        if space == "s":
            return _SPACE[engine] if in_class else f"[{_SPACE[engine]}]"
        if space == "S" and not in_class:
            return f"[^{_SPACE[engine]}]"
        if engine == "regex" and ascii_class and (not in_class or ascii_class in "dw"):
            return _ASCII_IN_CLASS[ascii_class] if in_class else _ASCII[ascii_class]
        if engine == "regex" and not in_class and (name or brace or (end and not lines)):
            return f"(?P={name})" if name else r"\{" if brace else r"\Z"
        return match[0]

    return _ECMA.sub(spell, source)


@lru_cache(maxsize=4096)
def linear(source: str) -> Any:
    """Compile `source` by RE2, linear in any text; None if RE2 refuses it."""
    try:
        return compiled_by_re2(_spelled(source, "re2"))
    except re2.error:
        return None


@lru_cache(maxsize=256)
def backtracking(source: str) -> Any:
    """Compile `source` by `regex`. ValueError if that is no pattern for it either."""
    if python_only := _ITS_OWN.search(source):
        raise ValueError(f"{python_only[0]!r} is no part of a pattern")
    try:
        return regex.compile(_spelled(source, "regex"))
    except (regex.error, OverflowError, RecursionError) as error:
        raise ValueError(str(error) or type(error).__name__) from None
