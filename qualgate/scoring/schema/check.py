"""One value against one schema, here within so many steps, or in a process that is ended after a second."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import referencing.exceptions

from qualgate.sandbox import killable
from qualgate.scoring.json_value import size
from qualgate.scoring.outcome import quote
from qualgate.scoring.schema.drafts import dialect, registry_of
from qualgate.scoring.schema.keywords import OutOfSteps, steps_left

# Steps times size: what one step can cost grows with the answer, whose parts stand in jsonschema's messages.
WORK_HERE = 2_000_000


class CannotValidate(Exception):
    """The schema, not the answer, is at fault: unsound, endless, or too much work."""


def checked(canonical: str, remotes: str, value: Any, formats: bool = False) -> str | None:
    """Return why the schema refuses `value`, or None; both as canonical JSON. CannotValidate if it is undecidable."""
    try:
        return _within(WORK_HERE // (50 + size(value)), canonical, remotes, value, formats)
    except OutOfSteps:
        pass
    try:
        error, reason = killable.run(_in_child, canonical, remotes, value, formats)
    except killable.Killed as failure:
        raise CannotValidate(f"the schema check was stopped: {failure}") from None
    if reason is not None:
        raise CannotValidate(reason)
    return error


def _in_child(canonical: str, remotes: str, value: Any, formats: bool) -> tuple[str | None, str | None]:
    try:
        return _within(2**62, canonical, remotes, value, formats), None
    except CannotValidate as failure:
        return None, str(failure)


def _within(steps: int, canonical: str, remotes: str, value: Any, formats: bool) -> str | None:
    """Return the first error of `value` under a schema, with its path; None if there is none.

    steps: the work allowed. CannotValidate for a schema that cannot be applied.
    """
    token = steps_left.set([steps])
    try:
        error = next(_compiled(canonical, remotes, formats).iter_errors(value), None)
    except RecursionError:
        raise CannotValidate("the schema refers to itself too deeply") from None
    except referencing.exceptions.Unresolvable as failure:  # jsonschema's own wrapper is one too
        raise CannotValidate(f"a reference leads nowhere: {quote(str(failure), 120)}") from None
    except UnicodeEncodeError:
        raise CannotValidate("a lone surrogate in the answer is not text that a pattern can be matched with") from None
    finally:
        steps_left.reset(token)
    return None if error is None else f"{error.json_path[:120]}: {quote_message(error.message)}"


@lru_cache(maxsize=8192)
def _compiled(canonical: str, remotes: str, formats: bool) -> Any:
    schema, registry = json.loads(canonical), registry_of(remotes)
    draft, validator = dialect(schema, registry)
    return validator(schema, registry=registry, format_checker=draft.validator.FORMAT_CHECKER if formats else None)


def quote_message(message: str, limit: int = 200) -> str:
    """jsonschema's message on one line, cut; it holds values of the answer, already escaped by repr."""
    line = " ".join(message[: limit + 1].split())
    return line if len(line) <= limit else line[:limit] + "…"
