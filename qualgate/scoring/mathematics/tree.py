"""An answer as a tree of numbers, names and operations."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

ZERO = Fraction(0)


@dataclass(frozen=True, slots=True)
class Node:
    """`op` says what `args`, `name`, `value` and `places` are.

    number (value; places: decimals as written, 0 of a whole number), name, text (name: words), infinity; add, mul, div,
    pow, neg, percent of args; pm, mp (a ± b, a ∓ b); call (name: the function); list (bare, `1, 2`), tuple, set;
    interval (name: its two brackets); union, intersection, difference; relation (name: operators, split by blanks;
    args: sides, one more); matrix of rows; unit (args: the value; name: what is written behind it).
    """

    op: str
    args: tuple[Node, ...] = ()
    name: str = ""
    value: Fraction = ZERO
    places: int = 0


class Unread(ValueError):
    """A text that is no mathematics, or none that is read here.

    kind: malformed (nobody could read it: the answer's fault); unknown, limit (ours: no verdict).
    """

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


class Undecided(ArithmeticError):
    """Two answers were read and can be proven neither equal nor different within the limits."""


def number(value: Fraction | int, places: int = 0) -> Node:
    """A number written with so many decimals."""
    return Node("number", value=Fraction(value), places=places)


def names_in(node: Node) -> set[str]:
    """Every name that is not a constant."""
    if node.op == "name":
        return {node.name} - {"e", "i", "pi"}
    return set().union(*map(names_in, node.args)) if node.args else set()


def holds(node: Node, *ops: str) -> bool:
    """Return whether the tree contains one of these operations."""
    return node.op in ops or any(holds(arg, *ops) for arg in node.args)
