"""Read the part of YAML that means the same to every reader, with the line of every value.

It is YAML 1.2 without aliases, anchors, tags, second documents and duplicate keys, and without plain words or numbers
that YAML 1.1 and 1.2 read differently (`no`, `010`, `1e3`, `1:30`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from qualgate.documents.faults import Fault, quote
from qualgate.documents.source import MAX_DEPTH, Document, Place, TooDeep, not_yaml, read_text

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,30})")
_FLOAT = re.compile(r"[-+]?(0|[1-9][0-9]*)\.[0-9]+([eE][-+][0-9]{1,4})?")
_NOT_FINITE = re.compile(r"[-+]?\.(nan|inf)", re.IGNORECASE)
_TWO_READINGS = re.compile(
    r"(y|n|yes|no|on|off)"  # booleans to YAML 1.1
    r"|[-+]?0[0-9_]+|[-+]?0(o[0-7_]+|b[01_]+|x[0-9a-f_]+)"  # octal, binary, hexadecimal to one of them
    r"|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9]*)?"  # base 60 to YAML 1.1
    r"|[-+]?[0-9]+_[0-9_]*(\.[0-9_]*)?"
    r"|[-+]?(\.[0-9]+|[0-9]+\.|[0-9]+(\.[0-9]*)?e[0-9]+|[0-9]+e[-+]?[0-9]+|\.[0-9]+e[-+]?[0-9]+)",
    re.IGNORECASE,
)
_WORDS = {"true": True, "false": False, "null": None, "~": None, "": None}
_KEY = -1  # place of a key while it is read


def read_yaml(path: Path) -> Document:
    """Read the one document in `path`, with its faults in `faults`. UsageError for a missing file."""
    text, fault = read_text(path)
    if fault is not None:
        return Document(path=path, text="", value=None, faults=(fault,))
    return parse_yaml(path, text)


def parse_yaml(path: Path, text: str) -> Document:
    """Parse the text of a file that may no longer exist, as `read_yaml` does. path: named in faults."""
    reader = _Reader(path)
    try:
        value = reader.document(yaml.parse(text, yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        reader.faults.append(not_yaml(path, error))
        value = None
    except TooDeep as error:
        reader.faults.append(Fault(path, error.args[0], f"nested deeper than {MAX_DEPTH} levels"))
        value = None
    return Document(path=path, text=text, value=value, lines=reader.lines, faults=tuple(reader.faults))


def _until(end: type, events: Any) -> Iterator[Any]:
    while not isinstance(event := next(events), end):
        yield event


class _Reader:
    """Reader that builds plain values from YAML events, recording lines and collecting faults."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: dict[Place, int] = {}
        self.faults: list[Fault] = []

    def document(self, events: Any) -> Any:
        value, documents = None, 0
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    self._fault(event, "a second document (`---`); one file holds one")
                    return value
                value = self._value(next(events), events, ())
        return value

    def _fault(self, event: Any, message: str) -> None:
        self.faults.append(Fault(self.path, event.start_mark.line + 1, message))

    def _value(self, event: Any, events: Any, place: Place) -> Any:
        if len(place) > MAX_DEPTH:
            raise TooDeep(event.start_mark.line + 1)
        self.lines.setdefault(place, event.start_mark.line + 1)
        if isinstance(event, yaml.AliasEvent):
            self._fault(event, f"alias *{event.anchor}; write the value out")
            return None
        if event.anchor is not None:
            self._fault(event, f"anchor &{event.anchor}; write the value out where it is needed")
        if event.tag is not None:
            self._fault(event, f"tag {quote(event.tag)}; plain values only")
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(events, place)
        return self._mapping(events, place)

    def _sequence(self, events: Any, place: Place) -> list[Any]:
        items: list[Any] = []
        for event in _until(yaml.SequenceEndEvent, events):
            items.append(self._value(event, events, (*place, len(items))))
        return items

    def _mapping(self, events: Any, place: Place) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for event in _until(yaml.MappingEndEvent, events):
            faults = len(self.faults)
            key = self._value(event, events, (*place, _KEY))
            self.lines.pop((*place, _KEY), None)
            if len(self.faults) == faults and not isinstance(key, str):
                self._fault(event, f"a key must be a word, not {quote(key)}; quote it if it is meant as one")
            elif len(self.faults) == faults and key in mapping:
                self._fault(event, f"duplicate key {quote(key)}; first on line {self.lines[(*place, key)]}")
            if len(self.faults) > faults:
                self._value(next(events), events, (*place, _KEY))  # read for its own faults
                continue
            self.lines[(*place, key)] = event.start_mark.line + 1
            mapping[key] = self._value(next(events), events, (*place, key))
        return mapping

    def _scalar(self, event: Any) -> Any:
        text = event.value
        if event.style is not None:
            return text
        if text.lower() in _WORDS and text in (text.lower(), text.title(), text.upper()):
            return _WORDS[text.lower()]
        if _INTEGER.fullmatch(text):
            return int(text)
        if _FLOAT.fullmatch(text):
            return float(text)
        if _NOT_FINITE.fullmatch(text):
            return float(text.replace(".", ""))
        if _TWO_READINGS.fullmatch(text):
            self._fault(
                event, f"{text[:40]}: YAML readers disagree on this; quote it, or write true, false or a plain number"
            )
        return text
