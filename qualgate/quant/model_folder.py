"""A model's folder, read once: what planning and loading know of it comes from one `ModelFolder`. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

from qualgate.errors import UsageError
from qualgate.errors.misplaced import no_model_folder
from qualgate.quant import tokenizer_files
from qualgate.quant.agreement import stop_tokens
from qualgate.quant.agreement.gguf_header import checked_header
from qualgate.quant.agreement.rope import said_twice
from qualgate.quant.agreement.templates import as_read_by, check_templates, templates_sha256
from qualgate.quant.agreement.tokenizer_class import check_special_tokens, check_tokenizer_class
from qualgate.quant.agreement.weight_files import check_no_adapter
from qualgate.quant.architecture import check_depth, check_width, check_writes_text
from qualgate.quant.formats import Format, said_by_config, said_by_headers, weights_in
from qualgate.quant.full_precision import check_full_precision
from qualgate.quant.model_files import QUANTIZE_FILES, ModelFiles, read_files, readable
from qualgate.quant.shards import Shards, other_files, read_shards
from qualgate.records import ArmSpec
from qualgate.records.arms import ReadAs
from qualgate.records.identity import content_hash

_MOST_AHEAD = 16  # layers: no model predicts more tokens at once
_MOST_KEPT = 2**60  # numbers of a position: whatever a config says, more fit into no memory


@dataclass(frozen=True, kw_only=True, eq=False)  # no slots: what is worked out of the files is kept
class ModelFolder:
    """A folder that can be loaded as it stands, as it was when it was read: nothing here opens a file again.

    What is asked of it (its identity, its stop tokens, ...) is told from the same bytes. Raises UsageError where these
    do not tell it.
    """

    files: ModelFiles
    shards: Shards
    format: Format | None  # None: full precision
    beside: dict[str, int] = field(default_factory=dict)  # weight files that are not read: the tensors of each
    read_as: ReadAs | None = None  # the server whose reading counts, where servers read the files differently
    header: dict[str, Any] | None = None  # fields of its GGUF file

    @property
    def path(self) -> Path:
        """The folder."""
        return self.files.path

    @property
    def vocabulary(self) -> int | None:
        """Rows of the output head, from the headers, else what the config says; None when neither tells."""
        head = self.shards.entries.get("lm_head.weight")
        if head is not None and head.shape and self.format is None:
            return head.shape[0]
        size = (self.files.config.get("text_config") or self.files.config).get("vocab_size")
        return size if type(size) is int else None

    @property
    def parameters(self) -> int:
        """Numbers the files stand for, from their headers: a packed weight counts with each of its codes."""
        entries = self.shards.entries
        if self.format is None:
            return sum(prod(entry.shape) for entry in entries.values())
        return sum(weights_in(name, entry, self.format) for name, entry in entries.items())

    @property
    def layers(self) -> int | None:
        """How many decoder layers its config says."""
        count = (self.files.config.get("text_config") or self.files.config).get("num_hidden_layers")
        return count if type(count) is int else None

    @property
    def cache_numbers(self) -> int:
        """Numbers that one position keeps as keys and values, by the config; 0 where it does not say."""
        config = self.files.config.get("text_config") or self.files.config
        heads, width = config.get("num_attention_heads"), config.get("hidden_size")
        dim = config.get("head_dim")
        if dim is None and type(heads) is int and type(width) is int and heads > 0:
            dim = width // heads
        stated = config.get("num_hidden_layers"), config.get("num_key_value_heads") or heads, dim
        sizes = [size for size in stated if type(size) is int and size > 0]
        return min(2 * prod(sizes), _MOST_KEPT) if len(sizes) == len(stated) and "kv_lora_rank" not in config else 0

    @property
    def rope(self) -> str:
        """Which set of frequencies turns the positions, where the config has two: "long" if it is made for more tokens
        than it was first trained on, else "short"; "" where it has one. For dynamic NTK "short": it never grows."""
        config = self.files.config.get("text_config") or self.files.config
        rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
        candidates = [rope, *rope.values()] if isinstance(rope, dict) else []
        for settings in (item for item in candidates if isinstance(item, dict)):
            kind = settings.get("rope_type", settings.get("type"))
            if kind in ("longrope", "su"):
                trained = settings.get(
                    "original_max_position_embeddings", config.get("original_max_position_embeddings")
                )
                limit = self.files.context_length
                return "long" if type(trained) is int and limit is not None and limit > trained else "short"
            if kind == "dynamic":
                return "short"
        return ""

    @property
    def ahead(self) -> tuple[str, ...]:
        """Patterns of the tensors of layers that predict more tokens at once, behind the last one that answers."""
        config = self.files.config.get("text_config") or self.files.config
        last, ahead = config.get("num_hidden_layers"), config.get("num_nextn_predict_layers")
        if type(last) is not int or type(ahead) is not int:
            return ()
        return tuple(rf"(^|\.)layers\.{layer}\." for layer in range(last, last + min(ahead, _MOST_AHEAD)))

    @cached_property
    def config_sha256(self) -> str:
        """Hash of what defines the model's architecture, its generation and how its weights are read."""
        return content_hash(
            [self.files.sha256(name) for name in ("config.json", "generation_config.json")]
            + [self.files.sha256(name) for name in QUANTIZE_FILES if self.files.has(name)]
            + ([self.read_as] if self.read_as else [])
        )

    @cached_property
    def tokenizer_sha256(self) -> str:
        """Hash of what turns text into tokens and back, see `tokenizer_files.tokenizer_content`."""
        return tokenizer_files.tokenizer_content(self.files)

    @cached_property
    def template_sha256(self) -> str:
        """Hash of the chat template's text, and of the named ones that differ from it."""
        return templates_sha256(self.files)

    @cached_property
    def stop_ids(self) -> tuple[int, ...]:
        """Every token that ends an answer, in ascending order: as `read_as` reads them, else of all files."""
        return stop_tokens.stop_ids(self.files, self.read_as, self.header)

    @cached_property
    def stops_by_server(self) -> dict[ReadAs, tuple[int, ...]]:
        """The tokens that end an answer as each server reads them; llama.cpp's of a GGUF file's header."""
        return stop_tokens.readings(self.files, self.header)


def read_weights(files: ModelFiles, *, hashed: bool = False) -> tuple[Shards, Format | None]:
    """Return the headers of the weights in the folder of `files`, and their format; None: full precision.

    Inspecting, planning and running a folder all start here. Raises UsageError where the weights cannot be read, are
    not those of config.json, or are quantized and nothing names their format.
    """
    if not isinstance(files.config.get("text_config") or {}, dict):
        raise UsageError(
            f"{files.path / 'config.json'}: text_config is {type(files.config['text_config']).__name__}, expected a "
            "JSON object. Fetch or save this model again."
        )
    format = said_by_config(files)
    shards = read_shards(files.path, hashed=hashed)
    check_width(files, shards)
    check_depth(files, shards)
    format = format or said_by_headers(shards)
    if format is None:
        check_full_precision(shards)
    return shards, format


def read_model_folder(path: Path, *, hashed: bool = True, read_as: ReadAs | None = None) -> ModelFolder:
    """Return the folder as it is now, each file opened once; of a weight file the header is read and, if `hashed`, all
    of it hashed.

    Raises UsageError when it cannot be loaded as it stands: without torch, so packed weights are not looked into.
    """
    with readable(path):
        if not path.is_dir():
            raise UsageError(no_model_folder(str(path), path))
        files = as_read_by(read_files(path), read_as)
        _check_configs(files)
        _check_said_once(files, read_as)
        if read_as in (None, "transformers"):
            check_no_adapter(path)
        shards, format = read_weights(files, hashed=hashed)
        _check_tokenizer(files, read_as)
        header = checked_header(files, shards, read_as) if format and format.method == "gguf" else None
        beside = other_files(shards)
        return ModelFolder(files=files, shards=shards, format=format, beside=beside, read_as=read_as, header=header)


def read_folders(arms: Iterable[ArmSpec]) -> dict[str, ModelFolder]:
    """Return the folder of each arm's model, by `ArmSpec.model`, each read once and as the arm asks. UsageError as
    reading raises it, and where two arms ask for two readings of one folder."""
    folders: dict[str, ModelFolder] = {}
    for arm in arms:
        if arm.model not in folders:
            folders[arm.model] = read_model_folder(Path(arm.model), read_as=arm.read_as)
        elif folders[arm.model].read_as != arm.read_as:
            raise UsageError(
                f"{arm.name}: {arm.model} is to be read as {arm.read_as or 'all servers read it'} here and as "
                f"{folders[arm.model].read_as or 'all servers read it'} for another arm. Give both the same `read_as`, "
                "or compare two copies of the folder."
            )
    return folders


def read_tokenizer_folder(path: Path) -> ModelFolder:
    """Return a folder's tokenizer, template and configs alone; the weights are elsewhere, and none are read here.

    Raises UsageError where it has no tokenizer.
    """
    with readable(path):
        if not path.is_dir():
            raise UsageError(no_model_folder(str(path), path))
        files = read_files(path)
        _check_tokenizer(files, "transformers")  # by which its tokens are made here
        _check_own_code(files)
        no_weights = Shards(folder=path, files=(), nbytes=0, entries={}, metadata={}, sha256="")
        return ModelFolder(files=files, shards=no_weights, format=None)


def _check_tokenizer(files: ModelFiles, read_as: ReadAs | None) -> None:
    if not any(files.has(name) for name in ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")):
        raise UsageError(f"{files.path} has no tokenizer: expected tokenizer.json. Save it there with save_pretrained.")
    check_special_tokens(files)
    check_tokenizer_class(files, read_as)
    check_templates(files, read_as)


def _check_own_code(files: ModelFiles) -> None:
    """Raise UsageError for a folder that asks for Python code of its own, which is never run."""
    settings = {name: files.json(name) for name in ("config.json", "tokenizer_config.json")}
    for name, content in settings.items():
        if "auto_map" in content:
            raise UsageError(
                f"{files.path / name} asks for the model's own Python code (auto_map), which qualgate does not run. If "
                "transformers knows this architecture, remove auto_map; else convert the model."
            )


def _check_said_once(files: ModelFiles, read_as: ReadAs | None) -> None:
    """Raise UsageError for rope settings that config.json gives twice, unless `read_as` says that transformers 5
    counts.

    transformers 5's reading is the one computed here; other servers are built on either version.
    """
    for key, value, again, other_value in said_twice(files) if read_as != "transformers" else ():
        raise UsageError(
            f"{files.path / 'config.json'} says {key} {value} and {again} {other_value}. transformers 5 reads "
            "`rope_parameters`, earlier versions and servers built on them the other key. Remove the wrong one, or "
            "write `read_as: transformers` beside `model` to judge what transformers 5 reads."
        )


def _check_configs(files: ModelFiles) -> None:
    """Raise UsageError for a folder whose config.json is missing, needs own code, or is of no model that writes
    text."""
    where = files.path / "config.json"
    if not files.has("config.json"):
        raise UsageError(f"{files.path} has no config.json: expected a transformers model folder.")
    _check_own_code(files)
    if not isinstance(files.config.get("model_type"), str):
        raise UsageError(f"{where} has no model_type, so its architecture is unknown.")
    check_writes_text(files)
