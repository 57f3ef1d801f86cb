"""Messages for a missing path: the nearest existing one, and the command to type instead."""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from shlex import quote as shell_quote

from qualgate.errors import close_names

MOST_NAMES = 10_000  # names of a folder that are searched
_FILES_NAMED = 3
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?", re.ASCII)


def unreadable(path: Path, error: OSError) -> str:
    """Say why the file `path` cannot be read, beginning with its name."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return f"{path}: no such file{nearest_path(path)}"
    if isinstance(error, IsADirectoryError):
        return f"{path}: no file{nearest_path(path)}"
    if isinstance(error, PermissionError):
        right = f"chmod u+r {shell_quote(str(path))}"
        return f"{path}: cannot be read ({error.strerror}); give yourself the right to: {right}"
    return f"{path}: cannot be read ({error.strerror or error})"


def nearest_path(path: Path, fits: Callable[[Path], bool] = os.path.lexists) -> str:
    """End a message about a path with `; did you mean 'x'?`, the missing folder, or what is there instead. fits:
    whether a path could be the wanted one."""
    if os.path.isdir(path):
        files = (name for name in _names_in(path) if os.path.isfile(path / name) and fits(path / name))
        inside = sorted(files)[:_FILES_NAMED]
        named = f", such as {', '.join(map(repr, inside))} in it" if inside else ""
        return f"; it is a folder, and a file is needed{named}"
    if os.path.lexists(path):
        there = f"is a file, in the folder {str(path.parent)!r}" if os.path.isfile(path) else "leads to no file"
        return f"; it {there}"
    nearest = _nearest(path, fits)
    if nearest is not None:
        return f"; did you mean {str(nearest)!r}?"
    missing = [folder for folder in path.parents if not os.path.isdir(folder)]
    return f"; there is no folder {str(missing[-1])!r}" if missing else ""


def no_model_folder(written: str, folder: Path) -> str:
    """Say what to do about a model without a folder: fetch it if it is a name of the Hub."""
    near = nearest_path(folder, os.path.isdir)
    if os.path.lexists(folder) or near.startswith("; did you mean") or not _HUB_NAME.fullmatch(written):
        return f"no model folder {str(folder)!r:.200}{near}"
    local = f"./{written.rpartition('/')[2]}"
    return (
        f"no model folder {str(folder)!r:.200}. qualgate reads folders and downloads nothing: if that is a model on "
        f"the Hugging Face Hub, fetch it and name its folder {local} instead: hf download {written} --local-dir {local}"
    )


TABLES = {".csv": "", ".tsv": ', delimiter="\\t"'}  # ending of a file: what its reader is told of the delimiter
COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"PK\x03\x04": "zip",
}


def not_json_lines(path: Path, beginning: bytes) -> str:
    """Say that a file is compressed, UTF-16, a table, one array, or objects over several lines instead of JSON lines,
    with a command that converts it; "" for any other."""
    for magic, name in COMPRESSED.items():
        if beginning.startswith(magic):
            return f"the file is compressed ({name}); give it unpacked"
    if beginning.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in beginning[:2]:
        return "the file is UTF-16; save it as UTF-8"
    first = beginning.removeprefix(codecs.BOM_UTF8).strip()
    delimiter = TABLES.get(path.suffix.lower())
    if delimiter is not None and not first.startswith((b"{", b"[")):
        return _as_table(path, delimiter)
    what, each = ("one JSON array", ".[]") if first.startswith(b"[") else ("JSON over several lines", ".")
    if not first.startswith(b"[") and first != b"{":
        return ""
    made, source = shell_quote(str(path.with_suffix(".jsonl"))), shell_quote(str(path))
    command = f"jq -c '{each}' {source} > {made}"
    if made == source:
        command = f"jq -c '{each}' {source} > {made}.new && mv {made}.new {made}"
    return f"the file is {what}, and one object a line is needed: {command}"


def _as_table(path: Path, delimiter: str) -> str:
    program = f"import csv, json, sys; [print(json.dumps(row)) for row in csv.DictReader(sys.stdin{delimiter})]"
    source, made = shell_quote(str(path)), shell_quote(str(path.with_suffix(".jsonl")))
    return f"the file is a table, and one JSON object a line is needed: python -c '{program}' < {source} > {made}"


def _nearest(path: Path, fits: Callable[[Path], bool] = os.path.lexists) -> Path | None:
    """The existing, fitting path that `path` may be meant for, by similarity of each part."""
    if os.path.lexists(path):
        return path
    if path.parent == path or (folder := _nearest(path.parent)) is None:
        return None
    stems = {name: Path(name).stem for name in _names_in(folder)}  # an equal suffix does not make names alike
    alike = close_names(path.stem, set(stems.values()), most=3)
    could = [name for name, stem in stems.items() if stem in alike and fits(folder / name)]
    close = close_names(path.name, could, cutoff=0)
    return folder / close[0] if close else None


def _names_in(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in islice(entries, MOST_NAMES)]
    except (OSError, ValueError):
        return []
