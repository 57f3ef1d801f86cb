"""What a baseline job leaves for the variants: its answers, and what its logits are recomputed from.

`job.artifact` is a safetensors file: `lengths` int32 [rows], `tokens` int32 [all tokens], and `hidden` float32
[all tokens, width], what entered the output head at each token, rows one after the other. The head itself is
written once beside it. Where a model changes its logits after the head (soft-capping, scaling), `logits` float32
[all tokens, vocabulary] is kept instead of `hidden`: always right, only larger.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from qualgate.engine.forward import Decoder, Step
from qualgate.errors import InfrastructureError
from qualgate.records import ArmIdentity, Job, UnitKey


@dataclass(frozen=True, slots=True)
class BaselineAnswers:
    """A baseline job's answers, in the order of the job's prompts."""

    answers: tuple[tuple[int, ...], ...]
    starts: tuple[int, ...]  # of each row in `states`
    states: torch.Tensor  # [all tokens, width] hidden states, or [all tokens, vocabulary] logits
    head: dict[str, torch.Tensor] | None  # weight, and bias if there is one; None: states are the logits

    def logits(self, row: int, start: int, stop: int) -> torch.Tensor:
        """The baseline's float32 logits [stop - start, vocabulary] at these positions of a row's answer."""
        states = self.states[self.starts[row] + start : self.starts[row] + stop]
        if self.head is None:
            return states
        return torch.nn.functional.linear(states, self.head["weight"], self.head.get("bias"))


class Recorder:
    """Watches the baseline generate and keeps what its logits can be recomputed from."""

    def __init__(self, decoder: Decoder) -> None:
        self._head = decoder.head
        self.head_is_last: bool | None = None
        self._rows: list[torch.Tensor] = []
        self._states: list[torch.Tensor] = []

    def __call__(self, rows: torch.Tensor, step: Step) -> None:
        if self.head_is_last is None:  # same input, same shape: equal to the bit, or something comes after the head
            self.head_is_last = torch.equal(self._head(step.hidden).float(), step.logits)
        states = step.hidden if self.head_is_last else step.logits
        self._rows.append(rows.cpu())
        self._states.append(states[:, -1].float().cpu())

    def states(self) -> torch.Tensor:
        """[all tokens, ...], row after row, each in the order it was said."""
        order = torch.sort(torch.cat(self._rows), stable=True).indices
        return torch.cat(self._states)[order]


def write_artifact(
    job: Job, identity: ArmIdentity, dtype: torch.dtype, answers: Sequence[Sequence[int]], recorder: Recorder
) -> None:
    """Write `job.artifact`, and the head beside it when it is not there yet, each in one rename."""
    path = Path(job.artifact)
    path.parent.mkdir(parents=True, exist_ok=True)
    head = ""
    if recorder.head_is_last:
        head = f"head-{identity.weights[:16]}.safetensors"
        if not (path.parent / head).exists():
            tensors = dict(recorder._head.named_parameters())
            # Its numbers are rounded to `dtype` already: half the bytes, the same bits.
            _save(path.parent / head, {name: tensor.to(dtype).contiguous() for name, tensor in tensors.items()}, {})
    tensors = {
        "lengths": torch.tensor([len(answer) for answer in answers], dtype=torch.int32),
        "tokens": torch.tensor([token for answer in answers for token in answer], dtype=torch.int32),
        "states": recorder.states(),
    }
    _save(path, tensors, {"head": head, "cases": json.dumps([_case(prompt.key) for prompt in job.prompts])})


def read_artifact(job: Job, device: torch.device) -> BaselineAnswers:
    """The baseline's answers to the job's cases. Raises InfrastructureError when the file is not that."""
    path = Path(job.artifact)
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            metadata = file.metadata()
            lengths, tokens = file.get_tensor("lengths").tolist(), file.get_tensor("tokens").tolist()
            states = file.get_tensor("states")
        head = _head(str(path.parent / metadata["head"]), str(device)) if metadata["head"] else None
    except (OSError, SafetensorError, KeyError) as error:
        raise InfrastructureError(f"The baseline's artifact {path} cannot be read ({error}). Run again.") from error
    if json.loads(metadata["cases"]) != [_case(prompt.key) for prompt in job.prompts]:
        raise InfrastructureError(f"The baseline's artifact {path} is of other cases. Delete it and run again.")
    starts = [sum(lengths[:row]) for row in range(len(lengths))]
    answers = [tuple(tokens[start : start + length]) for start, length in zip(starts, lengths, strict=True)]
    return BaselineAnswers(tuple(answers), tuple(starts), states, head)


@lru_cache(maxsize=1)  # every job of a run has the same
def _head(path: str, device: str) -> dict[str, torch.Tensor]:
    return {name: tensor.float() for name, tensor in load_file(path, device=device).items()}


def _case(key: UnitKey) -> list[str | int]:
    return [key.evalset, key.case_id, key.repeat]


def _save(path: Path, tensors: dict[str, torch.Tensor], metadata: dict[str, str]) -> None:
    handle, unfinished = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    os.close(handle)
    try:
        save_file(tensors, unfinished, metadata=metadata)
        os.replace(unfinished, path)
    finally:
        Path(unfinished).unlink(missing_ok=True)
