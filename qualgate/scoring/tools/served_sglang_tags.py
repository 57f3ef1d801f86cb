"""SGLang's parsers of calls between tags: what each makes of a finished answer, in our own words (`served_sglang`)."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from typing import Any

from qualgate.scoring.tools.dialects.call import BadCall, Call, Tools
from qualgate.scoring.tools.dialects.hunyuan import part_of
from qualgate.scoring.tools.served_json import Reader
from qualgate.scoring.tools.served_sglang_values import (
    SERVER,
    Named,
    all_or_none,
    by_any_type,
    by_first_option,
    by_inferred_type,
    inferred,
    literal,
    no_constant,
    number_or_text,
    offered,
    parameters,
    properties,
    read_as_json,
    standard,
)
from qualgate.scoring.tools.served_values import executed


def _qwen3(text: str, tools: Tools) -> Iterator[Named]:
    """Functions in closed blocks, or anywhere where none is closed; also of tools that are not offered."""
    if "<tool_call>" not in text:
        return
    pair = re.compile(r"<parameter=(.*?)(?:</parameter>|(?=<parameter=)|(?=</function>)|(?=\n?\Z))", re.DOTALL)
    for block in _blocks(text) or [text]:
        for closed, rest in re.findall(r"<function=(.*?)</function>|<function=(.*)", block, re.DOTALL):
            name, begun, body = (closed or rest).partition(">")
            if begun:
                schema = parameters(tools, name)
                known = properties(schema)
                if not known and isinstance(schema, dict) and "properties" not in schema:
                    known = schema
                given = {}
                for key, is_one, value in (one.partition(">") for one in pair.findall(body)):
                    if is_one:
                        value = value.removeprefix("\n").removesuffix("\n")
                        kind = (inferred(known[key]) or "string") if key in known else "string"
                        given[key] = by_inferred_type(value, kind.strip().lower())
                yield name, given


def _mimo(text: str, tools: Tools) -> Iterator[Named]:
    """The first function of each closed block; what its text escapes as HTML does is unescaped."""
    for block in _blocks(text):
        if called := re.search(r"<function=([^>]+)>(.*?)</function>", block, re.DOTALL):
            name = called[1].strip()
            known = properties(parameters(tools, name))
            given = {}
            for key, value in re.findall(r"<parameter=([^>]+)>(.*?)</parameter>", called[2], re.DOTALL):
                given[key.strip()] = _of_mimo(html.unescape(value), known, key.strip())
            yield from offered({"name": name, "parameters": given}, tools)


def _of_mimo(text: str, known: dict[str, Any], key: str) -> Any:
    if text.lower() == "null":
        return None
    kind = standard(known[key].get("type", "string")) if key in known else "string"
    if not isinstance(kind, str):
        raise TypeError("a list of types is none that it reads")
    if kind == "number":
        try:
            number = float(text)
            return number if number - int(number) else int(number)  # an infinite one ends the reading
        except ValueError:
            return text
    if kind in ("string", "integer", "boolean"):
        return by_inferred_type(text, kind)
    try:
        return json.loads(text) if kind in ("object", "array") else literal(text, _NO_LITERAL)
    except ValueError:
        return literal(text, _NO_LITERAL)


_NO_LITERAL = (ValueError, SyntaxError, TypeError)


def _blocks(text: str) -> list[str]:
    return re.findall("<tool_call>(.*?)</tool_call>", text, re.DOTALL)


def _pairs(text: str) -> list[tuple[str, str]]:
    found = re.findall(r"<arg_key>(.*?)</arg_key>(?:\\n|\s)*<arg_value>(.*?)</arg_value>", text, re.DOTALL)
    return [(key.strip(), value) for key, value in found]


def _glm45(text: str, tools: Tools) -> Iterator[Named]:
    """A name, a new line (or what stands for one), and pairs."""
    for block in _blocks(text):
        if one := re.match(r"(.*?)(?:\\n|\n)(.*)", block, re.DOTALL):
            yield from offered({"name": one[1], "parameters": _given(one[1], one[2], tools)}, tools)


def _ling3(text: str, tools: Tools) -> Iterator[Named]:
    """As GLM 4.5's, with space around the name, and nothing else before the pairs."""
    for block in _blocks(text):
        if one := re.match(r"\s*(.*?)(?:(?:\\n|\n)\s*)?(<arg_key>.*)?\Z", block, re.DOTALL):
            yield from offered({"name": one[1], "parameters": _given(one[1], one[2] or "", tools)}, tools)


def _given(name: str, pairs: str, tools: Tools) -> dict[str, Any]:
    known, given = properties(parameters(tools, name)), {}
    for key, text in _pairs(pairs):
        kind = inferred(known.get(key))
        value = read_as_json(text, kind, {"number": number_or_text})
        if kind == "string" and not isinstance(value, str):
            value = json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)
        given[key] = value
    return given


def _poolside(text: str, tools: Tools) -> Iterator[Named]:
    """A name up to a new line or a key, and pairs; what is no string is JSON, and a Python literal if it has a type."""
    for block in _blocks(text):
        name = re.split("\n|<arg_key>", block, maxsplit=1)[0].strip()
        known, given = properties(parameters(tools, name)), {}
        pairs = re.findall(r"<arg_key>([^<]*?)</arg_key>\s*<arg_value>(.*?)</arg_value>", block, re.DOTALL)
        for key, value in pairs if any(offered({"name": name}, tools)) else ():
            given[key.strip()] = _of_poolside(value.removeprefix("\n").removesuffix("\n"), known.get(key.strip()))
        yield from offered({"name": name, "parameters": given}, tools)


def _of_poolside(text: str, schema: Any) -> Any:
    kind = str(standard(schema.get("type", ""))) if isinstance(schema, dict) else ""  # a list is a type of its own
    if kind == "string":
        return text
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        return literal(text, ()) if kind else text
    except BadCall:  # what is not read here
        raise
    except (ValueError, SyntaxError, TypeError):
        return text


def _minimax(text: str, tools: Tools) -> Iterator[Named]:
    """Invocations in closed frames; one that is not closed goes on to the end of its frame."""
    pair = re.compile(r'<parameter name="(.*?)</parameter>|<parameter name="(.*?)(?=\n?\Z)', re.DOTALL)
    for frame in re.findall("<minimax:tool_call>.*?</minimax:tool_call>", text, re.DOTALL):
        for closed, rest in re.findall(r'<invoke name="(.*?)</invoke>|<invoke name="(.*)', frame, re.DOTALL):
            name, named, body = (closed or rest).partition('">')
            known, given = properties(parameters(tools, name.strip())), {}
            for key, is_one, value in ((one or last).partition('">') for one, last in pair.findall(body)):
                if is_one:
                    given[key.strip()] = by_any_type(value.strip("\n"), known.get(key.strip()))
            if named:
                yield from offered({"name": name.strip(), "arguments": given}, tools)


def _step(text: str, tools: Tools) -> Iterator[Named]:
    """Calls of the first frame, which must be closed; what is no string is JSON or a Python literal if it can be."""
    frame, closed, _ = text.partition("<｜tool_calls_begin｜>")[2].partition("<｜tool_calls_end｜>")
    for call in re.findall("<｜tool_call_begin｜>(.*?)<｜tool_call_end｜>", frame, re.DOTALL) if closed else ():
        kind, _, invoked = call.partition("<｜tool_sep｜>")
        one = re.search('<steptml:invoke name="([^"]+)">(.+?)</steptml:invoke>', invoked, re.DOTALL)
        if kind.strip() == "function" and one:
            known, given = properties(parameters(tools, one[1])), {}
            for key, value in re.findall('<steptml:parameter name="([^"]+)">([^<]*)</steptml:parameter>', one[2]):
                kind = standard(known[key].get("type")) if key in known else None
                given[key] = _json_or_literal(value.strip()) if kind and kind != "string" else value.strip()
            yield from offered({"name": one[1], "arguments": given}, tools)


def _json_or_literal(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return literal(text, (Exception,))


def _hunyuan(text: str, tools: Tools) -> Iterator[Named]:
    """Closed calls, wherever a frame begins; a name ends where its mark, a pair or the call does."""
    part = part_of(text)
    tag = re.escape(part) + ">"
    if f"<tool_calls{part}>" not in text:
        return
    pair = re.compile(rf"<arg_key{tag}(.*?)</arg_key{tag}\s*<arg_value{tag}(.*?)</arg_value{tag}", re.DOTALL)
    call = f"<tool_call{tag}(.*?)(?:<tool_sep{tag}|(?=<arg_key{tag}|</tool_call{tag}))(.*?)</tool_call{tag}"
    for name, body in re.findall(call, text, re.DOTALL):
        schema = parameters(tools, name.strip())
        if any(offered({"name": name.strip()}, tools)):
            given = {
                key.strip(): by_first_option(value, properties(schema).get(key.strip(), {}))
                for key, value in pair.findall(body)
            }
            yield name.strip(), given


def dsml(frame: str, space: str = "") -> Reader:
    """DSML's invocations in closed frames, or anywhere where no frame begins; one that is not well-formed is none."""
    tag, end = f"<｜DSML｜{space}", f"</｜DSML｜{space}"
    block = re.compile(rf"{tag}{frame}>(.*?){end}{frame}>", re.DOTALL)
    invoke = re.compile(rf'{tag}invoke\s+name="([^"]+)"\s*(?:(/>)|>(.*?)({end}invoke>|\Z))', re.DOTALL)
    pair = re.compile(rf'{tag}parameter\s+name="([^"]+)"\s+string="([^"]+)"\s*>(.*?){end}parameter>', re.DOTALL)

    def arguments(body: str) -> dict[str, Any]:
        if body.strip().startswith("{"):
            given = json.loads(body.strip(), parse_constant=no_constant)
            if not isinstance(given, dict):
                raise ValueError("no object")
            return given
        rest = pair.sub("", body)
        if "｜DSML｜" in rest or (rest.strip() and rest == body):
            raise ValueError("more than pairs")
        return {key: value(said, text) for key, said, text in pair.findall(body)}

    def value(said: str, text: str) -> Any:
        try:
            return text.strip() if said == "true" else json.loads(text.strip(), parse_constant=no_constant)
        except ValueError:
            return text.strip()

    def read(text: str, tools: Tools) -> Iterator[Call]:
        begin = text.find(f"{tag}invoke")
        parts = block.findall(text) if f"{tag}{frame}>" in text else [text[begin:]] if begin >= 0 else []
        for one in (one for part in parts for one in invoke.finditer(part)):
            if not (one[2] or one[4]):  # cut off
                continue
            try:
                given = arguments(one[3] or "")
            except ValueError:
                continue
            except RecursionError:
                return
            for name, handed in offered({"name": one[1].strip(), "parameters": given}, tools):
                yield executed(name, handed, SERVER)

    return read


QWEN3, MIMO, MINIMAX, STEP = all_or_none(_qwen3), all_or_none(_mimo), all_or_none(_minimax), all_or_none(_step)
GLM45, LING3, HUNYUAN = all_or_none(_glm45), all_or_none(_ling3), all_or_none(_hunyuan)
POOLSIDE = all_or_none(_poolside)
