# ruff: noqa: E501  (programs as data)
"""Answers and tests that run as coroutines and wait for each other."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from qualgate.sandbox.process import Interpreter
from qualgate.scoring.code import METRIC, judge, score_code

GATE = """import asyncio
class Gate:
    def __init__(self): self.event = asyncio.Event()
    async def wait(self):
        await self.event.wait()
        return 'open'
    async def open(self): self.event.set()
"""
CHANNEL = """import asyncio
class Channel:
    def __init__(self): self.queue, self.seen = asyncio.Queue(1), []
    async def put(self, n):
        for i in range(n): await self.queue.put(i)
        await self.queue.put(None)
    async def take(self):
        while (item := await self.queue.get()) is not None: self.seen.append(item)
        return self.seen
"""
TOGETHER = {  # coroutines that wait for each other: tests, answer, verdict, entry point
    "an event that another coroutine sets": (
        "import asyncio\nasync def main(): return await asyncio.gather(f('wait'), f('set'))\n"
        "assert asyncio.run(main()) == ['woke', 'set']",
        "import asyncio\nevent = asyncio.Event()\nasync def f(x):\n    if x == 'wait':\n        await event.wait()\n"
        "        return 'woke'\n    event.set()\n    return x",
        True,
    ),
    "a task that is not done before its gate opens": (
        "import asyncio\nasync def test_gate():\n    g = Gate()\n    t = asyncio.create_task(g.wait())\n"
        "    await asyncio.sleep(0.01)\n    assert not t.done()\n    await g.open()\n    assert await t == 'open'",
        GATE,
        True,
        None,
    ),
    "a task that does not wait": (
        "import asyncio\nasync def test_gate():\n    g = Gate()\n    t = asyncio.create_task(g.wait())\n"
        "    await asyncio.sleep(0.01)\n    assert not t.done()\n    await g.open()\n    assert await t == 'open'",
        GATE.replace("await self.event.wait()", "pass"),
        False,
        None,
    ),
    "producer and consumer": (
        "import asyncio\nasync def main():\n    c = Channel()\n    async with asyncio.TaskGroup() as group:\n"
        "        got = group.create_task(c.take())\n        group.create_task(c.put(50))\n"
        "    return got.result()\nassert asyncio.run(main()) == list(range(50))",
        CHANNEL,
        True,
        None,
    ),
    "a consumer in a case of unittest": (
        "import asyncio, unittest\nclass T(unittest.IsolatedAsyncioTestCase):\n"
        "    async def asyncSetUp(self):\n        self.c = Channel()\n"
        "        self.taken = asyncio.create_task(self.c.take())\n"
        "    async def test_a(self):\n        await self.c.put(3)\n"
        "        self.assertEqual(await asyncio.wait_for(self.taken, 5), [0, 1, 2])",
        CHANNEL,
        True,
        None,
    ),
    "turns in their order": (
        "import asyncio\nasync def main(): await asyncio.gather(f('a'), f('b'))\nasyncio.run(main())\n"
        "assert f.log == ['a0', 'b0', 'a1', 'b1', 'a2', 'b2']",
        "import asyncio\nasync def f(x):\n    for i in range(3):\n        f.log.append(f'{x}{i}')\n"
        "        await asyncio.sleep(0)\nf.log = []",
        True,
    ),
    "one after the other where they should take turns": (
        "import asyncio\nasync def main(): await asyncio.gather(f('a'), f('b'))\nasyncio.run(main())\n"
        "assert f.log == ['a0', 'b0', 'a1', 'b1', 'a2', 'b2']",
        "async def f(x):\n    for i in range(3): f.log.append(f'{x}{i}')\nf.log = []",
        False,
    ),
    "a hundred sleep at once": (
        "import asyncio, time\nasync def main(): return await asyncio.gather(*[f(i) for i in range(100)])\n"
        "start = time.monotonic()\nassert asyncio.run(main()) == list(range(100))\n"
        "assert time.monotonic() - start < 25",
        "import asyncio\nasync def f(x):\n    await asyncio.sleep(0.3)\n    return x",
        True,
    ),
    "a timeout cancels, and what was begun is cleaned up": (
        "import asyncio\nimport pytest\nwith pytest.raises(TimeoutError):\n"
        "    asyncio.run(asyncio.wait_for(f(60), 0.02))\nassert f.left",
        "import asyncio\nasync def f(x):\n    try: await asyncio.sleep(x)\n    finally: f.left = True",
        True,
    ),
    "a deadlock under a timeout": (
        "import asyncio\nassert asyncio.run(asyncio.wait_for(f(1), 0.05)) == 1",
        "import asyncio\nasync def f(x): await asyncio.Event().wait()",
        False,
    ),
    "what is left when the loop ends is cancelled": (
        "import asyncio\nasync def main(): return await f(1)\nassert asyncio.run(main()) == 1\nassert f.left",
        "import asyncio\nasync def back():\n    try: await asyncio.sleep(60)\n    finally: f.left = True\n"
        "async def f(x):\n    f.task = asyncio.create_task(back())\n    await asyncio.sleep(0)\n    return x",
        True,
    ),
    "a task from a plain function": (
        "import asyncio\nasync def main(): return await f(2)\nassert asyncio.run(main()) == 3",
        "import asyncio\nasync def g(x): return x + 1\ndef f(x): return asyncio.create_task(g(x))",
        True,
    ),
    "a plain function that runs a loop of its own": (
        "import asyncio\nasync def main(): return await f(0)\nassert asyncio.run(main()) == 0\nassert f(2) == 3",
        "import asyncio\nasync def g(x): return x + 1\ndef f(x): return asyncio.run(g(x)) if x else asyncio.sleep(0, 0)",
        True,
    ),
    "coroutines handed back": (
        "import asyncio\nasync def main(): return await f([f(1), f(2)])\nassert asyncio.run(main()) == [2, 3]",
        "import asyncio\nasync def f(x): return await asyncio.gather(*x) if isinstance(x, list) else x + 1",
        True,
    ),
    "an asynchronous with block": (
        "import asyncio\nasync def main():\n    async with f(3) as held:\n        assert held == 3\n"
        "        assert not f.left\n    assert f.left\nasyncio.run(main())",
        "import asyncio\nfrom contextlib import asynccontextmanager\n@asynccontextmanager\nasync def f(x):\n"
        "    f.left = False\n    yield x\n    await asyncio.sleep(0)\n    f.left = True",
        True,
    ),
    "a standard exception of a coroutine": (
        "import asyncio\nasync def main():\n    try:\n        await f(1)\n        assert False\n"
        "    except asyncio.QueueEmpty: pass\nasyncio.run(main())",
        "import asyncio\nasync def f(x): return asyncio.Queue().get_nowait()",
        True,
    ),
    "a test that is marked as asyncio's": (
        "import asyncio, pytest\n@pytest.mark.asyncio\nasync def test_f():\n    assert await f(2) == 3",
        "async def f(x): return x + 1",
        True,
    ),
    "a test that is marked otherwise": (
        "import pytest\n@pytest.mark.skip\nasync def test_f():\n    assert await f(2) == 3",
        "async def f(x): return x + 1",
        None,
    ),
    "a lock that many wait for": (
        "import asyncio\nasync def main():\n    c = Counter()\n    await asyncio.gather(*[c.add() for _ in range(40)])\n"
        "    assert c.n == 40\nasyncio.run(main())",
        "import asyncio\nclass Counter:\n    def __init__(s): s.n, s.lock = 0, asyncio.Lock()\n"
        "    async def add(s):\n        async with s.lock:\n            n = s.n\n            await asyncio.sleep(0)\n"
        "            s.n = n + 1",
        True,
        None,
    ),
    "a coroutine that calls itself cancelled, so that its group does not mind": (
        "import asyncio\nasync def check(): assert await f(1) == 2\nasync def main():\n"
        "    async with asyncio.TaskGroup() as group: group.create_task(check())\nasyncio.run(main())\n"
        "assert len(f.__name__) == 1",
        "import asyncio\nasync def f(x): raise asyncio.CancelledError",
        None,
    ),
    "a plain function that does": (
        "import asyncio\nasync def check(): assert f(1) == 2\nasync def main():\n"
        "    async with asyncio.TaskGroup() as group: group.create_task(check())\nasyncio.run(main())\n"
        "assert len(f.__name__) == 1",
        "import asyncio\ndef f(x): raise asyncio.CancelledError",
        False,
    ),
    "the tests' own event": (
        "import asyncio\nasync def main():\n    e = asyncio.Event()\n    return await f(e)\nassert asyncio.run(main())",
        "async def f(e): return await e.wait()",
        None,
    ),
}


@pytest.mark.parametrize("name", TOGETHER)
def test_coroutines_may_wait_for_each_other(sandbox, name):
    tests, answer, verdict, *entry_point = TOGETHER[name]
    case = {"tests": tests, "entry_point": entry_point[0] if entry_point else "f"}
    score = score_code(case, answer, sandbox=sandbox)[METRIC]
    assert score.verdict is verdict, score
    if verdict is not True:
        assert score.error_type == (
            "tests" if verdict is None else "wrong_value" if "assert" in score.reason else "exception"
        )


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
