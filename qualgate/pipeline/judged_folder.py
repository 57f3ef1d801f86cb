"""The folder of a judged variant: what the run loaded, and nothing beside it that a server might load."""

from __future__ import annotations

import re
from pathlib import Path

from qualgate.engine.identity import weights_hash
from qualgate.errors import IntegrityError, UsageError
from qualgate.quant.model_folder import read_model_folder
from qualgate.records import ArmSpec
from qualgate.records.identity import content_hash
from qualgate.store.queries import ArmLine
from qualgate.store.signing.manifest import manifest_of


def judged_files(
    run_id: str, arm: ArmLine, folder: Path | None, *leave_out: Path | None
) -> tuple[Path, dict[str, str]]:
    """Return the variant's folder and its files by their sha256, after comparing it with what the run loaded.

    UsageError for a variant that is no folder by itself, and for files that might be loaded and were not."""
    if why := _not_a_folder(arm.spec):
        raise UsageError(
            f"{arm.name!r} of run {run_id} cannot be attested: {why}. Make it a folder of its own, for example by "
            "`qualgate quantize`, and judge that."
        )
    if arm.identity is None:
        raise UsageError(f"{arm.name!r} of run {run_id} was never loaded; there is nothing to attest.")
    spec = arm.spec
    path = folder or Path(spec.model)
    model = read_model_folder(path, read_as=spec.read_as)
    files = manifest_of(path, *leave_out)
    weights = [file.relative_to(path).as_posix() for file in model.shards.files]
    found: dict[str, str] = {
        "weights": weights_hash(spec, model),
        "config": model.config_sha256,
        "tokenizer": model.tokenizer_sha256,
        "template": model.template_sha256,
    }
    other = [name for name, digest in found.items() if getattr(arm.identity, name) != digest]
    if content_hash([files.get(name) for name in weights]) != model.shards.sha256:
        other.append("weights, which changed while they were read,")
    if other:
        raise IntegrityError(
            f"{path}: its {', '.join(other)} {'is' if len(other) == 1 else 'are'} not what run {run_id} judged. "
            "Judge this folder, or give the one that was judged: --folder"
        )
    if unjudged := [name for name in files if name not in weights and _LOADED.search(name)]:
        raise UsageError(f"{path / unjudged[0]} was not judged, and a server might load it. Take it out of the folder.")
    return path, files


# Code, adapters, pickles, and weights beside those that were judged.
_LOADED = re.compile(
    r"(\.(py|so|bin|pt|pth|pkl|pickle|ckpt|safetensors|gguf|onnx)|(^|/)adapter_config\.json)$", re.IGNORECASE
)


def _not_a_folder(spec: ArmSpec) -> str:
    """Return why an arm is no folder by itself; "" if it is one."""
    if spec.served is not None:
        return "only its server knows its files"
    if spec.quantize is not None:
        return "its weights were quantized on the spot"
    return "it is a folder and an adapter" if spec.adapter is not None else ""
