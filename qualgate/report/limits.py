"""Hosts drop what is too large, often in silence. So reports stay below, and say what they left out."""

from __future__ import annotations

from collections.abc import Sequence


def fitting(pieces: Sequence[str], limit: int) -> int:
    """How many of the first pieces fit into `limit` bytes of UTF-8 together."""
    size = 0
    for count, piece in enumerate(pieces):
        size += len(piece.encode("utf-8", "backslashreplace"))
        if size > limit:
            return count
    return len(pieces)
