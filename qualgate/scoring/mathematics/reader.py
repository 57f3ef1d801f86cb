r"""Parse LaTeX or plain text to a tree, by our own grammar: no name is ever looked up, no code ever run.

Surprising rules besides those of `formula`: words behind a value are its unit or a remark, words alone are a text;
`a:b` is a ratio and read as a quotient; `and` and `or` separate items as a comma does.
"""

from __future__ import annotations

from functools import lru_cache

from qualgate.scoring.mathematics.cursor import END, MAX_DEPTH
from qualgate.scoring.mathematics.formula import RELATIONS, SEPARATORS, Formula
from qualgate.scoring.mathematics.tokens import Token, tokens
from qualgate.scoring.mathematics.tree import Node, Unread, number
from qualgate.scoring.mathematics.words import BEFORE, CHANGING, CONSTANTS, FUNCTIONS, MANY, PERCENT
from qualgate.scoring.outcome import quote

MAX_TOKENS = 1_000
_OF_SETS: dict[Token, str] = {
    ("command", "cup"): "union",
    ("word", "U"): "union",
    ("command", "cap"): "intersection",
    ("command", "setminus"): "difference",
    ("command", "backslash"): "difference",
}


@lru_cache(maxsize=512)
def read(text: str) -> Node:
    """Parse an answer into a tree. Unread, with the kind and the reason, if that fails."""
    token_list = tokens(text)
    while token_list and token_list[-1] in (("symbol", "."), ("symbol", ","), ("symbol", ";")):
        token_list.pop()
    if len(token_list) > 1 and token_list[0] in (("symbol", "="), ("command", "approx")):
        del token_list[0]
    if len(token_list) > MAX_TOKENS:
        raise Unread("limit", f"an expression of {len(token_list):,} signs, {MAX_TOKENS:,} are read")
    if not token_list:
        raise Unread("malformed", "there is nothing to read")
    if all(kind in ("word", "text") or sign in "-'.,?!&" for kind, sign in token_list) and _is_prose(token_list):
        return Node("text", name=" ".join(sign for _, sign in token_list))
    parser = _Answer(token_list)
    tree = parser.listed()
    if parser.next != END:
        kind = "unknown" if any(kind == "text" for kind, _ in token_list) else "malformed"
        raise Unread(kind, f"nothing is expected to go on with {quote(parser.next[1])}")
    _refuse_deep(tree)
    return tree


def _refuse_deep(tree: Node) -> None:
    """Raise Unread for a tree too deep for recursion, such as `a/b/c` a thousand times."""
    level = [tree]
    for _ in range(MAX_DEPTH):
        level = [arg for node in level for arg in node.args]
    if level:
        raise Unread("limit", "an expression that is nested too deeply")


def _is_prose(token_list: list[Token]) -> bool:
    first = token_list[0]
    if len(token_list) == 1:
        return first[0] == "text" or (len(first[1]) > 3 and first[1] not in CONSTANTS and first[1] not in FUNCTIONS)
    words = [sign for kind, sign in token_list if kind in ("word", "text")]
    return not (set(words) & FUNCTIONS) and (max(map(len, words), default=0) > 3 or first[0] == "text") and not (
        {"and", "or"} & set(words))  # fmt: skip


def _with_words(value: Node, behind: str) -> Node:
    """Apply the words behind a value: percent, a large number's name, else a unit.

    Unread for words that change the value in an unknown way.
    """
    first, *remaining_words = behind.split() or [behind]
    if first in PERCENT:
        value, behind = Node("percent", (value,)), " ".join(remaining_words)
    elif first in MANY:
        value, behind = Node("mul", (value, number(MANY[first]))), " ".join(remaining_words)
    if changing := CHANGING.intersection(behind.lower().split()):
        raise Unread("unknown", f"a value with {quote(min(changing))} behind it")
    return Node("unit", (value,), behind) if behind else value


class _Answer(Formula):
    """Lists, relations, unions, ratios, and words behind a value."""

    def listed(self) -> Node:
        """Read a list of items; a single item stays itself."""
        items = [self.related()]
        while self.next in SEPARATORS:
            while self.next in SEPARATORS:  # `, and`
                self.take()
            items.append(self.related())
        return items[0] if len(items) == 1 else Node("list", tuple(items))

    def related(self) -> Node:
        """Read a value, or a chain of values with relations between them."""
        if self.next[0] == "text" and (
            self.place + 1 < len(self.tokens) and self.tokens[self.place + 1][1] in RELATIONS
        ):
            sides = [Node("text", name=self.take()[1])]
        else:
            sides = [self.united()]
        operators = []
        while (operator := self._relation()) is not None:
            operators.append(operator)
            sides.append(self.united())
        return sides[0] if not operators else Node("relation", tuple(sides), " ".join(operators))

    def _relation(self) -> str | None:
        """Take a relation sign and return its name; None if none is next."""
        kind, sign = self.next
        if kind not in ("symbol", "command") or sign not in RELATIONS:
            return None
        self.take()
        if sign in "<>" and self.takes("="):
            return sign + "="
        return RELATIONS[sign]

    def united(self) -> Node:
        """Read sets, their unions, intersections and differences."""
        left = self.ratio()
        while self.next in _OF_SETS:
            op = _OF_SETS[self.take()]
            right = self.ratio()
            left = Node(op, (*left.args, right)) if left.op == op else Node(op, (left, right))
        return left

    def ratio(self) -> Node:
        """Read a value, or several with `:` between them."""
        parts = [self.measured()]
        while self.takes(":"):
            parts.append(self.measured())
        if len(parts) == 2:
            return Node("div", (parts[0], parts[1]))
        return parts[0] if len(parts) == 1 else Node("tuple", tuple(parts), ":")

    def measured(self) -> Node:
        """Read a value and the words behind it."""
        while self.next[0] in ("word", "text") and BEFORE.issuperset(self.next[1].lower().split()):
            self.take()
        value, behind = self.added(), ""
        while (self.next[0] in ("word", "text") and self.next not in SEPARATORS) or (
            behind and (self.next[1] in ("/", "^", ".", "number", "-") or behind == "base") and self.next != END
        ):
            behind += (" " if behind else "") + self.take()[1]
            if self.tokens[self.place - 1] == ("symbol", "^"):
                behind += self._exponent()
        return _with_words(value, behind) if behind else value

    def _exponent(self) -> str:
        """Take a unit's exponent, with or without braces. Unread for what is no number or degree sign."""
        braced = self.takes("{")
        kind, sign = self.take()
        if kind == "command" and sign == "circ":
            kind, sign = "number", "°"
        if kind != "number":
            raise Unread("unknown", f"a unit to the power {quote(sign)}")
        if braced:
            self.need("}")
        return sign
