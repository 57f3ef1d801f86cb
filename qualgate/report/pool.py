"""Submissions and nodes of a pool, as people and machines read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from qualgate.errors import Exit
from qualgate.escaping import visible_line
from qualgate.formatting import counted
from qualgate.records import Node, SubmissionState

_TIMES = ("submitted_at", "taken_at", "finished_at")


def as_plain(one: SubmissionState | Node) -> dict[str, Any]:
    """For JSON: times in ISO 8601, UTC."""
    plain = asdict(one)
    for name in _TIMES:
        if plain.get(name) is not None:
            plain[name] = _time(plain[name], "milliseconds")
    return plain


def short(one: SubmissionState) -> str:
    """Where it stands, in one line."""
    if one.ended:
        return how_it_ended(one)
    if one.status == "queued":
        return f"queued{f', after {visible_line(one.reason)}' if one.reason else ''}"
    far = f", {one.done:,} of {counted(one.units, 'answer')}" if one.units else ""
    return f"at work on {visible_line(one.node or '')}{far}"


def how_it_ended(one: SubmissionState) -> str:
    """Of one that has."""
    if one.exit is None:
        return visible_line(one.reason)
    return f"done, exit {one.exit} ({Exit(one.exit).name.lower()})"


def state_lines(one: SubmissionState, *, whole: bool = False) -> list[str]:
    """One line; whole: what else is known below it."""
    first = f"{one.id}  {visible_line(one.owner)}  {visible_line(one.name)}  {short(one)}"
    if not whole:
        return [first]
    lines = [first, f"  handed over {_time(one.submitted_at)} by qualgate {one.program}, priority {one.priority}"]
    if one.taken_at is not None:
        lines.append(
            f"  taken {_time(one.taken_at)} by {visible_line(one.node or '')}: claim {one.claims}, "
            f"{counted(one.deaths, 'death')}"
        )
    if one.run_id is not None:
        lines.append(f"  run {one.run_id}: {one.done:,} of {counted(one.units, 'answer')}")
    if one.reason:
        lines.append(f"  {visible_line(one.reason)}")
    lines += [f"  given back by {visible_line(reason)}" for reason in one.refused.values()]
    return lines


def node_lines(nodes: Sequence[Node], rescued: int) -> list[str]:
    """Who works for the store, and how often work was taken over."""
    if not nodes:
        return ["no node is at work for this store"]
    lines = []
    for one in nodes:
        skew = f", its clock {abs(one.skew):.0f} s off" if abs(one.skew) > one.lease else ""
        lines.append(f"node {visible_line(one.name)}  qualgate {one.program}, seen {one.seen:.0f} s ago{skew}")
    return [*lines, f"leases that ran out and were taken over: {rescued}"] if rescued else lines


def _time(seconds: float, precision: str = "seconds") -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec=precision)
