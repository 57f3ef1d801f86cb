"""Samples as a harness logged them, and the log that every reader makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qualgate.intake.score_rows import Scores


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which part of the results to read, where they hold several; "" leaves it to the results."""

    task: str = ""
    model: str = ""
    filter: str = ""
    metric: str = ""  # the only one to judge
    columns: Mapping[str, str] = field(default_factory=dict)  # of a table: meaning → its column


@dataclass(slots=True, kw_only=True)  # not frozen, which takes three times as long to make
class Sample:
    """One answer to one question, as a harness logged it."""

    id: str
    where: str  # file and line, or the member of an archive, for messages
    line: int = 0
    repeat: int = 0
    question: Any = None  # JSON of all that was asked; None: the log does not hold it
    target: str = ""  # the reference
    text: str | None = None  # the answer; None: the log does not hold it
    calls: bool = False  # the answer calls tools
    extracted: str | None = None  # what the harness read in the answer; "" = nothing; None: not logged
    tokens: int | None = None  # of the answer, thought included
    finish: str = ""  # how the answer ended, in the server's word
    error: str = ""  # the harness's own word for what failed
    values: Mapping[str, float | None] = field(default_factory=dict)  # the scorer's name → value; None: it cannot say
    reason: str = ""  # the scorer's
    labels: tuple[str, ...] = ()  # "task:x", "tag:y"
    model: str | None = None  # None: the one of `Run`


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Facts of all samples of some results; a reader returns them after its last sample."""

    path: Path  # of the samples
    task: str = ""
    names: tuple[str, ...] = ()  # other names of the task
    model: str | None = None  # None: each sample names its own
    scorers: Mapping[str, str] = field(default_factory=dict)  # the scorer's name → its name with version and settings
    settings: Mapping[str, str] = field(default_factory=dict)  # see `Log`, as the next two
    faults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What one side's answers are, whatever their scores."""

    answers: int = 0
    errors: int = 0
    empty: int = 0
    cut: int = 0
    unfiltered: int = 0
    refused: int = 0
    alike: int = 0  # answers that are the side's most frequent text
    texts: int = 0  # answers whose text the log holds
    outside: tuple[str, ...] = ()  # scorers with a value outside 0 to 1, which are not judged


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """The results of one model on one task."""

    format: str = ""  # the reader's name
    task: str
    scores: Scores
    counts: Counts
    settings: Mapping[str, str] = field(default_factory=dict)  # what both sides must have alike → its value
    faults: tuple[str, ...] = ()  # why these results decide nothing: a run that ended early, a summary that disagrees
    notes: tuple[str, ...] = ()  # for the verdict
