"""Score a file of answers against a file of cases: one row per answer. No model and no store.

Every case has the same number of answers. Several answers carry `repeat`, 0, 1, …, and give pass@k. A missing, extra or
duplicate answer, and an unreadable line, is an error that names file and line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from qualgate.documents import Fault, misspelt, nearest, quote, refuse
from qualgate.errors import UsageError
from qualgate.errors.misplaced import unreadable
from qualgate.evalsets import (
    added_beside,
    forgiven_beside,
    identity_faults,
    misspelt_keys,
    read_turns,
    read_whole,
    simulation_beside,
)
from qualgate.intake.error_texts import error_reader
from qualgate.intake.score_rows import QUOTED
from qualgate.records import FINISH_WORDS, SERVING_FIELDS, Case, Evalset, FinishReason, Score, turn_of
from qualgate.records.metrics import BY_TRAJECTORY
from qualgate.scoring import reasoning
from qualgate.scoring.code import pass_at_k
from qualgate.scoring.contains import cut
from qualgate.scoring.json_lines import JsonLines
from qualgate.scoring.outcome import actual, cannot_say
from qualgate.scoring.registry import Mode, Scorer, apply, filtered, in_dialect, refuse_without_effect
from qualgate.scoring.registry import find as find_scorer
from qualgate.scoring.tools.served import by_parser
from qualgate.stats.all_of import all_of
from qualgate.stats.intervals import binomial_lower, binomial_upper, clustered_share
from qualgate.text.escaping import says_something

MAX_LINE = 128 * 2**20  # bytes; with every character escaped an answer of 10 MB takes six times as much
is_error = error_reader()
ENDPOINT_ERROR = "endpoint_error"
ALPHA = 0.025  # each side: a 95 % interval
PROGRESS_EVERY = 500  # rows
READ = frozenset({"id", "text", "calls", "repeat", "finish_reason", "model", *SERVING_FIELDS})  # keys of an output

Progress = Callable[[str, int, int], None]  # (scorer, rows done, rows in total)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Score of one answer: a row that `qualgate score` writes and the gate reads."""

    case: Case
    score: Score
    repeat: int | None = None  # None: not in the output, as with one answer per case
    finish_reason: FinishReason | None = None  # None: not in the output
    model: str | None = None  # the answering model; None: not in the output
    # SERVING_FIELDS of the output, `error` and `unanswered`, for the gate
    served: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the row of the file; unknown values are left out."""
        labels = {key: self.case.body[key] for key in ("task", "cluster", "tags") if key in self.case.body}
        stated = {"repeat": self.repeat, "finish_reason": self.finish_reason, "model": self.model}
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
            **{key: value for key, value in stated.items() if value is not None},
            **labels,
            **self.served,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Mean of the known values, with its exact 95 % interval, which never has zero width."""

    n: int  # values
    mean: float
    lower: float
    upper: float

    @classmethod
    def of(cls, values: Sequence[tuple[float, Case]]) -> Rate | None:
        """Return the rate; None without values. Answers to one case, and cases of one `cluster`, count once."""
        n, total = len(values), sum(value for value, _ in values)
        if not n:
            return None
        labels: dict[tuple[str, str], int] = {}
        numbers = [
            labels.setdefault((c, "") if (c := case.cluster) else ("", case.id), len(labels)) for _, case in values
        ]
        if len(labels) == n and total == int(total):
            lower, upper = binomial_lower(int(total), n, ALPHA), binomial_upper(int(total), n, ALPHA)
        else:
            bounds = clustered_share([value for value, _ in values], [1] * n, numbers, 0.5, ALPHA)
            lower, upper = max(0.0, bounds.lower), min(1.0, bounds.upper)
        return cls(n=n, mean=total / n, lower=lower, upper=upper)


@dataclass(frozen=True, slots=True, kw_only=True)
class PassAt:
    """Unbiased estimate of pass@k or pass^k: the chance that one, or all, of `k` answers are right; mean over cases.

    A case with an answer that could not be judged is left out, since that answer may be a pass.
    """

    k: int
    rate: Rate | None  # of cases
    unavailable: str = ""  # why there is no rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """Scores of a file of answers."""

    metric: str
    scorer: str  # name and version
    mode: str
    rows: tuple[Row, ...]  # in the cases' order, a case's answers by `repeat`
    repeats: int = 1  # answers to each case

    @property
    def rate(self) -> Rate | None:
        """Rate of right answers, for `turns.*` of trajectories; None if no row has a value."""
        if self.metric in BY_TRAJECTORY:
            trajectories = [(case, verdict) for case, verdicts in self.judged for verdict in verdicts]
            return Rate.of([(float(verdict), case) for case, verdict in trajectories if verdict is not None])
        return Rate.of([(row.score.value, row.case) for row in self.rows if row.score.value is not None])

    @property
    def judged(self) -> list[tuple[Case, list[bool | None]]]:
        """Each case with its verdict in each repeat. For `turns.*` each trajectory, by its first turn: right if all
        turns are, None if one could not be judged and none is wrong."""
        by_case: dict[str, tuple[Case, list[list[bool | None]]]] = {}
        for index, row in enumerate(self.rows):
            turn = turn_of(row.case.id) if self.metric in BY_TRAJECTORY and "turns" not in row.case.body else None
            entry = row.case, [[] for _ in range(self.repeats)]
            by_case.setdefault(turn[0] if turn else row.case.id, entry)[1][index % self.repeats].append(
                row.score.verdict
            )
        return [
            (case, [False if False in turns else None if None in turns else True for turns in repeats])
            for case, repeats in by_case.values()
        ]

    def pass_at(self, k: int) -> PassAt:
        """Return pass@k over all cases, or the reason why it is unavailable."""
        return self._over_repeats(k, lambda verdicts: pass_at_k(self.repeats, sum(verdicts), k))

    def pass_all(self, k: int) -> PassAt:
        """Return pass^k over all cases, the chance that k answers are all right: see `stats.all_of`."""
        return self._over_repeats(k, lambda verdicts: all_of(k, verdicts))

    def _over_repeats(self, k: int, chance: Callable[[list[bool]], float]) -> PassAt:
        """Return the mean over cases of `chance`, which maps a case's verdicts to a probability; or why there is
        none. Cases with an answer that could not be judged are left out."""
        if k > self.repeats:
            return PassAt(k=k, rate=None, unavailable=f"needs {k:,} answers to each case, there are {self.repeats:,}")
        known_verdicts = [
            (case, [verdict for verdict in verdicts if verdict is not None]) for case, verdicts in self.judged
        ]
        rate = Rate.of([(chance(verdicts), case) for case, verdicts in known_verdicts if len(verdicts) == self.repeats])
        return PassAt(k=k, rate=rate, unavailable="" if rate else "there is no case whose answers could all be judged")

    @property
    def error_counts(self) -> dict[str, int]:
        """Error type → number of rows, the most frequent first."""
        counted = Counter(row.score.error_type for row in self.rows if row.score.error_type)
        return dict(sorted(counted.items(), key=lambda item: (-item[1], item[0])))


def choose_scorer(
    name: str,
    mode: Mode = "strict",
    *,
    dialect: str | None = None,
    filter: str | None = None,
    served_by: str | None = None,
) -> Scorer:
    """Return the scorer of this name and mode.

    dialect: of tool calls, for cases that declare none. filter: lm-eval filter that extracts the scored part.
    served_by: "ENGINE:PYTHON" whose tool parser reads texts. Raises UsageError for an unknown name, and for an option
    that the scorer does not use.
    """
    chosen = find_scorer(name, mode)
    if served_by is not None:
        chosen = by_parser(chosen, served_by)
    if dialect is not None:
        chosen = in_dialect(chosen, dialect)
    return filtered(chosen, filter) if filter is not None else chosen


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
    """Score every answer of `outputs` against its case. metric: one of the scorer's; by default its last one.

    `dialect` and `reasoning` of the YAML beside `cases` become part of each case, as in the evalset; its `lenient` and
    `normalizers` apply if none are given here.

    Raises UsageError for options that the scorer does not use, and for the faults of either file: the first 20, and the
    number of others.
    """
    refuse_without_effect(scorer, normalizers, lenient)
    metric = metric or scorer.metrics[-1]
    if metric not in scorer.metrics:
        raise UsageError(f"the scorer {scorer.name} has no metric {quote(metric)}{nearest(metric, scorer.metrics)}")
    forgiven, simulation = forgiven_beside(cases), simulation_beside(cases)
    judged_by = Evalset(
        name=cases.stem,
        version="",
        sha256="",
        metrics=(metric,),
        simulation=simulation,
        lenient=tuple(lenient) or forgiven["lenient"],
        normalizers=tuple(normalizers) or forgiven["normalizers"],
    )
    added = _added(cases, scorer)
    case_file = _read(cases, "case", lambda body: (
        *identity_faults(body), *misspelt_keys(body, scorer.needs), *_reasoning_faults(added | body),
        *scorer.unscorable(added | body, judged_by),
    ), turns=_expansion(scorer, metric))  # fmt: skip
    output_file = _read(outputs, "output", lambda body: tuple(_answer_faults(body, scorer)), said_by_model=True)
    faults = [*case_file.faults, *output_file.faults]
    if not faults:  # an unreadable line would be reported as missing, too
        faults += _unpaired(case_file, output_file)
    if faults:
        refuse(faults)
    if scorer.dialect and all("calls" in body for _, body in output_file.rows.values()):
        raise UsageError(
            f"--dialect {scorer.dialect}: every row of {outputs} has `calls`, which are decoded already, so no dialect "
            "is read. Leave the option out, or give the raw answers as `text`."
        )
    repeats, rows = len(output_file.rows) // len(case_file.rows), []
    for id, _ in case_file.rows:
        _, body = case_file.rows[id, 0]
        case = Case(evalset=judged_by.name, body=added | body)
        for repeat in range(repeats):
            _, answer = output_file.rows[id, repeat]
            score = _score(scorer, case, judged_by, answer)[metric]
            rows.append(_row(case, score, answer))
            if len(rows) % PROGRESS_EVERY == 0 or len(rows) == len(output_file.rows):
                progress(scorer.name, len(rows), len(output_file.rows))
    scorers = " and ".join(sorted({row.score.scorer for row in rows})) or scorer.version
    return Scored(metric=metric, scorer=scorers, mode=scorer.mode, rows=tuple(rows), repeats=repeats)


def _expansion(scorer: Scorer, metric: str) -> Any:
    """Return the reader of rows with `turns`: one case, or a case for each turn; None: an ordinary row."""
    if scorer.transcripts:
        return read_whole
    return read_turns if metric in BY_TRAJECTORY or metric.startswith("tool_call.") else None


def _reasoning_faults(body: dict[str, Any]) -> Iterator[str]:
    yield from reasoning.faults(body)
    if body.get("reasoning") == reasoning.AUTO:
        yield reasoning.UNTOLD


def _added(cases: Path, scorer: Scorer) -> dict[str, Any]:
    """Return the settings that the YAML beside the cases adds. Raises UsageError if it contradicts `--dialect`."""
    added = added_beside(cases)
    if scorer.dialect and (declared := added.get("dialect", scorer.dialect)) != scorer.dialect:
        raise UsageError(
            f"--dialect {scorer.dialect}: {cases.with_suffix('.yaml')} declares `dialect: {declared}` for these cases. "
            "Leave the option out, or change the file."
        )
    return added


def _score(scorer: Scorer, case: Case, evalset: Evalset, answer: dict[str, Any]) -> dict[str, Score]:
    """Return metric → score of one answer. An endpoint's error in place of the text gives no value except to an
    answer that is right all the same; an answer cut at its token limit is noted as such."""
    if "calls" in answer and scorer.decoded is not None:
        return scorer.decoded(case, evalset, answer["calls"])
    scores = apply(scorer, case, evalset, answer["text"])
    if is_error(answer["text"]):
        why = "an endpoint's error stands in place of the answer"
        return {
            metric: score if score.value == 1 else cannot_say(metric, score.scorer, ENDPOINT_ERROR, why)
            for metric, score in scores.items()
        }
    if FINISH_WORDS.get((answer.get("finish_reason") or "").lower()) == "length":
        return {metric: cut(score) for metric, score in scores.items()}
    return scores


def _row(case: Case, score: Score, answer: dict[str, Any]) -> Row:
    """Return the row of a score, with what the output states about the answer; None for what it does not state."""
    ended = answer.get("finish_reason")
    return Row(
        case=case,
        score=score,
        repeat=answer.get("repeat"),
        finish_reason=None if ended is None else FINISH_WORDS[ended.lower()],
        model=answer.get("model"),
        served=_served(answer, failed=score.error_type == ENDPOINT_ERROR),
    )


def _served(answer: dict[str, Any], *, failed: bool) -> dict[str, Any]:
    """Return the serving fields of an answer; with them the text's hash, by which answers without tokens are
    compared. An error in place of the answer, and an empty answer, are noted."""
    served = {name: answer[name] for name in SERVING_FIELDS if name in answer}
    text = answer.get("text")
    if text is not None and failed:
        served["error"] = text[:QUOTED]
    elif text is not None and not says_something(text):
        served["unanswered"] = "empty"
    if text is None or served.keys().isdisjoint(SERVING_FIELDS):
        return served
    return {"text_sha256": sha256(text.encode("utf-8", "surrogatepass")).hexdigest()} | served


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """The rows of a file of cases or outputs, and the faults of its lines."""

    path: Path
    rows: dict[tuple[str, int], tuple[int, dict[str, Any]]]  # (id, repeat) → (line, body)
    faults: tuple[Fault, ...]


def _read(
    path: Path,
    noun: str,
    faults_of: Callable[[dict[str, Any]], Iterable[str]],
    *,
    said_by_model: bool = False,
    turns: Callable[[dict[str, Any]], tuple[tuple[dict[str, Any], ...], tuple[str, ...]]] | None = None,
) -> _File:
    """Read the rows of a file. noun: what a row is called in errors; faults_of: yields the faults of a row;
    said_by_model: rows are outputs and may carry `repeat`; turns: splits a row with `turns` into (cases, faults),
    None: such a row is ordinary."""
    lines, rows = JsonLines(path, MAX_LINE, said_by_model=said_by_model), {}
    try:
        for row in lines:
            before, faults = len(lines.faults), ()
            bodies: tuple[dict[str, Any], ...] = (row,)
            if turns and "turns" in row:
                bodies, faults = turns(row)
            for message in dict.fromkeys((*faults, *(message for body in bodies for message in faults_of(body)))):
                lines.fault(message)
            for body in bodies or (row,):
                id, repeat = body.get("id"), body.get("repeat", 0) if said_by_model else 0
                if isinstance(id, str) and type(repeat) is int and (id, repeat) in rows:
                    numbered = f" with `repeat` {repeat}" if "repeat" in body else ""
                    hint = (
                        "; several outputs of one case carry `repeat`, 0, 1, …"
                        if said_by_model and not numbered
                        else ""
                    )
                    lines.fault(f"duplicate id {quote(id)}{numbered}; first on line {rows[id, repeat][0]}{hint}")
                elif len(lines.faults) == before:
                    rows[id, repeat] = (lines.line, body)
    except OSError as error:
        raise UsageError(unreadable(path, error)) from None
    if not lines.line:
        raise UsageError(f"{path}: no {noun}s; expected one JSON object a line.")
    return _File(path=path, rows=rows, faults=tuple(Fault(path, line, message) for line, message in lines.faults))


def _answer_faults(body: dict[str, Any], scorer: Scorer) -> Iterator[str]:
    """Yield what is wrong with one output row, by the scorer that will read it: a missing or mistyped field, a
    misspelt key, or `text` and `calls` together."""
    if not isinstance(body.get("id"), str):
        yield f"`id` must be a text; {actual(body, 'id')}"
    if type(repeat := body.get("repeat", 0)) is not int or repeat < 0:
        yield f"`repeat` must be a whole number from 0; found {quote(repeat)}"
    ended, model = body.get("finish_reason"), body.get("model")
    if ended is not None and not (isinstance(ended, str) and ended.lower() in FINISH_WORDS):
        yield f"`finish_reason` must be eos, stop, length or abort; found {quote(ended)}"
    if not isinstance(model, str | None):
        yield f"`model` must be a text; found {quote(model)}"
    yield from misspelt(frozenset(body), READ, READ - {"text", "calls"})
    if "calls" in body and "text" in body:
        yield "an output has `text` or `calls`, not both"
    elif "calls" in body:
        if scorer.decoded is None:
            yield f"the scorer {scorer.name} ({scorer.mode}) reads `text`, not `calls`"
    elif scorer.transcripts:
        yield f"a transcript needs `calls`, a list of calls for each turn of the user's; {actual(body, 'calls')}"
    elif not isinstance(body.get("text"), str):
        either = "`text`" if scorer.decoded is None else "`text`, or `calls` already decoded"
        as_text = " (the answer as it was written, a JSON string)" if "text" in body else ""
        yield f"an output needs {either}{as_text}; {actual(body, 'text')}"


def _unpaired(case_file: _File, output_file: _File) -> Iterator[Fault]:
    """Yield faults unless every case has one answer of each repeat, and repeats count from 0."""
    repeats: dict[int, int] = {}  # repeat → its first line
    given_repeats: dict[str, set[int]] = {}
    for (id, repeat), (line, _) in output_file.rows.items():
        repeats.setdefault(repeat, line)
        given_repeats.setdefault(id, set()).add(repeat)
        if (id, 0) not in case_file.rows and len(given_repeats[id]) == 1:
            yield Fault(output_file.path, line, f"no case has the id {quote(id)} in {case_file.path}")
    expected = set(range(len(repeats)))
    for repeat in sorted(repeats.keys() - expected)[:1]:
        gap = min(expected - repeats.keys())
        message = f"`repeat` {repeat}, but no output has {gap}: they are counted 0, 1, … without a gap"
        yield Fault(output_file.path, repeats[repeat], message)
    for (id, _), (line, _) in case_file.rows.items():
        missing = repeats.keys() - given_repeats.get(id, set())
        if id not in given_repeats:
            yield Fault(case_file.path, line, f"no output for the id {quote(id)} in {output_file.path}")
        elif missing:
            message = f"no output with `repeat` {min(missing)} for the id {quote(id)} in {output_file.path}"
            count_note = f" ({len(missing):,} of {len(repeats):,} are missing)" if len(missing) > 1 else ""
            yield Fault(case_file.path, line, message + count_note)
