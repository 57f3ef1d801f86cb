"""What a person wrote: YAML with the line of every value, and faults that name file and line.

The YAML is the part of 1.2 that means the same to every reader: no aliases, anchors, tags or second documents, no
duplicate keys, and no plain word or number that YAML 1.1 and 1.2 read differently (`no`, `010`, `1e3`, `1:30`).
What another tool's file says is read as that tool reads it: `read_safe_yaml`.
"""

from __future__ import annotations

import codecs
import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NoReturn, TypeVar, get_args, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import PydanticCustomError

from qualgate.errors import NotInThisVersion, UsageError

MAX_BYTES = 256 * 1024
MAX_DEPTH = 64
MAX_VALUES = 20_000  # of a file with aliases, each counted as often as it is used
FAULTS_SHOWN = 20

Place = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """One thing wrong in a user's file. `planned`: the design has it, this version does not."""

    path: Path
    line: int
    message: str
    planned: bool = False

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


def refuse(faults: Iterable[Fault]) -> NoReturn:
    """Raise UsageError with every fault on a line of its own, 20 at most."""
    ordered = sorted(set(faults))
    lines = [str(fault) for fault in ordered[:FAULTS_SHOWN]]
    if len(ordered) > FAULTS_SHOWN:
        lines.append(f"and {len(ordered) - FAULTS_SHOWN:,} more")
    kind = NotInThisVersion if all(fault.planned for fault in ordered) else UsageError
    raise kind("\n".join(lines))


def nearest(name: str, names: Iterable[str]) -> str:
    """`; did you mean 'x'?` or the list of right names: the end of a message about a wrong one."""
    known = sorted(names)
    close = _closest(name, known)
    if close is not None:
        return f"; did you mean {close!r}?"
    return f"; known: {', '.join(known)}" if known else ""


def _closest(name: str, known: Iterable[str]) -> str | None:
    return next(iter(difflib.get_close_matches(name, sorted(known), n=1)), None)


def quote(value: object, limit: int = 60) -> str:
    """`value` for a message: escaped by repr, cut at `limit`."""
    text = repr(value)
    return text if len(text) <= limit else text[:limit] + "…"


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    path: Path
    text: str
    value: Any  # None when `faults` left nothing to read
    lines: dict[Place, int] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()

    def line(self, place: Place) -> int:
        """Line of the value at `place`, or of the nearest thing around it."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 1)

    def fault(self, place: Place, message: str, planned: bool = False) -> Fault:
        return Fault(self.path, self.line(place), message, planned)


def read_yaml(path: Path) -> Document:
    """The one document in `path`. What is wrong with it is in `faults`; UsageError when there is no such file."""
    text, fault = _decode(path, _bytes(path))
    if fault is not None:
        return Document(path=path, text="", value=None, faults=(fault,))
    reader = _Reader(path)
    try:
        value = reader.document(yaml.parse(text, yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        reader.faults.append(_not_yaml(path, error))
        value = None
    except _TooDeep as error:
        reader.faults.append(Fault(path, error.args[0], f"nested deeper than {MAX_DEPTH} levels"))
        value = None
    return Document(path=path, text=text, value=value, lines=reader.lines, faults=tuple(reader.faults))


def read_safe_yaml(path: Path) -> Document:
    """`path` as PyYAML's `safe_load` reads it: YAML 1.1 with anchors, merge keys and repeated keys, the last of which
    counts. Too large, too deep, or too much of it once its aliases are written out, is a fault."""
    text, fault = _decode(path, _bytes(path))
    if fault is not None:
        return Document(path=path, text="", value=None, faults=(fault,))
    lines: dict[Place, int] = {}
    try:
        depth = 0
        for event in yaml.parse(text, yaml.SafeLoader):  # before anything recurses
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                raise _TooDeep(event.start_mark.line + 1)
        node = yaml.compose(text, yaml.SafeLoader)
        if node is not None:
            _written_out(node, {})
        value = None if node is None else yaml.SafeLoader("").construct_document(node)
        if node is not None:
            lines = dict(_lines_below(node, ()))
    except yaml.MarkedYAMLError as error:
        return Document(path=path, text=text, value=None, faults=(_not_yaml(path, error),))
    except _TooDeep as error:
        fault = Fault(path, error.args[0], f"nested deeper than {MAX_DEPTH} levels, or without an end")
        return Document(path=path, text=text, value=None, faults=(fault,))
    except _TooMuch as error:
        fault = Fault(path, error.args[0], f"with its aliases written out, over {MAX_VALUES:,} values")
        return Document(path=path, text=text, value=None, faults=(fault,))
    except (ValueError, OverflowError) as error:  # a date that is none, a number without an end
        return Document(
            path=path, text=text, value=None, faults=(Fault(path, 1, f"cannot be read: {quote(str(error))}"),)
        )
    return Document(path=path, text=text, value=value, lines=lines)


def _written_out(node: yaml.Node, known: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """(values, levels) of what `node` stands for. An anchor is met before its aliases, so recursion is no deeper than
    the text is nested."""
    if id(node) not in known:
        known[id(node)] = (0, MAX_DEPTH + 1)  # while it is open, it holds itself
        parts = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else node.value
        below = [] if isinstance(node, yaml.ScalarNode) else [_written_out(part, known) for part in parts]
        known[id(node)] = 1 + sum(count for count, _ in below), 1 + max((levels for _, levels in below), default=0)
    values, levels = known[id(node)]
    if levels > MAX_DEPTH + 1:
        raise _TooDeep(node.start_mark.line + 1)
    if values > MAX_VALUES:
        raise _TooMuch(node.start_mark.line + 1)
    return values, levels


def _lines_below(node: yaml.Node, place: Place) -> Iterator[tuple[Place, int]]:
    """Of a tree that was constructed: what was merged into a mapping stands before its own."""
    yield place, node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            for at, line in _lines_below(value, (*place, str(key.value))):
                yield at, key.start_mark.line + 1 if at == (*place, str(key.value)) else line
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _lines_below(value, (*place, index))


def _not_yaml(path: Path, error: yaml.MarkedYAMLError) -> Fault:
    mark = error.problem_mark or error.context_mark
    problem = str(error.problem or error.context)
    if "\\t" in problem:
        problem = "a tab; indent with spaces"
    elif problem.startswith("expected <block end>"):
        problem = "this line is indented less or more than the lines it goes with"
    elif path.suffix == ".jsonl":
        problem = f"these are lines of JSON; name the YAML file that goes with them, {path.with_suffix('.yaml').name}"
    return Fault(path, mark.line + 1 if mark else 1, f"not YAML: {problem}")


def _bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None
    if len(raw) > MAX_BYTES:
        raise UsageError(f"{path}: larger than {MAX_BYTES // 1024} KiB, which no such file needs to be")
    return raw


def _decode(path: Path, raw: bytes) -> tuple[str, Fault | None]:
    """UTF-8, or UTF-16 with a byte-order mark; anything else is a fault at the line where it shows."""
    encoding = "utf-16" if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        return "", Fault(path, line, f"not valid {encoding.removesuffix('-sig').upper()}; save the file as UTF-8")
    if match := yaml.reader.Reader.NON_PRINTABLE.search(text):
        line = text.count("\n", 0, match.start()) + 1
        return "", Fault(
            path, line, f"the character U+{ord(match[0]):04X} cannot stand in YAML; save the file as UTF-8"
        )
    return text, None


class _TooDeep(Exception):
    pass


class _TooMuch(Exception):
    pass


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


def _until(end: type, events: Any) -> Iterator[Any]:
    while not isinstance(event := next(events), end):
        yield event


class _Reader:
    """Builds plain values from YAML events, keeping lines and collecting faults."""

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
            raise _TooDeep(event.start_mark.line + 1)
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
        found: dict[str, Any] = {}
        for event in _until(yaml.MappingEndEvent, events):
            faults = len(self.faults)
            key = self._value(event, events, (*place, _KEY))
            self.lines.pop((*place, _KEY), None)
            if len(self.faults) == faults and not isinstance(key, str):
                self._fault(event, f"a key must be a word, not {quote(key)}; quote it if it is meant as one")
            elif len(self.faults) == faults and key in found:
                self._fault(event, f"duplicate key {quote(key)}; first on line {self.lines[(*place, key)]}")
            if len(self.faults) > faults:
                self._value(next(events), events, (*place, _KEY))  # read for its own faults
                continue
            self.lines[(*place, key)] = event.start_mark.line + 1
            found[key] = self._value(next(events), events, (*place, key))
        return found

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


# ------------------------------------------------------------------------------------------- typed values


class Written(BaseModel):
    """Base of what a document may hold: nothing unknown, nothing converted, no NaN.

    The text below a key says what it means, with an example: editors show it, and docs/reference is made of it.
    """

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )
    later: ClassVar[tuple[str, ...]] = ()  # keys of the design that this version does not serve
    example: ClassVar[str] = "key: value"  # what to write, for whoever wrote something else than a mapping


ABSENT: Any = None  # default of a key that may be left out, but not written as null


def planned(message: str) -> PydanticCustomError:
    """For validators: the design has this, this version does not."""
    return PydanticCustomError("planned", "{message}", {"message": f"{message} is not in this version"})


def stated(message: str) -> PydanticCustomError:
    """For validators: `message` is the whole message."""
    return PydanticCustomError("stated", "{message}", {"message": message})


Model = TypeVar("Model", bound=Written)


def as_model(
    model: type[Model], document: Document, context: dict[str, Any] | None = None
) -> tuple[Model | None, list[Fault]]:
    """The document as `model`, with every fault at once, those of the YAML among them."""
    faults = list(document.faults)
    if document.value is None:
        return None, faults or [document.fault((), "empty")]
    try:
        return model.model_validate(document.value, context=context), faults
    except ValidationError as error:
        # What the YAML reader already refused is not refused a second time for its type.
        known = {fault.line for fault in faults}
        found = (_fault(model, document, detail) for detail in _once(model, error.errors()))
        return None, faults + [fault for fault in found if fault.line not in known]


def _once(model: type[Written], details: Sequence[Any]) -> Iterator[Any]:
    """Without the keys that are missing only because they are misspelt: "did you mean" says it already."""
    meant = {
        (*detail["loc"][:-1], _closest(str(detail["loc"][-1]), _known_at(model, _place(detail)[:-1])))
        for detail in details
        if detail["type"] == "extra_forbidden"
    }
    return (detail for detail in details if detail["type"] != "missing" or detail["loc"] not in meant)


def _place(detail: Any) -> Place:
    return tuple(part for part in detail["loc"] if part != "[key]")


def _known_at(model: type[Written], place: Place) -> tuple[str, ...]:
    around = _model_at(model, place)
    return (*around.model_fields, *around.later)


def _fault(model: type[Written], document: Document, detail: Any) -> Fault:
    place = _place(detail)
    name, kind = dotted(place), detail["type"]
    if kind == "extra_forbidden":
        if str(place[-1]) in _model_at(model, place[:-1]).later:
            return document.fault(place, f"`{name}` is not in this version", planned=True)
        known = _known_at(model, place[:-1])
        return document.fault(place, f"unknown key {quote(place[-1])}{nearest(str(place[-1]), known)}")
    if kind == "missing":
        return document.fault(place[:-1], f"`{name}` is missing")
    if kind in ("planned", "stated"):
        return document.fault(place, detail["msg"], planned=kind == "planned")
    message = re.sub("^(Input|String) ", "", detail["msg"]).replace("valid dictionary", "mapping (`key: value`)")
    if kind == "model_type":
        message = f"should be a mapping, {_as_mapping(_model_at(model, place), detail['input'])}"
    if kind == "list_type":
        message = "should be a list, `[…, …]`"
    if kind == "string_type" and type(detail["input"]) in (int, float):
        message = f'should be a text; quote it: "{detail["input"]}"'
    if kind == "float_type" and isinstance(detail["input"], str):
        message += " without quotes or a unit, a share such as 0.05"
    if kind == "literal_error":
        message += nearest(str(detail["input"]), re.findall(r"'([^']+)'", message)).partition("; known")[0]
    found = "" if isinstance(detail["input"], (dict, list)) else f" (found {quote(detail['input'])})"
    return document.fault(place, f"`{name or 'the file'}` {message}{found}")


def _as_mapping(model: type[Written], found: object) -> str:
    """How to write it: `tag:x`, which YAML reads as one word, as {tag: x}; anything else by the model's example."""
    key, colon, value = found.partition(":") if isinstance(found, str) else ("", "", "")
    if colon and value and key.strip() in model.model_fields:
        return f"`{{{key.strip()}: {value.strip()}}}` with a space after the colon"
    return f"`{model.example}`" if model.example == Written.example else f"such as `{model.example}`"


def dotted(place: Place) -> str:
    """A place as a person would write it: gate.rules[2].max_drop."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).removeprefix(".")


def _model_at(model: type[Written], place: Place) -> type[Written]:
    """The model that stands at `place` inside `model`."""
    parts = list(place)
    while parts:
        annotation = model.model_fields[str(parts.pop(0))].annotation
        while get_origin(annotation) in (dict, list, tuple):
            annotation = get_args(annotation)[1 if get_origin(annotation) is dict else 0]
            parts.pop(0)
        assert isinstance(annotation, type)
        assert issubclass(annotation, Written)
        model = annotation
    return model
