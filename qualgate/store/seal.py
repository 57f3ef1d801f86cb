"""What a unit's row is sealed with, and the arrays in it.

Two digests: `answer` covers what was said and how it was scored, which running the same job again must repeat;
`unit` adds what was measured (times, log-probs, drift), which need not repeat but must not change once recorded.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Sequence
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


def answer_digest(head: Sequence[Any], text: str, token_ids: bytes, scores: Iterable[Sequence[Any]]) -> str:
    """`head`: unit key, case hash, finish reason. `scores`: their columns, ordered by metric."""
    return _digest((*head, *scores), text.encode("utf-8"), token_ids)


def unit_digest(answer: str, measured: Sequence[Any], *arrays: bytes) -> str:
    return _digest((answer, *measured), *arrays)


def _digest(plain: Sequence[Any], *parts: bytes) -> str:
    # The lengths stand in the JSON, so no byte can move from one part to the next unnoticed.
    head = _encode((*plain, *map(len, parts)))
    return sha256(b"".join((head.encode("ascii"), b"\n", *parts))).hexdigest()
