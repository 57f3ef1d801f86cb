"""Two answers compared with points, in a child that can be ended: what is left where rules alone cannot say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qualgate.sandbox import killable
from qualgate.scoring.match import Tolerance
from qualgate.scoring.mathematics.reader import read
from qualgate.scoring.mathematics.same import Comparison
from qualgate.scoring.mathematics.tree import Node, Undecided, names_in

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
    """Equal is what has one value, to 40 of 110 digits, at every point where both have one."""

    def equal(self, one: Node, other: Node) -> bool:
        """Undecided where both have a value at too few points."""
        from qualgate.scoring.mathematics.points import DIGITS, NOTHING, SAME

        pairs = self._pairs(one, other)
        if all(max(abs(a), abs(b)) < NOTHING for a, b in pairs):  # nothing, or something very small?
            return all(max(abs(a), abs(b)) < NOTHING**3 for a, b in self._pairs(one, other, 3 * DIGITS))
        return all(abs(a - b) <= max(SAME * max(abs(a), abs(b)), NOTHING) for a, b in pairs)

    def proportional(self, one: Node, other: Node, positive: bool) -> bool:
        """Undecided where both have a value at too few points, or one is 0 at all of them."""
        from qualgate.scoring.mathematics.points import NOTHING, SAME

        pairs = [(a, b) for a, b in self._pairs(one, other) if abs(a) > NOTHING or abs(b) > NOTHING]
        if not pairs:
            raise Undecided("a relation that always holds")
        if any(abs(a) <= NOTHING or abs(b) <= NOTHING for a, b in pairs):
            return False
        ratios = [a / b for a, b in pairs]
        constant = all(abs(ratio - ratios[0]) <= SAME * abs(ratios[0]) for ratio in ratios)
        return constant and (not positive or (ratios[0].imag == 0 and ratios[0].real > 0))

    def _pairs(self, one: Node, other: Node, digits: int = 0) -> list[tuple[Any, Any]]:
        from qualgate.scoring.mathematics.points import DIGITS, NEEDED, SAME, values_at

        names = sorted(names_in(one) | names_in(other))
        sides = (values_at(side, names, digits or DIGITS) for side in (one, other))
        found = [(a, b) for a, b in zip(*sides, strict=True) if a is not None and b is not None]
        if names and not holds_imaginary(one) and not holds_imaginary(other):
            found = [(a, b) for a, b in found if abs(a.imag) <= SAME and abs(b.imag) <= SAME]
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
    one, other, tolerance = read(answer), read(reference), Tolerance.of({"tolerance": declared} if declared else {})
    try:
        return Comparison(prover=NotHere(), tolerance=tolerance).same(one, other)
    except Elsewhere:
        verdict, reason = killable.run(compared, answer, reference, declared, within=WITHIN)
    if verdict is None:
        raise Undecided(reason)
    return verdict


def compared(answer: str, reference: str, declared: Mapping[str, Any] | None) -> tuple[bool | None, str]:
    """The child's part: the verdict, or None and why there is none."""
    tolerance = Tolerance.of({"tolerance": declared} if declared else {})
    try:
        return Comparison(prover=ByPoints(), tolerance=tolerance).same(read(answer), read(reference)), ""
    except Undecided as error:
        return None, str(error)
