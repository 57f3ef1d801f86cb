"""JSON Schema 2020-12 and draft 7, safe on hostile answers: nothing is fetched, patterns are RE2, work is bounded.

Validation is jsonschema's, with the keywords of `schema_keywords`. A schema is linted before its first use. A check
runs here as long as a cheap bound promises that it is short; what the bound cannot promise goes to `killable`, which
ends it after a second. `$schema` chooses the draft; without one it is 2020-12. A reference may lead to any part of the
schema (by pointer, anchor or inner `$id`) and to the drafts' own metaschemas. `format` is an annotation.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jsonschema_specifications
import re2
import referencing.exceptions
import referencing.jsonschema
from jsonschema import Draft7Validator, Draft202012Validator
from jsonschema.validators import extend

from qualgate.identity import canonical_json
from qualgate.scoring import killable
from qualgate.scoring.json_value import depth, size
from qualgate.scoring.outcome import quote
from qualgate.scoring.schema_keywords import OverBudget, bounded, budget, pattern
from qualgate.scoring.strict_json import MAX_DEPTH

MAX_NODES = 10_000
MAX_PATTERN = 2_000  # characters of one pattern
MAX_PROGRAMS = 50_000  # RE2 instructions of all patterns of a schema
# Steps times size: what one step can cost grows with the answer, whose parts stand in jsonschema's messages.
WORK_HERE = 2_000_000
DIALECT = "https://json-schema.org/draft/2020-12/schema"
_NO_REMOTES = "{}"
DRAFT_7 = "http://json-schema.org/draft-07/schema"


class CannotValidate(Exception):
    """The schema, not the answer, is at fault: unsound, endless, or too much work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    name: str
    validator: Any  # jsonschema's class, its keywords bounded
    metaschema: Any  # a validator of schemas
    specification: Any
    one: tuple[str, ...]  # keywords that hold a schema
    many: tuple[str, ...]  # a list of schemas
    named: tuple[str, ...]  # an object of schemas

    def resolver(self, schema: Any, registry: Any) -> Any:
        return registry.resolver_with_root(self.specification.create_resource(schema))


def _draft(name: str, validator: Any, specification: Any, one: str, many: str, named: str) -> _Draft:
    return _Draft(name=name, validator=_bounded(validator), metaschema=validator(validator.META_SCHEMA),
                  specification=specification, one=tuple(one.split()), many=tuple(many.split()),
                  named=tuple(named.split()))  # fmt: skip


def _bounded(validator: Any) -> Any:
    return extend(validator, bounded(validator.VALIDATORS))


_DRAFTS = {
    DIALECT: _draft(
        "2020-12", Draft202012Validator, referencing.jsonschema.DRAFT202012,
        "additionalProperties items contains not if then else propertyNames contentSchema unevaluatedItems "
        "unevaluatedProperties",
        "allOf anyOf oneOf prefixItems",
        "properties patternProperties $defs definitions dependentSchemas",
    ),
    DRAFT_7: _draft(
        "draft 7", Draft7Validator, referencing.jsonschema.DRAFT7,
        "additionalProperties items additionalItems contains not if then else propertyNames",
        "allOf anyOf oneOf items",
        "properties patternProperties definitions dependencies",
    ),
}  # fmt: skip
_METASCHEMAS: Any = jsonschema_specifications.REGISTRY  # knows the drafts themselves and fetches nothing
# What a dialect of one's own may leave out of 2020-12; its other vocabularies are annotations or always there.
_VOCABULARY = "https://json-schema.org/draft/2020-12/vocab/"
_IN_VOCABULARY = {
    "validation": "type enum const multipleOf maximum exclusiveMaximum minimum exclusiveMinimum maxLength minLength "
    "pattern maxItems minItems uniqueItems maxContains minContains maxProperties minProperties required "
    "dependentRequired",
    "applicator": "prefixItems items contains additionalProperties properties patternProperties dependentSchemas "
    "propertyNames if then else allOf anyOf oneOf not",
    "unevaluated": "unevaluatedItems unevaluatedProperties",
}


class NotASchema(ValueError):
    """A schema, or a part of it, cannot be read as one."""


def _dialect(schema: Any, registry: Any) -> tuple[_Draft, Any]:
    """The draft a schema is written in and the validator class for it."""
    named = schema.get("$schema", DIALECT) if isinstance(schema, dict) else DIALECT
    if not isinstance(named, str):
        raise NotASchema(f"$schema {quote(named)} is not text")
    if (draft := _DRAFTS.get(named.removesuffix("#"))) is not None:
        return draft, draft.validator
    draft, metaschema = _DRAFTS[DIALECT], registry.get(named)
    used = metaschema.contents.get("$vocabulary") if metaschema else None
    if used is None:
        raise NotASchema(f"$schema {quote(named)}: 2020-12 ({DIALECT}) and draft 7 ({DRAFT_7}#) are read")
    known = {_VOCABULARY + word for word in ("core", "meta-data", "format-annotation", "content", *_IN_VOCABULARY)}
    if unknown := sorted(word for word, needed in used.items() if needed and word not in known):
        raise NotASchema(f"$schema {quote(named)} needs the vocabulary {quote(unknown[0])}, which is not known")
    left_out = {
        keyword
        for word, keywords in _IN_VOCABULARY.items()
        if _VOCABULARY + word not in used
        for keyword in keywords.split()
    }
    return draft, extend(draft.validator, dict.fromkeys(left_out, lambda *_: ()))


def first_error(schema: Any, value: Any, remotes: Mapping[str, Any] | None = None) -> str | None:
    """Why `schema` refuses `value`, with the place; None when it accepts. CannotValidate when it cannot tell.

    remotes: documents by URI that references may lead to besides the schema's own parts; by default none.
    """
    try:
        canonical, others = canonical_json(schema), canonical_json(remotes) if remotes else _NO_REMOTES
    except RecursionError:
        raise CannotValidate(f"the schema is nested deeper than {MAX_DEPTH} levels") from None
    if faults := _lint(canonical, others):
        raise CannotValidate(faults[0])
    return _first_error(canonical, others, value)


def quick(schema: Any) -> Callable[[Any], bool] | None:
    """A check that can only accept: where it holds, `first_error` finds nothing; where it does not, ask `first_error`.

    For objects, arrays and scalars by `type`, with `properties`, `required`, `additionalProperties` (a boolean),
    `items` and texts of an `enum`, at any depth; None for a schema with any other keyword, and for an unsound one.
    """
    return None if lint(schema) else _accepts(schema)


_ANNOTATIONS = {"title", "description", "default", "examples", "format", "$comment", "deprecated"}
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "null": (type(None),),
}  # fmt: skip
_QUICK_ITEMS = 256  # of a longer array all are left to `first_error` and its budget


def _accepts(schema: Any) -> Callable[[Any], bool] | None:
    if not isinstance(schema, dict):
        return (lambda value: True) if schema is True else None
    match schema.get("type"), schema.keys() - _ANNOTATIONS - {"type"}:
        case "object", extra if extra <= {"properties", "required", "additionalProperties"}:
            return _accepts_object(schema)
        case "array", extra if extra <= {"items"}:
            if (item := _accepts(schema.get("items", True))) is None:
                return None
            return lambda value: type(value) is list and len(value) <= _QUICK_ITEMS and all(map(item, value))
        case None | "string", extra if extra == {"enum"}:
            texts = frozenset(text for text in schema["enum"] if isinstance(text, str))
            return lambda value: type(value) is str and value in texts
        case str() | list() as wanted, extra if not extra:
            names = [wanted] if isinstance(wanted, str) else wanted
            types = frozenset(type for name in names for type in _TYPES.get(name, ()))
            return lambda value: type(value) in types
        case None, extra if not extra:
            return lambda value: True
    return None


def _accepts_object(schema: dict[str, Any]) -> Callable[[Any], bool] | None:
    named = {name: _accepts(part) for name, part in schema.get("properties", {}).items()}
    others, required = schema.get("additionalProperties", True), schema.get("required", ())
    if not isinstance(others, bool) or None in named.values():
        return None
    checks: dict[str, Any] = named

    def accepts(value: Any) -> bool:
        if type(value) is not dict:
            return False
        for name in required:
            if name not in value:
                return False
        for name, item in value.items():
            if (check := checks.get(name)) is None:
                if not others:
                    return False
            elif not check(item):
                return False
        return True

    return accepts


def _first_error(canonical: str, remotes: str, value: Any) -> str | None:
    try:
        return _within(WORK_HERE // (50 + size(value)), canonical, remotes, value)
    except OverBudget:
        pass
    try:
        error, reason = killable.run(_in_child, canonical, remotes, value)
    except killable.Killed as failure:
        raise CannotValidate(f"the schema check was stopped: {failure}") from None
    if reason is not None:
        raise CannotValidate(reason)
    return error


def _in_child(canonical: str, remotes: str, value: Any) -> tuple[str | None, str | None]:
    try:
        return _within(2**62, canonical, remotes, value), None
    except CannotValidate as failure:
        return None, str(failure)


def _within(steps: int, canonical: str, remotes: str, value: Any) -> str | None:
    token = budget.set([steps])
    try:
        error = next(_compiled(canonical, remotes).iter_errors(value), None)
    except RecursionError:
        raise CannotValidate("the schema refers to itself too deeply") from None
    except referencing.exceptions.Unresolvable as failure:  # jsonschema's own wrapper is one too
        raise CannotValidate(f"a reference leads nowhere: {quote(str(failure), 120)}") from None
    except UnicodeEncodeError:
        raise CannotValidate("a lone surrogate in the answer is not text that a pattern can be matched with") from None
    finally:
        budget.reset(token)
    return None if error is None else f"{error.json_path[:120]}: {quote_message(error.message)}"


@lru_cache(maxsize=8192)
def _compiled(canonical: str, remotes: str) -> Any:
    schema, registry = json.loads(canonical), _registry(remotes)
    return _dialect(schema, registry)[1](schema, registry=registry)


@lru_cache(maxsize=16)
def _registry(remotes: str) -> Any:
    documents = json.loads(remotes)
    default = referencing.jsonschema.DRAFT202012
    return _METASCHEMAS.with_resources(
        # By its own draft where it names one that is known.
        (uri, _specification(document, default).create_resource(document))
        for uri, document in documents.items()
    )


def _specification(document: Any, default: Any) -> Any:
    named = document.get("$schema", "") if isinstance(document, dict) else ""
    draft = _DRAFTS.get(named.removesuffix("#"))
    return draft.specification if draft else default


def quote_message(message: str, limit: int = 200) -> str:
    """jsonschema's message on one line, cut; it holds values of the answer, already escaped by repr."""
    line = " ".join(message[: limit + 1].split())
    return line if len(line) <= limit else line[:limit] + "…"


def lint(schema: Any) -> tuple[str, ...]:
    """What keeps `schema` from being used on untrusted answers; nothing when it is fine."""
    try:
        return _lint(canonical_json(schema), _NO_REMOTES)
    except RecursionError:
        return (f"nested deeper than {MAX_DEPTH} levels",)


@lru_cache(maxsize=8192)
def _lint(canonical: str, remotes: str) -> tuple[str, ...]:
    schema, registry = json.loads(canonical), _registry(remotes)
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
        draft, _ = _dialect(schema, registry)
        faults = tuple(_Lint(draft, schema).faults(registry))
    except NotASchema as error:
        return (str(error),)
    if not faults and ('"$ref":' in canonical or '"$dynamicRef":' in canonical):
        faults = tuple(_endless(canonical, remotes))
    return faults


def _nodes(value: Any) -> int:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(_nodes, children))


class _Lint:
    """A walk over every schema in a schema, and over what its references lead to, wherever that stands."""

    def __init__(self, draft: _Draft, schema: dict[str, Any]) -> None:
        self.draft, self.schema = draft, schema
        self.seen: set[int] = set()
        self.programs = 0

    def faults(self, registry: Any) -> Iterator[str]:
        yield from self._part(self.schema, self.draft.resolver(self.schema, registry), "$")
        if self.programs > MAX_PROGRAMS:
            yield f"its patterns take {self.programs:,} instructions, {MAX_PROGRAMS:,} are allowed"

    def _part(self, part: Any, resolver: Any, place: str) -> Iterator[str]:
        """What stands under `const`, `enum` or `examples` is data and is not entered."""
        if isinstance(part, bool) or id(part) in self.seen:
            return
        self.seen.add(id(part))
        draft = self.draft
        if error := _shape_error(draft.name, canonical_json(_outline(draft, part))):
            raise NotASchema(f"not a {draft.name} schema at {place}: {error}")
        if part is not self.schema and part.get("$schema", same := self.schema.get("$schema")) != same:
            known = part["$schema"].removesuffix("#") in _DRAFTS
            if not known or _DRAFTS[part["$schema"].removesuffix("#")] is not draft:
                yield f"$schema {quote(part['$schema'])} at {place}: a schema is written in one draft"
        yield from self._patterns(part)
        yield from self._references(part, resolver, place)
        for key in draft.one:
            if isinstance(part.get(key), (dict, bool)):
                yield from self._inside(part[key], resolver, f"{place}.{key}")
        for key in draft.many:
            if isinstance(part.get(key), list):
                for index, item in enumerate(part[key]):
                    yield from self._inside(item, resolver, f"{place}.{key}[{index}]")
        for key in draft.named:
            for name, item in part.get(key, {}).items():
                if key != "dependencies" or not isinstance(item, list):  # these may name keys, in draft 7
                    yield from self._inside(item, resolver, f"{place}.{key}.{name[:40]}")

    def _inside(self, part: Any, resolver: Any, place: str) -> Iterator[str]:
        if not isinstance(part, (dict, bool)):
            raise NotASchema(f"not a {self.draft.name} schema at {place}: {quote(part)} is neither object nor boolean")
        yield from self._part(part, resolver.in_subresource(self.draft.specification.create_resource(part)), place)

    def _patterns(self, part: dict[str, Any]) -> Iterator[str]:
        for source in (*([part["pattern"]] if "pattern" in part else ()), *part.get("patternProperties", {})):
            if len(source) > MAX_PATTERN:
                yield f"a pattern of {len(source):,} characters, {MAX_PATTERN:,} are allowed"
                continue
            try:
                self.programs += pattern(source).programsize
            except re2.error as error:
                yield f"the pattern {quote(source)} is not one RE2 takes: {_reason(error)}"

    def _references(self, part: dict[str, Any], resolver: Any, place: str) -> Iterator[str]:
        for key in ("$ref", "$dynamicRef"):
            if (target := part.get(key)) is None or (key == "$dynamicRef" and self.draft.name == "draft 7"):
                continue
            try:
                found = resolver.lookup(target)
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
                if not isinstance(found.contents, (dict, bool)):
                    yield f"{key} {quote(target)} leads to what is no schema"
                else:
                    yield from self._part(found.contents, found.resolver, f"{place}.{key}")


def _outline(draft: _Draft, schema: Any) -> Any:
    """`schema` one level deep, without names and texts: schemas share few outlines, so their checks are remembered."""
    outline = {}
    for key, value in schema.items():
        match value:
            case dict() if key in draft.named and key != "dependencies":
                value = {}
            case dict() | bool() if key in draft.one:
                value = True
            case [_, *_] if key in draft.many and all(isinstance(item, (dict, bool)) for item in value):
                value = [True]
            case str() if key in ("title", "description", "$comment"):
                value = ""
            case list() if key == "required" and all(isinstance(name, str) for name in value):
                value = ["name"] if len(set(value)) == len(value) else ["name", "name"]
            case _ if key in ("const", "default", "examples", "enum"):
                value = [] if isinstance(value, list) else ""
        outline[key] = value
    return outline


@lru_cache(maxsize=8192)
def _shape_error(draft: str, canonical: str) -> str | None:
    metaschema = next(each.metaschema for each in _DRAFTS.values() if each.name == draft)
    error = next(metaschema.iter_errors(json.loads(canonical)), None)
    while error is not None and error.context:  # of what may be this or that: what comes nearest
        error = max(error.context, key=lambda each: len(each.relative_path))
    return None if error is None else f"{error.json_path[:120]}: {quote_message(error.message)}"


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else ""
    return quote_message(reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason))


def _endless(canonical: str, remotes: str) -> Iterator[str]:
    """One small value of each type finds a schema that applies itself to the same value without end."""
    for probe in (None, True, 0, "", [], {}):
        try:
            _first_error(canonical, remotes, probe)
        except CannotValidate as failure:
            yield f"cannot be used: {failure}"
            return
