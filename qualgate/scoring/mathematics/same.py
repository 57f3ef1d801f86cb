r"""Whether two trees say the same: `x = 3` and 3, `(1,2)` and 1 < x < 2, a list in any order, 50 % and 1/2.

What is settled here, by rules; two values that are no rational numbers are the prover's to compare.

- numbers are exact: 1/8 is 0.125, 0.33 is not 1/3. A decimal of six places or more stands for what it is rounded or
  cut off from: 0.333333 is 1/3. A case's tolerance widens both
- `5\%` is 1/20 and 5; units are overlooked where only one side has one, or one that nobody knows; of two known ones
  that differ the answer is wrong
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

from qualgate.scoring.match import Tolerance
from qualgate.scoring.mathematics.exact import exact
from qualgate.scoring.mathematics.tree import Node, Undecided, holds, names_in, number
from qualgate.scoring.mathematics.words import unit_of

MAX_UNMATCHED = 40  # items of a list that are not literally in the other: each is compared with each
STANDS_FOR = 6  # decimals from which on a decimal stands for what it was rounded or cut off from
SIGNIFICANT = 1_000  # units of its last place that it must have at least
_COLLECTIONS = frozenset({"list", "set", "tuple", "interval", "union", "intersection", "difference", "matrix", "row"})
_REALS = frozenset({"r", "all real numbers", "all reals", "real numbers", "the real numbers"})
_INFINITY = Node("infinity")
_LINE = Node("tuple", (Node("neg", (_INFINITY,)), _INFINITY))


class Prover(Protocol):
    """Compares values that are no rational numbers."""

    def equal(self, one: Node, other: Node) -> bool:
        """Whether both have one value. Undecided where nobody can say."""
        ...

    def proportional(self, one: Node, other: Node, positive: bool) -> bool:
        """Whether one is a constant multiple of the other, not 0; `positive`: a multiple above 0."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """By what two answers are compared."""

    prover: Prover
    tolerance: Tolerance

    def same(self, answer: Node, reference: Node) -> bool:
        """Undecided where nobody can say."""
        if answer == reference:
            return True
        answer, reference = _alike(_spread(answer), _spread(reference))
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

    def _collections(self, one: Node, other: Node) -> bool:
        kinds = {one.op, other.op}
        one, other = (replace(node, args=(*dict.fromkeys(node.args),)) if node.op == "set" else node
                      for node in (one, other))  # fmt: skip
        if one.op == other.op:
            if one.name != other.name or len(one.args) != len(other.args):
                return False
            if one.op in ("list", "set", "union", "intersection"):
                return self._in_any_order(one.args, other.args)
            return all(map(self.same, one.args, other.args))
        if kinds == {"list", "set"}:
            return len(one.args) == len(other.args) and self._in_any_order(one.args, other.args)
        if kinds == {"list", "tuple"}:
            return len(one.args) == len(other.args) and all(map(self.same, one.args, other.args))
        if "set" in kinds and len(kinds & _COLLECTIONS) == 1:
            lone = [node.args[0] if node.op == "set" and len(node.args) == 1 else node for node in (one, other)]
            return lone != [one, other] and self.same(*lone)
        return False

    def _in_any_order(self, some: Sequence[Node], others: Sequence[Node]) -> bool:
        common = Counter(some) & Counter(others)
        left, right = list((Counter(some) - common).elements()), list((Counter(others) - common).elements())
        if len(left) > MAX_UNMATCHED:
            raise Undecided(f"more than {MAX_UNMATCHED} items to be matched")
        for item in left:
            match = next((place for place, each in enumerate(right) if self.same(item, each)), None)
            if match is None:
                return False
            right.pop(match)
        return True

    def _relations(self, one: Node, other: Node) -> bool:
        kinds = set(one.name.split()) | set(other.name.split())
        if kinds <= {"=", "in"} and _assigns(one) and _assigns(other):
            if self._named_alike(one.args[0], other.args[0]):
                return self.same(one.args[-1], other.args[-1])
            if names_in(one) != names_in(other):
                return False
        if len(one.args) == len(other.args) == 2:
            (kind, difference), (other_kind, other_difference) = _difference(one), _difference(other)
            return kind == other_kind and self.prover.proportional(difference, other_difference, kind in ("<", "<="))
        for sides, operators in ((other.args, other.name), (other.args[::-1], _turned(other.name))):
            if one.name == operators and len(one.args) == len(sides):
                return all(map(self.same, one.args, sides))
        return False

    def _named_alike(self, one: Node, other: Node) -> bool:
        return one == other or "text" in (one.op, other.op) or Counter(_factors(one)) == Counter(_factors(other))

    def _values(self, one: Node, other: Node) -> bool:
        (one, measured), (other, also) = _measured(one), _measured(other)
        if (measured and also and measured != also) or _base(measured) != _base(also):
            return False
        if "percent" in (one.op, other.op):
            if one.op == other.op:
                return self._values(one.args[0], other.args[0])
            share, plain = (one, other) if one.op == "percent" else (other, one)
            whole = share.args[0]
            return self._values(whole, plain) or self._values(Node("div", (whole, number(100))), plain)
        if holds(one, "infinity") or holds(other, "infinity"):
            return one == other
        left, right = exact(one), exact(other)
        if left is not None and right is not None:
            return left == right or self._near(left, right, _decimals(one), _decimals(other))
        places = max(_decimals(one) or 0, _decimals(other) or 0)
        decimal, plain = (one, other) if right is None else (other, one)
        if not names_in(plain) and (places >= STANDS_FOR or self.tolerance != Tolerance()):
            return self._stands_for(decimal, plain, places)
        return self.prover.equal(one, other)

    def _near(self, answer: Fraction, reference: Fraction, places: int | None, others: int | None) -> bool:
        """Two rational numbers that are not the same."""
        apart = abs(answer - reference)
        if apart <= max(self.tolerance.absolute, self.tolerance.relative * abs(reference)):
            return True
        decimals = [(each, value) for each, value in ((places, answer), (others, reference)) if each is not None]
        if not decimals or min(decimals)[0] < STANDS_FOR:
            return False
        (fewest, decimal), unit = min(decimals), Fraction(1, 10 ** min(decimals)[0])
        exact_one = reference if decimal == answer else answer
        cut = abs(decimal) <= abs(exact_one) < abs(decimal) + unit and decimal * exact_one > 0
        return (cut or 2 * apart <= unit) and abs(decimal) * 10**fewest >= SIGNIFICANT

    def _stands_for(self, decimal: Node, plain: Node, places: int) -> bool:
        """Whether a decimal lies so near to what is no rational number: that lies between the two ends."""
        value = exact(decimal)
        if value is None:
            return self.prover.equal(decimal, plain)
        middle, within = value, max(self.tolerance.absolute, self.tolerance.relative * abs(value))
        unit = Fraction(1, 10**places)
        if places >= STANDS_FOR and abs(value) / unit >= SIGNIFICANT and within < unit:  # from half below to one above
            middle, within = value + (unit / 4 if value > 0 else -unit / 4), 3 * unit / 4
        apart = Node("call", (Node("add", (plain, number(-middle))),), "abs")
        return self.prover.equal(Node("call", (apart, number(within)), "max"), number(within))


def _spread(node: Node) -> Node:
    """`±` as a list of both; a list of bounds as the union of their intervals."""
    if holds(node, "pm", "mp"):
        if node.op == "relation":
            return Node("relation", (*node.args[:-1], _spread(node.args[-1])), node.name)
        if node.op == "list":
            return Node("list", tuple(item for arg in node.args for item in _items(_spread(arg))))
        return Node("list", (_signed(node, False), _signed(node, True)))
    if node.op == "list" and len(node.args) > 1:
        intervals = [_interval(arg) for arg in node.args]
        if all(intervals) and len({names for one in intervals if one for names in one[0]}) == 1:
            return Node("union", tuple(one[1] for one in intervals if one))
    return node


def _items(node: Node) -> tuple[Node, ...]:
    if node.op == "relation" and node.args[-1].op == "list":
        return tuple(Node("relation", (*node.args[:-1], item), node.name) for item in node.args[-1].args)
    return node.args if node.op == "list" else (node,)


def _signed(node: Node, turned: bool) -> Node:
    """With one sign for every `±`."""
    args = tuple(_signed(arg, turned) for arg in node.args)
    if node.op in ("pm", "mp"):
        return Node("add", (args[0], args[1] if (node.op == "pm") != turned else Node("neg", (args[1],))))
    return Node(node.op, args, node.name, node.value, node.places)


def _alike(answer: Node, reference: Node) -> tuple[Node, Node]:
    """Bounds as intervals, and all real numbers as the line, where the other side is one or says bounds too."""
    if {answer.op, reference.op} <= {"text", "tuple", "union"} and answer.op != reference.op:
        answer, reference = (
            _LINE if node.op == "text" and node.name.lower() in _REALS else node for node in (answer, reference)
        )
    one, other = _interval(answer), _interval(reference)
    if one and other:
        return (one[1], other[1]) if one[0] == other[0] else (answer, reference)
    return one[1] if one and reference.op != "relation" else answer, (
        other[1] if other and answer.op != "relation" else reference
    )


def _interval(node: Node) -> tuple[set[str], Node] | None:
    """The name that a relation bounds by values without names, and the interval."""
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
    return " ".join(_TURNED.get(one, one) for one in reversed(operators.split()))


def _difference(relation: Node) -> tuple[str, Node]:
    """A relation of two sides as its operator and what it compares with 0: a < b is b - a above 0."""
    (left, right), kind = relation.args, relation.name
    if kind in (">", ">="):
        left, right, kind = right, left, _TURNED[kind]
    return kind, Node("add", (right, Node("neg", (left,))))


def _assigns(relation: Node) -> bool:
    """Whether its first side only names what the last one is."""
    first = relation.args[0]
    named = first.op in ("name", "text") or (
        first.op in ("mul", "tuple") and all(arg.op == "name" for arg in first.args)
    )
    applied = first.op == "mul" and all(arg.op in ("name", "tuple") for arg in first.args)
    return (named or applied) and set(relation.name.split()) <= {"=", "in"}


def _factors(node: Node) -> Iterator[Node]:
    if node.op == "mul":
        yield from node.args
    else:
        yield node


def _words(node: Node) -> str | None:
    """Letters and digits of what is only words or names, in small letters."""
    if node.op == "unit" and node.args[0].op == "text":
        node = Node("text", name=f"{node.args[0].name} {node.name}")
    if node.op == "mul" and all(arg.op == "name" for arg in node.args):
        node = Node("text", name="".join(arg.name for arg in node.args))
    if node.op not in ("text", "name"):
        return None
    return "".join(letter for letter in node.name.casefold() if letter.isalnum()) or node.name


def _measured(node: Node) -> tuple[Node, str | None]:
    """The value without its unit, and which known one that is."""
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
    """Of a number, signed or not, that is written with some: how many."""
    while node.op == "neg":
        node = node.args[0]
    return node.places or None if node.op == "number" else None
