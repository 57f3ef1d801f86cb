"""Validate a document as a pydantic model: every fault with its line, and the nearest known name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, ClassVar, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import PydanticCustomError

from qualgate.documents.faults import Fault, nearest, quote
from qualgate.documents.source import Document, Place
from qualgate.errors import close_names


class Written(BaseModel):
    """Base of the models of documents: no unknown keys, no conversions, no NaN.

    The docstring of a key gives its meaning with an example; editors show it, and docs/reference is made from it.
    """

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )
    later: ClassVar[tuple[str, ...]] = ()  # keys of the design that this version does not support
    example: ClassVar[str] = "key: value"  # shown if the value is not a mapping


ABSENT: Any = None  # default of a key that may be left out, but not written as null


def planned(message: str) -> PydanticCustomError:
    """Return a validator's error for a feature of the design that this version does not support."""
    return PydanticCustomError("planned", "{message}", {"message": f"{message} is not in this version"})


def stated(message: str) -> PydanticCustomError:
    """Return a validator's error with `message` as its whole text."""
    return PydanticCustomError("stated", "{message}", {"message": message})


Model = TypeVar("Model", bound=Written)


def as_model(
    model: type[Model], document: Document, context: dict[str, Any] | None = None
) -> tuple[Model | None, list[Fault]]:
    """Return the document as `model`, or None, with all faults, also those of the YAML."""
    faults = list(document.faults)
    if document.value is None:
        return None, faults or [document.fault((), "empty")]
    try:
        return model.model_validate(document.value, context=context), faults
    except ValidationError as error:
        # Skip lines that the YAML reader already refused.
        known = {fault.line for fault in faults}
        new = (_fault(model, document, detail) for detail in _once(model, error.errors()))
        return None, faults + [fault for fault in new if fault.line not in known]


def _once(model: type[Written], details: Sequence[Any]) -> Iterator[Any]:
    """Drop the errors on keys that are missing only because they are misspelt, which "did you mean" already reports."""
    meant = {
        (*detail["loc"][:-1], close)
        for detail in details
        if detail["type"] == "extra_forbidden"
        for close in close_names(str(detail["loc"][-1]), _known_at(model, _place(detail)[:-1]))
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
    message = re.sub("^(Input|String|List|Dictionary|Tuple) ", "", detail["msg"]).replace(" after validation", "")
    message = message.replace("valid dictionary", "mapping (`key: value`)")
    if kind == "model_type":
        message = f"should be a mapping, {_as_mapping(_model_at(model, place), detail['input'])}"
    if kind == "list_type":
        message = "should be a list, `[…, …]`"
    if kind == "string_type" and type(detail["input"]) in (int, float):
        message = f'should be a text; quote it: "{detail["input"]}"'
    if kind == "float_type" and isinstance(detail["input"], str):
        message += f" without quotes or a unit{_such_as(model, place)}"
    if kind in ("greater_than", "greater_than_equal", "less_than", "less_than_equal"):
        limits = _limits(_model_at(model, place[:-1]), str(place[-1]))
        message = f"should be {_range(limits)}{percent(detail['input'], limits.get('le', limits.get('lt')))}"
    if kind == "literal_error":
        message += nearest(str(detail["input"]), re.findall(r"'([^']+)'", message)).partition("; known")[0]
    value = "" if isinstance(detail["input"], (dict, list)) else f" (found {quote(detail['input'])})"
    return document.fault(place, f"`{name or 'the file'}` {message}{value}")


def _such_as(model: type[Written], place: Place) -> str:
    """Return an example number for the key at `place`, from its description; "" for an item of a list."""
    if not isinstance(place[-1], str):
        return ""
    about = _model_at(model, place[:-1]).model_fields[place[-1]].description or ""
    kind = " a share" if re.search(r"(?i)as a share|\bshare (of|as)\b", about) else ""
    kind = " seconds," if re.search(r"^Seconds|in seconds\.", about) else kind
    example = re.search(r"Example:\s+`\w+:\s+([^`]+)`", about)
    return f",{kind} such as {example[1]}" if example else ""


def _limits(model: type[Written], key: str) -> dict[str, float]:
    """Return the limits of a number, by pydantic's names: ge and gt from below, le and lt from above."""
    metadata = model.model_fields[key].metadata
    return {
        name: getattr(limit, name) for name in ("ge", "gt", "le", "lt") for limit in metadata if hasattr(limit, name)
    }


def _range(limits: dict[str, float]) -> str:
    words = {"ge": "from", "gt": "over", "le": "to", "lt": "below"}
    text = " and ".join(f"{words[name]} {plain_number(value)}" for name, value in limits.items())
    return text.replace(" and to ", " to ")


def plain_number(value: float) -> str:
    """Format a number without an exponent, as a gate file may have it."""
    return format(Decimal(str(value)).normalize(), "f")


def percent(value: float, most: float | None) -> str:
    """Return the share to write if `value` seems to be in per cent and at most `most` is allowed; else ""."""
    meant = most is not None and most <= 1 and value >= 2 and value / 100 <= most
    return f"; {value:g} % is {value / 100:g}" if meant else ""


def _as_mapping(model: type[Written], written: object) -> str:
    """Return how to write a mapping: {tag: x} for `tag:x`, which YAML reads as one word; else the model's example."""
    key, colon, rest = written.partition(":") if isinstance(written, str) else ("", "", "")
    if colon and rest and key.strip() in model.model_fields:
        return f"`{{{key.strip()}: {rest.strip()}}}` with a space after the colon"
    return f"`{model.example}`" if model.example == Written.example else f"such as `{model.example}`"


def dotted(place: Place) -> str:
    """Format a place as a person would write it: gate.rules[2].max_drop."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).removeprefix(".")


def _model_at(model: type[Written], place: Place) -> type[Written]:
    """Return the model at `place` inside `model`."""
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
