"""Parse server-sent events from bytes as they come (WHATWG HTML, 9.2.6)."""

from __future__ import annotations

from collections.abc import Iterator

from qualgate.served.faults import WireFault

BOM = b"\xef\xbb\xbf"


class Events:
    """A parser of a stream, piece by piece. most: bytes of one event; more are a WireFault. stray: the first line
    outside events."""

    def __init__(self, most: int) -> None:
        self._most, self._line, self._data = most, bytearray(), bytearray()
        self._begun = self._returned = self._has_data = False
        self.stray = b""

    def take(self, part: bytes) -> Iterator[bytes]:
        """Yield the data of every event that ends in `part`."""
        if self._returned and part[:1] == b"\n":  # of a line end that the piece before began
            part, self._returned = part[1:], False
        self._returned = part[-1:] == b"\r" if part else self._returned
        *lines, remainder = part.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for text in lines:
            self._line += text
            line, self._line = bytes(self._line), bytearray()
            if not self._begun:
                line, self._begun = line.removeprefix(BOM), True
            yield from self._ended(line)
        self._line += remainder
        if len(self._line) + len(self._data) > self._most:
            raise WireFault(f"it sends more than {self._most:,} bytes")

    def rest(self) -> Iterator[bytes]:
        """Yield the data of an event that ends with the body, without a blank line; the standard would drop it."""
        line, self._line = bytes(self._line), bytearray()
        yield from self._ended(line if self._begun else line.removeprefix(BOM))
        yield from self._ended(b"")

    def _ended(self, line: bytes) -> Iterator[bytes]:
        """Take a whole line; at a blank one, which ends an event, yield the event's data.

        A line that is no event stream's is kept in `stray`, the first one.
        """
        if not line:
            if self._data.strip():  # one without data is none, as those that keep a connection open
                yield bytes(self._data)
            self._data, self._has_data = bytearray(), False
            return
        name, _, value = line.partition(b":")
        if name == b"data":
            if self._has_data:
                self._data += b"\n"
            self._data += value.removeprefix(b" ")
            self._has_data = True
        elif name not in (b"", b"event", b"id", b"retry"):
            self.stray = self.stray or line
