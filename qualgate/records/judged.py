"""A judge of answers: its identity, its questions about two answers, and its record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from qualgate.records.served import Served

PairKey = tuple[str, str, int]  # evalset, case, repeat
FLOOR = 0.7
REPLY_TOKENS = 512
UNCOMPARED = "not compared"  # why a pair has no preference of people


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """A served model that compares two answers by a rubric. labels: sha256 of its labelled sample, "" until read.
    floor: share of decided labels with which it must surely agree. max_tokens: of a reply."""

    model: str
    served: Served
    rubric: str
    labels: str = ""
    floor: float = FLOOR
    max_tokens: int = REPLY_TOKENS


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """Two answers to one question, and people's preference: 1 the second, 0 the first, 0.5 neither."""

    id: str
    question: str
    first: str
    second: str
    preferred: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A judge's stored reply to one question in one order. variant: "" for a label, which is in `label` as JSON.
    swapped: the second answer (a variant's) was shown first. asked: sha256 of the request. reply: None with a reason in
    `error`. served: the server's description of itself."""

    variant: str
    evalset: str
    case_id: str
    repeat: int
    swapped: bool
    asked: str
    reply: str | None
    error: str
    served: str
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One pair after both orders. win: of the second answer (a variant's), 0, 0.5 or 1; None if a reply is unusable
    (`why`). places: the preference of each order, "A", "B" or "tie", () if not asked. style: whether the second is
    longer (1), alike (0) or shorter (-1), and has more, as many or fewer marks of format. steers: names of texts in
    either answer that address a judge."""

    win: float | None
    why: str = ""
    places: tuple[str, ...] = ()
    style: tuple[int, int] = (0, 0)
    steers: tuple[str, ...] = ()

    @property
    def consistent(self) -> bool:
        """Whether both orders prefer the same answer, or neither."""
        return self.places in ((), ("A", "B"), ("B", "A"), ("tie", "tie"))


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedLabel:
    """A labelled pair with people's and the judge's preference. question: labels of one question are dependent."""

    preferred: float
    question: str
    judged: Judged


@dataclass(frozen=True, slots=True)
class Vote:
    """One person's preference in one pair. win: of the variant, 0, 0.5 or 1. place: of the answer that they preferred,
    as it was shown."""

    reviewer: str
    win: float
    place: Literal["first", "second", "tie"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedArm:
    """A judge's results on a variant's answers. judge: name and version. floor: None of people, who are the measure
    themselves. fault: why they do not count, "" if they do. votes: of people. read: digest of all votes that the gate
    read, "" of a judge."""

    judge: str
    floor: float | None
    pairs: Mapping[PairKey, Judged] = field(default_factory=dict)
    labels: tuple[JudgedLabel, ...] = ()
    fault: str = ""
    votes: Mapping[PairKey, tuple[Vote, ...]] = field(default_factory=dict)
    read: str = ""
