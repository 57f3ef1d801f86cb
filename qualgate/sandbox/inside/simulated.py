"""Plays calls on simulated tools, and tells what each returned and in which state the tools are then.

Both are told as digests of plain data, with the beginning of it for people: whoever compares them sees no object, and
no `__eq__` has a say. A state is what BFCL compares, attributes without a leading underscore, and those of the class;
of objects in it likewise, or all where they have none such.
"""

from __future__ import annotations

import copy
import copyreg
import hashlib
import importlib.abc
import importlib.util
import inspect
import json
import sys
import types
from array import array
from collections import deque
from collections.abc import Container, ItemsView, KeysView, ValuesView
from decimal import Decimal
from enum import Enum
from fractions import Fraction

TYPE_CHECKING = False  # typing takes as long to import as all the rest
if TYPE_CHECKING:
    from typing import Any

SHOWN = 100  # characters of a value
MAX_PARTS = 1_000_000  # of one attribute: an object that stands in two places counts twice
MOST_LISTED = 100_000  # numbers of an array that are compared one by one
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
        self.modules = frozenset(self._sources)
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
    own = Sources(asked["sources"])
    sys.meta_path.insert(0, own)
    tools: dict[str, Any] = {}
    for name in asked["classes"]:
        try:
            tools[name] = _made(name, asked)
        except Exception as error:
            return json.dumps({"unmade": f"a class cannot be made: {name}: {type(error).__name__}: {error}"[:300]})
    methods = {name: getattr(tool, name) for tool in tools.values() for name in _tools_of(tool)}
    named = {call[0] for calls in asked["steps"] for call in calls}
    if asked["recorded"] and (missing := sorted(named - methods.keys())):
        return json.dumps({"unmade": f"no class has a tool {missing[0]!r:.100}, which a recorded call names"})
    steps = []
    for calls in asked["steps"]:
        results = [_told(text, text) for text in (_called(methods, *call) for call in calls)]
        try:
            steps.append({"results": results, "state": {name: _state(name, tool, own) for name, tool in tools.items()}})
        except Incomparable as error:
            return json.dumps({"incomparable": str(error)})
    return json.dumps({"steps": steps})


def _tools_of(tool: Any) -> list[str]:
    """Its public methods, those of the class too; properties are not looked at, for they run."""
    found = [name for name in dir(type(tool)) if not name.startswith("_")]
    kinds = (types.FunctionType, staticmethod, classmethod)
    return [name for name in found if isinstance(inspect.getattr_static(tool, name), kinds)]


def _state(name: str, tool: Any, own: Sources) -> dict[str, list[str]]:
    """Each attribute as it is told. Incomparable, with its name, for one that cannot be compared."""
    found = {}
    for attribute, value in _attributes(tool):
        try:
            found[attribute] = _told(_Form(own.modules).of(value, (id(tool),)), value)
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
    """A value as text: equal texts are of equal values, as Python compares plain ones; NaN is NaN.

    Collections and numbers by what they hold, objects of the simulation's own classes by their attributes, all others
    by what pickle would keep of them.
    """

    def __init__(self, modules: Container[str]) -> None:
        self._parts, self._modules = 0, modules

    def of(self, value: Any, above: tuple[int, ...]) -> str:
        """above: ids of the objects that hold it. ValueError for more than MAX_PARTS; Incomparable."""
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise ValueError(f"a state of more than {MAX_PARTS} parts")
        if id(value) in above:
            return f"^{len(above) - above.index(id(value))}"
        held = (*above, id(value))
        if value is None or isinstance(value, str):
            return json.dumps(value if value is None else str.__str__(value)) + self._beside(value, held)
        if isinstance(value, int | float | Decimal | Fraction) and not isinstance(value, Enum):
            return _number(value)
        if isinstance(value, bytes | bytearray | memoryview):
            return f"b{bytes(value).hex()}"
        if isinstance(value, array) or (hasattr(value, "tolist") and hasattr(value, "dtype")):
            return self._numbers(value, held)
        if (text := self._collection(value, held)) is not None:
            return text + self._beside(value, held)
        return self._object(value, held)

    def _collection(self, value: Any, held: tuple[int, ...]) -> str | None:
        """None for what is none."""
        if isinstance(value, dict | types.MappingProxyType):
            pairs = sorted(f"{self.of(key, held)}:{self.of(one, held)}" for key, one in value.items())
            return f"{{{','.join(pairs)}}}"
        if isinstance(value, set | frozenset | KeysView | ItemsView):
            return f"s({','.join(sorted(self.of(one, held) for one in value))})"
        if isinstance(value, list | tuple | deque | ValuesView):
            sort = "l" if isinstance(value, list) else "t" if isinstance(value, tuple) else "d"
            return f"{sort}({','.join(self.of(one, held) for one in value)})"
        return None

    def _object(self, value: Any, held: tuple[int, ...]) -> str:
        kind = type(value)
        if isinstance(value, types.MethodType):
            return f"m{json.dumps(value.__qualname__)}({self.of(value.__self__, held)})"
        if isinstance(value, types.FunctionType) and (
            value.__closure__ or value.__defaults__ or value.__kwdefaults__ or value.__name__ == "<lambda>"
        ):
            raise Incomparable(f"what the function {value.__qualname__} holds is not told")
        if isinstance(value, _NAMED):
            return f"r{json.dumps([getattr(value, '__module__', ''), getattr(value, '__qualname__', value.__name__)])}"
        name = json.dumps([kind.__module__, kind.__qualname__])
        plain = kind.__reduce_ex__ is object.__reduce_ex__ and kind.__reduce__ is object.__reduce__
        if kind is object or (plain and kind.__module__ in self._modules):
            mine = _held(value)
            shown = {key: one for key, one in mine.items() if not key.startswith("_")} or mine
            return f"o{name}({','.join(f'{key}={self.of(one, held)}' for key, one in sorted(shown.items()))})"
        try:
            keep = copyreg.dispatch_table.get(kind)
            kept: Any = keep(value) if keep else value.__reduce_ex__(4)
        except Exception:
            raise Incomparable(f"what a {kind.__qualname__} holds is not told") from None
        if isinstance(kept, str):
            return f"o{name}{json.dumps(kept)}"
        listed = [list(one) if at > 2 and one is not None else one for at, one in enumerate(kept[:5])]
        return f"o{name}({','.join(self.of(one, held) for one in listed)})"

    def _beside(self, value: Any, held: tuple[int, ...]) -> str:
        """What a collection or a text of a class of its own has beside what it is."""
        own = _held(value)
        return f"+({','.join(f'{name}={self.of(one, held)}' for name, one in sorted(own.items()))})" if own else ""

    def _numbers(self, value: Any, held: tuple[int, ...]) -> str:
        """Of an array, of the standard library's or numpy's; what has no shape is a number."""
        shape = getattr(value, "shape", None)
        if shape == ():
            return self.of(value.item(), held)
        size = len(value) if shape is None else value.size
        if size <= MOST_LISTED or str(getattr(value, "dtype", "")) == "object":
            return f"n{shape or (size,)}{self.of(value.tolist(), held)}"
        kind = value.typecode if isinstance(value, array) else str(value.dtype)
        return f"n{kind}{shape or (size,)}{hashlib.sha256(value.tobytes()).hexdigest()}"


def _number(value: Any) -> str:
    """1, 1.0 and Decimal("1.00") are one number."""
    try:
        top, bottom = value.as_integer_ratio()
    except (ValueError, OverflowError):  # infinities, and what is no number
        return repr(float(value))
    return hex(top) if bottom == 1 else f"{hex(top)}/{hex(bottom)}"
