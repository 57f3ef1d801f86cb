"""Judge two results of another harness: its answers are paired, looked at, and put before the gate."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from qualgate.config import GateFile
from qualgate.errors import UsageError
from qualgate.gate.decide import Decided
from qualgate.intake.feedback import read_feedback
from qualgate.intake.harnesses.log import Choice
from qualgate.intake.log_pair import LogPair, default_policy, read_pair, unjudged
from qualgate.intake.row_evidence import BASELINE, KnownCases
from qualgate.pipeline.closed_list import UNION
from qualgate.pipeline.from_files import judge_scores
from qualgate.pipeline.models_of_rows import one_name_of_two, refuse_other_models, unnamed
from qualgate.records import RunEvidence
from qualgate.store.bulk import uncollected
from qualgate.store.plain import now


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedLogs:
    """The decision about two logs, and what it rests on."""

    pair: LogPair
    evidence: RunEvidence
    decided: Decided


def judge_results(
    baseline: Path,
    variant: Path,
    gate: GateFile | None = None,
    *,
    format: str = "",
    choices: tuple[Choice, Choice] = (Choice(), Choice()),
    max_drop: float | None = None,
    max_ratio: float | None = None,
) -> JudgedLogs:
    """Judge two results by a gate file's rules, or by one margin for all scores and one for all perplexities.

    format: see `read_log`. choices: what to read of the baseline's and of the variant's results. Settings that the two
    do not share, and results that are not whole, leave everything undecided. UsageError for what cannot be read or
    compared.
    """
    if gate is not None and gate.policy.references:
        raise UsageError(
            f"{gate.path.name}: `gate.against` holds variants against {' and '.join(gate.policy.references)} too, and "
            "results of a harness are a baseline's and one variant's. Take it out, or judge score files by `--arm`."
        )
    with uncollected():
        return _judge(baseline, variant, gate, format, choices, max_drop, max_ratio)


def _judge(
    baseline: Path,
    variant: Path,
    gate: GateFile | None,
    format: str,
    choices: tuple[Choice, Choice],
    max_drop: float | None,
    max_ratio: float | None,
) -> JudgedLogs:
    pair = read_pair(baseline, variant, format=format, choices=choices, error_texts=gate.error_texts if gate else None)
    before, after = pair.baseline, pair.variant
    name, sides = before.task or baseline.stem, {BASELINE: before.scores, "variant": after.scores}
    if gate is not None:
        refuse_other_models(gate, sides)
    chosen = gate is not None or any(choice.metric for choice in choices)
    cases = KnownCases(
        default=name,
        repeats=gate.repeats if gate and gate.repeats_stated else None,
        stale=(*pair.differing, *(() if chosen else unjudged(pair))),
        notes=(UNION.format(name), *pair.notes, *one_name_of_two(sides), *unnamed(sides)),
    )
    evidence, decided = judge_scores(
        sides,
        gate.policy if gate else default_policy(before, max_drop, max_ratio),
        cases,
        identity=gate.identity if gate else "hash",
        now=now(),
        feedback=read_feedback(gate.feedback) if gate and gate.feedback else None,
        called=gate.path if gate else None,
    )
    return JudgedLogs(pair=pair, evidence=evidence, decided=decided)
