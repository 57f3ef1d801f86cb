"""A baseline job's files for the variants: its answers, and the states that its logits are recomputed from.

`job.artifact` is a sealed safetensors file (quant/sealed_tensors.py): `lengths` int32 [rows], `tokens` int32 [all
tokens], and `states` float32 [all tokens, width], what entered the output head at each token, rows one after the
other, without those of rows that are not weighed. The head itself is written once beside it. Both say which place in
which run they were made for, as a whole file of another run would be as wrong as a damaged one. What a model does to
its logits after the head (soft cap, scale) is done again from its config, once the first batch showed that this gives
the same bits. Where it does not, `states` are the float32 logits [all tokens, vocabulary]: always right, but as much
memory as they take, so more than LOGITS_BYTES are refused.

From a vocabulary of LARGE on, and where the head is all there is, states are kept in codes (`high`, `low`, `exponent`;
see kept.py) with `eta`, float32 [all tokens]: how far each position's log-probs may have moved. A position with eta 0
is in `states`, as it was. Small vocabularies belong to small models, whose artifacts are small: they stay exact.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate, pairwise
from pathlib import Path

import torch

from qualgate.engine.dense import head_of
from qualgate.engine.head import After, OutputHead, finished
from qualgate.engine.hidden_codes import ETA, Kept, keep, moved, read
from qualgate.engine.request import Read, Spoken
from qualgate.errors import InfrastructureError, UsageError
from qualgate.quant.sealed_tensors import read_tensors, write_tensors
from qualgate.records import ArmIdentity, Job, Prompt

LOGITS_BYTES = 2**29  # of kept logits in one job
LARGE = 4096  # tokens of a vocabulary


@dataclass(frozen=True, slots=True, eq=False)
class KeptHead:
    """A baseline's output head. tensors: weight, and bias if there is one; module: multiplies by them, see
    dense.head_of."""

    tensors: dict[str, torch.Tensor]
    module: torch.nn.Module

    @classmethod
    def of(cls, tensors: dict[str, torch.Tensor]) -> KeptHead:
        """Return the head of these tensors."""
        return cls(tensors, head_of(tensors))


@dataclass(frozen=True, slots=True)
class BaselineAnswers:
    """A baseline job's answers, in the order of the job's prompts."""

    answers: tuple[tuple[int, ...], ...]
    starts: tuple[int, ...]  # of each row in `states`, which has none of a row that is not weighed
    states: torch.Tensor  # [all tokens, width] hidden states, or [all tokens, vocabulary] logits
    head: KeptHead | None  # None: states are the logits
    after: After = field(default_factory=dict)  # see head.finished
    etas: tuple[float, ...] = ()  # of each row: the log-probs of `states` are within this of the baseline's; (): exact

    @property
    def vocabulary(self) -> int:
        """Entries of the output head."""
        return self.states.shape[1] if self.head is None else self.head.tensors["weight"].shape[0]

    def eta(self, row: int) -> float:
        """Nats: the log-probs that `states` give a row are within this of the baseline's; 0.0 = exact."""
        return self.etas[row] if self.etas else 0.0

    def logits(self, row: int, start: int, stop: int) -> torch.Tensor:
        """The baseline's float32 logits [stop - start, vocabulary] at these positions of a row's answer."""
        return self.logits_of(self.states[self.starts[row] + start : self.starts[row] + stop])

    def logits_of(self, states: torch.Tensor) -> torch.Tensor:
        """Return the logits of some of `states`, float32 [positions, vocabulary]."""
        if self.head is None:
            return states
        return finished(self.head.module(states), self.after)


class Recorder:
    """Watch the baseline's run and keep what its logits can be recomputed from."""

    def __init__(self, head: OutputHead, weighed: frozenset[int] | None = None) -> None:
        """weighed: the rows to keep, all by default."""
        self.head, self._weighed = head, weighed
        self._bytes = 0
        self._rows: list[int] = []
        self._states: list[torch.Tensor] = []

    def __call__(self, event: Spoken | Read) -> None:
        """Keep an event's states; those of one request arrive in the order of its answer."""
        if event.states is None:
            return
        rows, states = list(event.requests), event.states
        if self._weighed is not None and not self._weighed.issuperset(rows):
            places = [place for place, row in enumerate(rows) if row in self._weighed]
            rows, states = [rows[place] for place in places], states[places]
        self._bytes += 0 if self.head.whole else 4 * states.numel()
        if self._bytes > LOGITS_BYTES:
            raise UsageError(
                "This model changes its logits after the output head in a way qualgate does not know, and keeping "
                f"them whole takes more than {LOGITS_BYTES >> 20} MiB for one batch. Its drift cannot be measured in "
                "this version."
            )
        self._rows += rows
        self._states.append(states.float().cpu())

    @property
    def width(self) -> int:
        """Numbers kept per token; 0 before the first token."""
        return self._states[0].shape[1] if self._states else 0

    def states(self) -> torch.Tensor:
        """Return all states [all tokens, ...]: row after row, each in the order of its tokens."""
        order = torch.sort(torch.tensor(self._rows, dtype=torch.int64), stable=True).indices
        return torch.cat(self._states)[order]


def write_artifact(
    job: Job, identity: ArmIdentity, dtype: torch.dtype, answers: Sequence[Sequence[int]], recorder: Recorder
) -> None:
    """Write `job.left_at`, for `job.artifact`, and the head beside it when it is not there yet, each in one rename."""
    path = Path(job.artifact)
    path.parent.mkdir(parents=True, exist_ok=True)
    head = ""
    if recorder.head.whole:
        head = f"head-{identity.weights[:16]}.safetensors"
        if not (path.parent / head).exists():
            tensors = recorder.head.tensors
            # Its numbers are rounded to `dtype` already: half the bytes, the same bits.
            halved = {name: tensor.to(dtype).contiguous() for name, tensor in tensors.items()}
            write_tensors(path.parent / head, halved, {"place": place_of(path.parent / head)})
    tensors = {
        "lengths": torch.tensor([len(answer) for answer in answers], dtype=torch.int32),
        "tokens": torch.tensor([token for answer in answers for token in answer], dtype=torch.int32),
        **_columns(recorder),
    }
    about = {
        "place": place_of(path),
        "width": str(recorder.width),
        "head": head,
        "after": json.dumps(recorder.head.after),
        "cases": json.dumps([case_of(prompt) for prompt in job.prompts]),
        "rows": json.dumps([prompt.rows for prompt in job.prompts]),
        "weighed": json.dumps([prompt.weighed for prompt in job.prompts for _ in range(prompt.rows)]),
    }
    write_tensors(Path(job.left_at), tensors, about)


def read_artifact(job: Job, device: torch.device) -> BaselineAnswers:
    """Return the baseline's answers to the job's cases. Raises InfrastructureError for a file that was not written for
    this job of this run, and deletes it, so that the next run writes it again."""
    path = Path(job.artifact)
    head_file = None
    try:
        columns, about = read_tensors(path)
        head_file = path.parent / about["head"] if about["head"] else None
        check_place(path, about)
        lengths, tokens = columns["lengths"].tolist(), columns["tokens"].tolist()
        states, eta = _states({name: column.to(device) for name, column in columns.items()}, about)
        after = json.loads(about["after"])
        ends = list(accumulate(json.loads(about["rows"])))
        weighed = json.loads(about["weighed"])
        if not ends[-1] == len(lengths) == len(weighed):
            raise ValueError("rows are missing")
        held = [length if kept else 0 for length, kept in zip(lengths, weighed, strict=True)]
        if sum(held) != len(states):
            raise ValueError("positions are missing")
        placed_prompts = zip(places_of(job, json.loads(about["cases"])), job.prompts, strict=True)
        rows = [row for place, prompt in placed_prompts for row in range(ends[place] - prompt.rows, ends[place])]
        wanted = [prompt.weighed for prompt in job.prompts for _ in range(prompt.rows)]
        if any(asked and not weighed[row] for asked, row in zip(wanted, rows, strict=True)):
            raise ValueError("rows that are weighed are missing")
        head = _head(head_file, str(device)) if head_file else None
    except (OSError, KeyError, TypeError, ValueError) as error:
        # Also when the head alone is broken: it is made again together with an artifact.
        for broken in (path, head_file):
            if broken is not None:
                broken.unlink(missing_ok=True)
        raise InfrastructureError(f"The baseline's artifact {path} cannot be read ({error}). Run again.") from error
    said, starts = [0, *accumulate(lengths)], [0, *accumulate(held)]
    answers = [tuple(tokens[start:end]) for start, end in pairwise(said)]
    etas = [float(row.max()) if len(row) else 0.0 for row in eta.split(held)]
    return BaselineAnswers(
        answers=tuple(answers[row] for row in rows),
        starts=tuple(starts[row] for row in rows),
        states=states,
        head=head,
        after=after,
        etas=tuple(etas[row] for row in rows) if eta.any() else (),
    )


def places_of(job: Job, cases: list[list[str | int]]) -> list[int]:
    """Places of the job's cases in a file, of which it may ask for only some. ValueError for a missing case."""
    try:
        return [cases.index(case_of(prompt)) for prompt in job.prompts]
    except ValueError:
        raise ValueError("it is of other cases") from None


def _columns(recorder: Recorder) -> dict[str, torch.Tensor]:
    """Return the columns of the file that hold the states."""
    states, head = recorder.states(), recorder.head
    if head.vocabulary < LARGE or not head.whole or head.after:
        return {"states": states}
    codes = keep(states)
    eta = moved(states, codes, head.tensors["weight"])
    coded = (eta > 0) & (eta <= ETA)
    return {
        "eta": torch.where(coded, eta, 0), "states": states[~coded],
        "high": codes.high[coded], "low": codes.low[coded], "exponent": codes.exponent[coded],
    }  # fmt: skip


def _states(columns: dict[str, torch.Tensor], metadata: dict[str, str]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return all states in float32 and their eta, [all tokens]."""
    uncoded = columns["states"]
    if "eta" not in columns:
        return uncoded, torch.zeros(len(uncoded))
    eta = columns["eta"]
    coded = read(Kept(columns["high"], columns["low"], columns["exponent"], int(metadata["width"])))
    if (len(coded), len(uncoded)) != (int((eta > 0).sum()), int((eta == 0).sum())) or coded.shape[1] != uncoded.shape[
        1
    ]:
        raise ValueError("positions are missing")
    states = uncoded.new_empty(len(eta), uncoded.shape[1])
    states[eta > 0], states[eta == 0] = coded, uncoded
    return states, eta


@lru_cache(maxsize=1)  # every job of a run has the same
def _head(path: Path, device: str) -> KeptHead:
    tensors, about = read_tensors(path)
    check_place(path, about)
    return KeptHead.of({name: tensor.to(device).float() for name, tensor in tensors.items()})


def place_of(path: Path) -> str:
    """Place of a file. A run's folder is named by its key, which covers everything that generation depends on."""
    return f"{path.parent.name}/{path.name}"


def check_place(path: Path, about: dict[str, str]) -> None:
    """Raise ValueError if a file was made for another place than where it lies."""
    if about["place"] != place_of(path):
        raise ValueError(f"it was made for {about['place']}")


def case_of(prompt: Prompt) -> list[str | int]:
    """Return what identifies a case among those of all jobs."""
    return [prompt.key.evalset, prompt.key.case_id, prompt.key.repeat, prompt.case_hash]
