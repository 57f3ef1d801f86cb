"""What an arm is, by the content of its files. Needs no torch."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from qualgate.errors import UsageError
from qualgate.identity import content_hash, file_hash, sha256_text
from qualgate.quant.shards import weights_hash
from qualgate.records import ArmIdentity, ArmSpec

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
)


def identify(spec: ArmSpec, sampling: dict[str, Any]) -> ArmIdentity:
    """The identity of `spec` as its files are now. Raises UsageError when they cannot be read."""
    folder = Path(spec.model)
    recipe = asdict(spec.quantize) if spec.quantize else None
    return ArmIdentity(
        weights=content_hash([weights_hash(folder), spec.dtype, recipe]),
        # The stop tokens stand in either file.
        config=content_hash([_hash_if_there(folder / name) for name in ("config.json", "generation_config.json")]),
        tokenizer=content_hash([_tokenizer_hash(folder / name) for name in TOKENIZER_FILES]),
        template=sha256_text(chat_template(folder)),
        sampling=content_hash(sampling),
        engine=engine_version(),
    )


def engine_version() -> str:
    """Version and arithmetic. All arms compute in float32, whatever dtype their weights were rounded to."""
    try:
        ours = version("qualgate")
    except PackageNotFoundError:  # a source tree that was never installed
        ours = "source"
    return f"qualgate {ours} torch {planned_device()} float32"


def planned_device() -> str:
    """ "cuda" where a GPU's device file is visible and torch was built for it, else "cpu"; decided without torch."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    gpu = Path("/dev/nvidiactl").exists() and not hidden and "+cpu" not in version("torch")
    return "cuda" if gpu else "cpu"


def chat_template(folder: Path) -> str:
    """The chat template's text as transformers would find it; "" when the model has none."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    template = read_json(folder / "tokenizer_config.json").get("chat_template", "")
    if isinstance(template, list):  # several named templates; messages are rendered with "default"
        return next((entry["template"] for entry in template if entry.get("name") == "default"), "")
    return template or ""


def read_json(file: Path) -> dict[str, Any]:
    """A JSON object, {} when the file is not there. Raises UsageError when it holds anything else."""
    if not file.is_file():
        return {}
    try:
        value = json.loads(file.read_bytes())
    except ValueError as error:
        raise UsageError(f"{file} is not valid JSON ({error}). Fetch or save this model again.") from None
    if not isinstance(value, dict):
        raise UsageError(
            f"{file} holds {type(value).__name__}, expected a JSON object. Fetch or save this model again."
        )
    return value


def _tokenizer_hash(file: Path) -> str:
    """By content, not layout: a tool that saves the same tokenizer with other spacing has not changed it."""
    if not file.is_file() or file.suffix != ".json":
        return _hash_if_there(file)
    value = read_json(file)
    value.pop("chat_template", None)  # has its own hash
    return content_hash(value)


def _hash_if_there(file: Path) -> str:
    return file_hash(file) if file.is_file() else ""
