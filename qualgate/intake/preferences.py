"""People's preferences: a file of JSON lines, a pair of answers each, by which a judge is measured before it is
believed.

`{"id": "p-17", "question": "…", "a": "…", "b": "…", "preferred": "a"}`: preferred is `a`, `b` or `tie`. Other keys (who
said it, when) are the writer's own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from qualgate.errors import UsageError
from qualgate.identity import content_hash
from qualgate.intake.jsonl import read_objects
from qualgate.records import Label

PREFERRED = {"a": 0.0, "b": 1.0, "tie": 0.5}
MOST_LABELS = 20_000


def read_labels(path: Path) -> tuple[Label, ...]:
    """The pairs of `path`, by id. UsageError names file and line of what is not one."""
    found: dict[str, Label] = {}
    for line, body in read_objects(path):
        label = _label(f"{path}:{line}", body)
        if label.id in found:
            raise UsageError(f"{path}:{line}: a second label {label.id!r:.60}; each has an id of its own")
        found[label.id] = label
        if len(found) > MOST_LABELS:
            raise UsageError(f"{path}: more than {MOST_LABELS:,} labels; a judge is measured by a sample")
    if not any(label.preferred != PREFERRED["tie"] for label in found.values()):
        raise UsageError(f"{path}: every label is a tie, so agreement cannot be measured; some prefer `a` or `b`")
    return tuple(found[name] for name in sorted(found))


def labels_sha256(labels: tuple[Label, ...]) -> str:
    """Of what they say, in the order of their ids."""
    return content_hash([[one.id, one.question, one.first, one.second, one.preferred] for one in labels])


def _label(where: str, body: dict[str, Any]) -> Label:
    for key in ("id", "question", "a", "b"):
        if not isinstance(body.get(key), str) or (key in ("id", "question") and not body[key]):
            raise UsageError(f"{where}: `{key}` must be a text, found {body.get(key)!r:.60}; a label is "
                             '{"id": …, "question": …, "a": …, "b": …, "preferred": "a", "b" or "tie"}')  # fmt: skip
    said = body.get("preferred")
    if not isinstance(said, str) or said not in PREFERRED:
        raise UsageError(f"{where}: `preferred` must be a, b or tie, found {said!r:.60}")
    if body["a"] == body["b"]:
        raise UsageError(f"{where}: `a` and `b` are equal, which tells nothing of a judge; leave the row out")
    if len(body["id"]) > 400:
        raise UsageError(f"{where}: `id` has {len(body['id'])} characters, 400 at most")
    return Label(id=body["id"], question=body["question"], first=body["a"], second=body["b"], preferred=PREFERRED[said])
