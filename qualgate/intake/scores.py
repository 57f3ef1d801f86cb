"""Two lists of score rows ⇄ the evidence of a run, so that one gate judges whatever was scored wherever.

A row is one metric's value for one case and repeat. What must be equal on both sides for two rows to be a pair is in
`case_hash`: where it is on one side only, or different, or on neither, nothing is compared (undecided), unless the
caller says `identity="ids"`: then ids alone make a pair, and every verdict says so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import nan
from pathlib import Path
from typing import Any, Literal

from qualgate.errors import UsageError
from qualgate.gate.peers.nel_policy import decide_as_asked
from qualgate.identity import content_hash
from qualgate.intake.jsonl import read_objects
from qualgate.metrics import METRICS
from qualgate.numbers import counted
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
    evalset: str = ""  # "" = the one that the caller names
    labels: tuple[str, ...] = ()  # "task:x", "tag:y"
    truncated: bool = False  # the answer was cut off: `finish_reason` is "length"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """One side: where its rows are from, and the rows."""

    source: str
    rows: tuple[ScoreRow, ...]


def read_score_rows(path: Path) -> Scores:
    """A file of score rows: `id, metric, value`, optional `case_hash, scorer, repeat, cluster, evalset, task, tags,
    finish_reason`.

    What else a row holds is not looked at. UsageError names file and line.
    """
    return Scores(source=str(path), rows=tuple(_row(f"{path}:{line}", body) for line, body in read_objects(path)))


def refuse_one_file_twice(baseline: Path, variant: Path) -> None:
    """A file is not worse than itself, and that says nothing of any variant."""
    if baseline.exists() and variant.exists() and baseline.samefile(variant):
        raise UsageError(f"{baseline} is given as the baseline's file and as the variant's; give the variant's own")


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
        evalset=text("evalset") or "",
        labels=(*((f"task:{text('task')}",) if body.get("task") else ()), *_tags(body.get("tags"), where)),
        truncated=text("finish_reason") == "length",
    )


def _tags(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list | None) or not all(isinstance(tag, str) for tag in value or ()):
        raise UsageError(f"{where}: `tags` must be a list of texts, found {value!r:.60}")
    return tuple(f"tag:{tag}" for tag in value or ())


def rows_of(arm: ArmEvidence) -> Iterator[dict[str, Any]]:
    """The score rows of one arm, in the order of its units: what `read_score_rows` reads back. Times are rows as well.

    ValueError for a unit that is not done: it has no score, and a file without it says so by itself.
    """
    for unit in arm.units:
        if unit.status != "done":
            raise ValueError(f"{unit.key} is {unit.status}; only answers have scores")
        for metric, value in sorted(unit.values.items()):
            if value is None and metric not in unit.scorers:
                continue  # a time that was not taken
            row = {"evalset": unit.key.evalset, "id": unit.key.case_id, "repeat": unit.key.repeat, "metric": metric}
            row |= {"value": value, "case_hash": unit.case_hash, "scorer": unit.scorers.get(metric, "")}
            row |= {"cluster": unit.cluster} if unit.cluster is not None else {}
            yield row | ({"finish_reason": "length"} if unit.truncated else {})


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
    evalset: str | None,
    name: str = "variant",
    expected: Sequence[str] | Mapping[str, Collection[str]] | None = None,
    identity: Literal["hash", "ids"] = "hash",
) -> RunEvidence:
    """The evidence of what both sides answered; every quality metric that rows of a set carry is one of the set's.

    evalset: of the rows that name none; None refuses such rows. expected: the ids that must be there, of each evalset
    (a plain list: of `evalset`); sets not named take the ids of both files together, so that what only one side has
    is missing on the other. The same id, metric and repeat twice on one side is a duplicate, which breaks integrity.
    """
    baseline, variant = _placed(baseline, evalset), _placed(variant, evalset)
    rows = [row for side in (baseline, variant) for row in side.rows]
    closed: dict[str, Collection[str]] = {}
    if expected is not None:
        closed = dict(expected) if isinstance(expected, Mapping) else {evalset or "": expected}
    sets = {row.evalset for row in rows} | closed.keys()
    metrics = {
        at: tuple(dict.fromkeys(r.metric for r in rows if r.evalset == at and _scored(r))) for at in sorted(sets)
    }
    questions = {(row.evalset, row.id, row.repeat) for row in rows if row.evalset not in closed}
    for at, ids in closed.items():
        repeats = {row.repeat for row in rows if row.evalset == at} or {0}
        questions |= {(at, case, repeat) for case in ids for repeat in repeats}
    arms = [
        ArmEvidence(name=arm, identity=_identity(arm, side), units=tuple(_units(arm, side.rows, identity)))
        for arm, side in ((BASELINE, baseline), (name, variant))
    ]
    return RunEvidence(
        run_id=f"{Path(baseline.source).name} / {Path(variant.source).name}",
        expected=tuple(UnitKey(arm.name, *question) for arm in arms for question in sorted(questions)),
        metrics=metrics,
        baseline=arms[0],
        variants=(arms[1],),
        labels=_labels(rows),
    )


def _labels(rows: Sequence[ScoreRow]) -> dict[tuple[str, str], tuple[str, ...]] | None:
    """By case; None when no row has any, or where the rows of one case disagree on them."""
    found: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        if found.setdefault((row.evalset, row.id), set(row.labels)) != set(row.labels):
            return None
    return {case: tuple(sorted(marks)) for case, marks in found.items()} if any(found.values()) else None


def _placed(side: Scores, evalset: str | None) -> Scores:
    if evalset is None and any(not row.evalset for row in side.rows):
        raise UsageError(
            f"{side.source}: rows without `evalset`, and the gate file names several; say which in each row"
        )
    return replace(side, rows=tuple(row if row.evalset else replace(row, evalset=evalset or "") for row in side.rows))


def _scored(row: ScoreRow) -> bool:
    """Times and divergences are measured, not scored: no set promises them."""
    return row.metric not in METRICS or METRICS[row.metric].kind == "quality"


def judge(
    baseline: Scores,
    variant: Scores,
    policy: Policy,
    *,
    identity: Literal["hash", "ids"] = "hash",
    stale: tuple[str, ...] = (),
    now: str = "",
    **named: Any,
) -> tuple[RunEvidence, tuple[Verdict, ...], Policy]:
    """`evidence_of` (which takes `named`), decided by `policy`, and by which rules in the end. UsageError for a policy
    that does not fit.

    now: as `decide` takes it. stale: why these scores do not speak of what is to be judged; any makes the verdict
    undecided.
    """
    evidence = replace(evidence_of(baseline, variant, identity=identity, **named), stale=stale)
    verdicts, policy, _ = decide_as_asked(evidence, policy, now)
    if identity == "ids":
        verdicts = tuple(replace(verdict, reasons=(*verdict.reasons, BY_IDS)) for verdict in verdicts)
    return evidence, verdicts, policy


def _identity(arm: str, side: Scores) -> ArmIdentity:
    """Whose weights a file speaks of is not known, so two files are never called the same. The hashes pair them."""
    return ArmIdentity(
        weights=content_hash([arm, side.source]), config="", tokenizer="", template="", sampling="", engine=""
    )


def _units(arm: str, rows: Sequence[ScoreRow], identity: str) -> Iterator[UnitEvidence]:
    """One unit a question, with all its metrics; a metric given again begins a second unit of the same key."""
    found: dict[UnitKey, list[list[ScoreRow]]] = {}
    for row in rows:
        copies = found.setdefault(UnitKey(arm, row.evalset, row.id, row.repeat), [[]])
        into = next((copy for copy in copies if all(other.metric != row.metric for other in copy)), None)
        if into is None:
            copies.append(into := [])
        into.append(row)
    for key, copies in found.items():
        for copy in copies:
            hashes = {row.case_hash for row in copy}
            clusters = {row.cluster for row in copy}
            if len(hashes) > 1 or len(clusters) > 1:
                raise UsageError(f"the score rows of {key.case_id!r:.80} name different cases: {len(hashes)} hashes, "
                                 f"{counted(len(clusters), 'cluster')}")  # fmt: skip
            yield UnitEvidence(
                key=key,
                case_hash=f"id {key.case_id}" if identity == "ids" else hashes.pop(),
                status="done",
                values={row.metric: row.value for row in copy},
                scorers={row.metric: row.scorer or "not said" for row in copy if _scored(row)},
                truncated=any(row.truncated for row in copy),
                cluster=clusters.pop(),
            )
