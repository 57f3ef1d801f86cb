"""Recognise by their content which harness wrote results, and read them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from qualgate.documents import nearest
from qualgate.errors import UsageError
from qualgate.errors.misplaced import nearest_path, unreadable
from qualgate.intake.harnesses.containers import files_in
from qualgate.intake.harnesses.log import Choice, Log

HEAD = 65_536  # bytes of a file that recognition looks at
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """The beginning of what a path holds."""

    path: Path
    names: tuple[str, ...] = ()  # of a folder's files
    head: bytes = b""  # of a file

    @property
    def keys(self) -> frozenset[str]:
        """Keys of the first line, if it is a whole JSON object."""
        line = self.head.removeprefix(b"\xef\xbb\xbf").partition(b"\n")[0]
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            return frozenset()
        return frozenset(value) if isinstance(value, dict) else frozenset()

    def says(self, *texts: str) -> bool:
        """Whether the head holds each of these texts."""
        return all(text.encode() in self.head for text in texts)


class Reader(Protocol):
    """A module that reads one format."""

    NAME: str

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
    reader = _module(format) if format else _recognised(path)
    return reader.read(path, choice or Choice(), error_texts)


def _module(format: str) -> Reader:
    return cast("Reader", import_module(f"qualgate.intake.harnesses.{READERS[format]}"))


def _recognised(path: Path) -> Reader:
    probe = probed(path)
    for format in READERS:
        if (reader := _module(format)).recognise(probe):
            return reader
    raise UsageError(
        f"{path}: written by no harness that qualgate knows ({', '.join(READERS)}). If it is one of them, name it: "
        "--format NAME. Scores from elsewhere are rows: qualgate gate --baseline-scores"
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
