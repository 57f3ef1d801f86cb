"""Read people's preferences, JSON lines with a pair of answers each, that measure a judge before it is believed.

`{"id": "p-17", "question": "…", "a": "…", "b": "…", "preferred": "a"}`: preferred is `a`, `b` or `tie`. Other keys
(author, time) are ignored.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from qualgate.errors import UsageError
from qualgate.intake.jsonl import read_objects
from qualgate.records import Label
from qualgate.records.identity import content_hash

PREFERRED = {"a": 0.0, "b": 1.0, "tie": 0.5}
MOST_LABELS = 20_000


def read_labels(path: Path) -> tuple[Label, ...]:
    """Read the labels of `path`, sorted by id. UsageError names file and line of an invalid label."""
    labels: dict[str, Label] = {}
    for line, body in read_objects(path):
        label = _label(f"{path}:{line}", body)
        if label.id in labels:
            raise UsageError(f"{path}:{line}: a second label with the id {label.id!r:.60}; give each label its own id")
        labels[label.id] = label
        if len(labels) > MOST_LABELS:
            raise UsageError(f"{path}: more than {MOST_LABELS:,} labels; give a sample of them")
    if not any(label.preferred != PREFERRED["tie"] for label in labels.values()):
        raise UsageError(f"{path}: every label is a tie, so agreement cannot be measured; some must prefer `a` or `b`")
    return tuple(labels[name] for name in sorted(labels))


def labels_sha256(labels: tuple[Label, ...]) -> str:
    """Hash of the labels' contents, in the given order."""
    return content_hash([[label.id, label.question, label.first, label.second, label.preferred] for label in labels])


def _label(where: str, body: dict[str, Any]) -> Label:
    """Read one labelled preference. where: file and line, for the UsageError of an invalid one."""
    for key in ("id", "question", "a", "b"):
        if not isinstance(body.get(key), str) or (key in ("id", "question") and not body[key]):
            raise UsageError(f"{where}: `{key}` must be a text, found {body.get(key)!r:.60}; a label is "
                             '{"id": …, "question": …, "a": …, "b": …, "preferred": "a", "b" or "tie"}')  # fmt: skip
    preferred = body.get("preferred")
    if not isinstance(preferred, str) or preferred not in PREFERRED:
        raise UsageError(f"{where}: `preferred` must be a, b or tie, found {preferred!r:.60}")
    if body["a"] == body["b"]:
        raise UsageError(f"{where}: `a` and `b` are equal, so the row cannot measure a judge; leave the row out")
    if len(body["id"]) > 400:
        raise UsageError(f"{where}: `id` has {len(body['id'])} characters; at most 400 are allowed")
    return Label(
        id=body["id"], question=body["question"], first=body["a"], second=body["b"], preferred=PREFERRED[preferred]
    )
