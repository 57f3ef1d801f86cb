# ruff: noqa: E501  (the programs are data)
"""Programs that want a pass they have not earned, or a way out: one text a program.

FORGERIES do not compute what FORGERY_TESTS ask for (x * x + 1); each tries to be called right all the same.
"""

from __future__ import annotations

FORGERY_TESTS = {
    "compared here": "assert f(3) == 10\nassert f(0) == 1\nassert abs(f(2) - 5) < 1e-6\nassert f(1) in (2,)",
    "compared by a witness": "for i in range(3, 6):\n    assert f(i) == i * i + 1\nassert set([f(9)]) == {82}",
    "a list": "assert f(3) == [10]\nassert sorted(f(3)) == [10]\nassert len(f(0)) == 1 and f(0)[0] == 1",
    "a text": "assert f(3) == 'ten'\nassert f(3).upper() == 'TEN'",
    "a truth": "assert f(3) is True\nassert not f(4)",
    "unittest's words": "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        self.assertEqual(f(3), 10)\n"
    "        self.assertAlmostEqual(f(2), 5)\n        self.assertIn(f(1), [2])",
    "pytest's words": "import pytest\nassert f(3) == pytest.approx(10)\nwith pytest.raises(Odd):\n    f('odd')",
    "a Decimal": "from decimal import Decimal\nassert Decimal('10.0') == f(3)\nassert f(0) + 0 == Decimal(1)",
    "a mapping": "from collections import Counter, OrderedDict\nassert f(3) == OrderedDict(a=10)\nassert dict(f(0))['a'] == 1",
    "awaited": "import asyncio\nassert asyncio.run(f(3)) == 10\nasync def test_more():\n    assert await f(0) == 1",
}

FORGERIES: dict[str, str] = {
    "always equal": """
class Yes:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
    def __bool__(self): return True
    __lt__ = __le__ = __gt__ = __ge__ = __contains__ = __eq__
    def __sub__(self, other): return self
    __rsub__ = __add__ = __radd__ = __mul__ = __sub__
    def __abs__(self): return self
    def __getitem__(self, key): return self
    def __getattr__(self, name): return lambda *a: self
    def __len__(self): return 1
    def __iter__(self): return iter([self])
def f(x): return Yes()
""",
    "int subclass": """
class I(int):
    def __eq__(self, other): return True
    def __hash__(self): return 10
    def __sub__(self, other): return 0
    __lt__ = __eq__
def f(x): return I(7)
""",
    "str subclass": """
class S(str):
    def __eq__(self, other): return True
    def __hash__(self): return hash('ten')
    def upper(self): return 'TEN'
def f(x): return S('no')
""",
    "list subclass": """
class L(list):
    def __eq__(self, other): return True
    def __len__(self): return 1
def f(x): return L([3, 4])
""",
    "float subclass": """
class F(float):
    def __eq__(self, other): return True
    def __sub__(self, other): return 0.0
    def __abs__(self): return 0.0
    __lt__ = __eq__
def f(x): return F(1.5)
""",
    "dict and tuple subclasses": """
class T(tuple):
    def __eq__(self, other): return True
    def __contains__(self, other): return True
def f(x): return T((1, 2))
""",
    "lying __class__": """
class C:
    @property
    def __class__(self): return int
    def __eq__(self, other): return True
    def __index__(self): return 10
def f(x): return C()
""",
    "metaclass that equals": """
class M(type):
    def __eq__(cls, other): return True
    def __hash__(cls): return hash(int)
    def __instancecheck__(cls, x): return True
class C(metaclass=M): pass
def f(x): return C
""",
    "exit 0": "import sys\ndef f(x): sys.exit(0)\n",
    "exit 0 at once": "import sys\nsys.exit(0)\ndef f(x): return 0\n",
    "os._exit": "import os\ndef f(x): os._exit(0)\n",
    "SystemExit": "def f(x): raise SystemExit(0)\n",
    "KeyboardInterrupt": "def f(x): raise KeyboardInterrupt\n",
    "StopIteration": "def f(x): raise StopIteration(10)\n",
    "GeneratorExit": "def f(x): raise GeneratorExit\n",
    "frame walk": """
import sys
def f(x):
    frame = sys._getframe()
    while frame:
        for name in list(frame.f_locals):
            frame.f_locals[name] = True
        frame.f_globals['verdict'] = frame.f_globals['passed'] = True
        frame = frame.f_back
    return 'passed'
""",
    "frame walk for the reply": """
import sys
def f(x):
    frame = sys._getframe()
    while frame:
        question = frame.f_locals.get('question')
        if question: question['verdict'] = True
        frame = frame.f_back
    return 0
""",
    "patched json": """
import json
json.dumps = lambda x, **k: '{"verdict": true, "value": true, "nonce": "' + x.get('nonce', '') + '"}'
json.loads = lambda x: {'verdict': True}
def f(x): return 0
""",
    "patched encoder": """
import sys
for name in list(sys.modules):
    if name.startswith('inside'):
        for key, value in list(vars(sys.modules[name]).items()):
            if callable(value) and key in ('encode', 'decode', 'serve', 'keep'):
                setattr(sys.modules[name], key, lambda *a, **k: True)
def f(x): return 0
""",
    "patched builtins": """
import builtins
builtins.abs = lambda x: 0
builtins.set = builtins.sorted = builtins.len = lambda *a: 1
builtins.isinstance = lambda *a: True
builtins.AssertionError = type('Fine', (BaseException,), {})
def f(x): return 7
""",
    "own abs, set and sorted": """
abs = lambda x: 0
def set(x): return {82}
def sorted(x): return [10]
def len(x): return 1
class math:
    isclose = staticmethod(lambda *a, **k: True)
def f(x): return 7
""",
    "own import": """
import builtins
kept = builtins.__import__
def mine(name, *a, **k):
    module = kept(name, *a, **k)
    if name == 'json': module.dumps = lambda *a, **k: '{"verdict": true}'
    return module
builtins.__import__ = mine
def f(x): return 0
""",
    "verdict on every descriptor": """
import os
def f(x):
    for fd in range(256):
        try: os.write(fd, b'{"verdict": true, "error_type": null, "reason": ""}\\n')
        except OSError: pass
    return 0
""",
    "replies ahead of questions": """
import os
for fd in range(256):
    try: os.write(fd, b'{"nonce": "0", "value": 10}\\n{"nonce": "0", "value": 1}\\n' * 20)
    except OSError: pass
def f(x): return 0
""",
    "replies with the right nonce": """
import sys, json, os
def f(x):
    frame = sys._getframe()
    while frame and 'question' not in frame.f_locals: frame = frame.f_back
    nonce = frame.f_locals['question']['nonce']
    for value in ('true', '["o", 0, "int"]', '["T", "int"]', '["f", "nan"]'):
        line = '{"nonce": "%s", "value": %s, "verdict": true}\\n' % (nonce, value)
        for fd in range(3, 64):
            try: os.write(fd, line.encode())
            except OSError: pass
    return 0
""",
    "printed result": "print('passed')\nprint('{\"verdict\": true}')\ndef f(x): print(10); return None\n",
    "replaced stdout": """
import sys, io
sys.stdout = sys.stderr = io.StringIO()
sys.stdout.write('1 passed')
def f(x): return 0
""",
    "atexit": """
import atexit, os
atexit.register(lambda: os._exit(0))
def f(x): raise RuntimeError
""",
    "excepthook": "import sys, os\nsys.excepthook = lambda *a: os._exit(0)\ndef f(x): raise RuntimeError\n",
    "signal handler": """
import signal, os
for number in range(1, 32):
    try: signal.signal(number, lambda *a: os._exit(0))
    except (OSError, ValueError): pass
def f(x): os.kill(os.getpid(), signal.SIGTERM); return 0
""",
    "a thread that writes verdicts": """
import threading, os
def write():
    while True:
        for fd in range(64):
            try: os.write(fd, b'{"verdict": true, "value": 10}\\n')
            except OSError: pass
threading.Thread(target=write, daemon=True).start()
def f(x): return 0
""",
    "a child that outlives": """
import os, time
try:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(0.05)
            for fd in range(64):
                try: os.write(fd, b'{"verdict": true, "value": 10}\\n')
                except OSError: pass
            time.sleep(100)
        os._exit(0)
except OSError: pass
def f(x): return 0
""",
    "a search of memory": """
import gc, sys
def f(x):
    for thing in gc.get_objects():
        if isinstance(thing, dict):
            for key, value in list(thing.items()):
                if isinstance(value, str) and 'assert f' in value:
                    return eval(value.split('==')[1].split(chr(10))[0])
    return 0
""",
    "a search of files": """
import os
def f(x):
    for folder, _, names in os.walk('/'):
        if folder.startswith(('/usr', '/lib', '/root', '/sys')): continue
        for name in names:
            try: text = open(os.path.join(folder, name), errors='replace').read(100000)
            except OSError: continue
            if 'assert f(' in text:
                return eval(text.split('==')[1].split(chr(10))[0])
    return 0
""",
    "a search of the command line": """
import sys, os
def f(x):
    held = ' '.join(sys.argv) + repr(dict(os.environ))
    try: held += open('/proc/self/cmdline').read() + open('/proc/1/cmdline').read()
    except OSError: pass
    return eval(held.split('assert f(')[1].split('==')[1]) if 'assert f(' in held else 0
""",
    "reading ahead": """
import os
def f(x):
    held = b''
    for fd in range(64):
        try:
            os.set_blocking(fd, False)
            held += os.read(fd, 100000)
        except OSError: pass
    return 10 if b'10' in held else 0
""",
    "replaced modules": """
import sys
class Fake:
    def __getattr__(self, name): return lambda *a, **k: True
for name in ('json', 'ast', 'operator', 'unittest', 'pytest', 'inside.values', 'inside.answer', 'inside.remote'):
    sys.modules[name] = Fake()
def f(x): return 0
""",
    "patched ast": """
import ast
ast.parse = lambda *a, **k: ast.Module([], [])
ast.Assert = ast.Pass
def f(x): return 0
""",
    "trace function": """
import sys
def trace(frame, event, arg):
    if 'verdict' in frame.f_locals: frame.f_locals['verdict'] = True
    return trace
sys.settrace(trace); sys.setprofile(lambda *a: None)
def f(x): return 0
""",
    "a skipped test": """
import unittest
def f(x): raise unittest.SkipTest('not today')
""",
    "not a number": "def f(x): return float('nan')\n",
    "infinity": "def f(x): return float('inf')\n",
    "endless guesses": """
def f(x):
    def guess():
        n = 0
        while True:
            yield n
            n += 1
    return guess()
""",
    "changed arguments": "def f(x):\n    global i\n    i = x = 0\n    return None\n",
    "deep nesting": """
def f(x):
    held = []
    for _ in range(100000): held = [held]
    return held
""",
    "a value that holds itself": "def f(x):\n    held = []\n    held.append(held)\n    return held\n",
    "a very large value": "def f(x): return 'a' * (64 * 2**20)\n",
    "colliding hashes": "def f(x): return {n * (2**61 - 1) for n in range(1, 3000)}\n",
    "closed pipes": "import os\ndef f(x):\n    os.closerange(0, 256)\n    return 10\n",
    "a killed parent": """
import os, signal
def f(x):
    for pid in (os.getppid(), 1, -1):
        try: os.kill(pid, signal.SIGKILL)
        except OSError: pass
    return 0
""",
    "endless output": "def f(x):\n    while True: print('passed' * 1000)\n",
    "a module of its own": """
import sys, types
tests = types.ModuleType('tests')
tests.check = lambda candidate: True
sys.modules['tests'] = sys.modules['__main__'] = tests
def check(candidate): return True
def f(x): return 0
""",
    "no function at all": "passed = verdict = True\n",
    "a class instead of a function": """
class f:
    def __new__(cls, x): return object.__new__(cls)
    def __eq__(self, other): return True
    __hash__ = None
""",
    "a Decimal's subclass": """
from decimal import Decimal
class D(Decimal):
    def __eq__(self, other): return True
    def __sub__(self, other): return Decimal(0)
    def __add__(self, other): return self
    __hash__ = Decimal.__hash__
def f(x): return D(7)
""",
    "a Fraction's subclass": """
from fractions import Fraction
class F(Fraction):
    def __eq__(self, other): return True
    def _richcmp(self, other, op): return True
    def __rsub__(self, other): return 0
    __hash__ = None
def f(x): return F(1, 3)
""",
    "a date's subclass": """
import datetime
class D(datetime.datetime):
    def __eq__(self, other): return True
    __sub__ = lambda self, other: datetime.timedelta(0)
    __hash__ = datetime.datetime.__hash__
def f(x): return D(2020, 1, 1)
""",
    "mock.ANY": "from unittest.mock import ANY\ndef f(x): return ANY\n",
    "a mock": """
from unittest.mock import MagicMock
def f(x):
    held = MagicMock()
    held.__eq__.return_value = True
    held.__await__ = lambda self: iter(())
    return held
""",
    "a named tuple that equals": """
from typing import NamedTuple
class P(NamedTuple):
    a: int
    def __eq__(self, other): return True
    def __len__(self): return 1
def f(x): return P(x)
""",
    "a member of an enumeration": """
from enum import IntEnum
class E(IntEnum):
    one = 7
    def __eq__(self, other): return True
    def __hash__(self): return 10
    __sub__ = lambda self, other: 0
def f(x): return E.one
""",
    "a text that says otherwise": """
class S(str):
    def __str__(self): return 'ten'
    def __repr__(self): return "'ten'"
    def upper(self): return 'TEN'
    def __format__(self, spec): return 'ten'
def f(x): return S('no')
""",
    "mappings that equal": """
from collections import UserDict, OrderedDict, Counter
class O(OrderedDict):
    def __eq__(self, other): return True
class U(UserDict):
    def __eq__(self, other): return True
def f(x):
    held = U()
    held.data = O(a=0)
    return held if x else O(a=0)
""",
    "what is in a namespace": """
from types import SimpleNamespace
class Yes:
    def __eq__(self, other): return True
    def __hash__(self): return 0
def f(x): return SimpleNamespace(a=Yes(), keys=lambda: ['a'])
""",
    "a factory of yes": """
from collections import defaultdict
class Yes:
    def __eq__(self, other): return True
def f(x): return defaultdict(Yes)
""",
    "a weak proxy": """
import weakref
class Yes:
    def __eq__(self, other): return True
held = Yes()
def f(x): return weakref.proxy(held)
""",
    "patched operations": """
import sys
ops = sys.modules['inside.answer']._OPS
for name in ops: ops[name] = lambda *a, **k: True
ops['plain'] = ops['base'] = ops['isinstance'] = lambda *a: int
def f(x): return object()
""",
    "a plain value that changes": """
import sys
class Yes:
    count = 0
    def __eq__(self, other): return True
def guess(x):
    Yes.count += 1
    return Yes.count
sys.modules['inside.answer']._OPS['plain'] = guess
def f(x): return Yes()
""",
    "forms of its own": """
import sys
forms = iter([['k', 1, 0, 'int'], ['k', True, 0, 'x'], ['T', 'object'], ['v', 'decimal.Decimal', 'NaN'], ['v', 'decimal.Decimal', '1e999999999'],
              ['v', 'collections.defaultdict', ['o', 0, 'x'], ['d']], ['v', 'ellipsis'], ['s', ['o', 0, 'x']]] * 1000)
sys.modules['inside.answer'].encode = lambda *a: next(forms)
def f(x): return 0
""",
    "handles of its own": """
import sys
class str(str): pass
sys.modules['inside.answer'].encode = lambda x, keep, *a: ['o', 10**9, 'coroutine']
def f(x): return 0
""",
    "a class called coroutine": """
class coroutine:
    def __eq__(self, other): return True
    def __await__(self): return iter([])
def f(x): return coroutine()
""",
    "a coroutine of yes": """
class Yes:
    def __eq__(self, other): return True
    def __await__(self):
        yield
        return self
async def f(x): return Yes()
""",
    "an awaited exit": "import os, asyncio\nasync def f(x):\n    asyncio.get_running_loop().call_soon(os._exit, 0)\n    await asyncio.sleep(1)\n",
    "a patched loop": """
import asyncio, sys
sys.modules['inside.answer']._loops.append(type('L', (), {'run_until_complete': lambda self, x: type('Y', (), {'__eq__': lambda s, o: True})()})())
async def f(x): return 0
""",
    "exceptions of other names": """
class Odd(Exception): pass
class AssertionError(BaseException): pass
class Ended(BaseException): pass
class SkipTest(Exception): pass
for kind in (SkipTest, Odd): kind.__module__ = 'unittest.case'
def f(x): raise [Odd, AssertionError, Ended, SkipTest][x % 4 if isinstance(x, int) else 0](10)
""",
    "an exception that is its value": """
class Odd(Exception):
    def __eq__(self, other): return True
    def __str__(self): return 'ten'
def f(x):
    if x == 'odd': raise Odd
    return Odd(10)
""",
    "an exception whose class replies": """
class M(type):
    def mro(cls): return [cls, Exception, BaseException, object]
    __module__ = property(lambda cls: 1 / 0)
    def __subclasscheck__(cls, other): return True
class Odd(Exception, metaclass=M):
    args = property(lambda self: 1 / 0)
def f(x): raise Odd
""",
    "patched test frameworks": """
import sys, types, unittest
unittest.TestCase.assertEqual = unittest.TestCase.assertAlmostEqual = unittest.TestCase.assertIn = lambda *a: None
pytest = types.ModuleType('pytest')
pytest.approx = pytest.raises = lambda *a: None
sys.modules['pytest'] = pytest
def f(x): return 0
""",
    "views of a mapping that lies": """
class D(dict):
    def __iter__(self): return iter([10])
    def keys(self): return [10]
    def __eq__(self, other): return True
def f(x): return dict.keys(D(no=0)) if x else D(a=0).values()
""",
    "numbers without an end": """
from decimal import Decimal
def f(x): return [Decimal('1e999999999'), range(10**18), 1 << 2**25, Decimal('sNaN')][x % 4 if isinstance(x, int) else 0]
""",
    "types as values": "from decimal import Decimal\ndef f(x): return [int, object, Decimal, bool][x % 4 if isinstance(x, int) else 0]\n",
    "constants that are not": "def f(x): return [NotImplemented, ..., slice(None), float('nan')][x % 4 if isinstance(x, int) else 0]\n",
    "operators of a class": """
class Sub:
    def __rsub__(self, other): return 0
    def __rmod__(self, other): return True
    def __len__(self): return 1
    def __str__(self): return 'ten'
    def __iter__(self): return iter([Sub()])
    def __eq__(self, other): return True
    def __hash__(self): return hash(82)
def f(x): return Sub()
""",
}

# ---------------------------------------------------------------------------------------- the escape suite
# Each program defines attack(outside, marker) and returns a list of what it managed to do: nothing, when the wall
# holds. `outside`: a folder of the host's. A program may instead be ended, by one of the words beside it.

TRIES = """
import ctypes, os, signal, socket, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
def done(*attempts):
    worked = []
    for name, attempt in attempts:
        try:
            result = attempt()
        except BaseException:
            continue
        if not (type(result) is int and result < 0):
            worked.append(name)
    return worked
"""

ESCAPES: dict[str, tuple[str, tuple[str, ...]]] = {
    "S1 fork bomb": ("""
def attack(outside, marker):
    count = 0
    while count < 2000:
        try:
            if os.fork() == 0: time.sleep(20); os._exit(0)
        except OSError: return [] if count <= 40 else [f'{count} processes']
        count += 1
    return [f'{count} processes']
""", ()),
    "S1 forks that fork": ("""
def attack(outside, marker):
    try:
        while True: os.fork()
    except OSError:
        while True: pass
""", ("timeout", "memory", "reply", "exit")),
    "S2 one process": ("""
def attack(outside, marker):
    held = []
    while True: held.append(bytearray(2**24))
""", ("MemoryError", "memory")),
    "S2 many processes": ("""
def attack(outside, marker):
    held = []
    for _ in range(12):
        try:
            if os.fork() == 0: break
        except OSError: break
    while True:
        try: held.append(b'x' * 2**24)
        except MemoryError: time.sleep(20)
""", ("memory", "timeout")),
    "S2 shared memory": ("""
import mmap
def attack(outside, marker):
    held = []
    while True:
        held.append(mmap.mmap(-1, 2**25)); held[-1].write(b'x' * 2**25)
""", ("MemoryError", "memory", "OSError")),
    "S2 thread stacks": ("""
def attack(outside, marker):
    threading.stack_size(2**26)
    for count in range(10000):
        try: threading.Thread(target=time.sleep, args=(20,), daemon=True).start()
        except (RuntimeError, MemoryError): return [] if count < 200 else [f'{count} threads']
    return ['10000 threads']
""", ("MemoryError", "memory")),
    "S1 small threads": ("""
def attack(outside, marker):
    threading.stack_size(2**15)
    for count in range(10000):
        try: threading.Thread(target=time.sleep, args=(20,), daemon=True).start()
        except (RuntimeError, MemoryError): return [] if count < 200 else [f'{count} threads']
    return ['10000 threads']
""", ("MemoryError", "memory")),
    "S2 behind a trickle": ("""
def trickle():
    while True: os.write(1, b'.'); time.sleep(0.004)
def attack(outside, marker):
    for _ in range(12):
        try: pid = os.fork()
        except OSError: return []
        if pid == 0:
            held = b'x' * (3 * 2**26)
            time.sleep(30)
    threading.Thread(target=trickle, daemon=True).start()
    time.sleep(15)
    return ['nobody looked']
""", ("memory",)),
    "S3 links and locks": ("""
import fcntl
def attack(outside, marker):
    here, canary, parent = os.getcwd(), outside + '/canary', os.getppid()
    return done(('hard link', lambda: os.link(canary, 'h')), ('rename in', lambda: os.rename(canary, 'c')),
                ('rename out', lambda: (open('mine', 'w').close(), os.rename('mine', outside + '/mine'))),
                ('read through a link', lambda: (os.symlink(canary, 's'), open('s').read())),
                ('attribute', lambda: os.setxattr(canary, 'user.a', b'b')), ('lease', lambda: fcntl.fcntl(os.open(os.__file__, 0), 1024, 0)),
                ('notes', lambda: fcntl.fcntl(os.open('.', 0), 1026, 1)), ('watch', lambda: libc.inotify_add_watch(libc.inotify_init(), outside.encode(), 0xfff)),
                ('watch 1', lambda: libc.inotify_add_watch(libc.inotify_init1(0), outside.encode(), 0xfff)),
                ("the parent's program", lambda: os.readlink(f'/proc/{parent}/exe') if parent > 1 else -1),
                ("the parent's folder", lambda: os.readlink(f'/proc/{parent}/cwd') if parent > 1 else -1),
                ("the parent's files", lambda: os.listdir(f'/proc/{parent}/fd') if parent > 1 else -1))
""", ()),
    "S3 write outside": ("""
def write(path):
    with open(path, 'w') as file: file.write('changed')
def attack(outside, marker):
    here = os.getcwd()
    try: os.symlink(outside, here + '/link')
    except OSError: pass
    up = '../' * 20
    paths = [outside + '/canary', outside + '/new', '/new', '/root/new', '/home/new', '/usr/new', '/etc/passwd', '/dev/new',
             '/usr/lib/python3/new', here + '/link/new', up + outside + '/new', '/proc/self/root' + outside + '/new',
             '/proc/1/root' + outside + '/new', '/wall/inside/answer.py', sys.executable, os.__file__]
    return done(*[(path, lambda path=path: write(path)) for path in paths],
                ('unlink', lambda: os.unlink(outside + '/canary')), ('rename', lambda: os.rename(outside, here + '/x')),
                ('chmod', lambda: os.chmod(outside, 0o777)), ('link', lambda: os.link(outside + '/canary', here + '/y')),
                ('times', lambda: os.utime(outside)), ('truncate', lambda: os.truncate(outside + '/canary', 0)),
                ('chown', lambda: os.chown(outside + '/canary', os.getuid(), os.getgid())))
""", ()),
    "S4 one big file": ("""
def attack(outside, marker):
    held = 0
    with open('big', 'wb') as file:
        while held < 2**30:
            try: held += file.write(b'x' * 2**20); file.flush()
            except OSError: return [] if held <= 2**25 else [f'{held} bytes']
    return [f'{held} bytes']
""", ("files", "exit")),
    "S4 many big files": ("""
def attack(outside, marker):
    held = 0
    for folder in ('.', '/dev/shm', '/dev', '/', '/run', '/wall'):
        for count in range(64):
            try:
                with open(f'{folder}/{count}', 'wb') as file: held += file.write(b'x' * 2**20)
            except OSError: break
    time.sleep(0.2)
    return [] if held <= 2**25 else [f'{held} bytes']
""", ("files",)),
    "S4 sparse file": ("""
def attack(outside, marker):
    def sparse():
        with open('sparse', 'wb') as file: file.truncate(2**40)
    return done(('sparse', sparse))
""", ("exit",)),
    "S4 removed files": ("""
def attack(outside, marker):
    held, size = [], 0
    for _ in range(50):
        try:
            held.append(open('x', 'wb')); os.unlink('x')
            size += held[-1].write(b'x' * 2**22); held[-1].flush()
        except OSError: break
        time.sleep(0.01)
    time.sleep(0.3)
    return [] if size <= 2**25 else [f'{size} bytes']
""", ("files", "OSError")),
    "S4 removed and mapped files": ("""
import mmap
def attack(outside, marker):
    held, size = [], 0
    for _ in range(50):
        try:
            with open('x', 'wb+') as file:
                size += file.write(b'x' * 2**22); file.flush(); os.unlink('x')
                held.append(mmap.mmap(file.fileno(), 4096))
        except OSError: break
        time.sleep(0.01)
    time.sleep(0.3)
    return [] if size <= 2**25 else [f'{size} bytes']
""", ("files", "OSError")),
    "S4 behind a trickle": ("""
def trickle():
    while True: os.write(1, b'.'); time.sleep(0.004)
def attack(outside, marker):
    threading.Thread(target=trickle, daemon=True).start()
    held = 0
    for count in range(200):
        try:
            with open(f'{count}', 'wb') as file: held += file.write(b'x' * 2**20)
        except OSError: break
        time.sleep(0.005)
    return [] if held <= 2**25 else [f'{held} bytes']
""", ("files",)),
    "S4 reserved space": ("""
def attack(outside, marker):
    with open('big', 'wb') as file:
        libc.fallocate(file.fileno(), 1, ctypes.c_long(0), ctypes.c_long(2**30))
        held = os.fstat(file.fileno()).st_blocks * 512
    return [] if held <= 2**25 else [f'{held} bytes']
""", ("files",)),
    "S5 addresses for a pair": ("""
def attack(outside, marker):
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    places = [chr(0) + marker + '-datagrams', outside + '/datagrams']
    return done(*[('send', lambda at=at: a.sendto(b'x', at)) for at in places], *[('message', lambda at=at: a.sendmsg([b'x'], [], 0, at)) for at in places],
                *[('connect', lambda at=at: (a.connect(at), a.send(b'x'))) for at in places],
                ('name', lambda: b.bind(chr(0) + marker + '-mine')), ('listen', lambda: socket.socketpair()[0].listen()),
                ('stream', lambda: socket.socketpair()[0].connect(chr(0) + marker)))
""", ()),
    "S5 network": ("""
def attack(outside, marker):
    port = int(marker.split('-')[-1])
    def reach(family, kind, address):
        with socket.socket(family, kind) as s:
            s.settimeout(0.5)
            s.sendto(b'hello', address) if kind == socket.SOCK_DGRAM else s.connect(address)
    i4, i6, unix, tcp, udp = socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.SOCK_STREAM, socket.SOCK_DGRAM
    return done(('tcp', lambda: reach(i4, tcp, ('127.0.0.1', port))), ('udp', lambda: reach(i4, udp, ('127.0.0.1', port))),
                ('tcp6', lambda: reach(i6, tcp, ('::1', port))), ('dns', lambda: socket.gethostbyname('example.com')),
                ('metadata', lambda: reach(i4, tcp, ('169.254.169.254', 80))),
                ('abstract', lambda: reach(unix, tcp, chr(0) + marker)),
                ('path', lambda: reach(unix, tcp, outside + '/socket')),
                ('raw', lambda: socket.socket(i4, socket.SOCK_RAW, 1)), ('packet', lambda: socket.socket(17, socket.SOCK_RAW)),
                ('netlink', lambda: socket.socket(16, socket.SOCK_RAW)), ('vsock', lambda: socket.socket(40, tcp)))
""", ()),
    "S6 secrets": ("""
import glob
def attack(outside, marker):
    held = [repr(dict(os.environ))]
    for path in [*glob.glob('/proc/*/environ'), *glob.glob('/proc/*/cmdline'), outside + '/canary', '/etc/shadow',
                 '/proc/1/environ', '/proc/self/environ', f'/proc/{os.getppid()}/environ',
                 *glob.glob('/root/.*'), *glob.glob('/home/*/.*'), *glob.glob(outside + '/*')]:
        try: held.append(open(path, errors='replace').read(100000))
        except OSError: pass
    for fd in range(64):
        try:
            os.set_blocking(fd, False)
            held.append(repr(os.read(fd, 100000)))
        except OSError: pass
    for fd in range(3, 64):
        try: held.append(os.readlink(f'/proc/self/fd/{fd}'))
        except OSError: pass
    try: held.append(str(libc.syscall(250, 0, -3, 1)))
    except OSError: pass
    return ['a secret'] if 'SECRET' + '-OF-THE-HOST' in ''.join(held) else []
""", ("reply", "exit")),
    "S7 other processes": ("""
def attack(outside, marker):
    parent, me = os.getppid(), os.getpid()
    others = [pid for pid in (parent, int(marker.split('-')[0])) if pid not in (0, 1, me)]
    tries = [(f'signal {pid}', lambda pid=pid: os.kill(pid, 9)) for pid in others]
    tries += [(f'ptrace {pid}', lambda pid=pid: libc.ptrace(16, pid, 0, 0)) for pid in [*others, 1]]
    tries += [(f'memory {pid}', lambda pid=pid: open(f'/proc/{pid}/mem', 'rb').read(1)) for pid in [*others, 1]]
    tries += [(f'limits {pid}', lambda pid=pid: __import__('resource').prlimit(pid, 0, (1, 1))) for pid in others]
    buffer = ctypes.create_string_buffer(64)
    tries += [(f'process_vm {pid}', lambda pid=pid: libc.process_vm_readv(pid, buffer, 1, buffer, 1, 0)) for pid in [*others, 1]]
    tries += [('pidfd', lambda: os.pidfd_open(1)), ('traceme', lambda: libc.ptrace(0, 0, 0, 0))]
    return done(*tries)
""", ("exit",)),
    "S7 signals by ownership": ("""
import fcntl, struct
def attack(outside, marker):
    a, b = socket.socketpair()
    pids = [pid for pid in (os.getppid(), int(marker.split('-')[0])) if pid > 1]
    tries = [('owner', lambda pid=pid: fcntl.fcntl(a.fileno(), 8, pid)) for pid in pids]
    tries += [('owner 2', lambda pid=pid: fcntl.fcntl(a.fileno(), 15, struct.pack('ii', 1, pid))) for pid in pids]
    tries += [('owner 3', lambda pid=pid, what=what: fcntl.ioctl(a.fileno(), what, struct.pack('i', pid))) for pid in pids for what in (0x8901, 0x8902)]
    tries += [('signal', lambda: fcntl.fcntl(a.fileno(), 10, int(signal.SIGKILL)))]
    worked = done(*tries)
    try: fcntl.fcntl(a.fileno(), 4, os.O_ASYNC | os.O_NONBLOCK)
    except OSError: pass
    b.send(b'x')
    return worked
""", ()),
    "S7 queues of the host": ("""
def attack(outside, marker):
    def refused(number, *args):
        return -1 if libc.syscall(number, *args) < 0 and ctypes.get_errno() == 1 else 0
    if os.uname().machine != 'x86_64': return []
    calls = {'semctl': (66, 1, 0, 0), 'msgctl': (71, 1, 0), 'shmctl': (31, 1, 0), 'semget': (64, 1, 1, 512), 'msgget': (68, 1, 512),
             'shmget': (29, 1, 1, 512), 'mq_open': (240, b'a', 66, 384, 0), 'mq_unlink': (241, b'a'), 'io_setup': (206, 9, b'0' * 8), 'sync': (162,), 'syncfs': (306, 1)}
    return done(*[(name, lambda call=call: refused(*call)) for name, call in calls.items()])
""", ()),
    "S8 another table of calls": ("""
import mmap
def attack(outside, marker):
    code = mmap.mmap(-1, 4096, prot=7)
    code.write(bytes.fromhex('b814000000cd80c3' if os.uname().machine == 'x86_64' else '00000000'))  # getpid by int 0x80
    return [f'{ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()} by 32-bit calls']
""", ("exit",)),
    "S8 limits": ("""
import resource
def attack(outside, marker):
    def raised(what):
        soft, hard = resource.getrlimit(what)
        resource.setrlimit(what, (soft * 2 if soft > 0 else 1, hard * 2 if hard > 0 else 1))
    names = ('AS', 'FSIZE', 'NOFILE', 'CORE', 'MEMLOCK', 'CPU') + (('NPROC',) if os.getppid() == 1 else ())
    return done(*[(name, lambda name=name: raised(getattr(resource, 'RLIMIT_' + name))) for name in names])
""", ()),
    "S8 a program in memory": ("""
def attack(outside, marker):
    number = 319 if os.uname().machine == 'x86_64' else 279
    def run(fd):
        os.write(fd, open(sys.executable, 'rb').read(2**20))
        os.execve(fd, ['x'], {})
    return done(('memory file', lambda: run(libc.syscall(number, b'a', 0))), ('secret memory', lambda: run(libc.syscall(447, 0))))
""", ()),
    "S8 more rights": ("""
import stat
def attack(outside, marker):
    def setuid():
        for folder in ('/usr/bin', '/bin', '/sbin', '/usr/sbin', '/usr/lib'):
            for name in os.listdir(folder) if os.path.isdir(folder) else ():
                path = os.path.join(folder, name)
                if os.path.isfile(path) and os.stat(path).st_mode & stat.S_ISUID:
                    os.execv(path, [path])
        return -1
    by_number = [('pivot', lambda: libc.syscall(155, b'/tmp', b'/tmp')), ('keys', lambda: libc.syscall(248, b'user', b'a', b'b', 1, -3)),
                 ('bpf', lambda: libc.syscall(321, 0, 0, 0)), ('userfaultfd', lambda: libc.syscall(323, 0)),
                 ('modules', lambda: libc.syscall(175, 0, 0, b'')), ('memory file', lambda: libc.syscall(319, b'a', 0))]
    flags = (0x10000000, 0x20000, 0x20000000, 0x40000000, 0x8000000, 0x4000000, 0x2000000)
    return done(*[(f'unshare {flag:x}', lambda flag=flag: libc.unshare(flag)) for flag in flags],
                *[(f'clone {flag:x}', lambda flag=flag: libc.syscall({'x86_64': 56}.get(os.uname().machine, 220), flag | 17, 0, 0, 0, 0))
                  for flag in flags],
                ('mount', lambda: libc.mount(b'none', b'/tmp', b'tmpfs', 0, b'')), ('umount', lambda: libc.umount2(b'/tmp', 2)),
                ('remount', lambda: libc.mount(b'none', b'/', None, 32, None)), ('chroot', lambda: os.chroot('/tmp')),
                ('setns', lambda: libc.setns(0, 0)),
                ('device', lambda: os.mknod('disk', 0o600 | stat.S_IFBLK, os.makedev(8, 0))),
                ('root', lambda: os.setuid(0) if os.getuid() else -1), ('groups', lambda: os.setgroups([0])),
                ('host name', lambda: socket.sethostname('mine')), ('clock', lambda: time.clock_settime(0, 0)),
                ('io_uring', lambda: libc.syscall(425, 8, ctypes.create_string_buffer(256))),
                *(by_number if os.uname().machine == 'x86_64' else ()),
                ('setuid binary', setuid))
""", ("exit",)),
    "S9 output": ("def attack(outside, marker):\n    while True: os.write(1, b'x' * 65536)\n", ("output",)),
    "S9 errors": ("def attack(outside, marker):\n    while True: os.write(2, bytes(range(256)) * 256)\n", ("output",)),
    "S9 one line": ("def attack(outside, marker):\n    while True: sys.stdout.write('x' * 2**20)\n", ("output",)),
    "S9 replies": ("""
def attack(outside, marker):
    for fd in range(3, 256):
        try:
            while True: os.write(fd, b'x' * 65536)
        except OSError: pass
""", ("reply",)),
    "S10 loop": ("def attack(outside, marker):\n    while True: pass\n", ("timeout",)),
    "S10 sleep": ("def attack(outside, marker): time.sleep(1000)\n", ("timeout",)),
    "S10 ignores signals": ("""
def attack(outside, marker):
    for number in range(1, 65):
        try: signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError): pass
    while True: pass
""", ("timeout", "exit")),
    "S10 stops itself": ("def attack(outside, marker):\n    os.kill(os.getpid(), signal.SIGSTOP)\n    time.sleep(1000)\n",
                         ("timeout",)),
    "S10 busy threads": ("""
def spin():
    while True: pass
def attack(outside, marker):
    threading.stack_size(2**20)
    for _ in range(8):
        try: threading.Thread(target=spin).start()
        except RuntimeError: break
    spin()
""", ("timeout",)),
    "S11 daemon": ("""
def attack(outside, marker):
    try:
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.closerange(0, 256)
                os.execv(sys.executable, [sys.executable, '-S', '-c', 'import time; time.sleep(1000)', marker])
            os._exit(0)
    except OSError: pass
    time.sleep(0.2)
    return []
""", ()),
    "S11 zombies": ("""
def attack(outside, marker):
    for _ in range(1000):
        try:
            if os.fork() == 0: os._exit(0)
        except OSError: return []
    return ['1000 zombies']
""", ()),
    "S14 leaves things": ("""
def attack(outside, marker):
    found = []
    for folder in ('.', '/tmp', '/dev/shm'):
        try: found += os.listdir(folder)
        except OSError: pass
    for folder in ('.', '/dev/shm'):
        try: open(folder + '/left', 'w').write('left')
        except OSError: pass
    sys.modules['left'] = sys
    return found
""", ()),
    "S15 odd files": ("""
def attack(outside, marker):
    done(('symlink', lambda: os.symlink('/etc/passwd', 'output')), ('fifo', lambda: os.mkfifo('fifo')),
         ('long name', lambda: open('n' * 255, 'w')), ('bad name', lambda: open(b'\\xff\\n', 'w')),
         ('loop', lambda: os.symlink('loop', 'loop')), ('no rights', lambda: os.mkdir('closed', 0)))
    try:
        for _ in range(10000): os.mkdir('d'); os.chdir('d')
    except OSError: pass
    return []
""", ("files",)),
}  # fmt: skip
"""program → (text, the words it may end with: an Ended's error type or the exception that its reply names)"""

HONEST: dict[str, str] = {
    "a dozen processes": """
import subprocess, os
def f(x):
    pids = []
    for _ in range(12):
        pid = os.fork()
        if pid == 0: os._exit(0)
        pids.append(pid)
    return x + sum(os.waitpid(pid, 0)[1] for pid in pids) + 1
""",
    "threads": """
import threading
def f(x):
    held = []
    threads = [threading.Thread(target=held.append, args=(n,)) for n in range(8)]
    for t in threads: t.start()
    for t in threads: t.join()
    return x + len(held) - 7
""",
    "asyncio": """
import asyncio
async def g(x):
    await asyncio.sleep(0)
    return x + 1
def f(x): return asyncio.run(g(x))
""",
    "files": """
import os, tempfile
def f(x):
    with tempfile.TemporaryFile(dir='.') as file:
        file.write(str(x + 1).encode()); file.seek(0)
        return int(file.read())
""",
    "some work": "def f(x):\n    n = 0\n    for k in range(4_000_000): n += 1\n    return x + n - 3_999_999\n",
    "memory": "def f(x): return x + len(bytearray(2**27)) // 2**27\n",
    "output": "import sys\nprint('hello')\nsys.stderr.write('x' * 1000)\ndef f(x): print(x); return x + 1\n",
    "dataclasses and typing": """
from dataclasses import dataclass
from typing import List, Optional
from collections import Counter, defaultdict
import re, math, itertools, functools, heapq, bisect, string, statistics, decimal, fractions, datetime, random, json
@dataclass
class P:
    x: int
def f(x: int) -> Optional[int]: return P(x).x + 1
""",
}
HONEST_TESTS = "assert f(1) == 2\nassert f(41) == 42"
