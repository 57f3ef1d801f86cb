"""The draft models of an arm, as arms of their own: read, packed and laid out like any other. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from qualgate.records import ArmSpec, Speculation

if TYPE_CHECKING:
    from qualgate.engine.choice import Choice

OWN_WEIGHTS = ("quantize", "model")  # kinds of proposers that hold weights beside their target's


def draft_arms(arm: ArmSpec) -> tuple[ArmSpec | None, ...]:
    """Return the arm that drafts at each level, the one verified by the target first; () without drafts.

    None for a level without weights of its own. A self-draft is made from the folder of the model that verifies it,
    never from its packed weights, and has its adapter.
    """
    drafters: list[ArmSpec | None] = []
    verifier = replace(arm, speculation=None, calibration="", calibration_sha256="")
    for depth, level in enumerate(levels(arm.speculation), start=1):
        if level.draft.kind not in OWN_WEIGHTS:
            drafters.append(None)
            continue
        verifier = replace(
            verifier,
            name=f"{arm.name} (draft{f' {depth}' if depth > 1 else ''})",
            model=level.draft.model or verifier.model,
            quantize=level.draft.quantize,
            adapter=None if level.draft.model or verifier.adapter is None else replace(verifier.adapter, merged=False),
        )
        drafters.append(verifier)
    return tuple(drafters)


def draft_models(arm: ArmSpec) -> tuple[ArmSpec, ...]:
    """Return the draft arms that have weights."""
    return tuple(draft for draft in draft_arms(arm) if draft is not None)


def lending(choice: Choice, speculation: Speculation, drafts: Sequence[Choice | None]) -> int:
    """Return how many levels, from the one that the target verifies, draft in the target's blocks (`draft_blocks`):
    those that are the verifying model in other numbers. choice: the target's engine; drafts: likewise, one per level,
    None without weights of its own."""
    for index, (level, draft_choice) in enumerate(zip(levels(speculation), drafts, strict=True)):
        if (
            level.draft.kind != "quantize"
            or draft_choice is None
            or (draft_choice.kind, draft_choice.numbers) != (choice.kind, choice.numbers)
        ):
            return index
    return len(drafts)


def levels(speculation: Speculation | None) -> Iterator[Speculation]:
    """Yield the levels of a cascade, from the one that the target verifies to the cheapest."""
    while speculation is not None:
        yield speculation
        speculation = speculation.draft.under
