"""Which dialect an answer or a template is in, and whose fault an unread answer is."""

from __future__ import annotations

import pytest

from qualgate.scoring.tools.dialects import registry
from qualgate.scoring.tools.dialects.blame import blame
from qualgate.scoring.tools.dialects.detect import detect, readers
from tests.scoring.tools.published import PING, PUBLISHED, SAME, TOOLS, WEATHER
from tests.tables import each_row

# Grammars of which a text alone cannot tell which it is: the first reads it, too.
FIRST = {"glm47": "glm45", "mistral_v11": "mistral", "hunyuan_a13b": "jamba", "llama4_pythonic": "llama4_pythonic"}
FIRST |= {"pythonic": "llama4_pythonic", "json": "llama3_json", "mimo": "qwen3_coder"}


@each_row("name", PUBLISHED)
def test_an_answer_is_recognised(name):
    for text in (PUBLISHED[name].one, PUBLISHED[name].two):
        assert name in readers(text, TOOLS)
    assert detect(text=PUBLISHED[name].one, tools=TOOLS) == FIRST.get(name, name)
    assert detect(text="It is sunny.") is None


TEMPLATES = {name: published.template for name, published in PUBLISHED.items() if published.template}


@each_row("name", TEMPLATES)
def test_a_template_is_recognised_and_goes_before_the_answer(name):
    assert detect(TEMPLATES[name]) == name
    assert detect(TEMPLATES[name], text=PUBLISHED["openai"].one) == name


def test_every_dialect_with_a_template_of_its_own_is_recognised():
    assert {*registry.names()} - {*TEMPLATES} == {*SAME, "glm47", "mimo", "openai", "json"}
    assert detect("{% for message in messages %}{{ message.content }}{% endfor %}") is None
    assert detect("{% for message in messages %}", text=PUBLISHED["openai"].one) == "openai"


def test_the_declared_dialect_reads_it_and_nobody_is_at_fault():
    result = blame(PUBLISHED["hermes"].two, "hermes", TOOLS)
    assert (result.culprit, result.calls, result.readers, result.error_type) == ("none", (WEATHER, PING), (), "")
    assert result.text == PUBLISHED["hermes"].two
    plain = blame("It is sunny.", "hermes", TOOLS)
    assert (plain.culprit, plain.calls, plain.tried) == ("none", (), registry.names())


@each_row("name", PUBLISHED)
@each_row("declared", ["hermes", "qwen3_coder", "llama3_json", "kimi_k2"])
def test_a_parser_of_another_dialect_is_at_fault(name, declared):
    text = PUBLISHED[name].one
    if declared in readers(text, TOOLS):
        return
    result = blame(text, declared, TOOLS)
    assert result.culprit == "parser"
    assert name in result.readers
    assert declared not in result.readers
    assert result.calls == (WEATHER,)
    assert result.tried == registry.names()
    assert result.error_type
    assert result.reason
    assert result.text is text


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('<tool_call>{"name": "ping", "arguments": {"a": "x}}</tool_call>', "unbalanced_quotes"),
        ('<tool_call>{"name": "ping", "arguments": {}}', "unbalanced"),
        ("<tool_call>ping</tool_call>", "not_json"),
        ('<tool_call>{"name": "ping<|channel|>", "arguments": {}}</tool_call>', "leaked_token"),
    ],
)
def test_what_no_dialect_reads_is_the_models_fault(text, word):
    result = blame(text, "hermes", [{"name": "book"}] if word == "not_json" else TOOLS)
    assert (result.culprit, result.error_type, result.readers, result.calls) == ("model", word, (), ())
    assert result.tried == registry.names()


def test_another_grammar_proves_something_only_when_it_calls_a_tool_that_exists():
    text = "<tool_call>launch\n</tool_call>"  # glm45, formally
    assert blame(text, "hermes", TOOLS).culprit == "model"
    assert blame(text.replace("launch", "ping"), "hermes", TOOLS).culprit == "parser"


def test_of_an_answer_in_two_dialects_the_calls_in_the_declared_one_count():
    first, second = PUBLISHED["hermes"].one, PUBLISHED["mistral"].one
    alone = registry.dialect("hermes").parse(first, TOOLS)
    assert alone
    assert registry.dialect("hermes").parse(first + second, TOOLS) == alone
