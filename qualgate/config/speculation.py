"""The gate file's `speculation:` section: proposer, draft length and acceptance rule of a variant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, cast

from pydantic import AfterValidator, Field, ValidatorFunctionWrapHandler, WithJsonSchema, WrapValidator, model_validator

from qualgate.config.paths import ModelPath
from qualgate.config.recipes import Recipe
from qualgate.documents import ABSENT, Written, nearest, quote, stated
from qualgate.records import DraftSource, Speculation
from qualgate.records.speculation import OWN, Rule

KNOWN_TEXTS = ("ngram", "suffix")  # proposers that run no model
MOST_TOKENS = 32  # of a draft
MOST_LEVELS = 4  # of a cascade


def _tokens(value: Any) -> Any:
    if value != "auto" and (type(value) is not int or not 1 <= value <= MOST_TOKENS):
        raise stated(f"`tokens` is a whole number from 1 to {MOST_TOKENS}, or auto; found {quote(value)}")
    return value


def _named_or_made(value: Any, read: ValidatorFunctionWrapHandler) -> Any:
    """Keep a proposer's name, and read anything else as a `DraftEntry`."""
    if not isinstance(value, str):
        return read(value)
    if value not in KNOWN_TEXTS:
        raise stated(
            f"unknown draft {quote(value)}{nearest(value, KNOWN_TEXTS)}; write a draft model as a mapping such as "
            f"`{DraftEntry.example}`"
        )
    return value


def _or_a_name(schema: dict[str, Any]) -> None:
    mapping = {"$ref": schema.pop("$ref")}
    schema["anyOf"] = [{"enum": list(KNOWN_TEXTS)}, mapping]


def _own_or_a_folder(value: Any, read: ValidatorFunctionWrapHandler) -> Any:
    return value if value == OWN else read(value)


Tokens = Annotated[
    Any,
    AfterValidator(_tokens),
    WithJsonSchema({"oneOf": [{"type": "integer", "minimum": 1, "maximum": MOST_TOKENS}, {"const": "auto"}]}),
]


def _alone(key: str, *others: str) -> dict[str, Any]:
    return {"required": [key], "properties": dict.fromkeys(others, False)}


class DraftEntry(Written):
    """A model that drafts: the target's own weights by `quantize`, another `model`, or a draft head of the target
    (`head`)."""

    model_config = {
        "json_schema_extra": {
            "oneOf": [
                _alone("model", "head"),
                _alone("quantize", "model", "head"),
                _alone("head", "model", "quantize", "under"),
            ]
        }
    }
    example: ClassVar = "{quantize: mxfp4}"
    quantize: Recipe = ABSENT
    """How the draft's weights are made: from those of the model that verifies it, or from `model`. Example: `quantize:
    mxfp4`
    """
    model: ModelPath = ABSENT
    """A folder of another model with the same tokenizer, quantized or not. Example: `model: ./models/support-small`"""
    head: Annotated[ModelPath, WrapValidator(_own_or_a_folder)] = ABSENT
    """What drafts from the target's states: the folder of an EAGLE-3 head, as its authors or `speculators` write it, or
    `own`, the layer that the target's folder holds for further tokens (MTP). Example: `head: ./heads/eagle3`
    """
    under: CascadeEntry = ABSENT
    """Who drafts for this draft. Example: `under: {draft: ngram, tokens: 8}`"""

    @model_validator(mode="before")
    @classmethod
    def _went(cls, value: Any) -> Any:
        if gone := [key for key in ("early_exit", "high_bits") if isinstance(value, dict) and key in value]:
            raise stated(
                f"`{gone[0]}` was removed from qualgate. Draft with the target's own weights, quantized, such as "
                f"`{cls.example}`; to judge the draft used in production, write served arms (`serve`, `endpoint`)"
            )
        return value

    @model_validator(mode="after")
    def _has_one_origin(self) -> DraftEntry:
        """Check that a draft is a head alone, or a model, quantized or not."""
        others = ("model", "quantize", "under")
        if self.head is not None:
            if any(getattr(self, name) is not None for name in others):
                raise stated("`head` drafts alone, from its target's states: leave every other key of `draft` out")
            return self
        if self.model is None and self.quantize is None:
            raise stated(
                "a draft needs `quantize` (made from its target), `model` (a folder; with `quantize`, made from that "
                "folder), or `head`"
            )
        return self


Proposer = Annotated[DraftEntry, WrapValidator(_named_or_made), Field(json_schema_extra=_or_a_name)]


class CascadeEntry(Written):
    """Who drafts for a draft that is a model itself. What it drafts is accepted as the draft would say it."""

    model_config = {"json_schema_extra": {"not": {"properties": {"draft": {"type": "object", "required": ["head"]}}}}}

    example: ClassVar = "{draft: ngram}"
    draft: Proposer
    """As above. Example: `draft: ngram`"""
    tokens: Tokens = "auto"
    """Tokens of each of its drafts; `auto` is as many as pay. Example: `tokens: 8`"""

    @model_validator(mode="before")
    @classmethod
    def _nothing_under_a_text(cls, value: Any) -> Any:
        return _refuse_under_beside(value)

    @model_validator(mode="after")
    def _is_no_head(self) -> CascadeEntry:
        if isinstance(self.draft, DraftEntry) and self.draft.head is not None:
            raise stated("`head` drafts from the states of the variant's own model: write it in the first `draft` only")
        return self


DraftEntry.model_rebuild()  # it names the entry after it


class SpeculationEntry(Written):
    """Who drafts for a variant, how much, and by which rule drafts are accepted. The variant's own model verifies every
    draft."""

    example: ClassVar = "{draft: {quantize: mxfp4}, tokens: 5}"
    draft: Proposer
    """Who proposes: `ngram` (what followed the last tokens in prompt and answer before), `suffix` (likewise, in other
    answers too), or a model. Example: `draft: {quantize: mxfp4}`
    """
    tokens: Tokens = "auto"
    """Tokens of each draft; `auto` is as many as pay, measured while it runs. Example: `tokens: 5`"""
    rule: Rule = "keyed"
    """Which drafts are accepted. `keyed`: what the target says itself, by the same draw, so answers are those without a
    draft. `speculative_sampling`, `block_verification`: other answers of the same distribution. `typical`, `lenient`:
    answers of another distribution, judged by their quality. Example: `rule: keyed`
    """

    @model_validator(mode="before")
    @classmethod
    def _nothing_under_a_text(cls, value: Any) -> Any:
        return _refuse_under_beside(value)

    @model_validator(mode="after")
    def _repeats(self) -> SpeculationEntry:
        """Refuse `tokens: auto` unless the rule is "keyed": otherwise answers depend on draft lengths."""
        level: SpeculationEntry | CascadeEntry | None = self
        while level is not None and self.rule != "keyed":
            if level.tokens == "auto":
                raise stated(
                    f"`tokens: auto` depends on measured time, and under `rule: {self.rule}` another draft length "
                    "gives other answers: write a number at every level, such as `tokens: 5`"
                )
            level = level.draft.under if isinstance(level.draft, DraftEntry) else None
        return self

    @model_validator(mode="after")
    def _is_of_few_levels(self) -> SpeculationEntry:
        if (depth := as_record(self, lambda model: model).depth) > MOST_LEVELS:
            raise stated(f"a cascade of {depth} levels; at most {MOST_LEVELS} are allowed")
        return self


def _refuse_under_beside(value: Any) -> Any:
    """Refuse `under` anywhere but in a draft that is a model."""
    if isinstance(value, dict) and "under" in value:
        draft = value.get("draft")
        why = f"{quote(draft)} runs no model, so a draft for it would save nothing: leave `under` out"
        if draft not in KNOWN_TEXTS:
            why = "`under` stands in the draft that it drafts for: draft: {quantize: mxfp4, under: {draft: ngram}}"
        raise stated(why)
    return value


def as_record(entry: SpeculationEntry | CascadeEntry, folder: Callable[[str], str]) -> Speculation:
    """The speculation as a record. folder: a model as the file names it → its absolute path."""
    return Speculation(
        draft=_draft_source(cast("DraftEntry | str", entry.draft), folder),
        tokens=0 if entry.tokens == "auto" else entry.tokens,
        rule=entry.rule if isinstance(entry, SpeculationEntry) else "keyed",
    )


def _kind(draft: DraftEntry) -> Any:
    kinds = ("head", "model", "quantize")
    return next(kind for kind in kinds if getattr(draft, kind) is not None)


def _draft_source(draft: DraftEntry | str, folder: Callable[[str], str]) -> DraftSource:
    """Convert a draft to the record of the engine. folder: resolves a path as the gate file writes it."""
    if isinstance(draft, str):
        return DraftSource(kind=cast(Any, draft))
    return DraftSource(
        kind=_kind(draft),
        model=folder(draft.model) if draft.model is not None else "",
        head=OWN if draft.head == OWN else folder(draft.head) if draft.head is not None else "",
        quantize=draft.quantize,
        under=as_record(draft.under, folder) if draft.under is not None else None,
    )
