"""Cases, and versioned lists of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from qualgate.records.identity import case_hash, content_hash, question_hash


def turn_of(case_id: str) -> tuple[str, int] | None:
    """(trajectory, number from 1) of a case whose id is that of a turn, `TRAJECTORY/2`; None for other cases."""
    trajectory, _, number = case_id.rpartition("/")
    if trajectory and number.isascii() and number.isdigit() and not number.startswith("0") and len(number) < 10:
        return trajectory, int(number)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A prompt with its references. `body` is the case's JSON object as in the file."""

    evalset: str
    body: dict[str, Any]

    @property
    def id(self) -> str:
        """Unique id in the evalset."""
        return self.body["id"]

    @property
    def task(self) -> str:
        """The task, by which reports group cases; by default the evalset's name."""
        return self.body.get("task", self.evalset)

    @property
    def tags(self) -> tuple[str, ...]:
        """Tags, for rules and reports only; not part of `hash`."""
        return tuple(self.body.get("tags", ()))

    @property
    def cluster(self) -> str | None:
        """The cluster: cases of one depend on each other and count as one observation; None: none."""
        return self.body.get("cluster")

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels by which a rule can select the case: its task and tags."""
        return (f"task:{self.task}", *(f"tag:{tag}" for tag in self.tags))

    @property
    def max_new_tokens(self) -> int:
        """Longest allowed answer in tokens."""
        return self.body["max_new_tokens"]

    @property
    def hash(self) -> str:
        """Identity by content, without tags: two arms answered the same case only if it is equal."""
        return case_hash(self.body)

    @property
    def question(self) -> str:
        """Hash of the question, without id and references; "" for a body that asks nothing."""
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
    """A gate file's `{name: NAME, cases: external}`: an evalset whose cases appear in score files only."""

    name: str


SetRef = str | LmEvalTask | ExternalCases  # what a gate file's `evalsets` may name


@dataclass(frozen=True, slots=True, kw_only=True)
class Evalset:
    """A versioned, hashed list of cases. `metrics`: names from `qualgate.records.metrics` that its cases carry."""

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
        """Hash of everything that affects the meaning of a score on this set; the cases are in `sha256`."""
        return content_hash([self.name, self.version, self.sha256, self.metrics, self.lenient, self.normalizers])


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationSet:
    """A versioned, hashed list of cases for quantizers. Each is read as its prompt and then its `answer`."""

    name: str
    version: str
    sha256: str  # of the JSONL file's bytes
    description: str = ""
    path: str = ""
    cases: tuple[Case, ...] = ()
