"""A place in the tokens of an answer."""

from __future__ import annotations

from qualgate.scoring.mathematics.tokens import Token
from qualgate.scoring.mathematics.tree import Unread
from qualgate.scoring.outcome import quote

MAX_DEPTH = 100  # of our own calls: some 30 brackets
END: Token = ("end of text", "")


class Cursor:
    """One reading: a place in the tokens, how deep it is, and how many `|` are open."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens, self.place, self.depth, self.bars = tokens, 0, 0, 0

    @property
    def next(self) -> Token:
        """The next token."""
        return self.tokens[self.place] if self.place < len(self.tokens) else END

    def take(self) -> Token:
        """Return the next token and advance."""
        token = self.next
        self.place += 1
        return token

    def takes(self, *signs: str) -> bool:
        """Take the next token if it is one of these symbols; return whether it was."""
        if self.next[0] == "symbol" and self.next[1] in signs:
            self.place += 1
            return True
        return False

    def takes_command(self, *names: str) -> str | None:
        """Take the next token if it is one of these commands; return its name."""
        if self.next[0] == "command" and self.next[1] in names:
            return self.take()[1]
        return None

    def deeper(self) -> None:
        """Descend one level; Unread beyond MAX_DEPTH."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unread("limit", "an expression that is nested too deeply")

    def need(self, *signs: str) -> str:
        """Take the next token, which must be one of these symbols, and return it. Unread if it is none."""
        if not self.takes(*signs):
            following = quote(self.next[1]) if self.next != END else "the end"
            raise Unread("malformed", f"{signs[0]} is missing before {following}")
        return self.tokens[self.place - 1][1]
