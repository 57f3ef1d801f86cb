"""Describe nights in words: the plain form that is stored, and the forms for Slack and mail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from qualgate.config.nightly import When
from qualgate.errors import Exit
from qualgate.pipeline.nights.trends import ArmTrend
from qualgate.records import Verdict
from qualgate.store.nights import Night
from qualgate.store.queries import Flaky
from qualgate.text.escaping import visible_line
from qualgate.text.numbers import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A night with everything that its digest reports."""

    night: Night
    before: int | None  # exit code of the previous night or try; None: there was none
    failed: int = 0  # failed tries on this night; 0: this one did not fail
    again_at: datetime | None = None  # time of the next try; None: there is none
    verdicts: tuple[Verdict, ...] = ()
    trends: tuple[ArmTrend, ...] = ()
    flaky: tuple[Flaky, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether the exit code differs from the previous night's; True for the first night."""
        return self.night.exit != self.before

    @property
    def repeats(self) -> bool:
        """Whether a repeated failure has another try to come, so that there is nothing new to report."""
        return self.failed > 1 and self.again_at is not None


VERSION = 1  # of the plain form
WORDS: dict[int, str] = {
    Exit.APPROVE: "approve", Exit.BLOCK: "block", Exit.REVIEW: "review", Exit.UNDECIDED: "undecided",
    Exit.INFRASTRUCTURE: "failed", Exit.INTEGRITY: "evidence broken", Exit.USAGE: "cannot be judged",
}  # fmt: skip
LONGEST = 2_500  # characters of a Slack block, which takes 3,000


def word(code: int) -> str:
    """Return the word for an exit code."""
    return WORDS.get(code, str(code))


def body(name: str, nights: Sequence[Told], code: Exit, now: datetime, waiting: int) -> dict[str, Any]:
    """Return the plain form. name: of the nightly file; waiting: number of earlier digests not delivered yet."""
    return {
        "kind": "qualgate.nightly",
        "version": VERSION,
        "nightly": name,
        "at": now.isoformat(timespec="seconds"),
        "exit": int(code),
        "word": word(code),
        "nights": [_night(night) for night in nights],
        "undelivered": waiting,
    }


def _night(entry: Told) -> dict[str, Any]:
    """Return one night in plain form, with texts and lists cut to a length that a message can hold."""
    night = entry.night
    return {
        "name": night.name,
        "gate": night.gate,
        "model": night.model,
        "run": night.run_id,
        "repeated": night.repeated,
        "exit": night.exit,
        "word": word(night.exit),
        "exit_before": entry.before,
        "failed": entry.failed,
        "again_at": entry.again_at.isoformat(timespec="seconds") if entry.again_at else None,
        "said": night.said[:1_000],
        "variants": [
            {"variant": verdict.variant, "word": verdict.word, "reason": (verdict.reasons or ("",))[0][:500]}
            for verdict in entry.verdicts
        ],
        "falls": [fall for trend in entry.trends for fall in falls(trend)],
        "flaky": [
            {"arm": case.arm, "evalset": case.evalset, "case": case.case_id, "changed": case.changed, "of": case.pairs}
            for case in entry.flaky[:20]
        ],
        "flaky_cases": len(entry.flaky),
    }


def falls(trend: ArmTrend) -> list[dict[str, Any]]:
    """Return the falls since the approved run in plain form; times are when the night's run began."""
    watched, newest = trend.watched, len(trend.watched.run_ids) - 1
    return [
        {
            "arm": watched.arm,
            "metric": watched.metric,
            "points": round(100 * fall.size, 2),
            "since": watched.began[fall.began],
            "told": watched.began[fall.detected],
            "new": fall.detected == newest,
        }
        for fall in trend.falls
    ]


def wanted(when: When, nights: Sequence[Told], code: Exit, waiting: int) -> bool:
    """Whether a target wants a digest of these nights. A new fall or an undelivered digest goes to every target."""
    if waiting or any(trend.tonight for night in nights for trend in night.trends):
        return True
    if when == "changed":
        return any(night.changed for night in nights)
    return when == "always" or code is not Exit.APPROVE


def lines(digest: dict[str, Any]) -> list[str]:
    """Return the lines for people, from the plain form."""
    out = [
        f"{visible_line(digest['nightly'])}: {digest['word']} ({digest['exit']}), "
        f"{digest['at'][:16].replace('T', ' ')} UTC"
    ]
    for night in digest["nights"]:
        before = night["exit_before"]
        was = f", was {word(before)}" if before is not None and before != night["exit"] else ""
        repeated = ", repeated: nothing changed" if night["repeated"] else ""
        out.append(f"{visible_line(night['name'])}: {night['word']}{was}{repeated}")
        if night["said"] and not night["repeated"]:
            out.append(f"  {visible_line(night['said'])}")
        if again_at := night["again_at"]:
            out.append(f"  tried again from {again_at[11:16]} UTC")
        elif night["failed"]:
            out.append(f"  tried {counted(night['failed'], 'time')}, and no more until it is due again")
        out += [
            f"  {visible_line(variant['variant'])}: {variant['word']}, {visible_line(variant['reason'])}"
            for variant in night["variants"]
        ]
        out += [f"  {fall_line(fall)}" for fall in night["falls"]]
        if night["flaky_cases"]:
            out.append(f"  {counted(night['flaky_cases'], 'flaky case')}: answers that changed though nothing else did")
    if digest["undelivered"]:
        out.append(f"{counted(digest['undelivered'], 'earlier digest')} not delivered until now")
    return out


def fall_line(fall: dict[str, Any]) -> str:
    """Return one sentence on a fall."""
    begins = "NEW FALL" if fall["new"] else "fallen"
    return (
        f"{begins}: {visible_line(fall['arm'])} {fall['metric']} by {fall['points']:.1f} points since "
        f"{fall['since'][:10]} (told {fall['told'][:10]})"
    )


def as_slack(digest: dict[str, Any]) -> dict[str, Any]:
    """Return the payload of Slack's incoming webhook: a text for notifications, and a block with all lines."""
    text = "\n".join(lines(digest)).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    cut = text if len(text) <= LONGEST else f"{text[:LONGEST]}\n… more: qualgate trend"
    head = cut.partition("\n")[0]
    return {"text": head, "blocks": [{"type": "section", "text": {"type": "plain_text", "text": cut}}]}
