"""Find paths in a gate file, and in the YAML files that it names, under given keys."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from qualgate.documents import read_yaml
from qualgate.errors import QualgateError

LONGEST = 4096  # characters of a path


def named_paths(gate_file: Path, keys: Collection[str]) -> Iterator[tuple[Path, str, str]]:
    """Yield (file, text, resolved path) for each possible path in a gate file and in the YAML files that it names.

    A text without a slash never means a folder. The paths may not exist. keys: those whose values may be paths.
    """
    looked_at, documents = {gate_file}, [gate_file]
    while documents:
        document = documents.pop()
        for text in _texts(_under(_read(document), keys)):
            path = os.path.normpath(document.parent / os.path.expanduser(text))
            if "/" in text or not os.path.isdir(path):
                yield document, text, path
            if path.endswith((".yaml", ".yml")) and os.path.isfile(path) and Path(path) not in looked_at:
                looked_at.add(Path(path))
                documents.append(Path(path))


def with_cases(path: Path) -> list[Path]:
    """Return the path, with an evalset's JSON lines beside its YAML."""
    cases = path.with_suffix(".jsonl")
    return [path, cases] if path.suffix in (".yaml", ".yml") and cases.is_file() else [path]


def strings_in(value: Any) -> Iterator[str]:
    """Yield every text in a value of lists and mappings, except keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from strings_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from strings_in(item)


def _read(path: Path) -> Any:
    try:
        return read_yaml(path).value
    except QualgateError:  # not YAML that qualgate reads, so it names no files
        return None


def _texts(strings: Iterable[str]) -> Iterator[str]:
    """Yield each text, and each of its words, that may be a path."""
    for text in strings:
        for word in {text, *text.split()}:
            if word and "\0" not in word and "://" not in word and len(word) <= LONGEST:
                yield word


def _under(value: Any, keys: Collection[str]) -> Iterator[str]:
    """Yield every text in the values of these keys, at any depth."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from strings_in(item) if key in keys else _under(item, keys)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _under(item, keys)
