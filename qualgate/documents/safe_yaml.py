"""Read other tools' YAML files as they do, with PyYAML's `safe_load`, but with lines and within limits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml

from qualgate.documents.faults import Fault, quote
from qualgate.documents.source import MAX_DEPTH, Document, Place, TooDeep, not_yaml, read_text

MAX_VALUES = 20_000  # of a file with aliases, each counted as often as it is used


def read_safe_yaml(path: Path) -> Document:
    """Read `path` as PyYAML's `safe_load` does: YAML 1.1 with anchors, merge keys and repeated keys, the last of which
    counts. A file that is too large, too deep, or too long with its aliases expanded, is a fault."""
    text, fault = read_text(path)
    if fault is not None:
        return Document(path=path, text="", value=None, faults=(fault,))
    lines: dict[Place, int] = {}
    try:
        depth = 0
        for event in yaml.parse(text, yaml.SafeLoader):  # before anything recurses
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                raise TooDeep(event.start_mark.line + 1)
        node = yaml.compose(text, yaml.SafeLoader)
        if node is not None:
            _written_out(node, {})
        value = None if node is None else yaml.SafeLoader("").construct_document(node)
        if node is not None:
            lines = dict(_lines_below(node, ()))
    except yaml.MarkedYAMLError as error:
        return Document(path=path, text=text, value=None, faults=(not_yaml(path, error),))
    except TooDeep as error:
        fault = Fault(path, error.args[0], f"nested deeper than {MAX_DEPTH} levels, or without an end")
        return Document(path=path, text=text, value=None, faults=(fault,))
    except _TooMuch as error:
        fault = Fault(path, error.args[0], f"with its aliases written out, over {MAX_VALUES:,} values")
        return Document(path=path, text=text, value=None, faults=(fault,))
    except (ValueError, OverflowError) as error:  # an invalid date, a number that is too long
        return Document(
            path=path, text=text, value=None, faults=(Fault(path, 1, f"cannot be read: {quote(str(error))}"),)
        )
    return Document(path=path, text=text, value=value, lines=lines)


def _written_out(node: yaml.Node, known: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """Return (values, levels) of a node with its aliases expanded. An anchor comes before its aliases, so recursion is
    no deeper than the text's nesting."""
    if id(node) not in known:
        known[id(node)] = (0, MAX_DEPTH + 1)  # until it is known, an alias to it is a cycle
        parts = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else node.value
        below = [] if isinstance(node, yaml.ScalarNode) else [_written_out(part, known) for part in parts]
        known[id(node)] = 1 + sum(count for count, _ in below), 1 + max((levels for _, levels in below), default=0)
    values, levels = known[id(node)]
    if levels > MAX_DEPTH + 1:
        raise TooDeep(node.start_mark.line + 1)
    if values > MAX_VALUES:
        raise _TooMuch(node.start_mark.line + 1)
    return values, levels


def _lines_below(node: yaml.Node, place: Place) -> Iterator[tuple[Place, int]]:
    """Yield the line of every place of a constructed tree; merged keys of a mapping come before its own."""
    yield place, node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            for at, line in _lines_below(value, (*place, str(key.value))):
                yield at, key.start_mark.line + 1 if at == (*place, str(key.value)) else line
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _lines_below(value, (*place, index))


class _TooMuch(Exception):
    pass
