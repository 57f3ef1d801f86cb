"""Every error a user can cause or meet, and every exit code.

QualgateError
├── UsageError          exit 64   what the user wrote, or what this machine lacks
├── NotInThisVersion    exit 64   a key of the design that this version recognises and refuses
├── StoreVersionError   exit 64   the store's schema and the program's disagree
├── EvidenceMissing     exit 12   there is nothing stored that a verdict could rest on
├── InfrastructureError exit 13   the machinery failed: a worker, a disk, a model that returns NaN
└── IntegrityError      exit 14   stored evidence is not what was recorded

A message says what was found, what was expected, and the next step.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum


class Exit(IntEnum):
    """The exit codes, part of the contract with CI. 1 and 2 are never a verdict."""

    APPROVE = 0  # every critical rule proven
    BLOCK = 10  # a critical rule proven broken
    REVIEW = 11  # the policy asks for a person
    UNDECIDED = 12  # evidence missing, too little, stale or mismatched: never a pass
    INFRASTRUCTURE = 13  # infrastructure failure or incomplete run
    INTEGRITY = 14  # a hash or the decision chain is broken
    USAGE = 64  # usage or configuration error
    INTERRUPTED = 130  # Ctrl-C; running again resumes
    TERMINATED = 143  # SIGTERM; running again resumes


# The exit code of several verdicts is the first of these that occurs.
EXIT_ORDER = (Exit.INTEGRITY, Exit.INFRASTRUCTURE, Exit.BLOCK, Exit.UNDECIDED, Exit.REVIEW, Exit.APPROVE)


class QualgateError(Exception):
    """Base of every error whose message is written for the user. `exit` is the process's exit code."""

    exit: Exit = Exit.USAGE


class UsageError(QualgateError):
    """Input from the user that cannot be used as it is."""


class NotInThisVersion(UsageError):
    """A planned key or value that this version recognises but does not support."""


class StoreVersionError(UsageError):
    """A store written by a newer or an older qualgate."""


class EvidenceMissing(QualgateError):
    """No stored run has the requested evidence."""

    exit = Exit.UNDECIDED


class InfrastructureError(QualgateError):
    """The machinery failed; nothing can be said about the variant."""

    exit = Exit.INFRASTRUCTURE


class IntegrityError(QualgateError):
    """Evidence differs from what was recorded; no verdict can rest on it."""

    exit = Exit.INTEGRITY


class Interrupted(QualgateError):
    """Ctrl-C or SIGTERM: work stopped cleanly, running again resumes."""

    def __init__(self, message: str, exit: Exit = Exit.INTERRUPTED) -> None:
        super().__init__(message)
        self.exit = exit


def close_names(name: str, names: Iterable[str], most: int = 1, cutoff: float = 0.6) -> list[str]:
    """Known names that a misspelt one may be meant for, the closest first: for "did you mean".

    cutoff: least similarity, difflib's ratio in 0..1.
    """
    from difflib import get_close_matches  # needed only for misspelt names: must not slow `--help`

    return get_close_matches(name, list(names), n=most, cutoff=cutoff)


def one_line(error: BaseException) -> str:
    """`TypeName: message` without line breaks, to embed in a list of reasons."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:400]
