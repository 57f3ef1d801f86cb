"""What the dialects of 2025 and 2026 say that their kin do not."""

from __future__ import annotations

import re

import pytest

from qualgate.scoring.tools.dialects import Call
from qualgate.scoring.tools.dialects.registry import dialect
from tests.scoring.tools.published import CALL, NO_ARGUMENTS, PING, TOOLS, WEATHER, fault

M3 = "]<]minimax[>["


def tool(**arguments) -> list[dict]:
    return [{"name": "f", "parameters": {"properties": arguments}}]


def one(name: str, text: str, tools=()) -> dict:
    (call,) = dialect(name).parse(text, tools)
    assert call.name == "f"
    return call.arguments


def dsml(pairs: str) -> str:
    call = f'<｜DSML｜invoke name="f">{pairs}</｜DSML｜invoke>'
    return f"<｜DSML｜tool_calls>\n{call}\n</｜DSML｜tool_calls>"


def parameter(value: str, attribute: str = ' string="false"') -> str:
    return f'<｜DSML｜parameter name="a"{attribute}>{value}</｜DSML｜parameter>'


def test_dsml_says_itself_what_is_text_whatever_the_schema():
    tools = tool(a={"type": "integer"})
    assert one("deepseek_v4", dsml(parameter("5", ' string="true"')), tools) == {"a": "5"}
    assert one("deepseek_v4", dsml(parameter("[1, 2]")), tools) == {"a": [1, 2]}
    assert one("deepseek_v4", dsml(parameter(" two\nlines <b>", ' string="true"'))) == {"a": " two\nlines <b>"}


def test_the_frames_of_deepseeks_versions_are_not_each_others():
    versions = ("deepseek_v32", "deepseek_v4", "deepseek_v41")
    texts = {name: dialect(name).serialise([PING]) for name in versions}
    assert all(dialect(name).parse(texts[name], TOOLS) == (PING,) for name in versions)
    assert fault("deepseek_v4", texts["deepseek_v32"]) == fault("deepseek_v32", texts["deepseek_v4"]) == "leaked_token"
    assert dialect("deepseek_v4").parse(texts["deepseek_v41"], TOOLS) == ()


def m3(inner: str) -> str:
    text = f'<tool_call><invoke name="f">{inner}</invoke></tool_call>'
    return text.replace("<", f"{M3}<")


def test_minimax_m3s_children_are_a_list_or_an_object_as_the_schema_says():
    numbers = {"type": "array", "items": {"type": "integer"}}
    person = {"type": "object", "properties": {"age": {"type": "integer"}}}
    assert one("minimax_m3", m3("<a><item>1</item><item>2</item></a>"), tool(a=numbers)) == {"a": [1, 2]}
    assert one("minimax_m3", m3("<a></a>"), tool(a=numbers)) == {"a": []}
    assert one("minimax_m3", m3("<a><age>5</age><name>Ann</name></a>"), tool(a=person)) == {
        "a": {"age": 5, "name": "Ann"}
    }
    people = {"type": "array", "items": person}
    assert one("minimax_m3", m3("<a><item><age>5</age></item></a>"), tool(a=people)) == {"a": [{"age": 5}]}
    assert one("minimax_m3", m3("<a><x>1</x><x>2</x><x>3</x></a>")) == {"a": {"x": ["1", "2", "3"]}}


def test_kimi_k3_escapes_names_and_not_values():
    call = Call('say "hi" & go', {'a"b&c': 'x "y" &amp; z'})
    text = dialect("kimi_k3").serialise([call])
    assert "say &quot;hi&quot; &amp; go" in text
    assert dialect("kimi_k3").parse(text) == (call,)


def test_minicpm5s_values_are_xml_text():
    text = '<function name="f"><param name="a">{}</param></function>'
    tools = tool(a={"type": "string"})
    assert one("minicpm5", text.format("1 &lt; 2 &amp; 3"), tools) == {"a": "1 < 2 & 3"}
    assert one("minicpm5", text.format("<![CDATA[<b>x</param> &lt;]]>"), tools) == {"a": "<b>x</param> &lt;"}


def test_mimos_values_begin_and_end_at_their_tags():
    text = "<tool_call>\n<function=f>\n<parameter=a>\nx\n</parameter>\n</function>\n</tool_call>"
    assert one("mimo", text) == {"a": "\nx\n"}
    assert one("qwen3_coder", text) == {"a": "x"}


@pytest.mark.parametrize("name", ["hy_v4", "hunyuan_v3"])
def test_hunyuans_tags_may_have_a_part_of_their_checkpoint(name):
    def with_part(text: str, part: str) -> str:
        return re.sub(r"(</?(?:tool_calls?|tool_sep|arg_key|arg_value|think))>", rf"\1{part}>", text)

    call = Call("f", {"a": "the tag <arg_key>, and <arg_value:other>"})
    plain = dialect(name).serialise([Call("f", {"a": "PLACE"})])
    text = with_part(plain, ":61").replace("PLACE", call.arguments["a"])
    assert dialect(name).parse("A <tool_call> is </think> prose. " + text) == (call,)
    stream = dialect(name).stream()
    assert [made for piece in "Hm." + text for made in stream.feed(piece)] + [*stream.close()] == [call]
    assert fault(name, with_part(plain, ":61").replace("</tool_call:61>", "</tool_call:62>")) == "unbalanced"
    assert fault(name, f"<think:61>{with_part(plain, ':61')}") == "call_in_think"


def test_olmo3_writes_a_call_a_line_and_gemma4_text_between_marks_alone():
    assert dialect("olmo3").parse("<function_calls>\nping()\nping()\n</function_calls>", TOOLS) == (PING, PING)
    assert fault("olmo3", "<function_calls>ping(\n</function_calls>") == "not_python"
    assert fault("gemma4", "<|tool_call>call:f{a:celsius}<tool_call|>") == "not_json"


@pytest.mark.parametrize("block", [f"[TOOL_CALLS][{CALL}]\n", f"<tool_call>[{CALL}]</tool_call>", f"[{CALL}]"])
@pytest.mark.parametrize("thought", ["", "<think>hm</think>\n", "Sure: "])
def test_xlam_writes_its_list_bare_or_behind_a_mark(block, thought):
    bare_after_prose = block[0] == "[" and not block.startswith("[TOOL") and thought == "Sure: "
    assert dialect("xlam").parse(thought + block, TOOLS) == (() if bare_after_prose else (WEATHER,))


def test_a_newer_dialects_thinking_is_not_the_answer():
    for name, thought in (
        ("seed_oss", "<seed:think>{}</seed:think>"),
        ("longcat", "<longcat_think>{}</longcat_think>"),
        ("gemma4", "<|channel>thought\n{}<channel|>"),
        ("kimi_k3", "<|open|>think<|sep|>{}<|close|>think<|sep|>"),
        ("minimax_m3", "<mm:think>{}</mm:think>"),
        ("apertus", "<|inner_prefix|>{}<|inner_suffix|>"),
    ):
        call = dialect(name).serialise([PING])
        assert dialect(name).parse(thought.format("hm") + call, TOOLS) == (PING,)
        assert fault(name, thought.format(call) + "No.") == "call_in_think"


def test_gigachat3_reads_the_token_or_the_role():
    for mark in ("<|function_call|>", "function call<|role_sep|>\n"):
        assert dialect("gigachat3").parse(f"Sure.<|message_sep|>\n\n{mark}{NO_ARGUMENTS}", TOOLS) == (PING,)
