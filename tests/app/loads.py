"""A load as the command keeps it, of servers whose times are made here."""

from __future__ import annotations

from typing import Any

from qualgate.pipeline.load.counters import Counted
from qualgate.pipeline.load.definitions import QUALGATE
from qualgate.pipeline.load.run import Loaded
from qualgate.pipeline.load.schedule import Level
from qualgate.pipeline.load.sent import Sent, Stage
from qualgate.pipeline.load.summary import summarised
from qualgate.records import ArmSpec, Load, LoadRule, Slo
from qualgate.report.load import load_body

LEVELS = (Level(kind="concurrency", value=4), Level(kind="rate", value=8))
RULES = (
    LoadRule(metric="throughput.answers", max_drop=0.05),
    LoadRule(metric="ttft.p95", max_increase=0.10),
    LoadRule(metric="failed.share", max=0.001),
    LoadRule(metric="cancel.tokens", max=0),
)
ROUNDS = 10
WINDOW = 10.0  # s
SAID = 61  # tokens of an answer


def load_of(
    slower: dict[str, float], *, cancelled: bool = True, server: str = "vllm 0.33.0, support"
) -> dict[str, Any]:
    """The body that is stored. slower: by variant, how many times as long its answers take as the baseline's;
    cancelled: whether servers tell what they write for nobody."""
    arms = {"baseline": 1.0, **slower}
    stages = {
        (arm, level): tuple(_stage(level, times, number) for number in range(ROUNDS))
        for level in LEVELS
        for arm, times in arms.items()
    }
    count = Counted(written=4000, afterwards=0) if cancelled else None
    found = Loaded(
        load=Load(concurrency=(4,), rate=(8,), seconds=WINDOW, rounds=ROUNDS, rules=RULES), seed=7, levels=LEVELS,
        arms=tuple(ArmSpec(name=arm, model="support") for arm in arms), prompts=240,
        declarations=dict.fromkeys(arms, server), stages=stages, counts=dict.fromkeys(stages, (count,) * ROUNDS),
    )  # fmt: skip
    return load_body(summarised(found, QUALGATE, Slo(ttft=0.5, tpot=0.05, e2e=10), 0.05))


def _stage(level: Level, times: float, number: int) -> Stage:
    """Answers come evenly, and take longer where more are asked at once; rounds differ by some per cent."""
    users = level.value if level.kind == "concurrency" else 10
    drift = times * (1 + 0.01 * ((number * 5 + 3) % 7))
    token, first = 0.011 * (1 + 0.03 * users) * drift, 0.040 * (1 + 0.15 * users) * drift
    every = (first + SAID * token) / users if level.kind == "concurrency" else 1 / level.value
    sent = []
    for place in range(int(WINDOW / every)):
        due, late = place * every, 1 + 0.02 * (place * 13 % 17)
        pieces = tuple(due + late * (first + token * at) for at in (0, SAID // 2, SAID - 1))
        sent.append(
            Sent(prompt=place % 240, due=due, began=due, ended=pieces[-1], how="answered", pieces=pieces, tokens=SAID)
        )
    return Stage(start=0.0, opens=0.0, closes=WINDOW, end=WINDOW, sent=tuple(sent))
