"""The files of a model folder, each by its sha256. A folder is another one if a file changed, went, came or moved."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from qualgate.errors import UsageError
from qualgate.records.identity import content_hash, file_hash

NOT_OF_THE_MODEL = (
    ".git",
    ".gitattributes",
    ".cache",
)  # what downloads and git leave in a folder; no loader reads them
MOST = 10_000  # files
NAMED = 3


def manifest_of(folder: Path, *leave_out: Path | None) -> dict[str, str]:
    """Return path inside the folder → sha256 of the file. leave_out: files that may lie there, such as the
    attestation itself. UsageError for a folder that cannot be read whole, or that links to another folder."""
    skipped = {path.resolve() for path in leave_out if path is not None}
    files = sorted(file for file in _files(folder) if file.resolve() not in skipped)
    if not files:
        raise UsageError(f"{folder} is not there, or holds no file.")
    if len(files) > MOST:
        raise UsageError(f"{folder} holds more than {MOST:,} files: this is no model folder.")
    try:
        with ThreadPoolExecutor(os.cpu_count()) as pool:  # hashing holds no lock
            digests = list(pool.map(file_hash, files))
    except OSError as error:
        raise UsageError(f"{error.filename}: cannot be read ({error.strerror}).") from None
    return {file.relative_to(folder).as_posix(): digest for file, digest in zip(files, digests, strict=True)}


def digest_of(manifest: Mapping[str, str]) -> str:
    """Return the sha256 of a manifest: its canonical JSON."""
    return content_hash(dict(manifest))


def differences(expected: Mapping[str, str], found: Mapping[str, str]) -> str:
    """Return how a folder differs from the manifest, such as "config.json was changed, a.bin was added"; "" if it does
    not."""
    what = dict.fromkeys(expected.keys() - found.keys(), "is missing")
    what |= dict.fromkeys(found.keys() - expected.keys(), "was added")
    what |= {name: "was changed" for name in expected.keys() & found.keys() if expected[name] != found[name]}
    lines = [f"{name} {what[name]}" for name in sorted(what)]
    more = f", and {len(lines) - NAMED} more" if len(lines) > NAMED else ""
    return ", ".join(lines[:NAMED]) + more


def _unreadable(error: OSError) -> None:
    raise UsageError(f"{error.filename}: cannot be read ({error.strerror}).") from None


def _files(folder: Path) -> Iterator[Path]:
    for root, folders, names in os.walk(folder, onerror=_unreadable):
        top = Path(root) == folder
        folders[:] = [name for name in folders if not (top and name in NOT_OF_THE_MODEL)]
        for name in folders:
            if (Path(root) / name).is_symlink():
                raise UsageError(
                    f"{Path(root) / name} links to a folder, so it is not known what belongs to the model."
                )
        for name in names:
            if top and name in NOT_OF_THE_MODEL:
                continue
            if not (file := Path(root) / name).is_file():
                raise UsageError(f"{file} is no file, or a link to none.")
            yield file
