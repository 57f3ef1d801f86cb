"""Evaluate a tree at a point to many digits, to compare expressions that are not rational numbers.

Each name gets a number derived from its letters and the point's number, the same on both sides. Nothing is simplified:
the time of an evaluation is bounded by the expression, and by the size of the numbers, which is checked before each
step. Functions take their principal values; an odd root of a negative number is real.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

from mpmath import mp

from qualgate.scoring.mathematics.exact import MAX_FACTORIAL
from qualgate.scoring.mathematics.tree import Node, Undecided

DIGITS = 110
SAME = mp.mpf(10) ** -40  # of the larger one: two numbers that are further apart are not the same
NOTHING = mp.mpf(10) ** -90  # below it what is left of a difference is rounding
SURE_DIGITS = 1_300  # of a second look at what seems to be the same
SURE, UNSURE = mp.mpf(10) ** -1_250, mp.mpf(10) ** -700  # nearer: the same; further apart: not
# Of each name at a point: the sign, 0 for either, and the size. Large ones tell |x - 5| from 5 - x; where they are too
# large to be worked out, that point does not count.
_SIZES = ((1, 1), (1, 1), (1, 1), (-1, 1), (0, 1), (0, 1), (1, 30), (1, 30), (-1, 30), (0, 30), (1, 10**4), (-1, 10**4),
          (0, 10**8))  # fmt: skip
PLACES = tuple(range(len(_SIZES)))
NEEDED = 3  # at which both sides have a value
MAX_EXPONENT = 2_000  # of 2: what is larger, or smaller than one over it, is not worked out


class NoValue(ArithmeticError):
    """There is no value at this point."""


def values_at(node: Node, names: Sequence[str], digits: int, places: Sequence[int] = PLACES) -> list[Any]:
    """Return the tree's value at each point, None where it is undefined or too large to compute.

    Undecided if it has no names and is too large.
    """
    if not names:
        return [_or_none(node, {}, digits)]
    values = []
    for place in places:
        try:
            values.append(_or_none(node, {name: _place(name, place) for name in names}, digits))
        except Undecided:
            values.append(None)
    return values


def _or_none(node: Node, point: dict[str, Any], digits: int) -> Any:
    """Return the tree's value at a point, to so many digits; None where it has none. Undecided if it is too large."""
    with mp.workdps(digits):
        try:
            return value(node, point)
        except (NoValue, ZeroDivisionError, ValueError):
            return None
        except OverflowError as error:
            raise Undecided("a number too large to be worked out") from error


def _place(name: str, at: int) -> Any:
    draw = random.Random(f"{name} {at}")
    sign, size = _SIZES[at]
    return mp.mpf((sign or draw.choice((-1, 1))) * draw.uniform(0.4, 2.6) * size)


def value(node: Node, point: dict[str, Any]) -> Any:
    """Evaluate the tree at a point. NoValue if it is undefined there."""
    match node.op:
        case "number":
            return mp.mpf(node.value.numerator) / node.value.denominator
        case "name":
            return point[node.name] if node.name in point else _CONSTANTS[node.name]()
        case "percent":
            return value(node.args[0], point) / 100
        case "unit":
            return value(node.args[0], point)
        case "neg":
            return -value(node.args[0], point)
    if node.op not in ("add", "mul", "div", "pow", "call"):
        raise NoValue(node.op)
    values = [value(arg, point) for arg in node.args]
    match node.op:
        case "add":
            return mp.fsum(values)
        case "mul":
            return _bounded(mp.fprod(map(_bounded, values)))
        case "div":
            return _bounded(values[0] / values[1])
        case "pow":
            return power(values[0], values[1])
    function = _FUNCTIONS.get(node.name)
    if function is None:
        raise NoValue(node.name)
    return _bounded(function(*values))


def power(base: Any, exponent: Any) -> Any:
    """Return `base` to `exponent`. Undecided if it is too large to compute."""
    if base == 0:
        if mp.re(exponent) <= 0 and exponent != 0:
            raise NoValue("0 to a negative power")
        return mp.mpf(1) if exponent == 0 else mp.mpf(0)
    if abs(exponent) * (abs(mp.log(abs(base))) + 4) > MAX_EXPONENT:
        raise Undecided("a power too large to be worked out")
    return mp.power(base, exponent)


def _bounded(number: Any) -> Any:
    if not mp.isfinite(number):
        raise NoValue("infinite")
    size = abs(number)
    if size and abs(mp.mag(size)) > MAX_EXPONENT:
        raise Undecided("a number too large to be worked out")
    return number


def _small(function: Callable[..., Any], limit: float) -> Callable[..., Any]:
    """Return the function for arguments up to `limit` in size; Undecided beyond, where the work would be too large."""

    def called(*values: Any) -> Any:
        if any(abs(argument) > limit for argument in values):
            raise Undecided("a function of a number too large to be worked out")
        return function(*values)

    return called


def _real(function: Callable[..., Any]) -> Callable[..., Any]:
    def called(*values: Any) -> Any:
        if any(abs(mp.im(argument)) > SAME for argument in values):
            raise NoValue("of a number that is not real")
        return function(*map(mp.re, values))

    return called


def _whole(function: Callable[..., int]) -> Callable[..., Any]:
    def called(*values: Any) -> Any:
        if any(argument != mp.floor(mp.re(argument)) or abs(argument) > 10**30 for argument in values):
            raise NoValue("of what are no whole numbers")
        return mp.mpf(function(*(int(argument) for argument in values)))

    return called


def _root(inside: Any, index: Any) -> Any:
    odd = index == mp.floor(mp.re(index)) and int(mp.re(index)) % 2 == 1 if abs(index) < 10**6 else False
    if odd and abs(mp.im(inside)) < SAME and mp.re(inside) < 0:
        return -power(-mp.re(inside), 1 / index)
    return power(inside, 1 / index)


def _log(inside: Any, base: Any = None) -> Any:
    if inside == 0 or base in (0, 1):
        raise NoValue("a logarithm of nothing")
    return mp.log(inside) if base is None else mp.log(inside) / mp.log(base)


_CONSTANTS: dict[str, Callable[[], Any]] = {"pi": lambda: +mp.pi, "e": lambda: +mp.e, "i": lambda: mp.mpc(0, 1)}
_ANGLES = 1e9
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sqrt": mp.sqrt,
    "cbrt": lambda inside: _root(inside, mp.mpf(3)),
    "root": _root,
    "ln": _log,
    "log": _log,
    "lg": lambda inside: _log(inside, mp.mpf(10)),
    "exp": _small(mp.exp, 5_000),
    "abs": abs,
    "Re": mp.re,
    "Im": mp.im,
    "floor": _real(mp.floor),
    "ceil": _real(mp.ceil),
    "max": _real(max),
    "min": _real(min),
    "gcd": _whole(math.gcd),
    "lcm": _whole(math.lcm),
    "factorial": _small(mp.factorial, MAX_FACTORIAL),
    "binomial": _small(mp.binomial, MAX_FACTORIAL),
    **{name: _small(getattr(mp, name), _ANGLES) for name in ("sin", "cos", "tan", "cot", "sec", "csc")},
    **{name: _small(getattr(mp, name), 5_000) for name in ("sinh", "cosh", "tanh")},
    **{name: getattr(mp, "a" + name[-3:]) for name in ("arcsin", "arccos", "arctan", "asin", "acos", "atan")},
}
