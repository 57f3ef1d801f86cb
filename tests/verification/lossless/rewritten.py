"""A module of the product with a line of it changed, beside the one that runs."""

from __future__ import annotations

import inspect
import sys
from types import ModuleType


def rewritten(module: ModuleType, before: str, after: str, **names: object) -> ModuleType:
    """The module with this text, which stands in it once, replaced. names: what else it is to know.

    LookupError: the text is not there, or not once: the mutant is out of date.
    """
    source = inspect.getsource(module)
    if source.count(before) != 1:
        raise LookupError(f"{module.__name__}: {before!r} stands there {source.count(before)} times")
    found = ModuleType(f"{module.__name__}, rewritten")
    sys.modules[found.__name__] = found  # dataclasses look there
    try:
        exec(compile(source.replace(before, after), str(module.__file__), "exec"), found.__dict__)
    finally:
        del sys.modules[found.__name__]
    found.__dict__.update(names)
    return found
