"""Summaries of a file of scores, as a few lines of text and as one JSON object."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from qualgate.records.metrics import BY_TRAJECTORY
from qualgate.text.escaping import visible_line
from qualgate.text.numbers import counted

if TYPE_CHECKING:
    from qualgate.pipeline.score_files import PassAt, Scored


def scored_lines(scored: Scored, ks: Sequence[int] = ()) -> list[str]:
    """Return the rate with its interval, pass@k and pass^k for each of `ks`, and the counts of errors."""
    rate, rows, trajectories = scored.rate, len(scored.rows), scored.metric in BY_TRAJECTORY
    denominator = counted(len(scored.judged), *(("trajectory", "trajectories") if trajectories else ("case",)))
    cases = counted(rows // scored.repeats, "case")
    repeats_text = f", {scored.repeats:,} answers to each of {cases}" if scored.repeats > 1 else ""
    lines = [f"{scored.metric}: {counted(rows, 'row')}{repeats_text}, scorer {scored.scorer}, {scored.mode} mode"]
    if rate is not None:
        lines.append(f"  rate   {rate.mean:.2%}   95 % interval {rate.lower:.2%} to {rate.upper:.2%}, exact")
        if trajectories:
            lines[-1] += f", of {denominator}: one is right when all of its turns are"
    for name, passed in (("pass@", scored.pass_at), ("pass^", scored.pass_all)):
        for estimate in map(passed, ks):
            result = f"unavailable: {estimate.unavailable}"
            if estimate.rate is not None:
                bounds = f"95 % interval {estimate.rate.lower:.2%} to {estimate.rate.upper:.2%}"
                result = f"{estimate.rate.mean:.2%}   {bounds}, {estimate.rate.n:,} of {denominator}"
            lines.append(f"  {name}{estimate.k}   {result}")
    counts = _counts(scored)
    lines.append(f"  right  {counts[True]:,}   wrong {counts[False]:,}   could not be judged {counts[None]:,}")
    lines += [f"  {count:>7,}  {visible_line(word)}" for word, count in scored.error_counts.items()]
    return lines


def scored_json(scored: Scored, ks: Sequence[int] = ()) -> dict[str, Any]:
    """Return the same as JSON values; pass@k and pass^k (`pass_all`) by k, each with its rate over cases (`turns.*`:
    trajectories) or the reason why there is none."""
    counts = _counts(scored)
    return {
        "metric": scored.metric, "scorer": scored.scorer, "mode": scored.mode, "rows": len(scored.rows),
        "cases": len(scored.rows) // scored.repeats, "repeats": scored.repeats, "right": counts[True],
        "wrong": counts[False], "could_not_be_judged": counts[None], "error_counts": scored.error_counts,
        "rate": scored.rate and asdict(scored.rate),
        "pass_at": _by_k(map(scored.pass_at, ks)), "pass_all": _by_k(map(scored.pass_all, ks)),
    }  # fmt: skip


def _by_k(passed: Iterable[PassAt]) -> dict[str, Any]:
    return {
        str(estimate.k): asdict(estimate.rate) if estimate.rate else {"unavailable": estimate.unavailable}
        for estimate in passed
    }


def _counts(scored: Scored) -> dict[bool | None, int]:
    return {verdict: sum(row.score.verdict is verdict for row in scored.rows) for verdict in (True, False, None)}
