"""One request under load, and what became of it: times alone, from which every definition takes its numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

How = Literal["answered", "failed", "closed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """Times in seconds of one clock.

    prompt: its place in the list of prompts. due: when it was to be sent. began: when it was first. pieces: when each
    piece came that said something, of the attempt that ended it. events: the same of every event with a choice in it,
    empty ones too. ended: when all of it was there, it had failed for good, or was closed. tokens: of the answer, as
    the server counts them; None where it does not tell. failures: what went wrong, attempt by attempt.
    """

    prompt: int
    due: float
    began: float
    ended: float
    how: How
    pieces: tuple[float, ...] = ()
    events: tuple[float, ...] = ()
    tokens: int | None = None
    prompt_tokens: int | None = None
    failures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What was sent to one arm at one level in one round. start, end: when new requests began and ceased to come; the
    window (from `opens` to `closes`) lies between."""

    start: float
    opens: float
    closes: float
    end: float
    sent: tuple[Sent, ...]
