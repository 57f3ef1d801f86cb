"""What a server executes of an answer: its own calls decide, or what its parser reads of a text."""

from __future__ import annotations

import pytest

from qualgate.errors import UsageError
from qualgate.pipeline.score_files import choose_scorer
from qualgate.records import Case, Evalset
from qualgate.scoring import score
from qualgate.scoring.outcome import MAX_ANSWER
from qualgate.scoring.registry import apply, find, in_dialect
from qualgate.scoring.tools.case_faults import tool_faults
from qualgate.scoring.tools.served import METRIC, today
from tests.served_environments import served_by, stand_in

PING = {"name": "ping", "parameters": {"type": "dict", "properties": {}, "required": []}}
OPEN = '<tool_call>{"name": "ping", "arguments": {}}'
SCORER = "tool_call.served/5 vllm 9.8.7"
SET = Evalset(
    name="s", version="1", metrics=("tool_call.correct", METRIC, "tool_call.compat"), cases=(), sha256="0" * 64
)


def case_of(**more) -> Case:
    body = {"id": "c", "task": "tool_call", "prompt": "?", "max_new_tokens": 64, "tools": [PING], "dialect": "hermes"}
    return Case(evalset="s", body=body | {"expected_calls": [{"ping": {}}]} | more)


def by_parser(text: str, **more):
    return find("tool_call", "served").function(case_of(served_by=served_by(), **more), SET, text)[METRIC]


def test_a_row_names_the_server_and_says_what_its_parser_forgave():
    one = by_parser(OPEN)
    assert (one.value, one.scorer) == (1.0, SCORER)
    assert one.reason.startswith("vllm 9.8.7 forgave unbalanced")
    assert by_parser(f"{OPEN}</tool_call>").reason == ""


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("No.", "no_call"),
        (OPEN.replace("ping", "pong"), "unknown_tool"),
        ("<tool_call>NO JSON", "not_json"),
        ('<tool_call>{"name": "ping", "arguments": [1]}', "call_shape"),
        (OPEN * 2, "parser_failed"),
        ("RAISE", "parser_failed"),
    ],
)
def test_what_is_executed_is_judged_and_what_the_parser_fails_at_is_null(text, word):
    one = by_parser(text)
    assert one.error_type == word
    assert one.scorer == SCORER
    assert one.verdict is (None if word == "parser_failed" else False)


@pytest.mark.parametrize(
    ("said", "word", "why"),
    [
        ({}, "no_served_reading", "no `served_by`"),
        ({"served_by": "vllm"}, "no_served_reading", "must name `engine`"),
        ({"served_by": {"engine": "vllm", "python": "/no/such"}}, "no_parser", "does not run as a Python interpreter"),
    ],
)
def test_nothing_is_known_where_no_server_can_be_asked(said, word, why):
    one = find("tool_call", "served").function(case_of(**said), SET, OPEN)[METRIC]
    assert (one.value, one.verdict, one.error_type) == (None, None, word)
    assert why in one.reason


def test_a_parser_reads_the_dialect_that_it_is_told():
    one = by_parser(OPEN, dialect="auto")
    assert (one.value, one.error_type) == (None, "no_served_reading")
    assert "KeyError: 'kimi_k2'" in by_parser(OPEN, dialect="kimi_k2").reason


@pytest.mark.parametrize(
    ("calls", "verdict", "word"),
    [
        ((("ping", "{}"),), True, ""),
        ((), False, "no_call"),
        ((("ping", "{"),), False, "not_json"),
        ((("ping", "[]"),), False, "call_shape"),
    ],
)
def test_calls_that_a_server_gave_decide_whatever_its_text_says(calls, verdict, word):
    rows = {one.metric: one for one in score(case_of(), SET, "No call.", "stop", (), calls)}
    assert (rows[METRIC].verdict, rows[METRIC].error_type) == (verdict, word)
    assert rows[METRIC].scorer == "tool_call.served/5 its server"
    assert rows["tool_call.correct"].verdict is False


def test_harmony_is_read_as_by_a_server_whose_tool_parser_is_on():
    """vLLM 0.32's reads no calls until it is given the tool parser that `--tool-call-parser` names."""
    text = "<|channel|>commentary to=functions.ping <|constrain|>json<|message|>{}<|call|>"
    assert by_parser(text, dialect="harmony").verdict is True


def test_a_set_that_names_all_three_readings_gets_a_row_of_each():
    rows = {one.metric: one for one in score(case_of(served_by=served_by()), SET, OPEN, "eos")}
    assert {name: (row.value, row.scorer) for name, row in rows.items()} == {
        "tool_call.correct": (0.0, "tool_call/9"),
        METRIC: (1.0, SCORER),
        "tool_call.compat": (0.0, "tool_call.compat/3"),
    }


@pytest.mark.parametrize("said", ["vllm", ["vllm"], {"engine": "tgi", "python": "/p"}, {"engine": "vllm"},
                                  {"engine": "vllm", "python": "p"}, None])  # fmt: skip
def test_a_server_that_cannot_be_read_is_a_fault(said):
    [fault] = tool_faults(case_of(served_by=said, expected_calls=[]).body, SET)
    assert "`served_by` must name `engine` (vllm or sglang) and `python`" in fault


def test_an_answer_that_is_too_long_is_scored_by_the_same_server():
    short, long = (
        apply(find("tool_call", "served"), case_of(served_by=served_by()), SET, text)[METRIC]
        for text in ("No.", " " * (MAX_ANSWER + 1))
    )
    assert (long.error_type, long.scorer) == ("too_long", short.scorer)


def test_the_served_reading_is_a_mode_that_is_told_a_server_and_a_dialect():
    one = choose_scorer("tool_call", "served", dialect="hermes", served_by=f"vllm:{stand_in()}")
    row = one.function(Case(evalset="s", body={**case_of().body, "dialect": "hermes"}), SET, OPEN)[METRIC]
    assert (row.verdict, row.scorer) == (True, f"{SCORER} hermes")
    assert in_dialect(find("tool_call", "served"), "hermes").dialect == "hermes"


@pytest.mark.parametrize(
    ("mode", "said", "why"),
    [
        ("strict", "vllm:/p", "asks no server"),
        ("served", "tgi:/p", "vllm:PYTHON or sglang:PYTHON"),
        ("served", "vllm", "vllm:PYTHON or sglang:PYTHON"),
        ("served", "vllm:/no/such", "does not run as a Python interpreter"),
    ],
)
def test_a_server_that_cannot_be_asked_is_refused_before_any_row_is_scored(mode, said, why):
    with pytest.raises(UsageError, match=why):
        choose_scorer("tool_call", mode, served_by=said)


def test_a_stored_score_keeps_the_server_that_read_for_it():
    now = "tool_call.served/5"
    for stored in (SCORER, f"{now} its server", f"{now} sglang 0.5.23", now):
        assert today(stored, now) == stored
    assert today("tool_call.served/4 vLLM 0.33.0", now) == f"{now} vLLM 0.33.0"
    assert today("numeric/3", "numeric/4") == "numeric/4"
