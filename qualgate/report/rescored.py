"""Changes from scoring a run again, as text and as JSON."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from qualgate.text.escaping import visible_line
from qualgate.text.numbers import counted

if TYPE_CHECKING:
    from qualgate.pipeline.rescore import Rescored, ScoreChange

EXAMPLES = 5
WORDS = {True: "right", False: "wrong", None: "cannot say"}


def rescored_lines(rescored: Rescored) -> list[str]:
    """Return the scorers' versions, the changed scores, and each variant's verdict before and after."""
    if rescored.scorers or rescored.added or rescored.removed or rescored.corrected or rescored.answers:
        storage = "stored beside the old ones" if rescored.stored else "nothing was stored"
        lines = [f"run {rescored.run_id}: {counted(rescored.answers, 'answer')} scored again, {storage}"]
        lines += [f"  {metric}: {before} -> {version}" for metric, (before, version) in rescored.scorers.items()]
        lines += [
            f"  {visible_line(name)}: new metrics {', '.join(metrics)}" for name, metrics in rescored.added.items()
        ]
        lines += [
            f"  {visible_line(name)}: no longer {', '.join(metrics)}" for name, metrics in rescored.removed.items()
        ]
        if rescored.corrected:
            examples = ", ".join(rescored.corrected[:EXAMPLES]) + (", …" if len(rescored.corrected) > EXAMPLES else "")
            lines.append(f"  {counted(len(rescored.corrected), 'corrected reference')}: {visible_line(examples)}")
        lines += _change_lines(rescored.changes) if rescored.scorers or rescored.corrected or rescored.changes else []
    else:
        lines = [f"run {rescored.run_id}: every score is by this version's scorers and these evalsets already"]
    width = max((len(visible_line(verdicts.after.variant)) for verdicts in rescored.verdicts), default=0)
    for verdicts in rescored.verdicts:
        name, after = visible_line(verdicts.after.variant), verdicts.after.word.upper()
        before = verdicts.before.word.upper() if verdicts.before else "no verdict"
        words = after if before == after else f"{before} -> {after}"
        lines.append(f"{name:<{width}}  {words}  {visible_line(verdicts.after.reasons[0])}")
        second = verdicts.after.reasons[1:2] if rescored.added or rescored.removed or rescored.corrected else ()
        lines += [f"{'':<{width}}  {visible_line(reason)}" for reason in second]
    if (choices := _choices(rescored)) is not None:
        before, after = (visible_line(choice) or "not known" for choice in choices)
        lines.append(f"to be served of the four arms: {after if before == after else f'{before} -> {after}'}")
    return lines


def _choices(rescored: Rescored) -> tuple[str, str] | None:
    """Return the choice among four arms by the old and by the new scores; None without a four-arm comparison."""
    for verdicts in rescored.verdicts:
        old, new = verdicts.before and verdicts.before.four_arm, verdicts.after.four_arm
        if old or new:
            return old.choice if old else "", new.choice if new else ""
    return None


def _change_lines(changes: tuple[ScoreChange, ...]) -> list[str]:
    """Return the number of changed scores by arm, metric and kind of change, then the first few with reasons."""
    if not changes:
        return ["  every answer is judged as before"]
    counts = Counter((c.key.arm, c.after.metric, c.before.verdict, c.after.verdict) for c in changes)
    lines = [
        f"  {visible_line(arm)}: {metric} {WORDS[before]} -> {WORDS[after]}: {count:,}"
        for (arm, metric, before, after), count in counts.items()
    ]
    for change in changes[:EXAMPLES]:
        what = visible_line(change.after.reason or change.before.reason)
        lines.append(f"    {visible_line(f'{change.key.arm} {change.key.question}')}: {what}")
    return lines if len(changes) <= EXAMPLES else [*lines, f"    and {len(changes) - EXAMPLES:,} more"]


def rescored_json(rescored: Rescored) -> dict[str, Any]:
    """Return the text's content as JSON values, with every answer whose score changed."""
    return {
        "run": rescored.run_id,
        "stored": rescored.stored,
        "scorers": {metric: {"before": old, "after": new} for metric, (old, new) in rescored.scorers.items()},
        "added": {name: list(metrics) for name, metrics in rescored.added.items()},
        "removed": {name: list(metrics) for name, metrics in rescored.removed.items()},
        "corrected": list(rescored.corrected),
        "answers": rescored.answers,
        "verdicts": [
            {
                "variant": verdicts.after.variant,
                "before": verdicts.before and verdicts.before.word,
                "after": verdicts.after.word,
                "reasons": list(verdicts.after.reasons),
            }
            for verdicts in rescored.verdicts
        ],
        "changes": [
            {**asdict(c.key), "metric": c.after.metric, "before": asdict(c.before), "after": asdict(c.after)}
            for c in rescored.changes
        ],
        **({"four_arm": {"before": choices[0], "after": choices[1]}} if (choices := _choices(rescored)) else {}),
        "exit": int(rescored.exit),
    }
