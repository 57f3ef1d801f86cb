"""Score rows of both sides → the evidence of a run, so that one gate judges whatever was scored wherever.

What must be equal on both sides for two rows to be a pair is in `case_hash`: where it is on one side only, or
different, or on neither, nothing is compared (undecided), unless the caller says `identity="ids"`: then ids alone make
a pair where a side has no hash, and every verdict says so. Two hashes that differ name two cases, whatever the caller
says.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Literal

from qualgate.errors import UsageError, close_names
from qualgate.identity import content_hash
from qualgate.intake.score_rows import ScoreRow, Scores, is_score
from qualgate.intake.serving_rows import with_serving
from qualgate.metrics import METRICS
from qualgate.records import ArmEvidence, ArmIdentity, RunEvidence, UnitEvidence, UnitKey

BASELINE = "baseline"
SHOWN = 3  # rows named for one fault
NEARLY = 0.8  # how alike two metrics' names must be for one to be the other misspelt, as difflib's ratio
EMPTY_SHA256 = sha256(b"").hexdigest()
NOT_NAMED = "not said"  # stands for the scorer of a row that names none

Identity = Literal["hash", "ids"]
CaseId = tuple[str, str]  # evalset, case


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownCases:
    """What is known of the cases without the score files. Of an evalset of which nothing is known, nothing."""

    default: str | None = None  # the evalset of rows that name none; None refuses such rows
    expected: Mapping[str, Collection[str]] = field(default_factory=dict)  # evalset → ids that must be there
    asked: Mapping[str, Collection[str]] = field(default_factory=dict)  # evalset → its metrics that each case must have
    labels: Mapping[CaseId, tuple[str, ...]] = field(default_factory=dict)  # its own task and tags, whatever rows say
    clusters: Mapping[CaseId, str | None] = field(default_factory=dict)  # likewise its own cluster; None: it has none
    questions: Mapping[CaseId, str] = field(default_factory=dict)  # → `question_hash`
    budgets: Mapping[CaseId, int] = field(default_factory=dict)  # tokens that an answer may take at most
    references: Mapping[CaseId, tuple[str, ...]] = field(default_factory=dict)  # see `RunEvidence.references`
    repeats: int | None = None  # answers to each case; None: not said, and then as many as the files number
    stale: tuple[str, ...] = ()  # why rows are not of the cases that are to be judged; any makes it undecided
    notes: tuple[str, ...] = ()  # what a verdict must say of these cases


def evidence_of(sides: Mapping[str, Scores], cases: KnownCases, identity: Identity = "hash") -> RunEvidence:
    """The evidence of what all sides answered; every quality metric that rows of a set carry is one of the set's.

    sides: by the arm's name, the baseline first. Evalsets that `cases.expected` does not name take the ids of all files
    together, so that what only one side has is missing on the other. The same id, metric and repeat twice on one side
    is a duplicate, which breaks integrity. Every case of a set has as many answers as any of them, and as
    `cases.repeats` says: fewer are missing. UsageError for more, and for rows of one answer that say two things of it.
    """
    placed = {arm: _placed(side, cases.default) for arm, side in sides.items()}
    rows = [row for side in placed.values() for row in side.rows]
    metrics = _metrics(rows, cases)
    _refuse_misspelt(tuple(placed.values()), cases)
    questions = _closed_list(rows, cases)
    _refuse_more_repeats(placed.values(), set(questions), cases)
    hashed = [{(row.evalset, row.id) for row in side.rows if row.case_hash} for side in placed.values()]
    told = set.intersection(*hashed) if identity == "ids" else None
    baseline, *variants = (
        ArmEvidence(name=arm, identity=_identity(arm, side), units=tuple(_units(arm, side.rows, told, cases.clusters)))
        for arm, side in placed.items()
    )
    labels = _labels(rows)
    silent = tuple(f"{at}: no row of either file is a score" for at, found in metrics.items() if not found)
    return RunEvidence(
        run_id=" / ".join(Path(side.source).name for side in placed.values()),
        expected=tuple(UnitKey(arm, *question) for arm in placed for question in questions),
        metrics=metrics,
        baseline=baseline,
        variants=tuple(variants),
        integrity=tuple(line for side in placed.values() for line in (*_first(side.contradictions), *_twice(side))),
        labels={**(labels or {}), **cases.labels} if cases.labels else labels,
        questions=cases.questions,
        budgets=cases.budgets,
        references=cases.references,
        stale=(*cases.stale, *silent),
    )


def _metrics(rows: Sequence[ScoreRow], cases: KnownCases) -> dict[str, tuple[str, ...]]:
    """evalset → what is asked of it, then what its rows carry."""
    sets = {row.evalset for row in rows} | cases.expected.keys()
    carried: dict[str, dict[str, None]] = {at: {} for at in sorted(sets)}
    for row in rows:
        if is_score(row):
            carried[row.evalset].setdefault(row.metric)
    return {at: tuple(dict.fromkeys((*cases.asked.get(at, ()), *found))) for at, found in carried.items()}


def _refuse_misspelt(sides: Sequence[Scores], cases: KnownCases) -> None:
    """UsageError for a metric that nobody else knows, where its answer lacks one of nearly that name which another file
    has. An own metric, however called, is in all files, or its verdict is that the others lack it."""
    known = {*METRICS, *(name for names in cases.asked.values() for name in names)}
    carried = [{row.metric for row in side.rows if is_score(row)} for side in sides]
    for place, side in enumerate(sides):
        others = set[str]().union(*carried[:place], *carried[place + 1 :])
        if not (strange := carried[place] - others - known):
            continue
        had: dict[tuple[str, str, int], set[str]] = {}
        for row in side.rows:
            had.setdefault((row.evalset, row.id, row.repeat), set()).add(row.metric)
        for row in side.rows:
            absent = sorted(others - had[row.evalset, row.id, row.repeat]) if row.metric in strange else ()
            for meant in close_names(row.metric, absent, cutoff=NEARLY):
                raise UsageError(
                    f"{side.source}:{row.line}: no other file has a score of {row.metric!r:.80}; did you mean "
                    f"{meant!r:.80}, of which {row.id!r:.80} has none here?"
                )


def _closed_list(rows: Sequence[ScoreRow], cases: KnownCases) -> list[tuple[str, str, int]]:
    """Evalset, id and repeat of every answer that each side must have, sorted."""
    ids: dict[str, set[str]] = {at: set(named) for at, named in cases.expected.items()}
    numbered: dict[str, set[int]] = {}
    for row in rows:
        numbered.setdefault(row.evalset, set()).add(row.repeat)
        if row.evalset not in cases.expected:
            ids.setdefault(row.evalset, set()).add(row.id)
    repeats = {at: _repeats(numbered.get(at) or {0}, cases.repeats) for at in ids}
    return sorted((at, case, repeat) for at, named in ids.items() for case in named for repeat in repeats[at])


def _repeats(numbered: set[int], stated: int | None) -> set[int]:
    """The numbers that each case's answers must have: so many from 0, or from 1 where no row counts from 0. Where
    nobody says how many, those that any row has, without a gap: of an answer in it, the rows were lost."""
    first = 1 if min(numbered) == 1 else 0
    if stated is not None:
        return set(range(first, first + stated))
    gap = next(number for number in range(first, first + len(numbered) + 1) if number not in numbered)
    return numbered | ({gap} if gap < max(numbered) else set())


def _refuse_more_repeats(
    sides: Iterable[Scores], questions: Collection[tuple[str, str, int]], cases: KnownCases
) -> None:
    """UsageError for an answer beyond those that the gate file states."""
    if cases.repeats is None:
        return
    repeats: dict[str, set[int]] = {}
    for at, _, repeat in questions:
        repeats.setdefault(at, set()).add(repeat)
    for side in sides:
        for row in side.rows:
            if row.evalset in repeats and row.repeat not in repeats[row.evalset]:
                raise UsageError(
                    f"{side.source}:{row.line}: the `repeat` of {row.id!r:.80} is {row.repeat}, and the gate file "
                    f"states `repeats: {cases.repeats}`. State how many answers each case has, or leave these out."
                )


def _first(lines: Sequence[str]) -> tuple[str, ...]:
    more = f"and {len(lines) - SHOWN:,} rows more that contradict themselves"
    return (*lines[:SHOWN], more) if len(lines) > SHOWN else tuple(lines)


def _twice(side: Scores) -> Iterator[str]:
    """Where the first rows stand that say again what a row of the file says; how many there are the gate tells."""
    lines: dict[tuple[str, str, int, str], int] = {}
    shown = 0
    for row in side.rows:
        first = lines.setdefault((row.evalset, row.id, row.repeat, row.metric), row.line)
        if first != row.line and shown < SHOWN:
            shown += 1
            yield f"{side.source}:{row.line}: a second {row.metric} of {row.id!r:.80}; the first is on line {first}"


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


def _identity(arm: str, side: Scores) -> ArmIdentity:
    """Whose weights a file speaks of is not known, so two files are never called the same. The hashes pair them."""
    return ArmIdentity(
        weights=content_hash([arm, side.source]), config="", tokenizer="", template="", sampling="", engine=""
    )


def _units(
    arm: str, rows: Sequence[ScoreRow], told: Collection[CaseId] | None, clusters: Mapping[CaseId, str | None]
) -> Iterator[UnitEvidence]:
    """One unit an answer, with all its metrics.

    told: cases that hashes pair, all others are paired by their ids; None = hashes pair all. clusters: of the cases
    that are known, all others are of the cluster that their rows name.
    """
    scorers: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}  # many units have equal ones: one object for all
    for question, copy in _by_answer(rows):
        key = UnitKey(arm, *question)
        first, failed, end = copy[0], copy[0].failed, copy[0].finish_reason
        for row in copy[1:]:
            _same_answer(first, row)
            failed, end = failed or row.failed, end or row.finish_reason
        by_hash = told is None or question[:2] in told
        said = tuple((row.metric, row.scorer or NOT_NAMED) for row in copy if is_score(row))
        unit = UnitEvidence(
            key=key,
            case_hash=first.case_hash if by_hash else f"id {key.evalset}/{key.case_id}",
            status="error" if failed else "done",
            error=failed,
            values={row.metric: row.value for row in copy},
            weights={row.metric: row.weight for row in copy if row.weight is not None},
            scorers=scorers.setdefault(said, dict(said)),
            unsaid={row.metric: row.unsaid for row in copy if row.unsaid},
            truncated=end == "length",
            unanswered=max(row.unanswered for row in copy),
            finish_reason=end,
            finished=end in ("eos", "stop") if end else None,
            cluster=clusters.get(question[:2], first.cluster),
        )
        try:
            unit = with_serving(unit, [row.served for row in copy])
        except ValueError as error:
            raise UsageError(str(error)) from None
        empty = unit.tokens == 0 or unit.text_sha256 == EMPTY_SHA256
        yield replace(unit, unanswered="empty") if empty and not unit.unanswered else unit


def _by_answer(rows: Sequence[ScoreRow]) -> Iterator[tuple[tuple[str, str, int], list[ScoreRow]]]:
    """(evalset, id, repeat) and its rows; a metric given again begins a second answer to the same question."""
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
    for question, copies in found.items():
        for copy in copies:
            yield question, copy


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
