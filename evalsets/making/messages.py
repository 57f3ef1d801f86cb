"""The conversations that cases ask with."""

from __future__ import annotations


def user(text: str) -> list[dict[str, str]]:
    """A conversation of one user message."""
    return [{"role": "user", "content": text}]
