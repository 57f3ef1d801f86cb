"""Does a server's own parser, run in the sandbox, give the recorded verdicts of the strings beside this file?

The strings and their readings were taken by scripts that share no code with the product (`dialect_strings`,
`sglang_strings`). Asked where QUALGATE_VLLM and QUALGATE_SGLANG name interpreters of environments with these servers,
of the versions that were asked then.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from qualgate.sandbox.parsers import NoParsers, Parsers, Unread
from qualgate.scoring.tools.served import LACKS, PARSERS
from tests.verification.references import sglang_strings
from tests.verification.references.agreement import SHOWN, NoReference
from tests.verification.references.dialect_agreement import same_calls
from tests.verification.references.dialect_strings import TOOLS, kept

INTERPRETERS = {"vllm": "QUALGATE_VLLM", "sglang": "QUALGATE_SGLANG"}
Read = Callable[[str, str], Any]  # of a dialect and a text, as the recorded readings have it


@dataclass(slots=True)
class Agreement:
    """Counts by dialect, and strings that are read otherwise than they were."""

    strings: Counter[str] = field(default_factory=Counter)
    same: Counter[str] = field(default_factory=Counter)
    different: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return bool(self.strings) and self.same == self.strings


def recorded(engine: str) -> tuple[str, list[tuple[str, str, Any]]]:
    """The server's version, and of each string dialect, text and what it read."""
    if engine == "vllm":
        version, rows = kept()
        return version, [(one.dialect, one.text, one.read) for one in rows]
    version, asked = sglang_strings.asked()
    return version, [(row.one.dialect, row.one.text, row.whole) for row in asked]


def compared(rows: list[tuple[str, str, Any]], read: Read) -> Agreement:
    """All rows."""
    found = Agreement()
    for dialect, text, theirs in rows:
        ours = read(dialect, text)
        found.strings[dialect] += 1
        raised = {isinstance(one, dict) for one in (ours, theirs)}  # in whichever words
        if raised == {True} or (raised == {False} and same_calls(ours or [], theirs or [])):
            found.same[dialect] += 1
        elif len(found.different) < SHOWN:
            found.different.append(f"{dialect}: theirs {theirs!r:.300}, ours {ours!r:.300}: {text!r:.600}")
    return found


def by_parser(running: Parsers, engine: str) -> Read:
    """What the environment's parser reads of a text."""

    def read(dialect: str, text: str) -> Any:
        try:
            calls = running.read(PARSERS[engine].get(dialect, dialect), text, TOOLS, LACKS.get(dialect, ""))
        except Unread as error:
            return {"raised": str(error)}
        return [{"name": name, "arguments": _decoded(given)} for name, given in calls] or None

    return read


def proof(engine: str, every: int) -> Agreement:
    """One string in `every`. NoReference where the server is not here, in the version that was asked."""
    if not (interpreter := os.environ.get(INTERPRETERS[engine])):
        raise NoReference(f"{INTERPRETERS[engine]} names no interpreter")
    version, rows = recorded(engine)
    try:
        running = Parsers(engine, interpreter)
    except NoParsers as error:
        raise NoReference(str(error)) from None
    try:
        if running.version != version:
            raise NoReference(f"{engine} {running.version} is there, and {version} was asked")
        return compared(rows[::every], by_parser(running, engine))
    finally:
        running.close()


def _decoded(given: str) -> Any:
    try:
        return json.loads(given)
    except ValueError:
        return {"no JSON": given}


def differences() -> Iterator[str]:
    """Of both servers, as far as they are here."""
    for engine in INTERPRETERS:
        try:
            yield from proof(engine, 1).different
        except NoReference as why:
            yield f"{engine}: not asked: {why}"


if __name__ == "__main__":
    print(*differences(), sep="\n")
