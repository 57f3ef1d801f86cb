"""Collect the files that travel to a cluster: text and small files beside the gate file, never a model or store.

The cluster reads absolute paths on storage that its nodes share. Files in the gate file's folder travel, if a key
that names files names them. Everything else is refused before the cluster is contacted.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from qualgate import evalsets
from qualgate.config import GateFile
from qualgate.config.gate_file import SHIPPED_MODEL_FOLDER
from qualgate.config.paths import SHIPPED_MODEL
from qualgate.documents import read_yaml
from qualgate.errors import UsageError
from qualgate.pipeline.named_paths import strings_in, with_cases
from qualgate.pipeline.named_sets import load_set
from qualgate.store.address import is_postgresql
from qualgate.text.numbers import counted, size_text

MOST_BYTES = 64 * 2**20  # of all files together; Ray allows 500 MiB, but no model should travel
EACH = "*"  # in a key path: every value of a list or mapping
# Key paths of files in a gate file: evalsets and calibration sets (two files each), and others.
SETS = (("evalsets", EACH), ("variants", EACH, "calibration"), ("variants", EACH, "quantize", "calibration"))
FILES = (
    ("prices",), ("feedback",), ("judge", "labels"), ("gate", "expected"), ("gate", "nel_policy"), ("load", "trace"),
)  # fmt: skip
# Key paths of folders that no `ArmSpec` holds, and of commands that may read files in the gate file's folder.
FOLDERS = (("evalsets", EACH, "include_path"), ("baseline", "tokenizer"), ("variants", EACH, "tokenizer"))
COMMANDS = (("baseline", "serve"), ("variants", EACH, "serve"))


def files_that_travel(gate: GateFile) -> Mapping[str, Path]:
    """Return the gate file and the files that it names, by their paths relative to its folder.

    Raises:
        UsageError: For a store in a file, arms that the cluster's nodes would not run, and every path that the cluster
            cannot see; for faults of evalsets that travel.
    """
    folder = gate.path.parent.resolve()
    for ref in gate.evalset_refs:
        if isinstance(ref, str) and not ref.startswith(("/", "~")):
            load_set(ref, folder)
    files = {gate.path.name: gate.path}
    faults = [*_store_faults(gate), *_worker_faults(gate), *_model_faults(gate), *_folder_faults(gate)]
    for document, text, path, is_set in _named_files(gate, folder):
        if text.startswith("~"):
            faults.append(f"{document} names {text}: a home folder on the cluster is another one")
        elif path.is_dir():
            faults.append(f"{document} names the folder {text}: folders do not travel")
        elif path.is_file():
            for file in with_cases(path) if is_set else [path]:
                if file.is_relative_to(folder):
                    files[str(file.relative_to(folder))] = file
                else:
                    faults.append(f"{document} names {text}: it lies outside {folder}, which alone travels")
    if (nbytes := sum(file.stat().st_size for file in files.values())) > MOST_BYTES:
        largest = max(files, key=lambda name: files[name].stat().st_size)
        faults.append(
            f"{counted(len(files), 'file')} of {size_text(nbytes)} would travel, {size_text(MOST_BYTES)} at most; the "
            f"largest is {largest}"
        )
    if faults:
        advice = "Give absolute paths on storage that the cluster's nodes share."
        raise UsageError("\n".join(f"{gate.path.name}: {fault}" for fault in dict.fromkeys(faults)) + f"\n{advice}")
    return files


def lay_out(files: Mapping[str, Path], folder: Path) -> None:
    """Copy the files below `folder`, by their relative paths."""
    for name, file in files.items():
        try:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, folder / name)
        except OSError as error:
            raise UsageError(f"{file}: cannot be copied to travel ({error.strerror})") from None


def _named_files(gate: GateFile, folder: Path) -> Iterator[tuple[str, str, Path, bool]]:
    """Yield each file named by a relative path or one with `~`: (naming file, text, resolved path, whether it is an
    evalset or a calibration set)."""
    value = read_yaml(gate.path).value
    sets = [text for keys in SETS for text in _texts_at(value, keys) if evalsets.is_path(text)]
    for text in dict.fromkeys([*sets, *(text for keys in FILES for text in _texts_at(value, keys))]):
        if os.path.isabs(text):
            continue
        path = Path(os.path.normpath(folder / text))
        yield gate.path.name, text, path, text in sets
        if text in sets and path.is_file():
            for simulation in _texts_at(read_yaml(path).value, ("simulation",)):
                if not os.path.isabs(simulation):
                    yield path.name, simulation, Path(os.path.normpath(path.parent / simulation)), False


def _texts_at(value: Any, keys: Sequence[str]) -> Iterator[str]:
    """Yield the texts at a path of keys in a document; EACH matches every item of a list or mapping. A path that
    leads nowhere yields nothing."""
    if not keys:
        if isinstance(value, str):
            yield value
        return
    values: Sequence[Any] = ()
    if isinstance(value, dict):
        values = tuple(value.values()) if keys[0] == EACH else tuple(value[key] for key in value if key == keys[0])
    elif isinstance(value, list) and keys[0] == EACH:
        values = value
    for item in values:
        yield from _texts_at(item, keys[1:])


def _folder_faults(gate: GateFile) -> Iterator[str]:
    """Yield a fault for each folder, and each word of a server's command, that would have to travel."""
    value = read_yaml(gate.path).value
    for text in (text for keys in FOLDERS for text in _texts_at(value, keys)):
        if text != SHIPPED_MODEL and not os.path.isabs(text):
            yield f"{gate.path.name} names the folder {text}: folders do not travel"
    for command in (text for keys in COMMANDS for text in _texts_at(value, keys)):
        for word in (word.rpartition("=")[2] for word in shlex.split(command)):
            is_path = word.startswith("~") or "/" in word or "." in word
            if is_path and not os.path.isabs(word) and (gate.path.parent / os.path.expanduser(word)).exists():
                yield f"`serve` names {word}: what a server's command reads does not travel"


def _store_faults(gate: GateFile) -> Iterator[str]:
    """Yield a fault for a store that is a file, since the cluster cannot reach it."""
    if not is_postgresql(gate.store_url):
        yield (
            f"the store {gate.store_url} is a file of this machine: write `store: postgresql://USER@HOST/DATABASE`, a "
            "server that the cluster can reach"
        )


def _worker_faults(gate: GateFile) -> Iterator[str]:
    """Yield a fault if our own engine would run on the head node instead of on the cluster's workers."""
    if not gate.ray and any(arm.served is None for arm in (gate.baseline, *gate.variants)):
        yield "write `workers: {backend: ray, address: auto}`: without it only the head node would answer"


def _model_faults(gate: GateFile) -> Iterator[str]:
    """Yield a fault for each model, adapter, draft or server Python that is neither an absolute path nor shipped.
    Calibration sets travel like evalsets."""
    absolute = {
        path
        for text in strings_in(read_yaml(gate.path).value)
        if os.path.isabs(text)
        for path in (text, os.path.normpath(text))
    }
    for arm in (gate.baseline, *gate.variants):
        calibrations = {arm.calibration, arm.quantize.calibration if arm.quantize else ""}
        for path in strings_in(asdict(arm)) if arm.served is None else ():
            if not os.path.isabs(path) or path in absolute | calibrations:
                continue
            if not Path(path).is_relative_to(SHIPPED_MODEL_FOLDER):
                yield f"{arm.name} reads {path}, named by a path of this machine: models do not travel"
    python = (gate.served_by or {}).get("python")
    if python is not None and python not in absolute:
        yield f"`served_by` names {python} by a path of this machine"
