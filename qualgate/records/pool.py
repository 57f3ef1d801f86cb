"""Runs that are handed to a pool of nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to work on a submission. token: of the claim; a later claim's is higher, and ends this one."""

    submission: str
    token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A run as it is handed over."""

    owner: str
    name: str  # of the gate file
    folder: str  # where that was, absolute
    gate_file: str  # its text
    program: str  # the version of qualgate
    priority: int = 0
    options: tuple[str, ...] = ()  # of `qualgate run`
    needs: Mapping[str, str] = field(default_factory=dict)  # absolute path → digest; "": it was not there to be read
    files: Mapping[str, bytes] = field(default_factory=dict)  # absolute path → content


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A submission that a node has a lease on."""

    lease: Lease
    submission: Submission
    deaths: int
    run_id: str | None  # of an earlier claim
    complete: bool  # that run came to its end: only its verdict is still to be told


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionState:
    """Where a submission stands. Times: s since the epoch, by the store's clock."""

    id: str
    owner: str
    priority: int
    status: str  # queued, leased, done, cancelled, apart
    name: str
    program: str
    submitted_at: float
    taken_at: float | None
    finished_at: float | None
    node: str | None
    claims: int
    deaths: int
    run_id: str | None
    exit: int | None
    reason: str
    done: int = 0  # units of its run that are
    units: int = 0
    refused: Mapping[str, str] = field(default_factory=dict)  # node → why it gave it back

    @property
    def ended(self) -> bool:
        """Nothing more will happen to it."""
        return self.status in ("done", "cancelled", "apart")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Who works for a store. seen: s ago; lease: s, for which it claims; skew: s by which its clock is before the
    store's."""

    name: str
    program: str
    seen: float
    lease: float
    skew: float
