"""Refuse to score a run again where this version's scorers, or lm-eval's tasks, cannot judge its cases."""

from __future__ import annotations

from collections.abc import Mapping

from qualgate.errors import UsageError
from qualgate.harness import tasks
from qualgate.records import Evalset, LmEvalTask
from qualgate.scoring import answer_format
from qualgate.scoring.registry import scorers_of
from qualgate.scoring.text import known
from qualgate.text.numbers import counted

FAULTS_SHOWN = 5


def refuse_unscorable(sets: tuple[Evalset, ...]) -> None:
    """Raise UsageError for cases that lack what a scorer needs, and for normalizers that are not installed."""
    for item in sets:
        if "exact_match" in item.metrics and (missing := [name for name in item.normalizers if name not in known()]):
            raise UsageError(
                f"{item.name} was scored with the normalizer {', '.join(missing)}, which no installed package offers; "
                "install the package that the run had"
            )
    faults = [
        f"{item.name}/{case.id}: {fault}"
        for item in sets
        for scorer in scorers_of(tuple(metric for metric in item.metrics if metric not in answer_format.METRICS))
        for case in item.cases
        for fault in scorer.unscorable(case.body, item)
    ]
    if faults:
        remainder = f"\nand {len(faults) - FAULTS_SHOWN:,} more" if len(faults) > FAULTS_SHOWN else ""
        raise UsageError("this version cannot score cases of the run:\n" + "\n".join(faults[:FAULTS_SHOWN]) + remainder)


def refuse_other_questions(sets: list[Evalset], lm_eval_tasks: Mapping[str, LmEvalTask]) -> None:
    """Raise UsageError unless lm-eval's tasks, read from the gate file, ask the recorded questions."""
    for item in sets:
        if item.name not in lm_eval_tasks:
            raise UsageError(
                f"{item.name} was scored by another version of lm-eval; to score it again, give the gate file that "
                "names its task: qualgate rescore GATE.yaml"
            )
        today = {case.id: case.hash for case in tasks.load(lm_eval_tasks[item.name]).cases}
        if changed := [case.id for case in item.cases if today.get(case.id) != case.hash]:
            raise UsageError(
                f"{tasks.library()} asks otherwise in {len(changed):,} of {counted(len(item.cases), 'document')} of "
                f"{item.name} than the run did, first in {changed[0]}: run again"
            )
