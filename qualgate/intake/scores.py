"""Two lists of score rows ⇄ the evidence of a run, so that one gate judges whatever was scored wherever.

A row is one metric's value for one case and repeat. One that tells of a failure (`status`, `error`, an `error_type` or
a null `verdict` beside a value) is no answer, whatever value it gives; one whose verdict and value contradict each
other is not what a scorer wrote, which breaks integrity. That the server ended an answer (`finish_reason`) the gate
tells, as it does of a run.

What must be equal on both sides for two rows to be a pair is in `case_hash`: where it is on one side only, or
different, or on neither, nothing is compared (undecided), unless the caller says `identity="ids"`: then ids alone make
a pair where a side has no hash, and every verdict says so. Two hashes that differ name two cases, whatever the caller
says.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import nan
from pathlib import Path
from sys import intern
from typing import Any, Literal

from qualgate.errors import UsageError
from qualgate.formatting import counted
from qualgate.gate.decide import decide
from qualgate.gate.peers.nel_policy import NelSaid
from qualgate.identity import content_hash
from qualgate.intake.feedback import Feedback, corrections
from qualgate.intake.jsonl import content_of_lines, read_objects
from qualgate.intake.serving_rows import NOT_SAID, Served, served, with_serving
from qualgate.metrics import METRICS
from qualgate.records import (
    FINISH_WORDS,
    ArmEvidence,
    ArmIdentity,
    Policy,
    RunEvidence,
    UnitEvidence,
    UnitKey,
    Verdict,
)

BASELINE = "baseline"
SHOWN = 3  # rows named for one fault
QUOTED = 1000  # characters kept of what a scorer extracted
BY_IDS = "paired by ids alone, as asked: whether both sides were asked the same is not known"
NOT_NAMED = "not said"  # stands for the scorer of a row that names none


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
    finish_reason: str = ""  # a FinishReason; "" = the file does not say
    failed: str = ""  # where and why this is no answer; "" = it is one
    served: Served = NOT_SAID  # see `serving_rows`
    extracted: str = ""  # this and the next are quoted beside a flip, and decide nothing
    reason: str = ""
    line: int = field(default=0, compare=False)  # of its file, for an error to name


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """One side: where its rows are from, and the rows."""

    source: str
    rows: tuple[ScoreRow, ...]
    contradictions: tuple[str, ...] = ()  # where a row says two things that cannot both be true


def read_score_rows(path: Path, evalset: str = "") -> Scores:
    """A file of score rows: `id, metric, value`, optional `verdict, error_type, status, finish_reason, case_hash,
    scorer, repeat, cluster, evalset, task, tags, extracted, reason`.

    Beside these the fields of `serving_rows`. What else a row holds is not looked at. evalset: of rows that name none.
    UsageError names file and line.
    """
    rows, contradictions = [], []
    for line, body in read_objects(path):
        try:
            row, contradiction = _row(body, evalset, line)
        except ValueError as error:
            raise UsageError(f"{path}:{line}: {error}") from None
        if row.failed:
            row = replace(row, failed=f"{path}:{line}: {row.failed}")
        if contradiction:
            contradictions.append(f"{path}:{line}: {contradiction}")
        rows.append(row)
    return Scores(source=str(path), rows=tuple(rows), contradictions=tuple(contradictions))


def refuse_one_file_twice(baseline: Path, variant: Path) -> None:
    """A file is not worse than itself, and that says nothing of any variant."""
    if baseline.exists() and variant.exists() and baseline.samefile(variant):
        raise UsageError(f"{baseline} is given as the file of two arms; give each arm's own")


def refuse_a_copy(baseline: Path, variant: Path) -> None:
    """Nor is a file worse than a copy of itself, in whatever order its lines stand.

    An honest file of a variant that answers all cases alike could be one too, so rows may name their model.
    """
    refuse_one_file_twice(baseline, variant)
    if (lines := content_of_lines(baseline)) and lines == content_of_lines(variant):
        raise UsageError(
            f"{variant} holds the very lines of {baseline}: a copy says nothing of a variant. Give the variant's own "
            "rows. If both truly scored alike, let each row say whose answer it is (`model`), as `qualgate score` "
            "does where the outputs say so."
        )


class _NoRow(ValueError):
    """Why an object is no score row."""


def _row(body: dict[str, Any], evalset: str, line: int) -> tuple[ScoreRow, str]:
    """The row, and how it contradicts itself ("": it does not). _NoRow for what a score row cannot hold."""

    def text(key: str) -> str:
        value = body.get(key)
        if value is not None and not isinstance(value, str):
            raise _NoRow(f"`{key}` must be a text, found {value!r:.60}")
        return value or ""

    name, metric, repeat = text("id"), text("metric"), body.get("repeat", 0)
    if not name or not metric:
        raise _NoRow("a score row has `id` and `metric`, each a text that is not empty")
    if type(repeat) is not int or repeat < 0:
        raise _NoRow(f"`repeat` must be a whole number from 0, found {repeat!r:.60}")
    value = as_value(body.get("value"))
    failed, contradiction = _standing(body, metric, value, text("status"), text("error_type"))
    if "value" not in body and not failed:
        raise _NoRow("a score row has a `value`: a number, true, false or null")
    if (said := text("finish_reason")) and said.lower() not in FINISH_WORDS:
        raise _NoRow(f"`finish_reason` must be eos, stop, length or abort, found {said!r:.60}")
    task = text("task")
    row = ScoreRow(
        id=name,
        metric=intern(metric),
        value=value,
        case_hash=text("case_hash"),
        scorer=intern(text("scorer")),
        repeat=repeat,
        cluster=text("cluster") if body.get("cluster") is not None else None,
        evalset=intern(text("evalset") or evalset),
        labels=_labelled(task, tuple(_tags(body.get("tags")))),
        finish_reason=FINISH_WORDS[said.lower()] if said else "",
        failed=failed,
        served=served(body),
        extracted=str(body.get("extracted") or "")[:QUOTED],
        reason=str(body.get("reason") or "")[:QUOTED],
        line=line,
    )
    return row, contradiction


def _standing(body: dict[str, Any], metric: str, value: float | None, status: str, error_type: str) -> tuple[str, str]:
    """(why this is no answer, how the row contradicts itself), of which one at least is empty.

    A wrong answer has an `error_type` too, which says what is wrong with it; and where the scorer could not say, there
    is no value at all. Both are answers.
    """
    verdict = body.get("verdict")
    if not isinstance(verdict, bool | None):
        raise _NoRow(f"`verdict` must be true, false or null, found {verdict!r:.60}")
    if status not in ("", "done"):
        return f"its `status` is {status!r:.60}; an answer's is 'done'", ""
    if error := body.get("error"):
        return f"its `error` is {error!r:.60}", ""
    known = METRICS.get(metric)
    fraction = value is not None and 0 < value < 1
    if known is not None and known.kind == "quality":
        if known.binary and fraction:
            raise _NoRow(
                f"{metric} is right or wrong, so its value is 0 or 1, found {value:g}; several answers to a case are "
                "several rows, each with its `repeat`"
            )
        if verdict is not None and (value is None or (value in (0, 1) and verdict != bool(value))):
            return "", f"`verdict` is {json.dumps(verdict)} and `value` is {json.dumps(body.get('value'))}"
        if verdict is None and "verdict" in body and value is not None and not fraction:
            word = f" ({error_type:.60})" if error_type else ""
            return f"nobody could judge it: `verdict` is null{word}, whatever its `value` says", ""
    if error_type and value is not None and verdict is not False:
        return f"its `error_type` is {error_type!r:.60}, whatever its `value` says", ""
    return "", ""


def _tags(value: Any) -> list[str]:
    if not isinstance(value, list | None) or not all(isinstance(tag, str) for tag in value or ()):
        raise _NoRow(f"`tags` must be a list of texts, found {value!r:.60}")
    return value or []


@lru_cache(maxsize=4096)  # rows of many cases have equal ones
def _labelled(task: str, tags: tuple[str, ...]) -> tuple[str, ...]:
    return (*((f"task:{task}",) if task else ()), *(f"tag:{tag}" for tag in tags))


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
            row |= {"batch": unit.job} if unit.job is not None else {}
            ended = unit.finish_reason or ("length" if unit.truncated else "")
            yield row | ({"finish_reason": ended} if ended else {})


def as_value(value: Any) -> float | None:
    """A score's value as a number: true and false count 1 and 0; None stays what nobody could say. ValueError for what
    is none of these."""
    if value is None:
        return None
    if not isinstance(value, bool | int | float):
        raise _NoRow(f"a score must be a number, true, false or null, found {value!r:.60}")
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
    others: Mapping[str, Scores] | None = None,
    expected: Sequence[str] | Mapping[str, Collection[str]] | None = None,
    identity: Literal["hash", "ids"] = "hash",
    asked: Mapping[str, Collection[str]] | None = None,
    clusters: Mapping[tuple[str, str], str | None] | None = None,
    questions: Mapping[tuple[str, str], str] | None = None,
    budgets: Mapping[tuple[str, str], int] | None = None,
) -> RunEvidence:
    """The evidence of what both sides answered; every quality metric that rows of a set carry is one of the set's.

    others: further variants by name. evalset: of the rows that name none; None refuses such rows. expected: the ids
    that must be there, of each evalset (a plain list: of `evalset`); sets not named take the ids of all files together,
    so that what only one side has is missing on the other. asked: metrics that every case of an evalset must have,
    though no row carries them. budgets: `max_new_tokens` of cases that are known. The same id, metric and repeat twice
    on one side is a duplicate, which breaks integrity.
    """
    named = {BASELINE: baseline, name: variant, **(others or {})}
    sides = {arm: _placed(side, evalset) for arm, side in named.items()}
    rows = [row for side in sides.values() for row in side.rows]
    closed: dict[str, Collection[str]] = {}
    if expected is not None:
        closed = dict(expected) if isinstance(expected, Mapping) else {evalset or "": expected}
    sets = {row.evalset for row in rows} | closed.keys()
    carried: dict[str, dict[str, None]] = {at: {} for at in sorted(sets)}
    for row in rows:
        if _scored(row):
            carried[row.evalset].setdefault(row.metric)
    metrics = {at: tuple(dict.fromkeys((*(asked or {}).get(at, ()), *found))) for at, found in carried.items()}
    keys = {(row.evalset, row.id, row.repeat) for row in rows if row.evalset not in closed}
    for at, ids in closed.items():
        repeats = {row.repeat for row in rows if row.evalset == at} or {0}
        keys |= {(at, case, repeat) for case in ids for repeat in repeats}
    hashed = [{(row.evalset, row.id) for row in side.rows if row.case_hash} for side in sides.values()]
    told = set.intersection(*hashed) if identity == "ids" else None
    ordered = sorted(keys)
    arms = [
        ArmEvidence(name=arm, identity=_identity(arm, side), units=tuple(_units(arm, side.rows, told, clusters or {})))
        for arm, side in sides.items()
    ]
    return RunEvidence(
        run_id=" / ".join(Path(side.source).name for side in sides.values()),
        expected=tuple(UnitKey(arm.name, *key) for arm in arms for key in ordered),
        metrics=metrics,
        baseline=arms[0],
        variants=tuple(arms[1:]),
        integrity=tuple(line for side in sides.values() for line in _first(side.contradictions)),
        labels=_labels(rows),
        questions=questions or {},
        budgets=budgets or {},
    )


def _first(lines: Sequence[str]) -> tuple[str, ...]:
    more = f"and {len(lines) - SHOWN:,} rows more that contradict themselves"
    return (*lines[:SHOWN], more) if len(lines) > SHOWN else tuple(lines)


def _labels(rows: Sequence[ScoreRow]) -> dict[tuple[str, str], tuple[str, ...]] | None:
    """By case; None when no row has any, or where the rows of one case disagree on them."""
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    for row in rows:
        before = found.setdefault((row.evalset, row.id), row.labels)
        if before != row.labels and set(before) != set(row.labels):
            return None
    return {case: tuple(sorted(marks)) for case, marks in found.items()} if any(found.values()) else None


def _placed(side: Scores, evalset: str | None) -> Scores:
    if all(row.evalset for row in side.rows):
        return side
    if evalset is None:
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
    labels: Mapping[tuple[str, str], tuple[str, ...]] | None = None,
    said: Feedback | None = None,
    **named: Any,
) -> tuple[RunEvidence, tuple[Verdict, ...], Policy, tuple[NelSaid, ...]]:
    """`evidence_of` (which takes `named`), decided by `policy`; by which rules in the end, and what nel would say where
    it is nel's policy. UsageError for a policy that does not fit. Files are whole and judged once, so what a policy
    says of generation (`stop`) is left out.

    now: as `decide` takes it. stale: why these scores do not speak of what is to be judged; any makes the verdict
    undecided, and so does an evalset without a single score. labels: of cases that are known, whatever their rows say.
    said: by users, of these answers. By four arms where the policy names them, the variants' names among them.
    """
    evidence = evidence_of(baseline, variant, identity=identity, **named)
    silent = tuple(f"{at}: no row of either file is a score" for at, metrics in evidence.metrics.items() if not metrics)
    if labels:
        evidence = replace(evidence, labels={**(evidence.labels or {}), **labels})
    evidence = replace(evidence, stale=(*stale, *silent))
    if said is not None:
        policy = replace(policy, feedback=said.sha256)
        evidence = replace(evidence, corrected=corrections(said, evidence))
    notes = (*((BY_IDS,) if identity == "ids" else ()), *_unnamed_scorers(evidence))
    if policy.four_arm is None:
        notes = (*notes, *_all_equal(evidence))
    decided = decide(evidence, replace(policy, stop=None), now)
    verdicts = tuple(replace(verdict, reasons=(*verdict.reasons, *notes)) for verdict in decided.verdicts)
    return evidence, verdicts, decided.policy, decided.nel


def _unnamed_scorers(evidence: RunEvidence) -> tuple[str, ...]:
    """Said where rows of both sides leave out who scored: these count as scored alike, which nobody knows."""
    left_out = [
        {metric for unit in units for metric, scorer in unit.scorers.items() if scorer == NOT_NAMED}
        for units in (evidence.baseline.units, [unit for arm in evidence.variants for unit in arm.units])
    ]
    names = ", ".join(sorted(left_out[0] & left_out[1]))
    return (f"{names}: rows name no `scorer`, so whether both sides were scored alike is not known",) if names else ()


def _all_equal(evidence: RunEvidence) -> tuple[str, ...]:
    """Said where it is so, for files may be copies: no other evidence could tell."""
    sides = [
        {(unit.key.evalset, unit.key.case_id, unit.key.repeat): unit for unit in arm.units}
        for arm in (evidence.baseline, *evidence.variants)
    ]
    scores = 0
    for question, unit in sides[0].items():
        other = sides[1].get(question)
        if other is None or any(unit.values[name] != other.values.get(name) for name in unit.scorers):
            return ()
        scores += len(unit.scorers)
    return (f"all {counted(scores, 'score')} of the variant equal the baseline's",) if scores else ()


def _identity(arm: str, side: Scores) -> ArmIdentity:
    """Whose weights a file speaks of is not known, so two files are never called the same. The hashes pair them."""
    return ArmIdentity(
        weights=content_hash([arm, side.source]), config="", tokenizer="", template="", sampling="", engine=""
    )


def _units(
    arm: str,
    rows: Sequence[ScoreRow],
    told: Collection[tuple[str, str]] | None,
    clusters: Mapping[tuple[str, str], str | None],
) -> Iterator[UnitEvidence]:
    """One unit a question, with all its metrics; a metric given again begins a second unit of the same key. told: cases
    that hashes pair, all others are paired by their ids; None = hashes pair all. clusters: of the cases that are known,
    all others are of the cluster that their rows name."""
    found: dict[tuple[str, str, int], list[list[ScoreRow]]] = {}
    for row in rows:
        question = row.evalset, row.id, row.repeat
        if (copies := found.get(question)) is None:
            found[question] = [[row]]
            continue
        into = next((copy for copy in copies if all(other.metric != row.metric for other in copy)), None)
        if into is None:
            copies.append(into := [])
        into.append(row)
    scorers: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}  # many units have equal ones: one object for all
    for question, copies in found.items():
        key = UnitKey(arm, *question)
        for copy in copies:
            first, failed, end = copy[0], copy[0].failed, copy[0].finish_reason
            for row in copy[1:]:
                _same_answer(first, row)
                failed, end = failed or row.failed, end or row.finish_reason
            by_hash = told is None or question[:2] in told
            said = tuple((row.metric, row.scorer or NOT_NAMED) for row in copy if _scored(row))
            unit = UnitEvidence(
                key=key,
                case_hash=first.case_hash if by_hash else f"id {key.evalset}/{key.case_id}",
                status="error" if failed else "done",
                error=failed,
                values={row.metric: row.value for row in copy},
                scorers=scorers.setdefault(said, dict(said)),
                truncated=end == "length",
                finish_reason=end,
                finished=end in ("eos", "stop") if end else None,
                cluster=clusters.get(question[:2], first.cluster),
            )
            try:
                yield with_serving(unit, [row.served for row in copy])
            except ValueError as error:
                raise UsageError(str(error)) from None


def _same_answer(one: ScoreRow, other: ScoreRow) -> None:
    """UsageError for two rows of one case and repeat that cannot be about one answer."""
    for what, mine, theirs in (
        ("case hashes", one.case_hash, other.case_hash),
        ("clusters", one.cluster, other.cluster),
        ("ends", one.finish_reason or other.finish_reason, other.finish_reason or one.finish_reason),
    ):
        if mine != theirs:
            raise UsageError(
                f"the score rows of {one.id!r:.80} name different {what}, {mine!r:.60} in {one.metric} and "
                f"{theirs!r:.60} in {other.metric}: are they about one answer?"
            )
