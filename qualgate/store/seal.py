"""What a unit's row is sealed with, and the arrays in it.

Two digests a unit: `answer_sha256` covers what was said and how it was scored, which running the same job again must
repeat; `sha256` covers that and what was measured (times, log-probs, drift), which must not change once recorded.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


def pack_ints(values: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(values)}i", *values)


def pack_floats(values: Sequence[float]) -> bytes:
    return struct.pack(f"<{len(values)}d", *values)


def ints(blob: bytes | None) -> tuple[int, ...]:
    return struct.unpack(f"<{len(blob) // 4}i", blob) if blob else ()


def floats(blob: bytes | None) -> tuple[float, ...]:
    return struct.unpack(f"<{len(blob) // 8}d", blob) if blob else ()


def digest(plain: Sequence[Any], *parts: bytes) -> str:
    """sha256 over plain values (text, numbers, None, and sequences of them) and byte strings, in their order."""
    # The lengths stand in the JSON, so no byte can move from one part to the next unnoticed.
    head = _encode((*plain, *map(len, parts)))
    return sha256(b"".join((head.encode("ascii"), b"\n", *parts))).hexdigest()
