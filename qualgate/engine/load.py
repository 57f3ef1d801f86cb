"""Load a model folder as an arm that can run.

Products and sums are float32 on every device: an arm's dtype is that of its weights (they are rounded to it), not of
the products. On CPUs without bfloat16 units that is 5 times faster, and its noise is far below the effect of
quantization. With `arithmetic: served` stored activations are rounded to that dtype as well.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from qualgate.engine.arithmetic import check_arithmetic, stored_in, with_arithmetic
from qualgate.engine.attach_drafts import attach_drafts, refuse_padded
from qualgate.engine.device import Device
from qualgate.engine.draft_arms import draft_arms
from qualgate.engine.gpus import together
from qualgate.engine.identity import adapter_hash, engine_version, identify
from qualgate.engine.loaded import LoadedArm
from qualgate.engine.model_weights import ReadModel, read_model
from qualgate.engine.own_cache import keeping, with_own_cache
from qualgate.errors import UsageError
from qualgate.quant.adapter_folder import AdapterFolder, read_adapter_folder
from qualgate.quant.cache_scheme import is_cache_scale
from qualgate.quant.model_folder import ModelFolder, read_folders
from qualgate.records import ArmIdentity, ArmSpec

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from qualgate.engine.choice import Choice


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
    refuse_padded(arm)

    def load(draft_spec: ArmSpec) -> LoadedArm:
        folder = folders[draft_spec.model]
        draft = _loaded(draft_spec, folder, identify(draft_spec, folder, sampling, engine), cache, device)
        refuse_padded(draft)
        return draft

    loaded = tuple(load(draft_spec) if draft_spec else None for draft_spec in drafts)
    return attach_drafts(arm, folders[spec.model], spec.speculation, loaded)


def load_modules(spec: ArmSpec, *, device: Device) -> PreTrainedModel:
    """Load the model of `spec`, without adapter and drafts, to read texts with its modules.

    No engine is tried, so it is no arm that could answer. Raises UsageError for an unusable model folder or device.
    """
    from qualgate.engine import dense
    from qualgate.engine.kernels import choose_kernels

    _refuse_unusable_gpu(device)
    folder = read_folders([spec])[spec.model]
    model = _placed(spec, folder, None, Path(), device).model  # nothing is packed: no folder for it is used
    choose_kernels(model, spec.kernels)
    if dense.lay_out(model):
        dense.take_back(model)
    return model


def _refuse_unusable_gpu(device: Device) -> None:
    """Raise UsageError for a GPU that torch cannot use."""
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise UsageError(
            "This machine has a GPU that torch cannot use. Write `workers: {devices: cpu}` in the gate file, or mend "
            "the driver: `python -c 'import torch; torch.cuda.init()'` says what is wrong."
        )


def _placed(
    spec: ArmSpec, folder: ModelFolder, adapter: AdapterFolder | None, cache: Path, device: Device
) -> ReadModel:
    """Read the model and put it on `device`, or on all GPUs that work together."""
    import torch

    from qualgate.engine.rope import fix_rope
    from qualgate.engine.spread import spread

    loaded = read_model(spec, folder, adapter, cache, device)
    fix_rope(loaded.model, folder.rope)
    if device == "cuda" and (count := together()) > 1:
        spread(loaded.model, [torch.device(device, gpu) for gpu in range(count)])
    else:
        torch.nn.Module.to(loaded.model, torch.device(device))
    return loaded


def _loaded(spec: ArmSpec, folder: ModelFolder, identity: ArmIdentity, cache: Path, device: Device) -> LoadedArm:
    """Load `spec` alone, without its drafts."""
    import torch

    from qualgate.engine.adapters import keep_apart
    from qualgate.engine.choice import choose_engine
    from qualgate.engine.footprint import footprint, weights_held
    from qualgate.engine.kernels import choose_kernels
    from qualgate.engine.prompts import load_tokenizer

    spec = with_own_cache(spec, folder.files)
    adapter = read_adapter_folder(Path(spec.adapter.path)) if spec.adapter else None
    if adapter is not None and adapter_hash(spec, adapter) != identity.adapter:
        raise UsageError(f"{adapter.path} changed while it was loaded. Run again when it stays as it is.")
    loaded = _placed(spec, folder, adapter, cache, device)
    model, dtype = loaded.model, getattr(torch, spec.dtype)
    kernel = choose_kernels(model, spec.kernels)
    if adapter is not None and loaded.beside:
        keep_apart(model, adapter, dtype)
    floats = weights_held(model, dtype)
    stored = stored_in(spec, folder.files)
    choice = keeping(spec, folder, with_arithmetic(spec, model, choose_engine(model), stored))
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


def _cache_token(spec: ArmSpec, choice: Choice, itemsize: int) -> int | None:
    """Return the bytes per token in a server's cache: in the dtype of its weights, unless a format is given."""
    if choice.numbers is None:
        return None
    return choice.numbers * itemsize if spec.kv_cache == "float32" else choice.position_bytes
