"""Labels by which a judge is measured: every row whole, each fault with its line."""

from __future__ import annotations

import json

import pytest

from qualgate.errors import UsageError
from qualgate.intake.preferences import labels_sha256, read_labels

ROW = {"id": "p1", "question": "q", "a": "one", "b": "two", "preferred": "a"}


def written(tmp_path, *rows):
    path = tmp_path / "labels.jsonl"
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def test_labels_come_by_id_with_what_people_prefer(tmp_path):
    rows = [ROW | {"id": "p2", "preferred": "b"}, ROW | {"by": "ana"}, ROW | {"id": "p3", "preferred": "tie"}]
    found = read_labels(written(tmp_path, *rows))
    assert [(one.id, one.first, one.second, one.preferred) for one in found] == [
        ("p1", "one", "two", 0.0), ("p2", "one", "two", 1.0), ("p3", "one", "two", 0.5),
    ]  # fmt: skip
    assert labels_sha256(found) == labels_sha256(read_labels(written(tmp_path, *reversed(rows))))
    assert labels_sha256(found) != labels_sha256(found[:2])


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([ROW, ROW], ":2: a second label with the id 'p1'"),
        ([ROW | {"preferred": "A"}], ":1: `preferred` must be a, b or tie, found 'A'"),
        ([ROW | {"preferred": 1}], ":1: `preferred` must be a, b or tie, found 1"),
        ([ROW | {"preferred": ["a"]}], ":1: `preferred` must be a, b or tie"),
        ([{key: value for key, value in ROW.items() if key != "b"}], ":1: `b` must be a text, found None"),
        ([ROW | {"question": ""}], ":1: `question` must be a text"),
        ([ROW | {"b": "one"}], ":1: `a` and `b` are equal"),
        ([ROW | {"preferred": "tie"}], "every label is a tie"),
        ([ROW | {"id": "x" * 401}], ":1: `id` has 401 characters"),
        (["[1]"], ":1: "),
        ([""], "is empty"),
    ],
)
def test_what_is_no_label_is_refused_with_its_line(tmp_path, rows, said):
    with pytest.raises(UsageError) as refused:
        read_labels(written(tmp_path, *rows))
    assert said in str(refused.value)
