"""Plays calls on simulated tools, and tells what each returned and in which state the tools are then.

Both are told as digests of plain data, with the beginning of it for people: whoever compares them sees no object, and
no `__eq__` has a say. A state is what BFCL compares, attributes without a leading underscore, and those of the class;
of objects in it likewise, or all where they have none such.
"""

from __future__ import annotations

import copy
import hashlib
import importlib.abc
import importlib.util
import inspect
import json
import re
import sys
import types
from array import array
from collections import deque

TYPE_CHECKING = False  # typing takes as long to import as all the rest
if TYPE_CHECKING:
    from typing import Any

SHOWN = 100  # characters of a value
MAX_PARTS = 1_000_000  # of one attribute: an object that stands in two places counts twice
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_NAMED = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)


class Incomparable(Exception):
    """A value of which nothing tells whether another is equal."""


class Sources(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Modules whose text came with the question: path, as `shop/orders.py`, → text."""

    def __init__(self, sources: dict[str, str]) -> None:
        self._sources = {path.removesuffix(".py").replace("/", "."): text for path, text in sources.items()}
        self._sources |= {name.removesuffix(".__init__"): text for name, text in self._sources.items()
                          if name.endswith(".__init__")}  # fmt: skip
        self._packages = {name.rpartition(".")[0] for name in self._sources}
        self._packages |= {".".join(name.split(".")[:depth]) for name in self._packages for depth in range(1, 20)}

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        """As importlib asks; None for what is none of these modules."""
        known = fullname in self._sources or fullname in self._packages
        return importlib.util.spec_from_loader(fullname, self, is_package=self.is_package(fullname)) if known else None

    def get_source(self, fullname: str) -> str:
        """A folder without an __init__.py is an empty package."""
        return self._sources.get(fullname, "")

    def is_package(self, fullname: str) -> bool:
        """Whether modules lie in it."""
        return fullname in self._packages


def play(question: str) -> str:
    """question: `sources`, `classes`, `initial`, `long_context`, and `steps`, lists of calls `[name, arguments]`, each
    of which reaches a tool where `recorded` says so.

    Answers {"unmade": why}, {"incomparable": why}, or {"steps": [{"results": [told, …], "state": {class: {attribute:
    told}}}, …]}, told being [sha256, beginning].
    """
    asked = json.loads(question)
    sys.meta_path.insert(0, Sources(asked["sources"]))
    tools: dict[str, Any] = {}
    for name in asked["classes"]:
        try:
            tools[name] = _made(name, asked)
        except Exception as error:
            return json.dumps({"unmade": f"a class cannot be made: {name}: {type(error).__name__}: {error}"[:300]})
    methods = {name: method for tool in tools.values() for name, method in inspect.getmembers(tool, inspect.isroutine)
               if not name.startswith("_")}  # fmt: skip
    named = {call[0] for calls in asked["steps"] for call in calls}
    if asked["recorded"] and (missing := sorted(named - methods.keys())):
        return json.dumps({"unmade": f"no class has a tool {missing[0]!r:.100}, which a recorded call names"})
    steps = []
    for calls in asked["steps"]:
        results = [_told(text, text) for text in (_called(methods, *call) for call in calls)]
        try:
            steps.append({"results": results, "state": {name: _state(name, tool) for name, tool in tools.items()}})
        except Incomparable as error:
            return json.dumps({"incomparable": str(error)})
    return json.dumps({"steps": steps})


def _state(name: str, tool: Any) -> dict[str, list[str]]:
    """Each attribute as it is told. Incomparable, with its name, for one that cannot be compared."""
    found = {}
    for attribute, value in _attributes(tool):
        try:
            found[attribute] = _told(_Form().of(value, ()), value)
        except Incomparable as error:
            raise Incomparable(f"{name}.{attribute} cannot be compared: {error}; begin its name with _") from None
    return found


def _made(name: str, asked: dict[str, Any]) -> Any:
    """An instance as BFCL makes it, of a class with `_load_scenario`; else of what its constructor takes."""
    module, _, kind = name.rpartition(".")
    if not module:  # of a simulation that is one file
        module = next(iter(asked["sources"])).removesuffix(".py").replace("/", ".")
    made = getattr(importlib.import_module(module), kind)
    initial = copy.deepcopy(asked["initial"].get(name, {}))
    if not hasattr(made, "_load_scenario"):
        return made(**initial)
    tool = made()
    tool._load_scenario(initial, **({"long_context": True} if asked["long_context"] else {}))
    return tool


def _called(methods: dict[str, Any], name: str, arguments: dict[str, Any]) -> str:
    """What a call returns as text, as BFCL has it; an exception is an answer like any other."""
    try:
        if name not in methods:
            raise NameError(f"name {name!r} is not defined")
        result = methods[name](**arguments)
        if isinstance(result, dict):
            try:
                return json.dumps(result)
            except Exception:
                return str(result)
        return str(result)
    except Exception as error:
        return f"Error during execution: {error}"


def _told(form: str, value: Any) -> list[str]:
    try:
        shown = value if isinstance(value, str) else repr(value)
    except Exception:  # of a class of the simulation's
        shown = form
    return [hashlib.sha256(form.encode("utf-8", "surrogatepass")).hexdigest(), shown[:SHOWN]]


def _attributes(tool: Any) -> list[tuple[str, Any]]:
    """What of an object is its state, by name: those of its class that are data too."""
    held = _held(tool)
    for kind in type(tool).__mro__[:-1]:
        for name, value in kind.__dict__.items():
            if not hasattr(value, "__get__") and not isinstance(value, type):
                held.setdefault(name, value)
    return sorted((name, value) for name, value in held.items() if not name.startswith("_"))


def _held(tool: Any) -> dict[str, Any]:
    held = dict(getattr(tool, "__dict__", {}))
    for kind in type(tool).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(tool, name):
                held[name] = getattr(tool, name)
    return held


class _Form:
    """A value as text: equal texts are of equal values, as Python compares plain ones; NaN is NaN."""

    def __init__(self) -> None:
        self._parts = 0

    def of(self, value: Any, above: tuple[int, ...]) -> str:
        """above: ids of the objects that hold it. ValueError for more than MAX_PARTS."""
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise ValueError(f"a state of more than {MAX_PARTS} parts")
        if value is None or isinstance(value, str):
            return json.dumps(value if value is None else str.__str__(value))
        if isinstance(value, int | float):
            return (
                hex(int(value))
                if value == value and value not in (_INF, -_INF) and int(value) == value
                else repr(value)
            )
        if isinstance(value, bytes | bytearray | memoryview):
            return f"b{bytes(value).hex()}"
        if isinstance(value, array) or (hasattr(value, "tobytes") and hasattr(value, "dtype")):
            return self._numbers(value, above)
        if id(value) in above:
            return f"^{len(above) - above.index(id(value))}"
        held = (*above, id(value))
        if isinstance(value, dict):
            pairs = sorted(f"{self.of(key, held)}:{self.of(one, held)}" for key, one in value.items())
            return f"{{{','.join(pairs)}}}{self._beside(value, held)}"
        if isinstance(value, set | frozenset):
            return f"s({','.join(sorted(self.of(one, held) for one in value))}){self._beside(value, held)}"
        if isinstance(value, list | tuple | deque):
            sort = "l" if isinstance(value, list) else "t" if isinstance(value, tuple) else "d"
            return f"{sort}({','.join(self.of(one, held) for one in value)}){self._beside(value, held)}"
        if hasattr(value, "__next__") or getattr(value, "__closure__", None):
            raise Incomparable(f"what a {type(value).__qualname__} holds is not told")
        if isinstance(value, _NAMED):
            return f"r{json.dumps([getattr(value, '__module__', ''), getattr(value, '__qualname__', value.__name__)])}"
        kind = type(value)
        attributes = _attributes(value) or sorted(_held(value).items())
        parts = [f"{name}={self.of(one, held)}" for name, one in attributes]
        if not parts and kind.__repr__ is not object.__repr__:
            shown = repr(value)
            if _ADDRESS.search(shown):
                raise Incomparable(f"{_ADDRESS.sub('', shown)[:SHOWN]} does not tell what is in it")
            parts = [json.dumps(shown)]
        return f"o{json.dumps([kind.__module__, kind.__qualname__])}({','.join(parts)})"

    def _beside(self, value: Any, held: tuple[int, ...]) -> str:
        """What a collection of a class of its own has beside its members."""
        own = _held(value)
        return f"+({','.join(f'{name}={self.of(one, held)}' for name, one in sorted(own.items()))})" if own else ""

    def _numbers(self, value: Any, above: tuple[int, ...]) -> str:
        """Of an array, of the standard library's or numpy's."""
        kind = value.typecode if isinstance(value, array) else str(value.dtype)
        if kind == "object":
            return self.of(value.tolist(), above)
        return f"n{kind}{getattr(value, 'shape', len(value))}{hashlib.sha256(value.tobytes()).hexdigest()}"


_INF = float("inf")
