"""Read JSON objects from an untrusted file of lines."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from qualgate.documents import quote
from qualgate.errors import UsageError
from qualgate.errors.misplaced import not_json_lines, unreadable

MAX_LINE = 32 * 2**20  # bytes
NO_LINES = 'not JSON lines, which are objects such as {{"id": "a", …}}, one a line; found {}'


def read_objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, object) of each line. UsageError names file and line of anything but a whole JSON object.

    A byte-order mark and blank lines at the end are ignored; a blank line before others may be a lost row. NaN and
    Infinity are read, since other programs write them; the gate refuses such values with a message.
    """
    line = blank = objects = 0
    try:
        with path.open("rb") as file:
            while raw := file.readline(MAX_LINE + 1):
                line += 1
                if line == 1:
                    if why := not_json_lines(path, raw):
                        raise _Unreadable(why, again=False)
                    raw = raw.removeprefix(codecs.BOM_UTF8)
                if raw.isspace() or not raw:
                    blank = blank or line
                    continue
                if blank:
                    raise _Unreadable(f"line {blank} before it is empty")
                if not objects and not raw.lstrip().startswith(b"{"):
                    raise _Unreadable(NO_LINES.format(quote(raw[:200].decode("utf-8", "replace").strip())), again=False)
                objects += 1
                yield line, _object(raw)
    except OSError as error:
        raise UsageError(unreadable(path, error)) from None
    except _Unreadable as error:
        raise UsageError(f"{path}:{line}: {error}") from None
    if not objects:
        raise UsageError(f"{path} is empty: there is nothing to compare.")


class _Unreadable(ValueError):
    """A line that is no JSON object. again: saving the file again may help."""

    def __init__(self, why: str, *, again: bool = True) -> None:
        super().__init__(f"{why}. Was the file cut, or still being written? Save it again." if again else why)


def _object(raw: bytes) -> dict[str, Any]:
    """Decode one line as a JSON object. Raises _Unreadable with the reason: length, encoding, syntax, depth."""
    if len(raw) > MAX_LINE:
        raise _Unreadable(f"a line of more than {MAX_LINE // 2**20} MiB")
    try:
        value = _DECODER.decode(raw.decode("utf-8").rstrip(" \t\r\n"))  # a line that is cut ends where it does
        if b"\\u" in raw:  # UTF-8 itself has no half characters
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
        raise _Unreadable(f"not readable as JSON: {error}") from None
    if not isinstance(value, dict):
        raise _Unreadable("not a JSON object")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        keys = [key for key, _ in pairs]
        raise _Unreadable(f"the key {next(key for key in keys if keys.count(key) > 1)[:60]!r} twice in one object")
    return value


_DECODER = json.JSONDecoder(object_pairs_hook=_once)
