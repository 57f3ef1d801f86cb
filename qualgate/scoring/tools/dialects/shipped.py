"""The dialects qualgate ships, each with the published template or parser it was checked against.

VLLM is release 0.33.0, SGLANG release 0.5.23; chat templates are named with the commit of the copy that was read.
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
from collections.abc import Callable
from dataclasses import replace

from qualgate.scoring.tools.dialects import gemma, harmony, json_calls, pythonic, qwen
from qualgate.scoring.tools.dialects.call import BadCall, Call, Tools, read_json
from qualgate.scoring.tools.dialects.json_calls import COHERE, EITHER, LLAMA, PLAIN, WITH_ID, joined, listed, one
from qualgate.scoring.tools.dialects.stream import Dialect
from qualgate.scoring.tools.dialects.tagged import reader, writer

VLLM = "vllm-project/vllm v0.33.0 vllm/"
SGLANG = "sgl-project/sglang v0.5.23 python/sglang/srt/function_call/"


def _template(file: str, commit: str) -> str:
    return f"ggml-org/llama.cpp @ {commit} models/templates/{file}"


_TAGS = ("<tool_call>", "</tool_call>")

HERMES = Dialect(
    name="hermes",
    source=VLLM + "tool_parsers/hermes_tool_parser.py",
    open=("<tool_call>",),
    close="</tool_call>",
    read=one(PLAIN),
    write=joined("<tool_call>\n{call}\n</tool_call>", _TAGS),
)

QWEN3_CODER = Dialect(
    name="qwen3_coder",
    source=VLLM + "parser/qwen3.py; " + SGLANG + "qwen3_coder_detector.py",
    open=("<tool_call>",),
    close="</tool_call>",
    stray=("<function=", "</function>"),
    read=qwen.read,
    scanner=qwen.Blocks,
    write=writer(
        "<tool_call>\n<function={key}>\n",
        "<parameter={key}>\n{value}\n</parameter>\n",
        "</function>\n</tool_call>",
        (*_TAGS, "<function=", "</function>", "<parameter=", "</parameter>", ">\n"),
    ),
)

_ARGUMENT = r"\s*<arg_key>(?P<key>.*?)</arg_key>\s*<arg_value>(?P<value>.*?)</arg_value>"
_ARGUMENT_TAGS = ("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "<tool_sep>")
GLM45 = Dialect(
    name="glm45",
    source=_template("GLM-4.6.jinja", "afefa651447358ae477f31a0ea1b97adff04c64f")
    + "; "
    + SGLANG
    + "glm4_moe_detector.py",
    open=("<tool_call>",),
    close="</tool_call>",
    stray=_ARGUMENT_TAGS[:4],
    read=reader(r"(?P<name>[^<\n]+)(?:\n|(?=<arg_key>)|\Z)", "", _ARGUMENT, guess=True),
    write=writer(
        "<tool_call>{key}\n",
        "<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n",
        "</tool_call>",
        (*_TAGS, *_ARGUMENT_TAGS),
    ),
)

HUNYUAN_V3 = Dialect(
    name="hunyuan_v3",
    source=SGLANG + "hunyuan_detector.py; " + VLLM + "tool_parsers/hy_v3_tool_parser.py",
    frame=("<tool_calls>", "</tool_calls>"),
    open=("<tool_call>",),
    close="</tool_call>",
    stray=_ARGUMENT_TAGS,
    read=reader(r"\s*(?P<name>[^<\n]+)<tool_sep>", "", _ARGUMENT, guess=True),
    write=writer(
        "<tool_call>{key}<tool_sep>\n",
        "<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n",
        "</tool_call>",
        (*_TAGS, *_ARGUMENT_TAGS, "<tool_calls>", "</tool_calls>"),
        around=("<tool_calls>\n", "\n</tool_calls>"),
    ),
)

MINIMAX_M2 = Dialect(
    name="minimax_m2",
    source=_template("unsloth-MiniMax-M2.jinja", "a21f05affbf67c90f2ac574f1bdd7197ccbe2369")
    + "; "
    + SGLANG
    + "minimax_m2.py",
    frame=("<minimax:tool_call>", "</minimax:tool_call>"),
    open=('<invoke name="',),
    close="</invoke>",
    read=reader(r'(?P<name>[^">\n]+)">', "", r'\s*<parameter name="(?P<key>[^">]*)">(?P<value>.*?)</parameter>'),
    write=writer(
        '<invoke name="{key}">\n',
        '<parameter name="{key}">{value}</parameter>\n',
        "</invoke>",
        ("minimax:tool_call>", "<invoke", "</invoke>", "<parameter", "</parameter>", '">'),
        around=("<minimax:tool_call>\n", "\n</minimax:tool_call>"),
    ),
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
    read=one(PLAIN),
    write=joined("<function_call> {call}", ("<function_call>",)),
)


def _read_mistral(text: str, tools: Tools) -> list[Call]:
    header = _MISTRAL_HEADER.match(text)
    if not header:
        return listed(WITH_ID, or_one=True)(text, tools)
    arguments = read_json(text[header.end() :])
    if not isinstance(arguments, dict):
        raise BadCall("call_shape", "the arguments are not an object")
    return [Call(header["name"], arguments)]


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


def _deepseek(separator: str, form: str) -> Callable[[str, Tools], list[Call]]:
    head = re.compile(separator)

    def read(text: str, tools: Tools) -> list[Call]:
        found = head.match(text)
        if not found:
            raise BadCall("call_shape", "no name before <｜tool▁sep｜>")
        arguments = text[found.end() :]
        if form:
            arguments = arguments.rstrip()
            if not arguments.endswith(form):
                raise BadCall("unbalanced", "the code fence around the arguments is not closed")
            arguments = arguments.removesuffix(form)
        value = read_json(arguments)
        if not isinstance(value, dict):
            raise BadCall("call_shape", "the arguments are not an object")
        return [Call(found["name"].strip(), value)]

    return read


_NAME = r"[^\s<](?:[^\n<]*[^\s<])?"
_DEEPSEEK = (
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁sep｜>",
)
DEEPSEEK_V3 = Dialect(
    name="deepseek_v3",
    source=VLLM + "tool_parsers/deepseekv3_tool_parser.py; " + SGLANG + "deepseekv3_detector.py",
    frame=_DEEPSEEK[:2],
    open=_DEEPSEEK[2:3],
    close=_DEEPSEEK[3],
    stray=_DEEPSEEK[4:],
    read=_deepseek(r"\s*function<｜tool▁sep｜>(?P<name>[^\n<]+)\n```json\n", "\n```"),
    write=joined(
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{arguments}\n```<｜tool▁call▁end｜>",
        _DEEPSEEK,
        name=_NAME,
        around="<｜tool▁calls▁begin｜>{}<｜tool▁calls▁end｜>",
    ),
)
DEEPSEEK_V31 = replace(
    DEEPSEEK_V3,
    name="deepseek_v31",
    source=_template("deepseek-ai-DeepSeek-V3.1.jinja", "0374c5b6e4c19370262d93e2c3f2a98c9af9fe1f")
    + "; "
    + VLLM
    + "tool_parsers/deepseekv31_tool_parser.py",
    read=_deepseek(r"(?P<name>[^\n<]+)<｜tool▁sep｜>", ""),
    write=joined(
        "<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{arguments}<｜tool▁call▁end｜>",
        _DEEPSEEK,
        name=_NAME,
        between="",
        around="<｜tool▁calls▁begin｜>{}<｜tool▁calls▁end｜>",
    ),
)


def _read_kimi(text: str, tools: Tools) -> list[Call]:
    head = _KIMI_HEAD.match(text)
    if not head:
        raise BadCall("call_shape", "no functions.name:index before the arguments")
    arguments = read_json(text[head.end() :])
    if not isinstance(arguments, dict):
        raise BadCall("call_shape", "the arguments are not an object")
    return [Call(head["name"], arguments)]


_KIMI_HEAD = re.compile(r"\s*(?:functions\.)?(?P<name>[^\s:<]+):[0-9]+\s*<\|tool_call_argument_begin\|>")
_KIMI = (
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "<|tool_call_begin|>",
    "<|tool_call_end|>",
    "<|tool_call_argument_begin|>",
)
KIMI_K2 = Dialect(
    name="kimi_k2",
    source=_template("moonshotai-Kimi-K2-Thinking.jinja", "0c3c896ea80643608b4e961eec7e1efcd844e109")
    + "; "
    + VLLM
    + "parser/kimi_k2.py; "
    + SGLANG
    + "kimik2_detector.py",
    frame=_KIMI[:2],
    open=_KIMI[2:3],
    close=_KIMI[3],
    stray=_KIMI[4:],
    read=_read_kimi,
    write=joined(
        "<|tool_call_begin|>functions.{name}:{index}<|tool_call_argument_begin|>{arguments}<|tool_call_end|>",
        _KIMI,
        name=r"[^\s:<]+",
        between="",
        around="<|tool_calls_section_begin|>{}<|tool_calls_section_end|>",
    ),
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
    read=one(EITHER),
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
    source=_template("nvidia-Llama-3_3-Nemotron-Super-49B-v1_5.jinja", "1035d607de4b7225ced27a19071a8bd8a1c08fbc"),
    open=("<TOOLCALL>",),
    close="</TOOLCALL>",
    read=listed(PLAIN),
    write=joined("{call}", ("<TOOLCALL>", "</TOOLCALL>"), between=", ", around="<TOOLCALL>[{}]</TOOLCALL>"),
)
_ACTION = ("<|START_ACTION|>", "<|END_ACTION|>")
COHERE_COMMAND = Dialect(
    name="cohere_command",
    source=_template("CohereForAI-c4ai-command-r7b-12-2024-tool_use.jinja", "041462bd55ae7be3ddfbd7a7356f01715740c50d")
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
    read=gemma.read,
    write=gemma.write,
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
    read=one(LLAMA),
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
XLAM = Dialect(
    name="xlam",
    source=VLLM + "tool_parsers/xlam_tool_parser.py",
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
        QWEN3_CODER,
        replace(QWEN3_CODER, name="qwen3_xml"),
        replace(QWEN3_CODER, name="nemotron_v3", source=VLLM + "parser/nemotron_v3.py"),
        GLM45,
        replace(GLM45, name="glm47", source=SGLANG + "glm47_moe_detector.py; " + VLLM + "parser/glm47_moe.py"),
        HUNYUAN_V3,
        MINIMAX_M2,
        GRANITE,
        GRANITE_20B_FC,
        MISTRAL,
        MISTRAL_V11,
        DEEPSEEK_V3,
        DEEPSEEK_V31,
        KIMI_K2,
        PHI4_MINI,
        INTERNLM2,
        JAMBA,
        replace(JAMBA, name="hunyuan_a13b", source=VLLM + "tool_parsers/hunyuan_a13b_tool_parser.py"),
        MINIMAX_M1,
        NEMOTRON,
        COHERE_COMMAND,
        FUNCTIONGEMMA,
        HARMONY,
        LLAMA4_PYTHONIC,
        PYTHONIC,
        LLAMA3_JSON,
        XLAM,
        OPENAI,
        JSON,
    )
}
