"""Judge two results of another harness: its answers are paired, looked at, and put before the gate."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from qualgate.config import GateFile
from qualgate.gate.decide import Decided
from qualgate.intake.harnesses.log import Choice
from qualgate.intake.log_pairs import LogPair, default_policy, read_pair
from qualgate.intake.row_evidence import BASELINE, KnownCases
from qualgate.pipeline.closed_list import UNION
from qualgate.pipeline.from_files import judge_scores
from qualgate.records import RunEvidence
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
    pair = read_pair(baseline, variant, format=format, choices=choices, error_texts=gate.error_texts if gate else None)
    before, after = pair.baseline, pair.variant
    name = before.task or baseline.stem
    evidence, decided = judge_scores(
        {BASELINE: before.scores, "variant": after.scores},
        gate.policy if gate else default_policy(before, max_drop, max_ratio),
        KnownCases(default=name, stale=pair.differing, notes=(UNION.format(name), *pair.notes)),
        identity=gate.identity if gate else "hash",
        now=now(),
        called=gate.path if gate else None,
    )
    return JudgedLogs(pair=pair, evidence=evidence, decided=decided)
