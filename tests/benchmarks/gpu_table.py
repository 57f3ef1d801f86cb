"""A table of measurements that survives being cut off: each part's figures are in the file before the next part begins.

Parts run in their order, those that say whether the kernels are right first. Who has too little time gets what was
measured by then, and the same command goes on where it stopped, on the same kind of device and with the same programs;
figures of another are never mixed in. A part that fails says why, and is tried again by the next command.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qualgate.errors import UsageError

LONGEST = 500  # characters of a failure


@dataclass(frozen=True, slots=True)
class Part:
    """Something that is measured at a time. work: its figures, as JSON has them, of those of the parts before it;
    UsageError for a file that no command of ours wrote."""

    id: str
    work: Callable[[Mapping[str, Any]], Any]


def fill(
    parts: Sequence[Part], path: Path, about: Mapping[str, Any], *, seconds: float, clock: Callable[[], float]
) -> dict[str, Any]:
    """{"about", "figures": {part: figures}, "failed": {part: why}, "left": [parts without figures]}, as the file at
    `path` has it.

    about: device, versions: what figures have to be of to stand in one table. seconds: of `clock` after which no part
    is begun; one that was goes on to its end. UsageError for a file of another device, or none of ours.
    """
    ids, began = [part.id for part in parts], clock()
    figures = _there(path, about)
    failed: dict[str, str] = {}
    for part in parts:
        if part.id in figures:
            continue
        if clock() - began >= seconds:
            break
        try:
            figures[part.id] = part.work(figures)
        except Exception as error:  # whatever a device or a library may raise: the other parts are still worth having
            failed[part.id] = f"{type(error).__name__}: {error}"[:LONGEST]
        _write(path, _table(ids, about, figures, failed))
    return _table(ids, about, figures, failed)


def _table(ids: Sequence[str], about: Mapping[str, Any], figures: Mapping[str, Any], failed: Any) -> dict[str, Any]:
    left = [id for id in ids if id not in figures]
    return {"about": dict(about), "figures": dict(figures), "failed": dict(failed), "left": left}


def _there(path: Path, about: Mapping[str, Any]) -> dict[str, Any]:
    """Figures of an earlier command."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    try:
        found = json.loads(text)
        of, figures = dict(found["about"]), dict(found["figures"])
    except (ValueError, KeyError, TypeError) as error:
        what = f"{path}: not a table of this command ({error!r:.80})"
        raise UsageError(f"{what}. Move it away.") from None
    if of != dict(about):
        other = next((key for key in about if of.get(key) != about[key]), "kind")
        raise UsageError(
            f"{path} holds figures of another {other}: {of.get(other)!r:.80} there, {about.get(other)!r:.80} here. "
            "They do not stand in one table. Move it away."
        )
    return figures


def _write(path: Path, table: Mapping[str, Any]) -> None:
    """Whole or not at all, whenever the power goes."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with beside.open("w", encoding="utf-8") as file:
        file.write(json.dumps(table, indent=2) + "\n")
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
