"""Recognise by their content which harness wrote results, and read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from qualgate.documents import nearest
from qualgate.errors import UsageError
from qualgate.errors.misplaced import nearest_path, unreadable
from qualgate.intake.harnesses.containers import files_in
from qualgate.intake.harnesses.log import Choice, Log
from qualgate.intake.harnesses.probe import HEAD, Probe

READERS: Mapping[str, str] = {  # the format's name → its module, the most special first
    "inspect": "inspect_logs",
    "promptfoo": "promptfoo",
    "openai-evals": "openai_evals",
    "openai-items": "openai_items",
    "every-eval-ever": "every_eval_ever",
    "mlflow": "mlflow_table",
    "lm-eval": "lm_eval",
    "lighteval": "lighteval",
    "nemo-evaluator": "nemo_evaluator",
    "bfcl": "bfcl",
    "helm": "helm",
    "table": "tables",
}
PACKED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "Zstandard"}


class Reader(Protocol):
    """A module that reads one format."""

    def recognise(self, probe: Probe) -> bool:
        """Whether the path holds this format."""
        ...

    def read(self, path: Path, choice: Choice, error_texts: Iterable[str] | None) -> Log:
        """Read it. UsageError names file and place of what cannot be read, and what to choose from."""
        ...


def read_log(
    path: Path, format: str = "", choice: Choice | None = None, error_texts: Iterable[str] | None = None
) -> Log:
    """Read results. format: a key of `READERS`; "" recognises it. UsageError for one that no reader knows."""
    if format and format not in READERS:
        raise UsageError(f"unknown format {format!r:.40}{nearest(format, READERS)}; it is one of {', '.join(READERS)}")
    format = format or _recognised(path)
    return replace(_module(format).read(path, choice or Choice(), error_texts), format=format)


def _module(format: str) -> Reader:
    return cast("Reader", import_module(f"qualgate.intake.harnesses.{READERS[format]}"))


def _recognised(path: Path) -> str:
    probe = probed(path)
    for format in READERS:
        if _module(format).recognise(probe):
            return format
    if packed := next((name for begin, name in PACKED.items() if probe.head.startswith(begin)), ""):
        raise UsageError(f"{path}: packed by {packed}; unpack it first")
    raise UsageError(
        f"{path}: written by no harness that qualgate knows ({', '.join(READERS)}). If it is one of them, name it: "
        "--format NAME, as --format table for columns of your own. Scores from elsewhere are rows: qualgate gate "
        "--baseline-scores"
    )


def probed(path: Path) -> Probe:
    """Look at the beginning of a path. UsageError if it cannot be read, or is empty."""
    if path.is_dir():
        return Probe(path=path, names=files_in(path))
    try:
        with path.open("rb") as file:
            head = file.read(HEAD)
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file or folder{nearest_path(path)}") from None
    except OSError as error:
        raise UsageError(unreadable(path, error)) from None
    if not head:
        raise UsageError(f"{path} is empty: there is nothing to compare.")
    return Probe(path=path, head=head)
