"""What SGLang's parsers execute of an answer: each of these was read by them, too."""

from __future__ import annotations

import random
import re

import pytest

from qualgate.records import Case, Evalset
from qualgate.scoring.tools.dialects import BadCall, Call
from qualgate.scoring.tools.served import METRIC, SERVERS, read_served, score_served
from qualgate.scoring.tools.served_sglang_list import listed
from tests.scoring.cases import table
from tests.scoring.tools.published import executed

SGLANG = SERVERS["sglang"]
TYPES = {"i": {"type": "integer"}, "n": {"type": "number"}, "s": {"type": "string"}, "t": {"type": "boolean"},
         "o": {"type": "object"}, "u": {"type": ["integer", "null"]}, "w": {"type": "varchar(9)"}, "x": {}}  # fmt: skip
TOOLS = [{"name": "f", "parameters": {"properties": TYPES}}, {"name": "ping"}]
F = '{"name": "f", "arguments": {"i": 1}}'


M3 = ']<]minimax[><tool_call>]<]minimax[><invoke name="f">{}]<]minimax[></invoke>]<]minimax[></tool_call>'.replace(
    "[>", "[>["
)
INVOKE = "<|content_invoke_tool_json|>"
QUOTES = "'b'c',"
LFM = "<|tool_call_start|>{}<|tool_call_end|>"
K2 = "<ifm|tool_call>f<ifm|arg_key>{}</ifm|arg_key><ifm|arg_value>{}</ifm|arg_value></ifm|tool_call>"


def read(text, name, tools=TOOLS):
    return read_served(text, name, tools, SGLANG)


@pytest.mark.parametrize(("name", "text", "calls"), executed("sglang"))
def test_it_reads_in_ways_of_its_own(name, text, calls):
    assert read(text, name) == calls


def test_a_tool_that_is_not_offered_is_called_by_the_parsers_that_do_not_look():
    assert read("<tool_call><function=g></function></tool_call>", "qwen3_coder") == (Call("g", {}),)
    assert read("<tool_call><function=g></function></tool_call>", "mimo") == ()
    assert read("<tool_call><function=g></function></tool_call>", "qwen3_coder", ()) == ()


QWEN3 = "<tool_call><function=f><parameter={}>{}</parameter></function></tool_call>"
POOLSIDE = "<tool_call>f<arg_key>{}</arg_key><arg_value>{}</arg_value></tool_call>"


@pytest.mark.parametrize(("name", "form", "key", "text", "value"), table("tools/values")["sglang"])
def test_values_are_what_its_parsers_make_of_them(name, form, key, text, value):
    if value == "call_shape":
        with pytest.raises(BadCall, match=r"SGLang 0\.5\.23 executes arguments that are no JSON"):
            read(form.format(key, text), name)
    else:
        assert read(form.format(key, text), name) == (Call("f", {key: value}),)


def test_other_arguments_choose_the_branch_by_which_glm_types_one():
    kinds = [
        {"properties": {"k": {"const": name}, "v": {"type": kind}}}
        for name, kind in (("a", "string"), ("b", "integer"))
    ]
    tools = [{"name": "f", "parameters": {"oneOf": kinds}}]
    pair = "<arg_key>k</arg_key><arg_value>{}</arg_value><arg_key>v</arg_key><arg_value>5</arg_value>"
    for name, value in (("a", "5"), ("b", 5)):
        [call] = read(f"<tool_call>f{pair.format(name)}</tool_call>", "glm47", tools)
        assert call.arguments == {"k": name, "v": value}


def test_a_row_names_the_server_and_what_it_forgave():
    tools = [{"name": "f", "parameters": {"properties": {"i": {"type": "integer"}}}}]
    body = {"id": "c", "task": "tool_call", "tools": tools, "dialect": "hermes", "served_by": "sglang"}
    evalset = Evalset(name="s", version="1", metrics=(METRIC,), cases=(), sha256="0" * 64)

    def row(text, **more):
        wanted = {"expected_calls": [{"name": "f", "arguments": {"i": 1}}]}
        return score_served(Case(evalset="s", body=body | wanted | more), evalset, text)[METRIC]

    one = row(f"<tool_call>{F}")
    assert (one.value, one.scorer) == (1.0, "tool_call.served/4 SGLang 0.5.23")
    assert (one.reason or "").startswith("SGLang 0.5.23 forgave unbalanced")
    assert row(F, dialect="jamba").error_type == "no_served_reading"
    other = row(f"<tool_call>{F}", served_by="tgi")
    assert (other.value, other.error_type) == (None, "no_served_reading")
    assert "vllm, sglang" in (other.reason or "")


HOSTILE = (
    "<tool_call>", "<tool_call>f\n", "<arg_key>", "[TOOL_CALLS]f[ARGS]{", "{", "\n ", '<invoke name="', "[", "'b'c',",
    "<parameter=", "<function=", "<function ", "<|tool_call_begin|>0 ", "<｜tool▁call▁begin｜>",
    '<｜DSML｜invoke name="f">', "<|open|>call ", "]<]minimax[>[<a>", "f(a=", "<ifm|arg_key>",
)  # fmt: skip


@pytest.mark.parametrize("name", SGLANG.parsers)
def test_a_hostile_text_ends_soon(name):
    """Openings that nothing closes, spaces and brackets: bounded by what is looked at, or linear."""
    for part in HOSTILE:
        begins = "<tool_call><minimax:tool_call><tool_calls><|open|>tools<|sep|><dots_function_call>[f(a=1, b="
        text = begins + "]<]minimax[>[<tool_call><|tool_call_start|><ifm|tool_call>" + part * (2**17 // len(part))
        try:
            read(text, name)
        except BadCall as fault:
            assert fault.error_type in ("too_much", "too_many_calls")  # noqa: PT017


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("qwen3_coder", QWEN3.format("o", "(" * 3000), "too many to be read as one"),
        ("poolside_v1", POOLSIDE.format("o", "(" * 3000), "too many to be read as one"),
        ("gemma4", "<|tool_call>call:f{i:[-3n:[-3,1],s:37}<tool_call|>", "never ends"),
        ("gemma4", f"<|tool_call>call:f{{i:{'[' * 80}<tool_call|>", "nested deeper"),
        ("pythonic", f"[f(i=1{', i=1' * 31})]", r"2\^31 ways"),
        ("pythonic", f"[f(i=1{') f(i=1' * 31}", r"2\^31 ways"),
        ("lfm2", LFM.format(f"[{'1,' * 2**16}]"), "too many to be parsed"),
        ("lfm2", LFM.format(f"[f(s={QUOTES * 200})]") * 30, "to parse"),
    ],
)
def test_nothing_is_said_where_its_reading_is_too_much_or_has_no_end(name, text, why):
    """SGLang's own parser of Gemma 4 runs on for ever at a bracket that closes none; its pattern of Python's lists
    takes a power of two in arguments."""
    with pytest.raises(BadCall, match=why) as fault:
        read(text, name)
    assert fault.value.error_type == "too_much"


def test_a_mark_within_a_mark_is_not_guessed():
    """SGLang removes Inkling's marks in the order of a set, which changes with each process."""
    with pytest.raises(BadCall, match="now so, now otherwise"):
        read(f"{INVOKE}{F[:-1]}<|end_<|message_user|>message|>", "inkling")


def test_without_tools_minimax_m3_alone_calls():
    assert read(M3.format(""), "minimax_m3", ()) == (Call("f", {}),)
    assert read(K2.format("i", "1"), "k2_horizon", ()) == ()


def test_the_list_is_the_one_that_trying_every_way_finds():
    """By the grammar that `served_sglang_list` says, in a backtracking engine."""
    arg, name = r"[a-zA-Z]\w*=.*", r"[a-zA-Z]\w*\("
    first, last = rf"{name}(?:{arg},\s*)*(?:{arg}\s)?\)", rf"{name}(?:{arg},\s*)*(?:{arg}\s*)?\)"
    pattern = re.compile(rf"\[(?:{first},\s*)*(?:{last}\s*)+\]", re.DOTALL)
    parts = ["[", "f(", ")", "]", ",", " ", "a=", "1", "f()", "f(),", ", ", ",)]", "),", " )", "[f(", "a=1,", " ),",
             "[f(a=1, b=2)]", ",)", "),f(a="]  # fmt: skip
    draw, found = random.Random(9), 0
    for _ in range(1_500):
        text = "[f(" + "".join(draw.choice(parts) for _ in range(draw.randint(1, 14))) + draw.choice(("", ")]"))
        theirs = pattern.search(text)
        assert listed(text) == (theirs[0] if theirs else ""), text
        found += theirs is not None
    assert found > 300
