r"""Compare two trees: `x = 3` equals 3, `(1,2)` equals 1 < x < 2, a list in any order, 50 % and 1/2.

These rules decide; two values that are not rational numbers are left to the prover.

- numbers are exact: 1/8 is 0.125, 0.33 is not 1/3. A decimal of six places or more stands for what it is rounded or
  cut off from: 0.333333 is 1/3. A case's tolerance widens both
- `5\%` is 1/20 and 5; a unit is ignored if only one side has one, or if it is unknown; two different known units make
  the answer wrong
- a number in base 2 is none in base 10: `101_2` is not 101; without a base it is of base 10
- a bare list and a set know no order, a pair does; `1,2` is `(1,2)`; `\{1,2\}` is not
- `x=3` is 3 and not `y=3`; `x \in [2,\infty)` is `x \ge 2`; equations and inequalities are the same where one side is
  a multiple of the other
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Protocol

from qualgate.scoring.mathematics.exact import exact
from qualgate.scoring.mathematics.tree import Node, Undecided, holds, names_in, number
from qualgate.scoring.mathematics.words import unit_of
from qualgate.scoring.numeric import Tolerance

MAX_UNMATCHED = 40  # items of a list that are not literally in the other: each is compared with each
STANDS_FOR = 6  # decimals from which on a decimal stands for what it was rounded or cut off from
SIGNIFICANT = 1_000  # units of its last place that it must have at least
_COLLECTIONS = frozenset({"list", "set", "tuple", "interval", "union", "intersection", "difference", "matrix", "row"})
_REALS = frozenset({"r", "all real numbers", "all reals", "real numbers", "the real numbers"})
_INFINITY = Node("infinity")
_LINE = Node("tuple", (Node("neg", (_INFINITY,)), _INFINITY))


class Prover(Protocol):
    """Compares values that are no rational numbers."""

    def equal(self, left: Node, right: Node) -> bool:
        """Return whether both have one value. Undecided if no rule decides."""
        ...

    def proportional(self, left: Node, right: Node, positive: bool) -> bool:
        """Return whether one is a constant multiple of the other, not 0; `positive`: above 0."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A comparison of answers: its prover and its tolerance."""

    prover: Prover
    tolerance: Tolerance

    def same(self, answer: Node, reference: Node) -> bool:
        """Return whether both trees are equal. Undecided if no rule decides."""
        if answer == reference:
            return True
        answer, reference = _with_intervals(_spread(answer), _spread(reference))
        if answer.op == "relation" and reference.op == "relation":
            return self._relations(answer, reference)
        if answer.op == "relation":
            return set(answer.name.split()) <= {"=", "in"} and self.same(answer.args[-1], reference)
        if reference.op == "relation":
            return _assigns(reference) and self.same(answer, reference.args[-1])
        if "text" in (answer.op, reference.op):
            return (words := _words(answer)) is not None and words == _words(reference)
        collected = _COLLECTIONS & {answer.op, reference.op}
        return self._collections(answer, reference) if collected else self._values(answer, reference)

    def _collections(self, left: Node, right: Node) -> bool:
        """Return whether two collections have the same items, in any order unless one is a tuple.

        A set of one element also equals that element.
        """
        ops = {left.op, right.op}
        left, right = (replace(node, args=(*dict.fromkeys(node.args),)) if node.op == "set" else node
                      for node in (left, right))  # fmt: skip
        if left.op == right.op:
            if left.name != right.name or len(left.args) != len(right.args):
                return False
            if left.op in ("list", "set", "union", "intersection"):
                return self._in_any_order(left.args, right.args)
            return all(map(self.same, left.args, right.args))
        if ops == {"list", "set"}:
            return len(left.args) == len(right.args) and self._in_any_order(left.args, right.args)
        if ops == {"list", "tuple"}:
            return len(left.args) == len(right.args) and all(map(self.same, left.args, right.args))
        if "set" in ops and len(ops & _COLLECTIONS) == 1:
            lone = [node.args[0] if node.op == "set" and len(node.args) == 1 else node for node in (left, right)]
            return lone != [left, right] and self.same(*lone)
        return False

    def _in_any_order(self, items: Sequence[Node], other_items: Sequence[Node]) -> bool:
        """Return whether each item equals one of the others, in any order.

        Undecided for too many that are not identical.
        """
        common = Counter(items) & Counter(other_items)
        unmatched = list((Counter(items) - common).elements())
        other_unmatched = list((Counter(other_items) - common).elements())
        if len(unmatched) > MAX_UNMATCHED:
            raise Undecided(f"more than {MAX_UNMATCHED} items to be matched")
        for item in unmatched:
            match = next((index for index, candidate in enumerate(other_unmatched) if self.same(item, candidate)), None)
            if match is None:
                return False
            other_unmatched.pop(match)
        return True

    def _relations(self, left: Node, right: Node) -> bool:
        """Return whether two relations say the same.

        One assigns the value that the other does, or is a multiple of it, or is it when read from right to left.
        """
        used_operators = set(left.name.split()) | set(right.name.split())
        if used_operators <= {"=", "in"} and _assigns(left) and _assigns(right):
            if self._named_alike(left.args[0], right.args[0]):
                return self.same(left.args[-1], right.args[-1])
            if names_in(left) != names_in(right):
                return False
        if len(left.args) == len(right.args) == 2:
            (kind, difference), (other_kind, other_difference) = _difference(left), _difference(right)
            return kind == other_kind and self.prover.proportional(difference, other_difference, kind in ("<", "<="))
        for sides, operators in ((right.args, right.name), (right.args[::-1], _turned(right.name))):
            if left.name == operators and len(left.args) == len(sides):
                return all(map(self.same, left.args, sides))
        return False

    def _named_alike(self, left: Node, right: Node) -> bool:
        return left == right or "text" in (left.op, right.op) or Counter(_factors(left)) == Counter(_factors(right))

    def _values(self, left: Node, right: Node) -> bool:
        """Return whether two values are the same: in equal units, exactly, within tolerance or rounding, or by proof.

        A percentage also equals its plain number.
        """
        (left, left_unit), (right, right_unit) = _measured(left), _measured(right)
        if (left_unit and right_unit and left_unit != right_unit) or _base(left_unit) != _base(right_unit):
            return False
        if "percent" in (left.op, right.op):
            if left.op == right.op:
                return self._values(left.args[0], right.args[0])
            share, plain = (left, right) if left.op == "percent" else (right, left)
            percentage = share.args[0]
            return self._values(percentage, plain) or self._values(Node("div", (percentage, number(100))), plain)
        if holds(left, "infinity") or holds(right, "infinity"):
            return left == right
        left_value, right_value = exact(left), exact(right)
        if left_value is not None and right_value is not None:
            return left_value == right_value or self._near(left_value, right_value, _decimals(left), _decimals(right))
        places = max(_decimals(left) or 0, _decimals(right) or 0)
        decimal, plain = (left, right) if right_value is None else (right, left)
        if not names_in(plain) and (places >= STANDS_FOR or self.tolerance != Tolerance()):
            return self._stands_for(decimal, plain, places)
        return self.prover.equal(left, right)

    def _near(
        self, answer: Fraction, reference: Fraction, answer_places: int | None, reference_places: int | None
    ) -> bool:
        """Return whether two different rational numbers agree within tolerance or rounding.

        answer_places, reference_places: the decimal places written; None for a number that is no decimal.
        """
        gap = abs(answer - reference)
        if gap <= max(self.tolerance.absolute, self.tolerance.relative * abs(reference)):
            return True
        decimals = [
            (places, value)
            for places, value in ((answer_places, answer), (reference_places, reference))
            if places is not None
        ]
        if not decimals or min(decimals)[0] < STANDS_FOR:
            return False
        (fewest, decimal), unit = min(decimals), Fraction(1, 10 ** min(decimals)[0])
        exact_one = reference if decimal == answer else answer
        cut = abs(decimal) <= abs(exact_one) < abs(decimal) + unit and decimal * exact_one > 0
        return (cut or 2 * gap <= unit) and abs(decimal) * 10**fewest >= SIGNIFICANT

    def _stands_for(self, decimal: Node, plain: Node, places: int) -> bool:
        """Return whether an irrational value lies within the decimal's tolerance, or rounds or is cut to it.

        places: of the decimal.
        """
        value = exact(decimal)
        if value is None:
            return self.prover.equal(decimal, plain)
        middle, margin = value, max(self.tolerance.absolute, self.tolerance.relative * abs(value))
        unit = Fraction(1, 10**places)
        if places >= STANDS_FOR and abs(value) / unit >= SIGNIFICANT and margin < unit:  # from half below to one above
            middle, margin = value + (unit / 4 if value > 0 else -unit / 4), 3 * unit / 4
        distance = Node("call", (Node("add", (plain, number(-middle))),), "abs")
        return self.prover.equal(Node("call", (distance, number(margin)), "max"), number(margin))


def _spread(node: Node) -> Node:
    """Return a tree with `±` as the list of both values, and with a list of bounds as the union of their intervals.

    Any other tree is returned as it is.
    """
    if holds(node, "pm", "mp"):
        if node.op == "relation":
            return Node("relation", (*node.args[:-1], _spread(node.args[-1])), node.name)
        if node.op == "list":
            return Node("list", tuple(item for arg in node.args for item in _items(_spread(arg))))
        return Node("list", (_signed(node, False), _signed(node, True)))
    if node.op == "list" and len(node.args) > 1:
        intervals = [_interval(arg) for arg in node.args]
        if all(intervals) and len({names for interval in intervals if interval for names in interval[0]}) == 1:
            return Node("union", tuple(interval[1] for interval in intervals if interval))
    return node


def _items(node: Node) -> tuple[Node, ...]:
    if node.op == "relation" and node.args[-1].op == "list":
        return tuple(Node("relation", (*node.args[:-1], item), node.name) for item in node.args[-1].args)
    return node.args if node.op == "list" else (node,)


def _signed(node: Node, turned: bool) -> Node:
    """Return the tree with one sign in place of every `±`."""
    args = tuple(_signed(arg, turned) for arg in node.args)
    if node.op in ("pm", "mp"):
        return Node("add", (args[0], args[1] if (node.op == "pm") != turned else Node("neg", (args[1],))))
    return Node(node.op, args, node.name, node.value, node.places)


def _with_intervals(answer: Node, reference: Node) -> tuple[Node, Node]:
    """Return both trees, with bounds as intervals and "all reals" as the whole line, so that they can be compared.

    That is done only where the other side is of that kind.
    """
    if {answer.op, reference.op} <= {"text", "tuple", "union"} and answer.op != reference.op:
        answer, reference = (
            _LINE if node.op == "text" and node.name.lower() in _REALS else node for node in (answer, reference)
        )
    answer_interval, reference_interval = _interval(answer), _interval(reference)
    if answer_interval and reference_interval:
        return (
            (answer_interval[1], reference_interval[1])
            if answer_interval[0] == reference_interval[0]
            else (answer, reference)
        )
    return answer_interval[1] if answer_interval and reference.op != "relation" else answer, (
        reference_interval[1] if reference_interval and answer.op != "relation" else reference
    )


def _interval(node: Node) -> tuple[set[str], Node] | None:
    """Return the names that a relation bounds by constants, and the interval as a tree; None for any other tree."""
    if node.op == "relation" and node.name == "in" and _is_ranges(node.args[1]):
        return names_in(node.args[0]), node.args[1]
    if node.op != "relation" or not set(node.name.split()) <= {"<", "<=", ">", ">="}:
        return None
    sides, operators = node.args, node.name.split()
    if operators[0][0] == ">":
        sides, operators = sides[::-1], _turned(node.name).split()
    if any(operator[0] == ">" for operator in operators):
        return None
    match sides:
        case (low, middle, high):
            pass
        case (low, high) if high.op == "name":
            middle, high, operators = high, _INFINITY, [operators[0], "<"]
        case (low, high):
            middle, low, operators = low, Node("neg", (_INFINITY,)), ["<", operators[0]]
        case _:
            return None
    if middle.op != "name" or not (names := names_in(middle)) or names_in(low) or names_in(high):
        return None
    brackets = ("[" if operators[0] == "<=" else "(") + ("]" if operators[1] == "<=" else ")")
    return names, Node("tuple", (low, high)) if brackets == "()" else Node("interval", (low, high), brackets)


def _is_ranges(node: Node) -> bool:
    if node.op == "union":
        return all(map(_is_ranges, node.args))
    return node.op == "interval" or (node.op == "tuple" and len(node.args) == 2 and not node.name)


_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _turned(operators: str) -> str:
    return " ".join(_TURNED.get(operator, operator) for operator in reversed(operators.split()))


def _difference(relation: Node) -> tuple[str, Node]:
    """Return a two-sided relation as its operator and a difference with 0: a < b is b - a above 0."""
    (left, right), kind = relation.args, relation.name
    if kind in (">", ">="):
        left, right, kind = right, left, _TURNED[kind]
    return kind, Node("add", (right, Node("neg", (left,))))


def _assigns(relation: Node) -> bool:
    """Return whether the first side of a relation is only a name for the last."""
    first = relation.args[0]
    is_name = first.op in ("name", "text") or (
        first.op in ("mul", "tuple") and all(arg.op == "name" for arg in first.args)
    )
    is_application = first.op == "mul" and all(arg.op in ("name", "tuple") for arg in first.args)
    return (is_name or is_application) and set(relation.name.split()) <= {"=", "in"}


def _factors(node: Node) -> Iterator[Node]:
    if node.op == "mul":
        yield from node.args
    else:
        yield node


def _words(node: Node) -> str | None:
    """Return the letters and digits of a tree of words or names only, in lower case; None for any other tree."""
    if node.op == "unit" and node.args[0].op == "text":
        node = Node("text", name=f"{node.args[0].name} {node.name}")
    if node.op == "mul" and all(arg.op == "name" for arg in node.args):
        node = Node("text", name="".join(arg.name for arg in node.args))
    if node.op not in ("text", "name"):
        return None
    return "".join(letter for letter in node.name.casefold() if letter.isalnum()) or node.name


def _measured(node: Node) -> tuple[Node, str | None]:
    """Return a value without its unit, and the unit's known name, else None."""
    unit = None
    while node.op == "unit":
        unit, node = unit or unit_of(node.name), node.args[0]
    if node.op == "neg" and node.args[0].op == "unit":
        inner, unit = _measured(node.args[0])
        node = Node("neg", (inner,))
    return node, unit


def _base(unit: str | None) -> str:
    return unit if unit and unit.startswith("base") else "base10"


def _decimals(node: Node) -> int | None:
    """Return the number of decimals of a signed or unsigned number; None if it has none."""
    while node.op == "neg":
        node = node.args[0]
    return node.places or None if node.op == "number" else None
