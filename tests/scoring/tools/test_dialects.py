"""Each dialect reads what its published template or parser says a model writes.

The texts are written here by hand, after the source each dialect names, never with our own serialiser; outside of this
suite the same formats were read by vLLM's and SGLang's parsers, too.
"""

from __future__ import annotations

import contextlib

import pytest

from qualgate.scoring.tools.dialects import MAX_CALLS, BadCall
from qualgate.scoring.tools.dialects.registry import dialect, names
from tests.scoring.cases import table
from tests.scoring.tools.published import (
    ANSWERS,
    ARGUMENTS,
    CALL,
    LLAMA,
    NO_ARGUMENTS,
    PING,
    PUBLISHED,
    TOOLS,
    WEATHER,
    fault,
)
from tests.tables import each_row

PAIRS = PUBLISHED["glm45"].one.removeprefix("<tool_call>get_weather\n").removesuffix("</tool_call>")


def test_every_shipped_dialect_is_here():
    assert {*ANSWERS} == set(names())


NO_CALLS = (
    "", "It is sunny.", "```python\nprint([1, 2])\n```", "<think>hm</think>Four.", "functools is a module",
    '{"answer": [1, 2]}', "[1, 2]", '[Note] "x" (y)', '{"a": {"b": "',
)  # fmt: skip


@each_row("name", ANSWERS)
def test_the_published_form_is_read_and_what_is_no_call_is_none(name):
    published, form = ANSWERS[name], dialect(name)
    if name in PUBLISHED:
        assert published.source in form.source
    assert "/" in form.source
    assert form.parse(published.one, TOOLS) == (WEATHER,)
    assert form.parse(published.two, TOOLS) == (WEATHER, PING)
    assert [form.parse(text, TOOLS) for text in NO_CALLS] == [()] * len(NO_CALLS)


@each_row("name", ANSWERS)
def test_an_answer_that_stops_within_a_call_is_unbalanced(name):
    text = ANSWERS[name].one
    for cut in range(text.index("Paulo"), text.rindex("3")):
        assert fault(name, text[:cut]) in ("unbalanced", "unbalanced_quotes")


HERMES = f"<tool_call>{CALL}</tool_call>"


FAULTS = [
    *map(dict.values, table("tools/faults")),
    ("llama3_json", f"So: {LLAMA[:-1]}", "unbalanced"),
    ("llama3_json", f"So:\n```json\n{LLAMA}\n```", "call_in_fence"),
    ("llama3_json", f"<think>I write {LLAMA}</think>Hm.", "call_in_think"),
    ("granite", f"<|tool_call|>[{','.join([NO_ARGUMENTS] * (MAX_CALLS + 1))}]", "too_many_calls"),
    ("minimax_m3", PUBLISHED["minimax_m3"].one.replace("Paulo", "]<]minimax[>[<a>" * 100), "too_deep"),
]


@each_row(("name", "text", "word"), FAULTS)
def test_a_fault_is_called_what_it_is(name, text, word):
    assert fault(name, text) == word


def test_a_call_after_thinking_or_a_fence_counts_and_the_ones_inside_do_not():
    text = f"<think>maybe {HERMES}</think>\n```\n{HERMES}\n```\n{HERMES}"
    assert dialect("hermes").parse(text) == (WEATHER,)


@each_row("name", ["qwen3_coder", "glm45", "minimax_m2", "hunyuan_v3"])
@each_row(("schema", "text", "value"), table("tools/between_tags"))
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
    assert dialect("qwen3_coder").parse(PUBLISHED["qwen3_coder"].one)[0].arguments["days"] == "3"
    assert dialect("glm45").parse(f"<tool_call>get_weather\n{PAIRS}</tool_call>")[0].arguments == ARGUMENTS


@pytest.mark.parametrize(
    "argument",
    ["not " * 9000 + "1", "x" + "[0]" * 9000, "x" + "()" * 9000, "lambda:" * 9000 + "1", "1 if 1 else " * 5000],
)
def test_a_bomb_of_python_is_refused(argument):
    assert fault("pythonic", f"[f(a={argument})]") in ("not_python", "not_a_literal")


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
    with contextlib.suppress(BadCall):
        dialect("pythonic").parse(text, TOOLS)
