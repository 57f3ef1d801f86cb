"""An arm's identity, by the content of its files. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from qualgate.engine.device import Device
from qualgate.engine.draft_arms import draft_arms, levels
from qualgate.engine.draft_heads.folder import head_of_draft
from qualgate.engine.own_cache import cache_identity
from qualgate.quant.adapter_folder import AdapterFolder, read_adapter_folder
from qualgate.quant.model_folder import ModelFolder
from qualgate.records import ArmIdentity, ArmSpec
from qualgate.records.arms import Arithmetic
from qualgate.records.identity import content_hash, own_version

ENGINES = {"cpu": 2, "cuda": 3}  # arithmetic versions: 1 padded every batch, 2 a GPU's


def identify(
    spec: ArmSpec,
    folder: ModelFolder,
    sampling: dict[str, Any],
    engine: str,
    folders: Mapping[str, ModelFolder] | None = None,
) -> ArmIdentity:
    """Return the identity of `spec`, whose model is `folder`, under `engine` (see `engine_version`).

    folders: of its draft models, by `ArmSpec.model`; its own folder may be missing. Raises UsageError for a folder
    without the needed files.
    """
    return ArmIdentity(
        weights=weights_hash(spec, folder),
        config=folder.config_sha256,
        tokenizer=folder.tokenizer_sha256,
        template=folder.template_sha256,
        # Arms that stop at different tokens answer a different question: such a pair is not comparable.
        sampling=content_hash(
            {**sampling, "stop_ids": folder.stop_ids, **({"rope": folder.rope} if folder.rope else {})}
        ),
        engine=engine,
        speculation=_speculation(spec, {**(folders or {}), spec.model: folder}),
        kv_cache=cache_identity(spec, folder),
        adapter=adapter_hash(spec),
        adapted=weights_hash(replace(spec, adapter=None), folder) if spec.adapter else "",
    )


def weights_hash(spec: ArmSpec, folder: ModelFolder) -> str:
    """Return `ArmIdentity.weights` of an arm: its files and how they are transformed."""
    recipe = spec.quantize.content if spec.quantize else None
    beside = [adapter_hash(spec)] if spec.adapter else []
    return content_hash([folder.shards.sha256, spec.dtype, recipe, *beside])


def adapter_hash(spec: ArmSpec, folder: AdapterFolder | None = None) -> str:
    """Return `ArmIdentity.adapter`: of the files, and whether they are merged; "" without an adapter. read: its folder,
    if it was read already."""
    if spec.adapter is None:
        return ""
    folder = folder or read_adapter_folder(Path(spec.adapter.path))
    return content_hash([folder.sha256, spec.adapter.merged])


def _speculation(spec: ArmSpec, folders: Mapping[str, ModelFolder]) -> str:
    """Return the hash of each level's settings, without the path of its folder, and of that folder's files."""
    if spec.speculation is None:
        return ""
    contents: list[Any] = []
    for level, model in zip(levels(spec.speculation), draft_arms(spec), strict=True):
        files: list[str] = []
        if model is not None:
            folder = folders[model.model]
            files = [weights_hash(model, folder), folder.config_sha256, folder.tokenizer_sha256]
        if level.draft.kind == "head":
            files = [head_of_draft(level.draft, folders[spec.model]).sha256]
        contents.append([replace(level, draft=replace(level.draft, model="", head="", under=None)).content, files])
    return content_hash(contents)


def engine_version(device: Device, arithmetic: Arithmetic) -> str:
    """Return versions and arithmetic of the whole run: arms that differ in them are never compared."""
    libraries = f"torch {version('torch')}, transformers {version('transformers')}"
    return f"qualgate {own_version()}, engine {ENGINES[device]}, {libraries}, {device} {arithmetic}"
