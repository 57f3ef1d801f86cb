"""Which dialect an answer or a template is in, and whose fault an unread answer is."""

from __future__ import annotations

import pytest

from qualgate.scoring.tools.dialects import registry
from qualgate.scoring.tools.dialects.detect import of_template, other_readings, readings
from tests.scoring.tools.published import PUBLISHED, SAME, TOOLS, WEATHER
from tests.tables import each_row

# Grammars of which a text alone cannot tell which it is: the first reads it, too.
FIRST = {"glm47": "glm45", "mistral_v11": "mistral", "hunyuan_a13b": "jamba", "llama4_pythonic": "llama4_pythonic"}
FIRST |= {"pythonic": "llama4_pythonic", "json": "llama3_json", "mimo": "qwen3_coder"}


@each_row("name", PUBLISHED)
def test_an_answer_is_recognised(name):
    for text in (PUBLISHED[name].one, PUBLISHED[name].two):
        assert name in readings(text, TOOLS)
    assert next(iter(readings(PUBLISHED[name].one, TOOLS))) == FIRST.get(name, name)
    assert readings("It is sunny.") == {}


TEMPLATES = {name: published.template for name, published in PUBLISHED.items() if published.template}


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_is_recognised(name):
    assert of_template(TEMPLATES[name])[0] == name


def test_every_dialect_with_a_template_of_its_own_is_recognised():
    assert {*registry.names()} - {*TEMPLATES} == {*SAME, "glm47", "mimo", "openai", "json"}
    assert of_template("{% for message in messages %}{{ message.content }}{% endfor %}") == ("", "")


def test_where_the_declared_dialect_reads_calls_no_other_counts():
    assert other_readings(PUBLISHED["hermes"].two, "hermes", TOOLS) == {}
    assert other_readings(PUBLISHED["hermes"].one + PUBLISHED["mistral"].one, "hermes", TOOLS) == {}


@each_row("name", PUBLISHED)
@each_row("declared", ["hermes", "qwen3_coder", "llama3_json", "kimi_k2"])
def test_a_parser_of_another_dialect_is_at_fault(name, declared):
    text = PUBLISHED[name].one
    if declared in readings(text, TOOLS):
        return
    others = other_readings(text, declared, TOOLS)
    assert name in others
    assert declared not in others
    assert next(iter(others.values())) == (WEATHER,)


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "ping", "arguments": {"a": "x}}</tool_call>',
        '<tool_call>{"name": "ping", "arguments": {}}',
        '<tool_call>{"name": "ping<|channel|>", "arguments": {}}</tool_call>',
        "It is sunny.",
    ],
)
def test_what_no_dialect_reads_is_no_parsers_fault(text):
    assert other_readings(text, "hermes", TOOLS) == {}


def test_another_grammar_proves_something_only_when_it_calls_a_tool_that_exists():
    text = "<tool_call>launch\n</tool_call>"  # glm45, formally
    assert other_readings(text, "hermes", TOOLS) == {}
    assert other_readings(text.replace("launch", "ping"), "hermes", TOOLS)
    assert other_readings("<tool_call>ping</tool_call>", "hermes", [{"name": "book"}]) == {}
