"""Names of modules against the patterns that quantization configs are written in."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

from qualgate.errors import UsageError

_LONGEST = 1000  # of a pattern and of a name


def name_fits(pattern: str, module: str, where: Path) -> bool:
    """compressed-tensors' rule: `re:REGEX` from the name's start, else the whole name."""
    if pattern.startswith("re:"):
        return regex_fits(pattern[3:], module, where)
    return pattern == module


def regex_fits(pattern: str, module: str, where: Path) -> bool:
    """Return whether `pattern` matches at the start of `module`. Raises UsageError for what is no regular expression,
    naming `where`, the file that holds it."""
    if len(pattern) > _LONGEST or len(module) > _LONGEST:
        raise UsageError(f"{where}: the pattern {pattern!r:.60} or the name {module!r:.60} is too long.")
    try:
        return _compiled(pattern)(module)
    except Exception:  # re.error, or re2's own
        raise UsageError(
            f"{where}: the quantization config holds {pattern!r:.60}, which is no regular expression. Correct it there."
        ) from None


@cache
def _compiled(pattern: str) -> Callable[[str], bool]:
    """Compile a pattern with re2 where it is installed, because it comes with the model and can make Python's engine
    hang."""
    try:
        import re2
    except ImportError:
        compiled = re.compile(pattern)
    else:
        options = re2.Options()
        options.log_errors = False  # it would write them to stderr
        compiled = re2.compile(pattern, options=options)
    return lambda module: compiled.match(module) is not None
