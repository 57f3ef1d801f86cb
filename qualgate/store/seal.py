"""The seal of a unit's row, and the packing of its arrays.

A unit has two digests. `answer_sha256` covers the answer and its scores, which a repeated job must reproduce. `sha256`
also covers measurements (times, log-probs, drift), which must not change once recorded.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from hashlib import sha256
from math import copysign
from typing import Any

from qualgate.errors import IntegrityError

_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


def pack_ints(values: Sequence[int]) -> bytes:
    """Pack as int32, little-endian."""
    return struct.pack(f"<{len(values)}i", *values)


def pack_floats(values: Sequence[float]) -> bytes:
    """Pack as float64, little-endian."""
    return struct.pack(f"<{len(values)}d", *values)


def ints(blob: bytes | None) -> tuple[int, ...]:
    """Unpack the bytes of `pack_ints`; () for NULL."""
    return struct.unpack(f"<{_count(blob, 4)}i", blob) if blob else ()


def floats(blob: bytes | None) -> tuple[float, ...]:
    """Unpack the bytes of `pack_floats`; () for NULL."""
    return struct.unpack(f"<{_count(blob, 8)}d", blob) if blob else ()


def _count(blob: bytes, size: int) -> int:
    """Return the number of values in an array. size: bytes of each. Raises IntegrityError for a broken array."""
    if len(blob) % size:
        raise IntegrityError(
            f"a stored array has {len(blob)} bytes, but each number takes {size}: it is not what was recorded. Restore "
            "the store from a backup."
        )
    return len(blob) // size


def pack_kl(kl: Sequence[float], top1_differs: Sequence[int] | None = None) -> bytes:
    """Pack KL values. A KL is never negative, so its sign is set where the most likely tokens differ."""
    differs = frozenset(top1_differs or ())
    return pack_floats([-value if position in differs else value for position, value in enumerate(kl)])


def kl(blob: bytes | None, top1_agreement: float | None) -> tuple[tuple[float, ...], tuple[int, ...] | None]:
    """Unpack KL values and the positions where the most likely tokens differ.

    Positions are None if only the answer's agreement was recorded. Signs that do not match the agreement stay, for the
    reader to refuse.
    """
    values = floats(blob)
    differs = tuple(position for position, value in enumerate(values) if copysign(1.0, value) < 0)
    if not values or (len(values) - len(differs)) / len(values) != top1_agreement:
        return values, None
    return tuple(map(abs, values)) if differs else values, differs


def digest(plain: Sequence[Any], *parts: bytes) -> str:
    """Return the sha256 of plain values (text, numbers, None, and sequences of them) and byte strings, in order."""
    # The JSON includes the lengths, so no byte can move from one part to the next unnoticed.
    head = _encode((*plain, *map(len, parts)))
    return sha256(b"".join((head.encode("ascii"), b"\n", *parts))).hexdigest()
