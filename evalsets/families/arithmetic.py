"""Arithmetic with its steps written out: every line is one small sum, the last line is `Answer: N`.

Long sums, differences, products and quotients go digit by digit with a carry, as on paper; story problems take one
short line a step. The operand tuple is the value that is split between training and eval.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from qualgate_evalsets.making.messages import user
from qualgate_evalsets.making.values import Values


def size(level: float, most: int) -> tuple[int, int]:
    """The range of numbers with 2 digits at level 0 up to `most` digits at level 1."""
    digits = 2 + round(level * (most - 2))
    return 10 ** (digits - 1), 10**digits - 1


def finish(steps: list[str], answer: object) -> str:
    """The answer: its steps, one a line, then the line `Answer: N`."""
    return "\n".join([*steps, f"Answer: {answer}"])


def column_sum(numbers: tuple[int, ...]) -> list[str]:
    """Digit columns from the right: the digits of each column, then the carry, make the column's total."""
    steps, carry = [], 0
    for place in range(max(len(str(n)) for n in numbers)):
        digits = [n // 10**place % 10 for n in numbers]
        total = sum(digits) + carry
        steps.append("+".join(map(str, [*digits, carry])) + f"={total}")
        carry = total // 10
    return steps


def column_difference(a: int, b: int) -> list[str]:
    """Digit columns from the right; a column that would go below zero borrows ten from the next."""
    steps, borrow = [], 0
    for place in range(len(str(a))):
        top, bottom = a // 10**place % 10, b // 10**place % 10 + borrow
        borrow = int(top < bottom)
        steps.append(f"{top + 10 * borrow}-{bottom}={top + 10 * borrow - bottom}")
    return steps


def column_product(a: int, digit: int) -> list[str]:
    """One digit of `a` at a time, times `digit`, plus the carry."""
    steps, carry = [], 0
    for place in range(len(str(a))):
        top = a // 10**place % 10
        total = top * digit + carry
        steps.append(f"{top}*{digit}+{carry}={total}")
        carry = total // 10
    return steps


def long_division(a: int, divisor: int) -> list[str]:
    """From the left: bring a digit down, divide, keep the remainder."""
    steps, rest = [], 0
    for digit in str(a):
        rest = 10 * rest + int(digit)
        steps.append(f"{rest}/{divisor}={rest // divisor} r {rest % divisor}")
        rest %= divisor
    return steps


def running(start: int, *changes: tuple[str, int]) -> tuple[list[str], int]:
    """A total taken through changes such as ("+", 25), one line each."""
    steps, total = [], start
    for sign, amount in changes:
        after = total + amount if sign == "+" else total - amount if sign == "-" else total * amount
        steps.append(f"{total}{sign}{amount}={after}")
        total = after
    return steps, total


def _add(values: Values, level: float) -> tuple[str, str]:
    a, b = values.operands(size(level, 6), size(level, 6))
    return f"{a} + {b} = ?", finish(column_sum((a, b)), a + b)


def _add_words(values: Values, level: float) -> tuple[str, str]:
    a, b = values.operands(size(level, 5), size(level, 5))
    return f"What is the sum of {a} and {b}?", finish(column_sum((a, b)), a + b)


def _add_three(values: Values, level: float) -> tuple[str, str]:
    numbers = values.operands(*[size(level, 4)] * 3)
    return f"Add {numbers[0]}, {numbers[1]} and {numbers[2]}.", finish(column_sum(numbers), sum(numbers))


def _subtract(values: Values, level: float) -> tuple[str, str]:
    a, b = sorted(values.operands(size(level, 6), size(level, 6)), reverse=True)
    return f"{a} - {b} = ?", finish(column_difference(a, b), a - b)


def _subtract_words(values: Values, level: float) -> tuple[str, str]:
    a, b = sorted(values.operands(size(level, 5), size(level, 5)), reverse=True)
    return f"Take {b} away from {a}.", finish(column_difference(a, b), a - b)


def _multiply(values: Values, level: float) -> tuple[str, str]:
    a, digit = values.operands(size(level, 6), (2, 9))
    return f"{a} * {digit} = ?", finish(column_product(a, digit), a * digit)


def _multiply_words(values: Values, level: float) -> tuple[str, str]:
    a, digit = values.operands(size(level, 5), (3, 9))
    return f"What is {digit} times {a}?", finish(column_product(a, digit), a * digit)


def _divide(values: Values, level: float) -> tuple[str, str]:
    a, divisor = values.operands(size(level, 5), (2, 9))
    return f"Divide {a} by {divisor}.", finish(long_division(a, divisor), f"{a // divisor} r {a % divisor}")


def _remainder(values: Values, level: float) -> tuple[str, str]:
    a, divisor = values.operands(size(level, 5), (3, 9))
    return f"What remains of {a} divided by {divisor}?", finish(long_division(a, divisor), a % divisor)


def _digit_sum(values: Values, level: float) -> tuple[str, str]:
    (a,) = values.operands((100, 10 ** (3 + round(3 * level)) - 1))
    digits = [int(d) for d in str(a)]
    steps, total = running(digits[0], *(("+", d) for d in digits[1:]))
    return f"Digit sum of {a}?", finish(steps, total)


def _next_term(values: Values, level: float) -> tuple[str, str]:
    start, step = values.operands((2, 40), (3, 9 + round(30 * level)))
    a, b, c = start + step, start + 2 * step, start + 3 * step
    steps = [f"{a}-{start}={step}", f"{c}+{step}={c + step}"]
    return f"What comes next: {start}, {a}, {b}, {c}?", finish(steps, c + step)


def _mean_of_three(values: Values, level: float) -> tuple[str, str]:
    a, b, extra = values.operands((10, 30 + round(60 * level)), (10, 30 + round(60 * level)), (1, 30))
    mean = (a + b) // 3 + extra
    c = 3 * mean - a - b
    steps, total = running(a, ("+", b), ("+", c))
    return f"Mean of {a}, {b} and {c}?", finish([*steps, f"{total}/3={mean}"], mean)


def _percent(values: Values, level: float) -> tuple[str, str]:
    tens, share = values.operands((2, 9 + round(80 * level)), (1, 9))
    return f"What is {share}0% of {tens}0?", finish([f"10% = {tens}", f"{tens}*{share}={tens * share}"], tens * share)


def _rectangle(values: Values, level: float) -> tuple[str, str]:
    a, b = values.operands((10, 40 + round(59 * level)), (10, 40 + round(59 * level)))
    steps, total = running(a, ("+", b), ("*", 2))
    return f"Perimeter of a {a} by {b} rectangle?", finish(steps, total)


def _minutes(values: Values, level: float) -> tuple[str, str]:
    hours, rest = values.operands((2, 5 + round(15 * level)), (1, 59))
    steps, total = running(hours, ("*", 60), ("+", rest))
    return f"How many minutes are {hours} h {rest} min?", finish(steps, total)


def _expression(values: Values, level: float) -> tuple[str, str]:
    a, b, c = values.operands((3, 9 + round(20 * level)), (2, 9), (10, 50 + round(49 * level)))
    steps, total = running(a, ("*", b), ("+", c))
    return f"Compute {c} + {a} * {b}.", finish(steps, total)


def _brackets(values: Values, level: float) -> tuple[str, str]:
    a, b, c = values.operands((5, 20 + round(40 * level)), (5, 20 + round(30 * level)), (2, 9))
    steps, total = running(a, ("+", b), ("*", c))
    return f"Compute ({a} + {b}) * {c}.", finish(steps, total)


def _larger_gap(values: Values, level: float) -> tuple[str, str]:
    a, b = values.operands(size(level, 4), size(level, 4))
    top, bottom = max(a, b), min(a, b)
    steps = [f"{top} is larger", *column_difference(top, bottom)]
    return f"Which is larger, {a} or {b}, and by how much?", finish(steps, top - bottom)


def story(text: str, *changes: str) -> Callable[[Values, float], tuple[str, str]]:
    """A story with slots {name}, {thing}, {a}, {b}, {c}; each change is a sign and a slot, applied in order to {a}."""

    def make(values: Values, level: float) -> tuple[str, str]:
        top = 20 + round(79 * level)
        ranges = {"a": (top // 2 + 20, top + 40), "b": (3, top // 4 + 6), "c": (2, 9)}
        used = [slot for slot in ranges if f"{{{slot}}}" in text]
        slots = dict(zip(used, values.operands(*(ranges[slot] for slot in used)), strict=True))
        name, thing = values.name(), values.rng.choice(("pears", "coins", "books", "eggs", "stamps", "nails"))
        steps, total = running(slots["a"], *((change[0], slots[change[1]]) for change in changes))
        return text.format(name=name, thing=thing, **slots), finish(steps, total)

    return make


TEMPLATES: dict[str, Callable[[Values, float], tuple[str, str]]] = {
    f"arith-{number:02}": make
    for number, make in enumerate(
        (
            _add, _add_words, _add_three, _subtract, _subtract_words, _multiply, _multiply_words, _divide, _remainder,
            _digit_sum, _next_term, _mean_of_three, _percent, _rectangle, _minutes, _expression, _brackets, _larger_gap,
            story("{name} has {a} {thing} and gets {b} more. How many now?", "+b"),
            story("{name} had {a} {thing} and lost {b}. How many are left?", "-b"),
            story("A box holds {a} {thing}. How many do {c} boxes hold?", "*c"),
            story("{name} has {a} {thing}, buys {b} and gives {c} away. How many now?", "+b", "-c"),
            story("{name} sells {b} of {a} {thing}, then finds {c}. How many now?", "-b", "+c"),
            story("{c} friends each have {a} {thing}; {name} adds {b}. How many in all?", "*c", "+b"),
            story("{name} picks {a} {thing} and {b} more, {c} days running. How many in all?", "+b", "*c"),
            story("Of {a} {thing}, {name} uses {b} today and {c} tomorrow. How many are left?", "-b", "-c"),
        ),
        start=1,
    )
}  # fmt: skip


def make_case(values: Values, level: float, template: str) -> dict[str, Any]:
    """The level sets the operands' digits."""
    question, answer = TEMPLATES[template](values, level)
    return {"task": "arithmetic", "messages": user(question), "answer": answer, "tags": [f"template:{template}"]}
