"""Tests as inputs and outputs: judged as LiveCodeBench judges, where the program cannot reach what is due."""

from __future__ import annotations

import pytest

from qualgate.records import Evalset
from qualgate.scoring.code import METRIC, score_code
from qualgate.scoring.code import faults as code_faults
from qualgate.scoring.unit_tests.examples import difference
from tests.scoring.cases import table

SUMS = [{"stdin": "1 2\n", "stdout": "3\n"}, {"stdin": "5 6\n", "stdout": "11\n"}]
ADDS = "a, b = map(int, input().split())\nprint(a + b)\n"
CALLS = [{"args": [[3, 1, 2], 2], "returns": [1, 2]}, {"args": [[5], 1], "returns": [5]}]
FIRST = "class Solution:\n    def first(self, xs: List[int], n) -> List[int]:\n        return sorted(xs)[:n]\n"
TYPED = "from typing import *\n"
SET = Evalset(name="s", version="1", sha256="", metrics=("code.pass",))


def judged(sandbox, answer: str, **body) -> tuple[bool | None, str, str]:
    score = score_code({"tests": SUMS} | body, answer, sandbox=sandbox)[METRIC]
    return score.verdict, score.error_type, score.reason


@pytest.mark.parametrize(
    ("printed", "due", "right"),
    [
        ("3", "3\n", True), ("\n 3 \r\n\n", "3", True), ("1.0 2e0\n", "1 2", True), ("1  2", "1 2", True),
        ("a  b", "a b", False), ("1 2", "1\n2", False), ("1\n\n2", "1\n2", False), ("Yes", "YES", False),
        ("0.30000000000000004", "0.3", False), ("50000000000000001", "50000000000000000", False), ("nan", "nan", True),
        ("nan x", "nan  x", False), ("sNaN", "1", False), ("", "0", False), ("x" * 100, "x", False),
    ],
)  # fmt: skip
def test_outputs_are_compared_line_by_line_and_number_by_number(printed, due, right):
    assert (difference(printed, due) == "") is right


def test_a_program_that_prints_what_is_due_is_right(sandbox):
    assert judged(sandbox, ADDS) == (True, "", "")
    read = "import sys, threading\ndef main():\n    print(sum(map(int, sys.stdin.buffer.read().split())))\n"
    late = "if __name__ == '__main__':\n    threading.Thread(target=main).start()\n    sys.exit(0)\n"
    assert judged(sandbox, read + late)[0] is True
    long = [{"stdin": "1" * 5000, "stdout": "1" * 4999 + "2"}]
    assert judged(sandbox, "print(int(input()) + 1)\nexit()\nprint(0)", tests=long) == (
        True,
        "",
        "",
    )
    assert judged(sandbox, "print(3)\nquit(1)", tests=[{"stdin": "", "stdout": "3"}])[1] == "exit"
    assert judged(sandbox, "print(sqrt(9))", tests=[{"stdin": "", "stdout": "3"}], prelude="from math import *")[0]


def test_no_program_finds_what_is_due_or_what_an_earlier_run_left(sandbox):
    looks = (
        "import gc, os, sys\nopen('left', 'a').close()\n"
        "seen = [o for o in gc.get_objects() if isinstance(o, (str, dict, list)) and 'due-5521' in str(o)[:10**4]]\n"
        "print(input(), len(os.listdir('.')), len(seen), any('5521' in part for part in sys.argv))"
    )
    tests = [{"stdin": str(n), "stdout": f"due-5521-{n}"} for n in (1, 2)]
    verdict, error_type, reason = judged(sandbox, looks, tests=tests)
    assert (verdict, error_type) == (False, "wrong_value")
    assert "'1 1 0 False'" in reason or "'1 1 1 False'" in reason  # 1: the program's own text
    tests = [{"stdin": str(n), "stdout": f"{n} 1"} for n in (1, 2)]
    assert judged(sandbox, "import os\nopen('left', 'a').close()\nprint(input(), len(os.listdir('.')))", tests=tests)[0]


def test_a_function_is_called_by_its_name_or_as_a_method_of_solution(sandbox):
    asked = {"tests": CALLS, "fn_name": "first", "prelude": TYPED}
    assert judged(sandbox, FIRST, **asked) == (True, "", "")
    assert judged(sandbox, "def first(xs, n):\n    return tuple(sorted(xs)[:n])", **asked)[0] is True  # as a list
    wrong = {
        "wrong_value": "def first(xs, n): return xs[:n]",
        "exception": "def first(xs): return xs",
        "missing": "def other(xs, n): return sorted(xs)[:n]",
        "syntax": "def first(xs, n) return xs",
    }
    for error_type, answer in wrong.items():
        assert judged(sandbox, answer, **asked)[:2] == (False, error_type)
    equal = "class Eq(list):\n    def __eq__(s, o): return True\n    __hash__ = None\ndef first(xs, n): return Eq()"
    assert judged(sandbox, equal, **asked)[:2] == (False, "wrong_value")


SURROGATE = ({"tests": [{"stdin": "\ud800", "stdout": "1"}]}, "tests[0].stdin must be a text")


@pytest.mark.parametrize(("body", "words"), [*table("code_faults")["outputs"], SURROGATE])
def test_a_case_that_cannot_be_judged_is_refused_by_name(body, words):
    assert any(words in fault for fault in code_faults(body, SET))


def test_a_case_that_can_is_not():
    assert list(code_faults({"tests": SUMS, "prelude": TYPED, "packages": ["numpy>=2"]}, SET)) == []
    assert list(code_faults({"tests": CALLS, "fn_name": "first"}, SET)) == []


def test_a_prelude_that_fails_is_nobody_s_verdict(sandbox):
    assert judged(sandbox, FIRST, tests=CALLS, fn_name="first", prelude="1 / 0")[:2] == (None, "tests")
    assert judged(sandbox, ADDS, prelude="1 / 0")[:2] == (None, "tests")
    assert judged(sandbox, "import os\nos.write(2, b'no prelude')\nos._exit(1)")[:2] == (False, "exit")
