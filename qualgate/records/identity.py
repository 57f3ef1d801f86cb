"""Content identities: things are the same by content, never by name.

A sealed file begins with the sha256 (32 bytes) of the rest. Files between a kill and a resume enter the evidence, so a
flipped bit must not read as a number. The seal protects against damage, not against an attacker, who can seal a file
as well.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from io import BufferedReader
from pathlib import Path
from typing import Any

_DIGEST = 32  # bytes
_MOMENT = 2 * 10**9  # ns, the resolution of a coarse file system's clock
_cached: dict[tuple[int, ...], str] = {}
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def canonical_json(value: Any) -> str:
    """`value` as JSON with sorted keys, no spaces, UTF-8 text, NaN refused (ValueError)."""
    return _CANONICAL.encode(value)


def sha256_text(text: str) -> str:
    """sha256 of the UTF-8 bytes, 64 lowercase hex digits. A lone surrogate keeps its code (surrogatepass)."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def content_hash(value: Any) -> str:
    """sha256 of the canonical JSON of a plain value."""
    return sha256_text(canonical_json(value))


def file_hash(path: Path) -> str:
    """sha256 of a file's bytes, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def cached_hash(file: BufferedReader) -> str:
    """sha256 of an open file's bytes, cached in the process by the file's state: device, inode, size, times. A file
    that just changed is not cached: a second change within a tick of the clock would leave the same state."""
    state, began = _state(file), time.time_ns()
    if state not in _cached:
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        if began - max(state[-2:]) < _MOMENT or _state(file) != state:
            return digest
        _cached[state] = digest
    return _cached[state]


def _state(file: BufferedReader) -> tuple[int, ...]:
    stat = os.fstat(file.fileno())
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


def case_hash(case: dict[str, Any]) -> str:
    """Identity of a case: its JSON without `tags` (a label must not break a pairing)."""
    return content_hash({key: value for key, value in case.items() if key != "tags"})


def question_hash(case: dict[str, Any]) -> str:
    """Hash of a case's question, without id and scoring; "" for a body that asks nothing.

    A model gives one answer to one question: two cases with the same question are one observation.
    """
    question = {key: case.get(key) for key in ("messages", "prompt", "tools", "requests")}
    return content_hash(question) if any(question.values()) else ""


def write_sealed(path: Path, body: bytes) -> None:
    """Write `body` with its digest, atomically by rename: a reader sees the old file or the new one."""
    handle, unfinished = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with open(handle, "wb") as file:
            file.write(hashlib.sha256(body).digest())
            file.write(body)
            file.flush()
            os.fsync(file.fileno())  # a power cut must not leave the name without the bytes
        os.replace(unfinished, path)
    finally:
        Path(unfinished).unlink(missing_ok=True)


def read_sealed(path: Path) -> memoryview:
    """Read the body of a sealed file. ValueError if it is damaged, OSError if it is missing."""
    data = memoryview(path.read_bytes())
    if len(data) < _DIGEST or hashlib.sha256(data[_DIGEST:]).digest() != data[:_DIGEST]:
        raise ValueError("its bytes are not those that were written")
    return data[_DIGEST:]


def is_whole(path: Path) -> bool:
    """Whether a sealed file is readable and undamaged. Reads it in pieces."""
    try:
        with path.open("rb") as file:
            digest = file.read(_DIGEST)
            return len(digest) == _DIGEST and hashlib.file_digest(file, "sha256").digest() == digest
    except OSError:
        return False


def own_version() -> str:
    """Version of this qualgate as installed; "source" for a tree that was never installed."""
    try:
        return version("qualgate")
    except PackageNotFoundError:
        return "source"
