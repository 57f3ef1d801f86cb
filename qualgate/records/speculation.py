"""Speculation: proposers of an arm, and its acceptance rule."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

from qualgate.records.recipe import QuantizeRecipe

Rule = Literal["keyed", "speculative_sampling", "block_verification", "typical", "lenient"]
LOSSY: frozenset[str] = frozenset({"typical", "lenient"})  # rules that change the distribution
OWN = "own"  # the head that is a layer of the target's own


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftSource:
    """A proposer of drafts.

    kind: "quantize": the target's own weights by `quantize`; "model": the folder `model`, by `quantize` if set; "head":
    the draft head in the folder `head`, which reads the target's states, or (OWN) the target's own layer for further
    tokens; "ngram": continuations of the last tokens in prompt and answer; "suffix": likewise, in other answers, too.
    under: the proposer for a draft model (a cascade).
    """

    kind: Literal["quantize", "model", "head", "ngram", "suffix"]
    model: str = ""
    head: str = ""
    quantize: QuantizeRecipe | None = None
    under: Speculation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """How an arm speculates. tokens: γ, of each draft; 0: adapts while running.

    rule: "keyed" accepts tokens that equal the target's own draw (or likeliest token); "speculative_sampling" and
    "block_verification" accept by p / q and draw from the residual; those in LOSSY change the distribution.
    """

    draft: DraftSource
    tokens: int = 0
    rule: Rule = "keyed"

    @property
    def lossless(self) -> bool:
        """Whether answers are its target's: the same tokens ("keyed"), or of the same distribution."""
        return self.rule not in LOSSY

    @property
    def depth(self) -> int:
        """Number of levels: 1 without a cascade."""
        return 1 + (self.draft.under.depth if self.draft.under else 0)

    @property
    def content(self) -> dict[str, Any]:
        """Identity as plain JSON; a plan adds the files of folders."""
        draft = self.draft
        source: dict[str, Any] = {
            item.name: value
            for item in fields(draft)
            if item.name not in ("quantize", "under") and (value := getattr(draft, item.name)) != item.default
        }
        if draft.quantize:
            source["quantize"] = draft.quantize.content
        if draft.under:
            source["under"] = draft.under.content
        return {"draft": source, "tokens": self.tokens, "rule": self.rule}

    @property
    def label(self) -> str:
        """For people: "mxfp4 draft, 5 tokens", "int4 g32 draft < ngram, 5 tokens"."""
        count = f"{self.tokens} tokens" if self.tokens else "as many tokens as pay"
        rule = "" if self.rule == "keyed" else f", {self.rule.replace('_', ' ')}"
        return f"{' < '.join(self.names)}, {count}{rule}"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the proposers, from the one that the target verifies down."""
        draft = self.draft
        name = {
            "quantize": f"{draft.quantize.label if draft.quantize else ''} draft",
            "model": "draft model" + (f" {draft.quantize.label}" if draft.quantize else ""),
            "head": "MTP layer" if draft.head == OWN else "draft head",
        }.get(draft.kind, draft.kind)
        return (name, *(draft.under.names if draft.under else ()))
