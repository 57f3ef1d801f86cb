"""Records of requests under load: raw times, from which every definition computes its numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

How = Literal["answered", "failed", "closed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A request with its times, in seconds of one clock.

    prompt: index in the list of prompts. due: planned start. began: first attempt. pieces: arrival of each piece with
    content, of the last attempt. events: the same for every event with a choice, empty ones too. ended: when it was
    complete, had failed for good, or was closed. tokens: of the answer, as counted by the server; None if it does not
    tell. failures: causes, attempt by attempt.
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
    """The requests to one arm at one level in one round. start, end: first and last time for new requests; the window
    from `opens` to `closes` lies between."""

    start: float
    opens: float
    closes: float
    end: float
    sent: tuple[Sent, ...]
