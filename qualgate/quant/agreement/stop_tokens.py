"""The tokens that end an answer, as each server reads them from a folder.

Servers take them from different files. Where the readings differ, `ModelFolder.read_as` names the one that counts;
without it an answer ends at any token that a file names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from qualgate.errors import UsageError
from qualgate.quant.model_files import AGAIN, ModelFiles
from qualgate.quant.tokenizer_files import eos_of_tokenizer, token_ids
from qualgate.records.arms import ReadAs


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Where one server looks for stop tokens; it takes all that it finds."""

    server: ReadAs
    sources: tuple[str, ...]  # of _SOURCES
    version: str
    where: str  # in its source code


READINGS = (
    Reading(
        server="transformers",
        sources=("generation",),
        version="5.23.0",
        where="generation/utils.py: adjust_generation_fn",
    ),
    Reading(
        server="vllm",
        sources=("generation", "tokenizer"),
        version="main, commit 0036026",
        where="vllm/sampling_params.py: update_from_generation_config",
    ),
    Reading(
        server="sglang",
        sources=("config class", "generation file", "tokenizer"),
        version="main, commit 001adf5",
        where="srt/configs/model_config.py: _get_hf_eos_token_id; managers/schedule_batch.py: check_finished",
    ),
    Reading(
        server="llama.cpp",
        sources=("header",),
        version="master, commit 00ad355",
        where="src/llama-vocab.cpp: special_eog_ids",
    ),
)
# Texts of tokens at which llama.cpp ends every answer, whatever the header's ids are.
_LLAMA_CPP_ENDS = (
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>",
    "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>",
    "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>", "<｜end▁of▁sentence｜>", "[e~[", "<|fim_pad|>",
    "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]", "<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>",
    "<|file_sep|>",
)  # fmt: skip
_HEADER_IDS = ("eos", "eot", "eom")
_LLAMA_CPP_EOS = {"llama": 2, "gpt2": 11}  # tokenizer.ggml.model → the id where the header names none


def readings(files: ModelFiles, header: Mapping[str, Any] | None = None) -> dict[ReadAs, tuple[int, ...]]:
    """Return each server's stop tokens, in ascending order.

    Args:
        files: Of the folder.
        header: The fields of its GGUF file. Without one, llama.cpp's are those of the file that its converter makes.

    Raises:
        UsageError: An eos_token_id is none.
    """
    by_source = {name: tuple(source(files, header)) for name, source in _SOURCES.items()}
    return {
        reading.server: tuple(sorted({id for name in reading.sources for id in by_source[name]}))
        for reading in READINGS
    }


def stop_ids(
    files: ModelFiles, read_as: ReadAs | None = None, header: Mapping[str, Any] | None = None
) -> tuple[int, ...]:
    """Return every token that ends an answer, in ascending order: as `read_as` reads them, else all that the folder's
    configs and tokenizer name. UsageError where an eos_token_id is none."""
    ids_by_server = readings(files, header)
    return (
        ids_by_server[read_as]
        if read_as
        else tuple(sorted({*ids_by_server["transformers"], *ids_by_server["vllm"], *ids_by_server["sglang"]}))
    )


def by_server(ids_by_server: Mapping[ReadAs, tuple[int, ...]]) -> str:
    """ "transformers 0; vllm, sglang 0 and 2"."""
    servers: dict[tuple[int, ...], list[str]] = {}
    for server, ids in ids_by_server.items():
        servers.setdefault(ids, []).append(server)
    return "; ".join(f"{', '.join(names)} {_listed(ids)}" for ids, names in servers.items())


def _listed(ids: tuple[int, ...]) -> str:
    return " and ".join(map(str, ids)) or "none"


def _eos(files: ModelFiles, file: str, settings: Mapping[str, Any]) -> list[int]:
    value = settings.get("eos_token_id")
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if not all(type(token) is int for token in ids):
        raise UsageError(f"{files.path / file}: eos_token_id is {value!r:.60}, expected token ids. {AGAIN}")
    return ids


def _of_config(files: ModelFiles, header: Mapping[str, Any] | None = None) -> list[int]:
    text = files.config.get("text_config")
    inner = _eos(files, "config.json", text) if isinstance(text, dict) else []
    return [*_eos(files, "config.json", files.config), *inner]


def _of_config_class(files: ModelFiles, header: Mapping[str, Any] | None = None) -> list[int]:
    """Return the stop ids of config.json or, without any there, the default of transformers' config class.

    Quantizers write that default into config.json, so a folder without the key means the same.
    """
    kind = files.config.get("model_type")
    if "eos_token_id" in files.config or isinstance(files.config.get("text_config"), dict) or not isinstance(kind, str):
        return _of_config(files)
    from transformers import CONFIG_MAPPING

    config = CONFIG_MAPPING[kind]() if kind in CONFIG_MAPPING else None
    return _eos(files, "config.json", {"eos_token_id": getattr(config, "eos_token_id", None)})


def _of_generation_file(files: ModelFiles, header: Mapping[str, Any] | None = None) -> list[int]:
    return _eos(files, "generation_config.json", files.json("generation_config.json"))


def _of_generation(files: ModelFiles, header: Mapping[str, Any] | None = None) -> list[int]:
    """The file alone where there is one, even if it names none."""
    return (_of_generation_file if files.has("generation_config.json") else _of_config)(files)


def _of_header(files: ModelFiles, header: Mapping[str, Any] | None) -> list[int]:
    """Return the ids at which llama.cpp ends an answer: by text, and by the header or, without one, by the files."""
    ids_of = token_ids(files)
    ends = [ids_of[text] for text in _LLAMA_CPP_ENDS if text in ids_of]
    if header is None:
        return ends + (eos_of_tokenizer(files) or _of_config(files)[:1])
    ids = [header.get(f"tokenizer.ggml.{name}_token_id") for name in _HEADER_IDS]
    if ids[0] is None:
        ids[0] = _LLAMA_CPP_EOS.get(str(header.get("tokenizer.ggml.model")))
    return ends + [id for id in ids if type(id) is int]


_SOURCES = {
    "generation": _of_generation,
    "generation file": _of_generation_file,
    "config class": _of_config_class,
    "tokenizer": lambda files, header: eos_of_tokenizer(files),
    "header": _of_header,
}
