"""Detect the dialect that a chat template teaches, or an answer uses."""

from __future__ import annotations

from contextlib import suppress

from qualgate.scoring.tools.dialects.call import BadCall, Call, Tools
from qualgate.scoring.tools.dialects.registry import dialect, names
from qualgate.scoring.tools.dialects.tagged import tool_names

# What a template holds when it teaches the dialect: every string of one line. The first line that fits decides, so
# a marker that is part of another dialect's comes after it.
SIGNS = (
    ("harmony", "<|channel|>", "<|call|>"),
    ("deepseek_v41", "<｜DSML｜ calls>"),
    ("deepseek_v41", "｜DSML｜", " invoke name="),
    ("deepseek_v32", "｜DSML｜", "function_calls>"),
    ("deepseek_v4", "｜DSML｜", "tool_calls>"),
    ("kimi_k3", "<|open|>", "<|sep|>", "<|close|>"),
    ("minimax_m3", "]<]minimax[>["),
    ("gemma4", "<|tool_call>", "<tool_call|>"),
    ("seed_oss", "<seed:tool_call>"),
    ("longcat", "<longcat_tool_call>"),
    ("dots", "<dots_function_call>"),
    ("step3", "<steptml:invoke"),
    ("plamo3", "<|plamo:begin_tool_request"),
    ("inkling", "<|content_invoke_tool_json|>"),
    ("apertus", "<|tools_prefix|>"),
    ("gigachat3", "function call", "<|role_sep|>"),
    ("lfm2", "<|tool_call_start|>"),
    ("lfm2", "<|tool_list_start|>"),
    ("minicpm5", "<function name=", "<param name="),
    ("olmo3", "<function_calls>", "<functions>"),
    ("kimi_k2", "<|tool_calls_section_begin|>"),
    ("kimi_k2", "<|im_system|>tool_declare<|im_middle|>"),
    ("deepseek_v3", "<｜tool▁call▁begin｜>", "```json"),
    ("deepseek_v31", "<｜tool▁call▁begin｜>"),
    ("cohere_command", "<|START_ACTION|>"),
    ("functiongemma", "<start_function_call>"),
    ("internlm2", "<|plugin|>"),
    ("minimax_m2", "<minimax:tool_call>"),
    ("qwen3_coder", "<function=", "<parameter="),
    ("k2_horizon", "<ifm|tool_call>"),
    ("hunyuan_v3", "<arg_key", "<tool_sep"),
    ("hy_v4", "<arg_key", "<tool_calls"),
    ("glm45", "<arg_key>", "<arg_value>"),
    ("nemotron", "<TOOLCALL>"),
    ("mistral_v11", "[TOOL_CALLS]", "[ARGS]"),
    ("mistral", "[TOOL_CALLS]"),
    ("granite_20b_fc", "<function_call>"),
    ("phi4_mini", "functools["),
    ("phi4_mini", "<|tool|>", "<|/tool|>"),
    ("granite", "<|tool_call|>", "<|start_of_role|>"),
    ("minimax_m1", "<tool_calls>", "<beginning_of_sentence>"),
    ("jamba", "<tool_calls>", "<|bom|>"),
    ("hunyuan_a13b", "<tool_calls>"),
    ("llama4_pythonic", "func_name1(", "<|header_start|>"),
    ("pythonic", "func_name1("),
    ("hermes", "<tool_call>"),
    ("xlam", "tool_call_name"),
    ("llama3_json", "<|python_tag|>"),
    ("llama3_json", "<|python_start|>"),
    ("llama3_json", '{"name": function name, "parameters"'),
)


def of_template(template: str) -> tuple[str, str]:
    """Return the dialect that a chat template teaches, and the strings of SIGNS that show it; two "" if it is unknown.
    Dialects with one grammar (hermes, qwen25, granite4) go by the first name."""
    for name, *signs in SIGNS:
        if all(sign in template for sign in signs):
            return name, " and ".join(signs)
    return "", ""


def readings(text: str, tools: Tools = ()) -> dict[str, tuple[Call, ...]]:
    """Return the calls of each dialect that reads some from `text` without a fault, the likeliest first."""
    calls_by_dialect = {}
    for name in names():
        with suppress(BadCall):
            if calls := dialect(name).parse(text, tools):
                calls_by_dialect[name] = calls
    return calls_by_dialect


def other_readings(text: str, declared: str, tools: Tools = ()) -> dict[str, tuple[Call, ...]]:
    """Return what other dialects read where the declared one reads no call: the parser may be at fault, not the model.

    A server with the wrong parser scores zero on every tool call and well on everything else. Calls of tools that were
    not offered prove nothing. UsageError for an unknown dialect.
    """
    with suppress(BadCall):
        if dialect(declared).parse(text, tools):
            return {}
    offered = tool_names(tools)
    return {
        name: calls
        for name, calls in readings(text, tools).items()
        if name != declared and (not offered or all(call.name in offered for call in calls))
    }
