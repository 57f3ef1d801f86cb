"""JSON Schema of drafts 4, 6, 7, 2019-09 and 2020-12, safe on hostile answers: no fetch, bounded patterns and work.

Validation is jsonschema's, with the keywords of `keywords`. A schema is linted before its first use. A check runs here
if a cheap bound proves that it is short; any other runs in `killable`, which ends it after a second. `$schema` chooses
the draft, by default 2020-12. A reference may lead to any part of the schema (by pointer, anchor or inner `$id`) and to
the drafts' own metaschemas. `format` is an annotation unless asserted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qualgate.records.identity import canonical_json
from qualgate.scoring.schema.accepting import quick
from qualgate.scoring.schema.check import CannotValidate, checked
from qualgate.scoring.schema.drafts import DIALECT
from qualgate.scoring.schema.linter import NO_REMOTES, faults_of, lint, unread_formats
from qualgate.scoring.strict_json import MAX_DEPTH

__all__ = ["DIALECT", "CannotValidate", "first_error", "lint", "quick", "unread_formats"]


def first_error(
    schema: Any, value: Any, remotes: Mapping[str, Any] | None = None, *, formats: bool = False
) -> str | None:
    """Return why and where `schema` refuses `value`; None if it accepts. CannotValidate if that cannot be decided.

    remotes: documents by URI that references may lead to besides the schema's own parts; by default none.
    formats: `format` is asserted, where the schema's draft defines it and jsonschema can check it.
    """
    try:
        canonical, remotes_json = canonical_json(schema), canonical_json(remotes) if remotes else NO_REMOTES
    except RecursionError:
        raise CannotValidate(f"the schema is nested deeper than {MAX_DEPTH} levels") from None
    if faults := faults_of(canonical, remotes_json, formats):
        raise CannotValidate(faults[0])
    return checked(canonical, remotes_json, value, formats)
