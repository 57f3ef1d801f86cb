"""Score a sample of a run's stored answers again: a stored score that its own scorer does not give was forged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from qualgate.harness import tasks
from qualgate.records import Case, Evalset, Score
from qualgate.records.metrics import LM_EVAL, STATE
from qualgate.scoring import code, reasoning, score, scorer_versions
from qualgate.scoring.text import known
from qualgate.scoring.tools import served
from qualgate.scoring.tools.case_faults import SERVED_BY
from qualgate.store import scorings
from qualgate.store.database import Store
from qualgate.store.rows import unit_name
from qualgate.text.numbers import counted

MOST = 200  # answers of each arm
SHOWN = 3  # differences
# Why a scorer cannot say at one time or on one machine what it said elsewhere: it was stopped, or something is missing.
HERE = (
    "stopped", "limit", "not_decodable_here", "no_packages", "no_parser", "parser_failed", "scorer_failed",
)  # fmt: skip
PROGRAMS = ("code.pass", STATE)  # these run what a model wrote, and what a program does need not repeat


def differing_scores(store: Store, run_id: str) -> list[str]:
    """Return a line for each stored score of the sample that differs from what the same version of its scorer gives.

    Left out are programs, lm-eval's tasks, other versions (see `scored_otherwise`), scores that were not given then,
    and those that cannot be given here and now (`HERE`).
    """
    drawn = scorings.sample(store, run_id, MOST)
    sets = {item.name: item for item in drawn.evalsets if all(name in known() for name in item.normalizers)}
    cases = {(item.name, case.id): case for item in sets.values() for case in item.cases}
    versions, lines = scorer_versions(), list[str]()
    for answer in drawn.answers:
        if (case := cases.get((answer.key.evalset, answer.key.case_id))) is None:
            continue
        lines += [
            f"{unit_name(answer.key)}: the stored score of {before.metric} is {before.value:g}, "
            f"and {before.scorer} gives {'none' if now is None else f'{now:g}'} for the stored answer"
            for before, now in _compared(answer, case, sets[answer.key.evalset], versions)
            if now != before.value
        ]
    more = len(lines) - SHOWN
    return lines[:SHOWN] + ([f"and {counted(more, 'more such score')} in a sample"] if more > 0 else [])


def _compared(
    answer: scorings.StoredAnswer, case: Case, item: Evalset, versions: dict[str, str]
) -> Iterator[tuple[Score, float | None]]:
    """Yield the answer's stored scores that can be scored again, each with its new value; None: it has none."""
    skipped = (*PROGRAMS, *(("tool_call.served",) if SERVED_BY in case.body else ()))  # a program reads that one
    stored = {
        one.metric: one
        for one in answer.scores
        if one.metric not in skipped
        and not one.metric.startswith(LM_EVAL)
        and one.value is not None
        and one.scorer == of_today(one.metric, one.scorer, versions)
    }
    item = replace(item, metrics=())  # only those asked for
    for new in score(case, item, answer.text, answer.finish_reason, tuple(stored), answer.calls):
        if new.value is not None or new.error_type not in HERE:
            yield stored[new.metric], new.value


def of_today(metric: str, scorer: str, versions: Mapping[str, str]) -> str:
    """Return the current name and version of a stored score's scorer; "" if there is none. versions: of our scorers."""
    if metric.startswith(LM_EVAL):
        return tasks.today(scorer)
    return reasoning.today(scorer, served.today(scorer, code.today(scorer, versions.get(metric, ""))))
