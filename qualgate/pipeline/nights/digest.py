"""A night in words: one plain form that is stored, and the shapes that Slack and mail take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from qualgate.config.nightly import When
from qualgate.errors import Exit
from qualgate.escaping import visible_line
from qualgate.formatting import counted
from qualgate.pipeline.nights.trends import ArmTrend
from qualgate.records import Verdict
from qualgate.store.nights import Night
from qualgate.store.queries import Flaky


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A night with all that is told of it."""

    night: Night
    before: int | None  # the exit code of the night, or the try, before; None: there was none
    failed: int = 0  # how often, of the tries on this night; 0: this one did not
    again_at: datetime | None = None  # when it is tried again; None: no more, or there is no need
    verdicts: tuple[Verdict, ...] = ()
    trends: tuple[ArmTrend, ...] = ()
    flaky: tuple[Flaky, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether its verdict is another than the night before's. The first is."""
        return self.night.exit != self.before

    @property
    def repeats(self) -> bool:
        """Whether it failed again as had been told, and is still to be tried: no news."""
        return self.failed > 1 and self.again_at is not None


VERSION = 1  # of the plain form
WORDS: dict[int, str] = {
    Exit.APPROVE: "approve", Exit.BLOCK: "block", Exit.REVIEW: "review", Exit.UNDECIDED: "undecided",
    Exit.INFRASTRUCTURE: "failed", Exit.INTEGRITY: "evidence broken", Exit.USAGE: "cannot be judged",
}  # fmt: skip
LONGEST = 2_500  # characters of a Slack block, which takes 3,000


def word(code: int) -> str:
    """Of an exit code."""
    return WORDS.get(code, str(code))


def body(name: str, told: Sequence[Told], code: Exit, now: datetime, waiting: int) -> dict[str, Any]:
    """The plain form. name: of the nightly file; waiting: digests of earlier nights that are not delivered yet."""
    return {
        "kind": "qualgate.nightly",
        "version": VERSION,
        "nightly": name,
        "at": now.isoformat(timespec="seconds"),
        "exit": int(code),
        "word": word(code),
        "nights": [_night(one) for one in told],
        "undelivered": waiting,
    }


def _night(one: Told) -> dict[str, Any]:
    night = one.night
    return {
        "name": night.name,
        "gate": night.gate,
        "model": night.model,
        "run": night.run_id,
        "repeated": night.repeated,
        "exit": night.exit,
        "word": word(night.exit),
        "exit_before": one.before,
        "failed": one.failed,
        "again_at": one.again_at.isoformat(timespec="seconds") if one.again_at else None,
        "said": night.said[:1_000],
        "variants": [
            {"variant": verdict.variant, "word": verdict.word, "reason": (verdict.reasons or ("",))[0][:500]}
            for verdict in one.verdicts
        ],
        "falls": [fall for trend in one.trends for fall in falls(trend)],
        "flaky": [
            {"arm": case.arm, "evalset": case.evalset, "case": case.case_id, "changed": case.changed, "of": case.pairs}
            for case in one.flaky[:20]
        ],
        "flaky_cases": len(one.flaky),
    }


def falls(trend: ArmTrend) -> list[dict[str, Any]]:
    """Those since the approved run, in plain form; times are when the night's run began."""
    seen, last = trend.watched, len(trend.watched.run_ids) - 1
    return [
        {
            "arm": seen.arm,
            "metric": seen.metric,
            "points": round(100 * fall.size, 2),
            "since": seen.began[fall.began],
            "told": seen.began[fall.detected],
            "new": fall.detected == last,
        }
        for fall in trend.falls
    ]


def wanted(when: When, told: Sequence[Told], code: Exit, waiting: int) -> bool:
    """Whether a target asked to be told of such a night. A new fall, and a digest that waits, are told to all."""
    if waiting or any(trend.tonight for one in told for trend in one.trends):
        return True
    if when == "changed":
        return any(one.changed for one in told)
    return when == "always" or code is not Exit.APPROVE


def lines(said: dict[str, Any]) -> list[str]:
    """For people, from the plain form."""
    found = [
        f"{visible_line(said['nightly'])}: {said['word']} ({said['exit']}), {said['at'][:16].replace('T', ' ')} UTC"
    ]
    for night in said["nights"]:
        before = night["exit_before"]
        was = f", was {word(before)}" if before is not None and before != night["exit"] else ""
        again = ", repeated: nothing changed" if night["repeated"] else ""
        found.append(f"{visible_line(night['name'])}: {night['word']}{was}{again}")
        if night["said"] and not night["repeated"]:
            found.append(f"  {visible_line(night['said'])}")
        if again_at := night["again_at"]:
            found.append(f"  tried again from {again_at[11:16]} UTC")
        elif night["failed"]:
            found.append(f"  tried {counted(night['failed'], 'time')}, and no more until it is due again")
        found += [
            f"  {visible_line(one['variant'])}: {one['word']}, {visible_line(one['reason'])}"
            for one in night["variants"]
        ]
        found += [f"  {fall_line(one)}" for one in night["falls"]]
        if night["flaky_cases"]:
            found.append(
                f"  {counted(night['flaky_cases'], 'flaky case')}: answers that changed though nothing else did"
            )
    if said["undelivered"]:
        found.append(f"{counted(said['undelivered'], 'earlier digest')} not delivered until now")
    return found


def fall_line(fall: dict[str, Any]) -> str:
    """ "FELL since …": one sentence."""
    begins = "NEW FALL" if fall["new"] else "fallen"
    return (
        f"{begins}: {visible_line(fall['arm'])} {fall['metric']} by {fall['points']:.1f} points since "
        f"{fall['since'][:10]} (told {fall['told'][:10]})"
    )


def as_slack(said: dict[str, Any]) -> dict[str, Any]:
    """The shape of an incoming webhook: a text for notifications, and the same as a block."""
    text = "\n".join(lines(said)).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    cut = text if len(text) <= LONGEST else f"{text[:LONGEST]}\n… more: qualgate trend"
    head = cut.partition("\n")[0]
    return {"text": head, "blocks": [{"type": "section", "text": {"type": "plain_text", "text": cut}}]}
