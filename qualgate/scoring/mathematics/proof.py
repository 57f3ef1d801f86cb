"""Compare two answers at points, in a child process with limits, if rules alone cannot decide."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from qualgate.sandbox import killable
from qualgate.scoring.mathematics.reader import read
from qualgate.scoring.mathematics.same import Comparison
from qualgate.scoring.mathematics.tree import Node, Undecided, names_in
from qualgate.scoring.numeric import Tolerance

Pair = tuple[Any, Any]  # of mpmath's numbers
WITHIN = killable.Bounds(cpu_seconds=2.0, wall_seconds=60.0, memory_bytes=2**29)


class Elsewhere(Exception):
    """A comparison that needs points, which only a child process makes."""


class NotHere:
    """The prover of a process that must not hang: it leaves every question to the child."""

    def equal(self, left: Node, right: Node) -> bool:
        """Raise Elsewhere."""
        raise Elsewhere

    def proportional(self, left: Node, right: Node, positive: bool) -> bool:
        """Raise Elsewhere."""
        raise Elsewhere


class ByPoints:
    """Equal is what has one value at every point where both have one, to 40 digits of 110; at three, to 1,250 of 1,300.

    The sizes that are worked out have 600 digits at most, so that what parts two sums is seen at the second look.
    """

    def equal(self, left: Node, right: Node) -> bool:
        """Return whether both have one value everywhere. Undecided if too few points have a value of both."""
        return self._hold(left, right, lambda pairs: pairs)

    def proportional(self, left: Node, right: Node, positive: bool) -> bool:
        """Return whether one is a multiple of the other. Undecided at too few points, or if both are 0 everywhere."""

        def ratios(pairs: list[Pair]) -> list[Pair]:
            """Return each pair of values as (their ratio, the first ratio), which are equal if one side is a multiple.

            Returns [(0, 1)], an unequal pair, if it cannot be one.
            """
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

        return self._hold(left, right, ratios)

    def _hold(self, left: Node, right: Node, transform: Callable[[list[Pair]], list[Pair]]) -> bool:
        """Return whether the two numbers of each pair that `transform` makes of both sides' values are equal.

        They are compared at moderate precision, and a few of them at a higher one. Undecided in between.
        """
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
            return [(abs(a - b), max(abs(a), abs(b))) for a, b in transform(list(pairs))]

        by_point = self._pairs(left, right, DIGITS, PLACES)
        if any(gap > max(SAME * size, NOTHING) for gap, size in gaps(by_point.values())):
            return False
        closer_look = gaps(self._pairs(left, right, SURE_DIGITS, tuple(by_point)[:NEEDED]).values())
        if any(gap > UNSURE * max(size, 1) for gap, size in closer_look):
            return False
        if any(gap > SURE * max(size, 1) for gap, size in closer_look):
            raise Undecided("two numbers so near to each other that nobody can say")
        return True

    def _pairs(self, left: Node, right: Node, digits: int, places: Sequence[int]) -> dict[int, Pair]:
        """Return both trees' values by point, where both have one, computed to so many digits.

        Undecided at too few points.
        """
        from qualgate.scoring.mathematics.points import NEEDED, SAME, values_at

        names = sorted(names_in(left) | names_in(right))
        sides = [values_at(side, names, digits, places) for side in (left, right)]
        by_point = {
            place: (a, b) for place, a, b in zip(places, *sides, strict=False) if a is not None and b is not None
        }
        if names and not holds_imaginary(left) and not holds_imaginary(right):
            by_point = {
                place: (a, b) for place, (a, b) in by_point.items() if abs(a.imag) <= SAME and abs(b.imag) <= SAME
            }
        if len(by_point) < (NEEDED if names else 1):
            raise Undecided("one of the two has no value where they could be compared")
        return by_point


def holds_imaginary(node: Node) -> bool:
    """Return whether the tree names the imaginary unit."""
    return (node.op == "name" and node.name == "i") or any(map(holds_imaginary, node.args))


def same(answer: str, reference: str, declared: Mapping[str, Any] | None = None) -> bool:
    """Return whether two answers are mathematically equal. declared: the case's tolerance, if it has one.

    Unread if one cannot be read, Undecided if no rule decides, killable.Killed if it took too long.
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
    """Compare in the child process: return the verdict, or None and why there is none."""
    tolerance = Tolerance.of({"tolerance": declared} if declared else {})
    try:
        return Comparison(prover=ByPoints(), tolerance=tolerance).same(*_both(answer, reference)), ""
    except Undecided as error:
        return None, str(error)


def _both(answer: str, reference: str) -> tuple[Node, Node]:
    r"""Read both trees. A log without a base has base 10, as in contests, unless one of them names `\ln` or e."""
    answer_tree, reference_tree = read(answer), read(reference)
    if _is_natural(answer_tree) or _is_natural(reference_tree):
        return answer_tree, reference_tree
    return _to_base_10(answer_tree), _to_base_10(reference_tree)


def _is_natural(node: Node) -> bool:
    named = node.name == "e" if node.op == "name" else node.op == "call" and node.name in ("ln", "exp")
    return named or any(map(_is_natural, node.args))


def _logs(node: Node) -> set[str]:
    """Return the names of the tree's logarithms without a base."""
    own = {node.name} & {"ln", "log"} if node.op == "call" and len(node.args) == 1 else set()
    return own.union(*map(_logs, node.args))


def _to_base_10(node: Node) -> Node:
    name = "lg" if node.op == "call" and node.name == "log" and len(node.args) == 1 else node.name
    return replace(node, name=name, args=tuple(map(_to_base_10, node.args)))
