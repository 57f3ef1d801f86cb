"""Locate the sets that a gate file names: shipped with the package, or the user's own files."""

from __future__ import annotations

import importlib.util
import os
from functools import lru_cache
from pathlib import Path
from typing import Literal

from qualgate.documents import Document, nearest, quote, read_yaml
from qualgate.errors import UsageError
from qualgate.errors.misplaced import nearest_path
from qualgate.records import ExternalCases, LmEvalTask, SetRef

Kind = Literal["evalset", "calibration"]


@lru_cache(maxsize=1)
def shipped_folder() -> Path:
    """Folder of the shipped sets: the installed package, or `evalsets/` of a checkout."""
    spec = importlib.util.find_spec("qualgate_evalsets")
    if spec is not None and spec.submodule_search_locations:
        return Path(spec.submodule_search_locations[0])
    return Path(__file__).resolve().parents[2] / "evalsets"


@lru_cache(maxsize=2)
def shipped(kind: Kind = "evalset") -> tuple[str, ...]:
    """Names of the shipped sets of one kind."""
    files = (path for path in shipped_folder().glob("*.yaml") if path.with_suffix(".jsonl").exists())
    return tuple(sorted(path.stem for path in files if kind_of(read_yaml(path)) == kind))


def kind_of(document: Document) -> Kind:
    """The kind that a set's YAML declares."""
    calibrates = isinstance(document.value, dict) and document.value.get("kind") == "calibration"
    return "calibration" if calibrates else "evalset"


def is_path(ref: str) -> bool:
    """Whether the reference is a file (with `/`, or ending in .yaml); a bare name is a shipped set."""
    return "/" in ref or ref.endswith((".yaml", ".yml"))


def name_of(ref: SetRef) -> str:
    """The evalset's name: a path's stem, a bare name, a task's name, or the key `name`."""
    if isinstance(ref, ExternalCases):
        return ref.name
    if isinstance(ref, LmEvalTask):
        return ref.task
    return Path(ref).stem if is_path(ref) else ref


def lying_in(folder: Path, *, below: bool = False) -> dict[str, Path]:
    """Name → YAML of the sets in a folder and, with `below`, in its direct subfolders."""
    if not os.path.isdir(folder):  # glob raises for a name with a NUL
        return {}
    files = [path for pattern in ("*.yaml", *(("*/*.yaml",) if below else ())) for path in folder.glob(pattern)]
    return {path.stem: path for path in sorted(files, reverse=True) if path.with_suffix(".jsonl").is_file()}


def locate(ref: str, relative_to: Path, kind: Kind | None = None) -> Path:
    """Find the YAML file that `ref` names; a bare name is a shipped set of `kind`, by default either. UsageError
    without one."""
    what = "calibration set" if kind == "calibration" else "evalset"
    if is_path(ref):
        path = relative_to / ref
        if os.path.isfile(path):  # Path.is_file raises for a name that is too long
            return path
        raise UsageError(f"no {what} at {path}{nearest_path(path, _is_yaml)}")
    known = shipped(kind) if kind else (*shipped(), *shipped("calibration"))
    if ref in known:
        return shipped_folder() / f"{ref}.yaml"
    raise UsageError(
        f"no shipped {what} {quote(ref)}{nearest(ref, known)} (a set of your own is named by its path: "
        f"{own_path(ref, relative_to)})"
    )


def own_path(ref: str, relative_to: Path) -> str:
    """Suggest a path for a bare name: the first set of a folder, or the YAML of cases."""
    for name in sorted(lying_in(relative_to / ref)):
        return f"./{ref}/{name}.yaml"
    return f"./{ref.removesuffix('.jsonl')}.yaml"


def _is_yaml(path: Path) -> bool:
    return path.suffix in (".yaml", ".yml")
