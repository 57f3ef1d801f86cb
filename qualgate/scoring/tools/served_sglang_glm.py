"""SGLang's parser of GLM 4.7's calls, in our own words (`served_sglang`).

It asks what types a schema allows of an argument, through references and branches; of branches those alone that the
other arguments fit. Where one type is left it reads by that; where several are, it reads JSON unless the schema lists
the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from qualgate.scoring.json_value import identity
from qualgate.scoring.tools.dialects.call import Tools
from qualgate.scoring.tools.served_sglang_values import (
    Named,
    all_or_none,
    integer_or_text,
    kind_of,
    number_or_text,
    offered,
    parameters,
    read_as_json,
    standard,
)

_NUMBERS = {"number": number_or_text, "integer": integer_or_text}
_ANY = object()
_NOWHERE = (KeyError, IndexError, TypeError, ValueError)  # where a reference leads


def _glm47(text: str, tools: Tools) -> Iterator[Named]:
    """Closed calls: a name up to the first key, and pairs."""
    for block in re.findall("<tool_call>(.*?)</tool_call>", text, re.DOTALL):
        name, mark, rest = block.partition("<arg_key>")
        pairs = re.findall(r"<arg_key>(.*?)</arg_key>(?:\\n|\s)*<arg_value>(.*?)</arg_value>", mark + rest, re.DOTALL)
        given = _given([(key.strip(), value) for key, value in pairs], name, tools)
        yield from offered({"name": name, "parameters": given}, tools)


def _given(pairs: Sequence[tuple[str, str]], name: str, tools: Tools) -> dict[str, Any]:
    schema, known = parameters(tools, name), {}
    for key, text in pairs if len(pairs) > 1 and _depends(schema) else ():
        alone = _read(text, key, schema, {})
        native = _allowed(schema, schema, key, value=text)
        if isinstance(alone, str) or native is None or "string" not in native:
            known[key] = alone
    given = {}
    for key, text in pairs:
        given[key] = known[key] = _read(text, key, schema, known)
    return given


def _read(text: str, key: str, schema: Any, given: Mapping[str, Any]) -> Any:
    kinds = _allowed(schema, schema, key, given)
    kind = "number" if kinds == {"number", "integer"} else next(iter(kinds)) if kinds and len(kinds) == 1 else None
    value = read_as_json(text, kind or "string", _NUMBERS)
    if kind == "string" and not isinstance(value, str):
        return text
    if kind is None:
        of_value, of_text = (_allowed(schema, schema, key, given, one) for one in (value, text))
        if of_value is not None and _kind(value) not in of_value and of_text is not None and "string" in of_text:
            return text
    return value


def _allowed(
    schema: Any, root: Any, key: str | None = None, given: Mapping[str, Any] | None = None, value: Any = _ANY,
    seen: tuple[Any, ...] = (),
) -> frozenset[str] | None:  # fmt: skip
    """The types that a schema allows of its argument `key`, or of itself; None where it says nothing.

    given: other arguments, which choose among branches. value: one of which `enum` and `const` are asked.
    """
    if not isinstance(schema, dict) or any(schema is one for one in seen):
        return None
    seen = (*seen, schema)
    found: list[frozenset[str] | None] = []
    with suppress(*_NOWHERE):
        found.append(_allowed(_target(schema, root), root, key, given, value, seen))
    if key is not None:
        found.append(_allowed(schema.get("properties", {}).get(key), root, value=value, seen=seen))
    else:
        found += _own(schema, value)
    for branch in ("anyOf", "oneOf"):
        if isinstance(schema.get(branch), list):
            fit = [one for one in schema[branch] if key is None or _fits(one, root, given or {})]
            kinds = [_allowed(one, root, key, given, value, seen) for one in fit]
            if kinds and None not in kinds:
                found.append(frozenset().union(*(one for one in kinds if one is not None)))
    if isinstance(schema.get("allOf"), list):
        found += [_allowed(one, root, key, given, value, seen) for one in schema["allOf"]]
    said = [one for one in found if one is not None]
    return frozenset.intersection(*said) if said else None


def _own(schema: dict[str, Any], value: Any) -> Iterator[frozenset[str]]:
    declared = standard(schema.get("type"))
    if isinstance(declared, str | list):
        kinds = frozenset([declared] if isinstance(declared, str) else declared)
        yield kinds | {"integer"} if "number" in kinds else kinds
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(values, list):
        yield frozenset(_kind(one) for one in values if value is _ANY or identity(one) == identity(value))


def _kind(value: Any) -> str:
    return "integer" if isinstance(value, float) and value.is_integer() else kind_of(value)


def _target(schema: dict[str, Any], root: Any) -> Any:
    """What a reference of the schema's leads to, inside of `root`; None without one. Errors where it leads nowhere."""
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return None
    target = root
    for part in reference[2:].split("/") if reference != "#" else []:
        part = part.replace("~1", "/").replace("~0", "~")
        target = target[int(part)] if isinstance(target, list) else target[part]
    return target


def _fits(branch: Any, root: Any, given: Mapping[str, Any]) -> bool:
    kinds = {name: _allowed(branch, root, name, value=value) for name, value in given.items()}
    return all(said is None or _kind(given[name]) in said for name, said in kinds.items())


def _depends(schema: Any) -> bool:
    """Whether what an argument may be depends on the others: a branch leaves it more than one type, or says nothing."""
    nodes: list[dict[str, Any]] = []

    def visit(node: Any) -> None:
        if isinstance(node, dict) and not any(node is one for one in nodes):
            nodes.append(node)
            with suppress(*_NOWHERE):
                visit(_target(node, schema))
            for branch in ("anyOf", "oneOf", "allOf"):
                for one in node[branch] if isinstance(node.get(branch), list) else ():
                    visit(one)

    visit(schema)
    if not any(isinstance(node.get(branch), list) for node in nodes for branch in ("anyOf", "oneOf")):
        return False
    kinds = [_allowed(schema, schema, key) for node in nodes for key in node.get("properties", {})]
    return any(one is None or (len(one) > 1 and one != {"number", "integer"}) for one in kinds)


GLM47 = all_or_none(_glm47)
