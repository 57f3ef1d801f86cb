"""May a quantized variant replace its full-precision baseline? Functions to plan, run, judge, score and report.

Judge every variant of a gate file; what both said is stored, and the exit code is the answer:

>>> import qualgate
>>> outcome = qualgate.run_gate("gate.yaml")
>>> [(verdict.variant, verdict.word) for verdict in outcome.verdicts]
[('int4', 'approve')]

Judge scores that another harness wrote, without a model:

>>> import qualgate
>>> judged = qualgate.judge("gate.yaml", baseline="baseline.jsonl", variants="variant.jsonl")
>>> judged.exit.name, judged.verdicts[0].reasons[0]
('APPROVE', "no score differs: all 300 scores equal the baseline's, and the texts are not known")

Score anyone's outputs:

>>> import qualgate
>>> scored = qualgate.score_outputs("cases.jsonl", "outputs.jsonl", "exact_match")
>>> [(row.case.id, row.score.value) for row in scored.rows]
[('a', 1.0), ('b', 0.0)]

Errors are `QualgateError`; each has the `exit` code of the command line. A gate file is given as its path, or as
`load_gate_file` read it. Importing qualgate loads neither torch nor a store: each function imports what it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qualgate.config import GateFile, load_gate_file
    from qualgate.errors import (
        EvidenceMissing,
        Exit,
        InfrastructureError,
        IntegrityError,
        Interrupted,
        QualgateError,
        UsageError,
    )
    from qualgate.pipeline.events import Event, Listener
    from qualgate.pipeline.from_files import Judged
    from qualgate.pipeline.outcome import Outcome, Progress
    from qualgate.pipeline.score_files import Scored
    from qualgate.records import Comparison, Evalset, Plan, Policy, Rule, RunEvidence, Verdict
    from qualgate.report.summary import Report
    from qualgate.scoring.scorer import Scorer

__all__ = [
    "Comparison",
    "Evalset",
    "EvidenceMissing",
    "Exit",
    "GateFile",
    "InfrastructureError",
    "IntegrityError",
    "Interrupted",
    "Judged",
    "Outcome",
    "Plan",
    "Policy",
    "QualgateError",
    "Report",
    "Rule",
    "RunEvidence",
    "Scored",
    "UsageError",
    "Verdict",
    "judge",
    "load_gate_file",
    "load_report",
    "make_plan",
    "run_gate",
    "score_outputs",
]

_HOMES = {
    "qualgate.config": ("GateFile", "load_gate_file"),
    "qualgate.errors": (
        "EvidenceMissing",
        "Exit",
        "InfrastructureError",
        "IntegrityError",
        "Interrupted",
        "QualgateError",
        "UsageError",
    ),
    "qualgate.pipeline.from_files": ("Judged",),
    "qualgate.pipeline.outcome": ("Outcome",),
    "qualgate.pipeline.score_files": ("Scored",),
    "qualgate.records": ("Comparison", "Evalset", "Plan", "Policy", "Rule", "RunEvidence", "Verdict"),
    "qualgate.report.summary": ("Report",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import records and `load_gate_file` on first use."""
    if name not in _HOME:
        raise AttributeError(f"module 'qualgate' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _unheard(what: str, done: int, total: int) -> None:
    """Ignore progress."""


def _unseen(event: Event) -> None:
    """Ignore an event."""


def _untold(line: str) -> None:
    """Ignore a note."""


def make_plan(gate: GateFile | str | Path, *, blame: bool = False, four_arm: bool = False) -> Plan:
    """Plan what `run_gate` would do with the same arguments: arms, jobs, and the closed list of answers.

    UsageError for whatever a run would refuse: a missing model, an evalset with a fault, an unfit policy.
    """
    from qualgate.pipeline import plan
    from qualgate.pipeline.arms import as_run
    from qualgate.pipeline.four_arm import as_four_arms

    gate = as_four_arms(_loaded(gate)) if four_arm else _loaded(gate)
    return plan.make_plan(as_run(gate, blame=blame))


def run_gate(
    gate: GateFile | str | Path,
    progress: Progress = _unheard,
    *,
    blame: bool = False,
    four_arm: bool = False,
    warn: Callable[[str], None] = _untold,
    planning: Callable[[str], None] = _untold,
    observe: Listener = _unseen,
) -> Outcome:
    """Judge every variant of the gate file: generate, score, store, decide. Interrupted and called again, it resumes.

    progress: called with the arm, answers done, answers expected. blame: also run packed weights through the torch
    twin, so that a block names its cause. four_arm: refuse a gate file that names no four arms. warn: called with one
    line, before generation, on what keeps the policy from deciding. planning: called with each step before that, and
    with the expected duration. observe: called with each `Event` of the run: begun, a job answered or failed, ended.

    `Outcome.exit` is the exit code of `qualgate run`. Interrupted after Ctrl-C or SIGTERM; UsageError as `make_plan`.
    Workers are new processes, so a script calls this under `if __name__ == "__main__":`.
    """
    from qualgate.pipeline.first_worker import first_worker

    gate = _loaded(gate)
    with first_worker(gate):
        from qualgate import run  # a second of imports
        from qualgate.pipeline.four_arm import as_four_arms

        gate = as_four_arms(gate) if four_arm else gate
        return run.run_gate(gate, progress, blame=blame, warn=warn, planning=planning, observe=observe)


def judge(
    gate: GateFile | str | Path,
    baseline: str | Path,
    variants: str | Path | Mapping[str, str | Path],
    nel_policy: str | Path | None = None,
    looks: str | Path | None = None,
) -> Judged:
    """Judge score rows of any origin by the gate file's rules, without a model and a store.

    baseline, variants: JSON lines with `id`, `metric` and `value`, as `score_outputs` gives them; one file, or one for
    each of the three arms that the gate file names. nel_policy: a NeMo Evaluator policy that decides in place of the
    rules. looks: a file that stores the looks at these files, for lists that grow. UsageError names file and line of an
    invalid row.
    """
    from qualgate.config import load_gate_file
    from qualgate.pipeline.from_files import judge_files

    called = Path(gate) if isinstance(gate, str | Path) else gate.path
    gate_file = load_gate_file(called, files=False) if isinstance(gate, str | Path) else gate
    by_name = variants if isinstance(variants, Mapping) else {"variant": variants}
    files = {name: Path(path) for name, path in by_name.items()}
    return judge_files(
        gate_file,
        Path(baseline),
        files,
        Path(nel_policy) if nel_policy else None,
        called=called,
        looks=Path(looks) if looks else None,
    )


def score_outputs(
    cases: str | Path,
    outputs: str | Path,
    scorer: str | Scorer,
    *,
    metric: str | None = None,
    normalizers: Sequence[str] = (),
    lenient: Sequence[str] = (),
    progress: Progress = _unheard,
) -> Scored:
    """Score outputs of any origin: one row per answer, and their rate with its 95 % interval, without model and store.

    cases, outputs: JSON lines that share `id`. scorer: its name (exact_match, numeric, json, tool_call, code, …), or
    the result of `qualgate.pipeline.score_files.choose_scorer` for a mode, a dialect or a filter. metric: one of the
    scorer's, by default its last. UsageError for a missing, extra or duplicate answer, and for unreadable files.
    """
    from qualgate.pipeline.score_files import choose_scorer, score_files

    chosen = choose_scorer(scorer) if isinstance(scorer, str) else scorer
    return score_files(
        Path(cases),
        Path(outputs),
        chosen,
        metric=metric,
        normalizers=normalizers,
        lenient=lenient,
        progress=progress,
    )


def load_report(store_url: str, run_id: str | None = None, *, gate: GateFile | str | Path | None = None) -> Report:
    """Load the report of a stored run, by default the newest: verdicts with their numbers, and the flips behind them.

    store_url: as in a gate file, `sqlite:///qualgate.db`. gate: findings point at its lines; without one, at the gate
    file's text stored with the run. UsageError if there is no such run.
    """
    from qualgate.config import load_gate_file
    from qualgate.report import summary
    from qualgate.report.source import source_of

    gate_file = load_gate_file(Path(gate), files=False) if isinstance(gate, str | Path) else gate
    return summary.load_report(
        store_url, run_id, source_of(gate_file.path, gate_file.policy) if gate_file is not None else None
    )


def _loaded(gate: GateFile | str | Path) -> GateFile:
    """Load the gate file unless it is loaded already."""
    from qualgate.config import load_gate_file

    return load_gate_file(Path(gate)) if isinstance(gate, str | Path) else gate
