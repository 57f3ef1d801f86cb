"""The cases of the first hour, and the oracle that counts what is right."""

from __future__ import annotations

import json

from tests.verification.first_hour.cases import shapes


def test_five_shapes_ask_seventy_cases_or_more_each_of_which_is_another():
    asked = [{json.dumps(row) for row in shape.rows} for shape in shapes()]
    assert [len(rows) == len(shape.rows) >= 70 for rows, shape in zip(asked, shapes(), strict=True)] == [True] * 5


def test_the_oracle_tells_right_from_wrong():
    sentences, several, prompts, as_json, tools = shapes()
    call = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "%s"}}\n</tool_call>'
    for shape, right, wrong in (
        (sentences, "It is Paris.", "It is Parisian."),
        (several, "paris", "Rome"),
        (as_json, '```json\n{"country": "France", "capital": "Lyon"}\n```', '{"country": "France"}'),
        (tools, call % "Paris", call % "Rome"),
    ):
        verdicts = [shape.right(shape.rows[0], text, True) for text in (right, wrong)]
        assert verdicts == [True, False], shape.name
    assert [prompts.right({}, "Bread is food.", ended) for ended in (True, False)] == [True, False]
