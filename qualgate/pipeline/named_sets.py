"""Load the evalsets that a gate file names, and the metrics that its rules ask of them."""

from __future__ import annotations

from pathlib import Path

from qualgate import evalsets
from qualgate.config import GateFile
from qualgate.errors import UsageError
from qualgate.harness import tasks
from qualgate.records import Evalset, ExternalCases, LmEvalTask, Plan, SetRef
from qualgate.records.metrics import METRICS
from qualgate.text.numbers import counted


def load_set(ref: SetRef, relative_to: Path) -> Evalset:
    """Load an evalset: a file, a shipped one, or an lm-eval task. Raises UsageError for its faults and for external
    cases."""
    if isinstance(ref, ExternalCases):
        raise UsageError(
            f"evalset {ref.name}: `cases: external` has no questions to generate answers for; it serves score files "
            f"only. To generate answers, name the set's own file: ./{ref.name}.yaml"
        )
    return tasks.load(ref) if isinstance(ref, LmEvalTask) else evalsets.load(ref, relative_to)


def set_refs(gate: GateFile) -> tuple[SetRef, ...]:
    """Return the gate file's evalsets, lm-eval groups expanded to tasks. Raises UsageError for one named twice."""
    refs: dict[str, SetRef] = {}
    for entry in gate.evalset_refs:
        for ref in tasks.members(entry) if isinstance(entry, LmEvalTask) else (entry,):
            name = evalsets.name_of(ref)
            if name in refs:
                raise UsageError(f"{gate.path}: the evalset {name!r} is named twice, once as a task of a group")
            refs[name] = ref
    return tuple(refs.values())


def asked_in_two_sets(plan: Plan) -> tuple[str, ...]:
    """Return a note if evalsets share questions: the planner treats cases of two sets as independent."""
    shared = [cases for cases in evalsets.asked_again(plan.evalsets) if len({case.evalset for case in cases}) > 1]
    if not shared:
        return ()
    examples = "; ".join(" = ".join(f"{case.evalset}/{case.id}" for case in cases[:3]) for cases in shared[:3])
    return (
        f"{counted(len(shared), 'question stands', 'questions stand')} in more than one evalset ({examples}"
        f"{'; …' if len(shared) > 3 else ''}): a rule over both counts each as one cluster, and the rates that "
        "`qualgate plan` foretells of such a rule take them for several",
    )


def asked_by_rules(gate: GateFile, sets: tuple[Evalset, ...]) -> dict[str, tuple[str, ...]]:
    """Return evalset → metrics that rules ask for and the set does not declare."""
    return {
        item.name: tuple(
            dict.fromkeys(
                rule.metric
                for rule in gate.policy.rules
                if METRICS[rule.metric].everywhere
                and rule.evalset in (None, item.name)
                and rule.metric not in item.metrics
                and not any("requests" in case.body for case in item.cases)  # read, not answered
            )
        )
        for item in sets
    }
