"""Check drafts before anything is generated: refuse impossible ones, and report those that cannot pay."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from qualgate.config import GateFile
from qualgate.engine.check_weights import check_weights
from qualgate.engine.device import choose_device
from qualgate.engine.draft_arms import draft_arms, draft_models, levels
from qualgate.engine.draft_heads.folder import check_head, head_of_draft
from qualgate.errors import NotInThisVersion, UsageError
from qualgate.evalsets.calibration_sets import check_leaks
from qualgate.pipeline.checks import check_calibration, check_lengths
from qualgate.quant.model_folder import ModelFolder
from qualgate.quant.recipes import BITS
from qualgate.quant.shapes import check_fits
from qualgate.records import ArmSpec, Evalset, ModelFacts, Plan, Prompt, Speculation
from qualgate.records.identity import sha256_text
from qualgate.text.numbers import size_text

BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}


def check_drafts(gate: GateFile, folders: Mapping[str, ModelFolder], sets: Sequence[Evalset]) -> None:
    """Raise UsageError for a draft that cannot be made or has another tokenizer than its target, and NotInThisVersion
    for one that this version cannot run. folders: by `ArmSpec.model`, those of drafts included."""
    for arm in (arm for arm in gate.variants if arm.served is None):
        if choose_device(gate.devices) != "cpu":
            _check_on_gpu(arm, gate.path.name)
        for level, model in zip(levels(arm.speculation), draft_arms(arm), strict=True):
            if level.draft.kind == "head":
                _check_head(arm, level, folders[arm.model])
            if model is None:
                continue
            _check_weights(arm, model, folders[model.model], made_of_target=not level.draft.model)
            _check_tokens(arm, folders[model.model], folders[arm.model])
            if model.quantize and model.quantize.calibration:
                check_leaks(model.quantize, sets)
                check_calibration(model.quantize.calibration, folders[model.model], f"the draft of {arm.name}")


def _check_on_gpu(arm: ArmSpec, file: str) -> None:
    """Raise NotInThisVersion for a draft head on a GPU: heads read the target's states through C code."""
    if heads := [level.names[0] for level in levels(arm.speculation) if level.draft.kind == "head"]:
        raise NotInThisVersion(
            f"{file}: {arm.name} drafts by {heads[0]}, which runs on a CPU alone in this version. Write `workers: "
            "{devices: cpu}`, or draft by `quantize`, another `model`, `ngram` or `suffix`."
        )


def _check_head(arm: ArmSpec, level: Speculation, folder: ModelFolder) -> None:
    head = head_of_draft(level.draft, folder)
    text = folder.files.config.get("text_config") or folder.files.config
    width = text.get("hidden_size")
    check_head(arm.name, head, width=width if type(width) is int else None, vocabulary=folder.vocabulary)


def _check_weights(arm: ArmSpec, model: ArmSpec, folder: ModelFolder, *, made_of_target: bool) -> None:
    """Raise UsageError if the weights of a draft cannot be made or loaded. arm: the speculating arm, for messages;
    model: its draft; folder: the draft's; made_of_target: the draft quantizes its target's own weights, which must
    not be quantized yet."""
    if made_of_target and folder.format is not None:
        raise UsageError(
            f"{arm.name}: `draft: {{quantize: …}}` makes a draft of its target's own weights, and those in "
            f"{folder.path} are quantized already ({folder.format.method}). Name a folder that is not: draft: {{model: "
            "FOLDER, quantize: …}"
        )
    check_weights(model, folder)
    if model.quantize:
        check_fits(folder.shards, model.quantize)


def _check_tokens(arm: ArmSpec, draft: ModelFolder, target: ModelFolder) -> None:
    """Raise UsageError unless equal ids are equal tokens. The padding of the output heads may differ."""
    if draft.tokenizer_sha256 != target.tokenizer_sha256:
        raise UsageError(
            f"{arm.name}: the tokenizer of its draft {draft.path} ({_entries(draft)}) is not that of its target "
            f"{target.path} ({_entries(target)}), so a proposed token would mean another token to the target. "
            "Name a draft with the target's vocabulary. If it has that vocabulary, copy tokenizer.json and "
            "tokenizer_config.json from the target."
        )


def _entries(folder: ModelFolder) -> str:
    return "vocabulary of unknown size" if folder.vocabulary is None else f"vocabulary of {folder.vocabulary:,}"


def check_drafted_prompts(arm: ArmSpec, folders: Mapping[str, ModelFolder], prompts: Sequence[Prompt]) -> None:
    """Raise UsageError for prompts that a draft of `arm` cannot read: too long with their answers, or with tokens
    beyond its vocabulary."""
    answered = [prompt for prompt in prompts if not prompt.requests]
    for name in dict.fromkeys(draft.model for draft in draft_models(arm) if draft.model != arm.model):
        folder = folders[name]
        check_lengths(folder, answered)
        size = folder.vocabulary
        beyond = [prompt for prompt in answered if size is not None and max(prompt.token_ids) >= size]
        if beyond:
            key = beyond[0].key
            raise UsageError(
                f"{arm.name}: {key.evalset}/{key.case_id} holds the token {max(beyond[0].token_ids)}, and its draft "
                f"{folder.path} has {size} entries. Name a draft with the target's vocabulary."
            )


def drafts_that_cannot_pay(plan: Plan) -> Iterator[str]:
    """Yield a note for each draft whose step reads as many bytes as the step that it should save."""
    for arm in plan.arms:
        verifier = arm
        for model in draft_models(arm):
            draft_bytes, target_bytes = (_bytes(spec, plan.models[spec.model]) for spec in (model, verifier))
            if draft_bytes >= target_bytes:
                yield (
                    f"{arm.name}: a draft of about {size_text(draft_bytes)} of weights for a model of about "
                    f"{size_text(target_bytes)}: a token costs as much to draft as to say, so nothing is saved; draft "
                    "with fewer bits or a smaller model"
                )
            verifier = model


def drafts_of_another_template(plan: Plan) -> Iterator[str]:
    """Yield a note for each draft whose folder has another chat template than its target."""
    for arm in plan.arms:
        for name in dict.fromkeys(draft.model for draft in draft_models(arm)):
            draft_template, target_template = plan.models[name].template, plan.models[arm.model].template
            if draft_template not in (target_template, sha256_text("")):
                yield (
                    f"{arm.name}: its draft {name} has another chat template than its target. The draft reads what the "
                    "target's template writes: where it learned on its own, less of it is accepted, and no answer is "
                    "another"
                )


def _bytes(spec: ArmSpec, facts: ModelFacts) -> int:
    """Estimate the bytes of its weights: without scales, and as if the recipe applied to every layer."""
    if spec.quantize is not None:
        return facts.parameters * (spec.quantize.bits or BITS[spec.quantize.method]) // 8
    return facts.nbytes if facts.method else facts.parameters * BYTES[spec.dtype]
