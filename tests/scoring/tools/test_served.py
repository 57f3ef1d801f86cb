"""What vLLM's parsers execute of an answer that is not quite in its dialect: each of these was read by them, too."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qualgate.records import Case, Evalset
from qualgate.scoring import score
from qualgate.scoring.needs import served_notes, tool_faults
from qualgate.scoring.registry import MAX_ANSWER, apply, find, in_dialect
from qualgate.scoring.tools.dialects import MAX_CALLS, BadCall, Call
from qualgate.scoring.tools.dialects.registry import dialect
from qualgate.scoring.tools.dialects.shipped import SHIPPED
from qualgate.scoring.tools.served import METRIC, SERVERS, read_served, score_served
from qualgate.scoring.tools.served_parsers import PARSERS, UNREAD
from tests.depth import examples
from tests.scoring.cases import table
from tests.scoring.tools.published import ANSWERS, CALL, TOOLS, executed

F = '{"name": "f", "arguments": {"a": 1}}'
OPEN = "<tool_call>"
DSML = '<｜DSML｜invoke name="f">{}</｜DSML｜invoke>'
NUMBER = [{"name": "f", "parameters": {"properties": {"a": {"type": "integer"}, "b": {"type": "string"}}}}]


# What vLLM's parsers of these read otherwise though it is well-formed: see docs/dialects.md.
OTHERWISE = {"internlm2", "phi4_mini", "gigachat3", "step3", "mistral_v11", "k2_horizon", "gemma4", "functiongemma"}
OTHERWISE |= {"llama4_pythonic"}


@pytest.mark.parametrize("name", [name for name in PARSERS if name not in OTHERWISE])
def test_what_is_in_the_dialect_is_read_as_strictly(name):
    for text in (ANSWERS[name].one, ANSWERS[name].two):
        assert read_served(text, name, TOOLS) == dialect(name).parse(text, TOOLS)
    assert read_served("It is sunny.", name, TOOLS) == ()


@pytest.mark.parametrize(("name", "text", "calls"), executed("vllm"))
def test_a_servers_parser_executes_what_strictly_is_a_fault_or_nothing(name, text, calls):
    assert read_served(text, name, NUMBER) == calls
    with contextlib.suppress(BadCall):
        assert not calls or dialect(name).parse(text, NUMBER) != calls


@pytest.mark.parametrize(
    ("name", "given", "call"),
    [
        ("get_line_status", {"line_id": 0, "id": 7}, ("get_details_by_id", {"id": 7})),
        ("disable_roaming", {"id": 7}, ("toggle_roaming", {"line_id": 7, "enabled": False})),
        ("add_data_to_line", {"gb": 2, "customer_id": "null"}, ("refuel_data", {"amount_gb": 2, "customer_id": None})),
        ("get_details_by_phone", {"phone": 5}, None),
        ("enable_roaming", {"line": 5}, None),
    ],
)
def test_a_call_by_minicpm5s_own_name_of_a_tool_is_one_of_the_tool_that_is_offered(name, given, call):
    tools = [{"name": one} for one in ("get_details_by_id", "toggle_roaming", "refuel_data")]
    pairs = "".join(f'<param name="{key}">{value}</param>' for key, value in given.items())
    found = read_served(f'<function name="{name}">{pairs}</function>', "minicpm5", tools)
    assert found == ((Call(*call),) if call else ())


def test_a_thought_hides_what_is_in_no_frame_where_the_parser_knows_thoughts():
    bare, frame = DSML.format(""), "<｜DSML｜tool_calls>"
    assert read_served(f"<think>{bare}</think>No.", "deepseek_v4") == ()
    assert read_served(f"<think>{bare}</think>{bare}", "deepseek_v4") == (Call("f", {}),)
    assert read_served(f"<think>{frame}{bare}", "deepseek_v4") == (Call("f", {}),)
    assert read_served(f"<think>{bare}</think>No.", "deepseek_v32") == (Call("f", {}),)


@pytest.mark.parametrize("name", ["deepseek_v4", "qwen3_coder"])
def test_a_name_that_the_text_ends_in_is_executed(name):
    begin = {"deepseek_v4": '<｜DSML｜invoke name="', "qwen3_coder": "<function="}[name]
    assert read_served(f"{dialect(name).serialise([Call('f', {})])}\n{begin}f_", name) == (
        Call("f", {}),
        Call("f_", {}),
    )
    assert read_served(begin, name) == ()


def case_of(**more) -> Case:
    body = {"id": "c", "task": "tool_call", "prompt": "?", "max_new_tokens": 64, "tools": TOOLS} | more
    body.setdefault("expected_calls", [{"name": "ping", "arguments": {}}])
    return Case(evalset="s", body=body)


SET = Evalset(
    name="s", version="1", metrics=("tool_call.correct", METRIC, "tool_call.compat"), cases=(), sha256="0" * 64
)


def served(text: str, **more):
    return score_served(case_of(**more), SET, text)[METRIC]


def test_a_row_says_what_the_parser_forgave():
    text = '<tool_call>{"name": "ping", "arguments": {}}'
    one = served(text, dialect="hermes")
    assert (one.value, one.scorer) == (1.0, "tool_call.served/4 vLLM 0.33.0")
    assert one.reason is not None
    assert one.reason.startswith("vLLM 0.33.0 forgave unbalanced")
    assert served(f"{text}</tool_call>", dialect="hermes").reason is None
    assert served("No.", dialect="hermes").error_type == "no_call"
    assert served('<tool_call>{"name": "ping", "arguments": [1]}', dialect="hermes").error_type == "call_shape"


def test_every_shipped_dialect_is_read_or_says_why_not():
    assert {*SHIPPED} == {*PARSERS} | {*UNREAD}
    assert not {*PARSERS} & {*UNREAD}
    assert "no parser of it" in (served("x", dialect="minimax_m1").reason or "")


@pytest.mark.parametrize("declared", [{}, {"dialect": "auto"}, {"dialect": "harmony"}])
def test_nothing_is_said_where_no_parser_is_known(declared):
    one = served("<tool_call>", **declared)
    assert (one.value, one.verdict, one.error_type) == (None, None, "no_served_reading")


def test_where_no_dialect_is_declared_the_reason_says_so():
    assert "no dialect is declared" in (served("x", dialect="auto").reason or "")


def test_a_set_tells_of_how_many_cases_the_served_reading_is_null():
    cases = [case_of(dialect="harmony"), case_of(dialect="harmony"), case_of(dialect="hermes"), case_of()]
    assert [*served_notes(cases)] == [
        "tool_call.served is null in 2 cases: what vLLM 0.33.0 executes is not known of harmony: vLLM 0.33.0 reads its "
        "tokens, not its text"
    ]


def test_a_server_that_is_no_name_is_a_fault():
    [fault] = tool_faults(case_of(served_by=["vllm"], expected_calls=[]).body, SET)
    assert "must be one of vllm, sglang" in fault


def test_an_answer_that_is_too_long_is_scored_by_the_same_server():
    scorer, case = find("tool_call", "served"), case_of(dialect="hermes")
    short, long = (apply(scorer, case, SET, text)[METRIC] for text in ("No.", " " * (MAX_ANSWER + 1)))
    assert (long.error_type, long.scorer) == ("too_long", short.scorer)


def test_the_served_reading_is_a_mode_and_reads_a_dialect_that_is_named():
    scorer = in_dialect(find("tool_call", "served"), "hermes")
    one = scorer.function(case_of(), SET, '```\n<tool_call>{"name": "ping", "arguments": {}}')
    assert one[METRIC].verdict is True
    assert one[METRIC].scorer == "tool_call.served/4 vLLM 0.33.0 hermes"


def test_a_set_that_names_all_three_readings_gets_a_row_of_each():
    ping = {"name": "ping", "parameters": {"type": "dict", "properties": {}, "required": []}}
    case = case_of(tools=[ping], expected_calls=[{"ping": {}}], dialect="hermes")
    rows = {one.metric: one for one in score(case, SET, '<tool_call>{"name": "ping", "arguments": {}}', "eos")}
    assert {name: row.value for name, row in rows.items()} == {
        "tool_call.correct": 0.0,
        "tool_call.served": 1.0,
        "tool_call.compat": 0.0,
    }
    assert [row.scorer for row in rows.values()] == [
        "tool_call/9",
        "tool_call.served/4 vLLM 0.33.0",
        "tool_call.compat/3",
    ]


def test_hostile_text_is_bounded():
    with pytest.raises(BadCall, match="too many"):
        read_served("<arg_key>" * 60_000, "glm47")
    with pytest.raises(BadCall, match="too many"):
        read_served("<tool_call>f<arg_key>a" + "</arg_key><arg_value>" * 30_000, "glm47")
    with pytest.raises(BadCall, match=f"more than {MAX_CALLS} calls"):
        read_served(f"{OPEN}{F}</tool_call>" * (MAX_CALLS + 1), "hermes")
    assert read_served(OPEN + '{"name": "f", "arguments": ' + "[" * 100_000, "hermes") == ()
    with pytest.raises(BadCall, match="too many"):
        read_served("<arg_value>" * 60_000, "glm47")
    with pytest.raises(BadCall, match="deeper"):
        read_served("<|tool_call>call:f{" + "a:{" * 60_000, "gemma4")
    for name, text in (
        ("pythonic", "[" + "a" * 99_999), ("pythonic", "[f(a=" + "-" * 60_000 + "1)]"), ("kimi_k3", "<|open|>tools"
        "<|sep|><|open|>call" + " a" * 100_000), ("dots", "<dots_function_call>" + " " * 200_000),
        ("functiongemma", "<start_function_call>call:f{" + "a" * 10**5), ("apertus", "<|tools_prefix|>" + "[" * 99999),
    ):  # fmt: skip
        assert len(read_served(text, name)) == (name == "functiongemma")
    with pytest.raises(BadCall, match="too many to be tried"):
        read_served("<|tool_call_start|>[f(a='b" + "'x', " * 10_000 + ")]", "lfm2")


@pytest.mark.parametrize("value", ["NaN", "1e999", "[-Infinity]"])
def test_what_is_executed_and_no_json_is_no_plain_answer(value):
    """A server calls the function, whose arguments nobody can read: an answer that was not to call is wrong, too."""
    for name, text in (
        ("hermes", f'{OPEN}{{"name": "f", "arguments": {{"a": {value}}}}}'),
        ("deepseek_v4", DSML.format(f'<｜DSML｜parameter name="c" string="false">{value}</｜DSML｜parameter>')),
    ):
        with pytest.raises(BadCall, match="no JSON"):
            read_served(text, name, NUMBER)


@pytest.mark.parametrize(("schema", "text", "value"), table("tools/values")["vllm"])
def test_values_are_what_the_server_makes_of_them_and_not_what_the_schema_says(schema, text, value):
    tools = [{"name": "f", "parameters": {"properties": {"a": schema}}}]
    assert read_served(f"<function=f><parameter=a>{text}</parameter></function>", "qwen3_coder", tools) == (
        Call("f", {"a": value}),
    )


PARTS = ["<tool_call>", "</tool_call>", "<function=", "f", ">", "<parameter=a>", "1", "</parameter>", "</function>", F]
PARTS += ["<arg_key>a</arg_key>", "<arg_value>", "</arg_value>", DSML, "｜DSML｜", "\n", '"', "{", "}", "\ud800", CALL]
PARTS += ["[f(a=", "'", ")]", "<|tool_call>call:f", '<|"|>', "[TOOL_CALLS]", "<tool_call>[", "<|tools_prefix|>"]
PARTS += ["[ARGS]", "[", "1" * 5000, "NaN", "<|python_tag|>", "\\", "<|tool_call_start|>", "<|tool_call_end|>", "[f(x="]
PARTS += ["**{b'': 1j}", "{(1,): {2}}", "<ifm|tool_call>", "<ifm|arg_key>x</ifm|arg_key><ifm|arg_value>"]
PARTS += ["</ifm|arg_value></ifm|tool_call>", "<function name='f'><param name='x'>", "</param></function>"]
READERS = {
    "vllm": ("hermes", "qwen3_coder", "glm47", "deepseek_v4", "gemma4", "granite", "pythonic", "apertus"),
    "sglang": ("hermes", "qwen3_coder", "mimo", "glm45", "glm47", "mistral", "llama3_json", "deepseek_v4", "lfm2",
               "pythonic", "k2_horizon", "minicpm5"),
}  # fmt: skip


@pytest.mark.parametrize(("server", "name"), [(server, name) for server, names in READERS.items() for name in names])
def test_no_text_raises_anything_but_a_bad_call(server, name):
    @examples(60)
    @given(st.lists(st.sampled_from(PARTS), max_size=9).map("".join))
    def check(text):
        try:
            assert all(isinstance(call, Call) for call in read_served(text, name, NUMBER, SERVERS[server]))
        except BadCall as fault:
            assert fault.error_type in ("call_shape", "too_much")  # noqa: PT017

    check()
