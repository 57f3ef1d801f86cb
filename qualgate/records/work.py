"""The work of a run: units, their prompts and batches, and the plan."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from qualgate.records.arms import ArmIdentity, ArmSpec
from qualgate.records.cases import Evalset
from qualgate.records.policy import Policy
from qualgate.records.sampling import GREEDY, Sampling

NO_REASONING = "none"  # format of thoughts if none are expected


@dataclass(frozen=True, slots=True, order=True)
class UnitKey:
    """Key of one expected completion of a run, the smallest thing that is done, missing or failed."""

    arm: str
    evalset: str
    case_id: str
    repeat: int = 0

    @property
    def question(self) -> str:
        """For people: set, case and number of the answer."""
        return f"{self.evalset}/{self.case_id}" + (f"#{self.repeat}" if self.repeat else "")


Window = tuple[tuple[int, ...], tuple[int, ...]]  # a context, and what is read after it; neither is empty


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A case rendered through the chat template and tokenized, ready for the engine.

    A prompt with `requests` generates nothing: the windows of each request are read and scored by likelihood.
    """

    key: UnitKey
    case_hash: str
    token_ids: tuple[int, ...]
    max_new_tokens: int
    until: tuple[str, ...] | None = None  # texts that end the answer, which they and special tokens are no part of
    sampling: Sampling = GREEDY
    requests: tuple[tuple[Window, ...], ...] = ()
    constraint: str = ""  # the grammar that its answer keeps to, as the library reads it; "": none
    weighed: bool = True  # a variant's drift from the baseline's answer is measured
    reasoning: str = NO_REASONING  # how its answer's thought is written, as `scoring.reasoning.split` has it
    asked: str = ""  # JSON: what a server is asked of it beside tokens and sampling, see `served.asked`; "": nothing

    @property
    def rows(self) -> int:
        """Number of the prompt's rows in a batch: one for its answer, or one for each window."""
        return sum(map(len, self.requests)) or 1

    @property
    def tokens_read(self) -> int:
        """Tokens that the model reads before, or instead of, generating."""
        return len(self.token_ids) + sum(len(a) + len(b) for windows in self.requests for a, b in windows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Units that one worker runs as one batch. The baseline's job k and each variant's job k have the same cases."""

    index: int
    arm: ArmSpec
    prompts: tuple[Prompt, ...]
    artifact: str  # the baseline writes it (token ids, hidden states before the head); variants read it
    drafted: bool  # a variant starts from the baseline's answer instead of decoding every token
    stage: int = 0  # jobs of an earlier one come first: the look they are for, or the block where times decide
    seed: int = 0  # of the noise by which tokens are drawn; its prompts have one sampling
    timed: bool = False  # its times decide: a worker that has just loaded the arm warms up first
    attempt: str = ""  # which of several that are at it at once: each leaves an artifact, one of which counts

    def without(self, keys: Collection[UnitKey]) -> Job:
        """The job without the units of these keys."""
        return replace(self, prompts=tuple(prompt for prompt in self.prompts if prompt.key not in keys))

    @property
    def left_at(self) -> str:
        """Where the baseline writes its artifact."""
        folder, _, name = self.artifact.rpartition("/")
        return f"{folder}/{self.attempt}-{name}.part" if self.attempt else self.artifact


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """Facts from the headers of a model's folder, for a forecast."""

    method: str  # of its quantized format; "": full precision
    parameters: int
    nbytes: int = 0  # of its weight files
    kept: int = 0  # numbers that a position keeps as keys and values; 0: its config does not say
    vocabulary: int = 0  # entries; likewise
    template: str = ""  # sha256 of its chat template's text


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The plan of a run. The same `key` means the same generation: such a run can be resumed."""

    key: str  # sha256 over evalsets, arm identities, sampling, engine and scorer versions; no threshold is in it
    gate_file: str  # its text, kept with the run
    policy: Policy
    arms: tuple[ArmSpec, ...]  # the baseline first
    identities: dict[str, ArmIdentity]  # planned, by arm name
    evalsets: tuple[Evalset, ...]
    jobs: tuple[Job, ...]  # the baseline's first
    artifacts: str  # folder of the baseline's artifacts

    also: dict[str, tuple[str, ...]] = field(default_factory=dict)  # evalset → metrics that only a rule asks for
    gate_name: str = ""  # of the gate file
    models: dict[str, ModelFacts] = field(default_factory=dict)  # by `ArmSpec.model`

    @property
    def expected(self) -> tuple[UnitKey, ...]:
        """The closed list: every unit of every arm."""
        return tuple(prompt.key for job in self.jobs for prompt in job.prompts)

    @property
    def repeats(self) -> int:
        """Answers to each case."""
        return 1 + max((key.repeat for key in self.expected), default=0)
