"""Named normalizers: what exact_match may overlook, and nothing else.

An evalset declares them in order; they are applied to the answer and to the reference alike. A package adds its own by
an entry point of the group `qualgate.normalizers` that names a function from text to text:

    [project.entry-points."qualgate.normalizers"]
    digits_only = "my_package:digits_only"
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterable
from functools import lru_cache
from importlib.metadata import EntryPoint
from typing import Any, cast

from qualgate import plugins
from qualgate.errors import UsageError
from qualgate.scoring import strict_json

GROUP = "qualgate.normalizers"

# UAX #15, Stream-Safe Text: no real text stacks more marks on one letter. Sorting a longer run costs quadratic time.
MARKS_ON_ONE_LETTER = 30


def stackable(text: str) -> bool:
    """Whether no letter bears more marks than a real text's: only then may it be put into a normal form."""
    run = 0
    for character in text:
        run = run + 1 if unicodedata.combining(character) else 0
        if run > MARKS_ON_ONE_LETTER:
            return False
    return True


def _unicode_form(form: str) -> Callable[[str], str]:
    def normalize(text: str) -> str:
        return unicodedata.normalize(form, text) if not text.isascii() and stackable(text) else text  # type: ignore[arg-type]

    return normalize


def _without(*categories: str) -> Callable[[str], str]:
    def strip(text: str) -> str:
        return "".join(c for c in text if not unicodedata.category(c).startswith(categories))

    return strip


_FENCED = re.compile(r"\s*```(?:json)?[ \t]*\n(.*)\n\s*```\s*", re.DOTALL)


def _canonical_json(text: str) -> str:
    """Return a JSON value with its keys sorted and 7.0 as 7, also from a code fence; any other text as it is."""
    fenced = _FENCED.fullmatch(text)
    try:
        value = strict_json.read(fenced[1] if fenced else text)
    except ValueError:
        return text
    return json.dumps(_plain(value), sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    """Return a JSON value with whole floats as integers."""
    match value:
        case dict():
            return {key: _plain(item) for key, item in value.items()}
        case list():
            return [_plain(item) for item in value]
        case float() if value.is_integer():
            return int(value)
    return value


NORMALIZERS: dict[str, Callable[[str], str]] = {
    "nfc": _unicode_form("NFC"),  # composed letters; a run of more than 30 marks is left as it stands
    "nfkc": _unicode_form("NFKC"),  # and full-width, ligatures, superscripts made plain
    "casefold": str.casefold,
    "strip": str.strip,
    "collapse_whitespace": lambda text: re.sub(r"\s+", " ", text),
    "strip_punctuation": _without("P"),
    "strip_invisible": lambda text: text if text.isascii() else _without("Cf")(text),  # zero-width, bidi controls
    "json": _canonical_json,  # keys in any order, 7.0 as 7, blanks and a code fence around it
    "strip_final_period": lambda text: re.sub(r"\.\Z", "", text),
}


class NormalizerFault(UsageError):
    """A normalizer of another package cannot be loaded, raised, or gave something else than text."""


@lru_cache(maxsize=1)
def _declared() -> dict[str, EntryPoint]:
    return plugins.offered(GROUP, NORMALIZERS)


def known() -> tuple[str, ...]:
    """Every name an evalset may declare."""
    return (*NORMALIZERS, *sorted(_declared()))


@lru_cache(maxsize=64)
def _named(name: str) -> Callable[[str], str]:
    if name in NORMALIZERS:
        return NORMALIZERS[name]
    try:
        return cast("Callable[[str], str]", plugins.load(_declared()[name], object))
    except UsageError as error:
        raise NormalizerFault(str(error)) from error


def normalize(text: str, names: Iterable[str]) -> str:
    """`text` after the named normalizers, in order. An unknown name is a KeyError: evalsets are checked when loaded."""
    for name in names:
        apply = _named(name)
        try:
            text = apply(text)
        except Exception as error:  # theirs, so anything
            raise NormalizerFault(f"the normalizer {name} raised {type(error).__name__}: {error}") from error
        if not isinstance(text, str):
            raise NormalizerFault(f"the normalizer {name} gave {type(text).__name__}, expected text")
    return text
