"""The small files of a model's folder (configs, tokenizer, chat template), each read once. Needs no torch."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from qualgate.errors import UsageError

T = TypeVar("T")

AGAIN = "Fetch or save this model again."
# AutoGPTQ's, AutoAWQ's and ModelOpt's, beside config.json
QUANTIZE_FILES = ("quantize_config.json", "quant_config.json", "hf_quant_config.json")
CONFIG_FILES = ("config.json", "generation_config.json", *QUANTIZE_FILES)
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "tokenizer.model",
    "tekken.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
)
TEMPLATE_FILE, PROCESSOR_TEMPLATE_FILE = "chat_template.jinja", "chat_template.json"
TEMPLATE_FOLDER = "additional_chat_templates"  # of named ones, NAME.jinja


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelFiles:
    """What the small files of one folder held when they were read: their identity and their meaning are of the same
    bytes, however the folder changes since."""

    path: Path  # the folder
    raw: Mapping[str, bytes]  # by name; what is not there is left out
    _parsed: dict[str, dict[str, Any]] = field(default_factory=dict, repr=False)
    _results: dict[Callable[[ModelFiles], Any], Any] = field(default_factory=dict, repr=False)

    def has(self, name: str) -> bool:
        """Whether the folder had a file of that name."""
        return name in self.raw

    def json(self, name: str) -> dict[str, Any]:
        """Return a JSON object, {} when the file is not there; not to be changed. UsageError when it holds anything
        else."""
        if name not in self._parsed:
            self._parsed[name] = _object(self.path / name, self.raw[name]) if name in self.raw else {}
        return self._parsed[name]

    def once(self, tell: Callable[[ModelFiles], T]) -> T:
        """Return what `tell` makes of these files, worked out at the first call; not to be changed."""
        if tell not in self._results:
            self._results[tell] = tell(self)
        return self._results[tell]

    def text(self, name: str) -> str:
        """Return a UTF-8 text with `\n` for every kind of line end. Raises UsageError when it is none."""
        try:
            return io.TextIOWrapper(io.BytesIO(self.raw[name]), encoding="utf-8").read()
        except UnicodeDecodeError as error:
            raise UsageError(
                f"{self.path / name} is not UTF-8 text ({error.reason} at byte {error.start}). {AGAIN}"
            ) from None

    def sha256(self, name: str) -> str:
        """Hash of the file's bytes; "" for a missing file."""
        return hashlib.sha256(self.raw[name]).hexdigest() if name in self.raw else ""

    @property
    def config(self) -> dict[str, Any]:
        """config.json."""
        return self.json("config.json")

    @property
    def dtype(self) -> str:
        """What config.json says that the model computes in, as torch calls it; "" where it says none of floats."""
        text = self.config.get("text_config")
        for settings in (self.config, text if isinstance(text, dict) else {}):
            for key in ("dtype", "torch_dtype"):
                if settings.get(key) in ("bfloat16", "float16", "float32"):
                    return settings[key]
        return ""

    @property
    def context_length(self) -> int | None:
        """The most tokens the model was made for, or None when its config names no limit."""
        text = self.config.get("text_config")
        for settings in (self.config, text if isinstance(text, dict) else {}):
            for key in ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length"):
                if type(settings.get(key)) is int:
                    return settings[key]
        return None


_ALL_FILES = (*CONFIG_FILES, *TOKENIZER_FILES, TEMPLATE_FILE, PROCESSOR_TEMPLATE_FILE)


def read_files(folder: Path, names: Iterable[str] = _ALL_FILES) -> ModelFiles:
    """Those of `names` that are in the folder, and its named chat templates, as they are now. OSError for one that
    cannot be read."""
    names = (*names, *(f"{TEMPLATE_FOLDER}/{file.name}" for file in sorted((folder / TEMPLATE_FOLDER).glob("*.jinja"))))
    present = (name for name in names if (folder / name).is_file())
    return ModelFiles(path=folder, raw={name: (folder / name).read_bytes() for name in present})


def read_json(file: Path) -> dict[str, Any]:
    """A JSON object, {} when the file is not there. Raises UsageError when it holds anything else."""
    return _object(file, file.read_bytes()) if file.is_file() else {}


@contextmanager
def readable(folder: Path) -> Iterator[None]:
    """A file of the model that cannot be opened or read inside the block is the user's to mend: UsageError."""
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"{error.filename or folder} cannot be read ({error.strerror or error}). Check it and its permissions."
        ) from None


def _object(file: Path, raw: bytes) -> dict[str, Any]:
    """Parse a JSON object. UsageError for anything else in the file."""
    try:
        value = json.loads(raw)
    except ValueError as error:
        raise UsageError(f"{file} is not valid JSON ({error}). {AGAIN}") from None
    except RecursionError:
        raise UsageError(f"{file} is nested too deeply to be a model's. {AGAIN}") from None
    if not isinstance(value, dict):
        raise UsageError(f"{file} holds {type(value).__name__}, expected a JSON object. {AGAIN}")
    return value
