"""JSON Schema drafts, and the documents that references may lead to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jsonschema_specifications
import referencing.jsonschema
from jsonschema import (
    Draft4Validator,
    Draft6Validator,
    Draft7Validator,
    Draft201909Validator,
    Draft202012Validator,
)
from jsonschema.validators import extend

from qualgate.scoring.outcome import quote
from qualgate.scoring.schema import unevaluated
from qualgate.scoring.schema.keywords import bounded

DIALECT = "https://json-schema.org/draft/2020-12/schema"
# Formats that each draft's specification adds; a draft has those of the earlier ones, too.
_FORMATS_SINCE = {
    "draft 4": "date-time email hostname ipv4 ipv6 uri",
    "draft 6": "json-pointer uri-reference uri-template",
    "draft 7": "date time regex idn-email idn-hostname iri iri-reference relative-json-pointer",
    "2019-09": "duration uuid",
    "2020-12": "",
}
# The library's checker of these takes seconds to be imported, so a schema that asserts one is refused.
_TOO_SLOW = {"iri", "iri-reference"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """One draft: its validators, and the keywords below which schemas stand."""

    name: str
    validator: Any  # jsonschema's class, its keywords bounded
    metaschema: Any  # a validator of schemas
    specification: Any
    single: tuple[str, ...]  # keywords that hold a schema
    many: tuple[str, ...]  # a list of schemas
    named: tuple[str, ...]  # an object of schemas
    references: tuple[str, ...]  # that lead to one
    formats: frozenset[str]  # that its specification defines

    @property
    def booleans(self) -> bool:
        """Whether true and false are schemas wherever one stands."""
        return self.name != "draft 4"

    @property
    def checkers(self) -> frozenset[str]:
        """The formats that jsonschema checks in this draft, whatever else is installed."""
        return frozenset(self.validator.FORMAT_CHECKER.checkers) - _TOO_SLOW

    def resolver(self, schema: Any, registry: Any) -> Any:
        """Return the resolver of the references of `schema`, its root."""
        return registry.resolver_with_root(self.specification.create_resource(schema))


def _draft(name: str, validator: Any, specification: Any, *keywords: str) -> Draft:
    """Return a draft with our keywords.

    keywords: Draft's `single`, `many`, `named` and `references`, each a list in words.
    """
    single, many, named, references = (tuple(words.split()) for words in keywords)
    keywords_of = {key: unevaluated.KEYWORDS.get(key, keyword) for key, keyword in validator.VALIDATORS.items()}
    draft_names = [*_FORMATS_SINCE][: [*_FORMATS_SINCE].index(name) + 1]
    return Draft(
        name=name, validator=_with(validator, bounded(keywords_of)),
        metaschema=validator(validator.META_SCHEMA), specification=specification,
        single=single, many=many, named=named, references=references,
        formats=frozenset(word for draft_name in draft_names for word in _FORMATS_SINCE[draft_name].split()),
    )  # fmt: skip


def _with(validator: Any, keywords: Mapping[str, Any]) -> Any:
    """Return `validator` with these keywords. A part that names its own draft is checked by our validator of that one,
    any other by its parent's. jsonschema's own `evolve` would continue with the library's class, whose patterns are
    Python's and whose work is not counted."""

    def evolve(self: Any, **changes: Any) -> Any:
        schema = changes.setdefault("schema", self.schema)
        draft = named_draft(schema.get("$schema")) if isinstance(schema, dict) else None
        inherited = {"format_checker": self.format_checker, "registry": self._registry, "_resolver": self._resolver}
        return (draft.validator if draft else type(self))(**{**inherited, **changes})

    def descend(self: Any, instance: Any, schema: Any, *places: Any, **named: Any) -> Any:
        draft = named_draft(schema.get("$schema")) if isinstance(schema, dict) else None
        return (draft.validator if draft else type(self)).descend_into(self, instance, schema, *places, **named)

    extended = extend(validator, keywords)
    # What a reference leaves of its neighbours and where `$id` counts are the draft's own too.
    extended.evolve, extended.descend_into, extended.descend = evolve, extended.descend, descend
    return extended


_SINCE_4 = "additionalProperties items additionalItems not"
_SINCE_6 = f"{_SINCE_4} contains propertyNames"
_SINCE_7 = f"{_SINCE_6} if then else"
DRAFTS = {
    DIALECT: _draft(
        "2020-12", Draft202012Validator, referencing.jsonschema.DRAFT202012,
        "additionalProperties items contains not if then else propertyNames contentSchema unevaluatedItems "
        "unevaluatedProperties",
        "allOf anyOf oneOf prefixItems",
        "properties patternProperties $defs definitions dependentSchemas",
        "$ref $dynamicRef",
    ),
    "https://json-schema.org/draft/2019-09/schema": _draft(
        "2019-09", Draft201909Validator, referencing.jsonschema.DRAFT201909,
        f"{_SINCE_7} contentSchema unevaluatedItems unevaluatedProperties", "allOf anyOf oneOf items",
        "properties patternProperties $defs definitions dependentSchemas", "$ref $recursiveRef",
    ),
    "http://json-schema.org/draft-07/schema": _draft(
        "draft 7", Draft7Validator, referencing.jsonschema.DRAFT7,
        _SINCE_7, "allOf anyOf oneOf items", "properties patternProperties definitions dependencies", "$ref",
    ),
    "http://json-schema.org/draft-06/schema": _draft(
        "draft 6", Draft6Validator, referencing.jsonschema.DRAFT6,
        _SINCE_6, "allOf anyOf oneOf items", "properties patternProperties definitions dependencies", "$ref",
    ),
    "http://json-schema.org/draft-04/schema": _draft(
        "draft 4", Draft4Validator, referencing.jsonschema.DRAFT4,
        _SINCE_4, "allOf anyOf oneOf items", "properties patternProperties definitions dependencies", "$ref",
    ),
}  # fmt: skip
_METASCHEMAS: Any = jsonschema_specifications.REGISTRY  # knows the drafts themselves and fetches nothing
# What a dialect of one's own may leave out of its draft; its other vocabularies are annotations or always there.
_IN_VOCABULARY = {
    "validation": "type enum const multipleOf maximum exclusiveMaximum minimum exclusiveMinimum maxLength minLength "
    "pattern maxItems minItems uniqueItems maxContains minContains maxProperties minProperties required "
    "dependentRequired",
    "applicator": "prefixItems items additionalItems contains additionalProperties properties patternProperties "
    "dependentSchemas propertyNames if then else allOf anyOf oneOf not",
    "unevaluated": "unevaluatedItems unevaluatedProperties",  # in 2019-09 these are of the applicators
}
_ANNOTATIONS = ("core", "meta-data", "format", "format-annotation", "content")


class NotASchema(ValueError):
    """A schema, or a part of it, cannot be read as one."""


def named_draft(uri: object) -> Draft | None:
    """The draft that `$schema` names; its address is written with http or https and with or without a last #."""
    if not isinstance(uri, str):
        return None
    _, scheme, rest = uri.removesuffix("#").rpartition("://")
    return next((draft for address, draft in DRAFTS.items() if scheme and address.endswith("://" + rest)), None)


def dialect(schema: Any, registry: Any) -> tuple[Draft, Any]:
    """The draft a schema is written in and the validator class for it."""
    uri = schema.get("$schema", DIALECT) if isinstance(schema, dict) else DIALECT
    if not isinstance(uri, str):
        raise NotASchema(f"$schema {quote(uri)} is not text")
    if (draft := named_draft(uri)) is not None:
        return draft, draft.validator
    metaschema = registry.get(uri)
    draft = named_draft(metaschema.contents.get("$schema", DIALECT)) if metaschema else None
    vocabularies = metaschema.contents.get("$vocabulary") if metaschema else None
    if draft is None or vocabularies is None:
        raise NotASchema(f"$schema {quote(uri)} is no draft that is read; these are: {', '.join(DRAFTS)}")
    prefix = f"https://json-schema.org/draft/{draft.name}/vocab/"
    known = {prefix + word for word in (*_ANNOTATIONS, *_IN_VOCABULARY)}
    if unknown := sorted(word for word, needed in vocabularies.items() if needed and word not in known):
        raise NotASchema(f"$schema {quote(uri)} needs the vocabulary {quote(unknown[0])}, which is not known")
    left_out = {
        keyword
        for word, keywords in _IN_VOCABULARY.items()
        if prefix + (word if draft.name == "2020-12" else word.replace("unevaluated", "applicator")) not in vocabularies
        for keyword in keywords.split()
    }
    return draft, _with(draft.validator, dict.fromkeys(left_out, lambda *_: ()))


@lru_cache(maxsize=16)
def registry_of(remotes: str) -> Any:
    """The drafts' own documents and those of `remotes`, an object of documents by URI as JSON."""
    documents = json.loads(remotes)
    default = referencing.jsonschema.DRAFT202012
    return _METASCHEMAS.with_resources(
        # By its own draft where it names one that is known.
        (uri, _specification(document, default).create_resource(document))
        for uri, document in documents.items()
    )


def _specification(document: Any, default: Any) -> Any:
    draft = named_draft(document.get("$schema")) if isinstance(document, dict) else None
    return draft.specification if draft else default
