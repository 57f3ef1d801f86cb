"""Hash of the local model files that a serving command names: the same command over other files is another arm."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from qualgate.errors import UsageError
from qualgate.quant.gguf_file import gguf_parts
from qualgate.records.identity import cached_hash, content_hash

WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
FILES = (*WEIGHTS, ".json", ".jinja", ".model", ".tiktoken", ".txt")  # of a model's folder


def weights_of(command: str, folder: Path) -> str:
    """Return the sha256 of the model folders and GGUF files that the command names, in its words or in JSON among them;
    "" if it names none here. folder: in which it runs. UsageError for a file that cannot be read."""
    named = {text: _files(folder, text) for word in shlex.split(command) for text in _paths(word)}
    hashes = {text: [[file.name, _hash(file)] for file in files] for text, files in named.items() if files}
    return content_hash(hashes) if hashes else ""


def _paths(word: str) -> Iterator[str]:
    """Yield the texts of a command's word that may be paths.

    They are an option's value or the word itself, and each text in it if it is JSON.
    """
    flag, _, value = word.partition("=")
    text = value if flag.startswith("-") and value else word
    yield text
    try:
        yield from _texts(json.loads(text))
    except (ValueError, RecursionError):
        return


def _texts(value: Any) -> Iterator[str]:
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _texts(inner)
    if isinstance(value, str):
        yield value


def _files(folder: Path, text: str) -> list[Path]:
    """Return a GGUF file, or the files of a model folder; [] if `text` names neither. folder: of the command."""
    try:
        path = folder / text
        if path.is_file():
            return [part for part in gguf_parts(path) if part.is_file()] if path.suffix == ".gguf" else []
        files = sorted(file for file in path.iterdir() if file.suffix in FILES and file.is_file())
    except (OSError, ValueError):  # no path at all, among them
        return []
    return files if any(file.suffix in WEIGHTS for file in files) else []


def _hash(file: Path) -> str:
    try:
        with file.open("rb") as opened:  # plan and start ask for the same, maybe hundreds of gigabytes
            return cached_hash(opened)
    except OSError as error:
        raise UsageError(f"{file}: `serve` names its model, and it cannot be read ({error.strerror}).") from None
