"""A gate file as it is handed to a pool: its text, the small files that it names, and the folders a node must have.

Files beside the gate file (evalsets, prices, labels) travel in the store, so that whoever hands over needs no disk in
common with the nodes. Models do not: a node has them at the path that the gate file means, or gives the run back.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from qualgate.config import GateFile, load_gate_file
from qualgate.config.gate_file import SHIPPED_MODEL_FOLDER
from qualgate.documents import read_yaml
from qualgate.errors import QualgateError, UsageError
from qualgate.formatting import counted
from qualgate.identity import file_hash, own_version
from qualgate.pipeline.plan import load_set, set_refs
from qualgate.records import Submission

MOST_CARRIED = 64 * 2**20  # bytes, of all files of a submission
READ_WHOLE = 2**20  # bytes, up to which a JSON file of a folder is told apart by its content
LONGEST = 4096  # characters of a path


def submission_of(gate_file: Path, options: tuple[str, ...], owner: str, priority: int) -> Submission:
    """What is handed over of a gate file. UsageError for what is wrong with it already here; a model's folder need not
    be on this machine."""
    gate = _loaded(gate_file)
    folder = gate.path.parent
    files, needs = _named(gate)
    held = sum(map(len, files.values()))
    if held > MOST_CARRIED:
        largest = max(files, key=lambda path: len(files[path]))
        raise UsageError(
            f"{gate.path.name} names {counted(len(files), 'file')} of {held / 2**20:.0f} MiB together, and a "
            f"submission carries {MOST_CARRIED / 2**20:.0f} MiB; the largest is {largest}. Put it where every "
            "node has it, and name it by its absolute path."
        )
    return Submission(
        owner=owner,
        priority=priority,
        name=gate.path.name,
        folder=str(folder),
        gate_file=gate.text,
        program=own_version(),
        options=options,
        needs=needs,
        files=files,
    )


def digest_of(path: str) -> str:
    """Of a file: sha256 of its content. Of a folder: of its files' names and sizes, and what its small JSON files say;
    weights are read by the run itself."""
    if os.path.isfile(path):
        return file_hash(Path(path))
    found = hashlib.sha256()
    for one in sorted(Path(path).rglob("*")):
        if one.is_file():
            size = one.stat().st_size
            found.update(f"{one.relative_to(path).as_posix()}\0{size}\0".encode("utf-8", "surrogateescape"))
            if one.suffix == ".json" and size <= READ_WHOLE:
                found.update(one.read_bytes())
    return found.hexdigest()


def lacking(submission: Submission) -> str:
    """What of its needs this machine has not, in words; "" where it has everything."""
    for path, digest in submission.needs.items():
        if not os.path.exists(path):
            return f"{path} is not there"
        if digest and digest_of(path) != digest:
            return f"{path} is not what it was where the run was handed over"
    return ""


def lay_out(submission: Submission, root: Path) -> Path:
    """Write what a submission carries below `root`, every file and folder where relative paths look for it; returns the
    gate file's path. UsageError for a path that cannot have come from `submission_of`."""
    home = _below(root, submission.folder)
    home.mkdir(parents=True, exist_ok=True)
    gate_file = _below(root, os.path.join(submission.folder, submission.name))
    gate_file.write_text(submission.gate_file, encoding="utf-8")
    for path, body in submission.files.items():
        there = _below(root, path)
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_bytes(body)
    for path in submission.needs:
        if not os.path.lexists(root / path.lstrip("/")):
            there = _below(root, path)
            there.parent.mkdir(parents=True, exist_ok=True)
            there.symlink_to(path)
    return gate_file


def _below(root: Path, path: str) -> Path:
    if not os.path.isabs(path) or os.path.normpath(path) != path:
        raise UsageError(f"the submission names {path!r}, which is no whole path; hand the run over again")
    there = root / path.lstrip("/")
    if not there.resolve().is_relative_to(root.resolve()):  # through the link to something that a node must have
        raise UsageError(
            f"{path!r} of the submission lies outside the folder it is laid out in; hand the run over again"
        )
    return there


def _loaded(gate_file: Path) -> GateFile:
    """Strictly where all its models are here; else as far as it can be looked at without them."""
    gate = load_gate_file(gate_file, files=False)
    if all(os.path.isdir(arm.model) for arm in (gate.baseline, *gate.variants) if arm.served is None):
        return load_gate_file(gate_file)
    for ref in set_refs(gate):
        load_set(ref, gate.path.parent)
    return gate


def _named(gate: GateFile) -> tuple[dict[str, bytes], dict[str, str]]:
    """Files that are carried, and what a node must have, by absolute path."""
    folder = gate.path.parent
    files: dict[str, bytes] = {}
    needs: dict[str, str] = {}
    for path in _of_arms(gate):
        needs[path] = digest_of(path) if os.path.exists(path) else ""
    for document, text, path in named_paths(gate.path):
        relative = not os.path.isabs(os.path.expanduser(text))
        if text.startswith("~") and (path in needs or os.path.exists(path)):
            raise UsageError(
                f"{document.name} names {text}, and a node's home is another than yours: name it by its absolute "
                "path, or by one relative to the file."
            )
        if os.path.isdir(path):
            if not folder.is_relative_to(path):
                needs[path] = needs.get(path) or digest_of(path)
        elif os.path.isfile(path):
            for one in with_cases(Path(path)):
                if relative:
                    files[str(one)] = one.read_bytes()
                else:
                    needs[str(one)] = file_hash(one)
    return files, {path: digest for path, digest in needs.items() if path != str(SHIPPED_MODEL_FOLDER)}


def named_paths(gate_file: Path, keys: Collection[str] = ()) -> Iterator[tuple[Path, str, str]]:
    """Yield what may be a path in a gate file, and in the YAML files that it names: the file, the text, the path meant.

    A folder is meant only by a text with a slash. Whether anything is there is the caller's to see. keys: under which
    paths stand; () = any.
    """
    looked_at, documents = {gate_file}, [gate_file]
    while documents:
        document = documents.pop()
        for text in _texts(_under(_read(document), keys) if keys else _strings(_read(document))):
            path = os.path.normpath(document.parent / os.path.expanduser(text))
            if "/" in text or not os.path.isdir(path):
                yield document, text, path
            if path.endswith((".yaml", ".yml")) and os.path.isfile(path) and Path(path) not in looked_at:
                looked_at.add(Path(path))
                documents.append(Path(path))


def _of_arms(gate: GateFile) -> Iterator[str]:
    """Absolute paths in what the arms of this program load: models, adapters, drafts."""
    for arm in (gate.baseline, *gate.variants):
        if arm.served is None:
            yield from (text for text in _strings(asdict(arm)) if os.path.isabs(text))


def with_cases(path: Path) -> list[Path]:
    """An evalset is two files."""
    cases = path.with_suffix(".jsonl")
    return [path, cases] if path.suffix in (".yaml", ".yml") and cases.is_file() else [path]


def _read(path: Path) -> Any:
    try:
        return read_yaml(path).value
    except QualgateError:  # of another kind: it names nothing that qualgate would read
        return None


def _texts(strings: Iterable[str]) -> Iterator[str]:
    """Each that may be a path, and the words of those that are commands."""
    for text in strings:
        for one in {text, *text.split()}:
            if one and "\0" not in one and "://" not in one and len(one) <= LONGEST:
                yield one


def _under(value: Any, keys: Collection[str]) -> Iterator[str]:
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _strings(one) if key in keys else _under(one, keys)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _under(one, keys)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _strings(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _strings(one)
