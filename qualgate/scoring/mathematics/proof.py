"""Two answers compared with points, in a child that can be ended: what is left where rules alone cannot say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from qualgate.sandbox import killable
from qualgate.scoring.match import Tolerance
from qualgate.scoring.mathematics.reader import read
from qualgate.scoring.mathematics.same import Comparison
from qualgate.scoring.mathematics.tree import Node, Undecided, names_in

Pair = tuple[Any, Any]  # of mpmath's numbers
WITHIN = killable.Bounds(cpu_seconds=2.0, wall_seconds=60.0, memory_bytes=2**29)


class Elsewhere(Exception):
    """A comparison that needs points; only a child makes it."""


class NotHere:
    """The prover of a process that must not hang: it leaves every question to the child."""

    def equal(self, one: Node, other: Node) -> bool:
        """Elsewhere, always."""
        raise Elsewhere

    def proportional(self, one: Node, other: Node, positive: bool) -> bool:
        """Elsewhere, always."""
        raise Elsewhere


class ByPoints:
    """Equal is what has one value at every point where both have one, to 40 digits of 110; at three, to 1,250 of 1,300.

    The sizes that are worked out have 600 digits at most, so that what parts two sums is seen at the second look.
    """

    def equal(self, one: Node, other: Node) -> bool:
        """Undecided where both have a value at too few points."""
        return self._hold(one, other, lambda pairs: pairs)

    def proportional(self, one: Node, other: Node, positive: bool) -> bool:
        """Undecided where both have a value at too few points, or both are 0 at all of them."""

        def ratios(pairs: list[Pair]) -> list[Pair]:
            from qualgate.scoring.mathematics.points import NOTHING

            pairs = [(a, b) for a, b in pairs if abs(a) > NOTHING or abs(b) > NOTHING]
            if not pairs:
                raise Undecided("a relation that always holds")
            if any(abs(a) <= NOTHING or abs(b) <= NOTHING for a, b in pairs):
                return [(0, 1)]
            first = pairs[0][0] / pairs[0][1]
            if positive and (first.imag != 0 or first.real < 0):
                return [(0, 1)]
            return [(a / b, first) for a, b in pairs]

        return self._hold(one, other, ratios)

    def _hold(self, one: Node, other: Node, made: Callable[[list[Pair]], list[Pair]]) -> bool:
        """Whether the two numbers of each pair are the same, which `made` makes of both sides' values."""
        from qualgate.scoring.mathematics.points import (
            DIGITS,
            NEEDED,
            NOTHING,
            PLACES,
            SAME,
            SURE,
            SURE_DIGITS,
            UNSURE,
        )

        def gaps(pairs: Iterable[Pair]) -> list[Pair]:
            return [(abs(a - b), max(abs(a), abs(b))) for a, b in made(list(pairs))]

        found = self._pairs(one, other, DIGITS, PLACES)
        if any(gap > max(SAME * size, NOTHING) for gap, size in gaps(found.values())):
            return False
        second = gaps(self._pairs(one, other, SURE_DIGITS, tuple(found)[:NEEDED]).values())
        if any(gap > UNSURE * max(size, 1) for gap, size in second):
            return False
        if any(gap > SURE * max(size, 1) for gap, size in second):
            raise Undecided("two numbers so near to each other that nobody can say")
        return True

    def _pairs(self, one: Node, other: Node, digits: int, places: Sequence[int]) -> dict[int, Pair]:
        """By point, the values of both where both have one."""
        from qualgate.scoring.mathematics.points import NEEDED, SAME, values_at

        names = sorted(names_in(one) | names_in(other))
        sides = [values_at(side, names, digits, places) for side in (one, other)]
        found = {at: (a, b) for at, a, b in zip(places, *sides, strict=False) if a is not None and b is not None}
        if names and not holds_imaginary(one) and not holds_imaginary(other):
            found = {at: (a, b) for at, (a, b) in found.items() if abs(a.imag) <= SAME and abs(b.imag) <= SAME}
        if len(found) < (NEEDED if names else 1):
            raise Undecided("one of the two has no value where they could be compared")
        return found


def holds_imaginary(node: Node) -> bool:
    """Whether the imaginary unit is named in it."""
    return (node.op == "name" and node.name == "i") or any(map(holds_imaginary, node.args))


def same(answer: str, reference: str, declared: Mapping[str, Any] | None = None) -> bool:
    """Whether two answers say the same; declared: the case's tolerance, if it has one.

    Unread where one cannot be read, Undecided where nobody can say, killable.Killed where it was ended.
    """
    tolerance = Tolerance.of({"tolerance": declared} if declared else {})
    try:
        verdict, reason = Comparison(prover=NotHere(), tolerance=tolerance).same(*_both(answer, reference)), ""
    except Elsewhere:
        verdict, reason = killable.run(compared, answer, reference, declared, within=WITHIN)
    if verdict and {"ln", "log"} <= _logs(read(answer)) ^ _logs(read(reference)):
        verdict, reason = None, r"one of them writes \ln and the other \log without a base"
    if verdict is None:
        raise Undecided(reason)
    return verdict


def compared(answer: str, reference: str, declared: Mapping[str, Any] | None) -> tuple[bool | None, str]:
    """The child's part: the verdict, or None and why there is none."""
    tolerance = Tolerance.of({"tolerance": declared} if declared else {})
    try:
        return Comparison(prover=ByPoints(), tolerance=tolerance).same(*_both(answer, reference)), ""
    except Undecided as error:
        return None, str(error)


def _both(answer: str, reference: str) -> tuple[Node, Node]:
    r"""Both trees. A log without a base is of base 10, as contests write it, unless one of them names `\ln` or e."""
    one, other = read(answer), read(reference)
    if _is_natural(one) or _is_natural(other):
        return one, other
    return _to_base_10(one), _to_base_10(other)


def _is_natural(node: Node) -> bool:
    named = node.name == "e" if node.op == "name" else node.op == "call" and node.name in ("ln", "exp")
    return named or any(map(_is_natural, node.args))


def _logs(node: Node) -> set[str]:
    """Which logarithms without a base are named in it."""
    own = {node.name} & {"ln", "log"} if node.op == "call" and len(node.args) == 1 else set()
    return own.union(*map(_logs, node.args))


def _to_base_10(node: Node) -> Node:
    name = "lg" if node.op == "call" and node.name == "log" and len(node.args) == 1 else node.name
    return replace(node, name=name, args=tuple(map(_to_base_10, node.args)))
