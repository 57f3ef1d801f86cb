"""One turn of a trajectory: the right action is the calls that were expected of it, or none.

The verdict is that of `tool_call.correct` under a name of its own, by which rules count trajectories: one is right when
all of its turns are (`gate.comparisons.folded`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from qualgate.records import Case, Evalset, Score, turn_of
from qualgate.records.metrics import TURNS
from qualgate.scoring.outcome import actual
from qualgate.scoring.scorer import Scorer, in_dialect_first
from qualgate.scoring.tools import strict
from qualgate.scoring.tools.case_faults import tool_faults

SCORER = "turns/3"


def score_turn(case: Case, evalset: Evalset, text: str, written_in: str | None = None) -> dict[str, Score]:
    """Score whether the turn's answer, as text, is the expected action."""
    return _named(strict.score_tool_call(case, evalset, text, written_in))


def score_turn_decoded(case: Case, evalset: Evalset, calls: Any) -> dict[str, Score]:
    """Score whether decoded calls are the expected action."""
    return _named(strict.score_decoded(case, evalset, calls))


def turn_faults(body: dict[str, Any], evalset: Evalset) -> Iterator[str]:
    """Yield why a case cannot be scored as a turn: faults of a tool call, or an id that names no trajectory."""
    if isinstance(body.get("id"), str) and turn_of(body["id"]) is None:
        yield (
            f"{TURNS} counts trajectories, and this case is no turn of one: give it `turns`, or, of a turn that is "
            f"written out, an id as TRAJECTORY/1; {actual(body, 'id')}"
        )
    yield from tool_faults(body, evalset)


def _named(scores: dict[str, Score]) -> dict[str, Score]:
    return {TURNS: replace(scores[strict.FLAGS[-1]], metric=TURNS, scorer=SCORER)}


SCORERS = (
    Scorer(
        name="turns",
        version=SCORER,
        metrics=(TURNS,),
        function=score_turn,
        faults=turn_faults,
        decoded=score_turn_decoded,
        written_in=in_dialect_first(score_turn),
    ),
)
