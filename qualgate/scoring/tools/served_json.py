"""Parsers of a server whose calls are JSON: what each makes of a finished answer, in our own words (`served_parsers`).

Most of them read all calls or none: one that is no JSON, or lacks a key, leaves the whole text an answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from qualgate.scoring.tools.dialects.call import Call, Tools
from qualgate.scoring.tools.served_values import executed, lenient

Reader = Callable[[str, Tools], Iterator[Call]]
FAULTS = (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError)
_DECODER = json.JSONDecoder()


def _all_or_none(found: Callable[[str], Iterable[tuple[Any, Any]]]) -> Reader:
    """found: names and arguments of a text; whatever it raises, or a name that is no text, and nothing is called."""

    def read(text: str, tools: Tools) -> Iterator[Call]:
        try:
            calls = list(found(text))
        except FAULTS:
            return
        if all(isinstance(name, str) for name, _ in calls):
            for name, arguments in calls:
                yield executed(name, arguments)

    return read


def between(open: str, close: str) -> Reader:
    """Objects between tags, of which the last may be open."""
    block = re.compile(f"{re.escape(open)}(.*?){re.escape(close)}|{re.escape(open)}(.*)", re.DOTALL)

    def found(text: str) -> Iterator[tuple[Any, Any]]:
        for closed, rest in block.findall(text):
            value = lenient(closed or rest)
            yield value["name"], value["arguments"]

    return _all_or_none(found)


def _either(value: Any) -> tuple[Any, Any]:
    return value["name"], value["arguments"] if "arguments" in value else value["parameters"]


def _llama(text: str) -> Iterator[tuple[Any, Any]]:
    """Every object that is not within another, whatever stands around it."""
    end = 0
    for brace in re.finditer(r"\{", text):
        if brace.start() >= end:
            value, end = _DECODER.raw_decode(text, brace.start())
            end += 1  # what follows at once is taken for the object's own
            yield _either(value)


def _phi(text: str) -> list[tuple[Any, Any]]:
    """The first list, up to its first `]`; one that is no JSON calls nothing."""
    block = re.search(r"functools\[(.*?)\]", text, re.DOTALL)
    return [_either(value) for value in lenient(f"[{block[1]}]")] if block else []


def _jamba(text: str) -> list[tuple[Any, Any]]:
    """The first list that is closed."""
    blocks = re.findall(r"<tool_calls>(.*?)</tool_calls>", text, re.DOTALL)
    return [(value["name"], value["arguments"]) for value in lenient(blocks[0])]


def _internlm(text: str) -> list[tuple[Any, Any]]:
    """The only block; of several the server fails."""
    if "<|action_start|><|plugin|>" not in text:
        return []
    _, action = text.split("<|action_start|><|plugin|>")
    action = action.partition("<|action_end|>")[0]
    value = lenient(action[action.find("{") :])
    return [(value["name"], value.get("parameters", value.get("arguments", {})))]


def _granite(text: str) -> Iterator[tuple[Any, Any]]:
    """The object behind each mark, whatever follows it up to the next."""
    for behind in re.split(r"<function_call>\s*", text)[1:]:
        value, _ = _DECODER.raw_decode(behind)
        yield value["name"], value["arguments"]


def _ernie(text: str) -> Iterator[tuple[Any, Any]]:
    """Objects between closed tags; a name or arguments that lack are empty."""
    for block in re.findall(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", text, re.DOTALL):
        value = lenient(block)
        yield value.get("name", ""), value.get("arguments", {})


def _granite4(text: str) -> Iterator[tuple[Any, Any]]:
    """Objects between tags, each of which must stand where it may."""
    parts, within = re.split(r"(</?tool_call>)", text), False
    for before, tag in zip(parts[::2], parts[1::2], strict=False):
        if within == (tag == "<tool_call>"):
            raise ValueError(f"{tag} where it may not stand")
        within = not within
        if not within:
            value = lenient(before)
            yield value["name"], value["arguments"]
    if within:
        raise ValueError("a call is not closed")


def _hunyuan(text: str) -> list[tuple[Any, Any]]:
    """The first block of JSON that no thought holds; of its list what is no call is passed over."""
    thoughts = [one.span() for one in re.finditer(r"<think>(.*?)</think>", text, re.DOTALL)]
    for block in re.finditer(r"<tool_calls>(.*?)</tool_calls>", text, re.DOTALL):
        if any(begin < block.start() and block.end() < end for begin, end in thoughts):
            continue
        try:
            values = lenient(block[1].strip())
        except ValueError:
            continue
        calls = [one for one in values if isinstance(one, dict) and "name" in one and "arguments" in one]
        return [(one["name"], one["arguments"]) for one in calls] if isinstance(values, list) else []
    return []


def _gigachat(text: str) -> list[tuple[Any, Any]]:
    """All behind the first mark must be one object."""
    text = text[: text.rfind("</s>")] if text.rstrip().endswith("</s>") else text
    call = re.search(r"(?:function call<\|role_sep\|>\n|<\|function_call\|>)(.*)", text, re.DOTALL)
    value = json.loads(call[1], strict=False) if call else None
    if not isinstance(value, dict) or not isinstance(value.get("arguments"), dict):
        return []
    return [(value["name"], value["arguments"])]


def kimi(text: str, tools: Tools) -> Iterator[Call]:
    """Sections of calls; a call is done where its mark, its section or the text ends. Arguments go on as they are.
    A header that is no name with a number is the name where nothing follows it."""
    within, name, arguments = "text", "", ""
    found: list[tuple[str, str]] = []
    for mark, behind in _marked(text):
        if within == "text":
            within = "section" if mark == "tool_calls_section_begin" else within
        elif within == "section":
            if mark == "tool_call_begin":
                within, name = "name", behind
        elif within == "name":
            if mark == "tool_call_argument_begin":
                within, arguments = "arguments", behind
            else:
                name += f"<|{mark}|>{behind}"
        elif mark in ("tool_call_end", "tool_calls_section_end"):
            within, found = "section", [*found, (name, arguments)]
        else:
            arguments += f"<|{mark}|>{behind}"
    if within in ("name", "arguments"):
        found.append((name, arguments if within == "arguments" else ""))
    for header, given in found:
        one, inner = re.match(r".+:\d+", header.strip()), re.search(r'"name"\s*:\s*"([^"]*)"', given)
        name = one[0].strip().partition(":")[0].removeprefix("functions.") if one else ""
        if name := name or (inner[1] if inner else "" if given else header).strip():
            yield executed(name, _as_sent(given.strip() or "{}"))


def _marked(text: str) -> Iterator[tuple[str, str]]:
    """Each of Kimi's marks, and the text behind it."""
    parts = re.split(r"<\|(tool_calls?_(?:section_)?(?:begin|end)|tool_call_argument_begin)\|>", text)
    return zip(parts[1::2], parts[2::2], strict=True)


def mistral(text: str, tools: Tools) -> Iterator[Call]:
    """A call behind each mark: its name, and a value, whatever follows that. Arguments go on as they are."""
    block = r"\[TOOL_CALLS\](.*?)(?:\[ARGS\]|(?=\{)|\Z)(.*?)(?=\[TOOL_CALLS\]|\Z)"
    for head, given in re.findall(block, text, re.DOTALL):
        given = given.strip()
        try:
            end = _DECODER.raw_decode(given)[1]
        except (ValueError, RecursionError):
            end = len(given)
        if name := head.replace("[CALL_ID]", "").strip():
            yield executed(name, _as_sent(given[:end] or "{}"))


def deepseek(pattern: str) -> Reader:
    """What a pattern finds, if the frame begins anywhere. Arguments go on as they are, also where they are no JSON."""
    block = re.compile(pattern)

    def read(text: str, tools: Tools) -> Iterator[Call]:
        calls = [one.groupdict() for one in block.finditer(text)] if "<｜tool▁calls▁begin｜>" in text else []
        if all(one.get("type", "function") == "function" for one in calls):
            for one in calls:
                yield executed(one["name"], _as_sent(one["arguments"]))

    return read


def _as_sent(text: str) -> Any:
    try:
        return lenient(text)
    except ValueError:
        return text


def _xlam(text: str) -> list[tuple[Any, Any]]:
    """Calls of the first value that is JSON, a list: behind a thought, in a fence, between marks, or all the text."""
    value = lenient(_first_of_xlam(text))
    calls = [one for one in value if isinstance(one, dict) and "name" in one and "arguments" in one]
    if not isinstance(value, list) or not all(isinstance(one["arguments"], dict | str) for one in calls):
        return []
    return [(one["name"], _as_sent(given) if isinstance(given := one["arguments"], str) else given) for one in calls]


def _first_of_xlam(text: str) -> str:
    _, thought, behind = text.partition("</think>")
    if thought and _is_json(behind.strip()):
        return behind.strip()
    for part in (behind.strip(), text):
        for pattern in _XLAM_BLOCKS:
            if block := next(filter(_is_json, pattern.findall(part)), None):
                return block
    return text if text.strip().startswith("[") else ""


_XLAM_BLOCKS = tuple(
    map(re.compile, (r"```(?:json)?\s*([\s\S]*?)```", r"\[TOOL_CALLS\]([\s\S]*?)(?=\n|$)",
                     r"<tool_call>([\s\S]*?)</tool_call>"))
)  # fmt: skip


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except json.JSONDecodeError:
        return False
    return True


def _mistral(text: str) -> list[tuple[Any, Any]]:
    """The first value behind a mark, or the longest list of objects there; what in it is no call is passed over."""
    behind = next(filter(None, map(str.strip, text.split("[TOOL_CALLS]")[1:])), "")
    try:
        value, _ = _DECODER.raw_decode(behind)
    except ValueError:
        begin, end = behind.index("[{"), behind.rindex("}]")
        value = lenient(behind[begin : end + 2])
    calls = [value] if isinstance(value, dict) else value if isinstance(value, list) else []
    found = []
    for one in calls:
        if isinstance(one, dict) and ("name" in one or "arguments" in one):
            name, given = one.get("name"), one.get("arguments")
            given = {} if given is None else _as_sent(given) if isinstance(given, str) else given
            found.append((name if isinstance(name, str) else "", given))
    return found


def _apertus(text: str) -> list[tuple[Any, Any]]:
    """The first value behind the first mark, whatever follows it; one that the text is cut off in as far as it goes."""
    block = re.search(r"<\|tools_prefix\|>(.*?)(?:<\|tools_suffix\|>|$)", text, re.DOTALL)
    if block is None:
        return []
    try:
        value, _ = _DECODER.raw_decode(block[1].lstrip())
    except json.JSONDecodeError:
        value = _cut_off(block[1].strip())
    calls = value if isinstance(value, list) else [value]
    return [next(iter(one.items())) for one in calls if isinstance(one, dict) and one]


_STRUCTURE = re.compile(r'"(?:\\.|[^"\\])*(?P<closed>")?|[{}\[\],]', re.DOTALL)
_BROKEN = re.compile(r"\\(?:[uU][0-9a-fA-F]{0,7}|x.?)?\Z")
_WORDS = ("true", "false", "null", "NaN", "Infinity", "-Infinity")
_NO_VALUE = re.compile(r'\s*(?:"(?:\\.|[^"\\])*(?:"\s*(?::\s*(?:-\s*)?)?)?|-)?', re.DOTALL)


def _cut_off(text: str) -> Any:
    """JSON that the text is cut off in: what is open is closed, a key without its value left out. ValueError for what
    is no beginning of JSON."""
    stack, last, whole = "", 0, text  # last: before the last comma, or behind the last bracket that opens
    for one in _STRUCTURE.finditer(text):
        mark = one[0]
        if mark[0] == '"':
            whole = text if one["closed"] else _BROKEN.sub("", text) + '"'
            continue
        if mark in "}]":
            last, stack = -1, stack.removesuffix(mark)
        else:
            last = one.start() if mark == "," else one.end()
            stack += {"{": "}", "[": "]", ",": ""}[mark]
    if whole == text:
        word = re.search(r"[-a-zA-Z]*\Z", text)
        said = word[0] if word else ""
        full = next((one for one in _WORDS if said and one.startswith(said) and said != "-"), said)
        whole = re.sub(r"(?<=\d)[.eE+-]+\Z", "", text.removesuffix(said) + full)
    try:
        return lenient(whole + stack[::-1])
    except ValueError:
        if last < 0 or not _NO_VALUE.fullmatch(text, last + text.startswith(",", last)):
            raise
        return lenient(text[:last] + stack[::-1])


LLAMA, PHI, JAMBA = _all_or_none(_llama), _all_or_none(_phi), _all_or_none(_jamba)
INTERNLM, GRANITE, ERNIE = _all_or_none(_internlm), _all_or_none(_granite), _all_or_none(_ernie)
XLAM, MISTRAL, APERTUS = _all_or_none(_xlam), _all_or_none(_mistral), _all_or_none(_apertus)
GRANITE4, HUNYUAN, GIGACHAT = _all_or_none(_granite4), _all_or_none(_hunyuan), _all_or_none(_gigachat)
DEEPSEEK_V3 = deepseek(
    r"<｜tool▁call▁begin｜>(?P<type>.*)<｜tool▁sep｜>(?P<name>.*)\n```json\n(?P<arguments>[\s\S]*?)\n```<｜tool▁call▁end｜>"
)
DEEPSEEK_V31 = deepseek(r"<｜tool▁call▁begin｜>(?P<name>.*?)<｜tool▁sep｜>(?P<arguments>[\s\S]*?)<｜tool▁call▁end｜>")
