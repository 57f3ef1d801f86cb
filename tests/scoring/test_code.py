# ruff: noqa: E501  (programs as data)
"""Pass rate: the verdict on model-written code, computed where that code cannot reach."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from pathlib import Path

import pytest

from qualgate.sandbox import Sandbox, Tier
from qualgate.scoring import code, unit_tests
from qualgate.scoring.code import METRIC, pass_at_k, program_of, score_code
from qualgate.scoring.unit_tests import BadTests
from tests.scoring.cases import table
from tests.verification.escapes.hostile import FORGERIES, FORGERY_TESTS
from tests.verification.escapes.solutions import solution
from tests.verification.shared import DATA

EVALSETS = Path(__file__).resolve().parents[2] / "evalsets"


def judged(sandbox: Sandbox | None, tests: str, answer: str, **body) -> tuple[bool | None, str]:
    score = score_code({"entry_point": "f", "tests": tests} | body, answer, sandbox=sandbox)[METRIC]
    return score.verdict, score.error_type


def rows(path: str, step: int) -> list[dict]:
    if not (DATA / path).exists():
        pytest.skip(f"{path} is not here")
    return [json.loads(line) for line in (DATA / path).read_text(encoding="utf-8").splitlines()][::step]


# ------------------------------------------------------------------------------------------------- pass@k


def test_pass_at_k_is_the_share_of_draws_that_hold_a_pass():
    for n in range(1, 8):
        for c in range(n + 1):
            for k in range(1, n + 1):
                draws = list(combinations([True] * c + [False] * (n - c), k))
                assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, draws)) / len(draws), abs=1e-12)
    assert pass_at_k(100_000, 1, 1) == pytest.approx(1e-5)


@pytest.mark.parametrize(("n", "c", "k"), [(5, 6, 1), (5, -1, 1), (5, 1, 0), (5, 1, 6), (0, 0, 1)])
def test_pass_at_k_refuses_impossible_counts(n, c, k):
    with pytest.raises(ValueError, match="pass@k"):
        pass_at_k(n, c, k)


# ------------------------------------------------------------------------------------------- what is run


def test_without_a_sandbox_nothing_is_run_and_nothing_decided(tmp_path):
    answer = f"open({str(tmp_path / 'ran')!r}, 'w')\ndef f(x): return x\n"
    assert judged(None, "assert f(1) == 1", answer) == (None, "no_sandbox")
    assert list(tmp_path.iterdir()) == []


def test_a_sandbox_that_does_not_start_leaves_the_case_undecided():
    broken_tier = Sandbox(tier=Tier(name="A", bwrap="/bin/false"))
    assert judged(broken_tier, "assert f(1) == 1", "def f(x): return x") == (None, "sandbox")


def test_an_answer_continues_a_prompt_that_is_a_program_and_no_other():
    start = 'import math\n\ndef f(x):\n    """Twice x."""\n'
    assert program_of(start, "    return 2 * x\n", "f") == start + "    return 2 * x\n"
    assert program_of("def f(x):\n    # twice x\n", "    return 2 * x", "f").startswith("def f(x):")
    assert program_of("Write f, which doubles x.", "def f(x): return 2 * x", "f") == "def f(x): return 2 * x"


def test_a_fence_is_read_where_the_set_says_so_alone():
    text = "Sure!\n```python\ndef f(x):\n    return x\n```\nHope it helps.\n```\nother\n```"
    assert program_of("", text, "f", ["code_fence"]) == "def f(x):\n    return x\n"
    assert program_of("", text, "f") == text
    assert program_of("", "def f(x): return x", "f", ["code_fence"]) == "def f(x): return x"
    assert program_of("", "```py\r\ndef f(x): pass\r\n```", "f", ["code_fence"]) == "def f(x): pass\r\n"


@pytest.mark.parametrize("text", ["", "   \n", "def f(:", "Sure, here it is: f", "```python\ndef f(x): return x\n```",
                                  "def f(x): return x\n\nThat is all.", "\ud800", "a\0b"])  # fmt: skip
def test_what_is_no_program_is_wrong(sandbox, text):
    verdict, error_type = judged(sandbox, "assert f(1) == 1", text)
    assert verdict is False
    assert error_type in ("no_code", "syntax", "exception")


@pytest.mark.parametrize(
    "tests", ["", "x = 1", "assert f(", "assert True", "assert 1 == 1", "def check(c): pass", 5, None, ["a", 1]]
)
def test_tests_that_cannot_tell_decide_nothing(sandbox, tests):
    assert judged(sandbox, tests, "def f(x): return x") == (None, "tests")


# ----------------------------------------------------------------------------------------------- verdicts

RIGHT = [(exam["tests"], exam["answer"]) for exam in table("exams/right")]  # wherever they are compared
RIGHT.append((f"assert f(700) == {7**9000:#x}", "def f(x): return 7 ** 9000"))


@pytest.mark.parametrize(("tests", "answer"), RIGHT, ids=[tests[:40].replace("\n", ";") for tests, _ in RIGHT])
def test_a_right_answer_passes_and_the_same_answer_made_wrong_fails(sandbox, tests, answer):
    assert judged(sandbox, tests, answer) == (True, "")
    wrong = f"{answer}\n\n_f = f\ndef f(*a, **k):\n    import copy\n    a, k = copy.deepcopy((a, k))\n"
    wrong += "    return ('wrong', _f(*a, **k) if k or a else 0)\n"
    assert judged(sandbox, tests, wrong)[0] is False


@pytest.mark.parametrize(
    ("tests", "answer", "wrong"),
    [
        ("s = Stack()\ns.push((1, 2))\ns.push('b')\nassert s.pop() == 'b' and s.pop() == (1, 2) and len(s) == 0",
         "class Stack:\n    def __init__(s): s.v = []\n    def push(s, x): s.v.append(x)\n    def pop(s): return s.v.pop()\n    def __len__(s): return len(s.v)", "pop()"),
        ("root = Node(1)\nroot.left = Node(2)\nassert f(root) == 3", "class Node:\n    def __init__(s, v): s.v, s.left = v, None\ndef f(n): return n.v + n.left.v", "n.v +"),
        ("assert f([Node(1), Node(2)]) == 3", "class Node:\n    def __init__(s, v): s.v = v\ndef f(n): return n[0].v + n[1].v", "n[0].v +"),
    ],
)  # fmt: skip
def test_classes_of_the_answer_are_used_where_no_entry_point_is_declared(sandbox, tests, answer, wrong):
    assert judged(sandbox, tests, answer, entry_point=None) == (True, "")
    worse = answer.replace(wrong, {"pop()": "pop(0)"}.get(wrong, "1 +" if wrong != "n.v +" else "n.left.v +"))
    assert judged(sandbox, tests, worse.replace("1 + n[1].v", "9"), entry_point=None)[0] is False


def test_both_places_of_comparing_agree(sandbox):
    exams = [(tests, unit_tests.read(tests, "f")) for tests, _ in RIGHT]
    assert {exam.steps is None for _, exam in exams} == {True, False}
    for (tests, exam), (_, answer) in zip(exams, RIGHT, strict=True):
        if exam.steps is not None and "check" not in tests:
            loop = "for _ in [0]:\n" + "\n".join("    " + line for line in tests.splitlines())
            assert unit_tests.read(loop, "f").steps is None
            assert judged(sandbox, loop, answer) == (True, ""), tests


def test_a_function_named_as_a_builtin_is_the_candidates(sandbox):
    case = {"test_list": ["assert sum(10, 15) == 6", "assert sum(100, 150) == 93"]}
    assert score_code(case, "def sum(a, b): return {10: 6, 100: 93}[a]", sandbox=sandbox)[METRIC].verdict is True
    assert score_code(case, "def add(a, b): return 6", sandbox=sandbox)[METRIC].verdict is False


def test_what_the_prompt_defines_is_taken_from_the_prompt(sandbox):
    prompt = 'def twice(x):\n    return 2 * x\n\n\ndef f(x):\n    """Half of x."""\n'
    tests = "def check(candidate):\n    for i in range(3):\n        assert candidate(twice(i)) == i\n"
    assert judged(sandbox, tests, "    return x // 2\n", prompt=prompt) == (True, "")
    forged = "    return x\n\ndef twice(x):\n    return x\n"
    assert judged(sandbox, tests, forged, prompt=prompt)[0] is False


def test_the_same_answer_gets_the_same_verdict_every_time(sandbox):
    answer = "def f(x): return list({'a', 'b', 'c', 'd', 'e'})[0]"
    assert len({judged(sandbox, "assert f(1) == 'a'", answer) for _ in range(4)}) == 1


# ------------------------------------------------------------------------------- forgeries and real rows


def test_no_forgery_passes_and_each_is_called_wrong(sandbox):
    kinds = list(FORGERY_TESTS.values())
    assert len(FORGERIES) >= 30
    work = [(name, kinds[at % len(kinds)]) for at, name in enumerate(FORGERIES)]
    with ThreadPoolExecutor(2) as pool:
        verdicts = list(pool.map(lambda task: judged(sandbox, task[1], FORGERIES[task[0]])[0], work))
    assert [task for task, verdict in zip(work, verdicts, strict=True) if verdict is not False] == []
    for tests in kinds[:2]:  # which a function that is right passes
        assert judged(sandbox, tests, "def f(x): return x * x + 1") == (True, "")


@pytest.mark.parametrize(("path", "step"), [("humaneval/HumanEval.jsonl", 12), ("mbpp/mbpp.jsonl", 40)])
def test_reference_solutions_pass(sandbox, path, step):
    failed = [
        row["task_id"]
        for row in rows(path, step)
        if not score_code(row, solution(row), sandbox=sandbox)[METRIC].verdict
    ]
    assert failed == []


def test_the_shipped_sets_own_answers_pass(sandbox):
    lines = (EVALSETS / "code.jsonl").read_text(encoding="utf-8").splitlines()
    for row in map(json.loads, lines[::100]):
        assert score_code(row, row["answer"], sandbox=sandbox)[METRIC].verdict is True
        assert score_code(row, row["answer"].replace("return", "return not"), sandbox=sandbox)[METRIC].verdict is False
    assert all(
        unit_tests.read(code.tests_of(row), row["entry_point"]).steps is not None for row in map(json.loads, lines)
    )


def test_names_are_the_testss_the_promptss_or_the_candidates():
    tests = "import re\nx = 1\nassert re.match('a', f(helper(x))) and str(math.pi) == 'a'"
    prompt = "def helper(x):\n    return x\n\ndef f(x):\n"
    assert unit_tests.read(tests, "f", prompt).remote == ("f",)
    with pytest.raises(BadTests, match="define: helper"):
        unit_tests.read(tests, "f")
    with pytest.raises(BadTests, match="entry_point"):
        unit_tests.read("def check(candidate):\n    assert candidate(1) == 1")
