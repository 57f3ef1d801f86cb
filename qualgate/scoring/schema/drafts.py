"""The drafts that a schema may be written in, and the documents that its references may lead to."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jsonschema_specifications
import referencing.jsonschema
from jsonschema import Draft7Validator, Draft202012Validator
from jsonschema.validators import extend

from qualgate.scoring.outcome import quote
from qualgate.scoring.schema.keywords import bounded

DIALECT = "https://json-schema.org/draft/2020-12/schema"
DRAFT_7 = "http://json-schema.org/draft-07/schema"


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """One draft: its validators, and the keywords below which schemas stand."""

    name: str
    validator: Any  # jsonschema's class, its keywords bounded
    metaschema: Any  # a validator of schemas
    specification: Any
    one: tuple[str, ...]  # keywords that hold a schema
    many: tuple[str, ...]  # a list of schemas
    named: tuple[str, ...]  # an object of schemas

    def resolver(self, schema: Any, registry: Any) -> Any:
        """For the references of `schema`, its root."""
        return registry.resolver_with_root(self.specification.create_resource(schema))


def _draft(name: str, validator: Any, specification: Any, one: str, many: str, named: str) -> Draft:
    return Draft(name=name, validator=_bounded(validator), metaschema=validator(validator.META_SCHEMA),
                  specification=specification, one=tuple(one.split()), many=tuple(many.split()),
                  named=tuple(named.split()))  # fmt: skip


def _bounded(validator: Any) -> Any:
    return extend(validator, bounded(validator.VALIDATORS))


DRAFTS = {
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


def dialect(schema: Any, registry: Any) -> tuple[Draft, Any]:
    """The draft a schema is written in and the validator class for it."""
    named = schema.get("$schema", DIALECT) if isinstance(schema, dict) else DIALECT
    if not isinstance(named, str):
        raise NotASchema(f"$schema {quote(named)} is not text")
    if (draft := DRAFTS.get(named.removesuffix("#"))) is not None:
        return draft, draft.validator
    draft, metaschema = DRAFTS[DIALECT], registry.get(named)
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
    named = document.get("$schema", "") if isinstance(document, dict) else ""
    draft = DRAFTS.get(named.removesuffix("#"))
    return draft.specification if draft else default
