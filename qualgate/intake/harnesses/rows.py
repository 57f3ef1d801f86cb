"""Turn a harness's samples into score rows, and look at every answer on the way.

A failed request, an endpoint's error in place of an answer, an empty answer, one that was cut and a right one that the
harness's filter missed are told apart from wrong ones here, in one way for every format.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from math import isfinite
from pathlib import Path
from sys import intern
from typing import Literal

from qualgate.errors import UsageError
from qualgate.intake.error_texts import NO_ANSWER, error_reader
from qualgate.intake.filtered import NOTHING, states
from qualgate.intake.harnesses.log import Choice, Counts, Log, Run, Sample
from qualgate.intake.harnesses.summary import Models, Tally
from qualgate.intake.score_rows import QUOTED, ScoreRow, Scores
from qualgate.intake.serving_rows import NOT_SAID, Served
from qualgate.records import FINISH_WORDS
from qualgate.records.identity import content_hash, sha256_text
from qualgate.records.metrics import HARNESS
from qualgate.scoring.refusal_wording import is_refusal
from qualgate.text.escaping import says_something
from qualgate.text.numbers import counted

SHOWN = 3  # questions and metrics named in one note
MOST_METRICS = 200
HEAD = 2000  # characters of an answer in which a refusal is looked for


Samples = Generator[Sample, None, Run]


def reader(
    samples: Callable[[Path, Choice, Tally], Samples],
) -> Callable[[Path, Choice, Iterable[str] | None], Log]:
    """Make a reader's `read` of a generator of its samples, which returns the run's facts.

    The generator gets the path, the choice and a tally of the samples that it has yielded so far.
    """

    @wraps(samples)
    def read(path: Path, choice: Choice, error_texts: Iterable[str] | None) -> Log:
        tally, runs, is_error = Tally(), list[Run](), error_reader(error_texts)

        def every() -> Iterator[Sample]:
            runs.append((yield from samples(path, choice, tally)))

        chosen = Models(path, choice.model).chosen(every())
        answers = [_answer(sample, is_error) for sample in tally.counted(chosen)]
        _count_silence(answers)
        return _log(runs[0], choice, answers)

    return read


def _log(run: Run, choice: Choice, answers: Sequence[_Answer]) -> Log:
    """Make the log of one side. UsageError if it is of another task or model than chosen, or no metric is left."""
    if choice.task not in ("", run.task, *run.names):
        named = (
            f"its task is {run.task!r:.80}, not {choice.task!r:.80}" if run.task else "names no task; leave out --task"
        )
        raise UsageError(f"{run.path}: {named}")
    if run.model is not None and choice.model not in ("", run.model):
        raise UsageError(f"{run.path}: its model is {run.model or 'not said'!r:.80}, not {choice.model!r:.80}")
    source = str(run.path)
    if not answers or (run.faults and not any(answer.sample.values for answer in answers)):
        raise UsageError(run.faults[0] if run.faults else f"{source} holds no sample, so there is nothing to compare.")
    judged, outside = _judged(source, answers, choice.metric)
    by_question: dict[str, dict[str, None]] = {}
    for answer in answers:
        if answer.question:
            by_question.setdefault(answer.question, {})[answer.sample.id] = None
    rows = tuple(row for answer in answers for row in _rows(answer, judged, run, by_question))
    return Log(
        task=run.task,
        scores=Scores(source=source, rows=rows),
        counts=replace(_counts(answers), outside=outside),
        settings=run.settings,
        faults=run.faults,
        notes=(*run.notes, *_asked_again(source, by_question)),
    )


@dataclass(slots=True)
class _Answer:
    """A sample without its texts, of which a large log holds too many."""

    sample: Sample
    question: str  # hash of what was asked; "" = not logged
    case_hash: str
    text_sha256: str | None
    unanswered: Literal["", "empty", "unfiltered"]
    finish: str
    failed: str
    refused: bool


def _answer(sample: Sample, is_error: Callable[[str], bool]) -> _Answer:
    """Look at one answer, and take its texts from it."""
    text = sample.text
    right = all(value == 1 for value in sample.values.values())  # another scorer may like the wording of an error
    failed = sample.error[:QUOTED]
    if not failed and text and not right and is_error(text):
        failed = NO_ANSWER.format(text)
    finish = FINISH_WORDS.get(sample.finish.lower(), "")
    if not failed and sample.finish and not finish:
        failed = f"it ended by {sample.finish!r:.60}, which is no known end of an answer"
    try:
        question = content_hash(sample.question) if sample.question not in (None, "", [], {}) else ""
    except (TypeError, ValueError):  # a NaN, half a character
        question = ""
    answer = _Answer(
        sample,
        question,
        sha256_text(f"{question} {sample.target}") if question else "",
        sha256_text(text) if text is not None else None,
        "" if failed else _unanswered(sample, right=right),
        finish,
        f"{sample.where}: {failed}" if failed else "",
        bool(text) and is_refusal(text[:HEAD]),
    )
    sample.extracted = (sample.extracted or text or "")[:QUOTED]
    sample.question, sample.text, sample.target, sample.where = None, None, "", ""
    return answer


def _count_silence(answers: Sequence[_Answer]) -> None:
    """Count answers without a text as empty where the log holds the texts of others: it holds no answer there."""
    if any(answer.text_sha256 is not None for answer in answers):
        for answer in answers:
            cut = answer.failed or answer.sample.calls or answer.finish == "length"
            if answer.text_sha256 is None and not cut:
                answer.unanswered = "empty"


def _unanswered(sample: Sample, *, right: bool) -> Literal["", "empty", "unfiltered"]:
    """How the sample's answer is none. right: every scorer found it right."""
    if sample.text is None or sample.calls:
        return ""
    if not says_something(sample.text):
        return "empty"
    found_nothing = sample.extracted is not None and sample.extracted.strip() in NOTHING
    return "unfiltered" if found_nothing and not right and states(sample.text, sample.target) else ""


def _judged(source: str, answers: Sequence[_Answer], metric: str) -> tuple[list[str], tuple[str, ...]]:
    """(scorers whose values can be judged, those with a value outside 0 to 1). A value that is no finite number is one
    that the scorer could not give."""
    names = dict.fromkeys(name for answer in answers for name in answer.sample.values)
    if len(names) > MOST_METRICS:
        raise UsageError(f"{source} has {len(names):,} metrics, more than {MOST_METRICS}; name one: --metric NAME")
    if metric and metric not in names:
        raise UsageError(f"{source}: no sample has the metric {metric!r:.80}; it has {_named(names)}")
    outside = {
        name
        for answer in answers
        for name, value in answer.sample.values.items()
        if value is not None and isfinite(value) and not 0 <= value <= 1
    }
    judged = [name for name in ([metric] if metric else names) if name not in outside]
    if not judged:
        raise UsageError(
            f"{source}: no metric whose values lie from 0 to 1; it has {_named(names)}. qualgate judges such scores "
            "alone: bring others to that range in the harness."
        )
    return judged, () if metric else tuple(sorted(outside))


def _named(names: Iterable[str]) -> str:
    every = [f"{name:.60}" for name in names]
    return (", ".join(every[:20]) + (", …" if len(every) > 20 else "")) or "none at all"


def _rows(
    answer: _Answer,
    judged: Sequence[str],
    run: Run,
    by_question: Mapping[str, Mapping[str, None]],
) -> Iterator[ScoreRow]:
    """Yield a row for each judged scorer of the answer; one that failed has a row for all of them."""
    sample = answer.sample
    served = NOT_SAID
    if answer.text_sha256 is not None or sample.tokens is not None:
        served = Served(text_sha256=answer.text_sha256, tokens=sample.tokens)
    cluster = answer.question if len(by_question.get(answer.question, ())) > 1 else None
    for name in judged:
        value = sample.values.get(name)
        value = None if value is not None and not isfinite(value) else value
        if name not in sample.values and not answer.failed:
            continue  # the closed list finds it missing
        yield ScoreRow(
            id=sample.id,
            metric=intern(f"{HARNESS}{name}"),
            value=None if answer.failed else value,
            unsaid="" if value is not None or answer.failed else "no score",
            case_hash=answer.case_hash,
            scorer=intern(run.scorers.get(name, name)),
            repeat=sample.repeat,
            cluster=cluster,
            labels=sample.labels,
            finish_reason=answer.finish,
            unanswered=answer.unanswered,
            failed=answer.failed,
            served=served,
            extracted=sample.extracted or "",
            reason=sample.reason[:QUOTED],
            model=intern((run.model if sample.model is None else sample.model) or ""),
            line=sample.line,
        )


def _counts(answers: Sequence[_Answer]) -> Counts:
    texts = Counter(answer.text_sha256 for answer in answers if answer.text_sha256 is not None)
    return Counts(
        answers=len(answers),
        errors=sum(bool(answer.failed) for answer in answers),
        empty=sum(answer.unanswered == "empty" for answer in answers),
        cut=sum(answer.finish == "length" for answer in answers),
        unfiltered=sum(answer.unanswered == "unfiltered" for answer in answers),
        refused=sum(answer.refused for answer in answers),
        alike=max(texts.values(), default=0),
        texts=texts.total(),
    )


def _asked_again(source: str, by_question: Mapping[str, Mapping[str, None]]) -> Iterator[str]:
    """Note questions that stand under several ids: epochs exported so, or duplicates in the data."""
    copies = [list(ids) for ids in by_question.values() if len(ids) > 1]
    if copies:
        shown = "; ".join(
            ", ".join(f"{case:.40}" for case in ids[:SHOWN]) + (", …" if len(ids) > SHOWN else "")
            for ids in copies[:SHOWN]
        )
        yield (
            f"{source}: {sum(map(len, copies)):,} ids ask {counted(len(copies), 'question')}, word for word the same "
            f"({shown}{'; …' if len(copies) > SHOWN else ''}): each question counts once, as a cluster"
        )
