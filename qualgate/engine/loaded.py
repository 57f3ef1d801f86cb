"""Arms whose models are loaded, and the drafts of those that speculate."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from qualgate.records import ArmFootprint, ArmIdentity, ArmSpec, Speculation

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from qualgate.engine.choice import Choice
    from qualgate.engine.draft_heads.loading import LoadedHead
    from qualgate.engine.speculation.lengths import Learned
    from qualgate.engine.speculation.ngram import Suffix


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedArm:
    """A loaded arm, and what is known about it."""

    spec: ArmSpec
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    identity: ArmIdentity
    footprint: ArmFootprint
    kernel: str  # what multiplies its packed weights, see `choose_kernels`
    choice: Choice  # of the engine that runs it
    stop_ids: tuple[int, ...]  # every token that ends an answer
    context_length: int | None  # tokens, None: its config names no limit
    stored: str = "float32"  # the dtype that a server stores its activations in
    draft: LoadedDraft | None = None  # of an arm that speculates


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedDraft:
    """The drafts of an arm.

    arms: the models of a cascade, one per level, the one that the target verifies first; None for a level without
    weights of its own. Each is on the target's device, and none runs in padded batches.
    """

    spec: Speculation
    arms: tuple[LoadedArm | None, ...]
    head: LoadedHead | None = None  # of the level of kind "head"
    learned: dict[int, Learned] = field(default_factory=dict)  # by level, of what pays: one job after another goes on
    suffixes: dict[int, Suffix] = field(default_factory=dict)  # likewise, of what was said
