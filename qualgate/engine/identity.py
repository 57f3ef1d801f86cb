"""What an arm is, by the content of its files. Needs no torch."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from qualgate.engine.device import Device
from qualgate.identity import content_hash, own_version
from qualgate.quant.model_folder import ModelFolder
from qualgate.records import ArmIdentity, ArmSpec

ENGINE = 2  # the last bits of what it says: 1 padded every batch


def identify(spec: ArmSpec, folder: ModelFolder, sampling: dict[str, Any], engine: str) -> ArmIdentity:
    """The identity of `spec`, whose model is `folder`, under `engine` (see `engine_version`).

    Raises UsageError for a folder that does not tell it.
    """
    recipe = spec.quantize.content if spec.quantize else None
    return ArmIdentity(
        weights=content_hash([folder.shards.sha256, spec.dtype, recipe]),
        config=folder.config_sha256,
        tokenizer=folder.tokenizer_sha256,
        template=folder.template_sha256,
        # Arms that stop at different tokens answer a different question: such a pair is not comparable.
        sampling=content_hash(
            {**sampling, "stop_ids": folder.stop_ids, **({"rope": folder.rope} if folder.rope else {})}
        ),
        engine=engine,
    )


def engine_version(device: Device) -> str:
    """Versions and arithmetic. All arms compute in float32, whatever dtype their weights were rounded to."""
    libraries = f"torch {version('torch')}, transformers {version('transformers')}"
    return f"qualgate {own_version()}, engine {ENGINE}, {libraries}, {device} float32"
