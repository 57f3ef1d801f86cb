"""Anyone's outputs scored: a file of cases and a file of answers in, one row an id out. No model and no store.

Fails closed: a missing, extra or duplicate id, and any line that cannot be read, is an error that names file and line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qualgate.documents import Fault, nearest, quote, refuse
from qualgate.errors import UsageError
from qualgate.evalsets import identity_faults
from qualgate.records import Case, Evalset, Score
from qualgate.scoring.json_lines import JsonLines
from qualgate.scoring.registry import Scorer, apply, refuse_without_effect
from qualgate.stats.intervals import binomial_lower, binomial_upper, clustered_share

MAX_LINE = 128 * 2**20  # bytes; ten megabytes of answer take six times as much when each character is an escape
ALPHA = 0.025  # each side: a 95 % interval
PROGRESS_EVERY = 500  # rows

Progress = Callable[[str, int, int], None]  # what is done, rows done, rows in all


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One case's score: what `qualgate score` writes and the gate reads."""

    case: Case
    score: Score

    def as_json(self) -> dict[str, Any]:
        kept = {key: self.case.body[key] for key in ("cluster", "tags") if key in self.case.body}
        return {
            "id": self.case.id,
            "metric": self.score.metric,
            "value": self.score.value,
            "verdict": self.score.verdict,
            "error_type": self.score.error_type,
            "extracted": self.score.extracted,
            "reason": self.score.reason,
            "case_hash": self.case.hash,
            "scorer": self.score.scorer,
            **kept,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """The mean of the values that there are, with its 95 % interval: exact, and never of zero width."""

    n: int  # rows with a value
    mean: float
    lower: float
    upper: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    metric: str
    scorer: str  # name and version
    mode: str
    rows: tuple[Row, ...]  # in the cases' order

    @property
    def rate(self) -> Rate | None:
        """None when no row has a value. Cases that share a `cluster` count as what they surely are: one."""
        valued = [(row.score.value, row.case.cluster) for row in self.rows if row.score.value is not None]
        n, total = len(valued), sum(value for value, _ in valued)
        if not n:
            return None
        labels: dict[tuple[str, int], int] = {}
        places = [labels.setdefault((c or "", -1 if c else i), len(labels)) for i, (_, c) in enumerate(valued)]
        if len(labels) == n and total == int(total):
            lower, upper = binomial_lower(int(total), n, ALPHA), binomial_upper(int(total), n, ALPHA)
        else:
            found = clustered_share([value for value, _ in valued], [1] * n, places, 0.5, ALPHA)
            lower, upper = max(0.0, found.lower), min(1.0, found.upper)
        return Rate(n=n, mean=total / n, lower=lower, upper=upper)

    @property
    def error_counts(self) -> dict[str, int]:
        """Error word → rows, the most frequent first."""
        counted = Counter(row.score.error_type for row in self.rows if row.score.error_type)
        return dict(sorted(counted.items(), key=lambda item: (-item[1], item[0])))


def score_files(
    cases: Path,
    outputs: Path,
    scorer: Scorer,
    *,
    metric: str | None = None,
    normalizers: Sequence[str] = (),
    lenient: Sequence[str] = (),
    progress: Progress = lambda what, done, total: None,
) -> Scored:
    """Score every answer of `outputs` against its case. `metric`: which of the scorer's; its last one by default.

    UsageError for options that the scorer does not read, and for every fault of either file: the first 20, and how
    many more.
    """
    refuse_without_effect(scorer, normalizers, lenient)
    metric = metric or scorer.metrics[-1]
    if metric not in scorer.metrics:
        raise UsageError(f"the scorer {scorer.name} has no metric {quote(metric)}{nearest(metric, scorer.metrics)}")
    judged_by = Evalset(
        name=cases.stem,
        version="",
        sha256="",
        metrics=(metric,),
        lenient=tuple(lenient),
        normalizers=tuple(normalizers),
    )
    asked = _read(cases, "case", lambda body: (*identity_faults(body), *scorer.unscorable(body, judged_by)))
    answered = _read(outputs, "output", lambda body: tuple(_answer_faults(body, scorer)), said_by_model=True)
    faults = [*asked.faults, *answered.faults]
    if not faults:  # else a line that cannot be read would be called missing as well
        faults += _unpaired(asked, answered)
    if faults:
        refuse(faults)
    rows = []
    for id, (_, body) in asked.rows.items():
        case, (_, answer) = Case(evalset=judged_by.name, body=body), answered.rows[id]
        rows.append(Row(case=case, score=_score(scorer, case, judged_by, answer)[metric]))
        if len(rows) % PROGRESS_EVERY == 0 or len(rows) == len(asked.rows):
            progress(scorer.name, len(rows), len(asked.rows))
    return Scored(metric=metric, scorer=scorer.version, mode=scorer.mode, rows=tuple(rows))


def _score(scorer: Scorer, case: Case, evalset: Evalset, answer: dict[str, Any]) -> dict[str, Score]:
    if "calls" in answer and scorer.decoded is not None:
        return scorer.decoded(case, evalset, answer["calls"])
    return apply(scorer, case, evalset, answer["text"])


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    path: Path
    rows: dict[str, tuple[int, dict[str, Any]]]  # id → its line, and what stands there
    faults: tuple[Fault, ...]


def _read(
    path: Path, what: str, faults_of: Callable[[dict[str, Any]], Iterable[str]], *, said_by_model: bool = False
) -> _File:
    lines, rows = JsonLines(path, MAX_LINE, said_by_model=said_by_model), {}
    try:
        for body in lines:
            before = len(lines.faults)
            for message in faults_of(body):
                lines.fault(message)
            id = body.get("id")
            if isinstance(id, str) and id in rows:
                lines.fault(f"duplicate id {quote(id)}; first on line {rows[id][0]}")
            elif len(lines.faults) == before:
                rows[id] = (lines.line, body)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None
    if not lines.line:
        raise UsageError(f"{path}: no {what}s; expected one JSON object a line.")
    return _File(path=path, rows=rows, faults=tuple(Fault(path, line, message) for line, message in lines.faults))


def _answer_faults(body: dict[str, Any], scorer: Scorer) -> Iterator[str]:
    if not isinstance(body.get("id"), str):
        yield f"`id` must be a text; {_found(body, 'id')}"
    if "calls" in body and "text" in body:
        yield "an output has `text` or `calls`, not both"
    elif "calls" in body:
        if scorer.decoded is None:
            yield f"the scorer {scorer.name} ({scorer.mode}) reads `text`, not `calls`"
    elif not isinstance(body.get("text"), str):
        either = "`text`" if scorer.decoded is None else "`text`, or `calls` already decoded"
        yield f"an output needs {either}; {_found(body, 'text')}"


def _found(body: dict[str, Any], key: str) -> str:
    return f"found {quote(body[key])}" if key in body else "it is missing"


def _unpaired(asked: _File, answered: _File) -> Iterator[Fault]:
    for id, (line, _) in asked.rows.items():
        if id not in answered.rows:
            yield Fault(asked.path, line, f"no output for the id {quote(id)} in {answered.path}")
    for id, (line, _) in answered.rows.items():
        if id not in asked.rows:
            yield Fault(answered.path, line, f"no case has the id {quote(id)} in {asked.path}")
