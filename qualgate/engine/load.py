"""Load a model folder as an arm that can run.

Products and sums are float32 on every device: an arm's dtype is that of its weights (they are rounded to it), not of
the products. On CPUs without bfloat16 units that is 5 times faster, and its noise is far below the effect of
quantization. With `arithmetic: served` stored activations are rounded to that dtype as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qualgate.engine.arithmetic import check_arithmetic, stored_in, with_arithmetic
from qualgate.engine.device import Device
from qualgate.engine.draft_arms import draft_arms, lending, levels
from qualgate.engine.draft_workspace import draft_workspace
from qualgate.engine.gpus import together
from qualgate.engine.identity import adapter_hash, engine_version, identify
from qualgate.engine.own_cache import own_scales, with_own_cache
from qualgate.errors import NotInThisVersion, UsageError, one_line
from qualgate.formatting import counted
from qualgate.quant.adapter_folder import AdapterFolder, read_adapter_folder
from qualgate.quant.agreement.config_keys import check_config_keys
from qualgate.quant.agreement.tied_head import may_differ
from qualgate.quant.cache_scheme import is_cache_scale
from qualgate.quant.full_precision import check_floats
from qualgate.quant.model_files import readable
from qualgate.quant.model_folder import ModelFolder, read_folders
from qualgate.quant.shards import Shards
from qualgate.records import ArmFootprint, ArmIdentity, ArmSpec, Speculation

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from qualgate.engine.choice import Choice
    from qualgate.engine.draft_heads.loading import LoadedHead
    from qualgate.quant.stability import WeightStability
    from qualgate.speculation.lengths import Learned
    from qualgate.speculation.ngram import Suffix


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


def check_weights(spec: ArmSpec, folder: ModelFolder, *, quantized_baseline: bool = False) -> None:
    """Check the weights of `folder`, the model of `spec`. Every packed layer is read, one at a time, and put into the
    model without its numbers; loading checks the rest.

    UsageError for a quantized checkpoint that is damaged, inconsistent, not supported, unlike its architecture, to be
    quantized again, or the baseline without `quantized_baseline`; for two output heads; for a damaged or foreign
    adapter.
    """
    own_scales(with_own_cache(spec, folder.files), folder, range(folder.layers or 0))
    check_config_keys(folder.format, spec.allow_config)
    if folder.format is None:
        if spec.adapter is not None or may_differ(folder.shards, folder.files.config):
            from qualgate.engine.quantized import empty_model, tied_head

            with readable(folder.path):
                tied_head(folder)
                if spec.adapter is not None:
                    _check_adapter(spec, empty_model(folder.path))
        return
    method = folder.format.method
    if spec.is_baseline and not quantized_baseline:
        raise UsageError(
            f"{folder.path} is a quantized checkpoint ({method}), so it cannot be the baseline: variants are held "
            "against the full-precision model. Give that one, or write `quantized: true` beside `model` if this one is "
            "what you serve today."
        )
    if spec.quantize:
        raise UsageError(f"{folder.path} is a {method} checkpoint already. Quantize the model it was made from.")
    if spec.adapter is not None and spec.adapter.merged:
        raise UsageError(
            f"{spec.name}: {folder.path} is a quantized checkpoint ({method}), and an adapter merged into its weights "
            "would have them quantized anew. Leave `merge` out: it is kept apart of them, as servers do."
        )
    import torch

    from qualgate.engine.quantized import load_quantized

    with readable(folder.path):
        model = load_quantized(folder, torch.float32, weightless=True).model
        _refuse_packed_head(spec, model)
        _check_adapter(spec, model)


def _check_adapter(spec: ArmSpec, model: PreTrainedModel) -> None:
    if spec.adapter is not None:
        from qualgate.engine.adapters import check_adapter

        check_adapter(read_adapter_folder(Path(spec.adapter.path)), model, merged=spec.adapter.merged)


def _refuse_packed_head(spec: ArmSpec, model: PreTrainedModel) -> None:
    head = model.get_output_embeddings()
    if spec.is_baseline and head is not None and next(head.parameters(), None) is None:
        raise NotInThisVersion(
            f"{spec.model}: its output head is quantized, and a baseline's must be a float: drift is measured with it."
        )


def load_arm(spec: ArmSpec, cache_dir: str | Path, sampling: dict[str, Any], *, device: Device) -> LoadedArm:
    """Load `spec` on `device` with its draft models; packed weights are taken from `cache_dir`, or made there first.

    A quantized checkpoint runs packed. Raises UsageError for an unusable model folder or device; NotInThisVersion for a
    model without a working engine (`choose_engine`), or one whose engine cannot draft or verify.
    """
    drafts = draft_arms(spec)
    folders = read_folders([spec, *(draft_spec for draft_spec in drafts if draft_spec is not None)])
    _refuse_unusable_gpu(device)
    check_arithmetic(spec, folders[spec.model])
    engine, cache = engine_version(device, spec.arithmetic), Path(cache_dir)
    identity = identify(spec, folders[spec.model], sampling, engine, folders)
    arm = _loaded(spec, folders[spec.model], identity, cache, device)
    if spec.speculation is None:
        return arm
    _refuse_padded(arm)

    def load(draft_spec: ArmSpec) -> LoadedArm:
        folder = folders[draft_spec.model]
        draft = _loaded(draft_spec, folder, identify(draft_spec, folder, sampling, engine), cache, device)
        _refuse_padded(draft)
        return draft

    loaded = tuple(load(draft_spec) if draft_spec else None for draft_spec in drafts)
    return _with_drafts(arm, folders[spec.model], spec.speculation, loaded)


def _refuse_padded(arm: LoadedArm) -> None:
    if arm.choice.kind == "padded":
        raise NotInThisVersion(
            f"{arm.spec.name}: {arm.spec.model} runs in padded batches here ({arm.choice.because}), and drafts are "
            "made and verified in packed passes alone in this version. Take `speculation` out of this variant, or give "
            "it a draft of another architecture."
        )


def _with_drafts(
    arm: LoadedArm, folder: ModelFolder, speculation: Speculation, drafts: tuple[LoadedArm | None, ...]
) -> LoadedArm:
    """Return `arm` with its drafts, one per level."""
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


def _loaded(spec: ArmSpec, folder: ModelFolder, identity: ArmIdentity, cache: Path, device: Device) -> LoadedArm:
    """Load `spec` alone, without its drafts."""
    import torch

    from qualgate.engine.adapters import keep_apart
    from qualgate.engine.choice import choose_engine
    from qualgate.engine.footprint import footprint, weights_held
    from qualgate.engine.kernels import choose_kernels
    from qualgate.engine.prompts import load_tokenizer
    from qualgate.engine.rope import fix_rope
    from qualgate.engine.spread import spread

    spec = with_own_cache(spec, folder.files)
    adapter = read_adapter_folder(Path(spec.adapter.path)) if spec.adapter else None
    if adapter is not None and adapter_hash(spec, adapter) != identity.adapter:
        raise UsageError(f"{adapter.path} changed while it was loaded. Run again when it stays as it is.")
    loaded = _read(spec, folder, adapter, cache, device)
    model, dtype = loaded.model, getattr(torch, spec.dtype)
    fix_rope(model, folder.rope)
    if device == "cuda" and (count := together()) > 1:
        spread(model, [torch.device(device, gpu) for gpu in range(count)])
    else:
        torch.nn.Module.to(model, torch.device(device))
    kernel = choose_kernels(model, spec.kernels)
    if adapter is not None and loaded.beside:
        keep_apart(model, adapter, dtype)
    floats = weights_held(model, dtype)
    stored = stored_in(spec, folder.files)
    choice = _keeping(spec, folder, with_arithmetic(spec, model, choose_engine(model), stored))
    left_out = {name: count for name, count in loaded.left_out.items() if not (choice.scales and is_cache_scale(name))}
    return LoadedArm(
        spec=spec,
        model=model,
        tokenizer=load_tokenizer(folder.files),
        identity=identity,
        footprint=footprint(
            model,
            on_disk=loaded.on_disk + (adapter.nbytes if adapter else 0),
            weight_bytes=loaded.quantized + floats,
            quantized=loaded.quantized,
            cache_token=_cache_token(spec, choice, dtype.itemsize),
            weights=loaded.weights + loaded.beside,
            stability=loaded.stability,
            left_out=left_out,
        ),
        kernel=kernel,
        choice=choice,
        context_length=folder.files.context_length,
        stored=stored,
        stop_ids=folder.stop_ids,  # from the files alone, so that they are those of the identity
    )


def _keeping(spec: ArmSpec, folder: ModelFolder, choice: Choice) -> Choice:
    """Return the choice with the arm's format for keys and values."""
    if spec.kv_cache == "float32":
        return choice
    if choice.kind == "padded":
        raise NotInThisVersion(
            f"{spec.name}: {spec.model} runs in padded batches here ({choice.because}), and these hold keys and values "
            f"in float32 alone in this version. Write `kv_cache: float32` in place of {spec.kv_cache} for this arm."
        )
    cache_form = {"bf16": "bfloat16"}.get(spec.kv_cache, spec.kv_cache)
    return replace(choice, cache_form=cache_form, scales=own_scales(spec, folder, sorted(choice.seen)))


def _cache_token(spec: ArmSpec, choice: Choice, itemsize: int) -> int | None:
    """Return the bytes per token in a server's cache: in the dtype of its weights, unless a format is given."""
    if choice.numbers is None:
        return None
    return choice.numbers * itemsize if spec.kv_cache == "float32" else choice.position_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """A model as stored, or packed. on_disk, quantized: bytes of its files and of its packed weights; weights: count of
    its numbers; beside: of an adapter still to be added; see `footprint` for the others."""

    model: PreTrainedModel
    on_disk: int
    quantized: int
    weights: int
    beside: int
    left_out: dict[str, int]
    stability: dict[str, WeightStability]


def _read(spec: ArmSpec, folder: ModelFolder, adapter: AdapterFolder | None, cache_dir: Path, device: Device) -> _Read:
    """Read the model's weights, merge an adapter, and quantize by the arm's recipe, in this order.

    cache_dir: where the packed checkpoint of a recipe is kept.
    """
    import torch

    from qualgate.engine.overflow import check_weights_fit

    check_config_keys(folder.format, spec.allow_config)
    dtype, on_disk, quantized, weights = getattr(torch, spec.dtype), folder.shards.nbytes, 0, folder.parameters
    stability: dict[str, WeightStability] = {}
    if folder.format is not None:
        from qualgate.engine.quantized import load_quantized

        checkpoint = load_quantized(folder, dtype)
        model, quantized, weights = checkpoint.model, checkpoint.packed_bytes, checkpoint.weights
        left_out = checkpoint.left_out
        _refuse_packed_head(spec, model)
    else:
        model, left_out = _load_model(folder, dtype)
    if spec.adapter is not None and adapter is not None:
        from qualgate.engine.adapters import check_adapter, merge

        check_adapter(adapter, model, merged=spec.adapter.merged)
        if spec.adapter.merged:
            merge(model, adapter, dtype)
    check_weights_fit(f"{spec.name}: {folder.path}", model, spec.dtype)
    if recipe := spec.quantize:
        from qualgate.engine.calibration import calibration_prompts
        from qualgate.quant.checkpoint import checkpoint_name, pack

        path, packed = folder.path, cache_dir / checkpoint_name(folder.shards.sha256, recipe, spec.dtype)
        pack(path, recipe, packed, spec.dtype, prompts=lambda: calibration_prompts(path, recipe), device=device)
        replaced, quantized, stability = _quantize(model, folder.shards, packed)
        on_disk += (packed / "packed.safetensors").stat().st_size - replaced
    return _Read(
        model=model,
        on_disk=on_disk,
        quantized=quantized,
        weights=weights,
        beside=adapter.numbers if adapter and spec.adapter and not spec.adapter.merged else 0,
        left_out=left_out,
        stability=stability,
    )


def _refuse_unusable_gpu(device: Device) -> None:
    """Raise UsageError for a GPU that torch cannot use."""
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise UsageError(
            "This machine has a GPU that torch cannot use. Write `workers: {devices: cpu}` in the gate file, or mend "
            "the driver: `python -c 'import torch; torch.cuda.init()'` says what is wrong."
        )


def _load_model(folder: ModelFolder, dtype: Any) -> tuple[PreTrainedModel, dict[str, int]]:
    """Return the model in eval mode with its weights rounded to `dtype`, and what was left out of its files.

    It is in float32, but linear layers and embeddings of a plain decoder stay in `dtype` (see `engine.dense`): all of
    it in float32 would take twice its file's size.
    """
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    from qualgate.engine.plain_decoder import PLAIN
    from qualgate.engine.quantized import plain_config, tied_head
    from qualgate.engine.unexpected import known_to_be_unused, left_out_of

    logging.disable_progress_bar()
    logging.set_verbosity_error()  # what is missing is said below, in our words
    narrow = folder.files.config.get("model_type") in PLAIN
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder.path,
            config=plain_config(folder.path),
            dtype=dtype if narrow else torch.float32,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # refused below, by name
        )
    except MemoryError:
        raise
    except Exception as error:  # whatever a config can make an architecture's constructor do
        raise UsageError(f"transformers cannot load {folder.path}: {one_line(error)}") from error
    model, report = loaded
    mismatched = sorted(report["mismatched_keys"])
    if mismatched:
        name, file_shape, expected_shape = mismatched[0]
        raise UsageError(
            f"{folder.path}: {name} holds {' x '.join(map(str, file_shape))} numbers, but its architecture has "
            f"{' x '.join(map(str, expected_shape))}. config.json and the weights belong to different models. Fetch "
            "this checkpoint again."
        )
    missing = sorted(report["missing_keys"])
    if missing:
        raise UsageError(
            f"{folder.path} lacks {counted(len(missing), 'tensor')} that its architecture needs, among them "
            f"{missing[0]}. Fetch or save this checkpoint again."
        )
    check_floats(folder.shards, (name for name, _ in model.named_buffers()), known_to_be_unused(folder, model))
    if tied_head(folder) == "embedding":
        model.get_output_embeddings().weight = model.get_input_embeddings().weight
    left_out = left_out_of(folder, model, report["unexpected_keys"])
    narrow_weights = {
        id(module.weight)
        for module in model.modules()
        if narrow and type(module) in (torch.nn.Linear, torch.nn.Embedding)
    }
    for parameter in model.parameters():
        if id(parameter) not in narrow_weights:
            parameter.data = parameter.data.to(dtype).float()
    return model.eval().requires_grad_(False), left_out


def _quantize(model: PreTrainedModel, shards: Shards, packed: Path) -> tuple[int, int, dict[str, WeightStability]]:
    """Replace float weights by the packed ones. Return the source bytes that they replace on disk, the packed bytes,
    and each layer's stability."""
    from qualgate.quant.calibrate import install
    from qualgate.quant.checkpoint import read_packed

    checkpoint = read_packed(packed)
    install(model, checkpoint.recipe, checkpoint.weights, checkpoint.folded)
    replaced = sum(shards.entries[f"{name}.weight"].nbytes for name in checkpoint.weights)
    return replaced, sum(weight.nbytes for weight in checkpoint.weights.values()), checkpoint.stability
