"""Reasons not to use a schema on untrusted answers, found before its first use."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import referencing.exceptions

from qualgate.records.identity import canonical_json
from qualgate.scoring.json_value import depth
from qualgate.scoring.outcome import quote
from qualgate.scoring.schema.check import CannotValidate, checked, quote_message
from qualgate.scoring.schema.drafts import DRAFTS, Draft, NotASchema, dialect, named_draft, registry_of
from qualgate.scoring.schema.patterns import backtracking, linear
from qualgate.scoring.strict_json import MAX_DEPTH

MAX_NODES = 10_000
MAX_PATTERN = 2_000  # characters of one pattern
MAX_PROGRAMS = 50_000  # RE2 instructions of all patterns of a schema
NO_REMOTES = "{}"
REFERENCES = sorted({key for draft in DRAFTS.values() for key in draft.references})


def lint(schema: Any, *, formats: bool = False) -> tuple[str, ...]:
    """Return why `schema` is unsafe on untrusted answers; () if it is safe. formats: whether they are asserted."""
    try:
        return faults_of(canonical_json(schema), NO_REMOTES, formats)
    except RecursionError:
        return (f"nested deeper than {MAX_DEPTH} levels",)


def unread_formats(schema: Any) -> tuple[str, ...]:
    """Return the formats of a valid schema that its draft does not define, which JSON Schema ignores."""
    draft, _ = dialect(schema, registry := registry_of(NO_REMOTES))
    walk = _Lint(draft, schema)
    if isinstance(schema, dict):
        list(walk.faults(registry))
    return tuple(sorted(walk.formats - draft.checkers))


@lru_cache(maxsize=8192)
def faults_of(canonical: str, remotes: str, formats: bool = False) -> tuple[str, ...]:
    """Lint a schema and the documents by URI that it may refer to, both as canonical JSON."""
    schema, registry = json.loads(canonical), registry_of(remotes)
    if not isinstance(schema, dict):
        if isinstance(schema, bool):
            return ()
        text = ", and this is a text: give the JSON itself" if isinstance(schema, str) else ""
        return (f"a schema is an object, true or false{text}; found {quote(schema)}",)
    if depth(schema) > MAX_DEPTH:
        return (f"nested deeper than {MAX_DEPTH} levels",)
    if _nodes(schema) > MAX_NODES:
        return (f"more than {MAX_NODES:,} nodes",)
    try:
        draft, _ = dialect(schema, registry)
        walk = _Lint(draft, schema)
        faults = tuple(walk.faults(registry))
    except NotASchema as error:
        return (str(error),)
    if formats and (unchecked := sorted(walk.formats & draft.formats - draft.checkers)):
        faults = (
            *faults,
            f"the format {quote(unchecked[0])} cannot be checked: leave it out, or do not assert formats",
        )
    if not faults and any(f'"{key}":' in canonical for key in REFERENCES):
        faults = tuple(_endless(canonical, remotes))
    return faults


def _nodes(value: Any) -> int:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(_nodes, children))


class _Lint:
    """A walk over every schema in a schema, and over what its references lead to, wherever that stands."""

    def __init__(self, draft: Draft, schema: dict[str, Any]) -> None:
        self.draft, self.schema = draft, schema
        self.seen: set[tuple[int, str]] = set()
        self.programs = 0
        self.formats: set[str] = set()

    def faults(self, registry: Any) -> Iterator[str]:
        self._shape(self.schema, self.draft, "$")
        yield from self._part(self.schema, self.draft, self.draft.resolver(self.schema, registry), "$")
        if self.programs > MAX_PROGRAMS:
            yield f"its patterns take {self.programs:,} instructions, {MAX_PROGRAMS:,} are allowed"

    def _draft_of(self, subschema: Any, parent: Draft, place: str) -> Draft:
        """Return the draft that `subschema` names, else its parent's. NotASchema for an unknown one."""
        uri = subschema.get("$schema") if isinstance(subschema, dict) else None
        if not isinstance(uri, str) or uri == self.schema.get("$schema"):
            return parent if uri is None else self.draft
        if (draft := named_draft(uri)) is None:
            raise NotASchema(f"$schema {quote(uri)} at {place} is no draft that is read in a part of a schema")
        return draft

    def _part(self, subschema: Any, draft: Draft, resolver: Any, place: str) -> Iterator[str]:
        """Yield the faults of one subschema and those below it.

        Values of `const`, `enum` or `examples` are data and are skipped.

        place: its path, for messages.
        """
        if isinstance(subschema, bool) or (id(subschema), draft.name) in self.seen:
            return
        self.seen.add((id(subschema), draft.name))
        self.formats |= {subschema["format"]} if isinstance(subschema.get("format"), str) else set()
        yield from self._patterns(subschema)
        yield from self._references(subschema, draft, resolver, place)
        for key in draft.single:
            if isinstance(subschema.get(key), dict):
                yield from self._inside(subschema[key], draft, resolver, f"{place}.{key}")
        for key in draft.many:
            if isinstance(subschema.get(key), list):
                for index, item in enumerate(subschema[key]):
                    yield from self._inside(item, draft, resolver, f"{place}.{key}[{index}]")
        for key in draft.named:
            for name, item in subschema.get(key, {}).items():
                if key != "dependencies" or not isinstance(item, list):  # these may name keys, in draft 7
                    yield from self._inside(item, draft, resolver, f"{place}.{key}.{name[:40]}")

    def _inside(self, subschema: Any, parent: Draft, resolver: Any, place: str) -> Iterator[str]:
        """Yield the faults of a subschema of `parent`'s draft. NotASchema if it is none."""
        if not _is_schema(subschema, parent):
            expected = "neither object nor boolean" if parent.booleans else "no object"
            raise NotASchema(f"not a {parent.name} schema at {place}: {quote(subschema)} is {expected}")
        draft = self._draft_of(subschema, parent, place)
        self._shape(subschema, draft, place)  # before the library reads its `$id`, which it takes for text
        inner_resolver = resolver.in_subresource(draft.specification.create_resource(subschema))
        yield from self._part(subschema, draft, inner_resolver, place)

    def _shape(self, part: Any, draft: Draft, place: str) -> None:
        """Raise NotASchema if the metaschema refuses `part` itself, apart from its subschemas."""
        if isinstance(part, dict) and (error := _shape_error(draft.name, canonical_json(_outline(draft, part)))):
            raise NotASchema(f"not a {draft.name} schema at {place}: {error}")

    def _patterns(self, schema: dict[str, Any]) -> Iterator[str]:
        """Yield the patterns that are too long or no regular expressions; count the others' sizes in `programs`."""
        for source in (*([schema["pattern"]] if "pattern" in schema else ()), *schema.get("patternProperties", {})):
            if len(source) > MAX_PATTERN:
                yield f"a pattern of {len(source):,} characters, {MAX_PATTERN:,} are allowed"
                continue
            if (compiled := linear(source)) is not None:
                self.programs += compiled.programsize
                continue
            try:
                backtracking(source)
            except ValueError as error:
                yield f"the pattern {quote(source)} is not a regular expression: {quote_message(str(error))}"

    def _references(self, subschema: dict[str, Any], draft: Draft, resolver: Any, place: str) -> Iterator[str]:
        """Yield the references that lead nowhere, to what is no schema, or out of the schema; follow the others."""
        for key in draft.references:
            if (target := subschema.get(key)) is None:
                continue
            try:
                resolved = resolver.lookup(target)
            except (
                referencing.exceptions.PointerToNowhere,
                referencing.exceptions.NoSuchAnchor,
                referencing.exceptions.InvalidAnchor,
            ):
                yield f"{key} {quote(target)} leads nowhere"
            except (AttributeError, TypeError):  # the library takes whatever stands on the way for a schema
                yield f"{key} {quote(target)} leads to what is no schema"
            except (referencing.exceptions.Unresolvable, ValueError):
                yield f"{key} {quote(target)} leaves the schema; nothing is fetched"
            else:
                target_draft = self._draft_of(resolved.contents, draft, f"{place}.{key}")
                if not _is_schema(resolved.contents, target_draft):
                    yield f"{key} {quote(target)} leads to what is no schema"
                else:
                    self._shape(resolved.contents, target_draft, f"{place}.{key}")
                    yield from self._part(resolved.contents, target_draft, resolved.resolver, f"{place}.{key}")


def _is_schema(part: Any, draft: Draft) -> bool:
    return isinstance(part, dict) or (isinstance(part, bool) and draft.booleans)


def _outline(draft: Draft, schema: Any) -> Any:
    """Return `schema` one level deep, without names and texts.

    Schemas share few outlines, so that the metaschema's verdicts on them can be remembered.
    """
    outline = {}
    for key, value in schema.items():
        match value:
            case dict() if key in draft.named and key != "dependencies":
                value = {}
            case dict() if key in draft.single:
                value = {}
            case [_, *_] if key in draft.many and all(isinstance(item, (dict, bool)) for item in value):
                value = [{}] if all(isinstance(item, dict) for item in value) else [True]
            case str() if key in ("title", "description", "$comment"):
                value = ""
            case list() if key == "required" and all(isinstance(name, str) for name in value):
                value = ["name"] if len(set(value)) == len(value) else ["name", "name"]
            case [_, *_] if key == "enum":
                value = [""]
            case _ if key in ("const", "default", "examples"):
                value = [] if isinstance(value, list) else ""
        outline[key] = value
    return outline


@lru_cache(maxsize=8192)
def _shape_error(draft: str, canonical: str) -> str | None:
    metaschema = next(each.metaschema for each in DRAFTS.values() if each.name == draft)
    error = next(metaschema.iter_errors(json.loads(canonical)), None)
    while error is not None and error.context:  # of what may be this or that: what comes nearest
        error = max(error.context, key=lambda each: len(each.relative_path))
    return None if error is None else f"{error.json_path[:120]}: {quote_message(error.message)}"


def _endless(canonical: str, remotes: str) -> Iterator[str]:
    """Find, by one small value of each type, a schema that applies itself to the same value without end."""
    for probe in (None, True, 0, "", [], {}):
        try:
            checked(canonical, remotes, probe)
        except CannotValidate as failure:
            yield f"cannot be used: {failure}"
            return
