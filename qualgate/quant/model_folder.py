"""A model's folder, read once: what planning and loading know of it comes from one `ModelFolder`. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path

from qualgate.errors import UsageError
from qualgate.errors.misplaced import no_model_folder
from qualgate.identity import content_hash, sha256_text
from qualgate.quant import tokenizer_files
from qualgate.quant.architecture import check_depth, check_width, check_writes_text
from qualgate.quant.formats import Format, said_by_config, said_by_headers, weights_in
from qualgate.quant.full_precision import check_full_precision
from qualgate.quant.model_files import QUANTIZE_FILES, ModelFiles, read_files, readable
from qualgate.quant.shards import Shards, read_shards

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
        found = (self.files.config.get("text_config") or self.files.config).get("num_hidden_layers")
        return found if type(found) is int else None

    @property
    def kept(self) -> int:
        """Numbers that one position keeps as keys and values, by the config; 0 where it does not say."""
        config = self.files.config.get("text_config") or self.files.config
        heads, width = config.get("num_attention_heads"), config.get("hidden_size")
        dim = config.get("head_dim")
        if dim is None and type(heads) is int and type(width) is int and heads > 0:
            dim = width // heads
        said = config.get("num_hidden_layers"), config.get("num_key_value_heads") or heads, dim
        sizes = [size for size in said if type(size) is int and size > 0]
        return min(2 * prod(sizes), _MOST_KEPT) if len(sizes) == len(said) and "kv_lora_rank" not in config else 0

    @property
    def rope(self) -> str:
        """Which set of frequencies turns the positions, where the config has two: "long" if it is made for more tokens
        than it was first trained on, else "short"; "" where it has one. For dynamic NTK "short": it never grows."""
        config = self.files.config.get("text_config") or self.files.config
        found = config.get("rope_parameters") or config.get("rope_scaling") or {}
        each = [found, *found.values()] if isinstance(found, dict) else []
        for settings in (one for one in each if isinstance(one, dict)):
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
        last, more = config.get("num_hidden_layers"), config.get("num_nextn_predict_layers")
        if type(last) is not int or type(more) is not int:
            return ()
        return tuple(rf"(^|\.)layers\.{layer}\." for layer in range(last, last + min(more, _MOST_AHEAD)))

    @cached_property
    def config_sha256(self) -> str:
        """Of what says how the model is built, how it generates and, beside it, how its weights are to be read."""
        return content_hash(
            [self.files.sha256(name) for name in ("config.json", "generation_config.json")]
            + [self.files.sha256(name) for name in QUANTIZE_FILES if self.files.has(name)]
        )

    @cached_property
    def tokenizer_sha256(self) -> str:
        """Of what turns text into tokens and back, see `tokenizer_files.tokenizer_content`."""
        return tokenizer_files.tokenizer_content(self.files)

    @cached_property
    def template_sha256(self) -> str:
        """Of the chat template's text."""
        return sha256_text(tokenizer_files.chat_template(self.files))

    @cached_property
    def stop_ids(self) -> tuple[int, ...]:
        """Every token that ends an answer, in ascending order."""
        return tokenizer_files.stop_ids(self.files)


def read_weights(files: ModelFiles, *, hashed: bool = False) -> tuple[Shards, Format | None]:
    """The headers of the weights in the folder of `files`, and their format; None: full precision.

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


def read_model_folder(path: Path, *, hashed: bool = True) -> ModelFolder:
    """The folder as it is now, each file opened once; of a weight file the header is read and, if `hashed`, all of it
    hashed.

    Raises UsageError when it cannot be loaded as it stands: without torch, so packed weights are not looked into.
    """
    with readable(path):
        if not path.is_dir():
            raise UsageError(no_model_folder(str(path), path))
        files = read_files(path)
        _check_configs(files)
        shards, format = read_weights(files, hashed=hashed)
        _check_tokenizer(files)
        return ModelFolder(files=files, shards=shards, format=format)


def refusal(path: Path) -> str:
    """Why a plan or a run refuses the folder, whose weights can be read; "" where neither does."""
    try:
        folder = read_model_folder(path, hashed=False)
        _ = folder.tokenizer_sha256, folder.template_sha256, folder.stop_ids
    except UsageError as error:  # NotInThisVersion is one
        return str(error)
    return ""


def read_tokenizer_folder(path: Path) -> ModelFolder:
    """A folder's tokenizer, template and configs alone; the weights are elsewhere, and none are read here.

    Raises UsageError where it has no tokenizer.
    """
    with readable(path):
        if not path.is_dir():
            raise UsageError(no_model_folder(str(path), path))
        files = read_files(path)
        _check_tokenizer(files)
        _check_own_code(files)
        none = Shards(folder=path, files=(), nbytes=0, entries={}, metadata={}, sha256="")
        return ModelFolder(files=files, shards=none, format=None)


def _check_tokenizer(files: ModelFiles) -> None:
    if not any(files.has(name) for name in ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")):
        raise UsageError(f"{files.path} has no tokenizer: expected tokenizer.json. Save it there with save_pretrained.")


def _check_own_code(files: ModelFiles) -> None:
    settings = {name: files.json(name) for name in ("config.json", "tokenizer_config.json")}
    for name, found in settings.items():
        if "auto_map" in found:
            raise UsageError(
                f"{files.path / name} asks for the model's own Python code (auto_map), which qualgate does not run. If "
                "transformers knows this architecture, remove auto_map; else convert the model."
            )


def _check_configs(files: ModelFiles) -> None:
    where = files.path / "config.json"
    if not files.has("config.json"):
        raise UsageError(f"{files.path} has no config.json: expected a transformers model folder.")
    _check_own_code(files)
    if not isinstance(files.config.get("model_type"), str):
        raise UsageError(f"{where} has no model_type, so its architecture is unknown.")
    check_writes_text(files)
