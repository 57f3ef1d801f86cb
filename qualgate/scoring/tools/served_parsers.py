"""Parsers of a server, by the dialect that they read: what each makes of a finished answer, in our own words.

Here are those of calls between tags; those whose calls are JSON are in `served_json`. Each was held against vLLM's own
(docs/dialects.md).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from qualgate.scoring.tools import (
    served_elements,
    served_gemma,
    served_json,
    served_members,
    served_pairs,
    served_python,
)
from qualgate.scoring.tools.dialects.call import Call, Tools
from qualgate.scoring.tools.dialects.hunyuan import part_of
from qualgate.scoring.tools.dialects.tagged import properties, tool_names
from qualgate.scoring.tools.served_json import Reader
from qualgate.scoring.tools.served_values import by_first_type, coerced, executed, lenient


@dataclass(frozen=True, slots=True)
class Parser:
    """One of a server's parsers, by its name there. markers: what its patterns look for again from each."""

    name: str
    markers: tuple[str, ...]
    read: Reader


def _functions(value_of: Callable[[str], str], space: str = "") -> Reader:
    """Qwen's `<function=…>`, wherever it stands, up to its end or the next; an argument ends where the next begins.
    value_of: its text's value. space: of the tags around."""
    marks = rf"</parameter>|</?{space}think>"  # in a name, text
    name = rf"((?:{marks}|(?!>|</function>|</?{space}tool_call>|<function=).)*+)"
    block = re.compile(rf"<function={name}(?:>(.*?)(?=</function>|<function=|\Z))?", re.DOTALL)
    pair = re.compile(r"<\s*parameter\s*=\s*([^>]*)>(.*?)(?:<\s*/\s*parameter\s*>|(?=<\s*parameter\s*=))", re.DOTALL)

    def read(text: str, tools: Tools) -> Iterator[Call]:
        for name, body in block.findall(text):
            given = {key: value_of(value) for key, value in pair.findall(body)}
            if name := name.strip():
                yield executed(name, coerced(given, properties(tools, name)))

    return read


def _unwrapped(value: str) -> str:
    return value[value.startswith("\n") :].removesuffix("\n")


def _dsml(frame: str, space: str = "", begins: tuple[str, ...] = ()) -> Reader:
    """DSML's invocations, inside of a frame or not; what does not say whether it is text is JSON if it can be.

    begins: frames without which no invocation in a thought is called; () where the parser knows no thoughts.
    """
    tag, end = f"<｜DSML｜{space}", f"</｜DSML｜{space}"
    block = re.compile(
        rf'{tag}invoke name="(.*?)(?:">(.*?)(?:{end}invoke>|{end}{frame}>|\Z)|\Z)', re.DOTALL
    )  # a name that the text ends in is called, too
    pair = re.compile(
        rf'{tag}parameter\s+name="([^"]+)"(?:\s+string="([^"]*)")?\s*>(.*?)(?:{end}parameter>|(?={tag}parameter\s+name=))',
        re.DOTALL,
    )

    def value(said: str, text: str) -> Any:
        try:
            return text if said == "true" else lenient(text)
        except ValueError:
            return text

    frames = "|".join(f"{tag}{one}>" for one in begins)
    mark = re.compile(rf'(?P<opens><think>)|(?P<closes></think>)|(?P<frame>{frames})|{tag}invoke name="')

    def first(text: str) -> int:
        """Where the first call or frame is that a thought does not hide."""
        thinking = False
        for one in mark.finditer(text):
            if one["opens"] or one["closes"]:
                thinking = one["opens"] is not None
            elif one["frame"] or not thinking:
                return one.start()
        return len(text)

    def read(text: str, tools: Tools) -> Iterator[Call]:
        for name, body in block.findall(text, first(text) if begins else 0):
            given = {key: value(said, inner) for key, said, inner in pair.findall(body)}
            known = properties(tools, name)
            if len(given) == 1 and known:
                given = _without_wrapper(given, frozenset(known))
            if name.strip():
                yield executed(name.strip(), coerced(given, properties(tools, name.strip())))

    return read


def _without_wrapper(given: dict[str, Any], known: frozenset[str]) -> dict[str, Any]:
    ((key, inner),) = given.items()
    if key not in ("arguments", "input") or key in known:
        return given
    if isinstance(inner, str):
        try:
            inner = lenient(inner)
        except ValueError:
            return given
    return inner if isinstance(inner, dict) and inner.keys() <= known else given


def _pairs(text: str, tools: Tools) -> Iterator[Call]:
    """GLM's pairs of keys and values; only of tools that are offered."""
    offered = tool_names(tools)
    for block in re.findall(r"<tool_call>(.*?)(?:</tool_call>|\Z)", text, re.DOTALL):
        name, _, _ = block.partition("<arg_key>")
        pairs = re.findall(r"<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>", block, re.DOTALL)
        if (name := name.strip()) and (not offered or name in offered):
            yield executed(name, coerced({key.strip(): value for key, value in pairs}, properties(tools, name)))


def _invocations(text: str, tools: Tools) -> Iterator[Call]:
    """MiniMax-M2's, in a frame or not; of tools that are offered alone."""
    name = r"((?:</?(?:minimax:tool_call|think)>|</(?:parameter|invoke)>|(?![\"']?>).)*+)"
    block = re.compile(rf"<invoke name=[\"']?{name}(?:[\"']?>(.*?)(?:</invoke>|\Z))?", re.DOTALL)
    pair = re.compile(
        r"""<\s*parameter\s+name\s*=\s*(?:"([^"]*)"|'([^']*)'|([^>\s]+))\s*>(.*?)"""
        r"(?:<\s*/\s*parameter\s*>|(?=<\s*parameter\s+name\s*=))",
        re.DOTALL,
    )
    offered = tool_names(tools)
    for name, body in block.findall(text):
        given = {(one or two or bare).strip(): value for one, two, bare, value in pair.findall(body)}
        if (name := name.strip()) and (not offered or name in offered):
            yield executed(name, coerced({key: given[key] for key in given if key}, properties(tools, name)))


def _step(text: str, tools: Tools) -> Iterator[Call]:
    """Calls of the first frame, which must be closed, as each of them; a value is cast by its own `type` alone."""
    _, _, rest = text.partition("<｜tool_calls_begin｜>")
    frame, closed, _ = rest.partition("<｜tool_calls_end｜>")
    found: list[tuple[str, dict[str, str]]] = []
    for part in frame.split("<｜tool_call_begin｜>") if closed else ():
        call, ended, _ = part.partition("<｜tool_call_end｜>")
        kind, separated, invoked = call.partition("<｜tool_sep｜>")
        named = re.search(r'<steptml:invoke name="([^"]+)">', invoked)
        if ended and separated and kind.strip() == "function" and named:
            pairs = re.findall(r'<steptml:parameter name="([^"]+)">(.*?)</steptml:parameter>', invoked, re.DOTALL)
            found.append((named[1], {key: value.strip() for key, value in pairs}))
    known = {name: properties(tools, name) for name, _ in found}
    if all(isinstance(known[name].get(key, {}), dict) for name, given in found for key in given):  # else it fails
        for name, given in found:
            yield executed(name, {key: _cast(value, known[name].get(key, {})) for key, value in given.items()})


def _cast(text: str, schema: dict[str, Any]) -> Any:
    kind = schema.get("type")
    try:
        if kind in ("integer", "number"):
            return int(text) if kind == "integer" else float(text)
    except ValueError:
        return text
    if kind == "boolean" and text.lower() in ("true", "false"):
        return text.lower() == "true"
    return None if kind == "null" and text.lower() == "null" else text


def _hunyuan_v3(text: str, tools: Tools) -> Iterator[Call]:
    """Closed calls, wherever a frame begins, and behind the last of them those that are not closed."""
    part = part_of(text)
    if f"<tool_calls{part}>" not in text:
        return
    tag = re.escape(part) + ">"
    found = re.findall(f"<tool_call{tag}(.*?)<tool_sep{tag}(.*?)</tool_call{tag}", text, re.DOTALL)
    rest = text.split(f"</tool_call{part}>")[-1] if found else text
    found += re.findall(f"<tool_call{tag}(.*?)<tool_sep{tag}(.*)", rest, re.DOTALL)
    pair = re.compile(rf"<arg_key{tag}(.*?)</arg_key{tag}\s*<arg_value{tag}(.*?)</arg_value{tag}", re.DOTALL)
    yield from _by_first_type([(name.strip(), pair.findall(body)) for name, body in found], tools)


def _by_first_type(calls: list[tuple[str, list[tuple[str, str]]]], tools: Tools) -> Iterator[Call]:
    """Names with pairs; one value that the server fails at, and nothing is called."""
    try:
        typed = [
            (name, {key: by_first_type(value, properties(tools, name).get(key, {})) for key, value in pairs})
            for name, pairs in calls
        ]
    except TypeError:
        return
    yield from (executed(name, given) for name, given in typed)


def _hy_v4(text: str, tools: Tools) -> Iterator[Call]:
    """The first frame, if nothing in it is out of place; else nothing is called."""
    part = part_of(text)
    tag = re.escape(part) + ">"
    begin, end = text.find(f"<tool_calls{part}>"), text.find(f"</tool_calls{part}>")
    frame = text[begin + len(f"<tool_calls{part}>") : end] if 0 <= begin <= end else ""
    bodies = re.findall(f"<tool_call{tag}(.*?)</tool_call{tag}", frame, re.DOTALL)
    if not len(bodies) == frame.count(f"<tool_call{part}>") == frame.count(f"</tool_call{part}>"):
        return
    pair = re.compile(f"<arg_key{tag}(.*?)</arg_key{tag}<arg_value{tag}(.*?)</arg_value{tag}", re.DOTALL)
    calls = []
    for body in bodies:
        name, key, rest = body.partition(f"<arg_key{part}>")
        given = key + rest
        whole = all(given.count(f"<{one}{part}>") == given.count(f"</{one}{part}>") for one in ("arg_key", "arg_value"))
        if not name.strip() or not whole or pair.sub("", given).strip():
            return
        calls.append((name.strip(), pair.findall(given)))
    yield from _by_first_type(calls, tools)


_QWEN = Parser("qwen3_coder", ("parameter",), _functions(_unwrapped))
_HERMES = Parser("hermes", (), served_json.between("<tool_call>", "</tool_call>"))
_GLM = Parser("glm47", ("<arg_key>", "<arg_value>"), _pairs)
PARSERS = {
    "hermes": _HERMES,
    "qwen25": _HERMES,
    "ernie45": Parser("ernie45", ("<tool_call>",), served_json.ERNIE),
    "granite_20b_fc": Parser("granite-20b-fc", (), served_json.GRANITE),
    "internlm2": Parser("internlm", (), served_json.INTERNLM),
    "jamba": Parser("jamba", ("<tool_calls>",), served_json.JAMBA),
    "llama3_json": Parser("llama3_json", (), served_json.LLAMA),
    "phi4_mini": Parser("phi4_mini_json", ("functools[",), served_json.PHI),
    "deepseek_v3": Parser("deepseek_v3", ("｜tool▁",), served_json.DEEPSEEK_V3),
    "deepseek_v31": Parser("deepseek_v31", ("｜tool▁",), served_json.DEEPSEEK_V31),
    "granite4": Parser("granite4", (), served_json.GRANITE4),
    "hunyuan_a13b": Parser("hunyuan_a13b", ("<tool_calls>", "<think>"), served_json.HUNYUAN),
    "gigachat3": Parser("gigachat3", (), served_json.GIGACHAT),
    "kimi_k2": Parser("kimi_k2", ("<|tool_call",), served_json.kimi),
    "apertus": Parser("apertus", (), served_json.APERTUS),
    "granite": Parser("granite", ("tool_call",), served_members.GRANITE),
    "inkling": Parser("inkling", ("<|content_invoke_tool_json|>",), served_members.INKLING),
    "plamo3": Parser("plamo3", ("<|plamo:",), served_members.PLAMO),
    "dots": Parser("dots", ("<dots_function_call>", "<invoke", "<parameter"), served_elements.dots),
    "minimax_m3": Parser("minimax_m3", ("<invoke",), served_elements.minimax_m3),
    "minicpm5": Parser("minicpm5", ("<function", "<param"), served_elements.minicpm5),
    "kimi_k3": Parser("kimi_k3", ("<|open|>",), served_pairs.kimi_k3),
    "k2_horizon": Parser("k2_horizon", ("<ifm|",), served_pairs.k2_horizon),
    "poolside_v1": Parser("poolside_v1", ("<tool_call>", "<arg_key>"), served_pairs.poolside),
    "nemotron_v3": _QWEN,
    "gemma4": Parser("gemma4", ("<|tool_call>",), served_gemma.gemma4),
    "functiongemma": Parser("functiongemma", ("<start_function_call>", ":<escape>"), served_gemma.functiongemma),
    "xlam": Parser("xlam", ("```", "[TOOL_CALLS]", "<tool_call>", "</think>"), served_json.XLAM),
    "pythonic": Parser("pythonic", (), served_python.pythonic),
    "llama4_pythonic": Parser("llama4_pythonic", (), served_python.llama4),
    "olmo3": Parser("olmo3", (), served_python.olmo3),
    "lfm2": Parser("lfm2", (), served_python.lfm2),
    "mistral": Parser("mistral", (), served_json.MISTRAL),
    "mistral_v11": Parser("mistral", (), served_json.mistral),
    "minimax_m2": Parser("minimax_m2", ("parameter",), _invocations),
    "step3": Parser("step3", ("<steptml:parameter",), _step),
    "hunyuan_v3": Parser("hy_v3", ("<tool_call", "<arg_key", "<tool_sep"), _hunyuan_v3),
    "hy_v4": Parser("hy_v4", ("<tool_call", "<arg_key"), _hy_v4),
    "longcat": Parser("longcat", (), served_json.between("<longcat_tool_call>", "</longcat_tool_call>")),
    "qwen3_coder": _QWEN,
    "qwen3_xml": replace(_QWEN, name="qwen3_xml"),
    "step3p5": replace(_QWEN, name="step3p5"),
    "step5": replace(_QWEN, name="step5"),
    "mimo": replace(_QWEN, name="mimo", read=_functions(str)),
    "seed_oss": replace(_QWEN, name="seed_oss", read=_functions(_unwrapped, "seed:")),
    "glm45": replace(_GLM, name="glm45"),
    "glm47": _GLM,
    "ling3": replace(_GLM, name="ling3"),
    "deepseek_v32": Parser("deepseek_v32", ("｜DSML｜",), _dsml("function_calls")),
    "deepseek_v4": Parser("deepseek_v4", ("｜DSML｜",), _dsml("tool_calls", "", ("tool_calls", "toolcalls", "tool"))),
    "deepseek_v41": Parser("deepseek_v41", ("｜DSML｜",), _dsml("calls", " ", ("calls",))),
}
"""By dialect: the parser of `SERVER` whose reading is known."""
_OF_NONE = "vLLM 0.33.0 has no parser of it"
UNREAD = {
    "minimax_m1": _OF_NONE,
    "nemotron": _OF_NONE,
    "openai": f"{_OF_NONE}: it is what a server writes, not a model",
    "json": _OF_NONE,
    "cohere_command": "vLLM 0.33.0 reads it by a library of Cohere's, which is not read here",
    "harmony": "vLLM 0.33.0 reads its tokens, not its text",
}
"""By shipped dialect without such a parser: why."""
