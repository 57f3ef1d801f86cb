"""Benchmark `decisions`: is the gate's word right, and what does it cost in cases? Each row is another module's."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from qualgate.bench.shape import told
from tests.verification.goals import DECISIONS

Rounds = list[dict[str, Any]]
Found = tuple[Rounds, list[dict[str, Any]]]


def _measured(module: ModuleType, quick: bool) -> Found:
    return module.measure(quick)


def _benchmark(module: ModuleType, quick: bool) -> Found:
    """A benchmark of its own, some of whose rows are rows of this one."""
    result = module.run(quick)
    return result["rounds"], result["goals"]


@dataclass(frozen=True, slots=True)
class Part:
    """Rows that one module measures. A module that is not there leaves them without a verdict."""

    ids: tuple[str, ...]
    module: str
    ask: Callable[[ModuleType, bool], Found] = _measured
    room: str = "tests.verification.verdicts"


PARTS = (
    Part(("errors", "aa.block_rate"), "paired_errors"),
    Part(("power",), "rival_tests"),
    Part(("peers.cases", "peers.false_pass"), "peer_rules"),
    Part(("planner.rates", "planner.decidable", "undecided.planned"), "planner_rates"),
    Part(("early.identical", "early.twice", "early.worst"), "early_stopping"),
    Part(("early.decodes",), "early_decodes"),
    Part(("peeking",), "peeking"),
    Part(("peeking.files",), "growing_files"),
    Part(("fail_closed.cases", "fail_closed.mutations"), "fail_closed"),
    Part(("fail_closed.score_files",), "fail_closed_files"),
    Part(("attacks.new",), "new_attacks"),
    Part(("attacks.legitimate",), "legitimate"),
    Part(("monotone",), "monotone"),
    Part(("defects.false_approve", "defects.false_block"), "defects"),
    Part(("planted.false_approve", "planted.false_block", "planted.cause"), "planted_runs"),
    Part(("interaction.power", "interaction.silent"), "four_arms"),
    Part(("choice.margin",), "four_arms", lambda module, quick: module.choice(quick)),
    Part(("nights",), "nights"),
    Part(("times.errors", "times.power"), "times"),
    Part(("deterministic",), "determinism_report", _benchmark),
    Part(("gate_100k",), "commands", _benchmark, room="qualgate.bench"),
)


def run(quick: bool, only: Sequence[str] = ()) -> dict[str, Any]:
    """Every part in turn, or those that measure a row of `only`. quick: slices; a met goal of most rows then stays
    without a verdict."""
    return assembled(tuple(part for part in PARTS if not only or set(only) & set(part.ids)), quick)


def assembled(parts: tuple[Part, ...], quick: bool) -> dict[str, Any]:
    """The rows of these parts; those of no part, of a module that is not there or that it left out have no verdict."""
    rounds, found = [], {}
    for part in told("decisions", parts, lambda part: ", ".join(part.ids)):
        name = f"{part.room}.{part.module}"
        if find_spec(name) is None:
            found |= {id: DECISIONS.not_run(id, f"{part.module} is not part of this version") for id in part.ids}
            continue
        of_part, rows = part.ask(importlib.import_module(name), quick)
        rounds += [{"part": part.module, **one} for one in of_part]
        # The goal is this table's; what else a row tells (a reason, a peak) is kept.
        found |= {row["id"]: row | {"goal": DECISIONS.goals[row["id"]]} for row in rows if row["id"] in part.ids}
    rows = [found.get(id) or DECISIONS.not_run(id, "nothing measured it") for id in DECISIONS.goals]
    return DECISIONS.result(rounds=rounds, rows=rows)
