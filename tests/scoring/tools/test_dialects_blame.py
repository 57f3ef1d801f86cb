"""Which dialect an answer or a template is in, whose fault an unread answer is, and dialects of other distributions."""

from __future__ import annotations

from pathlib import Path

import pytest

from qualgate.errors import UsageError
from qualgate.scoring.tools.dialects import Call, Dialect, registry
from qualgate.scoring.tools.dialects.blame import blame
from qualgate.scoring.tools.dialects.detect import detect, readers
from tests.scoring.tools.test_dialects import PING, PUBLISHED, SAME, TOOLS, WEATHER

# Grammars of which a text alone cannot tell which it is: the first reads it, too.
FIRST = {"glm47": "glm45", "mistral_v11": "mistral", "hunyuan_a13b": "jamba", "llama4_pythonic": "llama4_pythonic"}
FIRST |= {"pythonic": "llama4_pythonic", "json": "llama3_json", "mimo": "qwen3_coder"}


@pytest.mark.parametrize("name", PUBLISHED)
def test_an_answer_is_recognised(name):
    for text in PUBLISHED[name][1:]:
        assert name in readers(text, TOOLS)
    assert detect(text=PUBLISHED[name][1], tools=TOOLS) == FIRST.get(name, name)
    assert detect(text="It is sunny.") is None


# What the published templates hold, in a line each; the templates themselves were checked outside of this suite.
TEMPLATES = {
    "hermes": '<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call><|im_end|>',
    "qwen3_coder": "<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>\n",
    "glm45": "<tool_call>{function-name}\n<arg_key>{arg-key-1}</arg_key>\n<arg_value>{arg-value-1}</arg_value>",
    "hunyuan_v3": "<tool_calls>\n<tool_call>{name}<tool_sep>\n<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>",
    "minimax_m2": "{%- set toolcall_begin_token = '<minimax:tool_call>' -%}",
    "minimax_m1": "respond with <tool_calls></tool_calls> XML tags<end_of_sentence>\n<beginning_of_sentence>user name=",
    "jamba": "{{ '<|bom|><|assistant|> ' }}{{ '<tool_calls>[\n' }}",
    "hunyuan_a13b": '<tool_calls>[{"name": "…", "arguments": {}}]</tool_calls>',
    "granite": "<|start_of_role|>assistant … respond with <|tool_call|> followed by a JSON list of tools used.",
    "granite_20b_fc": '<function_call> {"name": …',
    "mistral": "{{- '[TOOL_CALLS] [' }}",
    "mistral_v11": "{{- '[TOOL_CALLS]' + tool['function']['name'] + '[ARGS]' + arguments }}",
    "deepseek_v3": "'<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + tool['type'] + '<｜tool▁sep｜>'"
    " + name + '\n```json\n'",
    "deepseek_v31": "'<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>'+ name + '<｜tool▁sep｜>' + arguments",
    "kimi_k2": "<|tool_calls_section_begin|>{%- for tool_call in message['tool_calls'] -%}<|tool_call_begin|>",
    "phi4_mini": "{{ '<|' + message['role'] + '|>' + content + '<|tool|>' + message['tools'] + '<|/tool|>' }}",
    "internlm2": "<|action_start|><|plugin|>",
    "nemotron": 'use the following format:\n<TOOLCALL>[{"name": "tool_name1", "arguments": "tool_args1"}]</TOOLCALL>',
    "cohere_command": "1. Action: write <|START_ACTION|> followed by a list of JSON-formatted tool calls",
    "functiongemma": "{{ '<start_function_call>call:' + function['name'] + '{' }}",
    "harmony": '{{- "<|start|>assistant to=" }}{{- "functions." + name + "<|channel|>commentary json" }}<|call|>',
    "llama3_json": "{{- '<|python_tag|>' + tool_call.name + '.call(' }}",
    "llama4_pythonic": "<|header_start|> [func_name1(params_name1=params_value1, params_name2=params_value2...)]",
    "pythonic": "You MUST put it in the format of [func_name1(params_name1=params_value1)]",
    "xlam": '[{"name": "tool_call_name", "arguments": {"arg1": "value1"}}]',
    "deepseek_v32": '{%- set dsml_token = "｜DSML｜" -%} writing a "<{{ dsml_token }}function_calls>" block',
    "deepseek_v4": 'You can invoke tools by writing a "<｜DSML｜tool_calls>" block like the following',
    "deepseek_v41": 'writing a "<｜DSML｜ calls>" block: <｜DSML｜ invoke name="$TOOL_NAME">',
    "kimi_k3": "{{- '<|open|>' + tag -}}{{- '<|sep|>' -}}{{- '<|close|>' + tag + '<|sep|>' -}}",
    "minimax_m3": "{%- set ns_token = ']<]minimax[>[' -%}<tool_call>",
    "gemma4": "{{- '<|tool_call>call:' + function['name'] + '{' -}}{{- '}<tool_call|>' -}}",
    "seed_oss": "{%- set toolcall_begin_token = '<seed:tool_call>' -%}<function= <parameter=",
    "longcat": '<longcat_tool_call>\n{"name": <function-name>, "arguments": <args-dict>}\n</longcat_tool_call>',
    "dots": '<dots_function_call>\n<invoke name="$FUNCTION_NAME">',
    "step3": '<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="...">',
    "plamo3": "<|plamo:begin_tool_requests:plamo|><|plamo:begin_tool_request:plamo|>",
    "inkling": "{{- '<|message_model|><|content_invoke_tool_json|>' -}}",
    "apertus": "{{- '<|tools_prefix|>[' -}}",
    "gigachat3": "{%- set role_sep = '<|role_sep|>\\n' -%}{'role': 'function call', 'content': …}",
    "lfm2": '{{- "<|tool_call_start|>[" + (tool_calls | join(", ")) + "]<|tool_call_end|>" -}}',
    "minicpm5": '<function name="function-name"><param name="param-name">value</param></function>',
    "hy_v4": "{{- '<tool_calls' + part + '>' }}{{- '<tool_call' + part + '>' + name }}{{- '<arg_key' + part + '>' }}",
    "k2_horizon": "{{- '<ifm|tool_calls>' }}{{- '<ifm|tool_call>' + tool_call.name }}",
    "olmo3": "Available functions: <functions>[]</functions> … <function_calls>f(a=1)</function_calls>",
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_is_recognised_and_goes_before_the_answer(name):
    assert detect(TEMPLATES[name]) == name
    assert detect(TEMPLATES[name], text=PUBLISHED["openai"][1]) == name


def test_every_dialect_with_a_template_of_its_own_is_recognised():
    assert {*registry.names()} - {*TEMPLATES} == {*SAME, "glm47", "mimo", "openai", "json"}
    assert detect("{% for message in messages %}{{ message.content }}{% endfor %}") is None
    assert detect("{% for message in messages %}", text=PUBLISHED["openai"][1]) == "openai"


def test_the_declared_dialect_reads_it_and_nobody_is_at_fault():
    result = blame(PUBLISHED["hermes"][2], "hermes", TOOLS)
    assert (result.culprit, result.calls, result.readers, result.error_type) == ("none", (WEATHER, PING), (), "")
    assert result.text == PUBLISHED["hermes"][2]
    plain = blame("It is sunny.", "hermes", TOOLS)
    assert (plain.culprit, plain.calls, plain.tried) == ("none", (), registry.names())


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("declared", ["hermes", "qwen3_coder", "llama3_json", "kimi_k2"])
def test_a_parser_of_another_dialect_is_at_fault(name, declared):
    text = PUBLISHED[name][1]
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


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Makes a distribution with one entry point that Python sees as installed."""

    def make(distribution: str, name: str, target: str, source: str = "") -> None:
        folder = tmp_path / f"{distribution}-1.2.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.2\n")
        (folder / "entry_points.txt").write_text(f"[qualgate.dialects]\n{name} = {target}\n")
        if source:
            (tmp_path / f"{target.split(':')[0]}.py").write_text(source, encoding="utf-8")

    def forget() -> None:
        registry._plugins.cache_clear()
        registry.dialect.cache_clear()

    monkeypatch.syspath_prepend(str(tmp_path))
    forget()
    yield make
    monkeypatch.undo()
    forget()


TEMPLATE = (Path(__file__).parents[1] / "plugin_template" / "acme_dialect.py").read_text(encoding="utf-8")


def test_a_distribution_adds_a_dialect_in_thirty_lines(install):
    assert len(TEMPLATE.splitlines()) <= 30
    install("acme-models", "acme", "acme_dialect_a:ACME", TEMPLATE)
    acme = registry.dialect("acme")
    assert isinstance(acme, Dialect)
    assert registry.names()[-1] == "acme"
    calls = (Call("f", {"a": [1, "⟧"[:0]]}), Call("ping", {}))
    assert acme.parse(f"Sure: {acme.serialise(calls)}") == calls
    assert detect(text='⟦call f {"a": 1}⟧') == "acme"
    assert blame('⟦call ping {"a": 1}⟧', "hermes", TOOLS).readers == ("acme",)


@pytest.mark.parametrize(
    ("target", "source", "words"),
    [
        ("acme_dialect_missing:ACME", "", "raises ModuleNotFoundError"),
        ("acme_dialect_b:ACME", "ACME = 1 / 0", "raises ZeroDivisionError"),
        ("acme_dialect_c:ACME", "ACME = 'a text'", "is a str"),
        ("acme_dialect_d:ACME", TEMPLATE.replace('name="acme"', 'name="other"'), "is a Dialect called 'other'"),
    ],
)
def test_a_broken_distribution_is_named(install, target, source, words):
    install("acme-models", "acme", target, source)
    with pytest.raises(UsageError) as caught:
        registry.dialect("acme")
    assert "the package acme-models 1.2" in str(caught.value)
    assert words in str(caught.value)
    assert registry.dialect("hermes").name == "hermes"


def test_no_distribution_takes_a_name_that_is_taken(install):
    install("acme-models", "hermes", "acme_dialect_e:ACME", TEMPLATE)
    with pytest.raises(UsageError, match=r"acme-models 1\.2 offers 'hermes' as qualgate\.dialects"):
        registry.names()


def test_two_distributions_of_one_dialect_are_both_named(install):
    install("acme-models", "acme", "acme_dialect_f:ACME", TEMPLATE)
    install("other-models", "acme", "acme_dialect_f:ACME")
    with pytest.raises(UsageError, match=r"(acme|other)-models 1\.2 and .*(acme|other)-models 1\.2 both offer"):
        registry.names()


def test_an_unknown_dialect_is_refused_with_the_nearest_name():
    with pytest.raises(UsageError, match="did you mean hermes"):
        registry.dialect("hermess")


def test_of_an_answer_in_two_dialects_the_calls_in_the_declared_one_count():
    first, second = PUBLISHED["hermes"][1], PUBLISHED["mistral"][1]
    alone = registry.dialect("hermes").parse(first, TOOLS)
    assert alone
    assert registry.dialect("hermes").parse(first + second, TOOLS) == alone
