"""Types of MBPP+'s inputs that JSON cannot express: which task's lists are tuples, sets or complex numbers.

As EvalPlus 0.3.1 has them (`data/mbpp.py`, `mbpp_deserialize_inputs`). Other tasks' inputs are as JSON has them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _deep(x: Any) -> Any:
    return tuple(map(_deep, x)) if isinstance(x, list) else x


def _tuples(rows: list[Any]) -> list[Any]:
    return [tuple(row) for row in rows]


def _sets(items: list[Any]) -> list[Any]:
    return [set(item) if isinstance(item, list) and item else {} for item in items]


_FORMS: list[tuple[tuple[int, ...], Callable[[list[Any]], list[Any]]]] = [
    ((2, 116, 132, 143, 222, 261, 273, 394, 399, 421, 424, 429, 470, 560, 579, 596, 616, 630, 726, 740, 744, 809),
     _tuples),
    ((63, 64, 70, 94, 120, 237, 272, 299, 400, 409, 417, 438, 473, 614, 780),
     lambda given: [_tuples(argument) for argument in given]),
    ((75, 413, 444, 753), lambda given: [_tuples(given[0]), given[1]]),
    ((106, 750), lambda given: [given[0], tuple(given[1])]),
    ((115,), lambda given: [_sets(given[0])]),
    ((124,), lambda given: [float(given[0]), complex(given[1])]),
    ((250, 405, 446, 617, 720, 763, 808), lambda given: [tuple(given[0]), given[1]]),
    ((252,), lambda given: [complex(given[0])]),
    ((259, 401, 445), lambda given: [tuple(_tuples(argument)) for argument in given]),
    ((278,), lambda given: [tuple(tuple(element) if isinstance(element, list) else element for element in given[0])]),
    ((307,), lambda given: [tuple(given[0]), given[1], given[2]]),
    ((580, 615, 791), lambda given: [_deep(argument) for argument in given]),
    ((722,), lambda given: [{key: tuple(value) for key, value in given[0].items()}, *given[1:]]),
]  # fmt: skip
_OF_TASK = {number: form for numbers, form in _FORMS for number in numbers}


def as_called(task: str, inputs: list[Any]) -> list[Any]:
    """The lists of arguments of a task, `Mbpp/2`, typed. ValueError, TypeError, AttributeError or IndexError where
    they are not such a task's."""
    number = task.rpartition("/")[2]
    form = _OF_TASK.get(int(number)) if number.isdecimal() else None
    return inputs if form is None else [form(given) for given in inputs]
