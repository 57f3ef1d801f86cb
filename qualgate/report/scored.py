"""A file of scores, in a few lines for people, and as one JSON object."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from qualgate.escaping import visible_line
from qualgate.formatting import counted
from qualgate.metrics import BY_TRAJECTORY

if TYPE_CHECKING:
    from qualgate.pipeline.score_files import PassAt, Scored


def scored_lines(found: Scored, ks: Sequence[int] = ()) -> list[str]:
    """The rate with its interval, pass@k and pass^k for each of `ks`, and what was wrong how often."""
    rate, rows, trajectories = found.rate, len(found.rows), found.metric in BY_TRAJECTORY
    of = (
        counted(len(found.judged), "trajectory", "trajectories") if trajectories else counted(len(found.judged), "case")
    )
    several = (
        f", {found.repeats:,} answers to each of {counted(rows // found.repeats, 'case')}" if found.repeats > 1 else ""
    )
    lines = [f"{found.metric}: {counted(rows, 'row')}{several}, scorer {found.scorer}, {found.mode} mode"]
    if rate is not None:
        lines.append(f"  rate   {rate.mean:.2%}   95 % interval {rate.lower:.2%} to {rate.upper:.2%}, exact")
        if trajectories:
            lines[-1] += f", of {of}: one is right when all of its turns are"
    for name, passed in (("pass@", found.pass_at), ("pass^", found.pass_all)):
        for at in map(passed, ks):
            told = f"unavailable: {at.unavailable}"
            if at.rate is not None:
                bounds = f"95 % interval {at.rate.lower:.2%} to {at.rate.upper:.2%}"
                told = f"{at.rate.mean:.2%}   {bounds}, {at.rate.n:,} of {of}"
            lines.append(f"  {name}{at.k}   {told}")
    counts = _counts(found)
    lines.append(f"  right  {counts[True]:,}   wrong {counts[False]:,}   could not be judged {counts[None]:,}")
    lines += [f"  {count:>7,}  {visible_line(word)}" for word, count in found.error_counts.items()]
    return lines


def scored_json(found: Scored, ks: Sequence[int] = ()) -> dict[str, Any]:
    """The same for machines; pass@k and pass^k (`pass_all`) by k, each with its rate over cases (`turns.*`:
    trajectories), or with the reason why there is none."""
    counts = _counts(found)
    return {
        "metric": found.metric, "scorer": found.scorer, "mode": found.mode, "rows": len(found.rows),
        "cases": len(found.rows) // found.repeats, "repeats": found.repeats, "right": counts[True],
        "wrong": counts[False], "could_not_be_judged": counts[None], "error_counts": found.error_counts,
        "rate": found.rate and asdict(found.rate),
        "pass_at": _by_k(map(found.pass_at, ks)), "pass_all": _by_k(map(found.pass_all, ks)),
    }  # fmt: skip


def _by_k(passed: Iterable[PassAt]) -> dict[str, Any]:
    return {str(at.k): asdict(at.rate) if at.rate else {"unavailable": at.unavailable} for at in passed}


def _counts(found: Scored) -> dict[bool | None, int]:
    return {verdict: sum(row.score.verdict is verdict for row in found.rows) for verdict in (True, False, None)}
