"""Benchmark `decisions`: is the gate's word right, and what does it cost in cases? Each row is another module's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from tests.benchmarks.shape import told
from tests.verification.goals import DECISIONS

Rounds = list[dict[str, Any]]
Found = tuple[Rounds, list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Part:
    """Rows that one module measures."""

    ids: tuple[str, ...]
    module: str
    function: str = "measure"  # its `(quick) -> (rounds, rows)`


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
    Part(("choice.margin",), "four_arms", "choice"),
    Part(("nights",), "nights"),
    Part(("times.errors", "times.power"), "times"),
)


def run(quick: bool, only: Sequence[str] = ()) -> dict[str, Any]:
    """Every part in turn, or those that measure a row of `only`. quick: slices; a met goal of most rows then stays
    without a verdict."""
    return assembled(tuple(part for part in PARTS if not only or set(only) & set(part.ids)), quick)


def assembled(parts: tuple[Part, ...], quick: bool) -> dict[str, Any]:
    """The rows of these parts; those of no part, or that it left out, have no verdict."""
    rounds, found = [], {}
    for part in told("decisions", parts, lambda part: ", ".join(part.ids)):
        module = import_module(f"tests.verification.verdicts.{part.module}")
        of_part, rows = getattr(module, part.function)(quick)
        rounds += [{"part": part.module, **one} for one in of_part]
        # The goal is this table's; what else a row tells (a reason, a peak) is kept.
        found |= {row["id"]: row | {"goal": DECISIONS.goals[row["id"]]} for row in rows if row["id"] in part.ids}
    rows = [found.get(id) or DECISIONS.not_run(id, "nothing measured it") for id in DECISIONS.goals]
    return DECISIONS.result(rounds=rounds, rows=rows)
