"""Tests as inputs alone: values are held against those of a reference solution, as EvalPlus holds them."""

from __future__ import annotations

import math

import pytest

from qualgate.records import Evalset
from qualgate.scoring.code import METRIC, score_code
from qualgate.scoring.code import faults as code_faults
from qualgate.scoring.unit_tests.mbpp_inputs import as_called
from qualgate.scoring.unit_tests.reference import Inputs, Rule
from tests.scoring.cases import table
from tests.tables import each_row

TWICE = {
    "prompt": "def f(x):\n    '''Twice x.'''\n", "entry_point": "f", "canonical_solution": "    return x * 2\n",
    "base_input": [[1], ["a"]], "plus_input": [[0.5], [[1, 2]]], "atol": 0, "task_id": "HumanEval/999",
}  # fmt: skip
SET = Evalset(name="s", version="1", sha256="", metrics=("code.pass",))
NAN = float("nan")


def judged(sandbox, answer: str, **body) -> tuple[bool | None, str]:
    score = score_code(TWICE | body, answer, sandbox=sandbox)[METRIC]
    return score.verdict, score.error_type


def holds(value, due, name: str = "f", atol: float = 0, task: str = "Mbpp/1", arguments=(1,)) -> bool:
    rule = Rule(Inputs(program="", name=name, base=[], plus=[], atol=atol, task=task))
    try:
        return rule.holds(value, due, list(arguments))
    except Exception:  # an answer whose value cannot be compared is wrong
        return False


ROWS = [  # value, due, what EvalPlus 0.3.1 says
    (1, 1, True), (1, 1.0, True), ([1], (1,), False), (1 + 1e-7, 1.0, True), (1.00001, 1.0, False), (True, 1, True),
    ([1.0, 2.0 + 5e-7], [1.0, 2.0], True), ((1.0, 2.0 + 5e-7), [1.0, 2.0], False), ([1.0], [1.0, 1.0], False),
    (1 + 1e-9, 1, False), (NAN, float("nan"), False), (math.inf, math.inf, True), (None, None, True),
    ("1", 1.0, False), ([], [], True), ([[1.0]], [1.0], True), ([1.0, None], [1.0 + 1e-9, None], False),
]  # fmt: skip


@pytest.mark.parametrize(("value", "due", "right"), ROWS)
def test_values_are_equal_as_evalplus_has_it(value, due, right):
    assert holds(value, due) is right


def test_a_tolerance_that_the_task_states_is_for_all_its_values():
    assert holds([[1.0], [2.0]], [[1.0], [2.0 + 1e-5]], atol=1e-4)
    assert holds([[1.0], [1.0]], [[1.0, 1.0], [1.0, 1.0 + 1e-5]], atol=1e-4)  # numpy broadcasts
    assert not holds([[1.0], [2.0]], [[1.0], [2.0 + 1e-3]], atol=1e-4)
    assert not holds([1.0, [2.0]], [1.0, [2.0 + 1e-5]], atol=1e-4)  # no array
    rule = Rule(Inputs(program="", name="f", base=[], plus=[], atol=0, task=""))
    assert not rule.holds(2 + 1e-7, 2, [1])
    assert rule.holds(1.0, 1.0, [1])
    assert rule.holds(2 + 1e-7, 2.0, [1])


CUBIC = {"name": "find_zero", "atol": 1e-4, "arguments": [[-6, 11, -6, 1]]}
OWN = [  # value, due, the task, whether it is right
    ([3, 1], (1, 3), {"name": "similar_elements"}, True), ([3, 2], (1, 3), {"name": "similar_elements"}, False),
    ([3, 1], (1, 3), {"name": "similar_elements", "task": "x/1"}, False),
    (False, True, {"name": "are_equivalent"}, True), (False, True, {"name": "are_equivalent", "task": "x/1"}, False),
    (0, 7, {"name": "sum_div"}, True), (1, 7, {"name": "sum_div"}, False),
    ("match", True, {"name": "check_str"}, True), (None, True, {"name": "check_str"}, False),
    (False, True, {"name": "check_str"}, False), (None, False, {"name": "check_str"}, True),
    (96, 0, {"name": "surface_Area", "arguments": (6, 4)}, True),
    (95, 0, {"name": "surface_Area", "arguments": (6, 4)}, False),
    (7, 0, {"name": "digit_distance_nums", "arguments": (123, 256)}, True),
    (6, 0, {"name": "digit_distance_nums", "arguments": (123, 256)}, False),
    (2.00001, 1.0, {**CUBIC, "task": "HumanEval/32"}, True), (1.5, 1.0, {**CUBIC, "task": "HumanEval/32"}, False),
    (2.0, 1.0, {**CUBIC, "task": "x/32"}, False),
]  # fmt: skip


@each_row(("value", "due", "task", "right"), OWN)
def test_tasks_with_a_rule_of_their_own_have_it_in_their_set_alone(value, due, task, right):
    assert holds(value, due, **task) is right


def test_inputs_of_mbpp_have_the_types_that_its_json_cannot_say():
    assert as_called("Mbpp/2", [[[3, 4], [5]]]) == [[(3, 4), (5,)]]
    assert as_called("Mbpp/124", [[1, "2j"]]) == [[1.0, 2j]]
    assert as_called("Mbpp/115", [[[[1, 2], []]]]) == [[[{1, 2}, {}]]]
    assert as_called("Mbpp/722", [[{"a": [1, 2]}, 3]]) == [[{"a": (1, 2)}, 3]]
    assert as_called("Mbpp/3", [[[3, 4]]]) == [[[3, 4]]]


def test_an_answer_is_held_against_the_reference(sandbox):
    assert judged(sandbox, "    return x + x\n") == (True, "")
    assert judged(sandbox, "def f(x): return x + x\n", prompt="Write f, which doubles x.",
                  canonical_solution="def f(x): return 2 * x") == (True, "")  # fmt: skip
    assert judged(sandbox, "    return [*x, *x] if isinstance(x, list) else 2 * x if x != 0.5 else 2\n")[0] is False
    assert judged(sandbox, "    1 / 0\n") == (False, "exception")
    assert judged(sandbox, "    pass\ndel f\n") == (False, "missing")
    assert judged(sandbox, "    if isinstance(x, list): x.clear()\n    return x * 2\n") == (False, "wrong_value")


FORGED = {  # it never finds what is due
    "equal to all": "class E:\n    def __eq__(s, o): return True\n    __hash__ = None\ndef f(x): return E()",
    "looks for the reference": "import gc, sys\ndef f(x):\n    return next((o for o in gc.get_objects() if "
    "getattr(o, '__name__', '') == 'canonical_solution'), sys.argv)",
    "writes replies": "import os\ndef f(x):\n    os.write(3, b'{\"value\": 2}\\n')\n    os._exit(0)",
    "ends with 0": "import sys\ndef f(x): sys.exit(0)",
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forgery_is_wrong(sandbox, name):
    assert judged(sandbox, FORGED[name])[0] is False


@pytest.mark.parametrize(
    "solution",
    ["    return 1 / 0\n", "    return object()\n", "    import sys; sys.exit(0)\n", "    while True: pass\n"],
)
def test_a_reference_that_fails_is_nobody_s_verdict(sandbox, solution):
    assert judged(sandbox, "    return 2 * x\n", canonical_solution=solution) == (None, "tests")


@pytest.mark.parametrize(("body", "words"), table("code_faults")["reference"])
def test_a_case_that_cannot_be_judged_is_refused_by_name(body, words):
    assert any(words in fault for fault in code_faults(TWICE | body, SET))
    assert list(code_faults(TWICE, SET)) == []
