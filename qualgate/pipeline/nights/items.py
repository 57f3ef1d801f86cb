"""Items of a nightly file: its gate files, over their own variants or over the models that exist tonight."""

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

# Pauses before an item that failed (13) is tried again; then it waits until it is next due.
AGAIN_AFTER = tuple(timedelta(minutes=minutes) for minutes in (5, 20, 50))
# Keys of gate files and evalsets that name files and folders.
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
    again: bool = False  # run even if nothing changed
    due_at: datetime | None = None  # None: not now


def items(nightly: Nightly) -> Iterator[Item]:
    """Yield the items in the file's order, models by name. An unreadable gate file is an item with an error, so that
    the others are judged all the same."""
    for name, entry in nightly.gates.items():
        always_run = entry.unchanged == "run"
        try:
            gate = replace(load_gate_file(nightly.gate_path(name)), store_url=nightly.store_url)
            models = [""] if entry.models is None else _models(entry.models, nightly.path.parent, gate)
        except (QualgateError, OSError) as error:
            fault = InfrastructureError(one_line(error)) if isinstance(error, OSError) else error
            yield Item(name=name, model="", gate=None, error=fault)
            continue
        for model in models:
            yield Item(name=name, model=model, gate=with_model(gate, model) if model else gate, again=always_run)


def due(item: Item, nightly: Nightly, last: Night | None, now: datetime, again: datetime | None = None) -> Item:
    """Return the item with the time at which it was due, if no night was made since; missed times count as one. A
    refused item is due again once one of its inputs has changed. last: its newest night; again: time of the next try
    after a failure."""
    latest = nightly.schedule.last(now)
    if latest is None:
        return item
    if last is None or (last_due := datetime.fromisoformat(last.due_at)) < latest:
        return replace(item, due_at=latest)
    refused = last.exit == Exit.USAGE and _changed(item, nightly, datetime.fromisoformat(last.began_at), now)
    return replace(item, due_at=last_due) if refused or (again is not None and again <= now) else item


def _changed(item: Item, nightly: Nightly, began: datetime, now: datetime) -> bool:
    """Return whether the nightly file, the gate file, or a file or model folder that it names was written or replaced
    between these times. Files dated later than now do not count: they would always look changed."""
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
    """Return the mtimes and ctimes of the file and of a link to it, in s of Unix time."""
    try:
        return tuple(when for stat in (os.stat(path), os.lstat(path)) for when in (stat.st_mtime, stat.st_ctime))
    except (OSError, ValueError):  # nothing is there, or it is no path
        return ()


def again_at(store: Store, night: Night) -> datetime | None:
    """Return when a failed night is tried again; None for others, and after the last try."""
    failed = failures(store, night) if night.exit == Exit.INFRASTRUCTURE else 0
    if not 1 <= failed <= len(AGAIN_AFTER):
        return None
    return datetime.fromisoformat(night.finished_at) + AGAIN_AFTER[failed - 1]


def last_of(store: Store, nightly: Nightly) -> dict[tuple[str, str], tuple[Night, datetime | None]]:
    """Return (gate, model) → its newest night, and when that is tried again."""
    return {(night.gate, night.model): (night, again_at(store, night)) for night in last_nights(store, nightly.name)}


def next_due(store: Store, nightly: Nightly, now: datetime) -> datetime | None:
    """Return the first time after now at which something is due or tried again; None if nothing ever is."""
    retries = (when for (gate, _), (_, when) in last_of(store, nightly).items() if gate in nightly.gates)
    return min((when for when in (nightly.schedule.next(now), *retries) if when and when > now), default=None)


def overdue(nightly: Nightly, store: Store, now: datetime) -> dict[tuple[str, str], float]:
    """Return (nightly file, gate) → s since which a night has been overdue; 0 if none is. New models are due only when
    the command runs; removed models are not due."""
    latest, late = nightly.schedule.last(now), {}
    for gate, entry in nightly.gates.items():
        nights = {night.model: datetime.fromisoformat(night.due_at) for night in last_nights(store, nightly.name, gate)}
        present = [""] if entry.models is None else _fitting_any(entry.models, nightly.path.parent)
        due_times = [nights[model] for model in present if model in nights]
        last_due = (
            min(due_times) if due_times else max(nights.values(), default=None)
        )  # without known models: a fault of the whole gate
        is_due = latest is not None and (last_due is None or last_due < latest)
        late[nightly.name, gate] = (now - latest).total_seconds() if is_due and latest is not None else 0.0
    return late


def with_model(gate: GateFile, model: str) -> GateFile:
    """Return the gate file with this folder as its only variant, run with the baseline's settings. The arms that
    variants are held against stay."""
    arm = replace(
        gate.baseline, name=Path(model).name, model=model, dtype_said=False, kv_said=False, adapter=None, served=None
    )
    references = tuple(other for other in gate.variants if other.name in gate.policy.references)
    return replace(gate, variants=(*references, arm))


def _models(patterns: list[str], folder: Path, gate: GateFile) -> list[str]:
    """Return the matching folders. Raises UsageError for a pattern without match, and for two folders of one name."""
    if gate.four_arm is not None:
        raise UsageError(f"{gate.path}: `models` cannot replace the variants of a four-arm gate file.")
    models: dict[str, None] = {}
    for pattern in patterns:
        matches = _fitting(pattern, folder)
        if not matches:
            raise UsageError(f"`models`: no folder with a model fits {pattern!r:.200} (looked in {folder}).")
        models |= dict.fromkeys(matches)
    names = [Path(model).name for model in models]
    for model, name in zip(models, names, strict=True):
        if not re.fullmatch(VARIANT_NAME, name) or name in ("baseline", *gate.policy.references):
            raise UsageError(f"`models`: {model!r:.200} cannot be a variant's name; rename the folder.")
        if names.count(name) > 1:
            raise UsageError(f"`models`: two folders are called {name!r}; a verdict could not tell them apart.")
    return list(models)


def _fitting_any(patterns: list[str], folder: Path) -> list[str]:
    return [model for pattern in patterns for model in _fitting(pattern, folder)]


def _fitting(pattern: str, folder: Path) -> list[str]:
    paths = sorted(glob.glob(str(folder / expanded(pattern))))
    return [path for path in paths if os.path.isfile(os.path.join(path, "config.json"))]
