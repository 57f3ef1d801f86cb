"""Two lists of score rows → the evidence of a run, so that one gate judges whatever was scored wherever.

A row is one metric's value for one case and repeat. What must be equal on both sides for two rows to be a pair is in
`case_hash`: where it is on one side only, or different, or on neither, nothing is compared (undecided), unless the
caller says `identity="ids"`: then ids alone make a pair, and every verdict says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import nan
from pathlib import Path
from typing import Any, Literal

from qualgate.errors import UsageError
from qualgate.gate.verdict import decide
from qualgate.identity import content_hash
from qualgate.intake.jsonl import read_objects
from qualgate.records import ArmEvidence, ArmIdentity, Policy, RunEvidence, UnitEvidence, UnitKey, Verdict

BASELINE = "baseline"
BY_IDS = "paired by ids alone, as asked: whether both sides were asked the same is not known"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRow:
    """What `qualgate score` writes for one case, as far as a verdict rests on it."""

    id: str
    metric: str
    value: float | None  # None: the scorer could not say
    case_hash: str = ""  # "" = the file does not say
    scorer: str = ""
    repeat: int = 0
    cluster: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """One side: where its rows are from, and the rows."""

    source: str
    rows: tuple[ScoreRow, ...]


def read_score_rows(path: Path) -> Scores:
    """A file of score rows (design: `id, metric, value`, optional `case_hash, scorer, repeat, cluster`)."""
    return Scores(source=str(path), rows=tuple(_row(f"{path}:{line}", body) for line, body in read_objects(path)))


def _row(where: str, body: dict[str, Any]) -> ScoreRow:
    def text(key: str, default: str | None = None) -> Any:
        value = body.get(key, default)
        if value is not None and not isinstance(value, str):
            raise UsageError(f"{where}: `{key}` must be a text, found {value!r:.60}")
        return value

    name, metric, repeat = text("id"), text("metric"), body.get("repeat", 0)
    if not name or not metric:
        raise UsageError(f"{where}: a score row has `id` and `metric`, each a text that is not empty")
    if type(repeat) is not int or repeat < 0:
        raise UsageError(f"{where}: `repeat` must be a whole number from 0, found {repeat!r:.60}")
    if "value" not in body:
        raise UsageError(f"{where}: a score row has a `value`: a number, true, false or null")
    return ScoreRow(
        id=name,
        metric=metric,
        value=as_value(body["value"], where),
        case_hash=text("case_hash") or "",
        scorer=text("scorer") or "",
        repeat=repeat,
        cluster=text("cluster"),
    )


def as_value(value: Any, where: str) -> float | None:
    """A score's value as a number: true and false count 1 and 0; None stays what nobody could say."""
    if value is None:
        return None
    if not isinstance(value, bool | int | float):
        raise UsageError(f"{where}: a score must be a number, true, false or null, found {value!r:.60}")
    try:
        return float(value)
    except OverflowError:
        return nan  # beyond a double: a number of no range, which the gate names


def evidence_of(
    baseline: Scores,
    variant: Scores,
    *,
    evalset: str,
    name: str = "variant",
    expected: Sequence[str] | None = None,
    identity: Literal["hash", "ids"] = "hash",
) -> RunEvidence:
    """The evidence of one evalset answered by both sides; every metric the baseline's rows carry is one of the set's.

    expected: the ids that must be there; None takes those of both files together, so that what only one side has
    is missing on the other. The same id, metric and repeat twice on one side is a duplicate, which breaks integrity.
    """
    metrics = tuple(dict.fromkeys(row.metric for row in baseline.rows))
    questions = {(row.id, row.repeat) for side in (baseline, variant) for row in side.rows}
    if expected is not None:
        questions = {(case, repeat) for case in expected for repeat in {repeat for _, repeat in questions} or {0}}
    arms = [
        ArmEvidence(name=arm, identity=_identity(arm, side), units=tuple(_units(arm, evalset, side.rows, identity)))
        for arm, side in ((BASELINE, baseline), (name, variant))
    ]
    return RunEvidence(
        run_id=f"{Path(baseline.source).name} / {Path(variant.source).name}",
        expected=tuple(UnitKey(arm.name, evalset, *question) for arm in arms for question in sorted(questions)),
        metrics={evalset: metrics},
        baseline=arms[0],
        variants=(arms[1],),
    )


def judge(
    baseline: Scores, variant: Scores, policy: Policy, *, identity: Literal["hash", "ids"] = "hash", **named: Any
) -> tuple[RunEvidence, tuple[Verdict, ...]]:
    """`evidence_of` (which takes `named`), decided by `policy`. UsageError for a policy that does not fit."""
    evidence = evidence_of(baseline, variant, identity=identity, **named)
    verdicts = decide(evidence, policy)
    if identity == "ids":
        verdicts = tuple(replace(verdict, reasons=(*verdict.reasons, BY_IDS)) for verdict in verdicts)
    return evidence, verdicts


def _identity(arm: str, side: Scores) -> ArmIdentity:
    """Whose weights a file speaks of is not known, so two files are never called the same. The hashes pair them."""
    return ArmIdentity(
        weights=content_hash([arm, side.source]), config="", tokenizer="", template="", sampling="", engine=""
    )


def _units(arm: str, evalset: str, rows: Sequence[ScoreRow], identity: str) -> Iterator[UnitEvidence]:
    """One unit a question, with all its metrics; a metric given again begins a second unit of the same key."""
    found: dict[tuple[str, int], list[list[ScoreRow]]] = {}
    for row in rows:
        copies = found.setdefault((row.id, row.repeat), [[]])
        into = next((copy for copy in copies if all(other.metric != row.metric for other in copy)), None)
        if into is None:
            copies.append(into := [])
        into.append(row)
    for (case, repeat), copies in found.items():
        for copy in copies:
            hashes = {row.case_hash for row in copy}
            clusters = {row.cluster for row in copy}
            if len(hashes) > 1 or len(clusters) > 1:
                raise UsageError(f"the score rows of {case!r:.80} name different cases: {len(hashes)} hashes, "
                                 f"{len(clusters)} clusters")  # fmt: skip
            yield UnitEvidence(
                key=UnitKey(arm, evalset, case, repeat),
                case_hash=f"id {case}" if identity == "ids" else hashes.pop(),
                status="done",
                values={row.metric: row.value for row in copy},
                scorers={row.metric: row.scorer or "not said" for row in copy},
                cluster=clusters.pop(),
            )
