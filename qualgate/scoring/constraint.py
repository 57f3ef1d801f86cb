"""Constraints on an answer: `constraint: {json_schema: …}`, `{regex: …}` or `{grammar: …}`.

The grammars are llguidance's: its JSON Schema, Rust's regular expressions, and its own Lark. The library itself checks
a grammar in a child with bounds, before anything is generated; it bounds its later work by counted steps, which are
the same on every machine.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from qualgate.errors.extras import pip_install
from qualgate.records.identity import canonical_json
from qualgate.sandbox import killable

KINDS = ("json_schema", "regex", "grammar")
MOST_BYTES = 2**16  # of one constraint
BOUNDS = killable.Bounds(cpu_seconds=5.0, memory_bytes=2**30)


def library() -> str:
    """Return the library that reads constraints, with its version: part of a constrained run's identity."""
    from importlib.metadata import version

    return f"llguidance {version('llguidance')}"


def constraint_fault(constraint: Any) -> str:
    """Return what is wrong with a case's `constraint`; "" if nothing is."""
    kinds = ", ".join(f"`{kind}`" for kind in KINDS)
    if not isinstance(constraint, dict) or len(constraint) != 1 or next(iter(constraint)) not in KINDS:
        return f"`constraint` must be an object with one of {kinds}"
    [(kind, value)] = constraint.items()
    if kind == "json_schema" and not isinstance(value, dict):
        return "`constraint.json_schema` must be a JSON Schema, an object"
    if kind != "json_schema" and (not isinstance(value, str) or not value):
        return f"`constraint.{kind}` must be a text that is not empty"
    try:
        constraint_json = canonical_json(constraint)
        size = len(constraint_json.encode())
    except (ValueError, RecursionError):
        return f"`constraint.{kind}` holds what JSON does not, or half a character"
    if size > MOST_BYTES:
        return f"`constraint` has {size:,} bytes, and at most {MOST_BYTES:,} are read"
    why = _compiled(constraint_json)
    return f"`constraint.{kind}` cannot be used: {why}" if why else ""


def grammar_of(constraint: dict[str, Any]) -> str:
    """Return a valid constraint as the text that llguidance compiles."""
    from llguidance import LLMatcher

    [(kind, value)] = constraint.items()
    if kind == "json_schema":
        return LLMatcher.grammar_from_json_schema(canonical_json(value))
    return LLMatcher.grammar_from_regex(value) if kind == "regex" else LLMatcher.grammar_from_lark(value)


@lru_cache(maxsize=4096)
def _compiled(constraint_json: str) -> str:
    """Return why the library cannot compile the constraint; "" if it can."""
    try:
        return killable.run(_in_child, constraint_json, within=BOUNDS)
    except killable.Killed as ended:
        return f"compiling it was ended: {ended}; make it smaller"


def _in_child(constraint_json: str) -> str:
    """Compile a constraint's JSON by llguidance; return why that fails, else "".

    Runs in a child: compiling may take long.
    """
    try:
        from llguidance import LLMatcher, LLParserLimits
    except ImportError:
        return f"constraints need llguidance. Install it: {pip_install('llguidance')}"
    try:
        grammar = grammar_of(json.loads(constraint_json))
        message = LLMatcher.validate_grammar(grammar, limits=LLParserLimits(verbose_errors=False))
    except (ValueError, RecursionError) as error:
        message = str(error)
    return "" if message.startswith("WARNING") else " ".join(message.split())[:300]
