"""Items of a nightly file: its gate files, over their own variants or over the models that are there tonight."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from qualgate.config import GateFile, load_gate_file
from qualgate.config.arms import VARIANT_NAME
from qualgate.config.nightly import Nightly
from qualgate.config.paths import expanded
from qualgate.errors import Exit, InfrastructureError, QualgateError, UsageError, one_line
from qualgate.pipeline.named_paths import named_paths, with_cases
from qualgate.store.database import Store
from qualgate.store.nights import Night, failures, last_nights

# Pauses before what failed (13) is tried again: what was away may be back. Then it waits for the next time it is due.
AGAIN_AFTER = tuple(timedelta(minutes=minutes) for minutes in (5, 20, 50))
# Under these a gate file, and an evalset, name files and folders that they read.
INPUTS = frozenset((
    "adapter", "calibration", "draft", "evalsets", "expected", "feedback", "head", "include_path", "labels", "model",
    "nel_policy", "prices", "simulation", "tokenizer", "trace",
))  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A gate file over one model, or over its own variants (`model` ""). `error` where it cannot be judged."""

    name: str  # of the gate file, in the nightly file
    model: str
    gate: GateFile | None
    error: QualgateError | None = None
    again: bool = False  # although nothing may have changed
    due_at: datetime | None = None  # None: not now


def items(nightly: Nightly) -> Iterator[Item]:
    """In the file's order, models by name. What cannot be read is an item too: the others are judged all the same."""
    for name, entry in nightly.gates.items():
        again = entry.unchanged == "run"
        try:
            gate = replace(load_gate_file(nightly.gate_path(name)), store_url=nightly.store_url)
            models = [""] if entry.models is None else _models(entry.models, nightly.path.parent, gate)
        except (QualgateError, OSError) as error:
            said = InfrastructureError(one_line(error)) if isinstance(error, OSError) else error
            yield Item(name=name, model="", gate=None, error=said)
            continue
        for model in models:
            yield Item(name=name, model=model, gate=with_model(gate, model) if model else gate, again=again)


def due(item: Item, nightly: Nightly, last: Night | None, now: datetime, again: datetime | None = None) -> Item:
    """With the time at which it was due, where no night has been made of that time yet: missed ones are one.
    again: when the last one, which failed, is to be tried again. One that was refused is due again once an input of it
    has changed."""
    at = nightly.schedule.last(now)
    if at is None:
        return item
    if last is None or (made := datetime.fromisoformat(last.due_at)) < at:
        return replace(item, due_at=at)
    refused = last.exit == Exit.USAGE and _changed(item, nightly, datetime.fromisoformat(last.began_at), now)
    return replace(item, due_at=made) if refused or (again is not None and again <= now) else item


def _changed(item: Item, nightly: Nightly, began: datetime, now: datetime) -> bool:
    """Return whether the nightly file, the gate file, or a file or model folder that it names was written, put there or
    replaced between these times. One that is dated later than now would look changed at every look."""
    gate_file = nightly.gate_path(item.name)
    paths = {str(nightly.path), str(gate_file)} | ({item.model} if item.model else set())
    paths |= {path for _, _, path in named_paths(gate_file, INPUTS) if not gate_file.is_relative_to(path)}
    times = (when for path in paths for file in _with_content(path) for when in _times(file))
    return any(began.timestamp() < when <= now.timestamp() for when in times)


def _with_content(path: str) -> list[str]:
    """Return the path, with an evalset's cases, or with the files of a folder, as far as it can be read."""
    try:
        if os.path.isfile(path):
            return [path, *map(str, with_cases(Path(path)))]
        return [path, *(os.path.join(path, name) for name in os.listdir(path))]
    except OSError:
        return [path]


def _times(path: str) -> tuple[float, ...]:
    """Return when the file, and a link to it, was written and when it was put there, in s of Unix time."""
    try:
        return tuple(when for one in (os.stat(path), os.lstat(path)) for when in (one.st_mtime, one.st_ctime))
    except (OSError, ValueError):  # nothing is there, or it is no path
        return ()


def again_at(store: Store, night: Night) -> datetime | None:
    """When one that failed is tried again; None of others, and of one that is tried no more."""
    failed = failures(store, night) if night.exit == Exit.INFRASTRUCTURE else 0
    if not 1 <= failed <= len(AGAIN_AFTER):
        return None
    return datetime.fromisoformat(night.finished_at) + AGAIN_AFTER[failed - 1]


def last_of(store: Store, nightly: Nightly) -> dict[tuple[str, str], tuple[Night, datetime | None]]:
    """(gate, model) → its newest night, and when that is tried again."""
    return {(one.gate, one.model): (one, again_at(store, one)) for one in last_nights(store, nightly.name)}


def next_due(store: Store, nightly: Nightly, now: datetime) -> datetime | None:
    """The first time after now at which something is due, or tried again; None where nothing ever is."""
    again = (when for (gate, _), (_, when) in last_of(store, nightly).items() if gate in nightly.gates)
    return min((when for when in (nightly.schedule.next(now), *again) if when and when > now), default=None)


def overdue(nightly: Nightly, store: Store, now: datetime) -> dict[tuple[str, str], float]:
    """(nightly file, gate) → s for which a night has been due that was not made yet; 0 where none is. Models that are
    new are due when the command runs, and no sooner; those that are gone are not due."""
    at, late = nightly.schedule.last(now), {}
    for gate, entry in nightly.gates.items():
        nights = {one.model: datetime.fromisoformat(one.due_at) for one in last_nights(store, nightly.name, gate)}
        there = [""] if entry.models is None else _fitting_any(entry.models, nightly.path.parent)
        known = [nights[model] for model in there if model in nights]
        made = min(known) if known else max(nights.values(), default=None)  # none known: a fault of the whole gate
        is_due = at is not None and (made is None or made < at)
        late[nightly.name, gate] = (now - at).total_seconds() if is_due and at is not None else 0.0
    return late


def with_model(gate: GateFile, model: str) -> GateFile:
    """The gate file with this folder as its only variant, served as the baseline is."""
    arm = replace(
        gate.baseline, name=Path(model).name, model=model, dtype_said=False, kv_said=False, adapter=None, served=None
    )
    return replace(gate, variants=(arm,))


def _models(patterns: list[str], folder: Path, gate: GateFile) -> list[str]:
    """The folders, each once. UsageError for a pattern of none, and for two that a verdict could not tell apart."""
    if gate.four_arm is not None:
        raise UsageError(f"{gate.path}: four arms are judged together; `models` cannot take the place of its variants.")
    found: dict[str, None] = {}
    for pattern in patterns:
        here = _fitting(pattern, folder)
        if not here:
            raise UsageError(f"`models`: no folder with a model fits {pattern!r:.200} (looked in {folder}).")
        found |= dict.fromkeys(here)
    names = [Path(model).name for model in found]
    for model, name in zip(found, names, strict=True):
        if not re.fullmatch(VARIANT_NAME, name) or name == "baseline":
            raise UsageError(f"`models`: {model!r:.200} cannot be a variant's name; rename the folder.")
        if names.count(name) > 1:
            raise UsageError(f"`models`: two folders are called {name!r}; a verdict could not tell them apart.")
    return list(found)


def _fitting_any(patterns: list[str], folder: Path) -> list[str]:
    return [model for pattern in patterns for model in _fitting(pattern, folder)]


def _fitting(pattern: str, folder: Path) -> list[str]:
    found = sorted(glob.glob(str(folder / expanded(pattern))))
    return [one for one in found if os.path.isfile(os.path.join(one, "config.json"))]
