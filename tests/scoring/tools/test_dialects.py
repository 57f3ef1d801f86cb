"""Each dialect reads what its published template or parser says a model writes.

The texts are written here by hand, after the source each dialect names, never with our own serialiser; outside of this
suite the same formats were read by vLLM's and SGLang's parsers, too.
"""

from __future__ import annotations

import contextlib

import pytest

from qualgate.scoring.tools.dialects import MAX_CALLS, BadCall, Call
from qualgate.scoring.tools.dialects.registry import dialect, names
from qualgate.scoring.tools.served_values import json_or_literal
from tests.scoring.tools.published_2026 import NEWER

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string"},
                    "days": {"type": "integer"},
                    "metric": {"type": "boolean"},
                    "near": {"anyOf": [{"type": "array"}, {"type": "null"}]},
                },
            },
        },
    },
    {"name": "ping"},
]
ARGUMENTS = {"city": 'São "Paulo"', "days": 3, "metric": True, "near": [1.5, {"k": None}]}
WEATHER, PING = Call("get_weather", ARGUMENTS), Call("ping", {})
JSON = r'{"city": "São \"Paulo\"", "days": 3, "metric": true, "near": [1.5, {"k": null}]}'
CALL = f'{{"name": "get_weather", "arguments": {JSON}}}'
LLAMA = f'{{"name": "get_weather", "parameters": {JSON}}}'
NO_ARGUMENTS = '{"name": "ping", "arguments": {}}'
QWEN = (
    '<tool_call>\n<function=get_weather>\n<parameter=city>\nSão "Paulo"\n</parameter>\n<parameter=days>\n3\n'
    '</parameter>\n<parameter=metric>\nTrue\n</parameter>\n<parameter=near>\n[1.5, {"k": null}]\n'
    "</parameter>\n</function>\n</tool_call>"
)
PAIRS = (
    '<arg_key>city</arg_key>\n<arg_value>São "Paulo"</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n'
    "<arg_key>metric</arg_key>\n<arg_value>true</arg_value>\n<arg_key>near</arg_key>\n"
    '<arg_value>[1.5, {"k": null}]</arg_value>\n'
)
PYTHON = "get_weather(city='São \"Paulo\"', days=3, metric=True, near=[1.5, {'k': None}])"

# name → (part of its source, an answer with one call, an answer with that call and ping)
PUBLISHED: dict[str, tuple[str, str, str]] = {
    "hermes": (
        "hermes_tool_parser.py",
        f"<tool_call>\n{CALL}\n</tool_call>",
        f"Let me see.\n<tool_call>\n{CALL}\n</tool_call>\n<tool_call>\n{NO_ARGUMENTS}\n</tool_call><|im_end|>",
    ),
    "qwen3_coder": (
        "qwen3_coder_detector.py",
        QWEN,
        f"{QWEN}\n<tool_call>\n<function=ping>\n</function>\n</tool_call>",
    ),
    "glm45": (
        "GLM-4.6.jinja",
        f"<tool_call>get_weather\n{PAIRS}</tool_call>",
        f"<think>\nhm\n</think>\n<tool_call>get_weather\n{PAIRS}</tool_call>\n<tool_call>ping\n</tool_call>",
    ),
    "glm47": (
        "glm47_moe",
        f"<tool_call>get_weather{PAIRS.replace(chr(10), '')}</tool_call>",
        f"<tool_call>get_weather{PAIRS.replace(chr(10), '')}</tool_call><tool_call>ping</tool_call>",
    ),
    "hunyuan_v3": (
        "hunyuan_detector.py",
        f"<tool_calls>\n<tool_call>get_weather<tool_sep>\n{PAIRS}</tool_call>\n</tool_calls>",
        f"<tool_calls>\n<tool_call>get_weather<tool_sep>\n{PAIRS}</tool_call>\n<tool_call>ping<tool_sep></tool_call>\n</tool_calls>",
    ),
    "minimax_m2": (
        "MiniMax-M2.jinja",
        '<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">São "Paulo"</parameter>\n'
        '<parameter name="days">3</parameter>\n<parameter name="metric">true</parameter>\n'
        '<parameter name="near">[1.5, {"k": null}]</parameter>\n</invoke>\n</minimax:tool_call>',
        '<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">São "Paulo"</parameter>\n'
        '<parameter name="days">3</parameter>\n<parameter name="metric">true</parameter>\n'
        '<parameter name="near">[1.5, {"k": null}]</parameter>\n</invoke>\n<invoke name="ping">\n</invoke>\n'
        "</minimax:tool_call>[e~[",
    ),
    "granite": ("parser/granite.py", f"<|tool_call|>[{CALL}]", f"Sure. <tool_call> [{CALL}, {NO_ARGUMENTS}]"),
    "granite_20b_fc": (
        "granite_20b_fc_tool_parser.py",
        f"<function_call> {CALL}",
        f"<function_call> {CALL}\n<function_call>{NO_ARGUMENTS}",
    ),
    "mistral": ("mistral", f"[TOOL_CALLS] [{CALL}]", f"Here.[TOOL_CALLS][{CALL}, {NO_ARGUMENTS}]</s>"),
    "mistral_v11": (
        "tokenizer 11",
        f"[TOOL_CALLS]get_weather[ARGS]{JSON}",
        f"[TOOL_CALLS]get_weather[CALL_ID]Xa3f9k2Lp[ARGS]{JSON}[TOOL_CALLS]ping{{}}",
    ),
    "deepseek_v3": (
        "deepseekv3",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n"
        f"{JSON}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "Ok.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n"
        f"{JSON}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>ping\n```json\n{{}}\n```"
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>",
    ),
    "deepseek_v31": (
        "DeepSeek-V3.1.jinja",
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{JSON}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{JSON}<｜tool▁call▁end｜>"
        "<｜tool▁call▁begin｜>ping<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>",
    ),
    "kimi_k2": (
        "Kimi-K2-Thinking.jinja",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
        f"{JSON}<|tool_call_end|><|tool_calls_section_end|>",
        "<|tool_calls_section_begin|>\n<|tool_call_begin|>functions.get_weather:0\n<|tool_call_argument_begin|>"
        f"{JSON}<|tool_call_end|>\n<|tool_call_begin|>functions.ping:1<|tool_call_argument_begin|>{{}}"
        "<|tool_call_end|>\n<|tool_calls_section_end|><|im_end|>",
    ),
    "phi4_mini": ("phi4mini_tool_parser.py", f"functools[{CALL}]", f"functools[{LLAMA}, {NO_ARGUMENTS}]"),
    "internlm2": (
        "internlm2_tool_parser.py",
        f"<|action_start|><|plugin|>\n{LLAMA}<|action_end|>",
        f"Sure.<|action_start|> <|plugin|>\n{LLAMA}<|action_end|>\n"
        f"<|action_start|> <|plugin|>\n{NO_ARGUMENTS}<|action_end|>",
    ),
    "jamba": (
        "jamba_tool_parser.py",
        f"<tool_calls>[\n    {CALL}\n]</tool_calls>",
        f" <tool_calls>[\n    {CALL},\n    {NO_ARGUMENTS}\n]</tool_calls>",
    ),
    "hunyuan_a13b": (
        "hunyuan_a13b_tool_parser.py",
        f"<think>x</think>\n<tool_calls>[{CALL}]</tool_calls>",
        f"<tool_calls>[{CALL}, {NO_ARGUMENTS}]</tool_calls>",
    ),
    "minimax_m1": (
        "MiniMax-M1",
        f"<think>\nOkay.\n</think>\n<tool_calls>\n{CALL}\n</tool_calls>",
        f"<tool_calls>\n{CALL}\n{NO_ARGUMENTS}\n</tool_calls>",
    ),
    "nemotron": (
        "Nemotron-Super-49B-v1_5.jinja",
        f"<TOOLCALL>[{CALL}]</TOOLCALL>",
        f"<think>\n\n</think>\n\n<TOOLCALL>[{CALL}, {NO_ARGUMENTS}]</TOOLCALL><|eot_id|>",
    ),
    "cohere_command": (
        "c4ai-command-r7b-12-2024-tool_use.jinja",
        f'<|START_ACTION|>[\n    {{"tool_call_id": "0", "tool_name": "get_weather", "parameters": {JSON}}}\n]'
        "<|END_ACTION|>",
        f'<|START_ACTION|>[\n    {{"tool_call_id": "0", "tool_name": "get_weather", "parameters": {JSON}}},\n'
        '    {"tool_name": "ping", "parameters": {}}\n]<|END_ACTION|><|END_OF_TURN_TOKEN|>',
    ),
    "functiongemma": (
        "functiongemma",
        '<start_function_call>call:get_weather{city:<escape>São "Paulo"<escape>,days:3,metric:true,near:[1.5,{k:null}]}'
        "<end_function_call>",
        '<start_function_call>call:get_weather{city:<escape>São "Paulo"<escape>,days:<escape>3<escape>,metric:true,'
        "near:[1.5,{k:null}]}<end_function_call><start_function_call>call:ping{}<end_function_call>"
        "<start_function_response>",
    ),
    "harmony": (
        "docs/format.md",
        "<|channel|>analysis<|message|>Use the tool.<|end|><|start|>assistant<|channel|>commentary "
        f"to=functions.get_weather <|constrain|>json<|message|>{JSON}<|call|>",
        f" to=functions.get_weather<|channel|>commentary json<|message|>{JSON}<|call|>"
        "<|start|>assistant<|channel|>commentary to=functions.ping <|constrain|>json<|message|>{}",
    ),
    "llama3_json": ("llama_tool_parser.py", LLAMA, f"<|python_tag|>{LLAMA}; {NO_ARGUMENTS}<|eom_id|>"),
    "pythonic": ("pythonic_tool_parser.py", f"[{PYTHON}]", f"[{PYTHON}, ping()]"),
    "llama4_pythonic": (
        "llama4_pythonic_tool_parser.py",
        f"<|python_start|>[{PYTHON}]<|python_end|>",
        f"[{PYTHON}, ping()]<|eot|>",
    ),
    "xlam": ("xlam_tool_parser.py", f"[{CALL}]", f"<think>x</think>```json\n[{CALL}, {NO_ARGUMENTS}]\n```"),
    "openai": (
        "openai",
        '[{"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '
        r'"{\"city\": \"São \\\"Paulo\\\"\", \"days\": 3, \"metric\": true, \"near\": [1.5, {\"k\": null}]}"}}]',
        '{"role": "assistant", "content": null, "tool_calls": [{"type": "function", '
        '"function": {"name": "get_weather", '
        f'"arguments": {JSON}}}}}, {{"id": "x", "type": "function", '
        '"function": {"name": "ping", "arguments": "{}"}}]}',
    ),
    "json": ("base_format_detector.py", LLAMA, f"[{CALL}, {NO_ARGUMENTS}]"),
    **NEWER,
}
SAME: dict[str, str] = {
    "qwen25": "hermes",
    "granite4": "hermes",
    "qwen3_xml": "qwen3_coder",
    "nemotron_v3": "qwen3_coder",
    "ling3": "glm47",
    "poolside_v1": "glm47",
    "step3p5": "qwen3_coder",
    "step5": "qwen3_coder",
    "ernie45": "hermes",
}


def test_every_shipped_dialect_is_here():
    assert {*PUBLISHED, *SAME} == set(names())


@pytest.mark.parametrize("name", [*PUBLISHED, *SAME])
def test_the_published_form_is_read(name):
    source, one, two = PUBLISHED[SAME.get(name, name)]
    if name in PUBLISHED:
        assert source in dialect(name).source
    assert "/" in dialect(name).source
    assert dialect(name).parse(one, TOOLS) == (WEATHER,)
    assert dialect(name).parse(two, TOOLS) == (WEATHER, PING)


@pytest.mark.parametrize("name", [*PUBLISHED, *SAME])
def test_an_answer_without_a_call_has_none(name):
    for text in (
        "",
        "It is sunny.",
        "```python\nprint([1, 2])\n```",
        "<think>hm</think>Four.",
        "functools is a module",
    ):
        assert dialect(name).parse(text, TOOLS) == ()
    for text in ('{"answer": [1, 2]}', "[1, 2]", '[Note] "x" (y)', '{"a": {"b": "'):
        assert dialect(name).parse(text, TOOLS) == ()


@pytest.mark.parametrize("name", [*PUBLISHED, *SAME])
def test_an_answer_that_stops_within_a_call_is_unbalanced(name):
    one = PUBLISHED[SAME.get(name, name)][1]
    for cut in range(one.index("Paulo"), one.rindex("3")):
        with pytest.raises(BadCall) as caught:
            dialect(name).parse(one[:cut], TOOLS)
        assert caught.value.error_type in ("unbalanced", "unbalanced_quotes")


def error(name: str, text: str, tools=TOOLS) -> str:
    with pytest.raises(BadCall) as caught:
        dialect(name).parse(text, tools)
    return caught.value.error_type


HERMES = f"<tool_call>{CALL}</tool_call>"


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("hermes", '<tool_call>{"name": "f", "arguments": {"city": "Paris}}</tool_call>', "unbalanced_quotes"),
        ("json", '{"name": "f", "arguments": {"city": "Paris}}', "unbalanced_quotes"),
        ("pythonic", "[f(city='Paris)]", "unbalanced_quotes"),
        ("functiongemma", "<start_function_call>call:f{a:<escape>x}<end_function_call>", "unbalanced_quotes"),
        ("hermes", f"```xml\n{HERMES}\n```", "call_in_fence"),
        ("json", f"```json\n{CALL}\n```", "call_in_fence"),
        ("llama3_json", f"```\n{LLAMA}\n```", "call_in_fence"),
        ("hermes", f"<think>I write {HERMES}</think> It is sunny.", "call_in_think"),
        ("hermes", f"<think>I write {HERMES}", "call_in_think"),
        ("hermes", f"I write {HERMES} and so</think>It is sunny.", "call_in_think"),
        ("json", f"<think>{CALL}</think>It is sunny.", "call_in_think"),
        (
            "harmony",
            "<|channel|>commentary to=functions.f<|channel|>commentary json<|message|>{}<|call|>",
            "leaked_token",
        ),
        ("harmony", "<|channel|>final<|message|>I call <|channel|>commentary<|end|>", "leaked_token"),
        ("harmony", "Hello <|constrain|>json", "leaked_token"),
        ("harmony", "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|end|>", "unbalanced"),
        ("hermes", '<tool_call>{"name": "f<|channel|>commentary", "arguments": {}}</tool_call>', "leaked_token"),
        ("hermes", f"<|im_start|>assistant\n{HERMES}", "leaked_token"),
        ("kimi_k2", "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>", "leaked_token"),
        ("qwen3_coder", "<function=f>\n</function>\n</tool_call>", "leaked_token"),
        ("deepseek_v31", "<｜tool▁call▁end｜>", "unbalanced"),
        ("deepseek_v31", "f<｜tool▁sep｜>{}", "leaked_token"),
        (
            "deepseek_v31",
            "<｜tool▁calls▁begin｜>so <｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜>",
            "stray_text",
        ),
        ("hunyuan_v3", "<tool_calls></tool_calls>", "call_shape"),
        ("qwen3_coder", "<tool_call><function=f><parameter=a>1</function></tool_call>", "unbalanced"),
        ("qwen3_coder", "<tool_call><function=f>a=1</function></tool_call>", "stray_text"),
        ("glm45", f"<tool_call>f\n{PAIRS}{PAIRS}</tool_call>", "duplicate_key"),
        (
            "glm45",
            "<tool_call>f\n<arg_key>a</arg_key><arg_value>1<arg_key>b</arg_key><arg_value>2</arg_value></tool_call>",
            "unbalanced",
        ),
        (
            "minimax_m2",
            '<minimax:tool_call><invoke name="f"><parameter name="a">1\n<parameter name="b">2</parameter></invoke>'
            "</minimax:tool_call>",
            "unbalanced",
        ),
        ("glm45", "<tool_call><arg_key>a</arg_key><arg_value>1</arg_value></tool_call>", "call_shape"),
        ("functiongemma", "<start_function_call>call:f{a:1,a:2}<end_function_call>", "duplicate_key"),
        ("pythonic", "[f(a=1, a=2)]", "duplicate_key"),
        ("pythonic", "[f(a={'k': 1, 'k': 2})]", "duplicate_key"),
        ("pythonic", "[f(1)]", "call_shape"),
        ("pythonic", "[f(a=g())]", "not_a_literal"),
        ("pythonic", "[f(a=open)]", "not_a_literal"),
        ("pythonic", "[f(a=2**99)]", "not_a_literal"),
        ("pythonic", "[f(a=1 if 1 else 2)]", "not_a_literal"),
        ("pythonic", "[f(a=f'{1}')]", "not_a_literal"),
        ("pythonic", "[f(a={1: 2})]", "not_a_literal"),
        ("pythonic", "[f(a=1e999)]", "number_too_long"),
        ("pythonic", "[f(a='\\ud800')]", "lone_surrogate"),
        ("xlam", '[{"name": "f", "arguments": {"a": 1, "a": 2}}]', "duplicate_key"),
        ("openai", '[{"function": {"name": "f", "arguments": "{"}}]', "not_json"),
        ("jamba", "<tool_calls>[]</tool_calls>", "call_shape"),
        ("granite", "<|tool_call|>get_weather", "call_shape"),
        ("mistral", "[TOOL_CALLS]get_weather", "unbalanced"),
        ("mistral", f"[TOOL_CALLS]get weather now{JSON}", "not_json"),
        ("granite_20b_fc", '<function_call> {"name": "", "arguments": {}}', "call_shape"),
        ("granite", f"<|tool_call|>[{','.join([NO_ARGUMENTS] * (MAX_CALLS + 1))}]", "too_many_calls"),
        ("granite", "<|tool_call|>" + "[" * 100, "too_deep"),
    ],
)
def test_a_fault_is_called_what_it_is(name, text, word):
    assert error(name, text) == word


def test_a_call_after_thinking_or_a_fence_counts_and_the_ones_inside_do_not():
    text = f"<think>maybe {HERMES}</think>\n```\n{HERMES}\n```\n{HERMES}"
    assert dialect("hermes").parse(text) == (WEATHER,)


@pytest.mark.parametrize("name", ["qwen3_coder", "glm45", "minimax_m2", "hunyuan_v3"])
@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "string"}, "5", "5"),
        ({"type": "string"}, "true", "true"),
        ({"type": "integer"}, "5", 5),
        ({"type": "integer"}, "five", "five"),
        ({"type": "number"}, "-2.5e3", -2500.0),
        ({"type": "number"}, "1e999", "1e999"),
        ({"type": "number"}, "1_000", "1_000"),
        ({"type": "boolean"}, "False", False),
        ({"type": ["string", "null"]}, "null", None),
        ({"type": ["string", "integer"]}, "7", 7),
        ({"enum": [1, 2]}, "2", 2),
        ({"anyOf": [{"type": "object"}, {"type": "string"}]}, '{"a": 1}', {"a": 1}),
        ({"type": "array"}, "[1, 1", "[1, 1"),
        ({"type": "object"}, '{"a": 1, "a": 2}', '{"a": 1, "a": 2}'),
    ],
)
def test_values_between_tags_get_their_type_from_the_schema(name, schema, text, value):
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": schema}}}}]
    pair = f"<arg_key>a</arg_key><arg_value>{text}</arg_value>"
    answers = {
        "qwen3_coder": f"<tool_call><function=f><parameter=a>{text}</parameter></function></tool_call>",
        "glm45": f"<tool_call>f{pair}</tool_call>",
        "minimax_m2": f'<minimax:tool_call><invoke name="f"><parameter name="a">{text}</parameter></invoke>'
        "</minimax:tool_call>",
        "hunyuan_v3": f"<tool_calls><tool_call>f<tool_sep>{pair}</tool_call></tool_calls>",
    }
    (call,) = dialect(name).parse(answers[name], tools)
    assert call.arguments == {"a": value}
    assert type(call.arguments["a"]) is type(value)


def test_without_a_schema_qwen_keeps_text_and_glm_reads_json():
    assert dialect("qwen3_coder").parse(QWEN)[0].arguments["days"] == "3"
    assert dialect("glm45").parse(f"<tool_call>get_weather\n{PAIRS}</tool_call>")[0].arguments == ARGUMENTS


@pytest.mark.parametrize(
    "argument",
    ["not " * 9000 + "1", "x" + "[0]" * 9000, "x" + "()" * 9000, "lambda:" * 9000 + "1", "1 if 1 else " * 5000],
)
def test_a_bomb_of_python_is_refused(argument):
    assert error("pythonic", f"[f(a={argument})]") in ("not_python", "not_a_literal")


TYPED = LLAMA.replace("{", '{"type": "function", ', 1)


@pytest.mark.parametrize("call", [LLAMA, CALL, TYPED])
@pytest.mark.parametrize(
    "prose", ["I look it up.\n", "Sure, I call: ", "The weather {today}? ", "<think>hm</think> So: ", ""]
)
def test_llamas_call_may_follow_prose_and_name_its_type(prose, call):
    """As vLLM's parser, which looks for an object with a name and arguments wherever a brace opens."""
    form = dialect("llama3_json")
    assert form.parse(prose + call, TOOLS) == (WEATHER,)
    assert form.parse(f"{prose}{call}; {NO_ARGUMENTS}", TOOLS) == (WEATHER, PING)
    assert form.parse(f"{prose}{call}\nThat is it.", TOOLS) == (WEATHER,)
    for at in range(len(prose + call)):
        stream = form.stream(TOOLS)
        stream.feed((prose + call)[:at])
        stream.feed((prose + call)[at:])
        stream.close()
        assert tuple(stream.calls) == (WEATHER,), at


@pytest.mark.parametrize(
    "text",
    [
        'My schema: {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}',
        'As JSON: {"name": "Ann", "age": 5}',
        'A tool has {"parameters": {}} and a name.',
        f"<tool_call>{CALL}</tool_call>",
        f"[{CALL}, {CALL}]",
        f'As JSON: {{"calls": {CALL}}}',
        "Write {name} or {type: 1}.",
    ],
)
def test_an_object_that_is_no_call_or_stands_in_a_foreign_form_is_none_of_llamas(text):
    assert dialect("llama3_json").parse(text, TOOLS) == ()


def test_llamas_broken_call_after_prose_is_a_fault():
    assert error("llama3_json", f"So: {LLAMA[:-1]}") == "unbalanced"
    assert error("llama3_json", f"So:\n```json\n{LLAMA}\n```") == "call_in_fence"
    assert error("llama3_json", f"<think>I write {LLAMA}</think>Hm.") == "call_in_think"


@pytest.mark.parametrize("name", ["llama3_json", "pythonic", "json"])
@pytest.mark.parametrize("broken", ["{calls}; {cut}", "{calls}\n{other}"])
def test_a_value_right_behind_a_call_is_the_next_call_and_not_prose(name, broken):
    form = dialect(name)
    calls = form.serialise([PING])
    other = "[ping, 1]" if name == "pythonic" else '{"name": "ping", "rameters": {}}'
    text = broken.format(calls=calls, cut=calls[:-2], other=other)
    with pytest.raises(BadCall):
        form.parse(text, TOOLS)
    assert form.parse(f"{calls}\nSo be it.", TOOLS) == (PING,)


@pytest.mark.parametrize("text", ["[1or 2]", r'["\d"]', "[f(a=1or 2)]", "[f(a=0x1for)]"])
@pytest.mark.filterwarnings("error")
def test_no_text_of_a_model_makes_python_warn(text):
    json_or_literal(text)
    with contextlib.suppress(BadCall):
        dialect("pythonic").parse(text, TOOLS)
