"""Changes by scoring a run again, for people and for machines."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from qualgate.escaping import visible_line
from qualgate.formatting import counted

if TYPE_CHECKING:
    from qualgate.pipeline.rescore import Rescored, ScoreChange

EXAMPLES = 5
WORDS = {True: "right", False: "wrong", None: "cannot say"}


def rescored_lines(found: Rescored) -> list[str]:
    """Versions, answers judged otherwise, and each variant's verdict before and after."""
    if found.scorers or found.added or found.removed or found.corrected or found.answers:
        kept = "stored beside the old ones" if found.stored else "nothing was stored"
        lines = [f"run {found.run_id}: {counted(found.answers, 'answer')} scored again, {kept}"]
        lines += [f"  {metric}: {before} -> {now}" for metric, (before, now) in found.scorers.items()]
        lines += [f"  {visible_line(name)}: new metrics {', '.join(some)}" for name, some in found.added.items()]
        lines += [f"  {visible_line(name)}: no longer {', '.join(some)}" for name, some in found.removed.items()]
        if found.corrected:
            few = ", ".join(found.corrected[:EXAMPLES]) + (", …" if len(found.corrected) > EXAMPLES else "")
            lines.append(f"  {counted(len(found.corrected), 'corrected reference')}: {visible_line(few)}")
        lines += _flip_lines(found.changes) if found.scorers or found.corrected or found.changes else []
    else:
        lines = [f"run {found.run_id}: every score is by this version's scorers and these evalsets already"]
    width = max((len(visible_line(one.after.variant)) for one in found.verdicts), default=0)
    for one in found.verdicts:
        name, after = visible_line(one.after.variant), one.after.word.upper()
        before = one.before.word.upper() if one.before else "no verdict"
        words = after if before == after else f"{before} -> {after}"
        lines.append(f"{name:<{width}}  {words}  {visible_line(one.after.reasons[0])}")
        second = one.after.reasons[1:2] if found.added or found.removed or found.corrected else ()
        lines += [f"{'':<{width}}  {visible_line(reason)}" for reason in second]
    if (choices := _choices(found)) is not None:
        before, after = (visible_line(choice) or "not known" for choice in choices)
        lines.append(f"to be served of the four arms: {after if before == after else f'{before} -> {after}'}")
    return lines


def _choices(found: Rescored) -> tuple[str, str] | None:
    """Which of four arms is to be served, by the old scores and by the new ones; None where none is chosen from."""
    for one in found.verdicts:
        old, new = one.before and one.before.four_arm, one.after.four_arm
        if old or new:
            return old.choice if old else "", new.choice if new else ""
    return None


def _flip_lines(changes: tuple[ScoreChange, ...]) -> list[str]:
    if not changes:
        return ["  every answer is judged as before"]
    counted = Counter((one.key.arm, one.after.metric, one.before.verdict, one.after.verdict) for one in changes)
    lines = [
        f"  {visible_line(arm)}: {metric} {WORDS[before]} -> {WORDS[after]}: {count:,}"
        for (arm, metric, before, after), count in counted.items()
    ]
    for one in changes[:EXAMPLES]:
        what = visible_line(one.after.reason or one.before.reason)
        lines.append(f"    {visible_line(f'{one.key.arm} {one.key.question}')}: {what}")
    return lines if len(changes) <= EXAMPLES else [*lines, f"    and {len(changes) - EXAMPLES:,} more"]


def rescored_json(found: Rescored) -> dict[str, Any]:
    """All that the text says, with every answer whose score changed."""
    return {
        "run": found.run_id,
        "stored": found.stored,
        "scorers": {metric: {"before": was, "after": now} for metric, (was, now) in found.scorers.items()},
        "added": {name: list(some) for name, some in found.added.items()},
        "removed": {name: list(some) for name, some in found.removed.items()},
        "corrected": list(found.corrected),
        "answers": found.answers,
        "verdicts": [
            {
                "variant": one.after.variant,
                "before": one.before and one.before.word,
                "after": one.after.word,
                "reasons": list(one.after.reasons),
            }
            for one in found.verdicts
        ],
        "changes": [
            {**asdict(one.key), "metric": one.after.metric, "before": asdict(one.before), "after": asdict(one.after)}
            for one in found.changes
        ],
        **({"four_arm": {"before": choices[0], "after": choices[1]}} if (choices := _choices(found)) else {}),
        "exit": int(found.exit),
    }
