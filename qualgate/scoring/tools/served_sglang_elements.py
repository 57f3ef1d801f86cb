"""SGLang's parsers of calls that are elements of XML, or nearly: what each makes of a finished answer, in our own words
(`served_sglang`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from xml.parsers import expat

from qualgate.scoring.tools.dialects.call import BadCall, Tools
from qualgate.scoring.tools.served_elements import dots_blocks, dots_invoked, dots_type, dots_value, of_marks
from qualgate.scoring.tools.served_sglang_values import (
    FAULTS,
    Named,
    all_or_none,
    evaluated,
    offered,
    parameters,
    properties,
    standard,
)


def _dots(text: str, tools: Tools) -> Iterator[Named]:
    """Closed blocks, of invocations or of an object, with `parameters` before `arguments`; a block that is neither is
    passed over. (With `json_repair`, which SGLang does not install, it would be repaired.)"""
    for block in dots_blocks(text):
        try:
            yield from [call for action in _dots_actions(block, tools) for call in offered(action, tools)]
        except (ValueError, TypeError):
            continue


def _dots_actions(block: str, tools: Tools) -> Iterator[dict[str, Any]]:
    if block.startswith("<invoke"):
        for name, pairs in dots_invoked(block):
            schema = parameters(tools, name)
            known, defs = properties(schema), schema.get("$defs") if isinstance(schema, dict) else None
            defs = defs if isinstance(defs, dict) else {}
            kinds = {key: standard(dots_type(known.get(key), defs)) or "string" for key, _ in pairs}
            yield {"name": name, "arguments": {key: dots_value(text, kinds[key], json.loads) for key, text in pairs}}
    else:
        value = json.loads(block)
        if not isinstance(value, dict):
            raise TypeError("no object")
        yield value


def _minicpm(text: str, tools: Tools) -> Iterator[Named]:
    """Closed functions with no other argument than theirs, none twice, and all that they need; as XML, or by their
    marks where they are none."""
    for block in re.findall("<function.*?</function>", text, re.DOTALL):
        if one := _minicpm_call(block, tools):
            yield one[0], json.loads(json.dumps(one[1]))


def _minicpm_call(block: str, tools: Tools) -> Named | None:
    for read in (_of_xml, of_marks):
        try:
            if (found := read(block)) and found[0]:
                name, pairs = found
                known = any(offered({"name": name}, tools))
                given = _minicpm_arguments(pairs, parameters(tools[::-1], name)) if known else None
                return None if given is None else (name, given)
        except BadCall:  # what is not read here
            raise
        except FAULTS:
            continue
    return None


def _minicpm_arguments(pairs: list[tuple[str | None, str]], schema: Any) -> dict[str, Any] | None:
    known, given = properties(schema), {}
    for key, text in pairs:
        if key is None or key in given or (known and key not in known):
            return None
        string = standard(known.get(key, {}).get("type")) == "string"
        given[key] = text.strip() if string else _json_or_evaluated(text.strip())
    needed = schema.get("required", ()) if isinstance(schema, dict) else ()
    try:
        return given if {*needed} <= given.keys() else None
    except TypeError:  # it says nothing that could be needed
        return given


def _json_or_evaluated(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        pass
    except ValueError:
        return text
    try:
        return evaluated(text)
    except BadCall:  # what is not read here
        raise
    except (ValueError, SyntaxError, TypeError):
        return text


def _of_xml(block: str) -> tuple[str, list[tuple[str | None, str]]] | None:
    """Name and pairs of a function as its XML reader has them, libxml2's: a prefix that is not declared is part of a
    name. None for what is no XML, or in a namespace."""
    reader = _Function()
    try:
        reader.parse(block)
    except (expat.ExpatError, ValueError):
        return None
    return None if reader.foreign else ((reader.attributes.get("name") or "").strip(), reader.pairs)


class _Function:
    """The parameters of a function, or of its first `arguments`, each with the text before all that is in it."""

    def __init__(self) -> None:
        self.attributes: dict[str, str] = {}
        self.foreign = False  # in a namespace
        self._path: list[str] = []  # names that are open, with a bracket before one in a namespace
        self._direct: list[tuple[str | None, str]] = []
        self._within: list[tuple[str | None, str]] = []
        self._lists = 0  # elements `arguments` so far
        self._text: list[str] | None = None  # of the parameter at hand, up to its first child

    @property
    def pairs(self) -> list[tuple[str | None, str]]:
        return self._direct or self._within

    def parse(self, block: str) -> None:
        parser = expat.ParserCreate()
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        parser.CommentHandler = parser.ProcessingInstructionHandler = self._no_text
        parser.Parse(block, True)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if len(self._path) >= _MOST_NESTED:
            raise ValueError("nested too deep")
        self._no_text()
        foreign = bool(attributes.get("xmlns", self._path and self._path[-1].startswith("{")))
        if not self._path:
            self.attributes, self.foreign = attributes, foreign
        self._path.append("{" + name if foreign else name)
        self._lists += self._path[1:] == ["arguments"]
        direct, within = self._path[1:] == ["param"], self._path[1:] == ["arguments", "param"] and self._lists == 1
        if direct or within:
            self._text = []
            (self._direct if direct else self._within).append((attributes.get("name") or None, ""))

    def _characters(self, text: str) -> None:
        if self._text is not None:
            self._text.append(text)

    def _no_text(self, *_: str) -> None:
        """What the parameter at hand says ends where something else begins."""
        if self._text is not None:
            into = self._direct if len(self._path) == 2 else self._within
            into[-1] = (into[-1][0], "".join(self._text))
            self._text = None

    def _end(self, name: str) -> None:
        self._no_text()
        self._path.pop()


_MOST_NESTED = 256
_SPACE = "]<]minimax[>["


def _minimax_m3(text: str, tools: Tools) -> Iterator[Named]:
    """Closed invocations in closed frames; without tools, of any name. One element amiss, and nothing is called."""
    text = re.sub(rf"{re.escape(_SPACE)}[ \t\r\n]+(?=<)", _SPACE, text)
    space = re.escape(_SPACE)
    for frame in re.findall(f"{space}<tool_call>(.*?){space}</tool_call>", text, re.DOTALL):
        for called in re.findall(f'{space}<invoke name="(.*?){space}</invoke>', frame, re.DOTALL):
            name, named, body = called.partition('">')
            if named:
                given = _m3_arguments(body, parameters(tools, name))
                if tools and not any(offered({"name": name}, tools)):
                    continue
                try:
                    json.dumps(given)
                except RecursionError:
                    continue
                yield name, given


class _Open:
    """An element that is open: its value so far, by its schema."""

    __slots__ = ("listed", "schema", "tag", "value")

    def __init__(self, tag: str, schema: Any, value: Any) -> None:
        self.tag, self.schema = tag, schema
        self.value: Any = value
        self.listed = False  # a list that no schema asks for

    def begin(self, tag: str) -> None:
        """Before a child: without a schema, items alone are a list."""
        if tag == "item" and self.value == {} and isinstance(self.value, dict):
            self.value, self.listed = [], True
        elif tag != "item" and self.listed:
            self.value = {"item": self.value[0] if len(self.value) == 1 else self.value}
            self.listed = False

    def take(self, tag: str, value: Any) -> None:
        """A child that is closed: what is named again becomes a list. What is no list and no object takes none."""
        if isinstance(self.value, list):
            self.value.append(value)
        elif tag not in self.value:
            self.value[tag] = value
        elif isinstance(self.value[tag], list):
            self.value[tag].append(value)
        else:
            self.value[tag] = [self.value[tag], value]


def _m3_arguments(body: str, schema: Any) -> Any:
    """ValueError for elements that do not close each other."""
    chunks = [one for chunk in body.split(_SPACE) if (one := chunk.strip())]
    items = "array" in _kinds(schema) and chunks[:1] and chunks[0].startswith("<item>")
    stack = [_Open("", schema, [] if items else {})]
    for chunk in chunks:
        if chunk.startswith("</"):
            tag = chunk[2:].partition(">")[0].strip()
            if len(stack) == 1 or stack[-1].tag != tag:
                raise ValueError(f"{tag} closes nothing")
            done = stack.pop()
            stack[-1].take(done.tag, done.value)
        elif chunk.startswith("<"):
            tag, closed, text = chunk[1:].partition(">")
            if not closed:
                raise ValueError("a tag is cut off")
            tag, parent = tag.strip(), stack[-1]
            if _untyped(parent.schema):
                parent.begin(tag)
            inner = _child(parent, tag)
            scalar = _kinds(inner) & _SCALARS and not _kinds(inner) & {"object", "array"}
            stack.append(_Open(tag, inner, _leaf(text, inner) if text or scalar else _empty(inner)))
    return stack[0].value


_SCALARS = {"string", "integer", "number", "boolean", "null"}


def _kinds(schema: Any) -> frozenset[str]:
    kind = standard(schema.get("type")) if isinstance(schema, dict) else None
    return frozenset(one.lower() for one in (kind if isinstance(kind, list) else [kind]) if isinstance(one, str))


def _untyped(schema: Any) -> bool:
    return not _kinds(schema) and not (
        isinstance(schema, dict) and schema.keys() & {"properties", "items", "prefixItems"}
    )


def _empty(schema: Any) -> list[Any] | dict[str, Any]:
    return [] if "array" in _kinds(schema) else {}


def _child(parent: _Open, tag: str) -> Any:
    """The schema of a child, None where nothing says it."""
    schema = parent.schema
    if not isinstance(schema, dict):
        return None
    if "array" in _kinds(schema) and tag == "item":
        return _item(schema, len(parent.value) if isinstance(parent.value, list) else 0)
    known, others = properties(schema), schema.get("additionalProperties")
    found = known.get(tag, others)
    return found if isinstance(found, dict) else None


def _item(schema: dict[str, Any], at: int) -> Any:
    first = schema.get("prefixItems")
    first = first if isinstance(first, list) else []
    if at < len(first):
        return first[at] if isinstance(first[at], dict) else None
    choices = (schema.get("additionalItems"), schema.get("items"), *first[-1:])
    return next((one for one in choices if isinstance(one, dict)), None)


def _leaf(text: str, schema: Any) -> Any:
    kinds = _kinds(schema)
    if _untyped(schema):
        return {"true": True, "false": False, "null": None}.get(text.strip(), text)
    if "string" in kinds and "null" not in kinds:
        return text
    if "null" in kinds and text in ("null", "Null", "NULL", ""):
        return None
    for kind, number in (("integer", int), ("number", float)):
        try:
            if kind in kinds:
                value = number(text)
                return int(value) if value == int(value) else value  # an infinite one ends the reading
        except ValueError:
            continue
    bare = text.lower().strip()
    if "boolean" in kinds and bare in ("true", "1", "yes", "on", "false", "0", "no", "off"):
        return bare in ("true", "1", "yes", "on")
    return text


DOTS, MINICPM5, MINIMAX_M3 = all_or_none(_dots), all_or_none(_minicpm), all_or_none(_minimax_m3, without_tools=True)
