"""Files that say of themselves whether they are whole: the sha256 of what follows in 32 bytes, then that.

What is kept between a kill and a resume enters the evidence, so a flipped bit must not read as a number. It is held
against damage, not against an attacker: who can write the file can seal it.
"""

from __future__ import annotations

import os
import tempfile
from hashlib import file_digest, sha256
from pathlib import Path

_DIGEST = 32  # bytes


def write_sealed(path: Path, body: bytes) -> None:
    """`body` under its digest, in one rename: a reader sees the old file or the new one."""
    handle, unfinished = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with open(handle, "wb") as file:
            file.write(sha256(body).digest())
            file.write(body)
            file.flush()
            os.fsync(file.fileno())  # a power cut must not leave the name without the bytes
        os.replace(unfinished, path)
    finally:
        Path(unfinished).unlink(missing_ok=True)


def read_sealed(path: Path) -> memoryview:
    """What was written. ValueError when it is not that any more, OSError when there is none."""
    data = memoryview(path.read_bytes())
    if len(data) < _DIGEST or sha256(data[_DIGEST:]).digest() != data[:_DIGEST]:
        raise ValueError("its bytes are not those that were written")
    return data[_DIGEST:]


def is_whole(path: Path) -> bool:
    """Can it be read, and is it what was written? Reads it in pieces."""
    try:
        with path.open("rb") as file:
            digest = file.read(_DIGEST)
            return len(digest) == _DIGEST and file_digest(file, "sha256").digest() == digest
    except OSError:
        return False
