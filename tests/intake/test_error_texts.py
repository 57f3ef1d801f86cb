"""An endpoint's error that a harness wrote where the answer stands: no answer (13), however it was scored."""

from __future__ import annotations

import json

import pytest

from qualgate.intake.error_texts import error_reader
from qualgate.intake.score_rows import read_score_rows
from qualgate.pipeline.score_files import choose_scorer, score_files
from tests.gate import planted
from tests.intake.score_files import body, code, exported, said

ERRORS = [
    "Error during inference: Request timed out.",
    "\n Error during inference: Error code: 429 - {'error': {'message': 'Rate limit reached'}}",
    "Error code: 503 - upstream connect error",
    "HTTP 502 Bad Gateway",
    "litellm.RateLimitError: RateLimitError: OpenAIException",
    "openai.APIConnectionError: Connection error.",
    "httpx.ReadTimeout: The read operation timed out",
    "Error: 503 Service Unavailable",
    '{"error": {"message": "Rate limit reached", "type": "requests"}}',
    "[Internal Server Error]",
    "Connection error.",
    "API Error: 500",
    "This model's maximum context length is 4096 tokens. However, you requested 5000",
    "CUDA out of memory. Tried to allocate 2.00 GiB",
]
ANSWERS = [
    "The error during inference is small.",
    "Error: the list is empty",
    "429",
    "Error: 404 means that the page is missing",
    '{"error": "no such city"}',
    "ValueError: no number",
    "Timeout is 30 seconds.",
    "Connection errors are retried by the client.",
    "requests.get(url)",
    "An internal error happens when …",
    "different",
    "",
    "Error code: 404 means that the page is missing",
    "502 Bad Gateway means that a server further on failed.",
    "Internal Server Error\n\nIt is the reply of a server that failed.",
    "openai.RateLimitError is raised where too much is asked.",
    "Rate limit error: too many calls.",
    "This model's maximum context length is 4096 tokens.",
]


@pytest.mark.parametrize("text", ERRORS)
def test_an_error_is_known_by_how_it_begins(text):
    assert error_reader()(text)


@pytest.mark.parametrize("text", ANSWERS)
def test_an_answer_that_speaks_of_errors_is_an_answer(text):
    assert not error_reader()(text)


@pytest.mark.parametrize("field", ["result", "model_result", "extracted", "error_type"])
def test_a_row_with_such_a_text_is_no_wrong_answer(tmp_path, field):
    files = exported(tmp_path, planted.run(n=60))
    lines = [json.loads(line) for line in files[2].read_text().splitlines()]
    text = "agentic:inference_error" if field == "error_type" else ERRORS[0]
    lines[0] |= {"metric": "exact_match", "value": 0, "verdict": False, field: text}
    files[2].write_text("".join(json.dumps(row) + "\n" for row in lines))
    exit, message = said(files)
    assert exit == 13
    assert "is an endpoint's error and no answer" in message


@pytest.mark.parametrize(
    "row",
    [{"value": 1, "verdict": True, "extracted": "502 Bad Gateway"}, {"reason": "Connection error."},
     {"tags": ["502 Bad Gateway"], "task": "502 Bad Gateway"}, {"extracted": ERRORS[0], "metric": "latency.e2e"}],
)  # fmt: skip
def test_an_error_beside_the_answer_or_that_is_right_fails_no_row(tmp_path, row):
    whole = {"id": "502 Bad Gateway", "metric": "exact_match", "value": 0, "case_hash": "h"} | row
    (tmp_path / "rows.jsonl").write_text(json.dumps(whole) + "\n")
    assert [one.failed for one in read_score_rows(tmp_path / "rows.jsonl").rows] == [""]


def test_an_answer_that_is_right_is_scored_although_it_reads_as_an_error(tmp_path):
    cases, outputs = tmp_path / "cases.jsonl", tmp_path / "outputs.jsonl"
    cases.write_text(json.dumps(body("1", "which?") | {"answer": "502 Bad Gateway"}) + "\n")
    outputs.write_text(json.dumps({"id": "1", "text": "502 Bad Gateway"}) + "\n")
    [row] = [row.as_json() for row in score_files(cases, outputs, choose_scorer("exact_match")).rows]
    assert (row["value"], "error" in row) == (1.0, False)


def test_outputs_that_are_scored_say_which_are_errors_and_which_are_empty(tmp_path):
    texts = {"1": ERRORS[0], "2": " \u200b\n", "3": "yes"}
    cases, outputs = tmp_path / "cases.jsonl", tmp_path / "outputs.jsonl"
    cases.write_text("".join(json.dumps(body(id, f"{id}?")) + "\n" for id in texts))
    outputs.write_text("".join(json.dumps({"id": id, "text": text}) + "\n" for id, text in texts.items()))
    rows = [row.as_json() for row in score_files(cases, outputs, choose_scorer("exact_match")).rows]
    assert [(row["value"], row.get("error"), row.get("unanswered")) for row in rows] == [
        (None, ERRORS[0], None), (0.0, None, "empty"), (1.0, None, None)
    ]  # fmt: skip
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = read_score_rows(tmp_path / "rows.jsonl").rows
    assert [(bool(row.failed), row.unanswered) for row in found] == [(True, ""), (False, "empty"), (False, "")]


def test_a_gate_file_adds_texts_of_its_own(tmp_path):
    files = exported(tmp_path, planted.run(n=60))
    lines = [json.loads(line) | {"output": "Upstream gone (3)"} for line in files[2].read_text().splitlines()]
    files[2].write_text("".join(json.dumps(row) + "\n" for row in lines))
    assert code(files) == 0
    gate = files[0].read_text()
    files[0].write_text(gate + '  error_texts: ["upstream GONE ("]\n')
    assert code(files) == 13
    lines = [row | {"value": 0, "verdict": False, "output": ERRORS[0]} if row["metric"] == "exact_match" else row
             for row in lines]  # fmt: skip
    files[2].write_text("".join(json.dumps(row) + "\n" for row in lines))
    assert code(files) == 13
    files[0].write_text(gate + "  error_texts: []\n")
    assert code(files) == 10
