"""Load and question a candidate's program behind the wall; the outcome is (verdict, error type, reason)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from qualgate.sandbox import Ended, Interpreter, Limits, Sandbox, SandboxFailed, Tier
from qualgate.sandbox.inside.far import BadReply, CannotCross, Far
from qualgate.scoring.unit_tests.names import BadTests

Said = tuple[bool | None, str, str]
RIGHT: Said = (True, "", "")
_KINDS = {"SyntaxError": "syntax", "IndentationError": "syntax", "TabError": "syntax", "MemoryError": "memory"}


class Wrong(Exception):
    """A program that does not load, or returns something else. `error_type` as in its score."""

    def __init__(self, error_type: str, reason: str) -> None:
        super().__init__(reason)
        self.error_type = error_type


def sandbox_of(plain: dict[str, Any]) -> Sandbox:
    """Rebuild a sandbox that `dataclasses.asdict` made plain, for a judge in another process."""
    return Sandbox(**plain | {"tier": Tier(**plain["tier"]), "limits": Limits(**plain["limits"])})


def load(candidate: Interpreter, program: str, names: tuple[str, ...] = ()) -> list[Any]:
    """Run `program` in the candidate's module; return which of `names` it defines. Raises Wrong, Ended."""
    match candidate.ask({"op": "load", "args": [program, list(names)]}):
        case {"raised": [str(kind), str(message)]}:
            raise Wrong(_KINDS.get(kind, "exception"), f"{kind}: {message}")
        case {"value": list(available)}:
            return available
    raise Wrong("reply", "not a reply")


def outcome_of(judged: Callable[[], Said]) -> Said:
    """Return the outcome of a whole exam; faults of tests and sandbox give no verdict. Numbers of any length may be
    written out meanwhile, since exams run in a child with limits."""
    digits_limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        return judged()
    except BadTests as error:
        return None, "tests", str(error)
    except SandboxFailed as error:
        return None, "sandbox", str(error)
    except (Ended, Wrong) as error:
        return False, error.error_type, str(error)
    finally:
        sys.set_int_max_str_digits(digits_limit)


def examine(candidate: Interpreter, sit: Callable[[Far], None]) -> Said:
    """Return the outcome of `sit`, which asks the candidate and raises AssertionError if a test fails."""
    far = Far(candidate.ask)
    try:
        sit(far)
    except AssertionError as error:
        note = f"; a {far.unequal} of the answer's own equals no value of the tests" if far.unequal else ""
        return False, "wrong_value", (str(error)[:300] or "an assertion failed") + note
    except CannotCross as error:
        return None, "tests", str(error)
    except BadReply as error:
        return False, "reply", str(error)
    except (Ended, BadTests):
        raise
    except BaseException as error:  # the candidate's own exception, or a value that does not fit the test
        if isinstance(error, KeyboardInterrupt) and error is not far.raised:
            raise
        kind = "memory" if isinstance(error, MemoryError) else "exception"
        return False, kind, f"{type(error).__name__}: {str(error)[:300]}"
    return RIGHT if far.questions else (None, "tests", "as they ran, the tests ask the answer nothing")
