"""A place in the tokens of an answer."""

from __future__ import annotations

from qualgate.scoring.mathematics.tokens import Token
from qualgate.scoring.mathematics.tree import Unread
from qualgate.scoring.outcome import quote

MAX_DEPTH = 100  # of our own calls: some 30 brackets
END: Token = ("end of text", "")


class Cursor:
    """One reading: a place in the tokens, how deep it is, and how many `|` are open."""

    def __init__(self, found: list[Token]) -> None:
        self.found, self.place, self.depth, self.bars = found, 0, 0, 0

    @property
    def next(self) -> Token:
        """The token that is to be read."""
        return self.found[self.place] if self.place < len(self.found) else END

    def take(self) -> Token:
        """It, and one place on."""
        token = self.next
        self.place += 1
        return token

    def takes(self, *signs: str) -> bool:
        """Whether the next is one of these symbols; it is taken then."""
        if self.next[0] == "symbol" and self.next[1] in signs:
            self.place += 1
            return True
        return False

    def takes_command(self, *names: str) -> str | None:
        """The name of the next if it is one of these commands; it is taken then."""
        if self.next[0] == "command" and self.next[1] in names:
            return self.take()[1]
        return None

    def deeper(self) -> None:
        """One level more; Unread where it is one too many."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unread("limit", "an expression that is nested too deeply")

    def need(self, *signs: str) -> str:
        """The one of these symbols that follows; it is taken. Unread where none does."""
        if not self.takes(*signs):
            found = quote(self.next[1]) if self.next != END else "the end"
            raise Unread("malformed", f"{signs[0]} is missing before {found}")
        return self.found[self.place - 1][1]
