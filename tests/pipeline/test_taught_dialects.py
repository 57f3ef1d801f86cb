"""`dialect: auto` names the dialect of the baseline's chat template, in every case and before anything is generated."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qualgate import evalsets
from qualgate.pipeline.taught_dialects import with_dialects
from qualgate.quant.model_folder import read_tokenizer_folder
from qualgate.scoring import score
from tests.pipeline.outputs import write
from tests.served_environments import served_by
from tests.tiny_models import save_byte_tokenizer

CASE = {"messages": [{"role": "user", "content": "Q"}], "max_new_tokens": 8, "tools": [{"name": "f", "parameters": {}}],
        "expected_calls": [{"name": "f", "arguments": {}}]}  # fmt: skip
MISTRAL = '[TOOL_CALLS][{"name": "f", "arguments": {}}]'


def a_set(folder, dialect: str = "auto") -> evalsets.Evalset:
    write(folder / "calls.jsonl", [{**CASE, "id": "a"}])
    (folder / "calls.yaml").write_text(
        f"name: calls\nversion: '1'\nmetrics: [tool_call.correct, tool_call.served]\ndialect: {dialect}\n"
    )
    return evalsets.load("./calls.yaml", folder)


def model(folder, template: str):
    (folder / "model").mkdir()
    save_byte_tokenizer(folder / "model")
    (folder / "model" / "chat_template.jinja").write_text(template)
    return read_tokenizer_folder(folder / "model")


@pytest.mark.parametrize(
    ("template", "name", "saw"),
    [
        ("<seed:tool_call>", "seed_oss", "dialect is seed_oss: its template writes <seed:tool_call>"),
        ("[TOOL_CALLS]x[ARGS]", "mistral_v11", "dialect is mistral_v11: its template writes [TOOL_CALLS] and [ARGS]"),
        ("{{ messages }}", "auto", "dialect stays auto: its template writes the markers of none"),
    ],
)
def test_a_template_names_the_dialect_and_what_it_was_told_by(tmp_path, template, name, saw):
    told: list[str] = []
    asked = a_set(tmp_path)
    [found] = with_dialects([asked], model(tmp_path, template), told.append)
    assert [case.body["dialect"] for case in found.cases] == [name]
    assert told[0].startswith(f"calls: {saw}")
    assert found.content == asked.content, "the set is the one of the file"


def test_a_dialect_that_was_told_is_read_strictly_and_by_a_servers_parser(tmp_path):
    [found] = with_dialects([a_set(tmp_path)], model(tmp_path, "<tool_call>"), lambda line: None)
    case = replace(found.cases[0], body={**found.cases[0].body, "served_by": served_by()})
    rows = score(case, found, '<tool_call>\n{"name": "f", "arguments": {}}', "eos")
    assert [(row.metric, row.verdict) for row in rows] == [("tool_call.correct", False), ("tool_call.served", True)]


def test_a_declared_dialect_stays_and_nothing_is_said(tmp_path):
    asked = a_set(tmp_path, "mistral")
    assert with_dialects([asked], model(tmp_path, "<tool_call>"), pytest.fail) == (asked,)


def test_a_server_that_renders_prompts_tells_of_no_dialect(tmp_path):
    told: list[str] = []
    [found] = with_dialects([a_set(tmp_path)], None, told.append)
    assert found.cases[0].body["dialect"] == "auto"
    assert score(found.cases[0], found, MISTRAL, "eos")[0].verdict is True
    assert "its server renders prompts" in told[0]
