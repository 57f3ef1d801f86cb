"""Read current evalset files for stored answers: metrics and references may have changed, questions may not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

from qualgate.config import GateFile
from qualgate.errors import UsageError
from qualgate.evalsets import name_of
from qualgate.evalsets.cases import OF_EVALPLUS, READ
from qualgate.pipeline.check_packages import packages_held
from qualgate.pipeline.checks import check_rules
from qualgate.pipeline.named_sets import load_set, set_refs
from qualgate.pipeline.servers_read import read_by, servers_held
from qualgate.records import Case, Evalset
from qualgate.records.metrics import BY_LIKELIHOOD, READERS
from qualgate.scoring.reasoning import AUTO
from qualgate.text.numbers import counted

# Keys of a case that only scorers read; `choices` is special, see `_choices_differ`.
SCORED_BY = {
    *READERS, *OF_EVALPLUS, "served_by", "tolerance", "kwargs", "language", "formats", "test_setup_code",
    "entry_point", "fn_name",
}  # fmt: skip
ASKED = READ - SCORED_BY - {"tags"}
RESOLVED = ("reasoning", "dialect")  # keys that the run's plan may have added to the stored case
CASES_NAMED = 5


def sets_today(gate: GateFile, run_id: str, recorded: Sequence[Evalset], *, partial: bool) -> tuple[Evalset, ...]:
    """Return the recorded sets with their files' current metrics and references. lm-eval tasks stay as they were.

    partial: the run may have asked only some of each set's cases. Raises UsageError, naming cases, if a file asks other
    questions.
    """
    refs = {name_of(ref): ref for ref in set_refs(gate)}
    sets, faults = [], []
    for item in recorded:
        ref = refs.get(item.name)
        if not isinstance(ref, str):  # a task of lm-eval's, or a set that the gate file no longer names
            sets.append(item)
            continue
        today = read_by(load_set(ref, gate.path.parent), (gate.baseline, *gate.variants), gate.served_by)
        cases = {case.id: case for case in today.cases}
        faults += _other_questions(item, cases, {*item.metrics, *today.metrics}, partial=partial)
        merged = tuple(_merged(case, cases[case.id]) for case in item.cases if case.id in cases)
        sets.append(replace(today, description=item.description, path="", cases=merged))
    if faults:
        raise UsageError(
            f"run {run_id} cannot be scored by these files: {'; '.join(faults)}. Its answers are to the recorded "
            f"questions: put those cases back, or make a new run: qualgate run {gate.path.name}"
        )
    check_rules(gate, sets)
    packages_held(sets)
    servers_held(sets)
    return tuple(sets)


def _other_questions(item: Evalset, today: Mapping[str, Case], metrics: Set[str], *, partial: bool) -> list[str]:
    """Return a line for each kind of case for which the stored answers are no answers to the current file.

    metrics: the set's recorded and current metrics.
    """
    recorded = {case.id: case for case in item.cases}
    changed = [
        f"{case_id} ({', '.join(keys)})"
        for case_id, case in recorded.items()
        if case_id in today and (keys := _differing(case, today[case_id], metrics))
    ]
    gone = [case_id for case_id in recorded if case_id not in today]
    new = [case_id for case_id in today if case_id not in recorded] if not partial else []
    groups = (("with another question", changed), ("missing from the file", gone), ("that the run did not ask", new))
    return [f"{item.name}: {counted(len(ids), 'case')} {fault}: {_few(ids)}" for fault, ids in groups if ids]


def _differing(old_case: Case, new_case: Case, metrics: Set[str]) -> list[str]:
    before, today = old_case.body, _resolved(old_case, new_case)
    keys = [key for key in ASKED if before.get(key) != today.get(key)]
    return sorted([*keys, "choices"] if _choices_differ(before.get("choices"), today.get("choices"), metrics) else keys)


def _choices_differ(old_choices: Any, new_choices: Any, metrics: Set[str]) -> bool:
    """Whether changed choices change the question. For likelihoods the model reads every choice. A letter names a
    choice by its place: texts may be corrected, but neither order nor number may change."""
    if not metrics.isdisjoint(BY_LIKELIHOOD):
        return old_choices != new_choices
    if "multiple_choice" not in metrics or not (isinstance(old_choices, list) and isinstance(new_choices, list)):
        return False
    return len(old_choices) != len(new_choices) or any(
        old != new and new in old_choices for old, new in zip(old_choices, new_choices, strict=True)
    )


def _resolved(old_case: Case, new_case: Case) -> dict:
    """Return the current case with the keys that its file leaves to the run's plan, as stored."""
    deferred = (key for key in RESOLVED if key in old_case.body and new_case.body.get(key, AUTO) == AUTO)
    return new_case.body | {key: old_case.body[key] for key in deferred}


def _merged(old_case: Case, new_case: Case) -> Case:
    """Return the stored case with the current file's values of the keys that only scorers read."""
    current_keys = SCORED_BY | {"tags"}
    recorded = {key: value for key, value in old_case.body.items() if key not in current_keys}
    new = {key: value for key, value in new_case.body.items() if key in current_keys}
    # The store writes null for a removed key, so a null that was not recorded is left out here.
    return replace(
        old_case, body=recorded | {k: v for k, v in new.items() if v is not None or old_case.body.get(k, k) is None}
    )


def _few(ids: Sequence[str]) -> str:
    return ", ".join(ids[:CASES_NAMED]) + (", …" if len(ids) > CASES_NAMED else "")
