"""Cases, and the versioned lists that hold them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from qualgate.identity import case_hash, content_hash, question_hash


def turn_of(case_id: str) -> tuple[str, int] | None:
    """(trajectory, number from 1) of a case that is a turn of one, as its id says: `TRAJECTORY/2`. None: it is none."""
    trajectory, _, number = case_id.rpartition("/")
    if trajectory and number.isascii() and number.isdigit() and not number.startswith("0") and len(number) < 10:
        return trajectory, int(number)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One prompt with what its scorers need. `body` is the case's JSON object as it stands in the file."""

    evalset: str
    body: dict[str, Any]

    @property
    def id(self) -> str:
        """One of its kind in its evalset."""
        return self.body["id"]

    @property
    def task(self) -> str:
        """What reports group it by; a case that names none has its evalset's name."""
        return self.body.get("task", self.evalset)

    @property
    def tags(self) -> tuple[str, ...]:
        """For rules and reports alone; they are no part of `hash`."""
        return tuple(self.body.get("tags", ()))

    @property
    def cluster(self) -> str | None:
        """Cases that share one are not independent and count as one observation; None: it stands alone."""
        return self.body.get("cluster")

    @property
    def labels(self) -> tuple[str, ...]:
        """By what a rule can choose it: its task and tags."""
        return (f"task:{self.task}", *(f"tag:{tag}" for tag in self.tags))

    @property
    def max_new_tokens(self) -> int:
        """The longest answer it may get, in tokens."""
        return self.body["max_new_tokens"]

    @property
    def hash(self) -> str:
        """Its identity by content, tags left out: two arms answered the same case only where it is equal."""
        return case_hash(self.body)

    @property
    def question(self) -> str:
        """Hash of what is asked, without id and references; "" for a body that asks nothing."""
        return question_hash(self.body)


@dataclass(frozen=True, slots=True, kw_only=True)
class LmEvalTask:
    """A gate file's `{lm_eval: TASK}`: lm-eval makes the requests and scores the answers."""

    task: str
    include_path: str = ""  # folder with the task's YAML, absolute; "" = lm-eval's own tasks
    filter: str = ""  # the one whose metrics are gated; "" = the only one
    metric: str = ""  # of the task's own, gated as `lm_eval.score`
    num_fewshot: int | None = None
    limit: int | None = None  # documents, the first ones
    group: str = ""  # the group or tag of lm-eval's that the gate file names, of which this is a task


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalCases:
    """A gate file's `{name: NAME, cases: external}`: an evalset whose cases only score files speak of."""

    name: str


SetRef = str | LmEvalTask | ExternalCases  # what a gate file's `evalsets` may name


@dataclass(frozen=True, slots=True, kw_only=True)
class Evalset:
    """A versioned, hashed list of cases. `metrics`: names from `qualgate.metrics` that its cases carry."""

    name: str
    version: str
    sha256: str  # of the JSONL file's bytes; where the YAML adds to its cases, of that too
    metrics: tuple[str, ...]
    lenient: tuple[str, ...] = ()  # declared lenient modes of the JSON reader, e.g. "code_fence"
    normalizers: tuple[str, ...] = ()  # applied to both sides by exact_match, in order
    dialect: str = ""  # of tool calls, which the YAML adds to cases that declare none; it is in `sha256`
    formats: str = ""  # what `format` in their schemas does, which the YAML adds likewise
    simulation: tuple[tuple[str, str], ...] = ()  # simulated tools, path and text, which are in `sha256` too
    description: str = ""
    path: str = ""
    cases: tuple[Case, ...] = ()
    lm_eval: LmEvalTask | None = None  # who scores it; what it asks and how it scores is in `sha256`

    @property
    def content(self) -> str:
        """Hash of everything that changes what a score on this set means; the cases are in `sha256`."""
        return content_hash([self.name, self.version, self.sha256, self.metrics, self.lenient, self.normalizers])


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationSet:
    """A versioned, hashed list of cases that quantizers may see. Each is read as its prompt and then its `answer`."""

    name: str
    version: str
    sha256: str  # of the JSONL file's bytes
    description: str = ""
    path: str = ""
    cases: tuple[Case, ...] = ()
