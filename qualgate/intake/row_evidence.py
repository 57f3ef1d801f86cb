"""Turn score rows of both sides into the evidence of a run, so that one gate judges all scores, whatever their origin.

`case_hash` covers what must be equal for two rows to be a pair. If it is missing on a side, or different, nothing is
compared (undecided), unless the caller says `identity="ids"`: then ids alone pair rows where a side has no hash, and
every verdict says so. Two hashes that differ always name two cases.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from qualgate.errors import UsageError, close_names
from qualgate.intake.score_rows import ScoreRow, Scores, is_score
from qualgate.intake.serving_rows import serving_fields
from qualgate.records import ArmEvidence, ArmIdentity, RunEvidence, UnitEvidence, UnitKey
from qualgate.records.identity import content_hash
from qualgate.records.metrics import METRICS

BASELINE = "baseline"
SHOWN = 3  # rows named for one fault
NEARLY = 0.8  # similarity (difflib's ratio) from which a metric's name counts as a misspelling of another
EMPTY_SHA256 = sha256(b"").hexdigest()
NOTHING: Mapping[str, Any] = {}  # one for all units
NOT_NAMED = "not said"  # the scorer of a row that names none

Identity = Literal["hash", "ids"]
CaseId = tuple[str, str]  # evalset, case


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownCases:
    """Facts about the cases from outside the score files; evalsets without an entry are unknown."""

    default: str | None = None  # the evalset of rows that name none; None refuses such rows
    expected: Mapping[str, Collection[str]] = field(default_factory=dict)  # evalset → ids that must be there
    required: Mapping[str, Collection[str]] = field(
        default_factory=dict
    )  # evalset → its metrics that each case must have
    labels: Mapping[CaseId, tuple[str, ...]] = field(default_factory=dict)  # its own task and tags, whatever rows say
    clusters: Mapping[CaseId, str | None] = field(default_factory=dict)  # likewise its own cluster; None: it has none
    questions: Mapping[CaseId, str] = field(default_factory=dict)  # → `question_hash`
    max_new_tokens: Mapping[CaseId, int] = field(default_factory=dict)  # tokens that an answer may take at most
    references: Mapping[CaseId, tuple[str, ...]] = field(default_factory=dict)  # see `RunEvidence.references`
    repeats: int | None = None  # answers to each case; None: not said, and then as many as the files number
    stale: tuple[str, ...] = ()  # why rows are not of the cases that are to be judged; any makes it undecided
    notes: tuple[str, ...] = ()  # what a verdict must say of these cases


def evidence_of(sides: Mapping[str, Scores], cases: KnownCases, identity: Identity = "hash") -> RunEvidence:
    """Build the evidence of all sides; every quality metric in the rows of a set becomes a metric of the set.

    sides: by the arm's name, the baseline first. Evalsets that `cases.expected` does not name take the ids of all files
    together, so that a case on one side only is missing on the other. The same id, metric and repeat twice on one side
    is a duplicate, which breaks integrity. Every case of a set has as many answers as any of them, and as
    `cases.repeats` says: fewer are missing. UsageError for more, and for rows of one answer that contradict each other.
    """
    placed = {arm: _with_evalset(side, cases.default) for arm, side in sides.items()}
    rows = [row for side in placed.values() for row in side.rows]
    metrics = _metrics(rows, cases)
    _refuse_misspelt(tuple(placed.values()), cases)
    questions = _closed_list(rows, cases)
    _refuse_more_repeats(placed.values(), set(questions), cases)
    hashed = [{(row.evalset, row.id) for row in side.rows if row.case_hash} for side in placed.values()]
    paired_by_hash = set.intersection(*hashed) if identity == "ids" else None
    baseline, *variants = (
        ArmEvidence(
            name=arm, identity=_identity(arm, side), units=tuple(_units(arm, side.rows, paired_by_hash, cases.clusters))
        )
        for arm, side in placed.items()
    )
    labels = _labels(rows)
    silent = tuple(f"{evalset}: no row of either file is a score" for evalset, names in metrics.items() if not names)
    return RunEvidence(
        run_id=" / ".join(Path(side.source).name for side in placed.values()),
        expected=tuple(UnitKey(arm, *question) for arm in placed for question in questions),
        metrics=metrics,
        baseline=baseline,
        variants=tuple(variants),
        integrity=tuple(
            line for side in placed.values() for line in (*_first_lines(side.contradictions), *_duplicates(side))
        ),
        labels={**(labels or {}), **cases.labels} if cases.labels else labels,
        questions=cases.questions,
        max_new_tokens=cases.max_new_tokens,
        references=cases.references,
        stale=(*cases.stale, *silent),
    )


def _metrics(rows: Sequence[ScoreRow], cases: KnownCases) -> dict[str, tuple[str, ...]]:
    """Collect each evalset's metrics: the required ones, then those of its rows."""
    sets = {row.evalset for row in rows} | cases.expected.keys()
    metrics_by_set: dict[str, dict[str, None]] = {evalset: {} for evalset in sorted(sets)}
    for row in rows:
        if is_score(row):
            metrics_by_set[row.evalset].setdefault(row.metric)
    return {
        evalset: tuple(dict.fromkeys((*cases.required.get(evalset, ()), *names)))
        for evalset, names in metrics_by_set.items()
    }


def _refuse_misspelt(sides: Sequence[Scores], cases: KnownCases) -> None:
    """Raise UsageError for a metric unknown elsewhere, if its answer lacks one of almost that name which another file
    has. A custom metric of any name is in all files, or its verdict says that the others lack it."""
    known = {*METRICS, *(name for names in cases.required.values() for name in names)}
    metrics_by_side = [{row.metric for row in side.rows if is_score(row)} for side in sides]
    for index, side in enumerate(sides):
        others = set[str]().union(*metrics_by_side[:index], *metrics_by_side[index + 1 :])
        if not (unknown := metrics_by_side[index] - others - known):
            continue
        metrics_by_answer: dict[tuple[str, str, int], set[str]] = {}
        for row in side.rows:
            metrics_by_answer.setdefault((row.evalset, row.id, row.repeat), set()).add(row.metric)
        for row in side.rows:
            absent = (
                sorted(others - metrics_by_answer[row.evalset, row.id, row.repeat]) if row.metric in unknown else ()
            )
            for likely in close_names(row.metric, absent, cutoff=NEARLY):
                raise UsageError(
                    f"{side.source}:{row.line}: no other file has a score of {row.metric!r:.80}; did you mean "
                    f"{likely!r:.80}, which {row.id!r:.80} lacks here?"
                )


def _closed_list(rows: Sequence[ScoreRow], cases: KnownCases) -> list[tuple[str, str, int]]:
    """List (evalset, id, repeat) of every answer that each side must have, sorted.

    Evalsets that `cases.expected` does not name have the ids of all rows.
    """
    ids: dict[str, set[str]] = {evalset: set(named) for evalset, named in cases.expected.items()}
    repeats_by_set: dict[str, set[int]] = {}
    for row in rows:
        repeats_by_set.setdefault(row.evalset, set()).add(row.repeat)
        if row.evalset not in cases.expected:
            ids.setdefault(row.evalset, set()).add(row.id)
    repeats = {evalset: _repeats(repeats_by_set.get(evalset) or {0}, cases.repeats) for evalset in ids}
    return sorted(
        (evalset, case, repeat) for evalset, named in ids.items() for case in named for repeat in repeats[evalset]
    )


def _repeats(numbered: set[int], stated: int | None) -> set[int]:
    """Return the repeat numbers that each case should have. numbered: those of any row, from 0 or from 1.

    As many as stated; if none are stated, those of any row and the first missing number between them: its rows were
    lost, and one gap makes every case incomplete."""
    first = 1 if min(numbered) == 1 else 0
    if stated is not None:
        return set(range(first, first + stated))
    gap = next(number for number in range(first, first + len(numbered) + 1) if number not in numbered)
    return numbered | ({gap} if gap < max(numbered) else set())


def _refuse_more_repeats(
    sides: Iterable[Scores], questions: Collection[tuple[str, str, int]], cases: KnownCases
) -> None:
    """Raise UsageError for more answers than the gate file states."""
    if cases.repeats is None:
        return
    repeats: dict[str, set[int]] = {}
    for evalset, _, repeat in questions:
        repeats.setdefault(evalset, set()).add(repeat)
    for side in sides:
        for row in side.rows:
            if row.evalset in repeats and row.repeat not in repeats[row.evalset]:
                raise UsageError(
                    f"{side.source}:{row.line}: the `repeat` of {row.id!r:.80} is {row.repeat}, but the gate file "
                    f"states `repeats: {cases.repeats}`. Correct `repeats`, or leave these rows out."
                )


def _first_lines(lines: Sequence[str]) -> tuple[str, ...]:
    more = f"and {len(lines) - SHOWN:,} rows more that contradict themselves"
    return (*lines[:SHOWN], more) if len(lines) > SHOWN else tuple(lines)


def _duplicates(side: Scores) -> Iterator[str]:
    """Locate the first duplicate rows of a file; the gate counts them all."""
    lines: dict[tuple[str, str, int, str], int] = {}
    shown = 0
    for row in side.rows:
        first = lines.setdefault((row.evalset, row.id, row.repeat, row.metric), row.line)
        if first != row.line and shown < SHOWN:
            shown += 1
            yield f"{side.source}:{row.line}: a second {row.metric} of {row.id!r:.80}; the first is on line {first}"


def _labels(rows: Sequence[ScoreRow]) -> dict[tuple[str, str], tuple[str, ...]] | None:
    """Case → labels; None if no row has any, or rows of a case disagree."""
    labels: dict[tuple[str, str], tuple[str, ...]] = {}
    for row in rows:
        before = labels.setdefault((row.evalset, row.id), row.labels)
        if before != row.labels and set(before) != set(row.labels):
            return None
    return {case: tuple(sorted(marks)) for case, marks in labels.items()} if any(labels.values()) else None


def _with_evalset(side: Scores, evalset: str | None) -> Scores:
    """Put rows without `evalset` into the given one. UsageError if there is none, since the gate file names several."""
    if all(row.evalset for row in side.rows):
        return side
    if evalset is None:
        raise UsageError(
            f"{side.source}: rows without `evalset`, but the gate file names several; add `evalset` to each row"
        )
    return replace(side, rows=tuple(row if row.evalset else replace(row, evalset=evalset or "") for row in side.rows))


def _identity(arm: str, side: Scores) -> ArmIdentity:
    """An identity for a file whose weights are unknown: two files never count as equal, their hashes pair them."""
    return ArmIdentity(
        weights=content_hash([arm, side.source]), config="", tokenizer="", template="", sampling="", engine=""
    )


def _units(
    arm: str, rows: Sequence[ScoreRow], paired_by_hash: Collection[CaseId] | None, clusters: Mapping[CaseId, str | None]
) -> Iterator[UnitEvidence]:
    """Yield one unit per answer, with all its metrics.

    paired_by_hash: cases paired by hash, the others are paired by id; None = all by hash. clusters: of known cases; the
    others have the cluster that their rows name.
    """
    scorers: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}  # many units have equal ones: one object for all
    for question, copy in _by_answer(rows):
        key = UnitKey(arm, *question)
        first, failed, end = copy[0], copy[0].failed, copy[0].finish_reason
        for row in copy[1:]:
            _refuse_two_answers(first, row)
            failed, end = failed or row.failed, end or row.finish_reason
        by_hash = paired_by_hash is None or question[:2] in paired_by_hash
        scored_by = tuple((row.metric, row.scorer or NOT_NAMED) for row in copy if is_score(row))
        scores = {row.metric: row.value for row in copy}
        try:
            serving = serving_fields(key.case_id, scores, [row.served for row in copy])
        except ValueError as error:
            raise UsageError(str(error)) from None
        is_empty = serving["tokens"] == 0 or serving.get("text_sha256") == EMPTY_SHA256
        yield UnitEvidence(
            key=key,
            case_hash=first.case_hash if by_hash else f"id {key.evalset}/{key.case_id}",
            status="error" if failed else "done",
            error=failed,
            weights={row.metric: row.weight for row in copy if row.weight is not None} or NOTHING,
            scorers=scorers.setdefault(scored_by, dict(scored_by)),
            unsaid={row.metric: row.unsaid for row in copy if row.unsaid} or NOTHING,
            truncated=end == "length",
            unanswered=max(row.unanswered for row in copy) or ("empty" if is_empty else ""),
            finish_reason=end,
            finished=end in ("eos", "stop") if end else None,
            cluster=clusters.get(question[:2], first.cluster),
            **serving,
        )


def _by_answer(rows: Sequence[ScoreRow]) -> Iterator[tuple[tuple[str, str, int], list[ScoreRow]]]:
    """Group rows by (evalset, id, repeat); a repeated metric begins a second answer to the same question."""
    by_question: dict[tuple[str, str, int], list[list[ScoreRow]]] = {}
    for row in rows:
        question = row.evalset, row.id, row.repeat
        if (answers := by_question.get(question)) is None:
            by_question[question] = [[row]]
            continue
        answer = next((copy for copy in answers if all(other.metric != row.metric for other in copy)), None)
        if answer is None:
            answers.append(answer := [])
        answer.append(row)
    for question, answers in by_question.items():
        for copy in answers:
            yield question, copy


def _refuse_two_answers(row: ScoreRow, other: ScoreRow) -> None:
    """Raise UsageError for two rows of one case and repeat that cannot be about one answer."""
    for what, first_value, second_value in (
        ("case hashes", row.case_hash, other.case_hash),
        ("clusters", row.cluster, other.cluster),
        ("ends", row.finish_reason or other.finish_reason, other.finish_reason or row.finish_reason),
    ):
        if first_value != second_value:
            raise UsageError(
                f"the score rows of {row.id!r:.80} have different {what}: {first_value!r:.60} in {row.metric}, "
                f"{second_value!r:.60} in {other.metric}. Check that they score the same answer."
            )
