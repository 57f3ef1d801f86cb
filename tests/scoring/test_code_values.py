# ruff: noqa: E501  (programs as data)
"""Right values of every standard type are called right, exceptions may be expected, and coroutines awaited."""

from __future__ import annotations

import pytest

from qualgate.sandbox.inside.asserting import all_close
from qualgate.scoring.code import METRIC, score_code

OWN_ERROR = "class MyErr(Exception):\n    def __init__(s, c): super().__init__(f'code {c}'); s.code = c\n"
CASES = {  # what it is: tests, answer, verdict as Python's own, None where only the answer could tell
    "decimal": (
        "from decimal import Decimal\nassert f(1) == Decimal('1.0') and f(1) == 1",
        "from decimal import Decimal\ndef f(x): return Decimal('1.00')",
        True,
    ),
    "frac": (
        "from fractions import Fraction\nassert f(1) == Fraction(1, 3)\nassert f(1)*3 == 1",
        "from fractions import Fraction\ndef f(x): return Fraction(2,6)",
        True,
    ),
    "half": (
        "assert f(1) == 0.5\nassert abs(f(1) - 0.5) < 1e-9",
        "from fractions import Fraction\ndef f(x): return Fraction(1,2)",
        True,
    ),
    "date": (
        "import datetime\nassert f('2020-01-02') == datetime.date(2020,1,2)",
        "from datetime import *\ndef f(x): return datetime.strptime(x,'%Y-%m-%d').date()",
        True,
    ),
    "date arg": (
        "import datetime\nassert f(datetime.date(2020,1,2)) == datetime.timedelta(1)",
        "from datetime import *\ndef f(x): return x - date(2020,1,1)",
        True,
    ),
    "range": ("assert f(3) == range(3)", "def f(x): return range(x)", True),
    "keys": ("assert f({1:2}) == {1}", "def f(x): return x.keys()", True),
    "values": ("assert list(f({1:2})) == [2]\nassert f({1:2}) != [2]", "def f(x): return x.values()", True),
    "items": ("assert f({1:2}) == {(1,2)}", "def f(x): return x.items()", True),
    "deque": (
        "from collections import deque\nassert f(1) == deque([1]) and f(1) != [1]",
        "from collections import deque\ndef f(x): return deque([x],5)",
        True,
    ),
    "counter": (
        "assert f('aab').most_common(1) == [('a',2)] and f('a')['z'] == 0",
        "from collections import Counter\ndef f(x): return Counter(x)",
        True,
    ),
    "OD": (
        "from collections import OrderedDict as O\nassert f(1) == {1:2,3:4} and f(1) != O([(3,4),(1,2)])",
        "from collections import OrderedDict\ndef f(x): return OrderedDict([(1,2),(3,4)])",
        True,
    ),
    "defaultdict": (
        "assert f(1) == {1:2}\nassert f(1)['z'] == 7",
        "from collections import defaultdict\ndef f(x):\n    d=defaultdict(lambda: 7); d[1]=2\n    return d",
        True,
    ),
    "namedtuple": (
        "assert f(1) == (1, 2) and f(1).x == 1 and f(1)._asdict() == {'x':1,'y':2}",
        "from collections import namedtuple\nP=namedtuple('P','x y')\ndef f(x): return P(1,2)",
        True,
    ),
    "NamedTuple method": (
        "for i in [1]:\n    assert f(1).norm() == 5 and str(f(1)) == 'P(x=3, y=4)'",
        "from typing import NamedTuple\nclass P(NamedTuple):\n    x: int\n    y: int\n    def norm(self): return (self.x**2+self.y**2)**.5\ndef f(x): return P(3,4)",
        True,
    ),
    "IntEnum": (
        "assert f(1) == 2\nassert f(1).name == 'two'",
        "from enum import IntEnum\nclass E(IntEnum):\n    two=2\ndef f(x): return E.two",
        True,
    ),
    "Enum": (
        "assert f(1).value == 2\nassert f(1) != 2",
        "from enum import Enum\nclass E(Enum):\n    two=2\ndef f(x): return E.two",
        True,
    ),
    "dataclass attr": (
        "assert f(1).x == 2",
        "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\ndef f(x): return P(2)",
        True,
    ),
    "dataclass ==": (
        "assert f(1) == P(2)",
        "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\ndef f(x): return P(2)",
        None,
        None,
    ),
    "list subclass": (
        "assert f(1) == [1]\nassert isinstance(f(1), list)",
        "class L(list): pass\ndef f(x): return L([x])",
        True,
    ),
    "made list subclass": (
        "s=Stack()\ns.push(1)\nassert s == [1] and len(s) == 1",
        "class Stack(list):\n    def push(s,x): s.append(x)",
        True,
        None,
    ),
    "bytes complex": ("assert f(1) == b'a'\nassert f(1) != 'a'", "def f(x): return b'a'", True),
    "nan": ("assert f(1) != f(1)", "def f(x): return float('nan')", True),
    "gen": (
        "assert list(f(3)) == [0,1,2] and sorted(f(3)) == [0,1,2] and sum(f(3)) == 3",
        "def f(x): return (i for i in range(x))",
        True,
    ),
    "big decimal": ("assert f(1) == 1", "from decimal import Decimal\ndef f(x): return Decimal('1e999999999')", False),
    "big range": ("assert list(f(1)) == [1]", "def f(x): return range(10**18)", False),
    "singleton": (
        "assert S() is S()",
        "class S:\n    i=None\n    def __new__(c):\n        c.i = c.i or object.__new__(c)\n        return c.i",
        True,
        None,
    ),
    "own exc": (
        "import pytest\nwith pytest.raises(MyErr, match='code 3') as e:\n    f(3)\nassert e.value.code == 3\nassert f(1) == 1",
        OWN_ERROR + "def f(x):\n    if x == 3: raise MyErr(3)\n    return x",
        True,
    ),
    "own exc try": (
        "try:\n    f(3)\n    assert False\nexcept MyErr as e:\n    assert str(e) == 'code 3'",
        OWN_ERROR + "def f(x):\n    raise MyErr(3)",
        True,
    ),
    "own exc other": (
        "try:\n    f(3)\n    assert False\nexcept MyErr as e:\n    pass",
        OWN_ERROR + "def f(x):\n    raise ValueError(3)",
        False,
    ),
    "own exc none": ("import pytest\nwith pytest.raises(MyErr): f(3)", OWN_ERROR + "def f(x):\n    return 3", False),
    "own exc base": (
        "import pytest\nwith pytest.raises(ValueError): f(3)",
        "class Q(ValueError): pass\ndef f(x):\n    raise Q(3)",
        True,
    ),
    "keyerror text": (
        "import pytest\nwith pytest.raises(KeyError) as e: f(3)\nassert e.value.args == ('k',) and str(e.value) == \"'k'\"",
        "def f(x): raise KeyError('k')",
        True,
    ),
    "unittest": (
        "import unittest\nclass T(unittest.TestCase):\n    def setUp(self): self.x = 2\n    def test_a(self):\n        self.assertEqual(f(self.x), 3)\n        with self.assertRaises(ZeroDivisionError): f(-1)\n        self.assertRaises(ZeroDivisionError, f, -1)\nif __name__ == '__main__': unittest.main()",
        "def f(x): return x + 1 + 0 // (x + 1)",
        True,
    ),
    "unittest wrong": (
        "import unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n        self.assertEqual(f(2), 3)",
        "def f(x): return x",
        False,
    ),
    "async": (
        "import asyncio\nassert asyncio.run(f(2)) == 3",
        "import asyncio\nasync def f(x):\n    await asyncio.sleep(0)\n    return x + 1",
        True,
    ),
    "async wrong": ("import asyncio\nassert asyncio.run(f(2)) == 3", "async def f(x): return x", False),
    "async test": ("async def test_f():\n    assert await f(2) == 3", "async def f(x): return x+1", True),
    "gather": (
        "import asyncio\nasync def main(): return await asyncio.gather(f(1), f(2))\nassert asyncio.run(main()) == [2,3]",
        "import asyncio\nasync def f(x):\n    await asyncio.sleep(0.01)\n    return x + 1",
        True,
    ),
    "agen": (
        "import asyncio\nasync def main(): return [x async for x in f(3)]\nassert asyncio.run(main()) == [0,1,2]",
        "async def f(x):\n    for i in range(x): yield i",
        True,
    ),
    "async raises": (
        "import asyncio\nimport pytest\nwith pytest.raises(ValueError): asyncio.run(f(2))",
        "async def f(x): raise ValueError",
        True,
    ),
    "async not awaited": ("assert f(2) == 3", "async def f(x): return x+1", False),
    "numpy": ("import numpy as np\nassert np.all(f(1))", "def f(x): return 1", None),
    "approx": (
        "from pytest import approx\nassert f(1) == approx(0.3)\nassert [f(1)] == approx([0.3])",
        "def f(x): return 0.1+0.2",
        True,
    ),
    "approx wrong": (
        "from pytest import approx\nassert f(1) == approx(0.3)",
        "class Z:\n    def __eq__(s,o): return True\ndef f(x): return Z()",
        False,
    ),
    "deque arg": (
        "from collections import deque\nd=deque([1])\nf(d)\nassert d == deque([1,2])",
        "def f(x): x.append(2)",
        True,
    ),
    "always equal set": (
        "assert f(1) == {1}\nassert f(1) in {1}",
        "class Z:\n    def __eq__(s,o): return True\n    def __hash__(s): return 1\ndef f(x): return {Z()}",
        False,
    ),
    "a standard exception": (
        "import json, pytest\nwith pytest.raises(json.JSONDecodeError) as e: f('{')\nassert e.value.pos == 1\n"
        "from json import JSONDecodeError\ntry:\n    f('{')\n    assert False\nexcept JSONDecodeError: pass",
        "import json\ndef f(x): return json.loads(x)",
        True,
    ),
    "another standard exception": (
        "import json, pytest\nwith pytest.raises(json.JSONDecodeError): f('{')",
        "def f(x): raise ValueError(x)",
        False,
    ),
    "an exception that only says it is the standard one": (
        "import json, pytest\nwith pytest.raises(json.JSONDecodeError): f('{')",
        "class JSONDecodeError(ValueError): pass\ndef f(x): raise JSONDecodeError(x)",
        False,
    ),
    "an exception that would skip the test": (
        "import unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n        self.assertTrue(True)\n"
        "        self.assertEqual(f(2), 3)",
        "import unittest\ndef f(x): raise unittest.SkipTest",
        False,
    ),
    "KeyboardInterrupt": ("assert f(1) == {1}", "def f(x): raise KeyboardInterrupt", False),
    "KeyboardInterrupt2": ("assert f(1) == {1}", "class K(KeyboardInterrupt): pass\ndef f(x): raise K", False),
    "isinstance exc": ("assert isinstance(f(1), ValueError)", "def f(x): return ValueError(1)", True),
    "isinstance own": ("assert isinstance(f(1), P)", "class P: pass\ndef f(x): return P()", True, None),
    "type": ("assert f(1) is int", "def f(x): return type(x)", True),
    "Fraction sub": (
        "assert f(1) == 1",
        "from decimal import Decimal\nclass M(Decimal): pass\ndef f(x): return M(1)",
        True,
    ),
    "with non": ("assert f(1) == 10", "class L(list):\n    def __eq__(s,o): return True\ndef f(x): return L()", False),
    "operators of what the tests make": (
        "v = V(1) + V(2) + 3\nv -= 1\nassert v.x == 5 and abs(V(-2)) == 2 and (2 * V(3)).x == 6\n"
        "assert V(1) < V(2) and not V(2) < V(1) and sorted([V(3), V(1)])[0].x == 1",
        "class V:\n    def __init__(s, x): s.x = x\n    def __add__(s, o): return V(s.x + getattr(o, 'x', o))\n"
        "    def __sub__(s, o): return V(s.x - o)\n    def __abs__(s): return abs(s.x)\n"
        "    def __rmul__(s, o): return V(o * s.x)\n    def __lt__(s, o): return s.x < o.x",
        True,
        None,
    ),
    "members of what the tests make": (
        "b = Bag()\nb[1] = 2\nassert 1 in b and 3 not in b\ndel b[1]\nassert 1 not in b",
        "class Bag:\n    def __init__(s): s.h = {}\n    def __setitem__(s, k, v): s.h[k] = v\n"
        "    def __delitem__(s, k): del s.h[k]\n    def __contains__(s, k): return k in s.h",
        True,
        None,
    ),
    "equality of what the tests make": ("assert V() == V()", "class V:\n    __eq__ = lambda s, o: True", None, None),
    "order of what the answer returned": (
        "for i in [1]:\n    assert f(i) < 5",
        "class V:\n    __lt__ = __gt__ = lambda s, o: True\ndef f(x): return V()",
        False,
    ),
    "the absolute value of what the answer returned": (
        "for i in [1]:\n    assert abs(f(i))",
        "class V:\n    __abs__ = lambda s: 1\ndef f(x): return V()",
        False,
    ),
    "a with block": (
        "with f(3) as held:\n    assert held == 3\nassert f.left",
        "from contextlib import contextmanager\n@contextmanager\ndef f(x):\n    yield x\n    f.left = True",
        True,
    ),
    "a with block that an exception leaves": (
        "with f(3) as held:\n    assert held == 3\n    raise KeyError",
        "from contextlib import contextmanager\n@contextmanager\ndef f(x):\n    yield x",
        None,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_verdict_is_what_python_says_of_the_values(sandbox, name):
    tests, answer, verdict, *entry_point = CASES[name]
    case = {"tests": tests, "entry_point": entry_point[0] if entry_point else "f"}
    score = score_code(case, answer, sandbox=sandbox)[METRIC]
    assert score.verdict is verdict, score
    if verdict is None:
        assert score.error_type == "tests"
        assert score.reason


PLUS = """import numpy as np

def is_floats(x):
    if isinstance(x, float): return True
    if isinstance(x, (list, tuple)): return all(isinstance(i, float) for i in x)
    if isinstance(x, np.ndarray): return x.dtype == np.float64 or x.dtype == np.float32
    return False

def assertion(out, exp, atol):
    exact_match = out == exp
    if atol == 0 and is_floats(exp):
        atol = 1e-6
    if not exact_match and atol != 0:
        assert np.allclose(out, exp, rtol=1e-07, atol=atol)
    else:
        assert exact_match

def check(candidate):
    inputs = [[1], [3]]
    results = [[0.1, 0.2], [0.3, 0.6]]
    for i, (inp, exp) in enumerate(zip(inputs, results)):
        assertion(candidate(*inp), exp, 0)
"""  # the form of EvalPlus's sets


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ("def f(x): return [x * 0.1, x * 0.2]", True),
        ("def f(x): return (x * 0.1, x * 0.2)", True),
        ("def f(x): return [x * 0.1, x * 0.2001]", False),
        ("def f(x): return [x * 0.1] * 3", False),
        ("def f(x): return None", False),
        ("class Z:\n    __eq__ = lambda s, o: True\ndef f(x): return Z()", False),
        (
            "class Z(float):\n    __eq__ = lambda s, o: True\n    __sub__ = lambda s, o: 0.0\ndef f(x): return [Z(), Z()]",
            False,
        ),
    ],
)
def test_tests_as_evalplus_writes_them_are_run(sandbox, answer, verdict):
    assert score_code({"test": PLUS, "entry_point": "f"}, answer, sandbox=sandbox)[METRIC].verdict is verdict


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
