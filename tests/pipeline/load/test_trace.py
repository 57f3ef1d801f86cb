"""Traces of when requests came: rows of our own, and spans of OpenTelemetry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from qualgate.errors import UsageError
from qualgate.pipeline.load.prompts import places_in
from qualgate.pipeline.load.trace import Arrival, read_trace
from qualgate.records import Prompt, UnitKey

WHERE = "traffic.jsonl"


def written(folder: Path, *rows: Any) -> Path:
    (folder / WHERE).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return folder / WHERE


def test_rows_are_read_in_the_order_of_their_times(tmp_path):
    path = written(tmp_path, {"at": 3}, {"at": 0.5, "case": "c", "evalset": "s", "max_tokens": 12})
    assert read_trace(path) == (Arrival(at=0.5, case="c", evalset="s", max_tokens=12), Arrival(at=3.0))


def test_spans_come_when_they_began_and_answer_as_long_as_they_did(tmp_path):
    listed = [
        {"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}},
        {"key": "gen_ai.usage.output_tokens", "value": {"intValue": "40"}},
    ]
    path = written(
        tmp_path,
        {"name": "chat m", "startTimeUnixNano": "1700000000250000000", "attributes": listed},
        {"start_time_unix_nano": 1_700_000_001_000_000_000, "attributes": {"gen_ai.request.max_tokens": 9}},
        {"startTimeUnixNano": "1700000002000000000", "attributes": {"gen_ai.operation.name": "execute_tool"}},
        {"startTimeUnixNano": "1700000003000000000"},
    )
    found = read_trace(path)
    assert [one.max_tokens for one in found] == [40, 9, None]
    assert [one.at - found[0].at for one in found] == pytest.approx([0.0, 0.75, 2.75])


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"at": "3"}, "`at` is when the request comes"),
        ({"at": True}, "`at` is when"),
        ({}, "`at` is when"),
        ({"at": 1, "tokens": 3}, "unknown key 'tokens'"),
        ({"at": 1, "case": 4}, "`case` is a text"),
        ({"at": 1, "max_tokens": 0}, "`max_tokens` is a whole number from 1"),
        ({"at": 1, "max_tokens": 2.5}, "`max_tokens` is a whole number"),
        ({"at": 10**400}, "`at` is when"),
        ({"startTimeUnixNano": -4}, "whole number of nanoseconds"),
        ({"startTimeUnixNano": "9" * 400}, "whole number of nanoseconds"),
        ({"startTimeUnixNano": "soon"}, "whole number of nanoseconds"),
        ({"startTimeUnixNano": 5, "attributes": [{"key": "a"}]}, "`attributes` is"),
        ({"startTimeUnixNano": 5, "attributes": {"gen_ai.usage.output_tokens": -4}}, "output_tokens` is a whole"),
    ],
)
def test_a_row_that_is_no_arrival_is_told_with_its_line(tmp_path, row, told):
    path = written(tmp_path, {"at": 0}, row)
    with pytest.raises(UsageError, match=told) as refused:
        read_trace(path)
    assert WHERE in str(refused.value)


def test_one_request_is_no_trace(tmp_path):
    with pytest.raises(UsageError, match="two requests or more, found 1"):
        read_trace(written(tmp_path, {"at": 1}))


def test_a_number_that_is_none_is_refused(tmp_path):
    path = tmp_path / WHERE
    path.write_text('{"at": 0}\n{"at": NaN}\n')
    with pytest.raises(UsageError, match=f"{WHERE}:2"):
        read_trace(path)


def prompts(*named: tuple[str, str]) -> list[Prompt]:
    return [Prompt(key=UnitKey("x", *one), case_hash="h", token_ids=(), max_new_tokens=9) for one in named]


def test_arrivals_that_name_a_case_ask_it():
    trace = Arrival(at=0), Arrival(at=1, case="c"), Arrival(at=2, case="d", evalset="t")
    assert places_in(prompts(("s", "c"), ("s", "d"), ("t", "d")), trace, WHERE) == {1: 0, 2: 2}


@pytest.mark.parametrize(("case", "told"), [("e", "no evalset of the gate file has"), ("d", "several evalsets have")])
def test_a_case_that_is_not_there_or_not_one_is_refused(case, told):
    with pytest.raises(UsageError, match=told):
        places_in(prompts(("s", "d"), ("t", "d")), [Arrival(at=0, case=case)], WHERE)
