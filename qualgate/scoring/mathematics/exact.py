"""The value of a tree that is a rational number, exactly. What would take long to work out is refused, not begun."""

from __future__ import annotations

from fractions import Fraction
from math import comb, factorial

from qualgate.scoring.mathematics.tree import Node, Undecided

MAX_BITS = 20_000  # of a numerator or denominator on the way
MAX_FACTORIAL = 2_000


def exact(node: Node) -> Fraction | None:
    """Return the tree's rational value; None if it has none without roots or functions. Undecided beyond MAX_BITS."""
    if node.op == "number":
        return node.value
    if node.op not in ("add", "mul", "div", "pow", "neg", "percent", "call"):
        return None
    if node.op == "call" and node.name not in ("factorial", "binomial", "abs"):
        return None
    values = []
    for arg in node.args:
        if (value := exact(arg)) is None:
            return None
        values.append(value)
    value = _of(node, values)
    if value is not None and _bits(value) > MAX_BITS:
        raise Undecided(f"a number of more than {MAX_BITS:,} bits")
    return value


def _of(node: Node, values: list[Fraction]) -> Fraction | None:
    """Return the value of a node from the values of its arguments; None if it has no rational value.

    Undecided for a number too large to compute.
    """
    match node.op:
        case "add":
            return _sum(values)
        case "mul":
            product = Fraction(1)
            for value in values:
                if _bits(product) + _bits(value) > 2 * MAX_BITS:
                    raise Undecided(f"a number of more than {MAX_BITS:,} bits")
                product *= value
            return product
        case "div":
            return values[0] / values[1] if values[1] else None
        case "pow":
            return _power(*values)
        case "neg":
            return -values[0]
        case "percent":
            return values[0] / 100
    return _called(node.name, values)


def _sum(values: list[Fraction]) -> Fraction:
    total = Fraction(0)
    for value in values:
        total += value
        if _bits(total) > MAX_BITS:
            raise Undecided(f"a number of more than {MAX_BITS:,} bits")
    return total


def _power(base: Fraction, exponent: Fraction) -> Fraction | None:
    """Return a rational power; None if it is not rational. Undecided if the result would be too large."""
    if exponent.denominator != 1 or (base == 0 and exponent < 0):
        return None
    if abs(base) in (0, 1):
        return base ** (int(exponent) % 2) if exponent else Fraction(1)
    if _bits(base) * abs(exponent) > 2 * MAX_BITS:
        raise Undecided("a power too large to be worked out")
    return base ** int(exponent)


def _called(name: str, values: list[Fraction]) -> Fraction | None:
    """Return the value of `abs`, `factorial` or a binomial coefficient; None for arguments outside the natural numbers.

    Undecided for large arguments.
    """
    if name == "abs":
        return abs(values[0])
    if any(value.denominator != 1 or value < 0 for value in values):
        return None
    if any(value > MAX_FACTORIAL for value in values):
        raise Undecided(f"a {name} of more than {MAX_FACTORIAL:,}")
    return Fraction(factorial(int(values[0])) if name == "factorial" else comb(int(values[0]), int(values[1])))


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())
