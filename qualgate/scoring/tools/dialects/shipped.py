"""The dialects qualgate ships, each with the published template or parser it was checked against.

VLLM is release 0.33.0, SGLANG release 0.5.23; chat templates are named with the commit of the copy that
was read.
On 1,000 texts a dialect, written after the templates by a program of its own, our calls were the ones meant in all, and
the peers' in all but these, which are intended differences (no peer was run for nemotron, minimax_m1, openai, json):

    SGLang GLM 4.5        a string argument whose text is JSON loses its form: `true` becomes "True" (55 of 1,000)
    SGLang Qwen3-Coder,   the text `null` of a string argument becomes null (38 and 33 of 1,000)
    MiniMax-M2
    SGLang pythonic       no call with a negative number is read (208 of 1,000)
    vLLM phi4_mini        reads to the first `]`, also one within the arguments (521 of 1,000)
    vLLM functiongemma    reads escaped strings alone, as JSON; not numbers, lists, objects (798 of 1,000)

Stricter than both, because a score must not rest on a repair: duplicate keys, NaN and unknown keys in a call, a block
or frame that is not closed, prose between calls in a frame, repeated markers. vLLM reads a <tool_call> within <think>
as the end of thinking, and both read calls in a code fence; here those are faults with names of their own.
"""

from __future__ import annotations

import re
from dataclasses import replace

from qualgate.scoring.tools.dialects import gemma, harmony, json_calls, pythonic
from qualgate.scoring.tools.dialects.call import BadCall, Call, Tools, read_arguments
from qualgate.scoring.tools.dialects.deepseek import DEEPSEEK_V3, DEEPSEEK_V4, DEEPSEEK_V31, DEEPSEEK_V32, DEEPSEEK_V41
from qualgate.scoring.tools.dialects.elements import (
    DOTS,
    GLM45,
    K2_HORIZON,
    MIMO,
    MINICPM5,
    MINIMAX_M2,
    POOLSIDE,
    QWEN3_CODER,
    SEED_OSS,
    STEP3,
)
from qualgate.scoring.tools.dialects.hunyuan import HUNYUAN_V3, HY_V4
from qualgate.scoring.tools.dialects.json_calls import (
    COHERE,
    EITHER,
    INKLING,
    LLAMA,
    PLAIN,
    WITH_ID,
    joined,
    keyed,
    listed,
    single,
)
from qualgate.scoring.tools.dialects.kimi import KIMI_K2, KIMI_K3
from qualgate.scoring.tools.dialects.minimax import MINIMAX_M3
from qualgate.scoring.tools.dialects.sources import SGLANG, VLLM, template
from qualgate.scoring.tools.dialects.stream import Dialect

_TAGS = ("<tool_call>", "</tool_call>")

HERMES = Dialect(
    name="hermes",
    source=VLLM + "tool_parsers/hermes_tool_parser.py",
    open=("<tool_call>",),
    close="</tool_call>",
    read=single(PLAIN),
    write=joined("<tool_call>\n{call}\n</tool_call>", _TAGS),
)

_LONGCAT = ("<longcat_tool_call>", "</longcat_tool_call>")
LONGCAT = replace(
    HERMES,
    name="longcat",
    source=f"{VLLM}tool_parsers/longcat_tool_parser.py; {SGLANG}longcat_detector.py",
    open=_LONGCAT[:1],
    close=_LONGCAT[1],
    thinks=("<longcat_think>", "</longcat_think>"),
    write=joined("<longcat_tool_call>\n{call}\n</longcat_tool_call>", _LONGCAT),
)
_MARKED = ("<|tool_call|>", "<tool_call>")
GRANITE = Dialect(
    name="granite",
    source=VLLM + "parser/granite.py",
    open=_MARKED,
    read=listed(PLAIN),
    write=joined("{call}", _MARKED, between=", ", around="<|tool_call|>[{}]"),
)
GRANITE_20B_FC = Dialect(
    name="granite_20b_fc",
    source=VLLM + "tool_parsers/granite_20b_fc_tool_parser.py",
    open=("<function_call>",),
    read=single(PLAIN),
    write=joined("<function_call> {call}", ("<function_call>",)),
)


def _read_mistral(text: str, tools: Tools) -> list[Call]:
    """Read a call in Mistral's form, a name and JSON arguments, or a list of calls. BadCall for anything else."""
    header = _MISTRAL_HEADER.match(text)
    if not header:
        return listed(WITH_ID, or_one=True)(text, tools)
    return [Call(header["name"], read_arguments(text[header.end() :]))]


_MISTRAL_HEADER = re.compile(r"\s*(?P<name>[^\s\[\]{}]+)\s*(?:\[CALL_ID\]\s*[\w-]+\s*)?(?:\[ARGS\]\s*)?(?=\{)")
_MISTRAL_MARKERS = ("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]")
MISTRAL = Dialect(
    name="mistral",
    source=SGLANG + "mistral_detector.py; " + VLLM + "parser/mistral.py (before tokenizer 11)",
    open=("[TOOL_CALLS]",),
    named=True,
    stray=("[ARGS]", "[CALL_ID]"),
    read=_read_mistral,
    write=joined("{call}", _MISTRAL_MARKERS, between=", ", around="[TOOL_CALLS] [{}]"),
)
MISTRAL_V11 = replace(
    MISTRAL,
    name="mistral_v11",
    source=SGLANG + "mistral_detector.py; " + VLLM + "parser/mistral.py (tokenizer 11 and later)",
    write=joined("[TOOL_CALLS]{name}[ARGS]{arguments}", _MISTRAL_MARKERS, between="", name=r"[^\s\[\]{}]+"),
)


PHI4_MINI = Dialect(
    name="phi4_mini",
    source=VLLM + "tool_parsers/phi4mini_tool_parser.py",
    open=("functools[",),
    read=listed(EITHER),
    write=joined("{call}", ("functools[",), between=", ", around="functools[{}]"),
)

_PLUGIN = ("<|action_start|><|plugin|>", "<|action_start|> <|plugin|>")
INTERNLM2 = Dialect(
    name="internlm2",
    source=VLLM + "tool_parsers/internlm2_tool_parser.py; " + SGLANG + "internlm_detector.py",
    open=_PLUGIN,
    close="<|action_end|>",
    read=single(EITHER),
    write=joined(
        '<|action_start|><|plugin|>\n{"name": {json_name}, "parameters": {arguments}}<|action_end|>',
        (*_PLUGIN, "<|action_end|>"),
        between="",
    ),
)

_TOOL_CALLS = ("<tool_calls>", "</tool_calls>")
JAMBA = Dialect(
    name="jamba",
    source=VLLM + "tool_parsers/jamba_tool_parser.py",
    open=_TOOL_CALLS[:1],
    close=_TOOL_CALLS[1],
    read=listed(PLAIN),
    write=joined("{call}", _TOOL_CALLS, between=",\n", around="<tool_calls>[\n{}\n]</tool_calls>"),
)
MINIMAX_M1 = replace(
    JAMBA,
    name="minimax_m1",
    source="MiniMaxAI/MiniMax-M1 docs/function_call_guide.md (copy: renegade-studio/beta-O1 "
    "@ 21f59c5756c1cd9b7825b7bd2839da3513f66cff)",
    read=json_calls.lines,
    write=joined("{call}", _TOOL_CALLS, around="<tool_calls>\n{}\n</tool_calls>"),
)
NEMOTRON = Dialect(
    name="nemotron",
    source=template("nvidia-Llama-3_3-Nemotron-Super-49B-v1_5.jinja", "1035d607de4b7225ced27a19071a8bd8a1c08fbc"),
    open=("<TOOLCALL>",),
    close="</TOOLCALL>",
    read=listed(PLAIN),
    write=joined("{call}", ("<TOOLCALL>", "</TOOLCALL>"), between=", ", around="<TOOLCALL>[{}]</TOOLCALL>"),
)
APERTUS = Dialect(
    name="apertus",
    source=f"{VLLM}tool_parsers/apertus_tool_parser.py; {SGLANG}apertus2509_detector.py",
    open=("<|tools_prefix|>",),
    close="<|tools_suffix|>",
    thinks=("<|inner_prefix|>", "<|inner_suffix|>"),
    read=listed(keyed),
    write=joined(
        "{{json_name}: {arguments}}",
        ("<|tools_prefix|>", "<|tools_suffix|>"),
        between=", ",
        around="<|tools_prefix|>[{}]<|tools_suffix|>",
    ),
)
_FUNCTION_CALL = ("function call<|role_sep|>\n", "<|function_call|>")
GIGACHAT3 = Dialect(
    name="gigachat3",
    source=template("GigaChat3-10B-A1.8B.jinja", "6f9ffbd9dba6b4b0311dba3c72ff1960f13edd74")
    + f"; {VLLM}tool_parsers/gigachat3_tool_parser.py; {SGLANG}gigachat3_detector.py",
    open=_FUNCTION_CALL,
    read=single(PLAIN),
    write=joined("function call<|role_sep|>\n{call}", _FUNCTION_CALL, between="<|message_sep|>\n\n"),
)
INKLING_JSON = Dialect(
    name="inkling",
    source=f"{VLLM}parser/inkling.py; {SGLANG}inkling_detector.py",
    open=("<|content_invoke_tool_json|>",),
    close="<|end_message|>",
    thinks=("<|content_thinking|>", "<|end_message|>"),
    message=("<|message_model|>", "<|content_text|>", "<|end_message|>", "<|content_model_end_sampling|>"),
    read=single(INKLING),
    write=joined(
        '<|message_model|><|content_invoke_tool_json|>{"name":{json_name},"args":{arguments}}<|end_message|>',
        ("<|content_invoke_tool_json|>", "<|end_message|>", "<|content_thinking|>"),
        between="",
    ),
)


def _read_plamo(text: str, tools: Tools) -> list[Call]:
    """Read the one call of a block. BadCall for anything else."""
    match = _PLAMO_CALL.fullmatch(text)
    if not match:
        raise BadCall("call_shape", "no name and arguments between their tokens")
    return [Call(match["name"].strip(), read_arguments(match["arguments"]))]


_PLAMO_CALL = re.compile(
    r"\s*<\|plamo:begin_tool_name:plamo\|>\s*(?P<name>[^<]*)<\|plamo:end_tool_name:plamo\|>\s*"
    r"<\|plamo:begin_tool_arguments:plamo\|><\|plamo:constrain\|>json<\|plamo:msg\|>"
    r"(?P<arguments>.*)<\|plamo:end_tool_arguments:plamo\|>\s*",
    re.DOTALL,
)
PLAMO3 = Dialect(
    name="plamo3",
    source=f"{VLLM}parser/plamo3.py",
    frame=("<|plamo:begin_tool_requests:plamo|>", "<|plamo:end_tool_requests:plamo|>"),
    open=("<|plamo:begin_tool_request:plamo|>",),
    close="<|plamo:end_tool_request:plamo|>",
    thinks=("<|plamo:begin_think:plamo|>", "<|plamo:end_think:plamo|>"),
    read=_read_plamo,
    write=joined(
        "<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>{name}<|plamo:end_tool_name:plamo|>"
        "<|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>{arguments}"
        "<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>",
        ("<|plamo:",),
        between="",
        name=r"[^\s<]+",
        around="<|plamo:begin_tool_requests:plamo|>{}<|plamo:end_tool_requests:plamo|>",
    ),
)
_ACTION = ("<|START_ACTION|>", "<|END_ACTION|>")
COHERE_COMMAND = Dialect(
    name="cohere_command",
    source=template("CohereForAI-c4ai-command-r7b-12-2024-tool_use.jinja", "041462bd55ae7be3ddfbd7a7356f01715740c50d")
    + "; "
    + SGLANG
    + "cohere_command4_detector.py",
    open=_ACTION[:1],
    close=_ACTION[1],
    read=listed(COHERE),
    write=joined(
        '    {"tool_call_id": "{index}", "tool_name": {json_name}, "parameters": {arguments}}',
        _ACTION,
        between=",\n",
        around="<|START_ACTION|>[\n{}\n]<|END_ACTION|>",
    ),
)

FUNCTIONGEMMA = Dialect(
    name="functiongemma",
    source="ai.google.dev/gemma/docs/functiongemma/formatting-and-best-practices; "
    "" + VLLM + "tool_parsers/functiongemma_tool_parser.py",
    open=("<start_function_call>",),
    close="<end_function_call>",
    read=gemma.FUNCTION_GEMMA.read,
    write=gemma.FUNCTION_GEMMA.write,
)
GEMMA4 = Dialect(
    name="gemma4",
    source=template("gemma4.jinja", "75f1ba7389067a9f90082515e124c377a1e104b2")
    + f"; {VLLM}parser/gemma4.py; {SGLANG}gemma4_detector.py",
    open=("<|tool_call>",),
    close="<tool_call|>",
    thinks=("<|channel>", "<channel|>"),
    read=gemma.GEMMA_4.read,
    write=gemma.GEMMA_4.write,
)

HARMONY = Dialect(
    name="harmony",
    source="openai/harmony docs/format.md @ 20cd04c17fa327f01f9f28240fb70183d4feb406; "
    + SGLANG
    + "gpt_oss_detector.py",
    open=harmony.MARKERS[:1],
    read=harmony.read,
    write=harmony.write,
    scanner=harmony.Messages,
)

LLAMA3_JSON = Dialect(
    name="llama3_json",
    source=VLLM + "tool_parsers/llama_tool_parser.py; " + SGLANG + "llama32_detector.py",
    open=("<|python_tag|>",),
    anchors="{",
    amid=r'\{\s{0,16}"(?:name|type|parameters|arguments)"\s{0,16}:',
    read=single(LLAMA),
    write=joined('{"name": {json_name}, "parameters": {arguments}}', ("<|python_tag|>",), between="; "),
)
PYTHONIC = Dialect(
    name="pythonic",
    source=VLLM + "tool_parsers/pythonic_tool_parser.py; " + SGLANG + "pythonic_detector.py",
    anchors="[",
    meant=pythonic.MEANT,
    quotes="\"'",
    read=pythonic.read,
    write=pythonic.write,
)
LLAMA4_PYTHONIC = replace(
    PYTHONIC,
    name="llama4_pythonic",
    source=VLLM + "tool_parsers/llama4_pythonic_tool_parser.py",
    open=("<|python_start|>",),
)
LFM2 = Dialect(
    name="lfm2",
    source=template("LFM2.5-8B-A1B.jinja", "6f4e9f581c7b0a59a1caf901b18434641494c5f1")
    + f"; {VLLM}tool_parsers/lfm2_tool_parser.py; {SGLANG}lfm2_detector.py",
    open=("<|tool_call_start|>",),
    close="<|tool_call_end|>",
    read=pythonic.read,
    write=lambda calls: f"<|tool_call_start|>{pythonic.write(calls)}<|tool_call_end|>",
)
OLMO3 = Dialect(
    name="olmo3",
    source=f"{VLLM}tool_parsers/olmo3_tool_parser.py",
    open=("<function_calls>",),
    close="</function_calls>",
    read=pythonic.lines,
    write=pythonic.write_lines,
)
XLAM = Dialect(
    name="xlam",
    source=VLLM + "tool_parsers/xlam_tool_parser.py",
    open=("[TOOL_CALLS]", "<tool_call>"),
    anchors="[",
    fenced=True,
    read=listed(PLAIN),
    write=joined("{call}", between=", ", around="[{}]"),
)
OPENAI = Dialect(
    name="openai",
    source="openai/openai-openapi: ChatCompletionMessageToolCall (function.arguments is JSON text)",
    anchors="[{",
    meant=re.compile(r'"(?:function|tool_calls)"\s*:'),
    read=json_calls.read_openai,
    write=json_calls.write_openai,
)
JSON = Dialect(
    name="json",
    source="the object that hermes, Llama and xLAM share, bare; " + SGLANG + "base_format_detector.py",
    anchors="[{",
    read=listed(EITHER, or_one=True),
    write=joined("{call}", between=", ", around="[{}]"),
)

# From the most telling markers to bare JSON: of several dialects that read a text, the first is the likeliest.
SHIPPED = {
    dialect.name: dialect
    for dialect in (
        HERMES,
        replace(HERMES, name="qwen25", source=SGLANG + "qwen25_detector.py (Qwen 2.5 and 3)"),
        replace(HERMES, name="granite4", source=VLLM + "tool_parsers/granite4_tool_parser.py"),
        replace(HERMES, name="ernie45", source=VLLM + "tool_parsers/ernie45_tool_parser.py"),
        QWEN3_CODER,
        replace(QWEN3_CODER, name="qwen3_xml"),
        MIMO,
        replace(QWEN3_CODER, name="step3p5", source=f"{VLLM}parser/step3p5.py"),
        replace(QWEN3_CODER, name="step5", source=f"{VLLM}tool_parsers/step5_tool_parser.py"),
        replace(QWEN3_CODER, name="nemotron_v3", source=VLLM + "parser/nemotron_v3.py"),
        HY_V4,  # GLM reads its calls as well
        GLM45,
        replace(GLM45, name="glm47", source=SGLANG + "glm47_moe_detector.py; " + VLLM + "parser/glm47_moe.py"),
        replace(GLM45, name="ling3", source=f"{VLLM}parser/ling3.py; {SGLANG}ling3_detector.py"),
        POOLSIDE,
        SEED_OSS,
        HUNYUAN_V3,
        K2_HORIZON,
        MINIMAX_M2,
        MINIMAX_M3,
        DOTS,
        STEP3,
        MINICPM5,
        LONGCAT,
        GRANITE,
        GRANITE_20B_FC,
        MISTRAL,
        MISTRAL_V11,
        DEEPSEEK_V3,
        DEEPSEEK_V31,
        DEEPSEEK_V32,
        DEEPSEEK_V4,
        DEEPSEEK_V41,
        KIMI_K2,
        KIMI_K3,
        PHI4_MINI,
        INTERNLM2,
        JAMBA,
        replace(JAMBA, name="hunyuan_a13b", source=VLLM + "tool_parsers/hunyuan_a13b_tool_parser.py"),
        MINIMAX_M1,
        NEMOTRON,
        COHERE_COMMAND,
        FUNCTIONGEMMA,
        GEMMA4,
        HARMONY,
        APERTUS,
        GIGACHAT3,
        INKLING_JSON,
        PLAMO3,
        LFM2,
        OLMO3,
        LLAMA4_PYTHONIC,
        PYTHONIC,
        LLAMA3_JSON,
        XLAM,
        OPENAI,
        JSON,
    )
}
