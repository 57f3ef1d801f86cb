"""Read a large JSON file item by item in one pass and bounded memory: the standard decoder over a window of text."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from qualgate.errors import UsageError
from qualgate.errors.misplaced import unreadable

CHUNK = 2**20  # bytes read at a time
MOST_VALUE = 256 * 2**20  # characters of one value: an item, or a field beside the items
CUT = "Was the file cut, or still being written?"
_BLANK = " \t\r\n"
_AFTER = frozenset(",]} \t\r\n")
_SCAN = json.JSONDecoder().raw_decode
_AT_END = 12  # characters before the window's end in which a fault may come of the cut: `-Infinity`, an escape


class JsonFile:
    """A JSON object whose list at a path of keys is read item by item.

    `items` is to be read once. `rest` holds the values beside the path: those before the list from the first item on,
    those after it when the items are exhausted; `rest["results"]["stats"]` of the path ("results", "results").
    """

    def __init__(self, path: Path, *keys: str) -> None:
        self.path = path
        self.rest: dict[str, Any] = {}
        self.found = False  # whether the list is there
        self._keys = keys
        self._decoder = codecs.getincrementaldecoder("utf-8")("strict")
        self._text, self._at, self._before, self._ended = "", 0, 0, False

    @property
    def items(self) -> Iterator[Any]:
        """Yield the items. UsageError names the file and the character of what is no JSON."""
        try:
            with self.path.open("rb") as self._file:
                if self._next() == "\ufeff":
                    self._at += 1
                yield from self._object(self.rest, self._keys)
                if self._next():
                    raise self._fault("more after the end of the value")
        except OSError as error:
            raise UsageError(unreadable(self.path, error)) from None
        except UnicodeDecodeError as error:
            raise UsageError(f"{self.path}: not valid UTF-8 ({error.reason})") from None
        except RecursionError:
            raise self._fault("nested too deeply") from None

    def _object(self, rest: dict[str, Any], keys: tuple[str, ...]) -> Iterator[Any]:
        self._take("{")
        if self._next() == "}":
            self._at += 1
            return
        while True:
            key = self._value()
            if not isinstance(key, str):
                raise self._fault("a key must be a text")
            if key in rest:
                raise self._fault(f"the key {key!r:.60} twice in one object")
            self._take(":")
            start = self._next()
            if keys and key == keys[0] and start == ("{" if len(keys) > 1 else "["):
                rest[key] = below = {}
                yield from self._object(below, keys[1:]) if len(keys) > 1 else self._list()
            else:
                rest[key] = self._value()
            if self._take(",", "}") == "}":
                return

    def _list(self) -> Iterator[Any]:
        self.found = True
        self._take("[")
        if self._next() == "]":
            self._at += 1
            return
        while True:
            yield self._value()
            if self._take(",", "]") == "]":
                return

    def _next(self) -> str:
        """The next character that is no blank; "" at the end."""
        while True:
            while self._at < len(self._text):
                if (char := self._text[self._at]) not in _BLANK:
                    return char
                self._at += 1
            if not self._read():
                return ""

    def _take(self, *chars: str) -> str:
        char = self._next()
        if char not in chars or not char:
            raise self._fault(f"expected {' or '.join(chars)}, found {char!r}" if char else "it ends early")
        self._at += 1
        return char

    def _value(self) -> Any:
        """Decode the value at the place reached, reading on as long as it may be cut."""
        self._next()
        while True:
            try:
                value, end = _SCAN(self._text, self._at)
                if not isinstance(value, int | float) or self._ended or self._text[end : end + 1] in _AFTER:
                    break  # else a number may go on
            except json.JSONDecodeError as error:
                cut = error.msg.startswith("Unterminated") or error.pos >= len(self._text) - _AT_END
                if self._ended or not cut:
                    self._at = error.pos
                    raise self._fault(error.msg) from None
            except ValueError as error:  # whole numbers of thousands of digits
                raise self._fault(str(error)) from None
            if len(self._text) - self._at > MOST_VALUE:
                raise self._fault(f"more than {MOST_VALUE // 2**20} Mi characters in one value")
            self._read(len(self._text) - self._at)
        self._at = end
        return value

    def _read(self, least: int = 0) -> bool:
        """Read on: at least as much again as a value already takes. False at the end."""
        if self._ended:
            return False
        raw = self._file.read(max(CHUNK, least))
        self._ended = not raw
        self._before += self._at
        self._text, self._at = self._text[self._at :] + self._decoder.decode(raw, final=self._ended), 0
        return True

    def _fault(self, why: str) -> UsageError:
        place = f"at character {self._before + self._at + 1:,}"
        return UsageError(f"{self.path}: not readable as JSON: {why} {place}. {CUT}")
