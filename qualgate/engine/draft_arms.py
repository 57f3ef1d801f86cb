"""The models that draft for an arm, as arms of their own: they are read, packed and laid out as any other is.

Needs no torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from qualgate.records import ArmSpec, Speculation

if TYPE_CHECKING:
    from qualgate.engine.choice import Choice

OWN_WEIGHTS = ("quantize", "model")  # kinds of proposers that hold weights beside their target's


def draft_arms(arm: ArmSpec) -> tuple[ArmSpec | None, ...]:
    """Who drafts for `arm`, a level each, the one that it verifies first; () where nobody does.

    None for a level that holds no weights of its own. A self-draft is made from the folder of the model that verifies
    it, never from that model's own packed weights, and has its adapter.
    """
    found: list[ArmSpec | None] = []
    verifier = replace(arm, speculation=None, calibration="", calibration_sha256="")
    for depth, level in enumerate(levels(arm.speculation), start=1):
        if level.draft.kind not in OWN_WEIGHTS:
            found.append(None)
            continue
        verifier = replace(
            verifier,
            name=f"{arm.name} (draft{f' {depth}' if depth > 1 else ''})",
            model=level.draft.model or verifier.model,
            quantize=level.draft.quantize,
            adapter=None if level.draft.model or verifier.adapter is None else replace(verifier.adapter, merged=False),
        )
        found.append(verifier)
    return tuple(found)


def draft_models(arm: ArmSpec) -> tuple[ArmSpec, ...]:
    """Those of them that hold weights."""
    return tuple(one for one in draft_arms(arm) if one is not None)


def lending(choice: Choice, speculation: Speculation, drafts: Sequence[Choice | None]) -> int:
    """How many levels of a cascade, from the one that the target verifies, draft in its blocks (`draft_blocks`): each
    is the model that verifies it, in other numbers. choice: of the target's engine; drafts: likewise, a level each,
    None where one holds no weights of its own.
    """
    for at, (level, own) in enumerate(zip(levels(speculation), drafts, strict=True)):
        if level.draft.kind != "quantize" or own is None or (own.kind, own.numbers) != (choice.kind, choice.numbers):
            return at
    return len(drafts)


def levels(speculation: Speculation | None) -> Iterator[Speculation]:
    """A cascade from what the target verifies first to the cheapest."""
    while speculation is not None:
        yield speculation
        speculation = speculation.draft.under
