"""JSON objects from a file of lines that anyone may have written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

from qualgate.errors import UsageError

MAX_LINE = 32 * 2**20  # bytes


def read_objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of each line. UsageError names file and line of what is not one whole JSON object.

    NaN and Infinity are read as what they are, since other programs write them: the gate refuses such a value by name.
    """
    line = 0
    try:
        with path.open("rb") as file:
            while raw := file.readline(MAX_LINE + 1):
                line += 1
                yield line, _object(raw)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None
    except _Unreadable as error:
        raise UsageError(f"{path}:{line}: {error}. Was the file cut, or still being written? Save it again.") from None
    if not line:
        raise UsageError(f"{path}: is empty, so nothing could be compared.")


def content_of_lines(path: Path) -> int:
    """One number for what the lines of a file are, whatever their order and the blanks around them: equal files have
    equal ones. UsageError for a file that cannot be read."""
    found = 0
    try:
        with path.open("rb") as file:
            while raw := file.readline(MAX_LINE + 1):
                if line := raw.strip():
                    found += int.from_bytes(blake2b(line, digest_size=16).digest())
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None
    return found


class _Unreadable(ValueError):
    """Why a line is no JSON object."""


def _object(raw: bytes) -> dict[str, Any]:
    if len(raw) > MAX_LINE:
        raise _Unreadable(f"a line of more than {MAX_LINE // 2**20} MiB")
    try:
        value = json.loads(raw.decode("utf-8"), object_pairs_hook=_once)
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise _Unreadable("a \\u escape stands for half a character") from None
    except UnicodeDecodeError as error:
        raise _Unreadable(f"not valid UTF-8 at byte {error.start + 1} of the line") from None
    except json.JSONDecodeError as error:
        raise _Unreadable(f"not JSON: {error.msg} at column {error.colno}") from None
    except RecursionError:
        raise _Unreadable("nested too deeply") from None
    except _Unreadable:
        raise
    except ValueError as error:  # Python refuses to read whole numbers of thousands of digits
        raise _Unreadable(f"not JSON that can be read: {error}") from None
    if not isinstance(value, dict):
        raise _Unreadable("not a JSON object")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        keys = [key for key, _ in pairs]
        raise _Unreadable(f"the key {next(key for key in keys if keys.count(key) > 1)[:60]!r} twice in one object")
    return value
