"""SGLang's parsers, by the dialect that they read: what each makes of a finished answer, in our own words.

Here are those whose calls are JSON; the others are in the modules beside, by what their calls are. Each was held
against SGLang's own (docs/dialects.md). Nearly all of them drop a call of a tool that is not offered, and read
`parameters` before `arguments`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from qualgate.scoring.tools import served_sglang_elements as elements
from qualgate.scoring.tools import served_sglang_pairs as pairs
from qualgate.scoring.tools import served_sglang_python as python
from qualgate.scoring.tools import served_sglang_tags as tags
from qualgate.scoring.tools.dialects.call import Tools
from qualgate.scoring.tools.served_parsers import Parser
from qualgate.scoring.tools.served_sglang_gemma import GEMMA4
from qualgate.scoring.tools.served_sglang_glm import GLM47
from qualgate.scoring.tools.served_sglang_values import (
    Named,
    all_or_none,
    function_of,
    literal,
    offered,
    properties,
)

_DECODER = json.JSONDecoder()


def _hermes(text: str, tools: Tools) -> Iterator[Named]:
    """Objects, or lists of them, between tags, of which the last may be open."""
    for closed, rest in re.findall("<tool_call>(.*?)</tool_call>|<tool_call>(.*)", text, re.DOTALL):
        if raw := closed or rest:
            yield from offered(json.loads(raw.strip()), tools)


def _qwen25(text: str, tools: Tools) -> Iterator[Named]:
    """The same, each tag on a line of its own and closed; what is no JSON is passed over."""
    for block in re.findall("<tool_call>\n(.*?)\n</tool_call>", text, re.DOTALL):
        try:
            action = json.loads(block.strip())
        except json.JSONDecodeError:
            continue
        yield from offered(action, tools)


def _apertus(text: str, tools: Tools) -> Iterator[Named]:
    """Lists behind the mark, each with an end behind it, of objects whose first key is a name and its value arguments;
    up to the first list that is none."""
    begin, names = text.find("<|tools_prefix|>["), {function_of(tool).get("name") for tool in tools}
    while begin >= 0:
        try:
            values, end = _DECODER.raw_decode(text, begin + len("<|tools_prefix|>"))
        except json.JSONDecodeError:
            return
        if (end := text.find("<|tools_suffix|>", end)) < 0:
            return
        for value in values:
            if isinstance(value, dict) and value:
                name, given = next(iter(value.items()))
                if name in names:
                    yield name, {} if given is None else given
        begin = text.find("<|tools_prefix|>[", end)


def _gigachat(text: str, tools: Tools) -> Iterator[Named]:
    """All behind the first mark must be one object."""
    text = text[: text.rfind("</s>")] if text.rstrip().endswith("</s>") else text
    call = re.search(r"(?:function call<\|role_sep\|>\n|<\|function_call\|>)(.*)", text, re.DOTALL)
    value = json.loads(call[1], strict=False) if call else None
    if isinstance(value, dict) and "name" in value and isinstance(value.get("arguments"), dict):
        yield from offered({"name": value["name"], "arguments": value["arguments"]}, tools)


def _deepseek(text: str, tools: Tools, before: str, behind: str) -> Iterator[Named]:
    """Closed calls, if a frame begins anywhere: a name behind the last separator, `before` and `behind` arguments."""
    if "<｜tool▁calls▁begin｜>" not in text:
        return
    for block in re.findall("<｜tool▁call▁begin｜>(.*?)<｜tool▁call▁end｜>", text, re.DOTALL):
        if behind and not block.endswith(behind):
            raise ValueError("a call is not as it should be")
        head, mark, given = block[: len(block) - len(behind)].rpartition(before)
        _, separated, name = head.rpartition("<｜tool▁sep｜>") if behind else ("", mark, head)
        if not (mark and separated):
            raise ValueError("a call is not as it should be")
        yield from offered({"name": name, "parameters": json.loads(given)}, tools)


def _kimi(text: str, tools: Tools) -> Iterator[Named]:
    """Closed calls, if a section begins anywhere, whatever their tools; of a bare number the tool is guessed by its
    arguments. Arguments go on as they are, also where they are no JSON."""
    if "<|tool_calls_section_begin|>" not in text:
        return
    call = re.compile(
        r"<\|tool_call_begin\|>\s*([^\s<|]+)\s*<\|tool_call_argument_begin\|>\s*(\{.*?\})\s*<\|tool_call_end\|>",
        re.DOTALL,
    )
    for header, given in call.findall(text):
        try:
            arguments = json.loads(given)
        except (ValueError, RecursionError):
            arguments = given
        one = re.fullmatch(r"(?:functions\.)?([\w.\-]+):\d+", header)
        name = one[1] if one else _guessed(arguments, tools) if re.fullmatch(r"\d+", header) else None
        if name is not None:
            yield name, arguments


def _guessed(arguments: Any, tools: Tools) -> str | None:
    """The tool whose arguments these are, as far as keys tell: the first of those that share most and lack least."""
    functions = [function_of(tool) for tool in tools]
    if len(functions) == 1:
        return functions[0].get("name")
    best, most = None, -1
    for one in functions if isinstance(arguments, dict) else ():
        known = properties(one.get("parameters")).keys()
        score = len(arguments.keys() & known) - len(arguments.keys() - known)
        if known and score > most:
            best, most = one.get("name"), score
    return best


def _mistral(text: str, tools: Tools) -> Iterator[Named]:
    """The first list behind its mark; without one, names and values behind `[ARGS`, one mark after another."""
    begin = text.find("[TOOL_CALLS")
    text = text[begin:] if begin >= 0 else ""
    if (at := text.find("[TOOL_CALLS] [")) >= 0:
        try:
            yield from offered(json.loads(_balanced(text, at + len("[TOOL_CALLS] "))), tools)
        except json.JSONDecodeError:
            return
    elif text:
        yield from _compact(text, tools)


def _compact(text: str, tools: Tools) -> Iterator[Named]:
    at = 0
    while one := re.compile(r"\[TOOL_CALLS\]?\s*(.*?)\[ARGS\]?\s*(?=[{\[])", re.DOTALL).search(text, at):
        if "[ARGS" in one[1] or not one[1].strip():
            return
        given = _balanced(text, one.end())
        try:
            arguments = json.loads(given)
        except ValueError:
            return
        yield from offered({"name": one[1].strip(), "arguments": arguments}, tools)
        at = one.end() + len(given)


def _balanced(text: str, begin: int) -> str:
    """From a bracket to the one that closes it; "" where none does."""
    opens, depth, quoted = text[begin], 0, False
    closes = "}" if opens == "{" else "]"
    for one in re.compile(r'\\.|["{}\[\]]', re.DOTALL).finditer(text, begin):
        if one[0] == '"':
            quoted = not quoted
        elif not quoted and one[0] in (opens, closes):
            depth += 1 if one[0] == opens else -1
            if depth == 0:
                return text[begin : one.end()]
    return ""


def _llama(text: str, tools: Tools) -> Iterator[Named]:
    """Values behind the mark, or where the text begins with an object, one character between them; then those that
    begin with a name, Python's own among them."""
    _, marked, behind = text.partition("<|python_tag|>")
    text = behind if marked else text if text.startswith("{") else ""
    at, found = 0, []
    while 0 <= at < len(text):
        try:
            value, end = _DECODER.raw_decode(text, at)
        except json.JSONDecodeError:
            value, end = _python(text, at)
        if end:
            found.append(value)
            at = end + 1
        else:
            at = text.find('{"name":', at + 1)
    yield from offered(found, tools)


def _python(text: str, at: int) -> tuple[Any, int]:
    """A dictionary as Python writes it, and where it ends; 0 where none begins."""
    depth, end = 0, 0
    for one in re.compile("[{}]").finditer(text, at):
        depth += 1 if one[0] == "{" else -1
        if depth == 0 and one[0] == "}":
            end = one.end()
            break
    given = text[at:end]
    value = literal(given.strip(), (Exception,)) if given else given
    return (value, end) if isinstance(value, dict) and json.dumps(value, ensure_ascii=False) != given else (None, 0)


_QWEN3 = Parser("qwen3_coder", ("<tool_call>", "<function=", "<parameter="), tags.QWEN3)
_MISTRAL = Parser("mistral", ("[TOOL_CALLS",), all_or_none(_mistral))
_CALL = ("<tool_call>",)
_PAIRS = (*_CALL, "<arg_key>", "</arg_key>")
_DEEPSEEK = ("<｜tool▁call▁begin｜>",)
_DSML = ("｜DSML｜",)
_PYTHONIC = Parser("pythonic", (), python.PYTHONIC)
PARSERS = {
    "hermes": Parser("hermes", _CALL, all_or_none(_hermes)),
    "qwen25": Parser("qwen25", _CALL, all_or_none(_qwen25)),
    "qwen3_coder": _QWEN3,
    "step3p5": _QWEN3,
    "mimo": Parser("mimo", (*_CALL, "<function=", "<parameter="), tags.MIMO),
    "glm45": Parser("glm45", _PAIRS, tags.GLM45),
    "glm47": Parser("glm47", _PAIRS, GLM47),
    "poolside_v1": Parser("poolside_v1", _PAIRS, tags.POOLSIDE),
    "ling3": Parser("ling3", (*_PAIRS, "\n"), tags.LING3),
    "deepseek_v3": Parser(
        "deepseekv3", _DEEPSEEK, all_or_none(lambda text, tools: _deepseek(text, tools, "\n```json\n", "\n```"))
    ),
    "deepseek_v31": Parser(
        "deepseekv31", _DEEPSEEK, all_or_none(lambda text, tools: _deepseek(text, tools, "<｜tool▁sep｜>", ""))
    ),
    "deepseek_v32": Parser("deepseekv32", _DSML, tags.dsml("function_calls")),
    "deepseek_v4": Parser("deepseekv4", _DSML, tags.dsml("tool_calls")),
    "deepseek_v41": Parser("deepseekv41", _DSML, tags.dsml("calls", " ")),
    "kimi_k2": Parser("kimi_k2", ("<|tool_call_begin|>", "}"), all_or_none(_kimi)),
    "minimax_m2": Parser("minimax-m2", ("<minimax:tool_call>", "<invoke", "<parameter"), tags.MINIMAX),
    "step3": Parser("step3", ("<｜tool_call_begin｜>", "<steptml:"), tags.STEP),
    "hunyuan_v3": Parser("hunyuan", ("<tool_call", "<arg_key", "<tool_sep"), tags.HUNYUAN),
    "mistral": _MISTRAL,
    "mistral_v11": _MISTRAL,
    "llama3_json": Parser("llama3", ("{",), all_or_none(_llama)),
    "apertus": Parser("apertus2509", ("<|tools_prefix|>",), all_or_none(_apertus)),
    "gemma4": Parser("gemma4", ("<|tool_call>",), GEMMA4),
    "gigachat3": Parser("gigachat3", (), all_or_none(_gigachat)),
    "kimi_k3": Parser("kimi_k3", ("<|open|>",), pairs.KIMI_K3),
    "k2_horizon": Parser("k2_horizon", ("<ifm|", "</ifm|"), pairs.K2_HORIZON),
    "inkling": Parser("inkling", (), pairs.INKLING),
    "dots": Parser("dots", ("<dots_function_call>", "<invoke", "<parameter"), elements.DOTS),
    "minicpm5": Parser("minicpm5", ("<function", "<param"), elements.MINICPM5),
    "minimax_m3": Parser("minimax-m3", ("<tool_call>", "<invoke"), elements.MINIMAX_M3),
    "lfm2": Parser("lfm2", ("<|tool_call_start|>",), python.LFM2),
    "pythonic": _PYTHONIC,
    "llama4_pythonic": _PYTHONIC,
}
"""By dialect: the parser of SGLang whose reading is known."""
