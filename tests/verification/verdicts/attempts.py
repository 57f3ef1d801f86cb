"""What is put to the gate, entry by entry, each with the exit codes that are right; and the row of such a list."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from qualgate.errors import QualgateError
from tests.verification.goals import DECISIONS

REFUSALS = frozenset({10, 11, 12, 13, 14, 64})
Code = int | str  # the exit code, or the exception that crashed the gate
Ask = Callable[[Path], Code]  # in a folder of its own, which an earlier attempt may have left


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    group: str
    name: str
    ask: Ask
    right: frozenset[int] = REFUSALS


Outcomes = Sequence[tuple[Attempt, Code]]


def exit_code(judge: Callable[[], object]) -> Code:
    """The code that a pipeline would see. Any other exception is a crash: the contract knows no traceback."""
    try:
        said = judge()
        return int(said) if isinstance(said, int) else f"said {said!r} in place of an exit code"
    except typer.Exit as done:
        return done.exit_code
    except QualgateError as error:
        return int(error.exit)
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200]


def outcomes(attempts: Iterable[Attempt]) -> Outcomes:
    """Each attempt with the code that came out."""
    with tempfile.TemporaryDirectory() as name:
        return [(attempt, attempt.ask(Path(name) / "scene")) for attempt in attempts]


def wrong_of(found: Outcomes) -> list[str]:
    """Attempts that came out otherwise than is right, with their codes."""
    return [f"{one.group}: {one.name}: {code}" for one, code in found if code not in one.right]


def row_of(id: str, found: Outcomes, least: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """(how often each code came out of each group, the goal's row). Fewer than `least` attempts are no proof."""
    wrong = wrong_of(found)
    few = f"{len(found)} of {least} were tried" if len(found) < least else None
    row = DECISIONS.row(id, {"tried": len(found), "wrong": wrong}, met=not wrong, few=few)
    codes = Counter((one.group, str(code)) for one, code in found)
    return [{"of": id, "group": group, "exit": code, "count": count} for (group, code), count in codes.items()], row
