"""Drift of a stored run: how far each variant is from its baseline, and where in the answers."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qualgate.engine.prompts import load_tokenizer
from qualgate.errors import IntegrityError, UsageError
from qualgate.pipeline.drift_places import PLACES, Spelled, marked_tokens, speller
from qualgate.quant.model_files import read_files, readable
from qualgate.quant.tokenizer_files import tokenizer_content
from qualgate.records import ArmEvidence, RunEvidence, UnitEvidence
from qualgate.scoring.reasoning import apart
from qualgate.stats.intervals import clustered_error, clustered_percentile, clustered_share
from qualgate.stats.kl_error_bound import kl_error
from qualgate.store import queries, runs
from qualgate.store.database import open_store

Question = tuple[str, str, int]  # evalset, case id, repeat


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftNumbers:
    """KL(baseline || variant) in nats over some positions, and the share of them with the same most likely token.
    Cases of one cluster may depend on each other."""

    positions: int
    clusters: int
    mean: float | None  # None where there is no position
    mean_error: float | None  # standard error, cases as clusters; None for fewer than two
    p99: float | None
    p99_lower: float | None  # 95 % bounds each side, by clusters; None where there are too few for one
    p99_upper: float | None
    max: float | None  # of these positions; it has no bounds
    same_top: float | None  # 0..1; this and the next fields are None if it is not known by position
    same_top_error: float | None  # standard error, cases as clusters; 0 if all agree, which proves little
    same_top_lower: float | None  # 95 % bounds each side, exact with clusters as draws: never of zero width
    same_top_upper: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantDrift:
    """One variant's drift, over all its answers and by kind of place."""

    variant: str
    answers: int  # pairs with drift
    silent: int  # units without drift: not run, failed, or with an empty answer of the baseline
    certified: float | None  # proven bound on the error of `overall.mean`; None: the mean is exact
    overall: DriftNumbers
    where: dict[str, DriftNumbers]  # by kind of place; {} if `DriftReport.unavailable` gives a reason
    unplaced: int  # answers whose tokens do not spell their text: in `overall` alone
    # Answers with a thought, by where the variant first prefers another token than the baseline.
    parted_in_thought: int = 0
    parted_in_answer: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftReport:
    """Drift of every variant of a run."""

    run_id: str
    complete: bool
    variants: tuple[VariantDrift, ...]
    unavailable: str  # why there is no drift by place; "" if there is


def drift_report(store_url: str, run_id: str | None) -> DriftReport:
    """Return every variant's drift in a stored run, the newest by default.

    Raises IntegrityError for damaged evidence, and UsageError for a missing run or store. Without the tokenizer that
    the run used there is no `where`.
    """
    with open_store(store_url, create=False) as store:
        run = run_id or queries.latest_run(store)
        summary = queries.run_summary(store, run)
        evidence = runs.evidence(store, run)
        if evidence.integrity:
            raise IntegrityError(f"the drift of run {run} cannot be shown: {evidence.integrity[0]}")
        answers = queries.baseline_said(store, run)
    baseline = summary.arms[0]
    spelled, unavailable = _speller(Path(baseline.spec.reads or baseline.spec.model), evidence.baseline)
    marks = {question: _marks(answer, spelled) for question, answer in answers.items()} if spelled else {}
    return DriftReport(
        run_id=run,
        complete=summary.status == "complete",
        variants=tuple(_variant_drift(evidence, arm, marks, placed=spelled is not None) for arm in evidence.variants),
        unavailable=unavailable,
    )


def _speller(folder: Path, baseline: ArmEvidence) -> tuple[Spelled | None, str]:
    """Return (function from token ids to bytes, ""), or (None, reason) without the tokenizer that the run used."""
    if baseline.identity is None:
        return None, "the baseline never ran, so its tokenizer is not known"
    if not folder.is_dir():
        return None, f"the baseline's folder {folder} is not there any more, and the tokens' texts with it"
    try:
        with readable(folder):
            files = read_files(folder)
            if tokenizer_content(files) != baseline.identity.tokenizer:
                return None, f"the tokenizer in {folder} is not the one the run used"
        tokenizer = load_tokenizer(files)
    except UsageError as error:
        return None, str(error)

    return speller(tokenizer), ""


def _marks(answer: queries.Said, spelled: Spelled) -> dict[str, NDArray[np.bool_]] | None:
    tokens = spelled(answer.token_ids)
    if tokens is None:
        return None
    return marked_tokens(tokens, answer.text, _tool_names(answer.body), apart(answer.body, answer.text).spans)


def _tool_names(body: dict[str, Any]) -> list[str]:
    tools = body.get("tools")
    offered = [tool for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
    functions = [tool["function"] if isinstance(tool.get("function"), dict) else tool for tool in offered]
    return [tool["name"] for tool in functions if isinstance(tool.get("name"), str)]


def _variant_drift(
    evidence: RunEvidence, arm: ArmEvidence, marks: dict[Question, dict[str, NDArray[np.bool_]] | None], *, placed: bool
) -> VariantDrift:
    """Return the drift of one variant. marks: question → kind of place → whether each token of the baseline's answer
    counts for it, None if its tokens do not spell its text. placed: the tokenizer was available; without it there are
    no places. Raises IntegrityError for an impossible KL."""
    expected = sum(key.arm == arm.name for key in evidence.expected)
    measured = [unit for unit in arm.units if unit.status == "done" and unit.kl and unit.kl_upper is None]
    for unit in measured:
        if not isfinite(sum(unit.kl)) or min(unit.kl) < 0:
            raise IntegrityError(f"{arm.name}: {unit.key.evalset}/{unit.key.case_id} has a KL that none can be")
    clusters = [_cluster(unit) for unit in measured]
    labels = {cluster: number for number, cluster in enumerate(dict.fromkeys(clusters))}
    kl = [np.array(unit.kl) for unit in measured]
    numbers = [np.full(len(unit.kl), labels[cluster]) for unit, cluster in zip(measured, clusters, strict=True)]
    where, unplaced, parted = {}, 0, [0, 0]
    if placed:
        unit_marks = [marks.get((u.key.evalset, u.key.case_id, u.key.repeat)) for u in measured]
        fitting = [
            (values, agreement, cluster, mark)
            for values, agreement, cluster, mark in zip(kl, map(_same_top, measured), numbers, unit_marks, strict=True)
            if mark is not None and len(mark["end"]) == len(values)
        ]
        unplaced = len(measured) - len(fitting)
        for unit, mark in zip(measured, unit_marks, strict=True):
            divergence = unit.first_divergence
            if (
                mark is not None
                and divergence is not None
                and len(mark["thought"]) == len(unit.kl)
                and mark["thought"].any()
            ):
                # The index is a bool: 0 if thought tokens follow, so the two parted in the thought; 1 if none do.
                parted[not mark["thought"][divergence:].any()] += 1
        where = {
            kind: _drift_numbers(
                [values[mark[kind]] for values, _, _, mark in fitting],
                [None if agreement is None else agreement[mark[kind]] for _, agreement, _, mark in fitting],
                [cluster[mark[kind]] for _, _, cluster, mark in fitting],
            )
            for kind in PLACES
        }
    return VariantDrift(
        variant=arm.name,
        answers=len(measured),
        silent=expected - len(measured),
        certified=_certified(measured),
        overall=_drift_numbers(kl, [_agreement(unit) for unit in measured], numbers),
        where=where,
        unplaced=unplaced,
        parted_in_thought=parted[0],
        parted_in_answer=parted[1],
    )


def _certified(units: list[UnitEvidence]) -> float | None:
    if not any(unit.kl_eta for unit in units):
        return None
    return float(np.concatenate([kl_error(unit.kl, unit.kl_eta) for unit in units]).mean())


def _cluster(unit: UnitEvidence) -> tuple[str, str, bool]:
    return unit.key.evalset, unit.cluster or unit.key.case_id, unit.cluster is None


def _same_top(unit: UnitEvidence) -> NDArray[np.float64] | None:
    """Return 1 at positions with the same most likely token, else 0; None if not stored by position."""
    if unit.top1_differs is None:
        return None
    agreement = np.ones(len(unit.kl))
    agreement[list(unit.top1_differs)] = 0
    return agreement


def _agreement(unit: UnitEvidence) -> NDArray[np.float64] | None:
    """Return the answer's mean agreement at each of its positions: exact for sums over whole answers."""
    return None if unit.top1_agreement is None else np.full(len(unit.kl), unit.top1_agreement)


def _drift_numbers(
    kl: list[NDArray[np.float64]], agreements: list[NDArray[np.float64] | None], clusters: list[NDArray[np.int64]]
) -> DriftNumbers:
    """Summarize drift over the positions of several answers. kl, agreements, clusters: an array for each answer, by
    position; an agreement of None is unknown by position, and makes the share unknown. Without positions every number
    is None."""
    values, cluster_numbers = np.concatenate([np.zeros(0), *kl]), np.concatenate([np.zeros(0, np.int64), *clusters])
    if not len(values):
        return DriftNumbers(positions=0, clusters=0, mean=None, mean_error=None, p99=None, p99_lower=None,
                            p99_upper=None, max=None, same_top=None, same_top_error=None, same_top_lower=None,
                            same_top_upper=None)  # fmt: skip
    known_agreements = [answer for answer in agreements if answer is not None]
    agreed = np.concatenate(known_agreements) if len(known_agreements) == len(agreements) else None
    tail = clustered_percentile(values, cluster_numbers, 99, 0.0)
    share = None if agreed is None else clustered_share(agreed, np.ones(len(agreed)), cluster_numbers, 0.5)
    return DriftNumbers(
        positions=len(values),
        clusters=len(np.unique(cluster_numbers)),
        mean=float(values.mean()),
        mean_error=clustered_error(values, cluster_numbers),
        p99=float(np.percentile(values, 99)),
        p99_lower=_bound(tail.lower),
        p99_upper=_bound(tail.upper),
        max=float(values.max()),
        same_top=None if agreed is None else float(agreed.mean()),
        same_top_error=None if agreed is None else clustered_error(agreed, cluster_numbers),
        same_top_lower=None if share is None else _bound(share.lower),
        same_top_upper=None if share is None else _bound(share.upper),
    )


def _bound(value: float) -> float | None:
    return value if isfinite(value) else None
