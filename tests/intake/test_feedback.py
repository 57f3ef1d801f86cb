"""What users said: names no answers it is about, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qualgate.errors import UsageError
from qualgate.intake.feedback import corrections, read_feedback
from qualgate.records import UnitKey
from tests.gate.four import alike, evidence

HASH = "0" * 63 + "4"  # of int4's answers in `evidence`
SECONDS = {"baseline": 1.0, "int4": 1.0, "drafted": 1.0, "int4+drafted": 1.0}


def event(case: str, **changes) -> dict:
    return {"arm": "int4", "evalset": "code", "case_id": case, "answer_sha256": HASH, "corrected": True} | changes


def written(folder: Path, *events) -> Path:
    path = folder / "feedback.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in events), encoding="utf-8")
    return path


def test_an_event_speaks_of_the_answer_it_names_and_of_no_other(tmp_path):
    path = written(
        tmp_path,
        event("c-0000"),
        event("c-0000"),  # said twice
        event("c-0001", corrected=False),
        event("c-0001", corrected=True, time="later", kind="edit"),
        event("c-0002", answer_sha256="f" * 64),  # of another answer
        event("c-0003", run="other"),
        event("c-0004", run="r", answer_sha256="", corrected=False),
        event("c-9999"),  # of no case of this run
    )
    found = corrections(read_feedback(path), evidence(alike(30), SECONDS))
    assert found == {
        UnitKey("int4", "code", "c-0000"): True,
        UnitKey("int4", "code", "c-0001"): True,
        UnitKey("int4", "code", "c-0004"): False,
    }


def test_the_file_is_known_by_its_bytes(tmp_path):
    one = read_feedback(written(tmp_path, event("c-0000"))).sha256
    assert one == read_feedback(written(tmp_path, event("c-0000"))).sha256
    assert one != read_feedback(written(tmp_path, event("c-0001"))).sha256


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"corrected": 1}, "`corrected` must be true or false"),
        ({"corrected": None}, "`corrected` must be true or false"),
        ({"arm": ""}, "`arm` must be a text"),
        ({"case_id": 7}, "`case_id` must be a text"),
        ({"repeat": -1}, "`repeat` must be a whole number"),
        ({"answer_sha256": "XY"}, "64 hexadecimal digits"),
        ({"answer_sha256": ""}, "names no answer"),
    ],
)
def test_an_event_that_says_too_little_is_refused_with_its_line(tmp_path, changes, message):
    with pytest.raises(UsageError, match=f"feedback.jsonl:2: .*{message}"):
        read_feedback(written(tmp_path, event("c-0000"), event("c-0001", **changes)))


@pytest.mark.parametrize("text", ["", "[]\n", "{\n", '{"arm": "a", "arm": "b"}\n'])
def test_what_is_no_list_of_events_is_refused(tmp_path, text):
    path = tmp_path / "feedback.jsonl"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"feedback\.jsonl"):
        read_feedback(path)
