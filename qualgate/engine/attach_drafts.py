"""Attach draft models and draft heads to a loaded arm that speculates."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from qualgate.engine.draft_arms import lending, levels
from qualgate.engine.draft_workspace import draft_workspace
from qualgate.engine.loaded import LoadedArm, LoadedDraft
from qualgate.errors import NotInThisVersion
from qualgate.quant.model_folder import ModelFolder
from qualgate.records import ArmFootprint, Speculation

if TYPE_CHECKING:
    from qualgate.engine.draft_heads.loading import LoadedHead


def attach_drafts(
    arm: LoadedArm, folder: ModelFolder, speculation: Speculation, drafts: tuple[LoadedArm | None, ...]
) -> LoadedArm:
    """Return `arm` with its drafts, one per level. drafts: their models; None for a level without one."""
    import torch

    from qualgate.engine.batch_costs import batch_costs
    from qualgate.engine.footprint import of_head, with_drafts
    from qualgate.engine.head import OutputHead
    from qualgate.engine.pass_costs import pass_costs

    draft_footprints, head = list[ArmFootprint](), None
    for level, model in zip(levels(speculation), drafts, strict=True):
        if level.draft.kind == "head":
            head = _head(arm, folder, level)
            draft_footprints.append(
                of_head(arm.footprint, head.numbers, head.folder.shape.cache_numbers, getattr(torch, arm.spec.dtype))
            )
        elif model is not None:
            draft_footprints.append(model.footprint)
    runs = [(model.model, model.choice) if model else None for model in drafts]
    entries = [OutputHead(loaded_arm.model).vocabulary if loaded_arm else 0 for loaded_arm in (arm, *drafts)]
    sizes = with_drafts(arm.footprint, draft_footprints, draft_workspace(speculation, entries))
    costs = pass_costs((arm.model, arm.choice), speculation, runs, head)
    reusing_levels = lending(arm.choice, speculation, [model.choice if model else None for model in drafts])
    costs |= batch_costs((arm.model, arm.choice), speculation.tokens, runs, reusing_levels)
    draft = LoadedDraft(spec=speculation, arms=drafts, head=head)
    ahead = head.folder.ahead if head is not None else None
    left_out = {name: count for name, count in sizes.left_out.items() if ahead is None or not ahead.holds(name)}
    return replace(arm, footprint=replace(sizes, facts=sizes.facts | costs, left_out=left_out), draft=draft)


def refuse_padded(arm: LoadedArm) -> None:
    """Raise NotInThisVersion for an arm that runs in padded batches: it neither drafts nor verifies."""
    if arm.choice.kind == "padded":
        raise NotInThisVersion(
            f"{arm.spec.name}: {arm.spec.model} runs in padded batches here ({arm.choice.because}), and drafts are "
            "made and verified in packed passes alone in this version. Take `speculation` out of this variant, or give "
            "it a draft of another architecture."
        )


def _head(arm: LoadedArm, folder: ModelFolder, level: Speculation) -> LoadedHead:
    """Load the draft head of one level, and check that it fits the arm."""
    import torch

    from qualgate.engine.draft_heads.folder import head_of_draft
    from qualgate.engine.draft_heads.loading import check_fits, load_head, load_own

    head = head_of_draft(level.draft, folder)
    check_fits(arm.spec, arm.model, arm.choice, head)
    if head.ahead is not None:
        return load_own(head, head.ahead, arm.model, arm.choice, getattr(torch, arm.spec.dtype))
    embedding: Any = arm.model.get_input_embeddings()
    return load_head(head, len(arm.choice.seen), embedding.weight)
