"""Tests of inputs alone, as in EvalPlus: a reference solution gives the expected values.

The reference runs in its own sandbox, never where the candidate does. Values are judged as in EvalPlus 0.3.1
(`evaluate.py`, `eval/__init__.py`): equal in Python, or, if `atol` is not 0 or a float is expected, of one type and
within `atol` + 1e-7 of the expected size; a few tasks, known by name, have their own rule. Unlike there, the candidate
has CPU time for all inputs together, four times the reference's limit, and HumanEval/32 (`find_zero`) can be passed:
0.3.1 counts no input of it.
"""

from __future__ import annotations

import ast
import copy
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from qualgate.sandbox import Ended, Limits, Sandbox
from qualgate.sandbox.inside.far import Far
from qualgate.sandbox.inside.values import NotPlain, decode, encode
from qualgate.scoring.outcome import actual
from qualgate.scoring.unit_tests.mbpp_inputs import as_called
from qualgate.scoring.unit_tests.names import BadTests
from qualgate.scoring.unit_tests.sitting import Said, Wrong, examine, load, outcome_of, sandbox_of

PARTS = ("base_input", "plus_input")
KEYS = (*PARTS, "canonical_solution", "entry_point", "prompt", "atol", "task_id")  # of a case, all that is read here
FACTOR = 4  # of the reference's time that a candidate has, EvalPlus's own
_RELATIVE, _OF_FLOATS = 1e-7, 1e-6
MBPP = "Mbpp/"
_AS_SETS = {"similar_elements", "find_char_long", "common_in_nested_lists", "extract_singly", "larg_nnum",
            "intersection_array", "find_dissimilar", "Diff"}  # fmt: skip
_NOT_NONE = {"check_str", "text_match_three", "text_starta_endb"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The inputs of a case's function, and the rule by which values are compared."""

    program: str  # the reference
    name: str
    base: list[Any]  # lists of arguments
    plus: list[Any]
    atol: float
    task: str


def written(body: Mapping[str, Any]) -> bool:
    """Whether a case's tests are inputs for a reference."""
    return "base_input" in body


def read(body: Mapping[str, Any]) -> Inputs:
    """A case's inputs, in the types that the function is called with. BadTests for what cannot be used."""
    name, solution, atol = body.get("entry_point"), body.get("canonical_solution"), body.get("atol", 0)
    if not isinstance(name, str) or not name.isidentifier():
        raise BadTests(f"`entry_point` is the name of the function that is called; {actual(body, 'entry_point')}")
    if not isinstance(solution, str) or (program := _program(body.get("prompt") or "", solution, name)) is None:
        raise BadTests(f"`canonical_solution` is a program that defines {name}; {actual(body, 'canonical_solution')}")
    if type(atol) not in (int, float) or not 0 <= atol < math.inf:
        raise BadTests(f"`atol` must be a number from 0; {actual(body, 'atol')}")
    task = body.get("task_id", "")
    base, plus = (_arguments(body, part, str(task)) for part in PARTS)
    if not base and not plus:
        raise BadTests("`base_input` and `plus_input` hold no input")
    return Inputs(program=program, name=name, base=base, plus=plus, atol=float(atol), task=str(task))


def _arguments(body: Mapping[str, Any], part: str, task: str) -> list[Any]:
    """Return the inputs under one key of a case, in the types of its benchmark. BadTests for other forms."""
    inputs = body.get(part) or []
    if not isinstance(inputs, list) or not all(isinstance(arguments, list) for arguments in inputs):
        raise BadTests(f"`{part}` must be a list of lists of arguments, as [[1, 2], [3, 4]]; {actual(body, part)}")
    if not task.startswith(MBPP):
        return inputs
    try:
        return as_called(task, inputs)
    except (TypeError, ValueError, AttributeError, IndexError) as error:
        raise BadTests(f"`{part}` does not have the form of {task}'s: {error}") from None


def _program(prompt: str, solution: str, name: str) -> str | None:
    """Return the reference as a whole program, with the prompt before it if it defines no function alone.

    None if it is no program either way.
    """
    for text in (solution, prompt + solution):
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        if any(isinstance(node, ast.FunctionDef) and node.name == name for node in tree.body):
            return text
    return None


def faults(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield why a case cannot be judged, without running its reference."""
    try:
        read(body)
    except BadTests as error:
        yield f"code needs inputs and a reference: {error}"


def expected(body: dict[str, Any], within: dict[str, Any]) -> list[Any]:
    """Return [the reference's value for each input, as forms that cross by value; why there are none].

    body: the case; within: the sandbox, made plain.
    """
    inputs, forms = read(body), []
    try:
        with sandbox_of(within).interpreter() as reference:
            load(reference, inputs.program)
            function = Far(reference.ask).named(inputs.name)
            for arguments in (*inputs.base, *inputs.plus):
                value = function(*copy.deepcopy(arguments))
                value = value is not None if _of_mbpp(inputs, _NOT_NONE) else value
                forms.append(encode(value, _object))
    except (Ended, Wrong, NotPlain) as error:
        return [None, f"the reference fails: {error}"]
    except Exception as error:  # the reference's own
        return [None, f"the reference fails: {type(error).__name__}: {str(error)[:200]}"]
    return [forms, ""]


def _object(*_: Any) -> Any:
    raise NotPlain("it returns an object that is no value")


def limits(usual: Limits) -> Limits:
    """Return the candidate's limits, where the reference has `usual`."""
    return replace(usual, cpu_seconds=FACTOR * usual.cpu_seconds, wall_seconds=FACTOR * usual.wall_seconds)


def judge(program: str, body: dict[str, Any], due: list[Any], within: dict[str, Any]) -> Said:
    """Return (verdict, error type, reason) of a program. due: from `expected`; within: the sandbox, made plain."""
    return outcome_of(lambda: _judged(program, read(body), [decode(form, _object) for form in due], sandbox_of(within)))


def _judged(program: str, inputs: Inputs, due: list[Any], sandbox: Sandbox) -> Said:
    """Run a program on all inputs; return the verdict. due: the reference's value for each, base inputs first."""

    def sit(far: Far) -> None:
        """Call the program's function on each input; raise AssertionError for the first wrong value."""
        function, index = far.named(inputs.name), 0
        for part, rows in zip(PARTS, (inputs.base, inputs.plus), strict=True):
            rule = Rule(inputs)
            for number, arguments in enumerate(rows):
                passed = copy.deepcopy(arguments)  # it may change them
                value = function(*passed)
                if not rule.holds(value, due[index], passed):
                    raise AssertionError(f"{inputs.name}(…) gives another value than the reference ({part}[{number}])")
                index += 1

    with sandbox.interpreter() as candidate:
        if load(candidate, program, (inputs.name,)) != [True]:
            return False, "missing", f"the program defines no {inputs.name}"
        return examine(candidate, sit)


class Rule:
    """The rule of equality for the inputs of one part, in their order: from the first float on, all are compared with a
    tolerance, as in EvalPlus."""

    def __init__(self, inputs: Inputs) -> None:
        self._inputs, self._atol = inputs, inputs.atol

    def holds(self, value: Any, due: Any, arguments: list[Any]) -> bool:
        """Return whether `value` is right where the reference gives `due`. An exception of the comparison means no."""
        inputs = self._inputs
        if inputs.name == "find_zero" and inputs.task.startswith("HumanEval/"):
            [powers] = arguments
            value_at_root = sum(factor * math.pow(value, power) for power, factor in enumerate(powers))
            return abs(value_at_root) <= self._atol
        exact = self._exact(value, due, arguments)
        if self._atol == 0 and _is_floats(due):
            self._atol = _OF_FLOATS
        if exact or self._atol == 0:
            return exact
        comparable = type(value) is type(due) and (type(due) not in (list, tuple) or len(value) == len(due))
        return comparable and _close(value, due, self._atol, _depth(value), _depth(due))

    def _exact(self, value: Any, due: Any, arguments: list[Any]) -> bool:
        """Return whether a value equals the reference's, by EvalPlus's rule for this problem, without tolerance."""
        inputs, equal = self._inputs, bool(value == due)
        if not inputs.task.startswith(MBPP):
            return equal
        match inputs.name:
            case "are_equivalent":
                return True
            case "sum_div":
                return equal or bool(value == 0)
            case "surface_Area":
                base, height = arguments
                slant = math.sqrt((base / 2) ** 2 + height**2)
                return equal or abs(value - round(base**2 + 2 * base * slant)) <= self._atol
            case "digit_distance_nums":
                return equal or bool(value == _digit_distance(*arguments))
        if inputs.name in _AS_SETS:
            return set(value) == set(due)
        if inputs.name in _NOT_NONE:
            return bool(value == due) if type(value) is bool else due is (value is not None)
        return equal


def _of_mbpp(inputs: Inputs, names: set[str]) -> bool:
    return inputs.task.startswith(MBPP) and inputs.name in names


def _digit_distance(value: Any, due: Any) -> int:
    width = max(len(str(value)), len(str(due)))
    return sum(abs(int(a) - int(b)) for a, b in zip(str(value).zfill(width), str(due).zfill(width), strict=True))


def _depth(x: Any) -> int:
    """Return how deep lists and tuples are nested that numpy takes for an array. ValueError, TypeError for others."""
    if type(x) in (list, tuple):
        if any(type(item) is int and not -(2**63) <= item < 2**64 for item in x):
            raise TypeError("no array of numbers for numpy")
        shapes = {(_depth(item), len(item) if type(item) in (list, tuple) else -1) for item in x}
        if len(shapes) > 1:
            raise ValueError("rows of unequal lengths")
        return 1 + max((depth for depth, _ in shapes), default=0)
    if type(x) not in (int, float, complex, bool):
        raise TypeError("no number")
    return 0


def _close(value: Any, due: Any, atol: float, deep: int, due_deep: int) -> bool:
    """Compare as numpy's `allclose` does, with broadcasting. ValueError for shapes that do not match.

    deep, due_deep: the depth of either value; atol: the absolute tolerance.
    """
    if deep > due_deep:
        return all(_close(element, due, atol, deep - 1, due_deep) for element in value)
    if due_deep > deep:
        return all(_close(value, element, atol, deep, due_deep - 1) for element in due)
    if deep:
        if 1 not in (len(value), len(due)) and len(value) != len(due):
            raise ValueError("shapes that do not go together")
        count = len(due) if len(value) == 1 else len(value)
        pairs = zip(value * count if len(value) == 1 else value, due * count if len(due) == 1 else due, strict=True)
        return all(_close(element, due_element, atol, deep - 1, deep - 1) for element, due_element in pairs)
    finite = math.isfinite(due.real) and math.isfinite(due.imag)
    return value == due or (finite and abs(value - due) <= atol + _RELATIVE * abs(due))


def _is_floats(x: Any) -> bool:
    return type(x) is float or (type(x) in (list, tuple) and bool(x) and all(type(item) is float for item in x))
