"""Tests by example: a program's standard input and output, or a function's arguments and its result.

Judged as in LiveCodeBench's testing_util (`grade_stdio`, `grade_call_based`): outputs are stripped, and so is each
line; lines are equal as texts, or word by word as exact decimal numbers. A function (of a class `Solution` if the
program defines one) must return a value that equals the expected one in Python; a tuple is a list. Unlike there, each
example has a fresh sandbox and its own limits, a program runs as Python runs one and not as the body of a function, and
one that ends with another code than 0 is wrong, whatever it has printed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal, DecimalException
from typing import Any

from qualgate.sandbox import Ended, Interpreter, Limits, Sandbox
from qualgate.sandbox.inside.far import Far
from qualgate.scoring.outcome import actual, quote
from qualgate.scoring.unit_tests.names import BadTests
from qualgate.scoring.unit_tests.sitting import RIGHT, Said, Wrong, examine, load, outcome_of, sandbox_of

MOST_SECONDS = 60
_PRINTS, _RETURNS = {"stdin", "stdout"}, {"args", "returns"}
_MORE = 2**16  # bytes that may be printed beyond twice the expected ones


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One test: `given` and `due` are texts of a program, or a function's arguments and value."""

    given: Any
    due: Any
    seconds: int | None = None  # of CPU time; None: as many as the sandbox allows

    def limits(self, usual: Limits) -> Limits:
        """Return the limits of the example's own sandbox."""
        due = 2 * len(self.due.encode()) + _MORE if isinstance(self.due, str) else 0
        usual = replace(usual, output_bytes=max(usual.output_bytes, due))
        if self.seconds is None:
            return usual
        return replace(usual, cpu_seconds=self.seconds, wall_seconds=max(usual.wall_seconds, 6 * self.seconds))


def written(body: Mapping[str, Any]) -> bool:
    """Whether a case's tests are examples."""
    tests = body.get("tests")
    return isinstance(tests, list) and any(isinstance(test, dict) for test in tests)


def read(body: Mapping[str, Any]) -> list[Example]:
    """A case's examples. BadTests for one that cannot be used."""
    keys = _RETURNS if "fn_name" in body else _PRINTS
    if "fn_name" in body and not (isinstance(body["fn_name"], str) and body["fn_name"].isidentifier()):
        raise BadTests(f"`fn_name` is the name of the function that the examples call; {actual(body, 'fn_name')}")
    examples = [_example(index, test, keys) for index, test in enumerate(body["tests"])]
    if keys == _PRINTS and not any(example.due.strip() for example in examples):
        raise BadTests("no example expects any output, so a program that does nothing would be right")
    return examples


def _example(at: int, test: Any, keys: set[str]) -> Example:
    """Return one example. at: its place, for messages; keys: of its kind. BadTests for one that cannot be used."""
    path, shape = f"tests[{at}]", '{"args": [1, 2], "returns": 3}' if keys == _RETURNS else '{"stdin": …, "stdout": …}'
    if not isinstance(test, dict) or not keys <= test.keys() <= keys | {"seconds"}:
        why = "with `fn_name`, which the case has" if keys == _RETURNS else "without `fn_name`, which the case lacks"
        raise BadTests(f"{path} must be as {shape}, {why}; found {quote(test)}")
    seconds = test.get("seconds")
    if seconds is not None and (type(seconds) is not int or not 1 <= seconds <= MOST_SECONDS):
        raise BadTests(f"{path}.seconds must be a whole number from 1 to {MOST_SECONDS}; found {quote(seconds)}")
    if keys == _RETURNS:
        if not isinstance(test["args"], list):
            raise BadTests(f"{path}.args must be a list, the function's arguments; found {quote(test['args'])}")
        return Example(given=test["args"], due=test["returns"], seconds=seconds)
    for key in ("stdin", "stdout"):
        if not isinstance(test[key], str) or not _is_text(test[key]):
            raise BadTests(f"{path}.{key} must be a text; found {quote(test[key])}")
    return Example(given=test["stdin"], due=test["stdout"], seconds=seconds)


def faults(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield why a case with examples cannot be judged."""
    if not isinstance(body.get("prelude", ""), str):
        yield f"`prelude` must be a text, a program that is run before the answer's; {actual(body, 'prelude')}"
    try:
        read(body)
    except BadTests as error:
        yield f"code needs `tests`: {error}"


def judge(program: str, prelude: str, name: str, given: Any, due: Any, within: dict[str, Any]) -> Said:
    """Return (verdict, error type, reason) of a program by one example.

    name: of the function; "": what the program prints is judged. within: the sandbox with the example's limits, plain.
    """
    sandbox = sandbox_of(within)
    if name:
        return outcome_of(lambda: _returned(program, prelude, name, given, due, sandbox))
    return outcome_of(lambda: _printed(program, prelude, given, due, sandbox))


def _printed(program: str, prelude: str, given: str, due: str, sandbox: Sandbox) -> Said:
    """Run a program with standard input; return the verdict on what it prints. BadTests if the prelude fails."""
    try:
        with sandbox.program() as running:
            unequal = difference(running.run(program, given, prelude), due)
    except Ended as ended:
        if ended.error_type == "prelude":
            raise BadTests(str(ended)) from None
        raise
    return (False, "wrong_value", unequal) if unequal else RIGHT


def difference(printed: str, due: str) -> str:
    """Return how the printed text differs from the expected one; "" if it does not."""
    lines, expected_lines = _stripped(printed), _stripped(due)
    if len(lines) != len(expected_lines):
        return f"printed {len(lines)} lines, {len(expected_lines)} are due"
    for number, (line, expected_line) in enumerate(zip(lines, expected_lines, strict=True), 1):
        if line != expected_line and not _equal_numbers(line, expected_line):
            return f"line {number} is {quote(line)}, {quote(expected_line)} is due"
    return ""


def _stripped(text: str) -> list[str]:
    return [line.strip() for line in text.strip().split("\n")]


def _equal_numbers(line: str, wanted_line: str) -> bool:
    try:
        return [Decimal(word) for word in line.split()] == [Decimal(word) for word in wanted_line.split()]
    except (DecimalException, ValueError):  # a word that is no number, or a signalling NaN
        return False


def _returned(program: str, prelude: str, name: str, given: list[Any], due: Any, sandbox: Sandbox) -> Said:
    """Call a program's function with the arguments; return the verdict on its value. A tuple counts as a list."""

    def sit(far: Far) -> None:
        function = getattr(far.named("Solution")(), name) if solution else far.named(name)
        value = function(*given)
        value = list(value) if type(value) is tuple else value
        if not value == due:
            raise AssertionError(f"returned {_shown(value)}, {quote(due)} is due")

    with sandbox.interpreter() as candidate:
        solution = _loaded(candidate, program, prelude, name)
        return examine(candidate, sit)


def _loaded(candidate: Interpreter, program: str, prelude: str, name: str) -> bool:
    """Load a program; return whether its function is a method of its class `Solution`."""
    if prelude:
        try:
            load(candidate, prelude)
        except Wrong as error:
            raise BadTests(f"`prelude` does not run: {error}") from None
    solution, has_function = load(candidate, program, ("Solution", name))
    if solution is not True and has_function is not True:
        raise Wrong("missing", f"the program defines no {name}")
    return solution is True


def _shown(value: Any) -> str:
    plain = type(value) in (int, float, str, bool, type(None), list, dict, set)
    return quote(value) if plain else f"a {type(value).__name__}"


def _is_text(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
