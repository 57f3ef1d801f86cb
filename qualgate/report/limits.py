"""Size limits of hosts, which often drop large reports silently. Reports stay below and state what they left out."""

from __future__ import annotations

from collections.abc import Sequence


def fitting(pieces: Sequence[str], limit: int) -> int:
    """Return how many leading pieces fit into `limit` bytes of UTF-8 together."""
    size = 0
    for count, piece in enumerate(pieces):
        size += len(piece.encode("utf-8", "backslashreplace"))
        if size > limit:
            return count
    return len(pieces)
