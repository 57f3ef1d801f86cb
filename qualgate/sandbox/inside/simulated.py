"""Play calls on simulated tools, and report each result and the tools' state.

Both are digests of plain data, with its beginning for people: the comparison sees no object, and no `__eq__` decides.
A state is what BFCL compares: attributes without a leading underscore, of the object and its class; for objects in it
likewise, or all attributes if they have none such.
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
    """A value that cannot be compared with another."""


class Sources(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Modules whose source came with the question: path, as `shop/orders.py`, → text."""

    def __init__(self, sources: dict[str, str]) -> None:
        self._sources = {path.removesuffix(".py").replace("/", "."): text for path, text in sources.items()}
        self._sources |= {name.removesuffix(".__init__"): text for name, text in self._sources.items()
                          if name.endswith(".__init__")}  # fmt: skip
        self._packages = {name.rpartition(".")[0] for name in self._sources}
        self.modules = frozenset(self._sources)
        self._packages |= {".".join(name.split(".")[:depth]) for name in self._packages for depth in range(1, 20)}

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        """Find a module for importlib; None if it is none of these."""
        known = fullname in self._sources or fullname in self._packages
        return importlib.util.spec_from_loader(fullname, self, is_package=self.is_package(fullname)) if known else None

    def get_source(self, fullname: str) -> str:
        """Return a module's source; "" for a folder without an __init__.py."""
        return self._sources.get(fullname, "")

    def is_package(self, fullname: str) -> bool:
        """Return whether modules lie in it."""
        return fullname in self._packages


def play(question: str) -> str:
    """question: `sources`, `classes`, `initial`, `long_context`, and `steps`, lists of calls `[name, arguments]`, each
    of which reaches a tool where `recorded` says so.

    Answers {"unmade": why}, {"incomparable": why}, or {"steps": [{"results": [told, …], "state": {class: {attribute:
    told}}}, …]}, told being [sha256, beginning].
    """
    task = json.loads(question)
    sources = Sources(task["sources"])
    sys.meta_path.insert(0, sources)
    tools: dict[str, Any] = {}
    for name in task["classes"]:
        try:
            tools[name] = _made(name, task)
        except Exception as error:
            return json.dumps({"unmade": f"a class cannot be made: {name}: {type(error).__name__}: {error}"[:300]})
    methods = {name: getattr(tool, name) for tool in tools.values() for name in _tools_of(tool)}
    called_names = {call[0] for calls in task["steps"] for call in calls}
    if task["recorded"] and (missing := sorted(called_names - methods.keys())):
        return json.dumps({"unmade": f"no class has a tool {missing[0]!r:.100}, which a recorded call names"})
    steps = []
    for calls in task["steps"]:
        results = [_told(text, text) for text in (_called(methods, *call) for call in calls)]
        try:
            steps.append(
                {"results": results, "state": {name: _state(name, tool, sources) for name, tool in tools.items()}}
            )
        except Incomparable as error:
            return json.dumps({"incomparable": str(error)})
    return json.dumps({"steps": steps})


def _tools_of(tool: Any) -> list[str]:
    """Return its public methods, with those of the class; properties are skipped, since they would run."""
    names = [name for name in dir(type(tool)) if not name.startswith("_")]
    method_types = (types.FunctionType, staticmethod, classmethod)
    return [name for name in names if isinstance(inspect.getattr_static(tool, name), method_types)]


def _state(name: str, tool: Any, sources: Sources) -> dict[str, list[str]]:
    """Return the digest of each attribute. Incomparable, with its name, for one that cannot be compared."""
    state = {}
    for attribute, value in _attributes(tool):
        try:
            state[attribute] = _told(_Form(sources.modules).of(value, (id(tool),)), value)
        except Incomparable as error:
            raise Incomparable(f"{name}.{attribute} cannot be compared: {error}; begin its name with _") from None
    return state


def _made(name: str, task: dict[str, Any]) -> Any:
    """Make an instance as BFCL does for a class with `_load_scenario`; else by its constructor."""
    module, _, kind = name.rpartition(".")
    if not module:  # of a simulation that is one file
        module = next(iter(task["sources"])).removesuffix(".py").replace("/", ".")
    tool_class = getattr(importlib.import_module(module), kind)
    initial = copy.deepcopy(task["initial"].get(name, {}))
    if not hasattr(tool_class, "_load_scenario"):
        return tool_class(**initial)
    tool = tool_class()
    tool._load_scenario(initial, **({"long_context": True} if task["long_context"] else {}))
    return tool


def _called(methods: dict[str, Any], name: str, arguments: dict[str, Any]) -> str:
    """Return a call's result as text, as BFCL does. An exception is a result like any other."""
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
        beginning = value if isinstance(value, str) else repr(value)
    except Exception:  # of a class of the simulation's
        beginning = form
    return [hashlib.sha256(form.encode("utf-8", "surrogatepass")).hexdigest(), beginning[:SHOWN]]


def _attributes(tool: Any) -> list[tuple[str, Any]]:
    """Return an object's state by name, with the data attributes of its class."""
    attributes = _held(tool)
    for kind in type(tool).__mro__[:-1]:
        for name, value in kind.__dict__.items():
            if not hasattr(value, "__get__") and not isinstance(value, type):
                attributes.setdefault(name, value)
    return sorted((name, value) for name, value in attributes.items() if not name.startswith("_"))


def _held(tool: Any) -> dict[str, Any]:
    """Return an object's own attributes, of its `__dict__` and its slots."""
    attributes = dict(getattr(tool, "__dict__", {}))
    for kind in type(tool).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(tool, name):
                attributes[name] = getattr(tool, name)
    return attributes


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
        path = (*above, id(value))
        if value is None or isinstance(value, str):
            return json.dumps(value if value is None else str.__str__(value)) + self._beside(value, path)
        if isinstance(value, int | float | Decimal | Fraction) and not isinstance(value, Enum):
            return _number(value)
        if isinstance(value, bytes | bytearray | memoryview):
            return f"b{bytes(value).hex()}"
        if isinstance(value, array) or (hasattr(value, "tolist") and hasattr(value, "dtype")):
            return self._numbers(value, path)
        if (text := self._collection(value, path)) is not None:
            return text + self._beside(value, path)
        return self._object(value, path)

    def _collection(self, value: Any, path: tuple[int, ...]) -> str | None:
        """Return the form of a collection, by its kind and items; None for other values.

        path: the ids of the objects around it.
        """
        if isinstance(value, dict | types.MappingProxyType):
            pairs = sorted(f"{self.of(key, path)}:{self.of(item, path)}" for key, item in value.items())
            return f"{{{','.join(pairs)}}}"
        if isinstance(value, set | frozenset | KeysView | ItemsView):
            return f"s({','.join(sorted(self.of(item, path) for item in value))})"
        if isinstance(value, list | tuple | deque | ValuesView):
            sort = "l" if isinstance(value, list) else "t" if isinstance(value, tuple) else "d"
            return f"{sort}({','.join(self.of(item, path) for item in value)})"
        return None

    def _object(self, value: Any, path: tuple[int, ...]) -> str:
        """Return the form of an object, by its class and state. Incomparable if its state is not known.

        path: the ids of the objects around it. Private attributes count only if there are no others.
        """
        kind = type(value)
        if isinstance(value, types.MethodType):
            return f"m{json.dumps(value.__qualname__)}({self.of(value.__self__, path)})"
        if isinstance(value, types.FunctionType) and (
            value.__closure__ or value.__defaults__ or value.__kwdefaults__ or value.__name__ == "<lambda>"
        ):
            raise Incomparable(f"what the function {value.__qualname__} holds is not told")
        if isinstance(value, _NAMED):
            return f"r{json.dumps([getattr(value, '__module__', ''), getattr(value, '__qualname__', value.__name__)])}"
        name = json.dumps([kind.__module__, kind.__qualname__])
        plain = kind.__reduce_ex__ is object.__reduce_ex__ and kind.__reduce__ is object.__reduce__
        if kind is object or (plain and kind.__module__ in self._modules):
            attributes = _held(value)
            public = {key: item for key, item in attributes.items() if not key.startswith("_")} or attributes
            return f"o{name}({','.join(f'{key}={self.of(item, path)}' for key, item in sorted(public.items()))})"
        try:
            keep = copyreg.dispatch_table.get(kind)
            reduced: Any = keep(value) if keep else value.__reduce_ex__(4)
        except Exception:
            raise Incomparable(f"what a {kind.__qualname__} holds is not told") from None
        if isinstance(reduced, str):
            return f"o{name}{json.dumps(reduced)}"
        listed = [list(part) if index > 2 and part is not None else part for index, part in enumerate(reduced[:5])]
        return f"o{name}({','.join(self.of(part, path) for part in listed)})"

    def _beside(self, value: Any, path: tuple[int, ...]) -> str:
        """Return the form of the attributes that a collection or text of its own class has besides its content."""
        attributes = _held(value)
        return (
            f"+({','.join(f'{key}={self.of(item, path)}' for key, item in sorted(attributes.items()))})"
            if attributes
            else ""
        )

    def _numbers(self, value: Any, path: tuple[int, ...]) -> str:
        """Return the form of an array of the standard library or numpy; one of shape () is a number."""
        shape = getattr(value, "shape", None)
        if shape == ():
            return self.of(value.item(), path)
        size = len(value) if shape is None else value.size
        if size <= MOST_LISTED or str(getattr(value, "dtype", "")) == "object":
            return f"n{shape or (size,)}{self.of(value.tolist(), path)}"
        kind = value.typecode if isinstance(value, array) else str(value.dtype)
        return f"n{kind}{shape or (size,)}{hashlib.sha256(value.tobytes()).hexdigest()}"


def _number(value: Any) -> str:
    """Return the form of a number: 1, 1.0 and Decimal("1.00") are one."""
    try:
        top, bottom = value.as_integer_ratio()
    except (ValueError, OverflowError):  # infinities, and what is no number
        return repr(float(value))
    return hex(top) if bottom == 1 else f"{hex(top)}/{hex(bottom)}"
