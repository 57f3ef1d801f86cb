# ruff: noqa: E501  (programs as data)
"""Right values of every standard type are called right, exceptions may be expected, and coroutines wait for each other."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from qualgate.sandbox.inside.asserting import all_close
from qualgate.sandbox.process import Interpreter
from qualgate.scoring.code import METRIC, judge, score_code
from tests.scoring.cases import table

EXAMS = {
    name: {"entry_point": "f", **exam}
    for kind in ("verdicts", "values", "together", "programs", "evalplus")
    for name, exam in table(f"exams/{kind}").items()
}


@pytest.mark.parametrize("name", EXAMS)
def test_the_verdict_is_what_python_says_of_the_values(sandbox, name):
    exam = EXAMS[name]
    score = score_code(exam, exam["answer"], sandbox=sandbox)[METRIC]
    assert (score.error_type or "right") == exam["found"], score
    assert score.verdict is {"right": True, "tests": None, "no_library": None}.get(exam["found"], False)
    assert score.reason or score.verdict


def test_an_object_that_equals_no_value_is_named_in_the_reason(sandbox):
    for tests in ("assert f(1) == 2", "for i in [1]:\n    assert f(i) == 2"):
        score = score_code(
            {"tests": tests, "entry_point": "f"},
            "class Yes:\n    __eq__ = lambda s, o: True\ndef f(x): return Yes()",
            sandbox=sandbox,
        )[METRIC]
        assert score.verdict is False
        assert "a Yes of the answer's own" in score.reason


@pytest.mark.parametrize(
    ("actual", "expected"),
    [(1.0, 1.0 + 1e-9), (1.0, 1.1), ([1, 2], [1, 2.00001]), ([1, 2], (1, 3)), ([1], [1, 1]), (2, [2, 2]), ([], []), ([], [1, 2]), ([], [1]), ([[]], [1]),
     ([[1, 2], [3, 4]], [[1, 2], [3, 4.00001]]), ([[1, 2]], [[1], [2]]), (float("inf"), float("inf")), (float("nan"), float("nan")),
     (float("inf"), 1), ([1, 2, 3], [1, 2]), (-1e-9, 0), (1e10, 1.00001e10)],
)  # fmt: skip
def test_the_stand_in_for_numpys_allclose_says_what_numpy_says(actual, expected):
    numpy = pytest.importorskip("numpy")
    try:
        wanted = bool(numpy.allclose(actual, expected))
    except ValueError:
        with pytest.raises(ValueError, match="broadcast"):
            all_close(actual, expected)
    else:
        assert all_close(actual, expected) is wanted


FORGED = """import asyncio, sys
class Yes:
    def __eq__(self, other): return True
    def __await__(self):
        yield
        return self
def f(x): return Yes()
for name in ('create_task', 'Runner', 'Task', 'Future'): setattr(asyncio, name, Yes)
frame = sys._getframe()
while frame:
    for held in list(frame.f_locals.values()):
        if hasattr(held, 'get') and '_OPS' in getattr(frame, 'f_globals', {}):
            for name in list(frame.f_globals['_OPS']): frame.f_globals['_OPS'][name] = lambda *a, **k: Yes()
            for name in list(frame.f_globals['_AWAITABLE']): frame.f_globals['_AWAITABLE'][name] = lambda *a: Yes()
            frame.f_globals['_state'] = lambda task: 'done'
    frame = frame.f_back
"""


@pytest.mark.parametrize(
    "tests",
    [
        "import asyncio\nasync def main(): return await f(1)\nassert asyncio.run(main()) == 41",
        "import asyncio\nasync def main(): return await asyncio.gather(f(1), f(2))\nassert asyncio.run(main()) == [41, 42]",
        "async def test_f():\n    assert await f(1) == 41",
    ],
)
@pytest.mark.parametrize("answer", [FORGED, FORGED.replace("def f(x): return Yes()", "async def f(x): return Yes()")])
def test_taking_the_loop_apart_passes_no_test(sandbox, tests, answer):
    assert score_code({"tests": tests, "entry_point": "f"}, answer, sandbox=sandbox)[METRIC].verdict is not True


def test_no_value_of_the_tests_crosses_while_coroutines_wait(sandbox, monkeypatch):
    tests = (
        "import asyncio\nasync def main():\n    a, b = await asyncio.gather(f('wait'), f('set'))\n"
        "    assert (a, b) == ('woken', 314159)\nasyncio.run(main())"
    )
    answer = (
        "import asyncio\nevent = asyncio.Event()\nasync def f(x):\n    if x == 'wait':\n        await event.wait()\n"
        "        return 'wo' + 'ken'\n    await asyncio.sleep(0.01)\n    event.set()\n    return 314000 + 159"
    )
    asked, ask = [], Interpreter.ask
    monkeypatch.setattr(Interpreter, "ask", lambda self, question: asked.append(str(question)) or ask(self, question))
    assert judge(answer, tests, "f", "", asdict(sandbox)) == (True, "", "")
    assert any("turn" in question for question in asked)
    assert not any(value in question for question in asked for value in ("woken", "314159"))
