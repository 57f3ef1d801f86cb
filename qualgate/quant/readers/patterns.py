"""Names of modules against the patterns that quantization configs are written in."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from qualgate.errors import UsageError

_LONGEST = 1000  # of a pattern and of a name


def name_fits(pattern: str, module: str) -> bool:
    """compressed-tensors' rule: `re:REGEX` from the name's start, else the whole name."""
    if pattern.startswith("re:"):
        return regex_fits(pattern[3:], module)
    return pattern == module


def regex_fits(pattern: str, module: str) -> bool:
    """Whether `pattern` matches at the start of `module`. Raises UsageError for what is no regular expression."""
    if len(pattern) > _LONGEST or len(module) > _LONGEST:
        raise UsageError(
            f"The pattern {pattern!r:.60} or the name {module!r:.60} in the quantization config is too long."
        )
    return _compiled(pattern)(module)


@cache
def _compiled(pattern: str) -> Callable[[str], bool]:
    """With re2 where it is installed: the pattern comes with the model, and Python's engine can be made to hang."""
    try:
        import re2 as engine
    except ImportError:
        engine = re
    try:
        compiled = engine.compile(pattern)
    except Exception as error:  # re.error, or re2's own
        raise UsageError(
            f"The quantization config holds {pattern!r:.60}, which is no regular expression ({error})."
        ) from None
    return lambda module: compiled.match(module) is not None
