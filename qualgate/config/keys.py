"""Detect API keys in a gate file. The file is stored and shown, so one that holds a key is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any


def _either_case(word: str) -> str:
    """A pattern that matches the word in either case; a schema's patterns have no flag for that."""
    return "".join(f"[{letter}{letter.upper()}]" if letter.isalpha() else f"{letter}?" for letter in word)


# Of headers' names; `key` and `auth` alone as a whole part of one: X-Monkey and X-Author hold none.
IN_HEADER = "|".join(
    [
        *map(_either_case, ("authorization", "api-key", "token", "secret", "cookie", "password", "credential")),
        *(f"(^|-){_either_case(word)}(-|$)" for word in ("key", "auth")),
    ]
)
_IN_BODY = re.compile(r"api[-_]?key|authorization|password|secret|credential|(access|auth|bearer|hf)[-_]?token", re.I)
_FLAG = re.compile(r"--?(api[-_]?key|(hf|auth|access|bearer)[-_]?token|token|password|secret)(=|$)", re.I)
_SET_HERE = re.compile(r"[A-Z0-9_]*(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)=.", re.I)
_SCHEME = re.compile(r"(bearer|basic) ", re.I)


def in_header(name: str, value: str) -> bool:
    """Whether this header holds a key."""
    return bool(re.search(IN_HEADER, name) or _SCHEME.match(value))


def in_body(body: Any) -> str:
    """The name of a field that holds a key, at any depth; "" if none does."""
    return next((name for name in _all_keys(body) if _IN_BODY.search(name)), "")


def _all_keys(value: Any) -> Iterator[str]:
    """Yield every key of nested mappings and lists, as text."""
    pending = [value]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            yield from map(str, node)
            pending += node.values()
        elif isinstance(node, list):
            pending += node


def in_command(words: Sequence[str]) -> str:
    """The flag or variable that passes a key to a command: "--api-key", "HF_TOKEN"; "" if none does. A word may be a
    whole command, as with `sh -c`."""
    parts = (part for word in words for part in word.split())
    return next((part.partition("=")[0] for part in parts if _FLAG.match(part) or _SET_HERE.match(part)), "")
